"""The times and ties of rows, from their columns at once.

Invariant: what is found for a row is what `drift_graph.stamps` finds for its dict; where a row may have no time or tie,
or one of another form, nothing is found for the batch, and the dicts decide.

Why: a column of integers holds its times as they are, and a column of timestamps holds microseconds since 1970 in UTC.
Of texts, and of times without a zone, each different one is read once, as that of a dict is.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable, Sequence
from datetime import UTC
from typing import Any, cast

import numpy as np
import numpy.typing as npt
import polars as pl
import pyarrow as pa

from drift.arrow import python_values
from drift_graph.canonical import NoCanonicalForm, hash64, hash64_each
from drift_graph.meta import TIME_MAX
from drift_graph.payloads import Rows, Timed
from drift_graph.policies import EventTime

Times = npt.NDArray[np.int64]
Words = npt.NDArray[np.uint64]

_INTEGERS = frozenset({pl.Int8, pl.Int16, pl.Int32, pl.Int64, pl.UInt8, pl.UInt16, pl.UInt32, pl.UInt64})
_FLOATS = frozenset({pl.Float32, pl.Float64})
_HASHED = frozenset({pl.String, pl.Binary, pl.Boolean, pl.Date})
#: The years that datetime holds, without a day at each end.
_FIRST_MS, _LAST_MS = -62_135_510_400_000, 253_402_128_000_000
_IN_MS, _DAY_MS = {"ms": 1, "us": 1000}, 86_400_000


def times_of_column(column: pl.Series, policy: EventTime) -> Times | None:
    """The time of each of one row or more; None if one may have none."""
    kind, zone = column.dtype, policy.zone
    if column.null_count():
        return None
    if kind in _INTEGERS and policy.unit is None:
        numbers = column.to_numpy()
        return numbers.astype(np.int64) if int(numbers.max()) <= TIME_MAX else None
    if isinstance(kind, pl.Datetime) and kind.time_unit in _IN_MS and (kind.time_zone is not None or zone is UTC):
        times: Times = column.to_physical().to_numpy() // _IN_MS[kind.time_unit]
        return times if times.min() >= _FIRST_MS and times.max() <= _LAST_MS else None
    if isinstance(kind, (pl.String, pl.Datetime)) or (policy.unit is not None and kind in (*_INTEGERS, *_FLOATS)):
        read: Times | None = _each_once(column, np.int64, policy.time_of)
        return read
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


def _each_once(column: pl.Series, kind: type[Any], number_of: Callable[[Any], int | None]) -> Any:
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
        times: of the rows.
        rows: the payloads, which are hashed where there is no column of ties.
    """

    __slots__ = ("times", "_rows", "_ties")

    def __init__(self, times: Times, rows: Rows, ties: pl.Series | None) -> None:
        self.times = array("q", times.tobytes())  # its numbers are Python's, for whoever reads them
        self._rows = rows
        self._ties = ties

    def ties(self, order: Sequence[int] | None) -> Words | None:
        if self._ties is not None:
            return _ties_of_column(self._ties if order is None else self._ties.gather(list(order)))
        try:
            hashes = hash64_each(cast(Any, self._rows if order is None else self._rows.in_order(order)))
        except NoCanonicalForm:
            return None
        return np.frombuffer(hashes, ">u8").astype(np.uint64)


def _ties_of_column(column: pl.Series) -> Words | None:
    """The tie of each row; None if values may not be told apart by their bytes."""
    if column.dtype in _INTEGERS and not column.null_count():
        numbers = column.to_numpy()
        if int(numbers.min()) >= 0:
            return numbers.astype(np.uint64)
    elif column.dtype not in _INTEGERS | _HASHED:
        return None
    found: Words | None = _each_once(
        column, np.uint64, lambda value: value if type(value) is int and value >= 0 else hash64(value)
    )
    return found
