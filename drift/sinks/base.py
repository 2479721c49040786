"""What a sink is to a run."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from typing import Any, ClassVar, Protocol, runtime_checkable

from drift.promises import SinkPromise
from drift_graph.errors import SettingsError, SinkError
from drift_graph.functions import line_of, name_of
from drift_graph.item import Item, items
from drift_graph.meta import Metas


@runtime_checkable
class Sink(Protocol):
    """Takes the items of one sink of a graph, in order, each once."""

    def open(self) -> None:
        """Called once, before the first item."""

    def write(self, positions: Sequence[int], metas: Metas, payloads: Sequence[Any]) -> None:
        """Take items that were released together.

        Raises:
            SinkError: with what is safe and what is not.
        """

    def complete(self) -> None:
        """Called once when the whole output has been written, and not where an error ended the run.

        Raises:
            SinkError: there is more than was written.
        """

    def close(self) -> None:
        """Called at the end, also after an error or without `open`: everything written is to be safe now."""


class CallableSink:
    """Calls a function with each item."""

    promise: ClassVar = SinkPromise("at least once", "a rerun calls it with every item; each tells its position")

    def __init__(self, name: str, function: Callable[[Item[Any]], object]) -> None:
        self._name = name
        self._function = function

    def open(self) -> None:
        pass

    def write(self, positions: Sequence[int], metas: Metas, payloads: Sequence[Any]) -> None:
        function = self._function
        for item in items(payloads, positions, self._name, metas):
            try:
                function(item)
            except SinkError:
                raise
            except Exception as error:
                raise SinkError(
                    f"sink {self._name!r}: {name_of(function)} ({line_of(function) or '?'}) raised "
                    f"{type(error).__name__} at position {item.position}: {error}; it has taken every item before that"
                ) from error

    def complete(self) -> None:
        pass

    def close(self) -> None:
        pass


class ListSink:
    """Appends each item to a list."""

    promise: ClassVar = SinkPromise("at least once", "a rerun appends every item; each tells its position")

    def __init__(self, name: str, taken: list[Item[Any]]) -> None:
        self._name = name
        self._taken = taken

    def open(self) -> None:
        pass

    def write(self, positions: Sequence[int], metas: Metas, payloads: Sequence[Any]) -> None:
        self._taken.extend(items(payloads, positions, self._name, metas))

    def complete(self) -> None:
        pass

    def close(self) -> None:
        pass


def as_sink(name: str, given: Any) -> Sink:
    """A sink for what a user gave under a name."""
    if isinstance(given, Sink):
        return given
    if isinstance(given, list):
        return ListSink(name, given)
    if callable(given):
        return CallableSink(name, given)
    hint = "; to write a file use drift.sinks.jsonl(path)" if isinstance(given, (str, os.PathLike)) else ""
    raise SettingsError(f"sink {name!r} is given {given!r:.80}, which is no drift sink, no list and not callable{hint}")
