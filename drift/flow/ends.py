"""What comes at the end: one value of all items, or of all of each key.

Invariant: a key with items gives its value once, at `drift.END`, after all input; one without gives nothing.

Why: its first item sets a timer at `drift.END`, and the state is not `EMPTY` until that has come.

In two steps, the items of each stretch of time are aggregated by themselves, by whichever worker has that stretch, and
what they give is merged in the order of stretches. Where stretches are cut hangs on times alone, so sums of floats are
the same everywhere; and what is merged stands in the order of the items, so any aggregate will do.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple

from drift.flow.aggregates import Aggregate, mergeable
from drift.flow.early import EachWindow, InWindow, key_of_window
from drift.flow.windows import EMPTY, Step, Stepped, TumblingItem
from drift.operators import OpensWindows, _ByValue
from drift_graph.later import at
from drift_graph.meta import END


@dataclass(frozen=True, eq=False, slots=True)
class EndItem(_ByValue, OpensWindows):
    """An item; the state is the accumulator."""

    key: Callable[[Any], Any]
    aggregate: Aggregate[Any, Any]

    def until(self, time: int) -> int:
        return END

    @property
    def user_function(self) -> Callable[..., Any]:
        return getattr(self.aggregate, "user_function", self.key)

    def __call__(self, state: Any, payload: Any, time: int) -> Stepped:
        if state is EMPTY:
            return self.aggregate.begin(payload), (at(END, self.key(payload)),)
        return self.aggregate.add(state, payload), ()


@dataclass(frozen=True, eq=False, slots=True)
class EndTime(_ByValue):
    """The end has come, whose note is the key."""

    aggregate: Aggregate[Any, Any]
    keyed: bool

    def __call__(self, state: Any, key: Any, time: int) -> Stepped:
        value = self.aggregate.result(state)
        return EMPTY, ((key, value) if self.keyed else value,)


class PartOfEnd(NamedTuple):
    """What the items of a key in one stretch of time were aggregated to."""

    key: Any
    accumulator: Any


def key_of_part(part: PartOfEnd) -> Any:
    """Its key."""
    return part.key


@dataclass(frozen=True, eq=False, slots=True)
class _OfItems(_ByValue, Aggregate[InWindow, Any]):
    """An aggregate of what is in a stretch."""

    aggregate: Aggregate[Any, Any]

    @property
    def user_function(self) -> Callable[..., Any]:
        return getattr(self.aggregate, "user_function", key_of_window)

    def begin(self, payload: InWindow) -> Any:
        return self.aggregate.begin(payload.payload)

    def add(self, accumulator: Any, payload: InWindow) -> Any:
        return self.aggregate.add(accumulator, payload.payload)


@dataclass(frozen=True, eq=False, slots=True)
class _OfParts(_ByValue, Aggregate[PartOfEnd, Any]):
    """An aggregate of what stretches gave."""

    aggregate: Aggregate[Any, Any]

    @property
    def user_function(self) -> Callable[..., Any]:
        return getattr(self.aggregate, "user_function", self.aggregate.merge)

    def begin(self, payload: PartOfEnd) -> Any:
        return payload.accumulator

    def add(self, accumulator: Any, payload: PartOfEnd) -> Any:
        return self.aggregate.merge(accumulator, payload.accumulator)

    def result(self, accumulator: Any) -> Any:
        return self.aggregate.result(accumulator)


class _PartEnd(_ByValue):
    """A stretch has ended, whose note is its key and start."""

    __slots__ = ()
    __dataclass_fields__: ClassVar[dict[str, Any]] = {}

    def __call__(self, state: Any, note: tuple[Any, int], time: int) -> Stepped:
        return EMPTY, (PartOfEnd(note[0], state),)


def at_end(
    key: Callable[[Any], Any], aggregate: Aggregate[Any, Any], *, keyed: bool, parts: int | None = None
) -> list[Step]:
    """The processes of an aggregate at the end.

    Args:
        keyed: whether results are pairs (key, value).
        parts: the length of the stretches of time that are aggregated first; all at once if None.
    """
    if parts is None:
        return [Step(key, EndItem(key, aggregate), EndTime(aggregate, keyed))]
    aggregate = mergeable(aggregate)
    merged = _OfParts(aggregate)
    return [
        Step(None, EachWindow(key, parts, parts, 0), None),
        Step(key_of_window, TumblingItem(key_of_window, _OfItems(aggregate), parts, 0), _PartEnd()),
        Step(key_of_part, EndItem(key_of_part, merged), EndTime(merged, keyed)),
    ]
