"""Open windows of rows in columns, whose ends follow from the times of the rows.

Invariant: the windows are in the order of their ends, and those of one end in the order of their first rows; each has
the accumulators of all its rows, none of which will change.

Why: rows come in order, and nothing comes below them. So a row belongs to a window of the last end, which is found by
the number of its key, or to a new one behind all others; those that end first are the first of the arrays.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import accumulate
from typing import Any, NamedTuple

import numpy as np

from drift.columns.aggregates import Array, InColumns, _NotHere
from drift.columns.groups import UNUSED_MIN, Groups, KeyNumbers, Keys, listed, results_of
from drift_graph.metas import Metas


class Taken(NamedTuple):
    """Windows of some ends.

    Attributes:
        untils: the last times of the ends.
        counts: how many windows have each of these ends.
        keys: of the windows.
        firsts: the metas of their first rows.
        arrays: of each aggregate the accumulators, in one array or two.
    """

    untils: list[int]
    counts: list[int]
    keys: Keys
    firsts: Metas
    arrays: list[list[Array]]

    def by_end(self) -> Iterator[tuple[int, int, int]]:
        """Of each end its last time, the first window and the one after its last."""
        ends = list(accumulate(self.counts))
        yield from zip(self.untils, [0, *ends], ends)

    def timers(self, suffix: bytes, ending: bytes, phase: int) -> Metas:
        """The metas of their ends, see `Metas.later`."""
        untils = np.repeat(np.array(self.untils, np.int64), self.counts)
        return self.firsts.with_suffix(suffix).later(ending, untils, phase)


class OpenWindows:
    """See the module.

    Args:
        names: of the values of a window; None for one value.
        aggregates: what is computed for each of them.

    Attributes:
        untils: the last times of the ends.
        names, aggregates: see above.
    """

    def __init__(self, names: tuple[str, ...] | None, aggregates: Sequence[InColumns]) -> None:
        self.untils: list[int] = []
        self.names = names
        self.aggregates = aggregates
        self._counts: list[int] = []
        self._size = 0
        self._firsts: list[Metas] = []
        #: Longer than there are windows; the last is the numbers of their keys.
        self._arrays: list[list[Array]] = [[np.empty(0, np.int64)]]
        self._numbers = KeyNumbers()  # of keys, some of which may be without windows
        self._keys: list[Any] = []  # by number
        self._places = np.empty(0, np.int64)  # by number: the key's window of the last end, from its first one, or -1
        self._last = b""

    def __len__(self) -> int:
        return self._size

    def add(self, groups: Groups, metas: Metas, untils: Sequence[int]) -> bool:
        """Add rows; False, and nothing has changed, where that is not possible in columns.

        Args:
            metas: of the rows.
            untils: the last time of the windows of each stretch of rows.
        """
        size, goes_on = len(self), self.untils[-1:] == [untils[0]]
        if size and (metas[0] <= self._last or untils[0] < self.untils[-1]):
            return False
        first = size - self._counts[-1] if goes_on else size
        numbers = self._numbers_of(groups.distinct)[groups.codes]
        places = self._places[numbers[: groups.bounds[0][1] if goes_on else 0]]
        old = np.flatnonzero(places >= 0)
        before = places[old] + first
        try:
            after = [
                groups.folded(of, old, [each[before] for each in self._arrays[at]] if len(old) else ())
                for at, of in enumerate(self.aggregates)
            ]
        except _NotHere:
            return False
        if size and any(
            each.dtype != known.dtype for made, arrays in zip(after, self._arrays) for each, known in zip(made, arrays)
        ):
            return False
        is_new = np.ones(len(groups), np.bool_)
        is_new[old] = False
        self._append([*after, [numbers]], before, old, is_new)
        self._firsts.append(metas.take(groups.firsts[is_new]))
        counts = [right - left for left, right in groups.bounds]
        if goes_on:
            self._counts[-1] += counts.pop(0) - len(old)
        self.untils += untils[len(untils) - len(counts) :]
        if counts:
            self._counts += counts
            self._places[:] = -1
        of_last = self._arrays[-1][0][self._size - self._counts[-1] : self._size]
        self._places[of_last] = np.arange(len(of_last))
        self._last = metas[-1]
        return True

    def _numbers_of(self, keys: Sequence[Any]) -> Array:
        """The numbers of keys."""
        if len(self._numbers) > UNUSED_MIN + 4 * len(self):
            self._number_again()
        numbers = np.fromiter(map(self._numbers.__getitem__, keys), np.int64, len(keys))
        if len(self._numbers) > len(self._keys):
            self._keys = list(self._numbers)
            places = np.full(len(self._keys), -1)
            places[: len(self._places)] = self._places
            self._places = places
        return numbers

    def _number_again(self) -> None:
        """Forget the keys without a window."""
        used, numbers = np.unique(self._arrays[-1][0][: len(self)], return_inverse=True)
        self._keys, self._places = [self._keys[at] for at in used.tolist()], self._places[used]
        self._numbers = KeyNumbers(zip(self._keys, range(len(used))))
        self._arrays[-1][0][: len(self)] = numbers

    def _append(self, after: Sequence[Sequence[Array]], before: Array, old: Array, is_new: Array) -> None:
        size = len(self)
        total = self._size = size + len(is_new) - len(old)
        if not size:
            self._arrays = [[np.empty(0, each.dtype) for each in made] for made in after]
        for arrays, made in zip(self._arrays, after):
            for at, each in enumerate(made):
                if len(arrays[at]) < total:
                    grown = np.empty(total + total // 2, each.dtype)
                    grown[:size] = arrays[at][:size]
                    arrays[at] = grown
                arrays[at][before] = each[old]
                arrays[at][size:total] = each[is_new]

    def take(self, ends: int) -> Taken:
        """Take out the windows of so many ends, one or more."""
        counts, untils = self._counts[:ends], self.untils[:ends]
        taken, firsts = sum(counts), []
        self._size = size = len(self) - taken
        *arrays, (numbers,) = [[each[:taken].copy() for each in every] for every in self._arrays]
        for every in self._arrays:
            for each in every:
                each[:size] = each[taken : taken + size].copy()
        left = taken
        while left:
            some = self._firsts.pop(0)
            firsts.append(some[:left])
            if len(some) > left:
                self._firsts.insert(0, some[left:])
            left -= len(firsts[-1])
        del self._counts[:ends], self.untils[:ends]
        return Taken(untils, counts, Keys(self._keys, numbers), Metas.joined(firsts), arrays)

    def accumulators(self, taken: Taken) -> list[Any]:
        """The accumulators of the windows, one by one."""
        lists = [listed(kind, arrays) for (kind, _), arrays in zip(self.aggregates, taken.arrays)]
        return lists[0] if self.names is None else list(zip(*lists))

    def results(self, taken: Taken) -> list[Array] | None:
        """The results of each aggregate; None where a division is not exact in columns."""
        try:
            return results_of(self.aggregates, taken.arrays)
        except _NotHere:
            return None
