"""Windows that correct their results for a while after their ends: `window(..., allowed=...)`.

Invariant: the results of one window of a key are numbered 0, 1, 2 and so on, in the order of the output, and each is
the aggregate of all items of the window up to its own position in the order. Number 0 comes at the last moment of the
window, if it has items by then; every item that comes later, for as long as is allowed, gives the next result at once.

Why: the window that an item belongs to is known from a time of its own, and whether the window has ended from the
item's time in the order. A map makes a copy of the item for each window that it is in, and a process with a state for
each key and window adds it; a timer at the end gives the result, and one when nothing more is allowed drops the state.
The map knows from the two times alone that a window is gone, so no state is needed to say so.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from datetime import tzinfo
from typing import Any, ClassVar, Generic, NamedTuple, Self, TypeVar

from drift.flow.calendars import Calendar
from drift.flow.early import InWindow, OfOneWindow, starts_around
from drift.flow.opened import EMPTY, FlatRow, Stepped, Window, last_before
from drift.operators import _ByValue
from drift_graph.diverted import LATE, diverted
from drift_graph.errors import SettingsError
from drift_graph.functions import brief
from drift_graph.graph import Dataflow
from drift_graph.later import at
from drift_graph.meta import END
from drift_graph.moments import Ambiguous, Unit, time_from, why_no_moment
from drift_graph.policies import EventTime, TimePolicy

K = TypeVar("K")
V = TypeVar("V")


class CorrectableWindow(Window[K, V], Generic[K, V], frozen=True):
    """The result of a window that belated items correct; see `Stream.window`.

    Attributes:
        correction: 0 for the first result of the window, then 1, 2 and so on. Each replaces the one before it of the
            same key and start.
    """

    correction: int = 0


class FlatCorrected(FlatRow, frozen=True):
    """See `FlatRow`."""

    @property
    def names(self) -> tuple[str, ...]:
        return (*super().names, "correction")


# Which windows an item is in.


class OfLength(_ByValue, frozen=True):
    """Tumbling or sliding windows."""

    size: int
    every: int
    offset: int
    has_start: bool
    has_end: bool

    def starts(self, time: int) -> Sequence[int]:
        return starts_around(time, self.size, self.every, self.offset, self.has_start, self.has_end)

    def end(self, start: int) -> int:
        return start + self.size

    def last(self, start: int) -> int:
        return last_before(start + self.size + self.has_end)


class OfCalendar(_ByValue, frozen=True):
    """Ranges of a calendar."""

    calendar: Calendar

    def starts(self, time: int) -> Sequence[int]:
        return (self.calendar.bounds(time)[0],)

    def end(self, start: int) -> int:
        return self.calendar.bounds(start)[1]

    def last(self, start: int) -> int:
        return last_before(self.end(start))


Placed = OfLength | OfCalendar


def _keys_of(families: Sequence[Sequence[Any]]) -> list[Any]:
    return [item.key for family in families for item in family if type(item) is InWindow]


class OwnTime(_ByValue, frozen=True):
    """A function that gives the time of an item by which it belongs to a window; the rest is as of `EventTime`.

    Attributes:
        sources: those whose policy says it; none where the window itself does.
    """

    user_function: Callable[[Any], Any]
    zone: tzinfo | None
    ambiguous: Ambiguous
    unit: Unit | None
    sources: tuple[str, ...]

    @classmethod
    def of(cls, policy: EventTime, sources: tuple[str, ...] = ()) -> Self:
        """What of a policy says how a time is read."""
        return cls(policy.time, policy.zone, policy.ambiguous, policy.unit, sources)

    def __call__(self, payload: Any) -> int:
        value = self.user_function(payload)
        own = time_from(value, self.zone, self.ambiguous, self.unit)
        if own is None:
            why = why_no_moment(value, self.zone)
            raise ValueError(
                f"the time of a window is an int of 64 bits, or a moment with a zone, not {brief(value, 80)}"
                + (f": {why}" if why else "; name its unit, time=drift.EventTime(..., unit='s')")
            )
        return own


class Allowed(NamedTuple):
    """How long windows are corrected after their ends.

    Attributes:
        step: names the step in reports of items whose window is gone; "": such an item is an error.
    """

    time: OwnTime
    span: int
    step: str


class EachByOwnTime(_ByValue, frozen=True):
    """A map: one copy of an item for each window around its own time that is not gone.

    Attributes:
        user_function: gives the key.
        time: gives the own time.
        step: names the step in a report of an item whose window is gone; "": such an item is an error.
    """

    gives_users: ClassVar = True  # the key, which is compared later
    of_users: ClassVar = staticmethod(_keys_of)

    user_function: Callable[[Any], Any]
    windows: Placed
    time: OwnTime
    allowed: int
    step: str

    def __call__(self, payload: Any, time: int) -> list[Any]:
        own = self.time(payload)
        starts, least = self.windows.starts(own), time - self.allowed
        gone = [start for start in starts if self.windows.last(start) < least]
        words = self._words(own, gone[0], time) if gone else ""
        key = self.user_function(payload)
        copies = [InWindow(key, start, payload) for start in starts if start not in gone]
        return [diverted(self.step, words, payload, LATE), *copies] if gone else copies

    def _words(self, own: int, start: int, time: int) -> str:
        """That a window is gone, for a report.

        Raises:
            ValueError: there is none.
        """
        last = self.windows.last(start)
        words = (
            f"its time {own} is in the window [{start}, {self.windows.end(start)}), and it comes at {time}, "
            f"{time - last} after the last moment of the window, which is corrected for {self.allowed} and gone then"
        )
        if not self.step:
            raise ValueError(
                f"{words}; set allowed of the window to {time - last} or more, as much as that of the source, or name "
                f"a sink for such items with window(..., late='NAME')"
            )
        return words


def check_own_times(dataflow: Dataflow, times: Mapping[str, TimePolicy]) -> None:
    """Check that a run gives items no other time than that by which the windows that they correct know them.

    Raises:
        SettingsError: a source gets another one.
    """
    for each in dataflow.operators:
        function = getattr(each, "function", None)
        if not isinstance(function, EachByOwnTime):
            continue
        own = function.time
        for name in own.sources:
            policy = times.get(name)
            if policy is not None and not (policy.reads_payloads and OwnTime.of(policy, own.sources) == own):
                raise SettingsError(
                    f"times[{name!r}] gives items of the source another time than the graph does, by which the windows "
                    f"of step {each.step!r} (at {each.where}) with allowed= know them: write it at the source, "
                    f"graph.source({name!r}, time=...), or say the time of these windows, window(..., time=...)"
                )


# The state of a window.


class Correctable(OfOneWindow, frozen=True):
    """An item of one window; the state is (start, number of results but early ones, has it ended, accumulator).

    It has ended where its first result was given, or its first item came behind its last moment.
    """

    windows: Placed
    allowed: int

    def __call__(self, state: Any, item: InWindow, time: int) -> Stepped:
        timers: tuple[Any, ...] = ()
        if state is EMPTY:
            last = self.windows.last(item.start)
            state = (item.start, 0, time > last, self.aggregate.begin(item.payload))
            timers = (at(self.forgotten(item.start) if time > last else last, item.key),)
        else:
            state = (*state[:3], self.aggregate.add(state[3], item.payload))
        return self.given(state, item.key, timers) if state[2] else (state, timers)

    def given(self, state: Any, key: Any, timers: Sequence[Any]) -> Stepped:
        """The next result, behind timers."""
        return (state[0], state[1] + 1, *state[2:]), (*timers, self.result(state, key, 0))

    def forgotten(self, start: int) -> int:
        """When a window is corrected no more."""
        return min(self.windows.last(start) + self.allowed, END)

    def result(self, state: Any, key: Any, time: int) -> Window[Any, Any]:
        start, correction, _, accumulator = state
        value = self.aggregate.result(accumulator)
        return CorrectableWindow(key, start, self.windows.end(start), value, False, correction)

    def start(self, state: Any, time: int) -> int:
        return state[0]  # type: ignore[no-any-return]

    def end(self, state: Any, time: int) -> int:
        """The first moment after the window."""
        return self.windows.last(state[0]) + 1


class CorrectableEnd(_ByValue, frozen=True):
    """A timer of a window, whose note is the key: it ends, or is corrected no more."""

    item: Correctable

    def __call__(self, state: Any, key: Any, time: int) -> Stepped:
        start, _, has_ended, accumulator = state
        if has_ended:
            return EMPTY, ()
        ended, outputs = self.item.given((start, 0, True, accumulator), key, ())
        if not self.item.allowed or time == END:
            return EMPTY, outputs
        return ended, (*outputs, at(self.item.forgotten(start), key))
