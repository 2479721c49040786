"""Joins of two streams by key: the functions of a process that gets the items of both, each with its side.

Invariant: every pair is output once, at its later item; an unmatched item is output when all items that it could match
have come and none matched. A key's state holds the items that can still match, and at most one timer for each moment.

Why: an item at time t can match the other side up to a time that depends on t alone. When an item comes, the state of
the other side has been cut to the items within reach, so all of them match (unless a bound is below 0). Timers fire
after all items of their time: an item that is still open after its last time has no match.

A state is () or (left, right, open left, open right, time of the timer): two sides of (time, payload); for each side
the items that have not matched yet, if unmatched ones are wanted; and the time of the next timer.
"""

from __future__ import annotations

import enum
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import chain, takewhile
from operator import itemgetter
from typing import Any, ClassVar, Literal

from drift.flow.accumulators import Aggregate
from drift.flow.fields import names_of
from drift.flow.sides import Side, appended, cut, reached, side_of
from drift.flow.windows import Window
from drift.operators import JoinsRows, KeyedItems, MapsEach, TakesEach, _ByValue
from drift_graph.canonical import canonical
from drift_graph.later import at
from drift_graph.meta import END, TIME_MIN
from drift_graph.payloads import has_null, have_fields

How = Literal["inner", "left", "right", "full", "semi", "anti"]
HOWS = ("inner", "left", "right", "full", "semi", "anti")

#: A reach past every time.
EVER = 1 << 65

State = tuple[Any, ...]
Result = tuple[State, Sequence[Any]]

#: A key that still has entries when its timer fires is checked again so many spans after all of them are past.
_PATIENCE = 8

_FAR = 1 << 61  # no time in arrays is as far from 0, and no bound as wide

_time = itemgetter(0)
_nothing: State = ((), (), (), (), None)


class NoPair(enum.Enum):
    """In place of the key of an item that has none: of either side another one, so that it meets no item."""

    LEFT = "no right item"
    RIGHT = "no left item"


_NO_PAIR = (NoPair.LEFT, NoPair.RIGHT)


class OfSide(_ByValue, MapsEach, frozen=True):
    """A payload as (side, key, payload); side 0 is the left. Keys with None are those of no other item."""

    gives_users: ClassVar = True  # the key, which is compared later
    of_users: ClassVar = staticmethod(lambda results: [key for _, key, _ in results])
    nulls_equal: ClassVar = False

    side: int
    user_function: Callable[[Any], Any]

    def __call__(self, payload: Any) -> tuple[int, Any, Any]:
        key = self.user_function(payload)
        return self.side, _NO_PAIR[self.side] if has_null(key) and not self.nulls_equal else key, payload

    def gives_rows(self, given: bool) -> bool:
        return given and names_of(self.user_function) is not None

    def each(self, payloads: Sequence[Any]) -> list[tuple[int, Any, Any]]:
        side, key = self.side, self.user_function
        names = names_of(key) if have_fields(payloads) else None
        if names is not None and (self.nulls_equal or not payloads.has_nulls(names)):  # type: ignore[attr-defined]
            from drift.columns.sided import Key, of_side  # here: it needs numpy

            return of_side(side, Key(tuple(names), key), payloads)  # type: ignore[arg-type, return-value]
        return list(map(self, payloads))


class OfSideWithNulls(OfSide, frozen=True):
    """Marks payloads with their side and their key as it is, so that None is equal to None."""

    nulls_equal: ClassVar = True


def key_of(item: tuple[int, Any, Any]) -> Any:
    return item[1]


def payload_of(item: tuple[int, Any, Any]) -> Any:
    return item[2]


