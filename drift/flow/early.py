"""Early results of windows, and windows that end when a predicate of their result holds.

Invariant: an early result is the aggregate of the items of its window up to that position in the order, and is marked
as early; early results do not change the result at the end.

Why: they are outputs of the same process, after every n-th item, or at a timer. In a window by time a timer sets the
next one until the window ends. A window by number or by a rule may never end, so there an item sets the timer if none
is set: no result is given twice for the same items, and no timers go on for ever. When a predicate ends a window, the
timer of its end stays, and the state is CLOSED until then: no items get in, or a session that opens again sets no
second timer.

Sliding windows with early results do not share slices: each item goes to every window that it is in, since shared
slices do not hold the number of items of each window.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, ClassVar, NamedTuple

import msgspec

from drift.flow.accumulators import Aggregate
from drift.flow.opened import CLOSED, EMPTY, Early, EarlyNote, OfAggregate, Stepped, Until, Window, due
from drift.operators import _ByValue
from drift_graph.later import at
from drift_graph.meta import END


def _marked(window: Window[Any, Any]) -> Window[Any, Any]:
    return msgspec.structs.replace(window, early=True)


def _ended(early: Early | Until, result: Callable[..., Window[Any, Any]], *of: Any) -> Window[Any, Any] | None:
    """The result of a window that its predicate ends with the item that has just come."""
    window = result(*of) if type(early) is Until else None
    return window if window is not None and early.user_function(window.value) else None  # type: ignore[union-attr]


# Windows that a timer ends.


class _Early(_ByValue, frozen=True):
    """An item of a window with early results. `item`: the process's function for items without early results."""

    item: Any
    early: Early | Until

    @property
    def user_function(self) -> Callable[..., Any]:
        return self.item.user_function  # type: ignore[no-any-return]

    @property
    def initials(self) -> tuple[Any, ...]:
        return self.item.initials  # type: ignore[no-any-return]


class EarlyItem(_Early, frozen=True):
    """An item of a window that a timer ends, see `drift.flow.windows.TumblingItem`; the state is (items since the last
    early result, the window's state).
    """

    def __call__(self, state: Any, payload: Any, time: int) -> Stepped:
        if state is CLOSED and not self.item.opens_again:
            return state, ()
        count, inside = (0, EMPTY) if type(state) is not tuple else state
        opened = inside is EMPTY
        inside, outputs = self.item(inside, payload, time)
        if state is CLOSED:
            outputs = ()  # the timer is there
        window = _ended(self.early, self.item.result, inside, self.item.key(payload), time)
        if window is not None:
            window = msgspec.structs.replace(window, end=time + 1) if self.item.opens_again else window
            return CLOSED, (*outputs, window)
        count += 1
        if time >= self.item.end(inside, time):
            return (count, inside), outputs  # the item corrects a result, see `drift.flow.corrected`
        if count == self.early.items:
            count, outputs = 0, (*outputs, self.result(inside, self.item.key(payload), time))
        if opened and self.early.time is not None:
            start = self.item.start(inside, time)
            moment = _next(start, self.early.time, max(time, start))
            outputs = (*outputs, due(moment, EarlyNote(self.item.key(payload), start)))
        return (count, inside), outputs

    def result(self, inside: Any, key: Any, time: int) -> Window[Any, Any]:
        """The current content of the open window, marked as early."""
        return _marked(self.item.result(inside, key, time))


class EarlyEnd(_ByValue, frozen=True):
    """A timer of a window with early results: for its end, or for an early result.

    Args:
        closing: the process's function for the window's end.
    """

    item: EarlyItem
    closing: Callable[[Any, Any, int], Stepped]

    def __call__(self, state: Any, note: Any, time: int) -> Stepped:
        windows = self.item.item
        if state is CLOSED:
            return EMPTY, ()
        if type(note) is not EarlyNote:
            inside, outputs = self.closing(state[1], note, time)
            return (EMPTY if inside is EMPTY else (state[0], inside)), outputs
        if state is EMPTY or windows.start(state[1], time) != note.start:
            return state, ()  # the timer of a window that has ended
        if time >= windows.end(state[1], time) - 1 or time == END:
            return state, ()  # its end comes now
        assert self.item.early.time is not None
        again = due(time + 1 + self.item.early.time, note)
        return state, (self.item.result(state[1], note.key, time), again)


