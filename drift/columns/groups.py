"""Rows in columns as groups: those of one key in one window.

Invariant: the accumulators of groups after the rows are those of adding row by row in order, to the last bit of a
float; or the answer is None, and the rows are to be added one by one.

Why: groups are numbered, so what is added to them is a column of numbers beside a column of values. Integers are added
exactly, in any order; what could leave 63 bits is not done here. Floats are added one after the other (`add.at` does
so, sums in numpy do not). Where comparisons of floats depend on order (NaN, zeros of both signs), the answer is None.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from contextlib import suppress
from itertools import count
from typing import Any

import numpy as np
import polars as pl

from drift.columns.aggregates import (
    _EXACT_MAX,
    _MEAN_MAX,
    Array,
    InColumns,
    Kind,
    Of,
    _NotHere,
    _numbers,
    codes_of,
    encoded,
    firsts_of,
)
from drift.columns.rows import Frame

_ARRAYS = {frozenset({int}): np.int64, frozenset({float}): np.float64}  # by the types of accumulators
UNUSED_MIN = 1 << 16  # so many keys that nothing is known of may have numbers
_SLOTS_PER_ROW = 4  # of arrays over all numbers that groups may have


class KeyNumbers(defaultdict[Any, int]):
    """Dense numbers of keys, none of which is ever removed: a key that is looked up has the next one."""

    def __init__(self, known: Iterable[tuple[Any, int]] = ()) -> None:
        super().__init__(None, known)
        self.default_factory = count(len(self)).__next__


class Keys(Sequence[Any]):
    """The keys of these numbers, which are listed when one is asked for.

    Args:
        every: keys by their numbers.
    """

    def __init__(self, every: Sequence[Any], numbers: Array) -> None:
        self._every, self._numbers = every, numbers
        self._listed: list[Any] | None = None

    def __len__(self) -> int:
        return len(self._numbers)

    def __getitem__(self, at: Any) -> Any:
        return self.listed()[at]

    def listed(self) -> list[Any]:
        """As a list, which is cached."""
        if self._listed is None:
            self._listed = [self._every[number] for number in self._numbers.tolist()]
        return self._listed

    def columns(self, fields: int) -> list[pl.Series]:
        """A column for each field of the keys; see `columns_of_keys`."""
        if len(self._every) > len(self._numbers):
            return columns_of_keys(self.listed(), fields)
        return [each.gather(self._numbers) for each in columns_of_keys(self._every, fields)]


def columns_of_keys(keys: Sequence[Any], fields: int) -> list[pl.Series]:
    """A column for each field of keys: of one field they are its values, of several tuples, of none None."""
    return [pl.Series(list(each)) for each in (zip(*keys) if fields > 1 else [keys] * fields)]


class Groups:
    """The groups of some rows, in the order of their first rows.

    Args:
        distinct: the keys, identities as well as values, each once.
        codes: of each group the place of its key among these; None if they are the same.
        numbers: the group of each row.
        firsts: the first row of each group.
    """

    def __init__(
        self,
        rows: Frame,
        distinct: Sequence[Any],
        codes: Array | None,
        numbers: Array,
        firsts: Array,
    ) -> None:
        self._rows, self.distinct, self.firsts = rows, distinct, firsts
        self.codes = np.arange(len(firsts)) if codes is None else codes
        self._numbers = numbers
        self._fields: dict[Of, Array | None] = {}

    def __len__(self) -> int:
        return len(self.firsts)

    def folded(self, of: InColumns) -> Sequence[Array]:
        """The accumulators of an aggregate, in arrays.

        Raises:
            _NotHere: see the module.
        """
        kind, field = of
        counts = np.bincount(self._numbers, minlength=len(self)) if kind in ("count", "mean") else None
        if kind == "count":
            return (counts,)  # type: ignore[return-value]
        values = self._values(field)
        if kind == "mean":
            return counts, self._sums(values)  # type: ignore[return-value]
        if kind == "sum":
            return (self._sums(values),)
        return (self._extremes(values, np.minimum if kind == "min" else np.maximum),)

    @property
    def places(self) -> Array:
        """The group of each row."""
        return self._numbers

    def _values(self, field: Of) -> Array:
        if field not in self._fields:
            try:
                self._fields[field] = _numbers(self._rows, field)
            except _NotHere:
                self._fields[field] = None
        found = self._fields[field]
        if found is None:
            raise _NotHere
        return found

    def _sums(self, values: Array) -> Array:
        nothing = -0.0 if values.dtype == np.float64 else 0  # -0.0 + x is x, for -0.0 too
        sums = np.full(len(self), nothing, values.dtype)
        if values.dtype != np.float64 and _greatest(values) * len(values) > _EXACT_MAX:
            raise _NotHere
        np.add.at(sums, self._numbers, values)
        return sums

    def _extremes(self, values: Array, function: np.ufunc) -> Array:
        found: Array = values[self.firsts]
        if values.dtype == np.float64 and (np.isnan(values).any() or np.signbit(values[values == 0]).any()):
            raise _NotHere
        function.at(found, self._numbers, values)
        return found


def arrays_of(kind: Kind, accumulators: Sequence[Any]) -> Sequence[Array]:
    """Accumulators, of one group or more, as arrays; of a mean two.

    Raises:
        _NotHere: one is of nulls alone, or they are not all integers of 64 bits, or floats.
    """
    if None in accumulators:  # of values that are all null
        raise _NotHere
    columns = list(zip(*accumulators)) if kind == "mean" else [accumulators]
    try:
        return [np.array(each, _ARRAYS[frozenset(map(type, each))]) for each in columns]
    except (KeyError, OverflowError):
        raise _NotHere from None


def listed(kind: Kind, arrays: Sequence[Array]) -> list[Any]:
    """The inverse of `arrays_of`."""
    return list(zip(*(each.tolist() for each in arrays))) if kind == "mean" else arrays[0].tolist()


def results_of(aggregates: Sequence[InColumns], accumulators: Sequence[Sequence[Array]]) -> list[Array]:
    """The results of each aggregate.

    Raises:
        _NotHere: a division is not exact in columns.
    """
    found = []
    for (kind, _), arrays in zip(aggregates, accumulators):
        if kind == "mean" and len(arrays[1]) and arrays[1].dtype == np.int64 and _greatest(arrays[1]) > _MEAN_MAX:
            raise _NotHere
        found.append(arrays[1] / arrays[0] if kind == "mean" else arrays[0])
    return found


def results_in_columns(aggregates: Sequence[InColumns], accumulators: Sequence[Sequence[Any]]) -> list[Array] | None:
    """What `results_of` gives of accumulators in buffers; None where a division is not exact in columns."""
    try:
        return results_of(aggregates, [list(map(np.asarray, each)) for each in accumulators])
    except _NotHere:
        return None


def _greatest(values: Array) -> int:
    """The greatest distance from 0."""
    return max(int(values.max()), -int(values.min()))


def groups_of(rows: Frame, key: Sequence[str], lengths: Sequence[int]) -> Groups | None:
    """The groups of the rows, by key within stretches of rows; None where keys are not known in columns.

    Args:
        key: names of the fields; of one the key is its value, of several a tuple, of none None.
        lengths: of the stretches, one after the other.
    """
    try:
        codes, keys = codes_of(rows, key)
    except _NotHere:
        return None
    assert sum(lengths) == len(rows)
    if len(lengths) == 1:
        return Groups(rows, keys, None, codes, firsts_of(codes, len(keys)))
    numbers, slots, firsts = _in_order(codes + np.repeat(np.arange(len(lengths)) * len(keys), lengths))
    return Groups(rows, keys, slots % len(keys), numbers, firsts)


def values_by_key(
    rows: Any, key: Sequence[str], aggregates: Sequence[Any]
) -> tuple[Array, list[Any], list[Any], None] | None:
    """The number of each row's key, the keys, and the values of each aggregate: numbers in an array, others in a list.

    None where keys are not in columns.

    Args:
        key: see `groups_of`.
    """
    try:
        codes, keys = codes_of(rows, key)
    except _NotHere:
        return None
    return np.asarray(codes, np.int64), keys, [_values_of(rows, each) for each in aggregates], None


def _values_of(rows: Any, aggregate: Any) -> Any:
    if aggregate.adds == "count":
        return None
    if aggregate.adds is not None and aggregate.in_columns is not None:
        with suppress(_NotHere):
            return _numbers(rows, aggregate.in_columns[1])
    return list(aggregate.values_of(rows))


def _in_order(numbers: Array) -> tuple[Array, Array, Array]:
    """The place of each number among the different ones, by their first rows; the different ones, and these rows."""
    count = int(numbers.max()) + 1
    if count > _SLOTS_PER_ROW * len(numbers):
        places, slots = encoded(numbers)
        return places, slots, firsts_of(places, len(slots))
    firsts = firsts_of(numbers, count)
    slots = np.flatnonzero(firsts < len(numbers))
    slots = slots[np.argsort(firsts[slots], kind="stable")]
    places = np.empty(count, np.int64)
    places[slots] = np.arange(len(slots))
    return places[numbers], slots, firsts[slots]
