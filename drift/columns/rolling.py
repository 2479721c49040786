"""The rows that are rolled over, in arrays: those that wait for all of their time, and those of the spans before them.

Invariant: rows, their metas and the states of keys are those of a `drift.flow.running.RollingStep` whose spans do not
end behind their rows, and of its timers.

Why: rows are stored by key in the order of their times, so what a row is an aggregate of is a stretch of each run of
them, found by bisection, and its values are added one by one in order. An aggregate whose values are no numbers of 64
bits, or whose sums are none, has objects in that batch, as the others beside it have arrays. All rows of a key and a
time have the same values, and come from the first timer of that moment: that of the first of them, or the one that
forgets rows.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from heapq import heapify, heappop, heappush
from itertools import chain
from typing import Any, Self

import numpy as np
import polars as pl

from drift.columns.aggregates import Array, in_a_column, means, numbers_in, with_columns
from drift.columns.as_of import AsOf, Fired
from drift.columns.joined import Run, Stored, _bisected
from drift.columns.rows import Frame
from drift_graph.meta import END, TIME_MIN, time_of
from drift_graph.metas import Metas
from drift_kernel import kernel

_NOTHING = TIME_MIN, END, b""

#: The last time of a key, the time of the timer that forgets its rows, and the meta of this timer.
_Forget = tuple[int, int, bytes]


class _Since(dict[int, "_Forget | None"]):
    """What changed first had before, None for nothing, and the changes since the next version; see `Versions`."""

    next: _Since | None = None


class Versions(dict[int, _Forget]):
    """A dict of which one may keep what it is now, at the price of what changes. It changes by `put` alone."""

    _since: _Since | None = None

    def put(self, code: int, value: _Forget | None) -> None:
        if self._since is not None and code not in self._since:
            self._since[code] = self.get(code)
        if value is None:
            del self[code]
        else:
            self[code] = value

    def kept(self) -> Callable[[], dict[int, _Forget]]:
        """Gives, whenever it is called, the dict that this is now."""
        since = _Since()
        if self._since is not None:
            self._since.next = since
        self._since = since
        return partial(self._before, since)

    def _before(self, since: _Since) -> dict[int, _Forget]:
        found, had = dict(self), dict[int, "_Forget | None"]()
        each: _Since | None = since
        while each is not None:
            had = {**each, **had}
            each = each.next
        for code, value in had.items():
            if value is None:
                found.pop(code, None)
            else:
                found[code] = value
        return found


class Rolled(AsOf):
    """The rows of one stage.

    Args:
        step: whose rows these are.
        timers: what the metas of the process' timers are made of, as `AsOf` has it.
    """

    def __init__(self, step: Any, timers: tuple[bytes, bytes, int]) -> None:
        super().__init__(outer=False, timers=timers)
        self._step = step
        self._forgets: Callable[[], dict[int, _Forget]] = dict  # of a copy
        self.sides = Stored(None), Stored(step.reach + 2)  # by then all are forgotten
        self.now = TIME_MIN  # the last time whose rows have come from here
        self._forget = Versions()  # of each key its last time, and the timer that forgets
        self._due: list[tuple[int, int]] = []  # a heap of these timers, and of earlier ones of their keys
        self.fired: list[tuple[bytes, Any]] = []  # timers that have forgotten since this was asked for, and their keys

    def add(self, metas: Metas, sides_of: Array, times_of: Sequence[int], sides: Sequence[tuple[Frame, Array]]) -> None:
        now = self.now
        super().add(metas, sides_of, times_of, sides)
        self.now = now

    def fire(self, last: int, output: bytes, child: Any) -> Any:
        waiting = self.waiting
        own = None if waiting is None else waiting.slice(0, int(np.searchsorted(waiting.times, last, "right")))
        if waiting is None or own is None:
            self._forget_until(last)
            return None
        timers, firsts, groups = self._timers(own)
        codes, times = own.codes[firsts], own.times[firsts]
        run = Run.of(own.codes, own.times, np.zeros(len(own.codes), np.int64), own.rows)
        columns = self._values(codes, times, [*self.sides[1].runs, run])  # raises before anything changes
        self.waiting = waiting.slice(len(own.codes), len(waiting.codes))
        if self._known and (self.waiting is None or self.waiting.metas[0]):
            self._known = {}
        places, timers = self._first_of(codes, times, timers).sorted()
        self._forget_until(last)
        self.now = last
        self._count(run.codes)
        self.sides[1].drop(last)
        self.sides[1].add(run, last)
        order = np.asarray(places)
        ranks = np.empty(len(order), np.int64)
        ranks[order] = np.arange(len(order))
        rows = np.argsort(ranks[groups], kind="stable")
        counts = np.bincount(ranks[groups], minlength=len(timers)).tolist()
        endings = [output + child(index) for index in range(max(counts))]
        made = with_columns(Frame(own.rows[rows]), [(name, _at(groups[rows], each)) for name, each in columns])
        by_number = list(self._numbers)
        keys = [by_number[number] for number in codes[order].tolist()]
        return Fired(timers, keys, timers.children(counts, endings), made)

    # Values.

    def _values(self, codes: Array, times: Array, runs: Sequence[Run]) -> list[tuple[str, pl.Series | Sequence[Any]]]:
        """The aggregates for keys and times by name: a column for each, or a list of values that are in none."""
        step = self._step
        begins, ends = times + (step.behind - step.span + (not step.has_start)), times + (step.behind + step.has_end)
        stretches = []
        for run in runs:
            first, last = run.stretches(codes, begins, None)
            stretches.append((first, _bisected(run.times, first, last, ends)))
        counts: Array = sum(last - first for first, last in stretches)  # type: ignore[assignment]
        added: dict[Any, tuple[Array, Array] | None] = {}
        columns: list[tuple[str, pl.Series | Sequence[Any]]] = []
        for name, aggregate in zip(step.running.names, step.running.aggregates):
            kind, field = aggregate.in_columns
            if kind == "count":
                columns.append((name, pl.Series(counts)))
                continue
            of = field, "sum" if kind == "mean" else kind, aggregate.needs_values
            if of not in added:
                added[of] = _added(*of, runs, stretches)
            found = added[of]
            if found is None:
                columns.append((name, _one_by_one(aggregate, runs, stretches)))
                continue
            made, known = found
            if kind == "mean":
                made = means(made, np.maximum(known, 1))
            columns.append((name, pl.Series(made).set(pl.Series(known == 0), None)))
        return columns

    # Timers.

    def _first_of(self, codes: Array, times: Array, timers: Metas) -> Metas:
        """The first timer of each key and time, of which these are those of its rows; the rows of a time are forgotten
        from here on.
        """
        others: dict[int, bytes] = {}
        if self._step.wanted_from(0) > 0:
            return timers  # a row is not in the spans of later ones
        for at, (code, time) in enumerate(zip(codes.tolist(), times.tolist())):
            last, waits_for, meta = self._forget.get(code, _NOTHING)
            due = waits_for
            while due < time:
                due, meta = self._next(last, due, meta)
            if due > time and meta:
                self._forget.put(code, (time, due, meta))
                if due != waits_for:
                    heappush(self._due, (due, code))
                continue
            if meta and meta < timers[at]:
                others[at] = meta
            else:
                meta = timers[at]
            due = time + self._step.lifetime
            self._forget.put(code, (time, due, self._timer(meta, due)))
            heappush(self._due, (due, code))
        return timers if not others else Metas([others.get(at, meta) for at, meta in enumerate(timers)])

    def _next(self, last: int, due: int, meta: bytes) -> tuple[int, bytes]:
        """The timer that one which forgets sets; the last time and b"" if there is nothing left."""
        if last < self._step.wanted_from(due):
            return END, b""
        return last + self._step.lifetime, self._timer(meta, last + self._step.lifetime)

    def _timer(self, meta: bytes, time: int) -> bytes:
        suffix, ending, phase = self._timers_of
        (made,) = Metas([meta]).with_suffix(suffix).later(ending, time, phase)
        return made

    def _forget_until(self, last: int) -> None:
        """Fire the timers that forget, up to a time."""
        fired = []
        while self._due and self._due[0][0] <= last:
            due, code = heappop(self._due)
            known = self._forget.get(code)
            if known is None or known[1] != due:
                continue  # it has fired, with rows of its time
            fired.append((known[2], code))
            due, meta = self._next(*known)
            if meta:
                self._forget.put(code, (known[0], due, meta))
                heappush(self._due, (due, code))
            else:
                self._forget.put(code, None)
        by_number = list(self._numbers) if fired else []
        self.fired += [(meta, by_number[code]) for meta, code in fired]

    # As objects.

    def absorb_states(self, entries: Mapping[Any, Any], timers: Mapping[Any, Sequence[bytes]]) -> Any:
        """Store states, see `drift.flow.running.RollingStep`; `timers` has the metas of each key's."""
        sides, of_rows, forget = {}, {}, {}
        for key, state in entries.items():
            side, waiting, due = state
            every, metas = list(chain(*side)), sorted(timers.get(key, ()), key=time_of)
            stored, waits = every[: len(every) - waiting], every[len(every) - waiting :]
            sides[key] = waits, stored
            if due is not None:
                at = max(at for at, meta in enumerate(metas) if time_of(meta) == due)
                forget[key] = (stored[-1][0] if stored else TIME_MIN), due, metas.pop(at)
            if len(metas) > 1:
                return "later"  # rows of several times wait
            of_rows.update({key: metas[0]} if metas else {})
        found = self.absorb(sides, of_rows)
        if found == "done":
            self._forget = Versions((self._numbers[key], each) for key, each in forget.items())
            self._wait_for_all()
        return found

    def states(self, keys: Iterable[Any] | None) -> dict[Any, tuple[Any, list[bytes]]]:
        """Of these keys, or of all, the states and the metas of their timers."""
        waits, stored, by_number = self._waits(), self.taken(keys), list(self._numbers)
        wanted = by_number if keys is None else [key for key in keys if key in self._numbers]
        found: dict[Any, tuple[Any, list[bytes]]] = {}
        for key in wanted:
            code = self._numbers[key]
            rows, metas = waits.get(code, ([], []))
            _, due, meta = self._forget.get(code, (0, None, b""))
            before = [each for each in stored.get(key, ((), ()))[1] if each[0] >= self._step.wanted_from(self.now)]
            if before or rows or meta:
                found[key] = self._step.state_of(rows, before, due), [*metas, *([meta] if meta else [])]
        return found

    def _waits(self) -> dict[int, tuple[list[Any], list[bytes]]]:
        """By the number of a key, the entries that wait, and their timers."""
        found: dict[int, tuple[list[Any], list[bytes]]] = {}
        if self.waiting is None:
            return found
        timers, firsts, _ = self._timers(self.waiting)
        for code, *entry in zip(self.waiting.codes.tolist(), self.waiting.times.tolist(), Frame(self.waiting.rows)):
            found.setdefault(code, ([], []))[0].append(tuple(entry))
        for meta, code in zip(timers, self.waiting.codes[firsts].tolist()):
            found[code][1].append(meta)
        return found

    def _number_anew(self, by_number: list[Any]) -> None:
        if self.waiting is not None:
            return
        old = np.flatnonzero(self._counts).tolist()
        super()._number_anew(by_number)
        self._forget = Versions((new, self._forget[code]) for new, code in enumerate(old) if code in self._forget)
        self._wait_for_all()

    def _wait_for_all(self) -> None:
        self._due = [(due, code) for code, (_, due, _) in self._forget.items()]
        heapify(self._due)

    def copied(self) -> Self:
        other = super().copied()
        other._forgets = self._forget.kept()
        return other

    def back(self) -> Self:
        other = super().back()
        other._forget, other.fired = Versions(self._forgets()), []
        other._wait_for_all()
        return other

    def clear(self) -> None:
        super().clear()
        self.sides[1].dropped = []
        self._forget, self._due, self.now = Versions(), [], TIME_MIN


