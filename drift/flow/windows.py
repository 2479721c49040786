"""Windows: which payloads are aggregated together, by time, by number or by a rule. `drift.windows`.

Invariant: a key has at most one open window (one slice, for sliding windows) at any position in the order; its state is
the accumulator and the data that determines its end, and a timer after every item of its last moment closes it.

Why: a process gets the items of a key in the order of their times, and a timer at `end - 1` fires before any item at
`end`. So a key's next window opens after its last one has closed, and the state needs no list of windows; without an
open window it is `EMPTY`, the initial state, and is dropped. Sliding windows are cut into slices, which are windows of
this kind; a second process, with a phase above that of the slices, merges the slices of each window.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import compress
from typing import TYPE_CHECKING, Any, ClassVar, Literal, get_args

import msgspec

from drift.extras import is_installed
from drift.flow.accumulators import Aggregate, Several
from drift.flow.calendars import WEEKDAYS, Calendar, calendar_from
from drift.flow.choosing import all_items
from drift.flow.corrected import Allowed, Correctable, CorrectableEnd, EachByOwnTime, OfCalendar, OfLength, Placed
from drift.flow.early import (
    Counted,
    CountedEnd,
    EachClosedWindow,
    EachWindow,
    EarlyEnd,
    EarlyItem,
    OneWindow,
    OneWindowEnd,
    OneWithEnd,
    RuledEarly,
    RuledEarlyEnd,
    key_of_window,
)
from drift.flow.fields import names_of, not_in_columns
from drift.flow.filling import Each, Following, NextOf
from drift.flow.opened import CLOSED as CLOSED
from drift.flow.opened import EMPTY as EMPTY
from drift.flow.opened import Early as Early
from drift.flow.opened import EarlyNote as EarlyNote
from drift.flow.opened import Ended, Lowered, OfAggregate, Until, due, last_before
from drift.flow.opened import Stepped as Stepped
from drift.flow.opened import Window as Window
from drift.flow.opened import WindowState as WindowState
from drift.flow.running import Closed
from drift.operators import (
    KeyedItems,
    MergesSlices,
    NumbersWindows,
    OpensWindows,
    ProlongsWindows,
    TakesEach,
    _ByValue,
)
from drift_graph.called import called_in, no_attribute
from drift_graph.errors import GraphError
from drift_graph.functions import brief, caller
from drift_graph.later import HOPS_MAX, at
from drift_graph.meta import END
from drift_graph.moments import Span, span_from
from drift_graph.payloads import Rows
from drift_kernel import kernel

#: What users call, and what completion shows.
__all__ = [
    "Frame", "Window", "Windows", "by_rule", "calendar", "count", "every", "rows", "session", "sliding", "tumbling",
]  # fmt: skip


def __dir__() -> list[str]:
    return __all__


#: What others call windows, by what is written here.
_ELSEWHERE = {
    "tumbling": ("tumble", "fixed", "TumblingWindower", "TumblingEventTimeWindows"),
    "sliding": ("hopping", "hop", "slide", "SlidingWindower", "SlidingEventTimeWindows"),
    "session": ("sessions", "SessionWindower", "session_window"),
    "count": ("items", "count_window", "countWindow", "CountWindow"),
    "calendar": ("daily", "day", "monthly", "month"),
}

if not TYPE_CHECKING:  # to which a name that is not there is an error in any case

    def __getattr__(name: str) -> Any:
        raise no_attribute("drift.windows", name, _ELSEWHERE)


def _written(text: str) -> Any:
    """A field for `Windows.span`, which makes no windows differ."""
    return field(default=text, compare=False, repr=False)


#: Of what windows are lowered.
_Key = Callable[[Any], Any]
_Aggregate = Aggregate[Any, Any]
_Early = Early | Until | None


class Windows:
    """Windows of one kind; the functions of `drift.windows` make them."""

    __slots__ = ()

    @property
    def span(self) -> str:
        """A length as it was written in seconds and the like; "" for numbers."""
        return ""

    def steps(self, key: _Key, aggregate: _Aggregate, early: _Early) -> list[Lowered]:
        """The processes, one after the other, that these windows are lowered to."""
        raise NotImplementedError

    def inside(self, read: Callable[[Any], Any]) -> Windows:
        """These windows over items in which the payloads are that `read` gives."""
        return self

    @property
    def following(self) -> Following | None:
        """What gives the window after another one; None of windows that do not stand at fixed times."""
        return None

    @property
    def placed(self) -> Placed | None:
        """Which windows a time is in; None of windows that do not stand at fixed times."""
        return None

    def corrected(self, key: _Key, aggregate: _Aggregate, early: Early | None, allowed: Allowed) -> list[Lowered]:
        """The steps, one after the other, that these windows are lowered to where belated items correct them."""
        assert self.placed is not None
        one = Correctable(aggregate, self.placed, allowed.span)
        return [
            Lowered(None, EachByOwnTime(key, self.placed, *allowed), None),
            *_timed(one, CorrectableEnd(one), early, key_of_window),
        ]


@dataclass(frozen=True, slots=True)
class _Tumbling(Windows):
    size: int
    offset: int
    span: str = _written("")
    has_end: bool = False

    def steps(self, key: _Key, aggregate: _Aggregate, early: _Early) -> list[Lowered]:
        item = (WithEndItem if self.has_end else TumblingItem)(key, aggregate, self.size, self.offset)
        return _timed(item, Ended(item), early)

    @property
    def following(self) -> Following:
        return Each(self.size)

    @property
    def placed(self) -> Placed:
        return OfLength(self.size, self.size, self.offset, not self.has_end, self.has_end)


@dataclass(frozen=True, slots=True)
class _Calendar(Windows):
    calendar: Calendar
    span: str = _written("")

    def steps(self, key: _Key, aggregate: _Aggregate, early: _Early) -> list[Lowered]:
        item = CalendarItem(key, aggregate, self.calendar)
        return _timed(item, Ended(item), early)

    @property
    def following(self) -> Following:
        return NextOf(self.calendar)

    @property
    def placed(self) -> Placed:
        return OfCalendar(self.calendar)


@dataclass(frozen=True, slots=True)
class _Session(Windows):
    gap: int
    span: str = _written("")

    def steps(self, key: _Key, aggregate: _Aggregate, early: _Early) -> list[Lowered]:
        item = SessionItem(key, aggregate, self.gap)
        return _timed(item, Closing(item), early)


@dataclass(frozen=True, slots=True)
class _Sliding(Windows):
    size: int
    every: int
    offset: int
    span: str = _written("")

    def steps(self, key: _Key, aggregate: _Aggregate, early: _Early) -> list[Lowered]:
        if early is not None:
            each = EachWindow(key, self.size, self.every, self.offset)
            one = OneWindow(aggregate, self.size)
            return [Lowered(None, each, None), *_timed(one, OneWindowEnd(one), early, key_of_window)]
        if self.every < self.size:
            aggregate = aggregate.mergeable
        sliced = SliceItem(key, aggregate, self.size, self.every, self.offset)
        merged = _Merged(aggregate, self.size, self.every, self.offset)
        return [Lowered(key, sliced, Ended(sliced)), Lowered(key_of_slice, merged, _MergedEnd(merged))]

    @property
    def following(self) -> Following:
        return Each(self.every)

    @property
    def placed(self) -> Placed:
        return OfLength(self.size, self.every, self.offset, True, False)


@dataclass(frozen=True, slots=True)
class _SlidingClosed(_Sliding):
    """Each window by itself: an end of one may be within a slice of others."""

    has_start: bool = True
    has_end: bool = False

    def steps(self, key: _Key, aggregate: _Aggregate, early: _Early) -> list[Lowered]:
        each = EachClosedWindow(key, self.size, self.every, self.offset, self.has_start, self.has_end)
        one = (OneWithEnd if self.has_end else OneWindow)(aggregate, self.size)
        return [Lowered(None, each, None), *_timed(one, OneWindowEnd(one), early, key_of_window)]

    @property
    def placed(self) -> Placed:
        return OfLength(self.size, self.every, self.offset, self.has_start, self.has_end)


@dataclass(frozen=True, slots=True)
class _Numbered(Windows):
    size: int
    every: int
    partial: bool

    def steps(self, key: _Key, aggregate: _Aggregate, early: _Early) -> list[Lowered]:
        if early is not None:
            counted = Counted(key, aggregate, self.size, self.every, self.partial, early)
            return [Lowered(key, counted, CountedEnd(counted))]
        if self.every < self.size:  # else each window is one slice
            aggregate = aggregate.mergeable
        if not self.partial:
            return [Lowered(key, NumberedStep(key, aggregate, self.size, self.every), None)]
        item = NumberedItem(key, aggregate, self.size, self.every)
        return [Lowered(key, item, _NumberedEnd(item))]


class _Ruled(_ByValue, Windows, frozen=True):
    rule: Callable[[Any], str | None]
    partial: bool

    def steps(self, key: _Key, aggregate: _Aggregate, early: _Early) -> list[Lowered]:
        item = RuledItem(key, aggregate, self.rule, self.partial)
        if early is not None:
            early_item = RuledEarly(item, early)
            return [Lowered(key, early_item, RuledEarlyEnd(early_item, _RuledEnd(item)))]
        return [Lowered(key, item, _RuledEnd(item))]

    def inside(self, read: Callable[[Any], Any]) -> Windows:
        return _Ruled(Inside(self.rule, read), self.partial)


class Inside(_ByValue, frozen=True):
    """A user's function of what another one gives."""

    user_function: Callable[[Any], Any]
    read: Callable[[Any], Any]

    def __call__(self, item: Any) -> Any:
        return self.user_function(self.read(item))


