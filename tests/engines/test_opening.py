"""A run that cannot be opened leaves nothing open."""

from __future__ import annotations

import socket
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

import drift


class Numbers:
    """A source that counts its open readers."""

    live = False

    def __init__(self) -> None:
        self.opened = self.closed = 0

    def open(self) -> drift.sources.Reader:
        self.opened += 1
        return _Reader(self)


class _Reader(drift.sources.Reader):
    def __init__(self, source: Numbers) -> None:
        self._source = source
        self._next = 0

    def read(self, items_max: int) -> list[Any] | None:
        self._next += 1
        return [self._next] if self._next <= 3 else None

    def position(self) -> Any:
        return self._next

    def seek(self, position: Any) -> None:
        self._next = position

    def close(self) -> None:
        self._source.closed += 1


class Refusing(list[Any]):
    """A sink that cannot be opened where a run resumes."""

    def open(self) -> None:
        raise drift.SinkError("the sink is away")

    def write(self, positions: Sequence[int], metas: Any, payloads: Sequence[Any]) -> None: ...

    def complete(self) -> None: ...

    def close(self) -> None:
        self.append("closed")


@pytest.fixture
def taken() -> Iterator[int]:
    """A port that somebody else listens at."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield server.getsockname()[1]


def graph() -> drift.Graph:
    numbers = drift.Graph("numbers")
    numbers.source("n").count(key=str).sink("out")
    return numbers


def test_where_the_page_cannot_be_served_sources_and_state_are_closed(tmp_path: Path, taken: int) -> None:
    numbers = Numbers()
    with pytest.raises(drift.SettingsError, match=f"{taken}.*choose another port"):
        drift.run(graph(), {"n": numbers}, state=tmp_path, web=taken)
    assert (numbers.opened, numbers.closed) == (1, 1)
    assert drift.run(graph(), {"n": numbers}, state=tmp_path).finish().items_out == 3  # nobody else has the state


def test_where_a_sink_cannot_be_opened_sources_state_and_sinks_are_closed(tmp_path: Path) -> None:
    drift.run(graph(), {"n": Numbers()}, state=tmp_path, complete=False).finish()
    numbers, refusing = Numbers(), Refusing()
    with pytest.raises(drift.SinkError, match="is away"):
        drift.run(graph(), {"n": numbers}, sinks={"out": refusing}, state=tmp_path)
    assert (numbers.opened, numbers.closed) == (1, 1) and refusing == ["closed"]
    assert drift.run(graph(), {"n": numbers}, state=tmp_path).finish().items_before == 3