class PairJoin(_ByValue, frozen=True):
    """Pairs of the left item at t and the right ones in [t - before, t + after], and unmatched items.

    Args:
        before, after: bounds, or EVER.
        outer: whether unmatched items of the left, and of the right, are given.
        user_function: the key of the left.
    """

    before: int
    after: int
    outer: tuple[bool, bool]
    user_function: Callable[[Any], Any]

    def __call__(self, state: State, item: tuple[int, Any, Any], time: int) -> Result:
        """An item of either side comes."""
        side, _, payload = item
        left, right, open_left, open_right, timer = state or _nothing
        outputs: list[Any]
        found: Iterable[Any]
        if side:
            reach = self.before
            left = cut(left, time - self.after)
            found = chain(*left) if reach >= 0 else _upto(left, time + reach)
            outputs = [(each[1], payload) for each in found]
            if open_left:
                open_left = () if reach >= 0 else cut(open_left, time + reach + 1)
            if reach >= 0:
                right = appended(cut(right, time - reach), (time, payload))
                if self.outer[1] and not outputs:
                    open_right = appended(open_right, (time, payload))
            elif self.outer[1] and not outputs:
                outputs.append((None, payload))
        else:
            reach = self.after
            right = cut(right, time - self.before)
            found = chain(*right) if reach >= 0 else _upto(right, time + reach)
            outputs = [(payload, each[1]) for each in found]
            if open_right:
                open_right = () if reach >= 0 else cut(open_right, time + reach + 1)
            if reach >= 0:
                left = appended(cut(left, time - reach), (time, payload))
                if self.outer[0] and not outputs:
                    open_left = appended(open_left, (time, payload))
            elif self.outer[0] and not outputs:
                outputs.append((payload, None))
        if timer is None or open_left or open_right:
            wanted = _wanted(left, right, open_left, open_right, self.before, self.after)
            if wanted is not None and (timer is None or wanted < timer):
                timer = wanted
                outputs.append(at(wanted, None))
        return (left, right, open_left, open_right, timer), outputs

    def on_time(self, state: State, note: None, time: int) -> Result:
        """All items up to `time` have come: drop the entries that are past, and output the open ones among them."""
        if not state:
            return state, ()
        left, right, open_left, open_right, timer = state
        of_left, of_right = (END, END) if time == END else (time - self.after, time - self.before)
        outputs: list[Any] = [(each[1], None) for each in _upto(open_left, of_left)]
        outputs += [(None, each[1]) for each in _upto(open_right, of_right)]
        left, open_left = cut(left, of_left + 1), cut(open_left, of_left + 1)
        right, open_right = cut(right, of_right + 1), cut(open_right, of_right + 1)
        if timer is not None and timer <= time:
            patience = 0 if any(self.outer) else _PATIENCE  # an item that opens would overtake the timer, and leave it
            timer = _wanted(left, right, open_left, open_right, self.before, self.after, patience)
            if timer is not None:
                outputs.append(at(timer, None))
        if not left and not right and timer is None:
            return (), outputs
        return (left, right, open_left, open_right, timer), outputs


class InnerJoin(PairJoin, TakesEach, JoinsRows, frozen=True):
    """A PairJoin with bounds of 0 or more and without unmatched items: the common case, and simpler."""

    def __call__(self, state: State, item: tuple[int, Any, Any], time: int) -> Result:
        """An item of either side comes."""
        side, _, payload = item
        left, right, _, _, timer = state or _nothing
        outputs: list[Any]
        if side:
            left, found = reached(left, time - self.after)
            outputs = [(each[1], payload) for each in found]
            right = appended(cut(right, time - self.before), (time, payload))
        else:
            right, found = reached(right, time - self.before)
            outputs = [(payload, each[1]) for each in found]
            left = appended(cut(left, time - self.after), (time, payload))
        if timer is None:
            timer = _wanted(left, right, (), (), self.before, self.after)
            if timer is not None:
                outputs.append(at(timer, None))
        return (left, right, (), (), timer), outputs

    def takes(self, state: State) -> bool:
        """A key whose timer is set sets no other; and long sides are not made lists of."""
        return bool(state) and state[4] is not None and len(state[0]) < 2 and len(state[1]) < 2

    def each(self, states: dict[Any, State], rows: KeyedItems, give: Callable[[Sequence[Any]], None]) -> None:
        lists: dict[Any, tuple[list[Any], list[Any]]] = {}
        for key, (side, _, payload), time in rows:
            both = lists.get(key)
            if both is None:
                state = states[key]
                both = lists[key] = list(chain(*state[0])), list(chain(*state[1]))
            left, right = both
            bound = time - self.after
            while left and left[0][0] < bound:
                del left[0]
            bound = time - self.before
            while right and right[0][0] < bound:
                del right[0]
            if side:
                give([(each[1], payload) for each in left])
                right.append((time, payload))
            else:
                give([(payload, each[1]) for each in right])
                left.append((time, payload))
        for key, (left, right) in lists.items():
            states[key] = side_of(left), side_of(right), (), (), states[key][4]

    def in_arrays(self, timers: tuple[bytes, bytes, int]) -> Any:
        from drift.columns.joined import Joined  # here: it needs numpy

        before, after = (None if each >= EVER else each for each in (self.before, self.after))
        return Joined(before, after)

    def fits(self, times: Sequence[int], sides: bytes) -> bool:
        """Whether differences of times have 64 bits."""
        return _are_near(times) and all(each < _FAR or each >= EVER for each in (self.before, self.after))

    def state_of(self, left: Sequence[Any], right: Sequence[Any]) -> tuple[State, int | None]:
        sides = side_of(left), side_of(right)
        timer = _wanted(*sides, (), (), self.before, self.after)
        return (*sides, (), (), timer), timer

    def entries_of(self, state: State) -> tuple[list[Any], list[Any]]:
        left, right = state[:2] if state else ((), ())
        return list(chain(*left)), list(chain(*right))