# Windows of time whose results a timer gives.


def fields_of_rows(
    fields: Any, key: Callable[[Any], Any], named: Mapping[str, Aggregate[Any, Any]], names: Sequence[str]
) -> Any:
    """The fields of a row for each window; None if their types are not known.

    Args:
        names: of the row's fields that are no aggregates.
    """
    of_key = () if key is all_items else names_of(key)
    if of_key is None:
        return None
    from drift.columns.aggregates import fields_of_windows  # here: it needs numpy

    of = [(name, each.type_in_columns) for name, each in named.items()]
    return fields_of_windows(fields, of_key, of, names)


def parts_of(aggregate: Aggregate[Any, Any]) -> dict[str, Aggregate[Any, Any]]:
    """The aggregates by the names of their values; of one value the name is ""."""
    return dict(zip(aggregate.names, aggregate.parts)) if isinstance(aggregate, Several) else {"": aggregate}


class _InColumns(OfAggregate, frozen=True):
    """The function for items of windows that are computed in columns, where their key and their aggregates are such."""

    def keeps_key(self, names: Sequence[str] | None) -> Sequence[str]:
        return ("key",)

    def objects_because(self, key: Callable[[Any], Any]) -> str:
        """Why windows of this key are not computed in columns, for people; "" where they are."""
        return not_in_columns(None if key is all_items else key, parts_of(self.aggregate))

    def _results(self, accumulators: list[Any]) -> tuple[int, Any, Any] | None:
        """How many fields the key has, the results in arrays, and their names; None if there are none in arrays."""
        if self.aggregate.values_in_columns is None:
            return None
        from drift.columns.groups import results_of  # here: it needs numpy

        names, aggregates = self.aggregate.values_in_columns
        return len(names_of(self.key) or ()), results_of(aggregates, accumulators), names


