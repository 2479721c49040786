"""Windows, and the processes that compute them.

Invariant: the state of a key without an open window is `EMPTY`, the initial one, so it is dropped.
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Generic, NamedTuple, TypeVar

import msgspec

from drift.flow.aggregates import Aggregate
from drift.operators import OpensWindows, _ByValue
from drift_graph.later import Later, at
from drift_graph.meta import END, TIME_MIN

K = TypeVar("K")
V = TypeVar("V")

Stepped = tuple[Any, Sequence[Any]]


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


class Step(NamedTuple):
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


@dataclass(frozen=True, slots=True)
class EarlyNote:
    key: Any
    start: int


class OfAggregate(_ByValue, frozen=True):
    """The function for items of a process for windows, or for aggregates at the end."""

    key: Callable[[Any], Any]
    aggregate: Aggregate[Any, Any]

    @property
    def user_function(self) -> Callable[..., Any]:
        return getattr(self.aggregate, "user_function", self.key)


class Ended(_ByValue, frozen=True):
    """Timer: the end of a window has come; the note is the key."""

    item: OpensWindows

    def __call__(self, state: Any, key: Any, time: int) -> Stepped:
        return EMPTY, self.item.outputs((key,), (state,), time)


def due(end: int, note: Any) -> Later[Any]:
    """A timer for after the last moment before `end`."""
    return at(last_before(end), note)


def last_before(end: int) -> int:
    """The last moment before `end`."""
    return max(min(end - 1, END), TIME_MIN)
