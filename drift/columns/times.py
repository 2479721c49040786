"""The times and ties of rows, from their columns at once.

Invariant: what is found for a row is what `drift_graph.stamps` finds for its dict; where a row may have no time or tie,
or one of another form, nothing is found for the batch, and the dicts decide.

Why: a column of integers holds its times as they are, and a column of timestamps holds microseconds since 1970 in UTC.
Of texts, and of times without a zone, each different one is read once, as that of a dict is.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import UTC, tzinfo
from typing import Any, cast

import numpy as np
import numpy.typing as npt
import polars as pl
import pyarrow as pa

from drift.arrow import python_values
from drift.columns.metas import StampMetas, Words, stamp_metas
from drift_graph.canonical import NoCanonicalForm, hash64, hash64_each
from drift_graph.meta import TIME_MAX, TIME_MIN
from drift_graph.payloads import Rows, Timed

Times = npt.NDArray[np.int64]

_INTEGERS = frozenset({pl.Int8, pl.Int16, pl.Int32, pl.Int64, pl.UInt8, pl.UInt16, pl.UInt32, pl.UInt64})
_HASHED = frozenset({pl.String, pl.Binary, pl.Boolean, pl.Date})
#: The years that datetime holds, without a day at each end.
_FIRST_MS, _LAST_MS = -62_135_510_400_000, 253_402_128_000_000
_IN_MS, _DAY_MS = {"ms": 1, "us": 1000}, 86_400_000


def times_of_column(column: pl.Series, zone: tzinfo | None, time_of: Callable[[Any], int | None]) -> Times | None:
    """The time of each of one row or more; None if one may have none.

    Args:
        zone: of moments without one.
        time_of: the time that a policy finds of a value.
    """
    kind = column.dtype
    if column.null_count():
        return None
    if kind in _INTEGERS:
        numbers = column.to_numpy()
        return numbers.astype(np.int64) if int(numbers.max()) <= TIME_MAX else None
    if isinstance(kind, pl.Datetime) and kind.time_unit in _IN_MS and (kind.time_zone is not None or zone is UTC):
        times: Times = column.to_physical().to_numpy() // _IN_MS[kind.time_unit]
        return times if times.min() >= _FIRST_MS and times.max() <= _LAST_MS else None
    if isinstance(kind, (pl.String, pl.Datetime)):
        return _each_once(column, np.int64, time_of)
    return None


def are_dates(column: pl.Series) -> bool:
    """Whether Python has a value for each moment or date of a column, or for fewer than it has."""
    kind, since = column.dtype, column.to_physical()
    in_ms = 1 if isinstance(kind, pl.Date) else _IN_MS.get(kind.time_unit)  # type: ignore[attr-defined]
    if in_ms is None:
        return False
    least, greatest, of_day = since.min(), since.max(), _DAY_MS if isinstance(kind, pl.Date) else 1
    if least is None or greatest is None:
        return True
    return bool(least * of_day >= _FIRST_MS * in_ms and greatest * of_day <= _LAST_MS * in_ms)  # type: ignore[operator]


def _each_once(column: pl.Series, kind: type[Any], number_of: Callable[[Any], int | None]) -> Words | None:
    """The number of each row's value; None if one has none."""
    found = column.to_arrow(compat_level=pl.CompatLevel.oldest()).dictionary_encode(null_encoding="encode")
    try:
        numbers = list(map(number_of, python_values(found.dictionary)))
    except (pa.ArrowException, ValueError, OverflowError):  # raised again where dicts are made
        return None
    return None if None in numbers else np.array(numbers, kind)[found.indices.to_numpy()]


class TimedRows(Timed):
    """The times of rows.

    Args:
        rows: the payloads, which are hashed where there is no column of ties.
    """

    __slots__ = ("first", "least", "greatest", "_times", "_rows", "_ties")

    def __init__(self, times: Times, rows: Rows, ties: pl.Series | None) -> None:
        self.first, self.least, self.greatest = int(times[0]), int(times.min()), int(times.max())
        self._times = times
        self._rows = rows
        self._ties = ties

    def behind(self, greatest: int, least: int, lateness: int) -> Sequence[tuple[int, int, int]] | None:
        times = self._times
        if self.least >= least and max(greatest, self.greatest) - self.least <= lateness:
            return ()
        if lateness > TIME_MAX:
            return None
        befores = self._befores(greatest)
        bounds = np.maximum(np.maximum(befores, TIME_MIN + lateness) - lateness, least)
        at = np.flatnonzero(times < bounds)
        return list(zip(at.tolist(), times[at].tolist(), bounds[at].tolist()))

    def rise(self, greatest: int) -> int:
        rises = np.diff(np.maximum.accumulate(np.concatenate([np.array([greatest]), self._times])))
        return int(rises.view(np.uint64).max())  # of two numbers of 64 bits, which may be further apart than 63 bits

    def _befores(self, greatest: int) -> Times:
        """The greatest time before each row."""
        return np.maximum.accumulate(np.concatenate([np.array([greatest]), self._times[:-1]]))

    def chosen(self, wanted: Sequence[int], rows: Rows) -> TimedRows | None:
        mask = np.frombuffer(bytes(wanted), np.bool_)
        if not mask.any():
            return None
        ties = None if self._ties is None else self._ties.filter(pl.Series(mask))
        return TimedRows(self._times[mask], rows, ties)

    def metas(self, rank: bytes, ending: bytes) -> StampMetas | None:
        ties = self._hashes() if self._ties is None else _ties_of_column(self._ties)
        return None if ties is None else stamp_metas(self._times, ties, rank, ending)

    def _hashes(self) -> Words | None:
        try:
            return np.frombuffer(hash64_each(cast(Any, self._rows)), ">u8")
        except NoCanonicalForm:
            return None


def _ties_of_column(column: pl.Series) -> Words | None:
    """The tie of each row; None if values may not be told apart by their bytes."""
    if column.dtype in _INTEGERS and not column.null_count():
        numbers = column.to_numpy()
        if int(numbers.min()) >= 0:
            return numbers
    elif column.dtype not in _INTEGERS | _HASHED:
        return None
    return _each_once(column, np.uint64, lambda value: value if type(value) is int and value >= 0 else hash64(value))