def _next(start: int, every: int, time: int) -> int:
    """The first multiple of `every` after `start` that is above a time."""
    return start + ((time - start) // every + 1) * every


# Sliding windows, each by itself.


class InWindow(NamedTuple):
    """An item in one of the windows that it is in."""

    key: Any
    start: int
    payload: Any


def key_of_window(item: InWindow) -> tuple[Any, int]:
    """The window of the item: (key, start)."""
    return item.key, item.start


class EachWindow(_ByValue, frozen=True):
    """A map: one copy of an item for each sliding window that it is in, the earliest first."""

    gives_users: ClassVar = True  # the key, which is compared later
    of_users: ClassVar = staticmethod(lambda families: [item.key for family in families for item in family])

    user_function: Callable[[Any], Any]
    size: int
    every: int
    offset: int

    def __call__(self, payload: Any, time: int) -> list[InWindow]:
        key = self.user_function(payload)
        return [InWindow(key, start, payload) for start in self.starts(time)]

    def starts(self, time: int) -> Sequence[int]:
        """The starts of the windows that this time is in."""
        return starts_around(time, self.size, self.every, self.offset, True, False)


def starts_around(time: int, size: int, every: int, offset: int, has_start: bool, has_end: bool) -> Sequence[int]:
    """The starts of the windows of one length that a time is in, the earliest first."""
    last, least = time - (not has_start), time - size + (not has_end)
    return range(least + (offset - least) % every, last + 1, every)


class EachClosedWindow(EachWindow, frozen=True):
    """`EachWindow` of windows that their starts do not belong to, or their ends do."""

    has_start: bool
    has_end: bool

    def starts(self, time: int) -> Sequence[int]:
        return starts_around(time, self.size, self.every, self.offset, self.has_start, self.has_end)


class OfOneWindow(_ByValue, frozen=True):
    """The function for copies of items, each for one of the windows that its item is in."""

    aggregate: Aggregate[Any, Any]
    opens_again: ClassVar = False

    @property
    def user_function(self) -> Callable[..., Any]:
        return self.aggregate.function_shown(key_of_window)

    @property
    def initials(self) -> tuple[Any, ...]:
        return self.aggregate.initials

    def key(self, item: InWindow) -> Any:
        return item.key


class OneWindow(OfOneWindow, frozen=True):
    """An item of one sliding window; the state is (its start, the accumulator)."""

    size: int
    further: ClassVar = 0  # how far the first time behind the window is from its end

    def __call__(self, state: Any, item: InWindow, time: int) -> Stepped:
        if state is EMPTY:
            opened = item.start, self.aggregate.begin(item.payload)
            return opened, (due(item.start + self.size + self.further, item.key),)
        return (state[0], self.aggregate.add(state[1], item.payload)), ()

    def result(self, state: Any, key: Any, time: int) -> Window[Any, Any]:
        return Window(key, state[0], state[0] + self.size, self.aggregate.result(state[1]))

    def start(self, state: Any, time: int) -> int:
        return state[0]  # type: ignore[no-any-return]

    def end(self, state: Any, time: int) -> int:
        return state[0] + self.size + self.further  # type: ignore[no-any-return]


class OneWithEnd(OneWindow, frozen=True):
    """An item of one window that its end belongs to."""

    further: ClassVar = 1


class OneWindowEnd(_ByValue, frozen=True):
    """Timer: the window ends; the note is the key."""

    item: OneWindow

    def __call__(self, state: Any, key: Any, time: int) -> Stepped:
        return EMPTY, (self.item.result(state, key, time),)


# Windows by number.


class Open(NamedTuple):
    """A window by number that is not full.

    Attributes:
        start: the index of its first item among the items of the key.
        begun: the time of that item.
        is_timed: whether a timer for its early result is set.
    """

    start: int
    begun: int
    is_timed: bool
    accumulator: Any


class Counted(OfAggregate, frozen=True):
    """An item of windows by number; the state is (number of items of the key so far, its open windows)."""

    size: int
    every: int
    partial: bool
    early: Early | Until

    def __call__(self, state: Any, payload: Any, time: int) -> Stepped:
        key = self.key(payload)
        position, windows = (0, ()) if state is EMPTY else state
        outputs: list[Any] = [at(END, key)] if state is EMPTY and self.partial else []
        known = [window._replace(accumulator=self.aggregate.add(window.accumulator, payload)) for window in windows]
        if position % self.every == 0:
            known.append(Open(position, time, False, self.aggregate.begin(payload)))
        position += 1
        left: list[Open] = []
        for window in known:
            count = position - window.start
            whole = self.result(key, window, position) if count == self.size else None
            whole = whole or _ended(self.early, self.result, key, window, position)
            if whole is not None:
                outputs.append(whole)
                continue
            if self.early.items is not None and count % self.early.items == 0:
                outputs.append(_marked(self.result(key, window, position)))
            if self.early.time is not None and not window.is_timed:
                outputs.append(due(_next(window.begun, self.early.time, time), EarlyNote(key, window.start)))
                window = window._replace(is_timed=True)
            left.append(window)
        return (position, tuple(left)), outputs

    def result(self, key: Any, window: Open, position: int) -> Window[Any, Any]:
        return Window(key, window.start, position, self.aggregate.result(window.accumulator))


class CountedEnd(_ByValue, frozen=True):
    """A timer of windows by number: for an early result; or at the end, for the first window that is not full."""

    item: Counted

    def __call__(self, state: Any, note: Any, time: int) -> Stepped:
        if type(note) is not EarlyNote:
            windows = () if state is EMPTY else state[1][:1]
            return EMPTY, [self.item.result(note, window, state[0]) for window in windows]
        if state is EMPTY or time == END:
            return state, ()
        position, windows = state
        results = [_marked(self.item.result(note.key, each, position)) for each in windows if each.start == note.start]
        rest = [each._replace(is_timed=False) if each.start == note.start else each for each in windows]
        return (position, tuple(rest)), results


# Windows by a rule.


class RuledEarly(_Early, frozen=True):
    """An item of windows by a rule, see `drift.flow.windows.RuledItem`; the state is (items since the last early
    result, whether a timer is set, the window's state).
    """

    def __call__(self, state: Any, payload: Any, time: int) -> Stepped:
        count, is_timed, before = (0, False, EMPTY) if state is EMPTY else state
        inside, outputs_of_item = self.item(before, payload, time)
        if inside is before:
            return state, outputs_of_item  # the rule skips it
        if type(inside) is not tuple:
            return (EMPTY if inside is EMPTY else (0, False, inside)), outputs_of_item
        outputs: list[Any] = list(outputs_of_item)
        if type(before) is not tuple or Window in set(map(type, outputs_of_item)):  # it opens a window
            count, is_timed = 0, False
        count += 1
        key = self.item.key(payload)
        window = _ended(self.early, self.item.window, key, inside)
        if window is not None:
            return (0, False, CLOSED) if self.item.partial else EMPTY, (*outputs, window)
        if count == self.early.items:
            count = 0
            outputs.append(_marked(self.item.window(key, inside)))
        if self.early.time is not None and not is_timed:
            is_timed = True
            outputs.append(due(_next(inside[0], self.early.time, time), EarlyNote(key, inside[0])))
        return (count, is_timed, inside), outputs


class RuledEarlyEnd(_ByValue, frozen=True):
    """A timer of a window by a rule: for an early result, or at the end."""

    item: RuledEarly
    closing: Callable[[Any, Any, int], Stepped]

    def __call__(self, state: Any, note: Any, time: int) -> Stepped:
        count, is_timed, inside = (0, False, EMPTY) if state is EMPTY else state
        if type(note) is not EarlyNote:
            return self.closing(inside, note, time)
        if not is_timed or time == END or inside[0] != note.start:
            return state, ()  # of a window that has ended
        return (count, False, inside), (_marked(self.item.item.window(note.key, inside)),)
