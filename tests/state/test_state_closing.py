"""In what order a run with state closes."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import pytest

import drift
from drift.engines.source_feed import SourceFeed
from drift.state.files import FilesBackend


def test_the_last_checkpoint_is_written_before_sources_are_closed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where a source learns of it, it lets go of what no run will read again."""
    graph, write, close = drift.Graph("closing"), FilesBackend.write, SourceFeed.close
    graph.source("numbers").sink("out")
    events, closed = list[str](), threading.Event()

    def written(self: FilesBackend, *arguments: Any) -> None:
        closed.wait(0.1)  # long enough for a run that would not wait
        write(self, *arguments)
        events.append("written")

    def close_feed(self: SourceFeed) -> None:
        events.append("closed")
        closed.set()
        close(self)

    monkeypatch.setattr(FilesBackend, "write", written)
    monkeypatch.setattr(SourceFeed, "close", close_feed)
    drift.run(graph, {"numbers": range(50)}, state=drift.Checkpoints(tmp_path / "state"), batch_items=10).finish()
    assert events[-2:] == ["closed", "written"], "what is told of the run comes last"
    assert events.count("closed") == 1 and len(events) > 2