class _Opening(_InColumns, OpensWindows, frozen=True):
    """An item of a window, or a slice, whose bounds its time determines; the state is the accumulator."""

    def bounds(self, time: int) -> tuple[int, int]:
        """Start and end of the window around a time."""
        raise NotImplementedError

    @property
    def fields_of_key(self) -> Sequence[str] | None:
        names = () if self.key is all_items else names_of(self.key)
        return None if self.aggregate.values_in_columns is None else names


class AlignedItem(_Opening, frozen=True):
    """An item of a window."""

    def until(self, time: int) -> int:
        return last_before(self.bounds(time)[1])

    def windows(
        self, keys: list[Any], untils: Sequence[int], counts: Sequence[int], accumulators: list[Any]
    ) -> Rows | None:
        if (found := self._results(accumulators)) is None:
            return None
        from drift.columns.windows import window_rows  # here: it needs numpy

        fields, *results = found
        return window_rows(Window, keys, fields, list(map(self.bounds, untils)), counts, *results)

    def __call__(self, state: Any, payload: Any, time: int) -> Stepped:
        if state is EMPTY:
            return self.aggregate.begin(payload), (at(self.until(time), self.key(payload)),)
        return self.aggregate.add(state, payload), ()

    def outputs(self, notes: Sequence[Any], accumulators: Sequence[Any], time: int) -> list[Any]:
        start, end = self.bounds(time)
        return [Window(key, start, end, value) for key, value in zip(notes, self.aggregate.results(accumulators))]

    def result(self, state: Any, key: Any, time: int) -> Window[Any, Any]:
        return Window(key, *self.bounds(time), self.aggregate.result(state))

    def start(self, state: Any, time: int) -> int:
        return self.bounds(time)[0]

    def end(self, state: Any, time: int) -> int:
        """The first moment after the open window."""
        return self.until(time) + 1


class TumblingItem(AlignedItem, frozen=True):
    """An item of a tumbling window."""

    size: int
    offset: int

    def bounds(self, time: int) -> tuple[int, int]:
        start = time - (time - self.offset) % self.size
        return start, start + self.size


class WithEndItem(TumblingItem, frozen=True):
    """An item of a tumbling window that its end belongs to, and its start does not."""

    def bounds(self, time: int) -> tuple[int, int]:
        return TumblingItem.bounds(self, time - 1)

    def until(self, time: int) -> int:
        return last_before(self.bounds(time)[1] + 1)


class CalendarItem(AlignedItem, frozen=True):
    """An item of a day, a month and so on."""

    calendar: Calendar

    def bounds(self, time: int) -> tuple[int, int]:
        return self.calendar.bounds(time)


class SessionItem(_InColumns, ProlongsWindows, frozen=True):
    """An item of a session; the state is (time of its first item, time of its last one, accumulator)."""

    gap: int
    opens_again: ClassVar = True

    def __call__(self, state: Any, payload: Any, time: int) -> Stepped:
        if state is EMPTY:
            return (time, time, self.aggregate.begin(payload)), (due(time + self.gap, self.key(payload)),)
        return (state[0], time, self.aggregate.add(state[2], payload)), ()

    def result(self, state: Any, key: Any, time: int) -> Window[Any, Any]:
        first, last, accumulator = state
        return self.results((first,), (last,), (accumulator,), (key,))[0]

    def results(
        self, firsts: Sequence[int], lasts: Sequence[int], accumulators: Sequence[Any], keys: Sequence[Any]
    ) -> list[Window[Any, Any]]:
        ends = [last + self.gap for last in lasts]
        return list(map(Window, keys, firsts, ends, self.aggregate.results(accumulators)))

    def windows(self, keys: list[Any], firsts: Any, lasts: Any, accumulators: list[Any]) -> Rows | None:
        if (found := self._results(accumulators)) is None:
            return None
        from drift.columns.windows import windows_between  # here: it needs numpy

        fields, *results = found
        return windows_between(Window, keys, fields, firsts, lasts, *results, further=self.gap)

    def start(self, state: Any, time: int) -> int:
        return state[0]  # type: ignore[no-any-return]

    def end(self, state: Any, time: int) -> int:
        """End of the open session, if no item comes any more."""
        return state[1] + self.gap  # type: ignore[no-any-return]


class Closing(_ByValue, frozen=True):
    """Timer of a session, whose note is the key: the session ends, or later items have moved its end."""

    item: SessionItem

    def __call__(self, state: Any, key: Any, time: int) -> Stepped:
        until = last_before(self.item.end(state, time))
        return (state, (at(until, key),)) if time < until else (EMPTY, (self.item.result(state, key, time),))


