"""Tables in memory: DataFrames of pandas and Polars, tables of Arrow, relations of DuckDB.

Invariant: a table gives its rows in their order, and equal tables equal payloads, whichever library made them.

Why: every table is read as batches of Arrow, through the one way from its columns to Python values.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, Literal

from drift.extras import is_installed, need
from drift.guarantees import SourceGuarantee
from drift.sources.base import Diverting, Reader
from drift.sources.frames import Payload
from drift.sources.rows import Maker, RowsReader, check_payload, without
from drift_graph.errors import InputError, SettingsError

if TYPE_CHECKING:
    import pyarrow as pa


def table(frame: Any, *, payload: Literal["dict", "tuple", "value", "rows"] = "dict", type: Any = None) -> TableSource:
    """A table as a source: each row is a payload, in the order of the table. DataFrames can also be passed directly.

    Timestamps become datetimes in microseconds, in UTC if they have a zone; missing values (null, and NaN and NaT of
    pandas) become None; categories become their values; structs become dicts. The index of a pandas DataFrame is not a
    column.

    Args:
        frame: a DataFrame of pandas or Polars, a table or batch of PyArrow, a relation of DuckDB, or anything else with
            Arrow's stream interface. For a DataFrame of Spark pass `frame.toArrow()`.
        payload: "dict" of column names and values, a "tuple" of the values, or the "value" of the only column; "rows"
            for dicts that stay columns until a function asks for one (extra `columns`).
        type: each row, as a dict, is converted to it, for instance a dataclass or a msgspec Struct.

    Raises:
        SettingsError: `frame` has no rows that Arrow can read, or `type` is given for payloads that are no dicts.
    """
    need("tables", "drift.sources.table")
    check_payload("table", payload, type)
    if not is_table(frame):
        raise SettingsError(
            f"drift.sources.table({frame!r:.80}) is given neither a DataFrame of pandas or Polars nor a table of Arrow"
        )
    return TableSource(frame, payload, type)


def is_table(values: Any) -> bool:
    """Whether it has rows that Arrow can read."""
    kind = type(values)
    has_columns = hasattr(kind, "columns") or hasattr(kind, "schema")
    return has_columns and any(hasattr(kind, name) for name in ("__arrow_c_stream__", "__arrow_c_array__"))


class TableSource(Diverting):
    """See `table`.

    Args:
        payload: None for rows, where the extra `columns` is installed and they can be of all types of the table, else
            for dicts: a row is its dict.
    """

    live = False
    guarantee = SourceGuarantee("from a position", "the number of a row, as long as the table is there")

    def __init__(self, frame: Any, payload: Payload | None, kind: Any) -> None:
        if _is_read_once(frame):
            self.guarantee = SourceGuarantee("not at all", f"a {type(frame).__name__} is read once")
        self._frame = frame
        self._payload = payload
        self._kind = kind

    def open(self) -> Reader:
        name = f"the {type(self._frame).__name__}"
        schema, batches = _batches(name, self._frame)
        payload = self._payload or ("rows" if _can_be_rows(schema) else "dict")
        rows = getattr(self._frame, "num_rows", None) or getattr(self._frame, "height", None)

        def behind(rows: int) -> Iterator[pa.RecordBatch]:
            return without(rows, _batches(name, self._frame)[1])

        return RowsReader(
            name,
            batches,
            Maker(name, schema.names, payload, self._kind),
            rows if type(rows) is int else None,
            behind=None if _is_read_once(self._frame) else behind,
            diverts_as=self._diverts_as,
        )

    def __repr__(self) -> str:
        return f"table({type(self._frame).__name__})"


def _is_read_once(frame: Any) -> bool:
    return type(frame).__name__ == "RecordBatchReader"


def _can_be_rows(schema: pa.Schema) -> bool:
    if not is_installed("columns") or len(set(schema.names)) < len(schema.names):
        return False
    import pyarrow as pa

    from drift.columns.rows import frame_of_batch

    try:
        empty = [each.combine_chunks() for each in schema.empty_table().columns]
        frame_of_batch(schema.names, pa.RecordBatch.from_arrays(empty, schema=schema))
    except (InputError, pa.ArrowException):
        return False
    return True


def _batches(name: str, frame: Any) -> tuple[pa.Schema, Iterator[pa.RecordBatch]]:
    import pyarrow as pa

    try:
        if hasattr(frame, "itertuples"):  # of pandas, whose index would become a column
            frame = pa.Table.from_pandas(frame, preserve_index=False)
        if isinstance(frame, pa.RecordBatch):
            return frame.schema, iter([frame])
        reader = pa.RecordBatchReader.from_stream(frame)
    except (pa.ArrowException, TypeError, ValueError, OverflowError) as error:
        raise InputError(f"{name} is no table to Arrow: {error}; give its columns one type each") from error
    return reader.schema, iter(reader)
