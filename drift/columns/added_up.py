"""Rows of windows, added up before they are sent: a part is what rows of one key in one window come to.

Invariant: windows of parts are those of their rows, with the same metas; or what would differ raises `NeedsRows`.

Why: what is added up here is exact in any order: numbers of rows, integers, and least and greatest values. The metas of
a window hang on its first row alone, and that is the first row of one of its parts: the part has its meta. So only rows
that may be first need a tie, which is a hash of all their fields. Parts are windows as the kernel's loop has them
(`drift.machines.windowing`), of some rows; without the kernel rows are sent.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate
from typing import Any

import numpy as np
import polars as pl

from drift.columns.aggregates import Array, InColumns, Kind, codes_of, numbers_in, with_nulls
from drift.columns.computed import Computed
from drift.columns.expressions import Expressions, Predicate
from drift.columns.rows import Frame, Tabular
from drift.columns.times import Times, are_dates
from drift.operators import OpensWindows
from drift_graph.canonical import hash64_each
from drift_graph.item import Columns
from drift_graph.metas import Metas
from drift_graph.payloads import NeedsRows
from drift_kernel import kernel

#: Types of which every value has a canonical form.
_HAVE_FORMS = frozenset({
    pl.Int8, pl.Int16, pl.Int32, pl.Int64, pl.UInt8, pl.UInt16, pl.UInt32, pl.UInt64, pl.Float32, pl.Float64,
    pl.Boolean, pl.String, pl.Binary,
})  # fmt: skip
_EXACT = ("count", "sum", "mean", "min", "max")  # in any order, of integers at least
_NONE = np.empty(0, np.int64)


class Parts(Tabular):
    """Parts of windows: columns of their keys, and of their accumulators."""

    __slots__ = ()

    has_fields = False

    def _made_values(self) -> list[Any]:
        raise NeedsRows("parts of windows have no values")

    def need_values(self) -> None:
        self._made_values()

    @property
    def schema(self) -> pl.Schema:
        """The names of the columns, and their types."""
        return self.frame.schema

    def column(self, of: str) -> pl.Series | None:
        """Of the keys, or of accumulators."""
        return self.frame[of] if of in self.frame.columns else None

    def added(self, aggregates: Sequence[InColumns]) -> Any:
        of_keys = codes_of(self, [name for name in self.frame.columns if name.startswith(_KEY)])  # type: ignore[arg-type]
        assert of_keys is not None, "keys were known in columns when these were added up"
        return np.asarray(of_keys[0], np.int64), of_keys[1], list(map(self._accumulators, aggregates))

    def _accumulators(self, of: InColumns) -> tuple[Array | None, Array | None, Array | None]:
        """The accumulators of an aggregate, and of how many values each is, see `Accumulators.fold` in the kernel."""
        found = [numbers_in(self.frame[_name(of, at)]) for at in range(2 if of[0] == "mean" else 1)]
        assert None not in found, "accumulators are numbers"
        count, (values, known) = found[0][0] if of[0] in ("count", "mean") else None, found[-1]  # type: ignore[index,misc]
        return (None, None, count) if of[0] == "count" else (values, known, count)


_KEY = "key "


def _name(of: InColumns, at: int) -> str:
    """The column of an aggregate's accumulators: of a mean there are two."""
    kind, field = of
    return f"{kind} {at} = {field.computed.hex()}" if isinstance(field, Computed) else f"{kind} {at} . {field}"


