"""The rows of a join by key that can still match, in arrays; the pairs of a batch are found at once.

Invariant: pairs, and the rows that are stored, are those of `drift.flow.joins`, row by row.

Why: a row meets the rows of the other side that came before it and are within its reach. Rows are stored by key, those
of a key in the order of their metas and so of their times: what a row meets is a stretch of them, which is found by
bisection. So it is with the rows of its own batch, of which it meets those at lower places.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from copy import copy
from itertools import pairwise
from typing import Any, Literal, NamedTuple, Self

import numpy as np
import polars as pl

from drift.columns.aggregates import Array, codes_of
from drift.columns.expressions import Fields, frame_of
from drift.columns.groups import UNUSED_MIN, KeyNumbers
from drift.columns.rows import Frame
from drift.columns.sided import PairRows, SideRows, pairs_of
from drift_graph.errors import InputError
from drift_graph.meta import BEGINNING

#: An entry of a side of a key: its time, and the row.
Entry = tuple[int, Any]


class Run(NamedTuple):
    """Rows of one side by the numbers of their keys, those of a key in the order of their metas.

    Attributes:
        places: of each row; anything that increases with the metas.
    """

    codes: Array
    times: Array
    places: Array
    rows: pl.DataFrame

    @classmethod
    def of(cls, codes: Array, times: Array, places: Array, rows: pl.DataFrame) -> Run:
        """Rows that are in the order of their metas."""
        order = np.argsort(codes, kind="stable")
        return cls(codes[order], times[order], places[order], rows[order])

    def chosen(self, wanted: Array) -> Run:
        """The rows for which `wanted` is true."""
        if wanted.all():
            return self
        return Run(self.codes[wanted], self.times[wanted], self.places[wanted], self.rows.filter(pl.Series(wanted)))

    def stretches(self, codes: Array, least: Array | None, below: Array | None) -> tuple[Array, Array]:
        """For each key where the rows begin that are at `least` or after it, and where those end that are below."""
        first = np.searchsorted(self.codes, codes, "left")
        last = np.searchsorted(self.codes, codes, "right")
        if below is not None:
            last = _bisected(self.places, first, last, below)
        if least is not None:
            first = _bisected(self.times, first, last, least)
        return first, last


def _bisected(values: Array, first: Array, last: Array, bounds: Array) -> Array:
    """For each stretch of increasing values where those begin that are at its bound or above."""
    first, last = first.copy(), last.copy()
    while (is_open := first < last).any():
        middle = (first + last) // 2
        is_below = values[np.where(is_open, middle, 0)] < bounds
        first = np.where(is_open & is_below, middle + 1, first)
        last = np.where(is_open & ~is_below, middle, last)
    return first


class Stored:
    """The rows of one side in runs, each with more rows than the next; those of a run came before those of the next.

    Args:
        reach: rows are dropped once they are further back than this; None for never.
    """

    def __init__(self, reach: int | None) -> None:
        self.reach = reach
        self.runs: list[Run] = []
        self.dropped: list[Array] = []  # the keys of rows that were dropped, by their numbers

    def copied(self) -> Self:
        """With runs of its own, none of which ever changes."""
        other = copy(self)
        other.runs, other.dropped = self.runs.copy(), self.dropped.copy()
        return other

    def add(self, run: Run, now: int) -> None:
        """Add rows that came after all others.

        Args:
            now: no row below this time will come.
        """
        while self.runs and len(self.runs[-1].codes) <= len(run.codes):
            run = _joined(self._kept(self.runs.pop(), now), run)
        self.runs.append(run)

    def drop(self, now: int) -> None:
        """Drop runs that are out of reach."""
        if self.reach is not None:
            bound, runs = now - self.reach, self.runs
            self.runs = [run for run in runs if int(run.times.max(initial=bound - 1)) >= bound]
            if len(self.runs) < len(runs):
                self.dropped += [run.codes for run in runs if int(run.times.max(initial=bound - 1)) < bound]

    def _kept(self, run: Run, now: int) -> Run:
        if self.reach is None:
            return run
        wanted = run.times >= now - self.reach
        if not wanted.all():
            self.dropped.append(run.codes[~wanted])
        return run.chosen(wanted)

    def all(self, now: int) -> Run | None:
        """All rows within reach, in one run; None if there are none."""
        if not self.runs:
            return None
        run = self.runs[0]
        for other in self.runs[1:]:
            run = _joined(run, other)
        return run if self.reach is None else run.chosen(run.times >= now - self.reach)


def _joined(older: Run, newer: Run) -> Run:
    codes, times = np.concatenate([older.codes, newer.codes]), np.concatenate([older.times, newer.times])
    places = np.concatenate([older.places, newer.places])
    return Run.of(codes, times, places, pl.concat([older.rows, newer.rows]))


class Found(NamedTuple):
    """Pairs of rows of a batch with others.

    Attributes:
        asked: of each the place of the row in the batch.
        own, others: the rows of the batch, and those they meet.
    """

    asked: Array
    own: pl.DataFrame
    others: pl.DataFrame


class Joined:
    """The rows of both sides that are stored.

    Args:
        before, after: bounds of an interval join; None if all pairs are wanted.
        table: whether the rows of the right are a table: those of the left find them, and are not stored.
        outer: whether rows of the left without a pair are given, which none may come for later.

    Attributes:
        last: the last meta of the rows so far.
    """

    def __init__(self, before: int | None, after: int | None, *, table: bool = False, outer: bool = False) -> None:
        self._numbers = KeyNumbers()
        self.sides = Stored(after), Stored(before)
        self._schemas: list[Any] = [None, None]
        self._table, self._outer = table, outer
        self._counts = np.zeros(0, np.int64)  # of each number, how many rows are stored
        self.now = 0  # the time of the last row
        self.last = BEGINNING

    def __bool__(self) -> bool:
        return bool(self.sides[0].runs or self.sides[1].runs)

    def copied(self) -> Self:
        """What there is now, for `back`. The numbers of keys are shared: none of them is ever removed."""
        other = copy(self)
        other.sides = self.sides[0].copied(), self.sides[1].copied()
        other._schemas = self._schemas.copy()
        return other

    def back(self) -> Self:
        """One to go on with from a copy, which stays as it is."""
        other = self.copied()
        codes = [run.codes for stored in other.sides for run in stored.runs]
        codes += [each for stored in other.sides for each in stored.dropped]
        other._counts = np.zeros(0, np.int64)
        other._count(np.concatenate([np.zeros(0, np.int64), *codes]))
        return other

    def without_rows(self) -> list[Any]:
        """The keys whose last rows were dropped since this was asked."""
        dropped = [each for stored in self.sides for each in stored.dropped]
        for stored in self.sides:
            stored.dropped = []
        if not dropped:
            return []
        codes = np.concatenate(dropped)
        np.subtract.at(self._counts, codes, 1)
        gone = np.unique(codes[self._counts[codes] == 0]).tolist()
        by_number = list(self._numbers) if gone else []
        if gone and len(by_number) > UNUSED_MIN + 4 * np.count_nonzero(self._counts):
            self._number_anew(by_number)
        return [by_number[number] for number in gone]

    def _number_anew(self, by_number: list[Any]) -> None:
        """Give numbers to keys with rows only."""
        numbers = np.cumsum(self._counts > 0) - 1
        self._numbers = KeyNumbers((by_number[at], number) for number, at in enumerate(np.flatnonzero(self._counts)))
        self._counts = self._counts[self._counts > 0]
        for stored in self.sides:
            stored.runs = [run._replace(codes=numbers[run.codes]) for run in stored.runs]

    def _count(self, codes: Array) -> None:
        if len(self._numbers) > len(self._counts):
            self._counts = np.concatenate([self._counts, np.zeros(len(self._numbers), np.int64)])
        np.add.at(self._counts, codes, 1)

    def keys_of(self, rows: SideRows) -> tuple[list[Any], list[tuple[Frame, Array]]] | None:
        """The keys of a batch, and of each side the rows and the numbers of their keys.

        None where keys are not known in columns, or rows have other fields than those that are stored.
        """
        keys: dict[Any, None] = {}
        sides: list[tuple[Frame, Array]] = []
        for side, key in enumerate(rows.keys):
            frame = rows.frames[side]
            if frame is None or key is None:
                sides.append((Frame(pl.DataFrame()), np.zeros(0, np.int64)))
                continue
            if self._schemas[side] not in (None, frame.schema):
                return None
            own = rows.rows_of(side)
            of_keys = codes_of(own, key.names) if len(own) else (np.zeros(0, np.int64), list[Any]())
            if of_keys is None:
                return None
            codes, of_side = of_keys
            keys.update(dict.fromkeys(of_side))
            numbers = np.fromiter(map(self._numbers.__getitem__, of_side), np.int64, len(of_side))
            sides.append((own, numbers[codes]))
            self._schemas[side] = frame.schema
        return list(keys), sides

    def pairs(
        self, sides_of: Array, times_of: Sequence[int], sides: Sequence[tuple[Frame, Array]]
    ) -> tuple[list[int], PairRows | None]:
        """How many pairs each row of a batch gives, and these; the rows are stored.

        Args:
            sides_of: of each row, 0 for the left.
            times_of: in order.
            sides: see `keys_of`.
        """
        places, times = [np.flatnonzero(sides_of == side) for side in (0, 1)], np.asarray(times_of, np.int64)
        runs = [
            Run.of(codes, times[at], at, frame.frame) if len(at) else None for at, (frame, codes) in zip(places, sides)
        ]
        self.now = int(times[0])
        for stored in self.sides:
            stored.drop(self.now)
        found: list[tuple[Found, bool]] = []
        for side in (0,) if self._table else (0, 1):
            at, (frame, codes) = places[side], sides[side]
            if len(at):
                met = self._met(1 - side, at, times[at], codes, frame, runs[1 - side])
                found += [(each, bool(side)) for each in met]
        counts, pairs = self._put_together(found, places[0], sides[0][0], len(times))
        for side, run in enumerate(runs):
            if run is not None and (side or not self._table):
                self._count(run.codes)
                self.sides[side].add(run._replace(places=np.zeros(len(run.places), np.int64)), self.now)
        self.now = int(times[-1])
        return counts.tolist(), pairs

    def _met(self, side: int, at: Array, times: Array, codes: Array, frame: Frame, run: Run | None) -> Iterable[Found]:
        """What the rows at these places meet on the other side: what is stored of it, and its rows in the batch."""
        reach = self.sides[side].reach
        least = None if reach is None else times - reach
        for each, below in [*((stored, None) for stored in self.sides[side].runs), (run, at)]:
            if each is None:
                continue
            first, last = each.stretches(codes, least, below)
            counts = last - first
            total = int(counts.sum())
            if total:
                asking = np.repeat(np.arange(len(at)), counts)
                others = np.arange(total) + np.repeat(first - (np.cumsum(counts) - counts), counts)
                yield Found(at[asking], frame.frame[asking], each.rows[others])

    def _put_together(
        self, found: Sequence[tuple[Found, bool]], lefts: Array, left: Frame, count: int
    ) -> tuple[Array, PairRows | None]:
        """The pairs in order: by the row of the batch, and for each those of earlier rows first."""
        asked = [each.asked for each, _ in found]
        sides: tuple[list[pl.DataFrame], list[pl.DataFrame]] = ([], [])
        for each, is_right in found:
            sides[is_right].append(each.own)
            sides[not is_right].append(each.others)
        are_there = None
        if self._outer:
            counts = np.bincount(np.concatenate(asked), minlength=count) if asked else np.zeros(count, np.int64)
            alone = np.flatnonzero(counts[lefts] == 0)
            if len(alone):
                pairs = sum(map(len, asked))
                are_there = np.arange(pairs + len(alone)) < pairs
                asked.append(lefts[alone])
                sides[0].append(left.frame[alone])
                if self._schemas[1] is not None:
                    sides[1].append(pl.DataFrame(schema=self._schemas[1]).clear(len(alone)))
        if not asked:
            return np.zeros(count, np.int64), None
        every = np.concatenate(asked)
        order = np.argsort(every, kind="stable")
        frames = [pl.concat(some)[order] if some else pl.DataFrame() for some in sides]
        return np.bincount(every, minlength=count), pairs_of(
            frames[0], frames[1], None if are_there is None else are_there[order]
        )

    # As objects.

    def taken(self, keys: Iterable[Any] | None) -> dict[Any, tuple[list[Entry], list[Entry]]]:
        """Of these keys, or of all, the entries of both sides; keys without any are left out."""
        numbers = {self._numbers[key] for key in keys if key in self._numbers} if keys is not None else None
        by_number = list(self._numbers)
        found: dict[Any, tuple[list[Entry], list[Entry]]] = {}
        for side, stored in enumerate(self.sides):
            run = stored.all(self.now)
            if run is not None and numbers is not None:
                run = run.chosen(np.isin(run.codes, np.fromiter(numbers, np.int64, len(numbers))))
            if run is None or not len(run.codes):
                continue
            edges = [0, *(np.flatnonzero(np.diff(run.codes)) + 1).tolist(), len(run.codes)]
            entries = list(zip(run.times.tolist(), Frame(run.rows).values))
            for start, stop in pairwise(edges):
                of_key = found.setdefault(by_number[int(run.codes[start])], ([], []))
                of_key[side].extend(entries[start:stop])
        return found

    def absorb(
        self, entries: dict[Any, tuple[list[Entry], list[Entry]]], timers: Mapping[Any, bytes]
    ) -> Literal["done", "later", "never"]:
        """Store entries of keys that have none here, below all rows that come.

        Args:
            timers: of keys that have one, its meta.

        Returns:
            Whether it is done, or is to be tried again with other rows, or the entries cannot be columns.
        """
        runs: list[Run | None] = []
        for side, schema in enumerate(self._schemas):
            times = [time for of_key in entries.values() for time, _ in of_key[side]]
            rows = [row for of_key in entries.values() for _, row in of_key[side]]
            if not rows:
                runs.append(None)
                continue
            if schema is None:
                return "later"
            if any(type(key) is bytes for key in entries):
                return "never"
            fields: Fields = tuple(schema.items())
            try:
                frame = frame_of(rows, fields)
            except InputError:
                return "never"
            counts = [len(of_key[side]) for of_key in entries.values()]
            codes = np.repeat(np.fromiter(map(self._numbers.__getitem__, entries), np.int64, len(entries)), counts)
            runs.append(Run.of(codes, np.array(times, np.int64), np.zeros(len(rows), np.int64), frame))
        for side, run in enumerate(runs):
            if run is not None:
                self._count(run.codes)
                self.sides[side].runs.insert(0, run)
        return "done"

    def clear(self) -> None:
        for stored in self.sides:
            stored.runs = []
        self._numbers, self._counts = KeyNumbers(), np.zeros(0, np.int64)