class ExistsJoin(_ByValue, frozen=True):
    """The left items that have a right one in [t - before, t + after], or those that have none; each once.

    The state holds the left items without a match so far. Of the right, a left item can only find the latest one
    (except with bounds below 0), so only that is stored.
    """

    before: int
    after: int
    anti: bool
    user_function: Callable[[Any], Any]

    def __call__(self, state: State, item: tuple[int, Any, Any], time: int) -> Result:
        """An item of either side comes."""
        side, _, payload = item
        left, right, _, _, timer = state or _nothing
        outputs: list[Any] = []
        if side:
            left = cut(left, time - self.after)
            if left:
                if not self.anti:
                    found: Iterable[Any] = chain(*left) if self.before >= 0 else _upto(left, time + self.before)
                    outputs = [each[1] for each in found]
                left = () if self.before >= 0 else cut(left, time + self.before + 1)
            if self.before >= 0:
                entry = (time, None)
                right = ((entry,),) if self.after >= 0 else appended(cut(right, time - self.before), entry)
        else:
            right = cut(right, time - self.before)
            if right and right[0][0][0] <= time + self.after:
                if not self.anti:
                    outputs.append(payload)
            elif self.after >= 0:
                left = appended(cut(left, time - self.after), (time, payload))
            elif self.anti:
                outputs.append(payload)
        if timer is None or (self.anti and left):
            timer = self._set(left, right, timer, outputs)
        return (left, right, (), (), timer) if left or right or timer is not None else (), outputs

    def on_time(self, state: State, note: None, time: int) -> Result:
        """All items up to `time` have come: items that could only match those have no match."""
        if not state:
            return state, ()
        left, right, _, _, timer = state
        of_left, of_right = (END, END) if time == END else (time - self.after, time - self.before)
        outputs: list[Any] = [each[1] for each in _upto(left, of_left)] if self.anti else []
        left, right = cut(left, of_left + 1), cut(right, of_right + 1)
        if timer is not None and timer <= time:
            timer = self._set(left, right, None, outputs, _PATIENCE)
        return (left, right, (), (), timer) if left or right or timer is not None else (), outputs

    def _set(self, left: Side, right: Side, timer: int | None, outputs: list[Any], patience: int = 0) -> int | None:
        """Add a timer to the outputs, if one is needed before the one that is set; returns the time of the next one."""
        wanted = _wanted(left, right, left if self.anti else (), (), self.before, self.after, patience)
        if wanted is None or (timer is not None and timer <= wanted):
            return timer
        outputs.append(at(wanted, None))
        return wanted


