"""Ctrl-C between two items, never inside the writing of one; SIGTERM.

Invariant: Ctrl-C ends the run at once, except while sinks or the record are being written or the run is being closed:
then right afterwards. SIGTERM ends the run's sources, and all items read are released. A second signal ends the run in
any case.

Why: code that writes or closes is marked as `undisturbed`, and the handler checks whether the main thread is in it. The
position is noted at the same point where the handler waits, so the reported position is the one in the files.
"""

from __future__ import annotations

import signal
import threading
from collections.abc import Sequence
from types import FrameType
from typing import Any

from drift.running import Run
from drift.sinks.base import Committing, Sink, Ticking
from drift.undisturbed import may_be_interrupted
from drift_graph.metas import Metas


class Interrupts:
    """Turns SIGINT and SIGTERM into KeyboardInterrupt while it is entered.

    Attributes:
        number: the signal that came; 0 if none.
        running: the run whose sources the first SIGTERM ends, instead of a KeyboardInterrupt; a second signal ends it.
        stopped: a SIGTERM has ended the sources.
    """

    def __init__(self) -> None:
        self.number = 0
        self.running: Run | None = None
        self.stopped = False
        self._before: dict[int, Any] = {}

    def __enter__(self) -> Interrupts:
        if threading.current_thread() is threading.main_thread():
            for number in (signal.SIGINT, signal.SIGTERM):
                self._before[number] = signal.signal(number, self._on_signal)
        return self

    def __exit__(self, *_: object) -> None:
        for number, before in self._before.items():
            signal.signal(number, before)

    def check(self) -> None:
        """Act on a signal that came during writing; called between two batches."""
        if self.number:
            raise KeyboardInterrupt

    def _on_signal(self, number: int, frame: FrameType | None) -> None:
        if number == signal.SIGTERM and self.running is not None and not self.stopped:
            self.stopped = True
            self.running.stop()
            return
        again = bool(self.number)
        self.number = number
        if again or may_be_interrupted():
            raise KeyboardInterrupt


class PositionedSink:
    """A sink that records its position.

    Attributes:
        position: after the last item written.
    """

    def __init__(self, sink: Sink) -> None:
        self.position = 0
        self._sink = sink

    def open(self) -> None:
        self._sink.open()

    def write(self, positions: Sequence[int], metas: Metas, payloads: Sequence[Any]) -> None:
        self._sink.write(positions, metas, payloads)
        self.position = positions[-1] + 1

    def tick(self) -> None:
        if isinstance(self._sink, Ticking):
            self._sink.tick()

    def complete(self) -> None:
        self._sink.complete()

    def close(self) -> None:
        self._sink.close()

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):  # also where it is copied, before it has a sink
            raise AttributeError(name)
        return getattr(self._sink, name)


class PositionedCommittingSink(PositionedSink):
    """A `PositionedSink` that takes part in the checkpoints of a run."""

    def __init__(self, sink: Committing) -> None:
        assert isinstance(sink, Sink)
        super().__init__(sink)
        self._committing = sink

    def committed_position(self) -> int | None:
        return self._committing.committed_position()

    def commit(self) -> Any:
        return self._committing.commit()

    def resume_at(self, position: int, committed: Any) -> None:
        self._committing.resume_at(position, committed)


def with_position(sink: Sink) -> PositionedSink:
    return PositionedCommittingSink(sink) if isinstance(sink, Committing) else PositionedSink(sink)