class Adding:
    """Adds up the rows of windows.

    Args:
        opens: of the windows, whose key is fields of the rows, and whose aggregates are in columns.
        rank: of the source; `ending`: the rest of the global times, and the path of rows that come to the windows.
    """

    def __init__(self, opens: OpensWindows, rank: bytes) -> None:
        self._opens, self._rank = opens, rank
        values = opens.aggregate.values_in_columns
        assert values is not None
        self._aggregates: Sequence[InColumns] = values[1]

    def check(self, rows: pl.DataFrame) -> None:
        """
        Raises:
            NeedsRows: rows with fields of such types cannot be added up exactly.
        """
        for kind, field in self._aggregates:
            if kind not in _EXACT:
                raise NeedsRows(f"{kind} depends on the order of rows")
            of_values = field.kind if isinstance(field, Computed) else rows.schema.get(field)
            if kind in ("sum", "mean") and (of_values is None or of_values.is_float()):
                raise NeedsRows(f"the {kind} of {field!s}, of type {of_values}, depends on the order of rows")

    def parts(
        self, rows: Frame, times: Times, source: Frame, places: Array, ending: bytes
    ) -> tuple[Columns, Sequence[Any], Array]:
        """The parts of some rows, the identities of their keys, each once, and for each part the place of its key.

        Args:
            times: of the rows.
            source: the payloads that the rows were made of, which metas are hashes of.
            places: of each row, the payload.
            ending: of the metas behind the tie.

        Raises:
            NeedsRows: they cannot be added up exactly.
        """
        if not are_certain(source.frame):
            raise NeedsRows("a row may have no canonical form")
        self.check(rows.frame)
        if len(times) and (times[1:] < times[:-1]).any():
            order = np.argsort(times, kind="stable")
            rows, times, places = rows.in_order(order.tolist()), times[order], places[order]
        rows, times, places, lengths = self._in_windows(rows, times, places)
        if not len(times):
            return Columns(Metas(), [], None), [], _NONE
        names = self._opens.fields_of_key
        assert names is not None
        codes, keys, values = self._in_columns(rows, names)
        table = self._table()
        firsts, _ = table.add(codes, keys, values, list(accumulate(lengths)), (), str)
        _, arrays = table.arrays(np.arange(len(table))) or (None, None)
        if arrays is None:
            raise NeedsRows("a sum is beyond 64 bits")
        first = np.asarray(firsts)
        of_keys = [rows.frame[name].gather(first).alias(f"{_KEY}{at}") for at, name in enumerate(names)]
        columns = {
            _name(of, at): with_nulls(pl.Series(_name(of, at), np.asarray(each)), have_one)
            for of, (several, have_one) in zip(self._aggregates, arrays)
            for at, each in enumerate(several)
        }
        ties = _ties(np.asarray(table.cells_of_items()), times, times[first], source, places)
        metas = Metas.stamped(times[first], ties, self._rank, ending)
        return Columns(metas, Parts(pl.DataFrame([*of_keys, *columns.values()])), None), keys, codes[first]  # type: ignore[arg-type]

    def _table(self) -> Any:
        assert kernel is not None
        several, parts = self._opens.parts
        columns = [kernel.Accumulators(kind, part.begin_value, part.add_value) for kind, part in parts]
        return kernel.Windows(columns, several=several)

    def _in_columns(self, rows: Frame, names: Sequence[str]) -> tuple[Array, list[Any], list[tuple[Any, Any, None]]]:
        """The number of each row's key, the keys, and the values of each aggregate, see `values_known`."""
        of_keys, values = codes_of(rows, names), []
        for (kind, field), (_, part) in zip(self._aggregates, self._opens.parts[1]):
            found = (None, None) if kind == "count" else numbers_in(rows.column(field))
            if of_keys is None or found is None or (found[1] is not None and part.needs_values):
                raise NeedsRows("keys or values of rows are not in columns")
            if found[0] is not None and not _is_exact(kind, found[0]):
                raise NeedsRows(f"the {kind} of {field!s} depends on the order of rows")
            values.append((*found, None))
        assert of_keys is not None, "there is at least one aggregate"
        return np.asarray(of_keys[0], np.int64), of_keys[1], values

    def _in_windows(self, rows: Frame, times: Times, places: Array) -> tuple[Frame, Times, Array, list[int]]:
        """The rows that are in windows, and how many follow each other in windows of one end."""
        lengths, start, chosen = [], 0, np.ones(len(times), np.bool_)
        while start < len(times):
            time = int(times[start])
            until = self._opens.until(time)
            stop = int(np.searchsorted(times, time if until is None else until, "right"))
            if until is None:
                chosen[start:stop] = False
            else:
                lengths.append(stop - start)
            start = stop
        if not chosen.all():
            rows, times, places = rows.chosen(chosen.tobytes()), times[chosen], places[chosen]
        return rows, times, places, lengths


def can_add(opens: OpensWindows, rows: Frame, functions: Sequence[Any]) -> bool:
    """Whether rows with fields of such types can be added up behind some maps, as far as types tell.

    Args:
        rows: none, with these fields.
        functions: of the maps, in turn.
    """
    if kernel is None or opens.fields_of_key is None or not are_certain(rows.frame):
        return False
    frame = rows.frame
    try:
        for function in functions:
            if isinstance(function, Expressions):
                frame = function.made_of(frame)
            elif not isinstance(function, Predicate):
                return False
        Adding(opens, b"").check(frame)
    except (NeedsRows, TypeError, ValueError, pl.exceptions.PolarsError):
        return False
    return True


def are_certain(rows: pl.DataFrame) -> bool:
    """Whether every value of some rows has a canonical form."""
    return all(map(_is_certain, rows.get_columns()))


def _is_certain(column: pl.Series) -> bool:
    if isinstance(column.dtype, (pl.Datetime, pl.Date)):
        return are_dates(column)
    return type(column.dtype) in _HAVE_FORMS


def _is_exact(kind: Kind, values: Array) -> bool:
    """Whether an aggregate of values is the same in any order: the least and the greatest of floats are not, where some
    are NaN, or zeros of both signs.
    """
    if kind not in ("min", "max") or values.dtype != np.float64:
        return True
    return not (np.isnan(values).any() or np.signbit(values[values == 0]).any())


def _ties(windows: Array, times: Times, of_windows: Times, source: Frame, places: Array) -> Array:
    """The tie of the first row of each window: the least of those that have its first time.

    Args:
        windows: of each row the number of its window.
        of_windows: the first time of each.
    """
    first = np.flatnonzero(times == of_windows[windows])
    ties = np.frombuffer(hash64_each(source.in_order(places[first])), ">u8").astype(np.uint64)  # type: ignore[arg-type]
    least = np.full(len(of_windows), np.iinfo(np.uint64).max, np.uint64)
    np.minimum.at(least, windows[first], ties)
    return least
