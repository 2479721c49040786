"""The interface of a sink to a run."""

from __future__ import annotations

import os
from bisect import bisect_right
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, ClassVar, Protocol, runtime_checkable

from drift.guarantees import SinkGuarantee
from drift.urls import without_secrets
from drift_graph.errors import SettingsError, SinkBehind, SinkError
from drift_graph.functions import line_of, name_of
from drift_graph.item import Item, items
from drift_graph.metas import Metas


@runtime_checkable
class Sink(Protocol):
    """Takes the items of one sink of a graph, in order, each once."""

    def open(self) -> None:
        """Called once, before the first item."""

    def write(self, positions: Sequence[int], metas: Metas, payloads: Sequence[Any]) -> None:
        """Write items that were released together.

        Raises:
            SinkError: says what is stored and what is not.
        """

    def complete(self) -> None:
        """Called once when the whole output has been written; not if an error ended the run.

        Raises:
            SinkError: the sink holds more than was written.
        """

    def close(self) -> None:
        """Called at the end, also after an error or without `open`: makes everything written durable."""


@runtime_checkable
class Committing(Protocol):
    """A sink for runs with state: it reports its position, and resumes behind it."""

    def committed_position(self) -> int | None:
        """The position of the last durable item, asked between `open` and `close`; None before the first.

        A sink that only knows what it has once a run has compared it gives the last that was.
        """

    def commit(self) -> Any:
        """Make what was written durable, as far as the system can guarantee it, and return the position.

        Returns:
            Numbers, texts, lists and dicts of them, for `resume_at`.

        Raises:
            SinkError: as for `write`.
        """

    def resume_at(self, position: int, committed: Any) -> None:
        """Called before `open` if a run resumes from a checkpoint: nothing below a position is written again.

        `open` then continues the existing data, whatever `resume` says, and raises `SinkBehind` if there is less than
        was `committed` as of the checkpoint: then all sinks are closed, and set to an earlier checkpoint, if there is
        one, and opened again. Items from `position` on that are stored already are skipped.
        """


@runtime_checkable
class Comparing(Protocol):
    """A sink that can compare what is stored with what it had stored as of a checkpoint."""

    def compare(self, committed: Any) -> str:
        """Read all that was stored as of a checkpoint, without opening the sink; returns what was compared, for people.

        Args:
            committed: what `commit` returned.

        Raises:
            SinkError: it is not what was stored.
        """


@runtime_checkable
class Ticking(Protocol):
    """A sink that does something by the clock, also while nothing is released."""

    def tick(self) -> None:
        """Called between batches, and in a live run some times a second.

        Raises:
            SinkError: as for `write`.
        """


def kind_of(sink: object) -> str:
    """What a sink is, for checkpoints; "" for one of a user's, which knows itself what it has stored."""
    kind = type(sink)
    return kind.__name__ if kind.__module__.startswith("drift.") else ""


def target_of(sink: object) -> str:
    """What a sink writes to, for checkpoints and for people; "" if it does not say that."""
    path: str | None = getattr(sink, "writes_to", None)
    if path is None:
        return without_secrets(getattr(sink, "_target", ""))
    return without_secrets(path) if "://" in path else str(Path(path).absolute())


def check_kind(name: str, sink: object, then: str | None) -> None:
    """Check that a sink is what it was when a checkpoint was taken.

    Args:
        then: what it was; None: the checkpoint does not say it.

    Raises:
        SinkError: it is another.
    """
    now = kind_of(sink)
    if then not in (None, now):
        raise SinkError(
            f"sink {name!r} is {_called(now)} now, and was {_called(then)} when the state of this run was saved: it "
            f"has none of the output before that, which is not computed again; resume with the sink as it was, or "
            f"start anew with another state"
        )


def _called(kind: str | None) -> str:
    """A kind of sinks by the function that makes them."""
    name = (kind or "").removesuffix("Sink").lower()
    return f"drift.sinks.{_NAMES.get(name, name)}" if name else "a sink of your own"


_NAMES = {"jsonlines": "jsonl"}


def open_as_then(name: str, sink: Sink, then: str) -> None:
    """Open a sink that resumes.

    Args:
        then: what it wrote to; "": the checkpoint does not say it.

    Raises:
        SinkBehind: it has less than it had, and may write to something else.
    """
    try:
        sink.open()
    except SinkBehind as error:
        now = target_of(sink)
        if then in ("", now):
            raise
        raise SinkBehind(
            f"sink {name!r} writes to {now} now, and wrote to {then} when the state of this run was saved: {now} has "
            f"not all of the output before that, which is not computed again; resume with the sink as it was, copy "
            f"what is there to where it writes now, or start anew with another state"
        ) from error


class PlainSink:
    """A sink that has nothing to open, to complete or to close."""

    def open(self) -> None:
        pass

    def complete(self) -> None:
        pass

    def close(self) -> None:
        pass


class CallableSink(PlainSink):
    """Calls a function with each item.

    Each item has its position. A function with an attribute `committed_position`, called without arguments for the
    position of the last item it has stored (or None), only gets later items: if it stores position and data together,
    it has each item exactly once.
    """

    guarantee = SinkGuarantee("at least once", "a rerun calls it with every item; each has its position")

    def __init__(self, name: str, function: Callable[[Item[Any]], object]) -> None:
        self._name = name
        self._function = function
        self._committed: Callable[[], int | None] | None = getattr(function, "committed_position", None)
        self._before = -1  # position of the last item stored before the run
        if self._committed is not None:
            self.guarantee = SinkGuarantee("exactly once", f"{name_of(function)} reports its position")

    def open(self) -> None:
        if self._committed is not None:
            position = self._committed()
            self._before = -1 if position is None else position

    def committed_position(self) -> int | None:
        """Of the last item stored before the run; None if there is none, or if the function does not say."""
        return self._before if self._before >= 0 else None

    def write(self, positions: Sequence[int], metas: Metas, payloads: Sequence[Any]) -> None:
        function = self._function
        stored = bisect_right(positions, self._before)
        for item in items(payloads[stored:], positions[stored:], self._name, metas[stored:]):
            try:
                function(item)
            except SinkError:
                raise
            except Exception as error:
                raise SinkError(
                    f"sink {self._name!r}: {name_of(function)} ({line_of(function) or '?'}) raised "
                    f"{type(error).__name__} at position {item.position}: {error}; it has taken every item before that"
                ) from error


class ListSink(PlainSink):
    """Appends each item to a list."""

    guarantee: ClassVar = SinkGuarantee("at least once", "a rerun appends every item; each has its position")

    def __init__(self, name: str, taken: list[Item[Any]]) -> None:
        self._name = name
        self._taken = taken

    def write(self, positions: Sequence[int], metas: Metas, payloads: Sequence[Any]) -> None:
        self._taken.extend(items(payloads, positions, self._name, metas))


def as_sink(name: str, value: Any) -> Sink:
    """A sink from the user's argument for a name.

    >>> taken = []
    >>> sink = as_sink("out", taken)  # a list takes items

    Raises:
        SettingsError: it is no sink, no list and cannot be called.
    """
    if isinstance(value, Sink):
        return value
    if isinstance(value, list):
        return ListSink(name, value)
    if callable(value):
        return CallableSink(name, value)
    hint = "; to write a file use drift.sinks.jsonl(path)" if isinstance(value, (str, os.PathLike)) else ""
    raise SettingsError(f"sink {name!r} is given {value!r:.80}, which is no drift sink, no list and not callable{hint}")