def _at(places: Array, values: pl.Series | Sequence[Any]) -> pl.Series | Sequence[Any]:
    return values.gather(places) if isinstance(values, pl.Series) else [values[at] for at in places.tolist()]


def _added(
    field: str, adds: str, needs_value: bool, runs: Sequence[Run], stretches: Sequence[tuple[Array, Array]]
) -> tuple[Array, Array] | None:
    """The sum, or the least or greatest, of each stretch, over all runs; and of how many values it is.

    None where values, or a sum, are no numbers of 64 bits, or one is missing.
    """
    assert kernel is not None
    known = np.zeros(len(stretches[0][0]), np.int64)
    made: Array | None = None
    for run, (first, last) in zip(runs, stretches):
        found = numbers_in(run.rows.get_column(field))
        if found is None or (needs_value and found[1] is not None):
            return None
        values, mask = found
        made = np.zeros(len(known), values.dtype) if made is None else made
        try:
            kernel.rolled(values, mask, first, last, made, known, adds)
        except OverflowError:
            return None
    assert made is not None
    return made, known


def _one_by_one(
    aggregate: Any, runs: Sequence[Run], stretches: Sequence[tuple[Array, Array]]
) -> pl.Series | Sequence[Any]:
    """The aggregate of each stretch, over all runs, in objects; the values of rows in no stretch are not asked for."""
    parts: list[list[Sequence[Any]]] = []
    for run, (first, last) in zip(runs, stretches):
        begins, ends = (np.bincount(each, minlength=len(run.codes) + 1) for each in (first, last))
        inside = np.cumsum(begins - ends)[:-1] > 0
        values = list(aggregate.values_of(Frame(run.rows.filter(pl.Series(inside)))))
        before = np.append(0, np.cumsum(inside))
        parts.append([values[start:stop] for start, stop in zip(before[first].tolist(), before[last].tolist())])
    return in_a_column([aggregate.result_of(chain.from_iterable(each)) for each in zip(*parts)])