def _timed(
    item: AlignedItem | SessionItem | OneWindow | Correctable,
    ended: Callable[..., Stepped],
    early: Early | Until | None,
    key: Callable[[Any], Any] | None = None,
) -> list[Lowered]:
    key = item.key if key is None else key
    if early is None:
        return [Lowered(key, item, ended)]
    early_item = EarlyItem(item, early)
    return [Lowered(key, early_item, EarlyEnd(early_item, ended))]


# Sliding windows.


class Slice(msgspec.Struct, frozen=True):
    """A slice of sliding windows, to be merged into them."""

    key: Any
    start: int
    end: int
    accumulator: Any


def key_of_slice(part: Slice) -> Any:
    return part.key


class SliceItem(_Opening, frozen=True):
    """An item of a slice: two slices for each `every`, cut where windows start and where they end."""

    size: int
    every: int
    offset: int

    def bounds(self, time: int) -> tuple[int, int]:
        into = (time - self.offset) % self.every
        cut = self.size if self.size < self.every else self.size % self.every
        begin = time - into
        return (begin, begin + cut) if into < cut else (begin + cut, begin + self.every)

    def windows(
        self, keys: list[Any], untils: Sequence[int], counts: Sequence[int], accumulators: list[Any]
    ) -> Rows | None:
        if self.aggregate.values_in_columns is None:
            return None
        from drift.columns.slices import slices_of  # here: it needs numpy

        bounds, of = list(map(self.bounds, untils)), parts_of(self.aggregate)
        names = tuple(of) if isinstance(self.aggregate, Several) else None
        parts = list(of.values())
        return slices_of(Slice, len(names_of(self.key) or ()), names, parts, keys, bounds, counts, accumulators)

    def outputs(self, notes: Sequence[Any], accumulators: Sequence[Any], time: int) -> list[Slice]:
        start, end = self.bounds(time)
        return [Slice(key, start, end, accumulator) for key, accumulator in zip(notes, accumulators)]

    def until(self, time: int) -> int | None:
        if self.size < self.every and (time - self.offset) % self.every >= self.size:
            return None
        return last_before(self.bounds(time)[1])

    def __call__(self, state: Any, payload: Any, time: int) -> Stepped:
        if state is not EMPTY:
            return self.aggregate.add(state, payload), ()
        if self.size < self.every and (time - self.offset) % self.every >= self.size:
            return EMPTY, ()  # between two windows
        return self.aggregate.begin(payload), (due(self.bounds(time)[1], self.key(payload)),)


class _Merged(_ByValue, MergesSlices, frozen=True):
    """A slice has ended; the state is the slices that future windows need.

    For each slice that is (start, start of the first window that begins with it, accumulator): so a slice sets the
    timer of that window, and what the window gives stands in the order where its own first item puts it.
    """

    aggregate: Aggregate[Any, Any]
    size: int
    every: int
    offset: int

    @property
    def user_function(self) -> Callable[..., Any]:
        return self.aggregate.function_shown(self.aggregate.merge)

    def keeps_key(self, names: Sequence[str] | None) -> Sequence[str]:
        return ("key",)

    def __call__(self, state: Any, part: Slice, time: int) -> Stepped:
        start = part.start
        first = self.end(part.end) - self.size
        if state is EMPTY:
            return ((start, first, part.accumulator),), (due(first + self.size, part.key),)
        last = state[-1][0]
        first = max(first, last + self.every - (last - self.offset) % self.every)
        return (*state, (start, first, part.accumulator)), (due(first + self.size, part.key),) if first <= start else ()

    def merging(self, slices: Sequence[Any], timers: tuple[bytes, bytes, int]) -> Any:
        if not is_installed("columns"):
            return None
        from drift.columns.slices import Kind, merging_of  # here: it needs numpy

        aggregate, kind = self.aggregate, None
        parts = parts_of(aggregate)
        if aggregate.values_in_columns is None and all(part.adds is not None for part in parts.values()):
            names = aggregate.names if isinstance(aggregate, Several) else None
            kind = Kind(Slice, 1, names, tuple(parts.values()), aggregate.result)
        return merging_of(slices, kind, (self.size, self.every, self.offset), timers, Window)

    def kept(self, state: Any) -> int:
        """How many of the last slices a state is made of; for lineages."""
        return 0 if state is EMPTY else len(state)

    def end(self, bound: int) -> int:
        """The first end of a window at or above a bound."""
        return bound + (self.offset + self.size - bound) % self.every


class _MergedEnd(_ByValue, frozen=True):
    """Timer: a window ends; sets that of the next window, `every` later, if it begins with the same slice."""

    item: _Merged

    def __call__(self, state: Any, key: Any, time: int) -> Stepped:
        item, first_slice = self.item, state[0]
        value = item.aggregate.result(functools.reduce(item.aggregate.merge, [each for _, _, each in state]))
        if time == END:  # all windows that end beyond it and begin with the first slice
            first = max(first_slice[1], item.end(END + 1) - item.size)
            starts = range(first, first_slice[0] + 1, item.every)
            left = tuple([each for each in state if each[0] >= starts.stop])
            return left or EMPTY, [Window(key, start, start + item.size, value) for start in starts]
        end = item.end(time + 1)
        start = end - item.size
        window = Window(key, start, end, value)
        next_start = start + item.every
        if first_slice[0] >= next_start:
            return state, (window, due(end + item.every, key))
        return tuple([each for each in state if each[0] >= next_start]) or EMPTY, (window,)


