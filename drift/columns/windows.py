"""Results of windows, stored as columns.

Invariant: value i *is* the window with the i-th values: the same canonical form, and so the same digest and record.
What asks for windows gets them, made once for a batch.

Why: a window's form is that of a Struct, whose fields are those of the columns; see `forms.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from itertools import repeat
from typing import TYPE_CHECKING, Any

import numpy as np
import polars as pl

from drift.columns.aggregates import Array, InColumns
from drift.columns.forms import pieces_of_rows, pieces_of_structs, pieces_of_tuples
from drift.columns.groups import Keys, columns_of_keys, results_of
from drift.columns.rows import Frame, Tabular, arrow_columns
from drift_graph.payloads import AtMostOne

if TYPE_CHECKING:
    from drift_kernel._kernel import Piece

_FALSE = b"\xc2"


class WindowRows(Tabular):
    """Windows: the rows of a DataFrame, whose columns are those of the key, start, end and what they aggregate.

    Args:
        kind: makes a window of key, start, end and value.
        keys: how many columns the key has: with one it is its value, with several a tuple, without any None.
        names: of the values, which are dicts; None for one value.
    """

    __slots__ = ("_kind", "_keys", "_names")

    has_fields = False

    def __init__(
        self,
        frame: pl.DataFrame,
        kind: Callable[..., Any],
        keys: int,
        names: tuple[str, ...] | None,
        **place: Any,
    ) -> None:
        super().__init__(frame, kind, keys, names, **place)
        self._kind, self._keys, self._names = kind, keys, names

    def _made_values(self) -> list[Any]:
        columns = [each.to_list() for each in self.frame.get_columns()]
        keys, (starts, ends), values = columns[: self._keys], columns[self._keys : self._keys + 2], columns[-1]
        if self._names is not None:
            values = [dict(zip(self._names, row)) for row in zip(*columns[self._keys + 2 :])]
        of: Iterable[Any] = keys[0] if self._keys == 1 else zip(*keys) if keys else repeat(None)
        return list(map(self._kind, of, starts, ends, values))

    def _pieces(self, in_order: bool) -> list[Piece]:
        columns = arrow_columns(self.frame.get_columns())
        keys, bounds, values = columns[: self._keys], columns[self._keys : self._keys + 2], columns[self._keys + 2 :]
        value = pieces_of_tuples(values)
        if self._names is not None:
            value = pieces_of_rows(self._names, values, len(self), in_order)
        fields = [("key", pieces_of_tuples(keys)), ("value", value)]
        fields[1:1] = [(name, pieces_of_tuples([each])) for name, each in zip(("start", "end"), bounds)]
        return pieces_of_structs("Window", [*fields, ("early", [_FALSE])])

    def flat(self, names: Sequence[str]) -> Frame | None:
        if self._names is None or self._keys > 1:
            return None
        columns = self.frame.get_columns()
        named = zip([*names, *self._names], columns)
        return Frame(pl.DataFrame([each.alias(name) for name, each in named]))


def window_rows(
    kind: Callable[..., Any],
    keys: Sequence[Any],
    fields: int,
    bounds: Sequence[tuple[int, int]],
    counts: Sequence[int],
    values: Sequence[Any],
    names: tuple[str, ...] | None,
) -> WindowRows | None:
    """Windows by their keys, bounds and values; None where the keys or bounds are of no type of columns.

    Args:
        fields: how many fields of the rows are the key.
        bounds: start and end of windows that follow each other.
        counts: how many windows have each of the bounds.
        values: see `windows_between`.
        names: see `WindowRows`.
    """
    try:
        starts, ends = (np.repeat(np.array(each, np.int64), counts) for each in zip(*bounds))
    except OverflowError:
        return None
    return windows_between(kind, keys, fields, starts, ends, values, names)


def windows_that_end(
    kind: Callable[..., Any],
    keyed: tuple[Sequence[Any], Array, int],
    selected: bytes,
    ends: Any,
    size: int,
    values: tuple[tuple[str, ...] | None, Sequence[InColumns]],
    accumulators: Sequence[Any],
) -> AtMostOne | None:
    """For each of some rows the window of `size` rows that ends with it, if one does; else as `window_rows`.

    Args:
        keyed: the keys, the number of each row's key, and how many fields keys have.
        selected: a byte for each row, 1 where a window ends; `ends` and `accumulators` are of these, in buffers.
        values: names of what a window has, None for one value; and the aggregates.
    """
    keys, codes, fields = keyed
    names, aggregates = values
    results = results_of(aggregates, accumulators)
    own, until = Keys(keys, codes[np.frombuffer(selected, np.bool_)]), np.asarray(ends)
    windows = windows_between(kind, own, fields, until - size, until, results, names)
    return None if windows is None else AtMostOne(selected, windows)


def windows_between(
    kind: Callable[..., Any],
    keys: Sequence[Any],
    fields: int,
    starts: Array,
    ends: Array,
    values: Sequence[Any],
    names: tuple[str, ...] | None,
    *,
    further: int = 0,
) -> WindowRows | None:
    """Windows with a start and an end each, as rows; None if their keys or values are in no columns.

    Args:
        values: in columns, or in arrays of numbers; or in a list of values that are in none.
        further: how much later than its end each window ends.
    """
    if any(type(each) is list for each in values):
        return None
    try:
        made = keys.columns(fields) if isinstance(keys, Keys) else columns_of_keys(keys, fields)
    except (TypeError, OverflowError, pl.exceptions.PolarsError):
        return None
    if any(each.dtype not in (pl.String, pl.Int64, pl.Null) for each in made):
        return None
    every = [
        *made,
        pl.Series(np.asarray(starts)),
        pl.Series(np.asarray(ends) + further),
        *(each if isinstance(each, pl.Series) else pl.Series(np.asarray(each)) for each in values),
    ]
    return WindowRows(pl.DataFrame([each.alias(str(at)) for at, each in enumerate(every)]), kind, fields, names)