class WindowJoin(_ByValue, Aggregate[Any, Any], frozen=True):
    """The join of one window as an aggregate of the items of both sides: all pairs, in the order of the left items.

    An accumulator is (payloads of the left, payloads of the right).
    """

    how: How

    def begin(self, payload: Any) -> Any:
        return self.add(((), ()), payload)

    def add(self, accumulator: Any, payload: Any) -> Any:
        left, right = accumulator
        side, _, payload = payload
        return (left, appended(right, payload)) if side else (appended(left, payload), right)

    def merge(self, left: Any, right: Any) -> Any:
        return left[0] + right[0], left[1] + right[1]

    def result(self, accumulator: Any) -> tuple[Any, ...]:
        left, right = accumulator
        if self.how in ("semi", "anti"):
            return tuple(chain(*left)) if bool(right) is (self.how == "semi") else ()
        if left and right:
            return tuple((one, two) for one in chain(*left) for two in chain(*right))
        if left:
            return tuple((one, None) for one in chain(*left)) if self.how in ("left", "full") else ()
        return tuple((None, two) for two in chain(*right)) if self.how in ("right", "full") else ()


def value_of(window: Window[Any, Any]) -> Any:
    return window.value


class AsOfJoin(_ByValue, JoinsRows, frozen=True):
    """Each left item at t with the last right one at or before t, and at t - within or after.

    A left item waits for all items of its time. A state is () or (the last right entry, left entries that wait, time of
    the timer that forgets the right one).
    """

    within: int
    outer: bool
    user_function: Callable[[Any], Any]

    @property
    def in_order(self) -> str:  # type: ignore[override]
        """None with a bound: the timer that forgets a row may be the one that lets others wait no longer."""
        return "joins as of a time" if self.within >= EVER else ""

    def __call__(self, state: State, item: tuple[int, Any, Any], time: int) -> Result:
        """An item of either side comes."""
        side, _, payload = item
        last, waiting, timer = state or (None, (), None)
        if not side:
            asked = () if waiting else (at(time, None),)
            return (last, appended(waiting, (time, payload)), timer), asked
        forgotten = time + self.within
        if timer is None and forgotten < END:
            return ((time, payload), waiting, forgotten), (at(forgotten, None),)
        return ((time, payload), waiting, timer), ()

    def on_time(self, state: State, note: None, time: int) -> Result:
        """All items up to `time` have come."""
        if not state:
            return state, ()
        last, waiting, timer = state
        outputs: list[Any] = []
        for came, payload in chain(*waiting):
            if last is not None and came - last[0] <= self.within:
                outputs.append((payload, last[1]))
            elif self.outer:
                outputs.append((payload, None))
        if last is not None and last[0] + self.within <= time:
            last = None
        if timer is not None and timer <= time:
            timer = None if last is None else last[0] + self.within
            if timer is not None:
                outputs.append(at(timer, None))
        return ((last, (), timer) if last is not None or timer is not None else ()), outputs

    def in_arrays(self, timers: tuple[bytes, bytes, int]) -> Any:
        from drift.columns.as_of import AsOf  # here: it needs numpy

        return AsOf(outer=self.outer, timers=timers)

    def fits(self, times: Sequence[int], sides: bytes) -> bool:
        """Whether differences of times have 64 bits."""
        return _are_near(times)

    def state_of(self, left: Sequence[Any], right: Sequence[Any]) -> tuple[State, None]:
        return (right[-1] if right else None, side_of(left), None), None

    def entries_of(self, state: State) -> tuple[list[Any], list[Any]]:
        last, waiting, _ = state or (None, (), None)
        return list(chain(*waiting)), [last] if last is not None else []


Direction = Literal["backward", "forward", "nearest"]
DIRECTIONS = ("backward", "forward", "nearest")


