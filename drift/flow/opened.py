"""Windows, and the processes that compute them.

Invariant: the state of a key without an open window is `EMPTY`, the initial one, so it is dropped.
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, ClassVar, Generic, NamedTuple, TypeVar

import msgspec

from drift.flow.accumulators import Aggregate, Several, accumulating
from drift.flow.choosing import all_items
from drift.flow.fields import names_of
from drift.operators import MapsEach, OpensWindows, _ByValue
from drift_graph.functions import brief
from drift_graph.later import Later, at
from drift_graph.meta import END, TIME_MIN
from drift_graph.moments import moment_from, zone_from
from drift_graph.payloads import Rows, are_rows
from drift_graph.unchanged import unchangeable

K = TypeVar("K")
V = TypeVar("V")

Stepped = tuple[Any, Sequence[Any]]


@unchangeable
class WindowState(enum.Enum):
    """The state of a key without an open window."""

    EMPTY = "no window"
    CLOSED = "no window, and a timer at the end"


EMPTY, CLOSED = WindowState.EMPTY, WindowState.CLOSED


class Window(msgspec.Struct, Generic[K, V], frozen=True):
    """The result of a window.

    Attributes:
        key: of its items; None for windows over all items.
        start: the first time in it; for windows by number, the index of its first item among those of the key, from 0.
        end: the first time, or index, after it.
        value: of the aggregate.
        early: whether it is an early result, so more may come.
    """

    key: K
    start: int
    end: int
    value: V
    early: bool = False

    @property
    def correction(self) -> int:
        """Which result of the window it is, of windows that belated items correct: see `drift.CorrectableWindow`."""
        return 0

    def between(self, zone: str = "UTC") -> tuple[datetime, datetime]:
        """Start and end as moments of a time zone, where times are milliseconds since 1970.

        Raises:
            ValueError: there is no such zone, or they are beyond the years that datetime has.
        """
        found = zone_from(zone)
        if found is None:
            raise ValueError(f"zone={zone!r:.80} is no time zone; give its name, such as 'Europe/Berlin'")
        try:
            start, end = (moment_from(each).astimezone(found) for each in (self.start, self.end))
        except OverflowError:
            raise ValueError(
                f"[{self.start}, {self.end}) is beyond the years that datetime has, if it is in milliseconds since 1970"
            ) from None
        return start, end


class EachRow(_ByValue, frozen=True):
    """The rows of a window, each with further fields.

    Attributes:
        each: the names of those that have a value for each row, and not one for all.
    """

    each: tuple[str, ...]

    def __call__(self, window: Any) -> list[dict[str, Any]]:
        rows, found = window.value["rows"], window.value["found"]
        if wrong := next((row for row in rows if type(row) is not dict), None):
            raise TypeError(f"each takes rows, which are dicts, not {brief(wrong)}")
        of_all = {name: value for name, value in found.items() if name not in self.each}
        of_each = [dict(zip(self.each, values)) for values in zip(*(found[name] for name in self.each))]
        return [{**row, **of_all, **more} for row, more in zip(rows, of_each or [{}] * len(rows))]


class FlatRow(MapsEach, _ByValue, frozen=True):
    """A window whose value is a dict -> one dict of its bounds and the values; see `WindowedStream.rows`."""

    has_key: bool
    has_early: bool
    leaves_arguments: ClassVar = True

    @property
    def names(self) -> tuple[str, ...]:
        """The names of what comes before the values."""
        return (*(("key",) if self.has_key else ()), "start", "end", *(("early",) if self.has_early else ()))

    def __call__(self, window: Window[Any, dict[str, Any]]) -> dict[str, Any]:
        return {name: getattr(window, name) for name in self.names} | window.value

    def gives_rows(self, given: bool) -> bool:
        return given

    def passes(self, name: str) -> str | None:
        return name if name == "key" and self.has_key else None

    def each(self, payloads: Any) -> Any:
        rows = payloads.flat(self.names) if are_rows(payloads) else None
        return list(map(self, payloads)) if rows is None else rows


class Lowered(NamedTuple):
    """A process that windows are lowered to; or a scan whose outputs are sequences, if it needs no times.

    Without a key it is a map from a payload and its time to payloads.
    """

    key: Callable[[Any], Any] | None
    on_item: Callable[..., Any]
    on_time: Callable[[Any, Any, int], Stepped] | None


@dataclass(frozen=True, slots=True)
class Early:
    """When an open window gives early results: after a number of its items, or a duration; see `every`."""

    items: int | None
    time: int | None


class Until(_ByValue, frozen=True):
    """In place of `Early`: a window ends with the item with which a predicate holds of its result."""

    user_function: Callable[[Any], object]
    items: int | None
    time: ClassVar[int | None] = None


@dataclass(frozen=True, slots=True)
class EarlyNote:
    key: Any
    start: int


class OfAggregate(_ByValue, frozen=True):
    """The function for items of a process for windows, or for aggregates at the end."""

    key: Callable[[Any], Any]
    aggregate: Aggregate[Any, Any]
    opens_again: ClassVar[bool] = False  # whether the next item opens another window when one has ended before its time

    @property
    def user_function(self) -> Callable[..., Any]:
        return self.aggregate.function_shown(self.key)

    @property
    def initials(self) -> tuple[Any, ...]:
        """What the aggregate's functions get beside payloads and accumulators."""
        return self.aggregate.initials

    @property
    def parts(self) -> tuple[bool, list[tuple[Any, Any]]]:
        aggregate = accumulating(self.aggregate)
        if isinstance(aggregate, Several):
            return True, [(part.adds, part) for part in map(accumulating, aggregate.parts)]
        return False, [(aggregate.adds, aggregate)]

    def in_columns(self, rows: Rows) -> tuple[Any, list[Any], list[Any]] | None:
        values, names = self.aggregate.values_in_columns, () if self.key is all_items else names_of(self.key)
        if names is None or not rows.has_fields:
            return None if values is None else rows.added(values[1])
        from drift.columns.groups import values_by_key  # here: it needs numpy

        return values_by_key(rows, names, [part for _, part in self.parts[1]])


class Ended(_ByValue, frozen=True):
    """Timer: the end of a window has come; the note is the key."""

    item: OpensWindows

    def __call__(self, state: Any, key: Any, time: int) -> Stepped:
        return EMPTY, self.item.outputs((key,), (state,), time)


def due(end: int, note: Any) -> Later[Any]:
    """A timer for after the last moment before `end`."""
    return at(last_before(end), note)


def last_before(end: int) -> int:
    return max(min(end - 1, END), TIME_MIN)
