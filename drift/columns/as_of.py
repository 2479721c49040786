"""The rows of a join as of a time, in arrays: those of the right that may still be found, and the left ones that wait.

Invariant: pairs, their metas and the states of keys are those of a `drift.flow.joins.AsOfJoin` without a bound, and of
its timers.

Why: a left row waits for all rows of its time, and finds the last right one up to then: of its key, the last that is
not above its time, among rows that are stored by key in the order of their times. The timer of the rows of a key and a
time hangs on the first of them alone.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from operator import itemgetter
from typing import Any, NamedTuple

import numpy as np
import polars as pl

from drift.columns.aggregates import Array
from drift.columns.expressions import frame_of
from drift.columns.flat import rows_at
from drift.columns.joined import Entry, Joined, Run, Stored, _bisected
from drift.columns.rows import Frame
from drift.columns.sided import PairRows, pairs_of
from drift_graph.errors import InputError
from drift_graph.metas import Metas


class Latest(Stored):
    """Rows of the right, without those that no row of the left can find any more."""

    def add(self, run: Run, now: int) -> None:
        super().add(self._kept(run, now), now)

    def _kept(self, run: Run, now: int) -> Run:
        """Without rows that a later one of their key hides from all times from now on, too."""
        is_hidden = np.append((run.codes[1:] == run.codes[:-1]) & (run.times[1:] <= now), False)[: len(run.codes)]
        if is_hidden.any():
            self.dropped.append(run.codes[is_hidden])
        return run.chosen(~is_hidden)

    def found(self, codes: Array, times: Array) -> tuple[Array, pl.DataFrame | None]:
        """For rows of the left the place of what they find, -1 for nothing, and all that is found."""
        places, asking = np.full(len(codes), -1), np.arange(len(codes))
        parts: list[pl.DataFrame] = []
        count = 0
        for run in reversed(self.runs):
            first, last = run.stretches(codes[asking], None, None)
            place = _bisected(run.times, first, last, times[asking] + 1) - 1
            is_there = place >= first
            at, place = asking[is_there], place[is_there]
            places[at] = count + np.arange(len(at))
            count += len(at)
            parts.append(run.rows[place])
            asking = asking[~is_there]
        return places, pl.concat(parts) if parts else None


class Waiting(NamedTuple):
    """Rows of the left in the order of their metas."""

    codes: Array
    times: Array
    metas: list[bytes]
    rows: pl.DataFrame

    def slice(self, start: int, end: int) -> Waiting | None:
        if start == end:
            return None
        rows = self.rows.slice(start, end - start)
        return Waiting(self.codes[start:end], self.times[start:end], self.metas[start:end], rows)


class Fired(NamedTuple):
    """What timers give.

    Attributes:
        timers, keys: their metas and keys, in order.
        metas: of the pairs, without what a map adds behind a timer's.
        pairs: or other rows, as dicts where they are in no columns; None if there are none.
    """

    timers: Metas
    keys: list[Any]
    metas: Metas
    pairs: PairRows | Sequence[Any] | None


class AsOf(Joined):
    """See the module.

    Args:
        outer: whether rows of the left that find none are given.
        timers: what metas of timers are made of: suffixes of the grouping and of the timers' map, and their phase.
    """

    def __init__(self, *, outer: bool, timers: tuple[bytes, bytes, int]) -> None:
        super().__init__(None, None, outer=outer)
        self.sides = Stored(None), Latest(None)
        self._timers_of = timers
        self._known: dict[tuple[int, int], bytes] = {}  # timers of rows without metas, by number of the key and time
        self.waiting: Waiting | None = None

    def __bool__(self) -> bool:
        return self.waiting is not None or super().__bool__()

    def __len__(self) -> int:
        return 0 if self.waiting is None else len(self.waiting.codes)

    def add(self, metas: Metas, sides_of: Array, times_of: Sequence[int], sides: Sequence[tuple[Frame, Array]]) -> None:
        """Add rows; see `Joined.pairs`."""
        times = np.asarray(times_of, np.int64)
        left, right = np.flatnonzero(sides_of == 0), np.flatnonzero(sides_of)
        if len(left):
            own = list(metas.take(left.tolist()))
            self.waiting = _both(self.waiting, Waiting(sides[0][1], times[left], own, sides[0][0].frame))
        self.now = int(times[-1])
        least = self.now if self.waiting is None else min(self.now, int(self.waiting.times[0]))
        if len(right):
            self._count(sides[1][1])
            run = Run.of(sides[1][1], times[right], np.zeros(len(right), np.int64), sides[1][0].frame)
            self.sides[1].add(run, least)

    def fire(self, last: int, output: bytes, child: Any) -> Fired | None:
        """What the timers up to a time give; None if there are none.

        Args:
            output, child: behind a timer's meta come `output` and what `child` makes of a pair's index.
        """
        waiting = self.waiting
        count = 0 if waiting is None else int(np.searchsorted(waiting.times, last, "right"))
        if waiting is None or not count:
            return None
        self.waiting, waiting = waiting.slice(count, len(waiting.codes)), waiting.slice(0, count)
        assert waiting is not None
        timers, firsts, groups = self._timers(waiting)
        if self._known and (self.waiting is None or self.waiting.metas[0]):
            self._known = {}
        places_of, timers = timers.sorted()
        order = np.asarray(places_of)
        ranks = np.empty(len(order), np.int64)
        ranks[order] = np.arange(len(order))
        rows = np.argsort(ranks[groups], kind="stable")
        by_number = list(self._numbers)
        keys = [by_number[number] for number in waiting.codes[firsts[order]].tolist()]
        places, right = self.sides[1].found(waiting.codes, waiting.times)  # type: ignore[attr-defined]
        if not self._outer:
            rows = rows[places[rows] >= 0]
        if not len(rows):
            return Fired(timers, keys, Metas(), None)
        counts = np.bincount(ranks[groups[rows]], minlength=len(timers)).tolist()
        endings = [output + child(index) for index in range(max(counts))]
        places = places[rows]
        right = pl.DataFrame() if right is None else rows_at(right, places)
        are_there = places >= 0
        pairs = pairs_of(waiting.rows[rows], right, are_there if self._outer else None)
        return Fired(timers, keys, timers.children(counts, endings), pairs)

    def _timers(self, waiting: Waiting) -> tuple[Metas, Array, Array]:
        """The timers of rows, the first row of each, and for each row which is its timer."""
        suffix, ending, phase = self._timers_of
        order = np.lexsort((waiting.codes, waiting.times))
        codes, times = waiting.codes[order], waiting.times[order]
        begins = np.append(True, (codes[1:] != codes[:-1]) | (times[1:] != times[:-1]))
        groups = np.empty(len(order), np.int64)
        groups[order] = np.cumsum(begins) - 1
        firsts = order[begins]
        parents = [waiting.metas[at] for at in firsts.tolist()]
        if not self._known:
            return Metas(parents).with_suffix(suffix).later(ending, None, phase), firsts, groups
        made: list[bytes] = []
        for parent, code, time in zip(parents, waiting.codes[firsts].tolist(), waiting.times[firsts].tolist()):
            made += Metas([parent + suffix]).later(ending, None, phase) if parent else [self._known[code, time]]
        return Metas(made), firsts, groups

    # As objects.

    def absorb(self, entries: dict[Any, tuple[list[Entry], list[Entry]]], timers: Mapping[Any, bytes]) -> Any:
        rows = [(time, key, row) for key, (left, _) in entries.items() for time, row in left]
        rows.sort(key=itemgetter(0))
        if rows and self._schemas[0] is None:
            return "later"
        try:
            frame = frame_of([row for _, _, row in rows], tuple(self._schemas[0].items())) if rows else None
        except InputError:
            return "never"
        found = super().absorb({key: ([], right) for key, (_, right) in entries.items()}, timers)
        if found != "done" or frame is None:
            return found
        times, keys, _ = zip(*rows)
        codes = [self._numbers[key] for key in keys]
        self._known = {(code, time): timers[key] for code, key, time in zip(codes, keys, times)}
        self.waiting = Waiting(np.array(codes, np.int64), np.array(times, np.int64), [b""] * len(rows), frame)
        return found

    def waits(self, keys: Iterable[Any] | None) -> dict[Any, tuple[list[Any], bytes]]:
        """Of these keys, or of all, the entries that wait, and their timer."""
        if self.waiting is None:
            return {}
        wanted = None if keys is None else set(keys)
        timers, _, groups = self._timers(self.waiting)
        by_number = list(self._numbers)
        found: dict[Any, tuple[list[Any], bytes]] = {}
        each = zip(self.waiting.codes.tolist(), self.waiting.times.tolist(), Frame(self.waiting.rows), groups.tolist())
        for code, time, row, group in each:
            key = by_number[code]
            if wanted is None or key in wanted:
                found.setdefault(key, ([], timers[group]))[0].append((time, row))
        return found

    @property
    def least(self) -> int | None:
        """The least time of a row that waits."""
        return None if self.waiting is None else int(self.waiting.times[0])

    def _number_anew(self, by_number: list[Any]) -> None:
        if self.waiting is None:
            super()._number_anew(by_number)

    def clear(self) -> None:
        super().clear()
        self.waiting, self._known = None, {}


def _both(old: Waiting | None, new: Waiting) -> Waiting:
    if old is None:
        return new
    codes, times = np.concatenate([old.codes, new.codes]), np.concatenate([old.times, new.times])
    return Waiting(codes, times, old.metas + new.metas, pl.concat([old.rows, new.rows]))