# Windows by number, and by a rule.


#: The number of items of a key so far; the accumulators of full slices, from the first window that is not full on; and
#: the accumulator of the open slice, or EMPTY.
_NumberedState = tuple[int, tuple[Any, ...], Any]
_NO_ITEMS: _NumberedState = (0, (), EMPTY)


class NumberedStep(_InColumns, NumbersWindows, frozen=True):
    """The step of windows by number, as a scan: without results for unfinished windows no timer is needed."""

    size: int
    every: int

    @property
    def cut(self) -> int:
        """Offset within each `every` at which a second slice begins; 0 if there is only the one that begins at 0."""
        return self.size % self.every if self.size > self.every else 0

    @property
    def table(self) -> Any:
        if kernel is None or self.every > self.size or self.size > END:
            return None
        several, parts = self.parts
        columns = [kernel.Accumulators(kind, part.begin_value, part.add_value, part.merge) for kind, part in parts]
        return kernel.NumberedWindows(self.size, self.every, EMPTY, columns, several=several)

    def windows(
        self, payloads: Sequence[Any], selected: bytes, ends: Sequence[int], accumulators: Sequence[Any]
    ) -> list[Any]:
        keys, starts = map(self.key, compress(payloads, selected)), [end - self.size for end in ends]
        return list(map(Window, keys, starts, ends, self.aggregate.results(accumulators)))

    def windows_in_columns(
        self, codes: Any, keys: list[Any], selected: bytes, ends: Sequence[int], accumulators: list[Any]
    ) -> Rows | None:
        if self.aggregate.values_in_columns is None:
            return None
        from drift.columns.windows import windows_that_end  # here: it needs numpy

        of_keys = keys, codes, len(names_of(self.key) or ())
        return windows_that_end(
            Window, of_keys, selected, ends, self.size, self.aggregate.values_in_columns, accumulators
        )

    def on_batch(self, states: dict[Any, Any], rows: KeyedItems, give: Callable[[Any], None]) -> None:
        size, every, cut, key_of, find, aggregate = (
            self.size, self.every, self.cut, self.key, states.get, self.aggregate,
        )  # fmt: skip
        begin, add, merge, result = aggregate.begin_value, aggregate.add_value, aggregate.merge, aggregate.result
        skipped = 2 if cut else 1  # slices of an `every`
        end = (size - 1) % every  # into each `every`: where a window has its last item
        none, nothing, payloads = _NO_ITEMS, (), rows.payloads
        for key, payload, value in zip(rows.keys, payloads, aggregate.values_of(payloads)):
            state = find(key, none)
            position, full, last = none if state is EMPTY else state
            into = position % every
            position += 1
            if into and into != cut:
                if into < size:
                    last = add(last, value)
            else:
                if last is not EMPTY:
                    full = (*full, last)
                last = begin(value)
            if into != end or position < size:
                states[key] = position, full, last
                give(nothing)
                continue
            merged = last
            if full:
                merged = merge(full[0], last) if len(full) == 1 else functools.reduce(merge, (*full, last))
            window = Window(key_of(payload), position - size, position, result(merged))
            states[key] = (position, full[skipped:], last) if len(full) >= skipped else (position, (), EMPTY)
            give((window,))

    def objects_because(self, key: Callable[[Any], Any]) -> str:
        if self.every > self.size:
            return "windows by number with items between them are made item by item"
        return _InColumns.objects_because(self, key)

    def window(self, key: Any, start: int, end: int, slices: Sequence[Any]) -> Window[Any, Any]:
        """The window made of the accumulators of its slices."""
        return Window(key, start, end, self.aggregate.result(functools.reduce(self.aggregate.merge, slices)))


class NumberedItem(OfAggregate, TakesEach, frozen=True):
    """An item of windows by number with results for unfinished windows at the end."""

    size: int
    every: int

    def takes(self, state: Any) -> bool:
        """Whether the item sets no timer: a key that has begun has one already."""
        return state is not EMPTY

    def each(self, states: dict[Any, Any], rows: KeyedItems, give: Callable[[Sequence[Any]], None]) -> None:
        self.step.on_batch(states, rows, give)

    @property
    def step(self) -> NumberedStep:
        return NumberedStep(self.key, self.aggregate, self.size, self.every)

    def __call__(self, state: Any, payload: Any, time: int) -> Stepped:
        state_after, outputs = self.step(state, payload)
        return state_after, outputs if state is not EMPTY else (at(END, self.key(payload)), *outputs)