class NearestJoin(_ByValue, frozen=True):
    """Each left item with one right item near its time: the last before it, the first after it, or the nearer of both.

    Of right items of one time the last is before a left one, and the first after it; of two equally near ones that
    before it is taken. A left item waits until no right item to come can be nearer. A state is () or (right entries,
    left entries that wait, time of the next timer).

    Args:
        exact: whether a right item of the same time is found.
    """

    direction: Direction
    exact: bool
    within: int
    outer: bool
    user_function: Callable[[Any], Any]
    gives_right: ClassVar = False  # whether right items that are not found are given

    def __call__(self, state: State, item: tuple[int, Any, Any], time: int) -> Result:
        """An item of either side comes."""
        side, _, payload = item
        right, waiting, timer = state or ((), (), None)
        at_last: Sequence[Any] = ()
        if side and self.gives_right:
            if not right and self.direction != "forward" and time + self.within > END:
                at_last = (at(END, None),)  # from here on `right` is never empty
            right = appended(right, (time, payload, False))
        elif side:
            right = appended(right, (time, payload))
        else:
            waiting = appended(waiting, (time, payload))
        if timer is not None and timer <= time:
            return (right, waiting, timer), at_last
        return (right, waiting, time), (at(time, None), *at_last)

    def on_time(self, state: State, note: None, time: int) -> Result:
        """All items up to `time` have come."""
        if not state:
            return state, ()
        right, waiting, timer = state
        entries = list(chain(*right))
        outputs: list[Any] = []
        open_until = END + 1  # the least time at which one that waits knows what it finds
        waits: list[Any] = []
        hits: set[int] = set()
        for entry in chain(*waiting):
            found, until = self._found(entries, entry[0], time)
            if until > time and time < END:
                waits.append(entry)
                open_until = min(open_until, until)
            elif found is not None:
                hits.add(found)
                outputs.append((entry[1], entries[found][1]))
            elif self.outer:
                outputs.append((entry[1], None))
        first = bisect_left(entries, waits[0][0] if waits else time + 1, key=_time) - 1
        gone = len(entries) if self.direction == "forward" else max(first, 0)
        if entries and not waits and (entries[-1][0] + self.within <= time or (self.gives_right and time == END)):
            gone = len(entries)
        if self.gives_right:
            entries = [(*entry[:2], entry[2] or place in hits) for place, entry in enumerate(entries)]
            outputs += [(None, payload) for _, payload, is_found in entries[:gone] if not is_found]
        entries = entries[gone:]
        if entries:
            open_until = min(open_until, max(entries[-1][0] + self.within, time + 1))
        if waits and open_until > END and (self.outer or self.direction == "nearest"):
            open_until = END
        if timer is not None and timer <= time:
            timer = None
        if open_until <= END and time < END and (timer is None or open_until < timer):
            timer = open_until
            outputs.append(at(timer, None))
        return ((side_of(entries), side_of(waits), timer) if entries or waits or timer is not None else ()), outputs

    def _found(self, entries: Sequence[Any], came: int, now: int) -> tuple[int | None, int]:
        """The place of the right entry of a left one, and the time from which on that is certain."""
        before = after = None
        if self.direction != "forward":
            place = bisect_left(entries, came + self.exact, key=_time) - 1
            before = place if place >= 0 and came - entries[place][0] <= self.within else None
        if self.direction == "backward":
            return before, came
        place = bisect_left(entries, came + (not self.exact), key=_time)
        if place < len(entries) and entries[place][0] - came <= self.within:
            after = place
        if before is None:
            return after, came + self.within if after is None else came
        to_before = came - entries[before][0]
        if after is None:
            return before, min(came + self.within, came + to_before - 1)
        return before if to_before <= entries[after][0] - came else after, came


class NearestOuterJoin(NearestJoin, frozen=True):
    """A `NearestJoin` that also gives each right item that no left one has found, when none can any more; right entries
    have a third value, whether they were found.
    """

    gives_right: ClassVar = True


def _are_near(times: Sequence[int]) -> bool:
    return times[0] > -_FAR and times[-1] < _FAR


class TableOrder(ValueError):
    """An item that is joined with a table came before the end of the table."""


