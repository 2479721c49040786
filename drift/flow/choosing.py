"""The functions of route, zip, limit, dedup, inspect, flatten and drop_key.

Invariant: the state of a key (or of all items, without a key) is an immutable value of bounded size, except for the
queue of a zip, which holds the items that one side is ahead of the other.

Why: they are steps of scans and processes, whose states these values are.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from drift.flow.fields import names_of, not_in_columns
from drift.flow.sides import Side, appended
from drift.operators import MapsEach, _ByValue
from drift_graph.later import Later, at
from drift_graph.meta import END
from drift_graph.payloads import Rows, are_rows


def all_items(payload: Any) -> None:
    """The key of a step that has one bucket."""


def itself(payload: Any) -> Any:
    """The payload: as a key, or as the sequence that a payload is."""
    return payload


def value_of(pair: tuple[Any, Any]) -> Any:
    """The second of a pair (key, value)."""
    _, value = pair
    return value


class Unless(_ByValue, frozen=True):
    """The negation of a predicate."""

    user_function: Callable[[Any], object]

    def __call__(self, payload: Any) -> bool:
        return not self.user_function(payload)


class Inspect(_ByValue, frozen=True):
    """Calls a function with each payload, and returns the payload."""

    user_function: Callable[[Any], object]

    def __call__(self, payload: Any) -> Any:
        self.user_function(payload)
        return payload


class LimitStep(_ByValue, frozen=True):
    """The step of `limit`: its state counts a key's items, up to the last one that passes."""

    count: int
    offset: int

    def __call__(self, passed: int, payload: Any) -> tuple[int, tuple[Any, ...]]:
        if passed < self.offset:
            return passed + 1, ()
        return (passed + 1, (payload,)) if passed < self.offset + self.count else (passed, ())


class FirstOfKey(_ByValue, frozen=True):
    """The step of `dedup` without a time limit: its state is whether the key's item has passed."""

    def __call__(self, has_passed: bool, payload: Any) -> tuple[bool, tuple[Any, ...]]:
        return True, () if has_passed else (payload,)

    def keeps_key(self, names: Sequence[str] | None) -> Sequence[str] | None:
        return names

    def objects_because(self, key: Callable[[Any], Any]) -> str:
        return not_in_columns(key)

    def on_rows(
        self,
        key: Callable[[Any], Any],
        rows: Rows,
        fetch: Callable[[Sequence[Any]], list[Any]],
        store: Callable[[Iterable[tuple[Any, Any]]], None],
    ) -> Rows | None:
        names = names_of(key)
        if names is None:
            return None
        from drift.columns.firsts import firsts  # here: it needs numpy

        return firsts(rows, names, fetch, store)  # type: ignore[arg-type]


class FirstWithin(_ByValue, frozen=True):
    """`dedup` within a duration, as a process: its state is whether the key's item has passed and still counts."""

    within: int
    user_function: Callable[[Any], Any]

    def __call__(self, has_passed: bool, payload: Any, time: int) -> tuple[bool, tuple[Any, ...]]:
        if has_passed:
            return True, ()
        forgotten: Later[None] = at(min(time + self.within, END), None)
        return True, (payload, forgotten)


def forget(state: Any, note: None, time: int) -> tuple[bool, tuple[Any, ...]]:
    """Timer: the key's last item does not count any more."""
    return False, ()


@dataclass(frozen=True, slots=True)
class Queue:
    """The payloads that one side of a zip is ahead by.

    Attributes:
        side: whose payloads wait, 0 for the left.
        waiting: these payloads, in order.
        paired: how many of the first chunk have been paired.
    """

    side: int
    waiting: Side
    paired: int


def zipped(queue: Queue | None, tagged: tuple[int, Any]) -> tuple[Queue | None, tuple[Any, ...]]:
    """The step of `zip`: an item is paired with the first waiting one of the other side, or waits."""
    side, payload = tagged
    if queue is None:
        return Queue(side, ((payload,),), 0), ()
    if queue.side == side:
        return Queue(side, appended(queue.waiting, payload), queue.paired), ()
    chunk = queue.waiting[0]
    other = chunk[queue.paired]
    pair = (other, payload) if side else (payload, other)
    if queue.paired + 1 < len(chunk):
        return Queue(queue.side, queue.waiting, queue.paired + 1), (pair,)
    rest = queue.waiting[1:]
    return (Queue(queue.side, rest, 0) if rest else None), (pair,)


class OnSide(_ByValue, frozen=True):
    """A payload with the side of a zip that it is on."""

    side: int

    def __call__(self, payload: Any) -> tuple[int, Any]:
        return self.side, payload


class Members(_ByValue, MapsEach, frozen=True):
    """The elements of a payload."""

    leaves_arguments: ClassVar = True

    def __call__(self, payload: Iterable[Any]) -> Iterable[Any]:
        return payload

    def gives_rows(self, given: bool) -> bool:
        return given

    def passes(self, name: str) -> str | None:
        return name

    def each(self, payloads: Any) -> Any:
        return payloads if are_rows(payloads) and payloads.members is not None else list(payloads)
