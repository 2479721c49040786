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
from itertools import count
from typing import Any

import numpy as np
import polars as pl

from drift.columns.aggregates import Array, InColumns, codes_of, result_column, values_known

UNUSED_MIN = 1 << 16  # so many keys that nothing is known of may have numbers


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


def results_of(aggregates: Sequence[InColumns], accumulators: Sequence[Any]) -> list[pl.Series]:
    """The results of each aggregate, whose accumulators are in arrays."""
    return [result_column(kind, *each) for (kind, _), each in zip(aggregates, accumulators)]


def values_by_key(
    rows: Any, key: Sequence[str], aggregates: Sequence[Any]
) -> tuple[Array, list[Any], list[Any]] | None:
    """The number of each row's key, the keys, and the values of each aggregate, see `values_known`.

    None where keys are not in columns.

    Args:
        key: names of the fields of the key.
    """
    of_keys = codes_of(rows, key)
    if of_keys is None:
        return None
    codes, keys = of_keys
    return np.asarray(codes, np.int64), keys, [values_known(rows, each) for each in aggregates]
