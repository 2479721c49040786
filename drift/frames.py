"""A table of Arrow in other libraries.

Invariant: a frame has the columns of the table, with their names and values; what a library has no type or no name for
is an error, whatever it would make of it.

Why: those conversions are known that lose something without a word, by the types that they are of; all others the
libraries refuse by themselves.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc

from drift.arrow import has_zone, inside
from drift_graph.errors import PayloadError

if TYPE_CHECKING:
    import duckdb
    import pandas
    import polars

_kinds = pa.types
_DOUBLE_MAX = 2**53  # of the integers that are all doubles


def in_pandas(table: pa.Table) -> pandas.DataFrame:
    """Raises PayloadError: pandas has no such values."""
    apart = {at: name for at, name in enumerate(table.column_names) if _is_object_in_pandas(table[name])}
    try:
        frame = table.drop_columns(list(apart.values())).to_pandas()
        for at, name in apart.items():
            as_moments = has_zone(table[name].type)
            frame.insert(at, name, table[name].to_pandas(integer_object_nulls=True, timestamp_as_object=as_moments))
    except pa.ArrowException as error:
        raise _refused("pandas", table, str(error)) from None
    return frame


def _is_object_in_pandas(column: pa.ChunkedArray) -> bool:
    """Nested values, which lose zones and make floats of integers beside None; and integers that are no floats."""
    if column.type.num_fields:
        return True
    if not (_kinds.is_integer(column.type) and column.null_count):
        return False
    ends = pc.min_max(column).as_py().values()
    return any(end is not None and abs(end) > _DOUBLE_MAX for end in ends)


def in_polars(table: pa.Table) -> polars.DataFrame:
    """Raises PayloadError: Polars has no such types."""
    import polars

    unknown = (_kinds.is_decimal256, _kinds.is_date64, lambda kind: isinstance(kind, pa.BaseExtensionType))
    _refuse("Polars", table, unknown)
    try:
        frame = polars.DataFrame(table)
    except polars.exceptions.PolarsError as error:
        raise _refused("Polars", table, str(error)) from None
    frame.columns = table.column_names  # it gives a name to what has none
    return frame


def in_duckdb(table: pa.Table, relation: Callable[[pa.Table], duckdb.DuckDBPyRelation]) -> duckdb.DuckDBPyRelation:
    """Raises PayloadError: DuckDB has no such types or names."""
    import duckdb

    unknown = (
        _kinds.is_decimal256,
        _kinds.is_float16,
        lambda kind: _kinds.is_duration(kind) and kind.unit == "ns",
        lambda kind: _kinds.is_struct(kind) and not all(kind.names),
    )
    _refuse("DuckDB", table, unknown)
    try:
        made = relation(table)
    except (duckdb.DataError, duckdb.NotSupportedError, duckdb.ProgrammingError) as error:  # of the values alone
        raise _refused("DuckDB", table, str(error)) from None
    for name, other in zip(table.column_names, made.columns):
        if name != other:
            raise PayloadError(f"DuckDB would call the column {name!r} {other!r}; rename the field")
    return made


def _refuse(library: str, table: pa.Table, unknown: tuple[Callable[[Any], bool], ...]) -> None:
    for name, kind in zip(table.column_names, table.schema.types):
        for each in inside(kind):
            if any(is_unknown(each) for is_unknown in unknown):
                raise PayloadError(
                    f"{library} has no type for {name!r}, which is {kind}; map its values, for instance to text, or "
                    f"declare another type, columns={{NAME: pyarrow type}}, or take the table as it is, to_arrow()"
                )


def _refused(library: str, table: pa.Table, why: str) -> PayloadError:
    types = ", ".join(f"{name}: {kind}" for name, kind in zip(table.column_names, table.schema.types))
    return PayloadError(
        f"{library} does not take the columns {types:.400}: {why}; map the values, for instance to text, or declare "
        f"other types, columns={{NAME: pyarrow type}}, or take the table as it is, to_arrow()"
    )
