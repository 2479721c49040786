"""Sessions of rows in columns: windows that each row of a key prolongs.

Invariant: the windows, their metas and the states are those of `drift.machines.sessions.Prolonging`; or nothing has
changed, and the answer is None.

Why: rows come in order, and nothing comes below them. So the rows of a key, put behind its open session, are cut where
two of them are further apart than the gap. The timer of a session fires at its end as it was when the timer was set; it
ends the session, or sets itself again at what the end is by then. Each time is one hash, made for all sessions at once
whose timers fire: first for all that fire a first time in the batch, then for those of them that fire again, and so on.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np

from drift.columns.aggregates import Array, InColumns, _Keyed, _NotHere, codes_of
from drift.columns.groups import UNUSED_MIN, Groups, KeyNumbers, Keys, arrays_of, listed, results_of
from drift.columns.merging import _NONE, _TIME_MAX
from drift.columns.rows import Frame
from drift.columns.windows import windows_between
from drift.operators import Timer
from drift_graph.later import HOPS_MAX
from drift_graph.meta import TIME_MIN, hops_of, time_of
from drift_graph.metas import Metas
from drift_graph.payloads import Rows


class _Open(NamedTuple):
    """Sessions, each with its timer.

    Attributes:
        firsts, lasts: times of the first row and the last one; without a row, `lasts` is `_NONE`.
        dues, hops: the time of the timer, and how often it was set.
        timers: the metas of the timers, as objects.
        arrays: of each aggregate the accumulators, in one array or two.
    """

    firsts: Array
    lasts: Array
    dues: Array
    hops: Array
    timers: Array
    arrays: list[list[Array]]

    def at(self, places: Any) -> _Open:
        """The sessions at these places."""
        arrays = [[each[places] for each in every] for every in self.arrays]
        first, last, dues, hops, timers = (each[places] for each in self[:5])
        return _Open(first, last, dues, hops, timers, arrays)

    def followed_by(self, others: _Open) -> _Open:
        """A batch of these sessions and then others."""
        first, last, dues, hops, timers = (np.concatenate(each) for each in zip(self[:5], others[:5]))
        arrays = [list(map(np.concatenate, zip(*every))) for every in zip(self.arrays, others.arrays)]
        return _Open(first, last, dues, hops, timers, arrays)

    def set(self, places: Array, others: _Open) -> None:
        """Put others in these places."""
        for each, other in zip(self[:5], others[:5]):
            each[places] = other
        for every, others_of in zip(self.arrays, others.arrays):
            for each, other in zip(every, others_of):
                each[places] = other


class Batch(NamedTuple):
    """Rows with their times and the numbers of their keys, and the keys."""

    metas: Metas
    rows: Frame
    times: Array
    codes: Array
    keys: Sequence[Any]


class Sessions:
    """The open sessions of all keys, and their timers.

    Args:
        key: names of the fields; of one the key is its value, of several a tuple, of none None.
        values: names of what a window has, None for one value; and the aggregates.
        gap: see `drift.operators.ProlongsWindows`.
        timers: see `drift.operators.MergesSlices.merging`.
        result: makes a window of its key, start, end and value.
    """

    def __init__(
        self,
        key: Sequence[str],
        values: tuple[tuple[str, ...] | None, Sequence[InColumns]],
        gap: int,
        timers: tuple[bytes, bytes, int],
        result: Callable[..., Any],
    ) -> None:
        self._key, (self._names, self._aggregates), self._gap, self._result = key, values, gap, result
        self._suffix, self._ending, self._phase = timers
        self._numbers = KeyNumbers()
        self._keys: list[Any] = []
        self._open = self._none(0, [])
        self._least: tuple[bytes | None] | None = None  # what `least` says, until something changes

    def _none(self, count: int, dtypes: Sequence[Sequence[Any]]) -> _Open:
        numbers = [np.full(count, each, np.int64) for each in (0, _NONE, 0, 0)]
        arrays = [[np.zeros(count, each) for each in every] for every in dtypes]
        first, last, dues, hops = numbers
        return _Open(first, last, dues, hops, np.full(count, b"", object), arrays)

    def __len__(self) -> int:
        return int(np.count_nonzero(self._open.lasts != _NONE))

    def batch(self, metas: Metas, rows: Rows) -> Batch | None:
        """Rows as `add` takes them; None where they are to be added one by one."""
        if metas.some_later() or not isinstance(rows, Frame):
            return None
        times = np.asarray(metas.times())
        if int(times[0]) < -_TIME_MAX or int(times[-1]) > _TIME_MAX - self._gap or self._gap > _TIME_MAX:
            return None
        try:
            codes, keys = codes_of(rows, self._key)
        except _NotHere:
            return None
        return Batch(metas, rows, times, codes, keys)

    def add(self, batch: Batch) -> tuple[Metas, Any] | None:
        """Add rows below which nothing will come; the metas of the timers of sessions that have ended, and these."""
        metas, rows, times, codes, keys = batch
        self._least = None
        slots = self._slots_of(keys)
        keyed = _Keyed(codes, len(keys))
        order = keyed.order
        of_key, sorted_times = codes[order], times[order]
        is_first = np.r_[True, of_key[1:] != of_key[:-1]]  # of its key
        before = np.r_[0, sorted_times[:-1]]
        before[is_first] = self._open.lasts[slots[of_key[is_first]]]
        is_new = (before == _NONE) | (sorted_times - before >= self._gap)
        begins = np.flatnonzero(is_first | is_new)
        session = np.cumsum(is_first | is_new) - 1
        numbers = np.empty(len(session), np.int64)
        numbers[order] = session
        groups = Groups(rows, range(len(begins)), None, numbers, order[begins], [(0, len(begins))])
        goes_on = np.flatnonzero(~is_new[begins])
        old_slots = slots[of_key[begins[goes_on]]]
        known = self._open.at(old_slots)
        try:
            arrays = [
                list(groups.folded(of, goes_on, known.arrays[at] if len(goes_on) else ()))
                for at, of in enumerate(self._aggregates)
            ]
            if not self._has_types(arrays):
                return None
            made = self._none(len(begins), [])._replace(arrays=arrays)
            new = np.flatnonzero(is_new[begins])
            self._begin(made, new, metas.take(order[begins[new]]))
            for each, other in zip((*made[:1], *made[2:5]), (*known[:1], *known[2:5])):
                each[goes_on] = other
            ends = np.r_[begins[1:], len(session)]
            made.lasts[:] = sorted_times[ends - 1]
            self._prolong(made, sorted_times, before, session, ends)
            has_ended = np.r_[of_key[begins[1:]] == of_key[begins[:-1]], False]
            over = slots[of_key[is_first & is_new & (before != _NONE)]]  # the first rows of their keys come behind them
            ended = self._open.at(over).followed_by(made.at(np.flatnonzero(has_ended)))
            self._move(ended, np.flatnonzero(ended.dues < self._untils(ended)), self._untils(ended))
            results = results_of(self._aggregates, ended.arrays)
        except _NotHere:
            return None
        left = np.flatnonzero(~has_ended)
        self._open.set(slots[of_key[begins[left]]], made.at(left))
        numbers = np.r_[over, slots[of_key[begins[has_ended]]]]
        return self._ended(ended, numbers, results)[:2]

    def _has_types(self, arrays: list[list[Array]]) -> bool:
        """Whether accumulators are of the types of those that are here, whose arrays are made with the first ones."""
        open_arrays = self._open.arrays
        if not open_arrays or not len(self):
            self._open = self._open._replace(
                arrays=[[np.zeros(len(self._open.lasts), each.dtype) for each in every] for every in arrays]
            )
            return True
        return all(
            one.dtype == other.dtype for every, others in zip(arrays, open_arrays) for one, other in zip(every, others)
        )

    def _slots_of(self, keys: Sequence[Any]) -> Array:
        """The places of keys among the open sessions."""
        if len(self._numbers) > UNUSED_MIN + 4 * len(self):
            self._number_again()
        slots = np.fromiter(map(self._numbers.__getitem__, keys), np.int64, len(keys))
        missing = len(self._numbers) - len(self._open.lasts)
        if len(self._numbers) > len(self._keys):
            self._keys = list(self._numbers)
        if missing > 0:
            dtypes = [[each.dtype for each in every] for every in self._open.arrays]
            grown = self._none(len(self._numbers) + len(self._numbers) // 2, dtypes)
            grown.set(np.arange(len(self._open.lasts)), self._open)
            self._open = grown
        return slots

    def _number_again(self) -> None:
        """Forget the keys without a session."""
        found = np.flatnonzero(self._open.lasts != _NONE)
        self._open, self._keys = self._open.at(found), [self._keys[at] for at in found.tolist()]
        self._numbers = KeyNumbers(zip(self._keys, range(len(found))))

    def _untils(self, sessions: _Open) -> Array:
        """The last times of sessions, if no row comes any more."""
        untils: Array = sessions.lasts + (self._gap - 1)
        return untils

    # Timers.

    def _begin(self, made: _Open, new: Array, firsts: Metas) -> None:
        """Set the timers of new sessions, which begin with rows of these metas."""
        times = np.asarray(firsts.times())
        made.firsts[new], made.dues[new], made.hops[new] = times, times + (self._gap - 1), 1
        made.timers[new] = self._later(firsts, made.dues[new])

    def _later(self, parents: Metas, dues: Array) -> Array:
        """The metas of timers that are set by what has these metas."""
        timers = np.empty(len(parents), object)
        timers[:] = list(parents.with_suffix(self._suffix).later(self._ending, dues, self._phase))
        return timers

    def _prolong(self, made: _Open, times: Array, before: Array, session: Array, ends: Array) -> None:
        """Set timers again where a row comes behind them.

        Args:
            times, session: of the rows, in the order of sessions.
            before: for each row the time of the one before it, in its session.
            ends: of each session, the place behind its last row.
        """
        least, span = int(times.min()), int(times.max()) - int(times.min()) + 2
        if span * len(ends) > _TIME_MAX:
            raise _NotHere
        places = session * span + (times - least)
        active = np.arange(len(ends))
        while len(active):
            due = np.clip(made.dues[active] - least, -1, span - 2)
            behind = np.searchsorted(places, active * span + due, side="right")
            is_behind = behind < ends[active]
            active, behind = active[is_behind], behind[is_behind]
            untils = np.zeros(len(ends), np.int64)
            untils[active] = before[behind] + (self._gap - 1)
            self._move(made, active, untils)

    def _move(self, made: _Open, at: Array, untils: Array) -> None:
        """Set the timers at these places again, for a later time each; see `later_meta`."""
        if not len(at):
            return
        if int(made.hops[at].max()) >= HOPS_MAX:
            raise _NotHere
        made.timers[at] = self._later(Metas(made.timers[at]), untils[at])
        made.dues[at] = untils[at]
        made.hops[at] += 1

    @property
    def least(self) -> bytes | None:
        """The meta of the first timer."""
        if self._least is None:
            found = np.flatnonzero(self._open.lasts != _NONE)
            dues = self._open.dues[found]
            self._least = (min(self._open.timers[found[dues == dues.min()]]) if len(found) else None,)
        return self._least[0]

    def fire(self, bound: bytes) -> tuple[Metas, Sequence[Any], Any, list[tuple[bytes, Any]]]:
        """Fire the timers below the time of a bound, those of its own time are left: metas, keys and windows of those
        that have ended their sessions, and metas and keys of those that were set again.
        """
        time = int.from_bytes(bound[:8], "big") + TIME_MIN
        sessions, self._least = self._open, None
        due = np.flatnonzero((sessions.lasts != _NONE) & (sessions.dues < time))
        nothing: tuple[Metas, Sequence[Any], Any, list[tuple[bytes, Any]]] = Metas(), [], [], []
        if not len(due):
            return nothing
        ready = sessions.at(due)
        untils = self._untils(ready)
        goes_on = np.flatnonzero(ready.dues < untils)
        is_over = untils < time
        try:
            results = results_of(self._aggregates, ready.at(is_over).arrays)
            moved = ready.timers[goes_on].tolist()
            moved_keys = [self._keys[at] for at in due[goes_on].tolist()]
            self._move(ready, goes_on, untils)
        except _NotHere:
            return nothing
        sessions.set(due, ready)
        sessions.lasts[due[is_over]] = _NONE
        over = np.flatnonzero(is_over)
        timers, windows, keys = self._ended(ready.at(over), due[over], results)
        return timers, keys, windows, list(zip(moved, moved_keys))

    def _ended(self, ended: _Open, numbers: Array, results: list[Array]) -> tuple[Metas, Any, Sequence[Any]]:
        """The metas of the last timers of sessions, in order, with their windows and keys.

        Args:
            numbers: of their keys.
        """
        if not len(numbers):
            return Metas(), [], []
        places, timers = Metas(ended.timers).sorted()
        order = np.asarray(places)
        ended, keys = ended.at(order), Keys(self._keys, numbers[order])
        results = [each[order] for each in results]
        starts, ends = ended.firsts, ended.lasts + self._gap
        rows: Any = windows_between(self._result, keys, len(self._key), starts, ends, results, self._names)
        if rows is None:
            lists = [each.tolist() for each in results]
            values = lists[0] if self._names is None else [dict(zip(self._names, each)) for each in zip(*lists)]
            rows = list(map(self._result, keys, starts.tolist(), ends.tolist(), values))
        return timers, rows, keys

    # As states.

    def entries(self) -> Iterator[tuple[Any, Any]]:
        """The states of the keys with their timers, as the process would have them."""
        found = np.flatnonzero(self._open.lasts != _NONE)
        if not len(found):
            return
        sessions = self._open.at(found)
        lists = [listed(kind, arrays) for (kind, _), arrays in zip(self._aggregates, sessions.arrays)]
        accumulators = lists[0] if self._names is None else list(zip(*lists))
        timers = sessions.timers.tolist()
        bounds = zip(sessions.firsts.tolist(), sessions.lasts.tolist())
        for at, (first, last), accumulator, timer in zip(found.tolist(), bounds, accumulators, timers):
            key = self._keys[at]
            yield key, ((first, last, accumulator), [(timer, Timer(key, key))])

    def absorb(self, entries: Sequence[tuple[Any, Any]]) -> bool:
        """Take states and timers as of `entries`, while there are none here; False where that is not possible."""
        every = [(key, state, timers[0][0]) for key, (state, timers) in entries if len(timers) == 1]
        parts = [key for key, _, _ in every] if len(self._key) < 2 else [part for key, _, _ in every for part in key]
        if len(every) < len(entries) or not set(map(type, parts)) <= {str, int, type(None)}:
            return False
        if any(state[1] > _TIME_MAX for _, state, _ in every):
            return False
        accumulators = [state[2] for _, state, _ in every]
        lists = [accumulators] if self._names is None else list(zip(*accumulators))
        try:
            arrays = [list(arrays_of(kind, each)) for (kind, _), each in zip(self._aggregates, lists)]
        except _NotHere:
            return False
        for (kind, _), (values, *_) in zip(self._aggregates, arrays):
            if kind in ("min", "max") and (np.isnan(values).any() or np.signbit(values[values == 0]).any()):
                return False
        self._keys = [key for key, _, _ in every]
        self._numbers = KeyNumbers(zip(self._keys, range(len(every))))
        made = self._none(len(every), [])._replace(arrays=arrays)
        for at, (_, (first, last, _), timer) in enumerate(every):
            made.firsts[at], made.lasts[at], made.dues[at], made.hops[at] = first, last, time_of(timer), hops_of(timer)
            made.timers[at] = timer
        self._open, self._least = made, None
        return True

    def take(self) -> list[tuple[Any, Any]]:
        """Take out all; see `entries`."""
        entries = list(self.entries())
        self._open.lasts[:], self._least = _NONE, None
        return entries
