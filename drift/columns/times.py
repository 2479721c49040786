"""The times and ties of rows, from their columns at once.

Invariant: what is found for a row is what `drift_graph.stamps` finds for its dict; where a row may have no time or tie,
or one of another form, nothing is found for the batch, and the dicts decide.

Why: a column of integers holds its times as they are, and a column of timestamps holds microseconds since 1970 in UTC.
"""

from __future__ import annotations

from datetime import UTC, tzinfo
from typing import Any, cast

import numpy as np
import numpy.typing as npt
import polars as pl

from drift.columns.metas import StampMetas, Words, stamp_metas
from drift_graph.canonical import NoCanonicalForm, hash64_each
from drift_graph.meta import TIME_MAX
from drift_graph.payloads import Rows, Timed

Times = npt.NDArray[np.int64]

_INTEGERS = frozenset({pl.Int8, pl.Int16, pl.Int32, pl.Int64, pl.UInt8, pl.UInt16, pl.UInt32, pl.UInt64})
#: The years that datetime holds, without a day at each end.
_FIRST_MS, _LAST_MS = -62_135_510_400_000, 253_402_128_000_000
_IN_MS = {"ms": 1, "us": 1000}


def times_of_column(column: pl.Series, zone: tzinfo | None) -> Times | None:
    """The time of each of one row or more; None if one may have none."""
    kind = column.dtype
    if column.null_count():
        return None
    if kind in _INTEGERS:
        numbers = column.to_numpy()
        return numbers.astype(np.int64) if int(numbers.max()) <= TIME_MAX else None
    if isinstance(kind, pl.Datetime) and kind.time_unit in _IN_MS and (kind.time_zone is not None or zone is UTC):
        times: Times = column.to_physical().to_numpy() // _IN_MS[kind.time_unit]
        return times if times.min() >= _FIRST_MS and times.max() <= _LAST_MS else None
    return None


class TimedRows(Timed):
    """The times of rows.

    Args:
        rows: the payloads, which are hashed where there is no column of ties.
    """

    __slots__ = ("first", "greatest", "_times", "_rows", "_ties")

    def __init__(self, times: Times, rows: Rows, ties: pl.Series | None) -> None:
        self.first, self.greatest = int(times[0]), int(times.max())
        self._times = times
        self._rows = rows
        self._ties = ties

    def within(self, lateness: int) -> int | None:
        least = int(self._times.min())
        if self.greatest - least <= lateness:
            return least
        if self.greatest - least > TIME_MAX:  # 64 bits may be too few for a difference
            return None
        return least if int((np.maximum.accumulate(self._times) - self._times).max()) <= lateness else None

    def metas(self, rank: bytes, ending: bytes) -> StampMetas | None:
        ties = self._hashes() if self._ties is None else _ties_of_column(self._ties)
        return None if ties is None else stamp_metas(self._times, ties, rank, ending)

    def _hashes(self) -> Words | None:
        try:
            return np.frombuffer(hash64_each(cast(Any, self._rows)), ">u8")
        except NoCanonicalForm:
            return None


def _ties_of_column(column: pl.Series) -> Words | None:
    """The tie of each row; None if one may not be an integer of 0 or more."""
    if column.dtype not in _INTEGERS or column.null_count():
        return None
    numbers = column.to_numpy()
    return numbers if int(numbers.min()) >= 0 else None
