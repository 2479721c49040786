"""Rows in columns as groups: those of one key in one window.

Invariant: the accumulators of groups after the rows are those of adding row by row in order, to the last bit of a
float; or the answer is None, and the rows are to be added one by one.

Why: groups are numbered, so what is added to them is a column of numbers beside a column of values. Integers are added
exactly, in any order; what could leave 63 bits is not done here. Floats are added one after the other (`add.at` does
so, sums in numpy do not). Where comparisons of floats depend on order (NaN, zeros of both signs), the answer is None.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate, pairwise
from typing import Any

import numpy as np
import polars as pl
import pyarrow as pa

from drift.columns.aggregates import _EXACT_MAX, Array, InColumns, _codes, _known, _NotHere, _numbers
from drift.columns.rows import Frame
from drift.operators import NO_ITEMS


class Groups:
    """The groups of some rows, in the order of their first rows.

    Args:
        keys: of the groups, identities as well as values.
        numbers: the group of each row.
        firsts: the first row of each group.
        bounds: of each stretch, its first group and the one after its last.

    Attributes:
        rows: in the order of their metas.
    """

    def __init__(
        self, rows: Frame, keys: list[Any], numbers: Array, firsts: list[int], bounds: list[tuple[int, int]]
    ) -> None:
        self.rows = rows
        self.keys, self.firsts, self.bounds = keys, firsts, bounds
        self._numbers = numbers
        self._listed: list[int] | None = None
        self._fields: dict[str, Array | None] = {}

    def __len__(self) -> int:
        return len(self.keys)

    @property
    def numbers(self) -> list[int]:
        """The group of each row."""
        if self._listed is None:
            self._listed = self._numbers.tolist()
        return self._listed

    def added(self, of: InColumns, before: Sequence[Any]) -> list[Any] | None:
        """The accumulators of an aggregate after the rows; see the module.

        Args:
            before: the accumulator of each group, or NO_ITEMS.
        """
        kind, field = of
        try:
            if kind == "count":
                made: Array = self._counts() + np.array(_known(_without_nulls(before), 0, int), np.int64)
                return made.tolist()  # type: ignore[no-any-return]
            values = self._values(field)
            if kind == "mean":
                counts = self._counts() + np.array([0 if each is NO_ITEMS else each[0] for each in before], np.int64)
                sums = _without_nulls([each if each is NO_ITEMS else each[1] for each in before])
                return list(zip(counts.tolist(), self._sums(values, sums)))
            known = _without_nulls(before)
            if kind == "sum":
                return self._sums(values, known)
            return self._extremes(values, known, np.minimum if kind == "min" else np.maximum)
        except _NotHere:
            return None

    def _values(self, field: str) -> Array:
        if field not in self._fields:
            try:
                self._fields[field] = _numbers(_narrow(self.rows, (field,)), field)
            except _NotHere:
                self._fields[field] = None
        found = self._fields[field]
        if found is None:
            raise _NotHere
        return found

    def _counts(self) -> Array:
        return np.bincount(self._numbers, minlength=len(self))

    def _sums(self, values: Array, known: list[Any]) -> list[Any]:
        if values.dtype == np.float64:
            sums = np.array(_known(known, -0.0, float))  # -0.0 + x is x, for -0.0 too
        else:
            before = _known(known, 0, int)
            greatest = max(abs(int(values.max())), abs(int(values.min()))) * len(values)
            if greatest + max(max(before), -min(before)) > _EXACT_MAX:
                raise _NotHere
            sums = np.array(before, np.int64)
        np.add.at(sums, self._numbers, values)
        return sums.tolist()  # type: ignore[no-any-return]

    def _extremes(self, values: Array, known: list[Any], function: np.ufunc) -> list[Any]:
        found = values[self.firsts]
        old = [at for at, each in enumerate(known) if each is not None]
        if old:
            before = [known[at] for at in old]
            if set(map(type, before)) != {float if values.dtype == np.float64 else int}:
                raise _NotHere
            try:
                found[old] = before
            except OverflowError:
                raise _NotHere from None
        if values.dtype == np.float64:
            for some in (values, found):
                if np.isnan(some).any() or np.signbit(some[some == 0]).any():
                    raise _NotHere
        function.at(found, self._numbers, values)
        return found.tolist()  # type: ignore[no-any-return]


def groups_of(rows: Frame, key: Sequence[str], lengths: Sequence[int]) -> Groups | None:
    """The groups of the rows, by key within stretches of rows; None where keys are not known in columns.

    Args:
        key: names of the fields; of one the key is its value, of several a tuple, of none None.
        lengths: of the stretches, one after the other.
    """
    try:
        codes, keys = _codes(_narrow(rows, key), key) if key else (np.zeros(len(rows), np.int64), [None])
    except _NotHere:
        return None
    ends = list(accumulate(lengths))
    if len(lengths) > 1:
        found = pa.array(codes + np.repeat(np.arange(len(lengths)) * len(keys), lengths)).dictionary_encode()
        numbers = found.indices.to_numpy(zero_copy_only=False)
        stretches, places = np.divmod(found.dictionary.to_numpy(), len(keys))
        keys = [keys[at] for at in places.tolist()]
        edges = np.searchsorted(stretches, np.arange(len(lengths) + 1)).tolist()
    else:
        numbers, edges = codes, [0, len(keys)]
    assert ends[-1] == len(rows)
    firsts = np.empty(len(keys), np.int64)
    firsts[numbers[::-1]] = np.arange(len(rows) - 1, -1, -1)  # of several rows of a group the last is stored
    return Groups(rows, keys, numbers, firsts.tolist(), list(pairwise(edges)))


def _without_nulls(before: Sequence[Any]) -> list[Any]:
    """The accumulators, with None for groups without items."""
    if None in before:
        raise _NotHere  # of a null, which nothing can be added to
    return [None if each is NO_ITEMS else each for each in before]


def _narrow(rows: Frame, names: Sequence[str]) -> Frame:
    """The rows with these fields only: the others need not be converted to Arrow."""
    try:
        return Frame(rows.frame.select(names))
    except pl.exceptions.ColumnNotFoundError:
        raise _NotHere from None
