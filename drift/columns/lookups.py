"""Rows with those of their key in a table that is in memory, column by column.

Invariant: a row is joined with every row of its key, in the order of the table; keys are compared by their canonical
bytes.

Why: each different key of a batch is looked up by these bytes. Rows of a key are one after the other in the table, so
where they begin and how many they are is all there is to know of them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cached_property
from itertools import accumulate, chain, islice, repeat
from typing import Any

import numpy as np
import polars as pl
import pyarrow as pa

from drift.columns.aggregates import Array, codes_of
from drift.columns.expressions import Fields, frame_of
from drift.columns.flat import Names, names_of_both, rows_at
from drift.columns.rows import Frame
from drift.operators import GivesRows, _ByValue
from drift_graph.canonical import canonical, canonical_each
from drift_graph.errors import InputError
from drift_graph.payloads import AtMostOne, Rows, has_null

_NONE = (-1, 0)  # where the rows of a key without any begin, and how many they are


class Families(AtMostOne):
    """For each of so many rows a tuple of values, any number of them.

    Args:
        counts: how many values each row has.
        of: the values.
    """

    __slots__ = ()

    def __init__(self, counts: Sequence[int], of: Rows) -> None:
        super().__init__(counts, of)  # type: ignore[arg-type]

    @property
    def values(self) -> list[tuple[Any, ...]]:
        each: Iterator[Any] = iter(self._of)
        return [tuple(islice(each, count)) for count in self._selected]


class FlatLookup(GivesRows, _ByValue, frozen=True, dict=True):
    """Each row with every row of its key, of a table in memory, as one row; a map's function.

    Args:
        rows: of the table, by the canonical bytes of their key.
        outer: whether a row whose key is not in the table is given, with null in the table's fields.
        key: the names of the fields that are the key; None if it is anything else.
    """

    names: Names
    rows: dict[bytes, tuple[dict[str, Any], ...]]
    outer: bool
    key: tuple[str, ...] | None
    user_function: Callable[[Any], Any]

    def each(self, payloads: Sequence[Any]) -> Any:
        """
        Raises:
            InputError: a row has not the fields of the stream.
        """
        frame = frame_of(payloads, self.names.left)
        table, _ = self._table
        places, counts = self._found(payloads if isinstance(payloads, Frame) else Frame(frame))
        if self.outer:
            counts = np.maximum(counts, 1)
        if int(counts.max(initial=0)) <= 1:
            wanted = counts.astype(np.bool_)
            if not wanted.all():
                frame, places = frame.filter(pl.Series(wanted)), places[wanted]
            return AtMostOne(wanted.tobytes(), self.names.joined(frame, rows_at(table, places)))
        parents = np.repeat(np.arange(len(counts)), counts)
        nth = np.arange(len(parents)) - np.repeat(np.cumsum(counts) - counts, counts)
        firsts = places[parents]
        joined = self.names.joined(frame[parents], rows_at(table, np.where(firsts < 0, -1, firsts + nth)))
        return Families(counts.tolist(), joined)

    def _found(self, rows: Frame) -> tuple[Array, Array]:
        """Of each row where in the table those of its key begin, -1 if there are none, and how many they are."""
        of_keys = None if self.key is None else codes_of(rows, self.key)
        codes, keys = (None, list(map(self.user_function, rows))) if of_keys is None else of_keys
        _, places = self._table
        found = np.array(list(map(places.get, canonical_each(keys), repeat(_NONE))), np.int64).reshape(-1, 2)
        firsts, counts = (found if codes is None else found[codes]).T
        return firsts, counts

    @cached_property
    def _table(self) -> tuple[pl.DataFrame, dict[bytes, tuple[int, int]]]:
        """All rows, and of each key where its rows begin and how many they are."""
        ends = accumulate(map(len, self.rows.values()))
        places = {key: (end - len(rows), len(rows)) for (key, rows), end in zip(self.rows.items(), ends)}
        return frame_of(list(chain.from_iterable(self.rows.values())), self.names.right), places


def lookup(
    table: Any,
    on: str | None,
    left: Fields,
    key: Callable[[Any], Any],
    fields: tuple[str, ...] | None,
    *,
    outer: bool,
    nulls_equal: bool,
    what: str,
) -> FlatLookup:
    """The function that joins rows with a table, as one row each.

    Args:
        table, on, nulls_equal: see `drift.flow.joins.rows_of`; the rows of a mapping are dicts with the same fields.
        left: the fields of the rows that are joined with it.
        key, fields: see `FlatLookup`.
        what: the step, for errors.

    Raises:
        GraphError: two fields would have one name.
        TypeError: `table` is no table, or its rows cannot be columns.
        PayloadError: a key has no canonical form.
    """
    try:
        frame, keys = _frame_and_keys(table, on)
        values: list[dict[str, Any]] = Frame(frame).values
        right: Fields = tuple(frame.schema.items())
        frame_of(values, right)
        if isinstance(table, Mapping) and canonical_each(values) != canonical_each(list(table.values())):
            raise InputError("the values of a field are not of one type")
    except (InputError, pa.ArrowException, ValueError, OverflowError, pl.exceptions.PolarsError) as error:
        raise TypeError(f"flat=True takes a table whose rows can be columns: {error}") from None
    names = names_of_both(left, right, () if on is None or fields is None else (on,), what)
    rows: dict[bytes, list[dict[str, Any]]] = {}
    for of, row in zip(keys, values):
        if not nulls_equal and has_null(of):
            continue
        rows.setdefault(canonical(of), []).append(row)
    return FlatLookup(names, {of: tuple(found) for of, found in rows.items()}, outer, fields, key)


def _frame_and_keys(table: Any, on: str | None) -> tuple[pl.DataFrame, list[Any]]:
    """The rows of a mapping or a DataFrame, and their keys."""
    if isinstance(table, Mapping):
        rows = list(table.values())
        fields = set(map(frozenset, rows)) if all(type(row) is dict for row in rows) else set()
        if len(fields) != 1:
            raise InputError("the rows of a mapping are to be dicts with the same fields")
        return pl.DataFrame(rows, infer_schema_length=None), list(table)
    if isinstance(table, pl.DataFrame):
        frame = table
    else:
        frame = pl.DataFrame(table.to_dict("records"), infer_schema_length=None)
    keys = Frame(frame).field(str(on))
    assert keys is not None
    return frame, keys
