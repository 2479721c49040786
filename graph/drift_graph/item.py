"""Items, as columns between the machines and as objects for people.

Invariant: the lists of a `Columns` have one length, and row i of each is item i.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import compress, repeat
from typing import Any, Generic, NamedTuple, TypeVar

import msgspec

from drift_graph import payloads
from drift_graph.content import identified_by
from drift_graph.meta import time_of
from drift_graph.metas import Metas

T = TypeVar("T")


class Columns(NamedTuple):
    """A batch of items; `metas` and `payloads` may be of any kind, see the packages of these names.

    `diffs` holds +1 for an item and -1 for a tombstone; None stands for all +1, the common case.
    """

    metas: Metas
    payloads: list[Any]
    diffs: list[int] | None

    def slice(self, start: int, end: int) -> Columns:
        """The items from index `start` up to `end`: these columns, if that is all of them."""
        if start == 0 and end == len(self.metas):
            return self
        diffs = self.diffs
        left = None if diffs is None else diffs[start:end]
        return Columns(self.metas[start:end], payloads.slice(self.payloads, start, end), left)

    def chosen(self, wanted: bytes) -> Columns:
        diffs = None if self.diffs is None else list(compress(self.diffs, wanted))
        return Columns(self.metas.chosen(wanted), payloads.chosen(self.payloads, wanted), diffs)

    def in_order(self, order: Sequence[int]) -> Columns:
        """The items at these places, in this order."""
        return self._placed(order, self.metas.take(order))

    def _placed(self, order: Sequence[int], metas: Metas) -> Columns:
        diffs = None if self.diffs is None else list(map(self.diffs.__getitem__, order))
        return Columns(metas, payloads.in_order(self.payloads, order), diffs)


def sorted_by_meta(columns: Columns) -> Columns:
    """The same items in the order of their metas; equal metas keep their order."""
    return columns if columns.metas.is_increasing() else columns._placed(*columns.metas.sorted())


def joined(batches: Sequence[Columns]) -> Columns:
    """One batch of several, in the order given."""
    if len(batches) == 1:
        return batches[0]
    diffs: list[int] | None = None
    if any(columns.diffs is not None for columns in batches):
        diffs = [diff for columns in batches for diff in columns.diffs or [1] * len(columns.metas)]
    made = payloads.joined([columns.payloads for columns in batches])
    return Columns(Metas.joined([columns.metas for columns in batches]), made, diffs)


class Item(msgspec.Struct, Generic[T], frozen=True, eq=False):
    """An item that the output barrier has released.

    Attributes:
        payload: what the step made.
        position: its number in the run's output, from 0, over all sinks.
        sink: name of the sink it belongs to.
        meta: its position in the total order, as bytes.
        time: its source's time (the item's number, milliseconds, or whatever the time function gives).
    """

    payload: T
    position: int
    sink: str
    _meta: bytes | tuple[int, Metas]  # or the position of the first of several items, and their metas

    @property
    def meta(self) -> bytes:
        known = self._meta
        return known if type(known) is bytes else known[1][self.position - known[0]]  # type: ignore[index]

    @property
    def time(self) -> int:
        return time_of(self.meta)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Item) and (self.payload, self.position, self.sink, self.meta) == (
            other.payload,
            other.position,
            other.sink,
            other.meta,
        )

    def __hash__(self) -> int:
        return hash((self.position, self.meta))

    def __repr__(self) -> str:
        return f"Item(payload={self.payload!r}, position={self.position}, sink={self.sink!r}, time={self.time})"


def items(
    values: Iterable[Any],
    positions: Sequence[int],
    sinks: str | Sequence[str],
    metas: Metas,
    counted: Iterator[int] | None = None,
) -> Iterator[Item[Any]]:
    """Items of columns; where the positions are consecutive, they make their metas when these are asked for.

    Args:
        counted: gives the positions, too; so that the caller knows from it which items were made.
    """
    is_one_run = bool(positions) and positions[-1] - positions[0] == len(positions) - 1
    known = repeat((positions[0], metas)) if is_one_run else metas
    names = repeat(sinks) if isinstance(sinks, str) else sinks
    return map(Item, values, positions if counted is None else counted, names, known)


#: In place of a sink's name: where failed calls wait to be cancelled or released.
FAILURES = ""


@dataclass(frozen=True)
class Failure:
    """Stands for the output of a function that raised, until it is certain that the call was made with the right input.

    A function may be called on a window that a late item will still correct. So its error travels as an item: a
    tombstone cancels it, and only a failure that is released ends the run, at the same position every time. Step and
    kind are its identity; the text may contain an address and differ between calls.
    """

    step: str
    kind: str
    message: str = field(compare=False)
    where: str = field(compare=False)
    trace: str = field(compare=False, default="")


identified_by(Failure, ("step", "kind"))
