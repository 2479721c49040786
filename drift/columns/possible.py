"""What an expression makes is looked at: whether each value is one that a row can have.

Invariant: rows whose columns pass `check_made` are their dicts, so a step that makes dicts of them, or none, gives the
same; a value that fails is named with its field.

Why: columns hold years beyond 9999, nanoseconds, and durations that microseconds in 64 bits do not reach. Engines
differ in where rows become dicts, so such a value would be an error here and a result there; it is one wherever a step
makes it, and what it is, `drift.arrow` says, as of every column that comes from outside.
"""

from __future__ import annotations

from typing import Any

import polars as pl
import pyarrow as pa

from drift.arrow import check_values, common_column, shown
from drift.columns.row_by_row import types_inside
from drift_graph.errors import InputError


def check_made(rows: pl.DataFrame) -> None:
    """
    Raises:
        InputError: a row has a value that no object of Python is; it names the first such row's first field.
    """
    bad = [column for column in rows.get_columns() if needs_check(column.dtype) and _why(column) is not None]
    if not bad:
        return
    at = min(map(_first_other, bad))
    column, why = next((each, why) for each in bad if (why := _why(each.slice(at, 1))) is not None)
    value = " ".join(str(shown(_arrow(column.slice(at, 1)))).split())  # Arrow has lines for what is nested
    raise InputError(
        f"the field {column.name!r} is {column.dtype}, and has the value {value:.200}, "
        f"which a row cannot have: {why}; cast it, to microseconds, to an integer or to a text, or divert such rows, "
        f"on_error='divert'"
    )


def needs_check(kind: Any) -> bool:
    """Whether a column of this type may hold what no object of Python is."""
    return any(part.is_temporal() for part in types_inside(kind))


def _arrow(column: pl.Series) -> pa.Array:
    return column.to_arrow(compat_level=pl.CompatLevel.oldest())


def _why(column: pl.Series) -> Exception | None:
    """What is wrong with a value; None if nothing is."""
    try:
        check_values(common_column(_arrow(column.drop_nulls())))
    except (pa.ArrowException, ValueError, OverflowError) as why:
        return why
    return None


def _first_other(column: pl.Series) -> int:
    """The row of the first such value, of a column that has one."""
    first, count = 0, len(column)
    while count > 1:
        half = count // 2
        if _why(column.slice(first, half)) is not None:
            count = half
        else:
            first, count = first + half, count - half
    return first
