"""Aggregates at the end of the input: one value of all items, or of all items of each key.

Invariant: a key with items gives its value once, at `drift.END`, after all input; a key without items gives none.

Why: its first item sets a timer at `drift.END`, and the state is not `EMPTY` until the timer comes.

In two steps, the items of each range of time are aggregated separately, by whichever worker has that range, and the
results are merged in the order of ranges. The ranges depend on times alone, so float sums are the same everywhere; and
items are merged in their order, so any aggregate works.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from drift.flow.accumulators import Aggregate
from drift.flow.early import EachWindow, InWindow, key_of_window
from drift.flow.opened import EMPTY, Ended, Lowered, OfAggregate, Stepped
from drift.flow.windows import TumblingItem
from drift.operators import OpensWindows, _ByValue
from drift_graph.later import at
from drift_graph.meta import END


class EndItem(OfAggregate, OpensWindows, frozen=True):
    """An item; the state is the accumulator."""

    def until(self, time: int) -> int:
        return END

    def outputs(self, notes: Sequence[Any], accumulators: Sequence[Any], time: int) -> list[Any]:
        return list(self.aggregate.results(accumulators))

    def __call__(self, state: Any, payload: Any, time: int) -> Stepped:
        if state is EMPTY:
            return self.aggregate.begin(payload), (at(END, self.key(payload)),)
        return self.aggregate.add(state, payload), ()


class KeyedEndItem(EndItem, frozen=True):
    """Like `EndItem`, with pairs (key, value) as results."""

    def outputs(self, notes: Sequence[Any], accumulators: Sequence[Any], time: int) -> list[Any]:
        return list(zip(notes, self.aggregate.results(accumulators)))


class PartOfEnd(NamedTuple):
    """The aggregate of a key's items in one range of time."""

    key: Any
    accumulator: Any


def key_of_part(part: PartOfEnd) -> Any:
    return part.key


class _OfItems(_ByValue, Aggregate[InWindow, Any], frozen=True):
    """The aggregate over the items of a range."""

    aggregate: Aggregate[Any, Any]

    @property
    def user_function(self) -> Callable[..., Any]:
        return self.aggregate.function_shown(key_of_window)

    @property
    def initials(self) -> tuple[Any, ...]:
        return self.aggregate.initials

    @property
    def folds(self) -> Callable[..., Any] | None:
        return self.aggregate.folds

    def begin(self, payload: InWindow) -> Any:
        return self.aggregate.begin(payload.payload)

    def add(self, accumulator: Any, payload: InWindow) -> Any:
        return self.aggregate.add(accumulator, payload.payload)


class _OfParts(_ByValue, Aggregate[PartOfEnd, Any], frozen=True):
    """The aggregate over the results of ranges."""

    aggregate: Aggregate[Any, Any]

    @property
    def user_function(self) -> Callable[..., Any]:
        return self.aggregate.function_shown(self.aggregate.merge)

    def begin(self, payload: PartOfEnd) -> Any:
        return payload.accumulator

    def add(self, accumulator: Any, payload: PartOfEnd) -> Any:
        return self.aggregate.merge(accumulator, payload.accumulator)

    def result(self, accumulator: Any) -> Any:
        return self.aggregate.result(accumulator)


class _PartItem(TumblingItem, frozen=True):
    """An item of a range; the note of its timer is (key, start)."""

    def outputs(self, notes: Sequence[tuple[Any, int]], accumulators: Sequence[Any], time: int) -> list[Any]:
        return [PartOfEnd(key, accumulator) for (key, _), accumulator in zip(notes, accumulators)]


def at_end(
    key: Callable[[Any], Any], aggregate: Aggregate[Any, Any], *, keyed: bool, parts: int | None = None
) -> list[Lowered]:
    """The processes of an aggregate at the end.

    Args:
        keyed: whether results are pairs (key, value).
        parts: the length of the ranges of time that are aggregated first; None aggregates all items at once.
    """
    item = KeyedEndItem if keyed else EndItem
    if parts is None:
        item_of_end = item(key, aggregate)
        return [Lowered(key, item_of_end, Ended(item_of_end))]
    aggregate = aggregate.mergeable
    part = _PartItem(key_of_window, _OfItems(aggregate), parts, 0)
    merged = item(key_of_part, _OfParts(aggregate))
    return [
        Lowered(None, EachWindow(key, parts, parts, 0), None),
        Lowered(key_of_window, part, Ended(part)),
        Lowered(key_of_part, merged, Ended(merged)),
    ]