class _NumberedEnd(_ByValue, frozen=True):
    """Timer at the end: outputs the first window that is not full, if it has items. Later ones are contained in it."""

    item: NumberedItem

    def __call__(self, state: _NumberedState, key: Any, time: int) -> Stepped:
        position, full, last = state
        slices = full if last is EMPTY else (*full, last)
        if not slices:
            return EMPTY, ()
        size, every = self.item.size, self.item.every
        start = max((position - size) // every + 1, 0) * every
        return EMPTY, (self.item.step.window(key, start, min(position, start + size), slices),)


class RuledItem(OfAggregate, TakesEach, frozen=True):
    """An item of windows by a rule; the state is (time of the first item, time of the last, accumulator)."""

    rule: Callable[[Any], str | None]
    partial: bool

    @property
    def user_function(self) -> Callable[..., Any]:
        return self.rule

    def __call__(self, state: Any, payload: Any, time: int) -> Stepped:
        return self._answered(
            self.rule(payload), state, payload, time, self.aggregate.begin, self.aggregate.add, payload
        )

    def _answered(
        self,
        answer: str | None,
        state: Any,
        payload: Any,
        time: int,
        begin: Callable[[Any], Any],
        add: Callable[[Any, Any], Any],
        value: Any,
    ) -> Stepped:
        if answer not in _ANSWERS:
            raise TypeError(
                f"the rule of windows returned {brief(answer, 80)}; it must return 'open', 'go on', 'close' or 'skip'"
            )
        if answer == "skip":
            return state, ()
        outputs: list[Any] = []
        if state is EMPTY and self.partial:
            outputs.append(at(END, self.key(payload)))
        if answer == "open" and type(state) is tuple:
            outputs.append(self.window(self.key(payload), state))
            state = CLOSED
        state = (state[0], time, add(state[2], value)) if type(state) is tuple else (time, time, begin(value))
        if answer == "close":
            outputs.append(self.window(self.key(payload), state))
            state = CLOSED if self.partial else EMPTY
        return state, outputs

    def takes(self, state: Any) -> bool:
        return not self.partial or state is not EMPTY

    def each(self, states: dict[Any, Any], rows: KeyedItems, give: Callable[[Sequence[Any]], None]) -> None:
        find, begin, add = states.get, self.aggregate.begin_value, self.aggregate.add_value
        answers = list(map(self.rule, rows.payloads))
        taken = rows.payloads
        if "skip" in answers:  # the aggregate does not see those
            taken = [payload for payload, answer in zip(taken, answers) if answer != "skip"]
        values = iter(self.aggregate.values_of(taken))
        for (key, payload, time), answer in zip(rows, answers):
            state = find(key, EMPTY)
            value = None if answer == "skip" else next(values)
            if answer == "go on" and type(state) is tuple:
                states[key] = state[0], time, add(state[2], value)
                give(())
            else:
                states[key], outputs = self._answered(answer, state, payload, time, begin, add, value)
                give(outputs)

    def window(self, key: Any, state: tuple[int, int, Any]) -> Window[Any, Any]:
        return Window(key, state[0], state[1] + 1, self.aggregate.result(state[2]))


_ANSWERS = ("open", "go on", "close", "skip")


class _RuledEnd(_ByValue, frozen=True):
    item: RuledItem

    def __call__(self, state: Any, key: Any, time: int) -> Stepped:
        return EMPTY, (self.item.window(key, state),) if type(state) is tuple else ()


# What `drift.windows` offers.


def tumbling(size: Span, offset: Span = 0, *, closed: Closed = "left") -> Windows:
    """Windows one after the other: [offset + n * size, offset + (n + 1) * size).

    With closed="right" they are (offset + n * size, offset + (n + 1) * size]: an item at 10 is the last of the window
    that ends at 10, whose label `end` is its last time. With "both" it is the first of the next window too, and with
    "none" in no window; such windows are not computed in columns.

    >>> import drift
    >>> graph = drift.Graph("example")
    >>> at = drift.EventTime(time=lambda number: number)
    >>> windows = graph.source("numbers", time=at).window(drift.windows.tumbling(10)).collect()
    >>> windows.map(lambda window: (window.start, window.end, window.value)).sink("out")
    >>> [item.payload for item in drift.run(graph, {"numbers": [1, 8, 12]})]
    [(0, 10, (1, 8)), (10, 20, (12,))]
    >>> graph = drift.Graph("both ends")
    >>> windows = graph.source("numbers", time=at).window(drift.windows.tumbling(10, closed="both")).collect()
    >>> windows.map(lambda window: (window.start, window.end, window.value)).sink("out")
    >>> [item.payload for item in drift.run(graph, {"numbers": [1, 10, 12]})]
    [(0, 10, (1, 10)), (10, 20, (10, 12))]

    Args:
        size: in the unit of the items' time, 1 or more; if that is milliseconds, also a timedelta or "1h 30m".
        offset: shifts all windows; without it they are aligned to time 0.
        closed: which of its two ends belong to a window: "left", "right", "both" or "none".

    Raises:
        GraphError: an argument is none of these.
    """
    _check_closed("tumbling", closed)
    length, first, text = (
        _span("tumbling", "size", size, 1),
        _span("tumbling", "offset", offset, None),
        _text_of(size, offset),
    )
    if closed in ("left", "right"):
        return _Tumbling(length, first, text, closed == "right")
    return _SlidingClosed(length, length, first, text, closed == "both", closed == "both")


def calendar(every: str, zone: str = "UTC", *, start: str = "monday") -> Windows:
    """Hours, days, weeks, months, quarters or years of a time zone, for times in milliseconds since 1970.

    Where clocks change, a day has 23 or 25 hours, and "6h" from midnight to six 5 or 7. Times are judged by the
    machine's database of time zones.

    >>> import drift
    >>> graph = drift.Graph("example")
    >>> at = drift.EventTime(time=lambda number: number)
    >>> windows = graph.source("numbers", time=at).window(drift.windows.calendar("1d", zone="Europe/Berlin")).collect()
    >>> windows.map(lambda window: (window.start, window.end, window.value)).sink("out")
    >>> [item.payload for item in drift.run(graph, {"numbers": [0, 90_000_000]})]
    [(-3600000, 82800000, (0,)), (82800000, 169200000, (90000000,))]

    Args:
        every: "day" or "1d", "week" or "1w" (from Monday), "month", "quarter", "year"; also several, such as
            "2 weeks" or "6 months"; and 1, 2, 3, 4, 6, 8 or 12 hours, "6h", from midnight. Several days and weeks are
            counted from 1970-01-01 and its Monday, several months from January of year 0.
        zone: name of the time zone, such as "Europe/Berlin".
        start: the day on which weeks begin, such as "sunday"; several weeks are counted from the last one before 1970,
            or on its first day.

    Raises:
        GraphError: there is no such span, day, or no such time zone on this machine.
    """
    found = calendar_from(every, zone, start)
    if start not in WEEKDAYS or (start != "monday" and found is not None and found.unit not in WEEKDAYS):
        raise GraphError(
            f"drift.windows.calendar takes start= for weeks, a day of {', '.join(WEEKDAYS)}, not {start!r:.80} for "
            f"{every!r:.80} (at {caller()})"
        )
    if found is None:
        raise GraphError(
            f"drift.windows.calendar takes days, weeks, months, quarters or years, such as '1d' or '3 months', or 1, "
            f"2, 3, 4, 6, 8 or 12 hours, and the name of a time zone, such as 'Europe/Berlin', not {every!r:.80} and "
            f"zone={zone!r:.80} (at {caller()})"
        )
    return _Calendar(found, every)


def sliding(size: Span, every: Span, offset: Span = 0, *, closed: Closed = "left") -> Windows:
    """Windows that overlap: one of length `size` starts every `every`. With every=size they are tumbling windows.

    The aggregate works on slices, at most two for each `every`, which windows share. With another `closed` than "left",
    see `tumbling`, each item goes to every window that it is in; such windows are not computed in columns.

    >>> import drift
    >>> graph = drift.Graph("example")
    >>> at = drift.EventTime(time=lambda number: number)
    >>> windows = graph.source("numbers", time=at).window(drift.windows.sliding(10, every=5)).collect()
    >>> windows.map(lambda window: (window.start, window.end, window.value)).sink("out")
    >>> [item.payload for item in drift.run(graph, {"numbers": [1, 8]})]
    [(-5, 5, (1,)), (0, 10, (1, 8)), (5, 15, (8,))]
    >>> graph = drift.Graph("ends")
    >>> hours = graph.source("numbers", time=at).window(drift.windows.sliding(10, every=5, closed="right")).collect()
    >>> hours.map(lambda window: (window.start, window.end, window.value)).sink("out")
    >>> [item.payload for item in drift.run(graph, {"numbers": [5, 8]})]
    [(-5, 5, (5,)), (0, 10, (5, 8)), (5, 15, (8,))]

    Args:
        size: in the unit of the items' time, 1 or more; if that is milliseconds, also a timedelta or "1h 30m".
        every: 1 or more; if greater than `size`, items between two windows are in none.
        offset: shifts all windows; without it one starts at time 0.
        closed: which of its two ends belong to a window: "left", "right", "both" or "none".

    Raises:
        GraphError: an argument is none of these, or an item would be in more than 1,000,000 windows.
    """
    _check_closed("sliding", closed)
    spans = (
        _span("sliding", "size", size, 1),
        _span("sliding", "every", every, 1),
        _span("sliding", "offset", offset, None),
        _text_of(size, every, offset),
    )
    if (windows := -(-spans[0] // spans[1])) > HOPS_MAX:  # the last item of a key would set a timer so often
        raise GraphError(
            f"drift.windows.sliding({size!r:.80}, every={every!r:.80}) puts each item in {windows:,} windows, and "
            f"{HOPS_MAX:,} are the most (at {caller()}); pass a smaller size= or a greater every="
        )
    if closed == "left":
        return _Sliding(*spans)
    return _SlidingClosed(*spans, closed == "both", closed in ("right", "both"))


class Frame(msgspec.Struct, frozen=True):
    """The rows around one, of its key: see `rows`."""

    preceding: int
    following: int


def rows(preceding: int, following: int = 0) -> Frame:
    """For `rolling`: each row with so many of its key before it, and so many behind it; fewer at the beginning and end.

    >>> import drift
    >>> graph = drift.Graph("example")
    >>> fares = graph.source("fares").key_by("zone")
    >>> fares.rolling(drift.windows.rows(0, 1), next=drift.agg.nth(1, "fare")).sink("out")
    >>> rows = [{"zone": "JFK", "fare": fare} for fare in (5, 2, 4)]
    >>> [item.payload["next"] for item in drift.run(graph, {"fares": rows})]
    [2, 4, None]
    """
    return Frame(_whole_number("rows", "preceding", preceding, 0), _whole_number("rows", "following", following, 0))


def session(gap: Span) -> Windows:
    """A window lasts as long as the next item of the key comes within less than `gap`: [first, last + gap).

    >>> import drift
    >>> graph = drift.Graph("example")
    >>> at = drift.EventTime(time=lambda number: number)
    >>> windows = graph.source("numbers", time=at).window(drift.windows.session(gap=5)).collect()
    >>> windows.map(lambda window: (window.start, window.end, window.value)).sink("out")
    >>> [item.payload for item in drift.run(graph, {"numbers": [1, 4, 12]})]
    [(1, 9, (1, 4)), (12, 17, (12,))]

    Args:
        gap: in the unit of the items' time, 1 or more; if that is milliseconds, also a timedelta or "30m".
    """
    return _Session(_span("session", "gap", gap, 1), _text_of(gap))


def count(size: int, every: int | None = None, *, partial: bool = False) -> Windows:
    """Windows of `size` items of a key; a new one starts every `every` items.

    >>> import drift
    >>> graph = drift.Graph("example")
    >>> at = drift.EventTime(time=lambda number: number)
    >>> windows = graph.source("numbers", time=at).window(drift.windows.count(2, partial=True)).collect()
    >>> windows.map(lambda window: (window.start, window.end, window.value)).sink("out")
    >>> [item.payload for item in drift.run(graph, {"numbers": [1, 4, 12]})]
    [(0, 2, (1, 4)), (2, 3, (12,))]

    Args:
        size: in items, 1 or more.
        every: in items; None means `size`: each item is in one window.
        partial: whether, at the end of the input, each key gives its first window that is not full.
    """
    every = size if every is None else every
    return _Numbered(_whole_number("count", "size", size, 1), _whole_number("count", "every", every, 1), bool(partial))


def by_rule(rule: Callable[[Any], Literal["open", "go on", "close", "skip"]], *, partial: bool = False) -> Windows:
    """Windows that payloads open and close: [time of the first item, time of the last].

    >>> import drift
    >>> graph = drift.Graph("example")
    >>> at = drift.EventTime(time=lambda number: number)
    >>> rule = drift.windows.by_rule(lambda number: "close" if number % 4 == 0 else "go on")
    >>> windows = graph.source("numbers", time=at).window(rule).collect()
    >>> windows.map(lambda window: (window.start, window.end, window.value)).sink("out")
    >>> [item.payload for item in drift.run(graph, {"numbers": [1, 4, 7, 12]})]
    [(1, 5, (1, 4)), (7, 13, (7, 12))]

    Args:
        rule: pure; returns for a payload: "open": it is the first of a new window, and an open one ends before it;
            "go on": it is in the open window, or the first of a new one; "close": like "go on", and the window ends
            with it; "skip": it is in no window.
        partial: whether, at the end of the input, each key gives its open window.

    Raises:
        GraphError: `rule` cannot be called.
    """
    if not callable(rule):
        raise GraphError(f"drift.windows.by_rule takes a function, not {rule!r:.80} (at {caller()})")
    return _Ruled(rule, bool(partial))


def every(*, items: int | None = None, time: Span | None = None) -> Early:
    """For `window(..., early=...)`: an open window gives an early result every so many items, or every so much time.

    >>> import drift
    >>> graph = drift.Graph("example")
    >>> early = drift.windows.every(items=2)
    >>> graph.source("numbers").window(drift.windows.tumbling(9), early=early).sum(int).sink("sums")
    >>> [item.payload for item in drift.run(graph, {"numbers": [1, 2, 3]})]
    [Window(key=None, start=0, end=9, value=3, early=True),
     Window(key=None, start=0, end=9, value=6, early=False)]

    Args:
        items: of the window, counted from its first one.
        time: from the start of the window, in the unit of the items' time; for windows by number or by a rule, from the
            time of the first item, and only if items have come since. At the end a window gives its result only.

    Raises:
        GraphError: not just one of them is given, or it is below 1.
    """
    if (items is None) == (time is None):
        raise GraphError(f"drift.windows.every takes items= or time= (at {caller()})")
    if items is not None:
        _whole_number("every", "items", items, 1)
    return Early(items, None if time is None else _span("every", "time", time, 1))


def check_windows(value: object) -> None:
    """Check that an argument is a kind of windows.

    Raises:
        GraphError: it is not; for example a number.
    """
    if not isinstance(value, Windows):
        raise GraphError(
            f"window takes one of drift.windows, such as drift.windows.tumbling(60), not {value!r:.80} (at {caller()})"
        )


def _check_closed(what: str, closed: object) -> None:
    if closed not in get_args(Closed):
        raise GraphError(
            f"drift.windows.{what} takes closed= one of {', '.join(get_args(Closed))}, not {closed!r:.80} "
            f"(at {caller()})"
        )


def _text_of(*lengths: object) -> str:
    """The first of them that is no number."""
    return next((str(each) for each in lengths if type(each) is not int), "")


def _span(what: str, argument: str, value: object, least: int | None) -> int:
    found = span_from(value)
    if found is None or (least is not None and found < least):
        bound = "" if least is None else f" of {least} or more"
        raise GraphError(
            f"drift.windows.{what} takes {argument}= an int{bound} in the unit of the items' time, or where that is "
            f"milliseconds a timedelta or a text such as '10s', not {value!r:.80} (at {caller()})"
        )
    return found


def _whole_number(what: str, argument: str, value: object, least: int | None) -> int:
    if type(value) is not int or (least is not None and value < least):
        bound = "" if least is None else f" of {least} or more"
        raise GraphError(
            f"drift.windows.{what} takes {argument}= an int{bound}, in items, not {value!r:.80} (at {caller()})"
        )
    return value


called_in(globals(), __all__)
