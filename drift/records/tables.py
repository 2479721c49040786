"""The columns of each table of a record."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from drift_barrier.digest import BLOCK_ITEMS

#: Rows of a row group, the unit that is in memory.
ROW_GROUP_ITEMS = 8 * BLOCK_ITEMS

#: What reading a damaged or forged file may raise; even names may be invalid text.
DAMAGE = (OSError, pa.ArrowException, UnicodeDecodeError)

_names = pa.dictionary(pa.int32(), pa.string())
#: Columns whose values mostly repeat: written as indices into a dictionary.
REPEATING = frozenset({"tie", "path"})


def _schema(**columns: pa.DataType) -> pa.Schema:
    """Columns without nulls, which take a quarter less time to write and a third less to read."""
    return pa.schema([pa.field(name, kind, nullable=False) for name, kind in columns.items()])


SCHEMAS = {
    "arrivals": _schema(
        batch=pa.int64(),
        source=_names,
        items=pa.int64(),
        late=pa.int64(),
        at_ns=pa.int64(),
        heartbeat=pa.binary(),
        numbered=pa.bool_(),
    ),
    "input": _schema(
        batch=pa.int64(),
        source=_names,
        time=pa.int64(),
        tie=pa.binary(),
        payload=pa.binary(),
    ),
    "late": _schema(
        batch=pa.int64(),
        source=_names,
        time=pa.int64(),
        heartbeat=pa.int64(),
        reason=pa.string(),
        payload=pa.binary(),
    ),
    "answers": _schema(
        call=pa.string(),
        meta=pa.binary(),
        failed=pa.bool_(),
        payload=pa.binary(),
    ),
    "output": _schema(
        position=pa.int64(),
        sink=_names,
        time=pa.int64(),
        tie=pa.binary(),
        path=pa.binary(),
        payload=pa.binary(),
    ),
    "blocks": _schema(
        table=_names,
        block=pa.int64(),
        rows=pa.int64(),
        hash=pa.binary(),
        meta_checks=pa.binary(),
        payload_checks=pa.binary(),
    ),
}


def encoding(schema: pa.Schema) -> dict[str, Any]:
    """Arguments of a `ParquetWriter` for a table: numbers are packed, and what may repeat has a dictionary.

    Ties that are all different, and payloads that hardly shrink, take no more time so than it takes to look for them.
    """
    numbers = [field.name for field in schema if field.type == pa.int64()]
    return {
        "compression": "lz4",  # twice as fast as zstd, to write and to read, with files half as large again
        "use_dictionary": [field.name for field in schema if field.type == _names or field.name in REPEATING],
        "column_encoding": dict.fromkeys(numbers, "DELTA_BINARY_PACKED"),
        "write_statistics": numbers,
    }


def unread(path: Any, error: Exception) -> str:
    """The message for a file that cannot be read."""
    if isinstance(error, OSError) and error.errno is not None:
        return f"{path} cannot be read: {os.strerror(error.errno)}"
    return f"{path} is damaged: {error}"


def open_table(path: Path, table: str, *, coded: bool = False) -> pq.ParquetFile:
    """Open a file of a table.

    Args:
        coded: whether to return dictionary columns as such (files of one table may differ), and to map the file into
            memory.

    Raises:
        OSError, pa.ArrowException: it cannot be read, or has not the columns of its table.
    """
    parquet = pq.ParquetFile(path, memory_map=coded)
    try:
        _check_columns(parquet, table)
    except pa.ArrowException:
        parquet.close()
        raise
    if not coded:
        return parquet
    metadata = parquet.metadata
    parquet.close()
    return pq.ParquetFile(path, metadata=metadata, memory_map=True, read_dictionary=_repeating(metadata))


def _check_columns(parquet: pq.ParquetFile, table: str) -> None:
    found, wanted = parquet.schema_arrow, SCHEMAS[table]
    if not found.equals(wanted):
        raise pa.ArrowInvalid(f"its columns are {found.to_string()}, and should be {wanted.to_string()}")


def _repeating(metadata: pq.FileMetaData) -> list[str]:
    """The columns of a file that have a dictionary."""
    found: set[str] = set()
    for group in range(metadata.num_row_groups):
        columns = (metadata.row_group(group).column(index) for index in range(metadata.num_columns))
        found |= {column.path_in_schema for column in columns if column.has_dictionary_page}
    return sorted(found & REPEATING)


def check_values(rows: Any) -> Any:
    """The rows, of a RecordBatch or a Table. Raises pa.ArrowInvalid: a text is not valid UTF-8."""
    for column in rows.columns:
        if column.type in (pa.string(), _names):
            column.validate(full=True)
    return rows