class TableJoin(_ByValue, JoinsRows, frozen=True):
    """Each left item with every row of its key, of a table that comes before all items. A state is the rows, a side.

    `of_loop`: the items are in an iteration and the table is from outside: all of it comes before the rounds.
    """

    outer: bool
    of_loop: bool
    user_function: Callable[[Any], Any]

    def __call__(self, rows: Side, item: tuple[int, Any, Any], time: int) -> Result:
        """An item, or a row of the table, comes."""
        side, key, payload = item
        if not self.of_loop and (time == TIME_MIN) != (side == 1):
            what = f"a row with key {key!r:.200} came at time {time}" if side else "an item came before every time"
            raise TableOrder(
                f"{what}; a table must be complete before the items joined with it begin: its rows are to come from "
                f"graph.table(name), through maps if need be, and nothing else is"
            )
        if side:
            return appended(rows, payload), ()
        if rows:
            return rows, [(payload, row) for row in chain(*rows)]
        return rows, [(payload, None)] if self.outer else ()

    def on_time(self, state: State, note: None, time: int) -> Result:
        """No timer is set."""
        return state, ()

    def in_arrays(self, timers: tuple[bytes, bytes, int]) -> Any:
        from drift.columns.joined import Joined  # here: it needs numpy

        return Joined(None, None, table=True, outer=self.outer)

    def fits(self, times: Sequence[int], sides: bytes) -> bool:
        """Whether all rows of the table, and no others, come before every time."""
        return sides.count(1) == bisect_right(times, TIME_MIN) and 0 not in sides[: sides.count(1)]

    def state_of(self, left: Sequence[Any], right: Sequence[Any]) -> tuple[Side, None]:
        return side_of([row for _, row in right]), None

    def entries_of(self, state: Side) -> tuple[list[Any], list[Any]]:
        return [], [(TIME_MIN, row) for row in chain(*state)]


class Lookup(_ByValue, frozen=True):
    """Each payload with every row of its key, of a table in memory; a map's function.

    Args:
        rows: by the canonical bytes of their key.
    """

    rows: dict[bytes, tuple[Any, ...]]
    outer: bool
    user_function: Callable[[Any], Any]

    def __call__(self, payload: Any) -> list[tuple[Any, Any]]:
        found = self.rows.get(canonical(self.user_function(payload)))
        if found is None:
            return [(payload, None)] if self.outer else []
        return [(payload, row) for row in found]


def rows_of(table: Any, on: str | None, nulls_equal: bool) -> dict[bytes, tuple[Any, ...]]:
    """The rows of a mapping, or of a DataFrame by a column, by the canonical bytes of their key.

    Args:
        nulls_equal: whether those whose key is None are among them.

    Raises:
        TypeError: `table` is no table, or does not fit `on`.
        PayloadError: a key has no canonical form.
    """
    if isinstance(table, Mapping):
        if on is not None:
            raise TypeError(f"on={on!r} names a column of a DataFrame, and a mapping has its keys")
        return {canonical(key): (value,) for key, value in table.items() if nulls_equal or not has_null(key)}
    records: list[dict[str, Any]]
    if hasattr(table, "to_dicts"):  # polars
        records = table.to_dicts()
    elif hasattr(table, "to_dict") and hasattr(table, "columns"):  # pandas
        records = table.to_dict("records")
    else:
        raise TypeError(
            f"a table is a mapping from keys to rows, a DataFrame of pandas or Polars, or a stream of "
            f"graph.table(name), not {type(table).__name__}"
        )
    if on is None or on not in list(table.columns):
        raise TypeError(f"on={on!r} is no column of the DataFrame, which has {list(table.columns)!r:.500}")
    rows: dict[bytes, list[Any]] = {}
    for row in records:
        if nulls_equal or not has_null(row[on]):
            rows.setdefault(canonical(row[on]), []).append(row)
    return {key: tuple(found) for key, found in rows.items()}


def before_every_time(row: Any) -> int:
    """The time of the rows of a table."""
    return TIME_MIN


def _upto(side: Side, time: int) -> Sequence[Any]:
    """The entries of a side at or below a time."""
    return list(takewhile(lambda entry: bool(entry[0] <= time), chain(*side))) if side else ()


def _wanted(
    left: Side, right: Side, open_left: Side, open_right: Side, before: int, after: int, patience: int = 0
) -> int | None:
    """When to check a key again: when an open item is certain to have no match, else when all its entries are past.

    If a key gets items, these cut its past entries, so the check may be `patience` spans later.
    """
    deadlines: list[int] = []
    if open_left:
        deadlines.append(open_left[0][0][0] + after)
    if open_right:
        deadlines.append(open_right[0][0][0] + before)
    if deadlines:
        return min(END, *deadlines)
    past: list[int] = []
    if left:
        past.append(left[-1][-1][0] + after)
    if right:
        past.append(right[-1][-1][0] + before)
    last = max(past, default=EVER)
    return min(END - 1, last + patience * (before + after)) if last < END else None
