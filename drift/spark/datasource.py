"""Reads a record as a DataFrame or a stream: `spark.read.format("drift")`, `spark.readStream.format("drift")`.

`datasink` writes records.

Invariant: only files that a record's manifest lists are read, each row once, in the order of row numbers; a stream that
is restarted from its checkpoint reads the same rows between the same offsets.

Why: a sealed file never changes or moves, and a row is identified by its number over all files of its table.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql.datasource import (
    DataSource,
    DataSourceReader,
    DataSourceStreamReader,
    DataSourceStreamWriter,
    DataSourceWriter,
    InputPartition,
)
from pyspark.sql.streaming.datasource import ReadLimit, ReadMaxRows, SupportsTriggerAvailableNow

from drift.records.format import Manifest, RecordError, read_manifest
from drift.records.metas import GLOBAL_TIME, metas_of
from drift.records.reader import Record, restored_many
from drift.sinks.typed import payload_arrays
from drift.spark.datasink import BatchSink, StreamSink, Target
from drift.spark.schemas import arrow_schema
from drift.strings import of_arrow, to_arrow
from drift_graph.errors import SettingsError

_SCHEMAS = {
    "output": "position long, sink string, time long, global_time binary, meta binary, payload binary",
    "input": "row long, source string, time long, global_time binary, payload binary",
    "late": "row long, source string, time long, heartbeat long, reason string, payload binary",
}
_NUMBERS = {"output": "position", "input": "row", "late": "row"}
_SPLIT_ROWS = 1 << 18
_ROWS_AT_ONCE = 1 << 14


class RecordSource(DataSource):
    """The format "drift".

    Options:
        path: the record; what `load` is given.
        table: "output" (if not given), "input" or "late".
        sink: only the items of this sink, or this source of the other tables.
        columns: names and types of the payload's fields, which then take the place of `payload`: "word string, n long".
        maxRowsPerBatch: most rows of a micro-batch, for a stream.

    Options of a write, which makes a record of input (see `drift.spark.datasink`):
        path: the record; what `start` or `save` is given.
        graph: the graph that the rows are the input of, "FILE.py:NAME".
        source, sourceColumn: which of its sources the rows are of, or the column that says it; not needed for one.
        payload: what a row makes: a "dict" of its columns (if not given), a "tuple", or the "value" of the only one.
    """

    @classmethod
    def name(cls) -> str:
        return "drift"

    def schema(self) -> str:
        wanted = _Wanted.of(self.options)
        plain = _SCHEMAS[wanted.table]
        return plain.removesuffix("payload binary") + wanted.columns if wanted.columns else plain

    def reader(self, schema: Any) -> DataSourceReader:
        return _Reader(_Wanted.of(self.options), schema)

    def writer(self, schema: Any, overwrite: bool) -> DataSourceWriter:
        return BatchSink(Target.of(self.options, schema, overwrite))

    def streamWriter(self, schema: Any, overwrite: bool) -> DataSourceStreamWriter:
        return StreamSink(Target.of(self.options, schema, overwrite))

    def streamReader(self, schema: Any) -> DataSourceStreamReader:
        return _StreamReader(_Wanted.of(self.options), schema)


@dataclass(frozen=True)
class _Wanted:
    """The options."""

    path: str
    table: str
    only: str | None
    columns: str
    rows_max: int | None

    @staticmethod
    def of(options: Any) -> _Wanted:
        path, table = options.get("path"), options.get("table", "output")
        if path is None:
            raise SettingsError("format 'drift' reads a record: .load(PATH), with the PATH of drift.run(record=PATH)")
        if table not in _SCHEMAS:
            raise SettingsError(f"option table={table!r} is none of {', '.join(_SCHEMAS)}")
        most = options.get("maxRowsPerBatch")
        if most is not None and not (most.isdecimal() and int(most) > 0):
            raise SettingsError(f"option maxRowsPerBatch={most!r} is not a whole number above 0")
        path = path.removeprefix("file:")
        return _Wanted(path, table, options.get("sink"), options.get("columns", ""), int(most) if most else None)

    def manifest(self) -> Manifest:
        return read_manifest(Path(self.path))

    def rows_in(self, manifest: Manifest) -> int:
        return sum(file.rows for file in manifest.of(self.table))


@dataclass
class _Rows(InputPartition):
    """A range of rows of one file."""

    path: str
    first: int
    start: int
    end: int


def _partitions(wanted: _Wanted, start: int, end: int) -> list[_Rows]:
    found: list[_Rows] = []
    for file in wanted.manifest().of(wanted.table):
        low, high = max(start, file.first), min(end, file.first + file.rows)
        found += [_Rows(file.path, file.first, at, min(at + _SPLIT_ROWS, high)) for at in range(low, high, _SPLIT_ROWS)]
    return found


class _RowReader:
    """Reads rows in a task."""

    def __init__(self, wanted: _Wanted, schema: Any) -> None:
        self._wanted = wanted
        self._fields: list[pa.Field] = list(arrow_schema(schema))

    def read(self, partition: Any) -> Iterator[pa.RecordBatch]:
        """The rows of a partition."""
        if not partition.path:
            return
        path = Path(self._wanted.path) / partition.path
        try:
            with pq.ParquetFile(path) as file:
                row = partition.first
                for group in range(file.metadata.num_row_groups):
                    rows = file.metadata.row_group(group).num_rows
                    if row < partition.end and row + rows > partition.start:
                        for batch in file.iter_batches(_ROWS_AT_ONCE, row_groups=[group], use_threads=False):
                            low, high = max(partition.start - row, 0), min(partition.end - row, len(batch))
                            if low < high:
                                yield self._batch(batch.slice(low, high - low), row + low)
                            row += len(batch)
                    else:
                        row += rows
        except FileNotFoundError:
            raise RecordError(f"{path} is missing from the record, or not to be seen from this machine") from None

    def _batch(self, batch: pa.RecordBatch, first: int) -> pa.RecordBatch:
        wanted = self._wanted
        number = _NUMBERS[wanted.table]
        if number not in batch.schema.names:
            batch = batch.append_column(number, pa.array(range(first, first + len(batch)), pa.int64()))
        if wanted.only is not None:
            name = "sink" if wanted.table == "output" else "source"
            batch = batch.filter(pa.compute.equal(batch.column(name), wanted.only))
        if wanted.table != "late":
            batch = _with_metas(batch)
        plain = self._fields
        arrays: list[pa.Array] = []
        if wanted.columns:
            plain = self._fields[: _SCHEMAS[wanted.table].count(",")]
            classes = Record(wanted.path).classes
            payloads = restored_many(of_arrow(batch.column("payload")), classes) if len(batch) else []
            arrays = payload_arrays(payloads, self._fields[len(plain) :], wanted.only or wanted.table)
        arrays = [*(batch.column(field.name).cast(field.type) for field in plain), *arrays]
        return pa.RecordBatch.from_arrays(arrays, names=[field.name for field in self._fields])


def _with_metas(batch: pa.RecordBatch) -> pa.RecordBatch:
    """Rows with their global times as one column, and their metas as another if they have paths."""
    batch = batch.append_column("global_time", to_arrow(metas_of(batch, GLOBAL_TIME)))
    return batch.append_column("meta", to_arrow(metas_of(batch))) if "path" in batch.schema.names else batch


class _Reader(_RowReader, DataSourceReader):
    def partitions(self) -> Sequence[_Rows]:
        wanted = self._wanted
        return _partitions(wanted, 0, wanted.rows_in(wanted.manifest())) or [_Rows("", 0, 0, 0)]


class _StreamReader(_RowReader, DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Streams rows as they are sealed; an offset is the number of rows sealed so far."""

    _end: int | None = None  # where trigger(availableNow=True) ends

    def initialOffset(self) -> dict[str, int]:
        return {"rows": 0}

    def getDefaultReadLimit(self) -> ReadLimit:
        most = self._wanted.rows_max
        return ReadMaxRows(most) if most is not None else super().getDefaultReadLimit()

    def prepareForTriggerAvailableNow(self) -> None:
        self._end = self._wanted.rows_in(self._wanted.manifest())

    def latestOffset(self, start: dict[str, int], limit: ReadLimit) -> dict[str, int]:
        try:
            rows = self._end if self._end is not None else self._wanted.rows_in(self._wanted.manifest())
        except RecordError:
            if Path(self._wanted.path).is_dir():
                raise
            rows = 0  # the run has not sealed anything yet
        if isinstance(limit, ReadMaxRows):
            rows = min(rows, start["rows"] + limit.max_rows)
        return {"rows": max(rows, start["rows"])}

    def partitions(self, start: dict[str, int], end: dict[str, int]) -> Sequence[_Rows]:
        return _partitions(self._wanted, start["rows"], end["rows"])

    def commit(self, end: dict[str, int]) -> None:
        pass  # a record keeps everything
