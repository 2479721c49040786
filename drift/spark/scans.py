"""DataFrames that are files of Parquet as they are: tasks read the files themselves, past Spark's reader.

Invariant: tasks get the rows that Spark's reader would give, in columns of the types that it would give; of files that
are others by then, none.

Why: nothing is above the scan, which has no options and is not persisted; each file has the columns of the DataFrame
and no others, in types that mean the same to Spark and to Arrow (of moments, decimals and nested values Spark's reader
decides more than their type says). Everything else is read by Spark, where Java makes rows of the columns of Parquet,
and columns of Arrow of these rows, which costs more than to compute a window of them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import unquote, urlsplit

import pyarrow as pa
import pyarrow.parquet as pq

from drift.sources.parquet import identity_of
from drift.spark.frames import Reading
from drift.spark.kernels import Work
from drift.spark.partitions import read_by_tasks
from drift.spark.schemas import arrow_schema
from drift_graph.errors import InputError

_PARQUET = "org.apache.spark.sql.execution.datasources.parquet.ParquetFileFormat"
_SIZED = (pa.int8(), pa.int16(), pa.int32(), pa.int64(), pa.float32(), pa.float64())
_MEAN_THE_SAME = {*_SIZED, pa.bool_(), pa.string(), pa.binary()}
_AS_SPARK = {pa.large_string(): pa.string(), pa.string_view(): pa.string(), pa.large_binary(): pa.binary()}
_PARTITION_ROWS_MAX = 1 << 19
_SOME_ROWS, _BATCH_ROWS, _BATCH_BYTES = 1 << 10, 1 << 16, 16 << 20


class Groups(NamedTuple):
    """Some of the row groups of a file, the last one excluded."""

    path: str
    identity: str
    first: int
    last: int


class Found(NamedTuple):
    """A file as it was when the run was planned.

    Attributes:
        rows: how many each row group has.
    """

    identity: str
    rows: list[int]


class Scan(NamedTuple):
    """The files of a DataFrame, by their paths."""

    schema: pa.Schema
    files: dict[str, Found]


def scan_of(frame: Any) -> Scan | None:
    """The scan that a DataFrame is; None if Spark has to read it."""
    if not hasattr(frame, "_jdf"):  # over Connect nobody shows its plan
        return None
    plan, level = frame._jdf.queryExecution().analyzed(), frame.storageLevel
    if plan.getClass().getSimpleName() != "LogicalRelation" or level.useMemory or level.useDisk:
        return None
    relation = plan.relation()
    if relation.getClass().getSimpleName() != "HadoopFsRelation":
        return None
    is_plain = relation.fileFormat().getClass().getName() == _PARQUET and relation.partitionSchema().isEmpty()
    if not is_plain or not relation.options().removed("path").isEmpty():
        return None
    files = [urlsplit(str(file)) for file in relation.location().inputFiles()]
    paths = [unquote(file.path) for file in files]
    if any(file.scheme != "file" for file in files) or len(set(paths)) < len(paths):
        return None
    schema = arrow_schema(frame.schema)
    if not all(field.type in _MEAN_THE_SAME for field in schema):
        return None
    found = {path: file for path in paths if (file := _found(path, schema)) is not None}
    has_rows = any(any(file.rows) for file in found.values())
    return Scan(schema, found) if has_rows and len(found) == len(paths) else None


def _found(path: str, schema: pa.Schema) -> Found | None:
    """A file; None if its columns are others."""
    try:
        with Path(path).open("rb") as file:
            identity = identity_of(file)
        known = pq.read_metadata(path)
        own = known.schema.to_arrow_schema()
    except Exception:  # raised again by Spark, if it cannot read the file either
        return None
    fields = [(field.name, _AS_SPARK.get(field.type, field.type)) for field in own]
    if fields != [(field.name, field.type) for field in schema]:
        return None
    return Found(identity, [known.row_group(number).num_rows for number in range(known.num_row_groups)])


def level_0(spark: Any, scan: Scan, work: Work, reading: Reading, read: Callable[..., Iterator[pa.RecordBatch]]) -> Any:
    """From the rows of files to rows of batches."""
    return read_by_tasks(spark, partitions_of(scan, work.targets), partial(_read, scan.schema, work, reading, read))


def partitions_of(scan: Scan, tasks: int) -> list[Groups]:
    """Row groups that one task reads: neighbours, of one file, of a share of all rows."""
    every = sum(sum(file.rows) for file in scan.files.values())
    most = min(-(-every // tasks), _PARTITION_ROWS_MAX)
    found: list[Groups] = []
    for path, file in scan.files.items():
        first = held = 0
        for number, count in enumerate(file.rows):
            if held and held + count > most:
                found.append(Groups(path, file.identity, first, number))
                first, held = number, 0
            held += count
        if held:
            found.append(Groups(path, file.identity, first, len(file.rows)))
    return found


def _read(
    schema: pa.Schema, work: Work, reading: Reading, read: Callable[..., Iterator[pa.RecordBatch]], groups: Groups
) -> Iterator[pa.RecordBatch]:
    yield from read(work, reading, _batches(schema, groups))


def _batches(schema: pa.Schema, groups: Groups) -> Iterator[pa.RecordBatch]:
    numbers = list(range(groups.first, groups.last))
    try:
        with pq.ParquetFile(groups.path, memory_map=True) as file, Path(groups.path).open("rb") as now:
            if identity_of(now) != groups.identity:
                raise InputError(f"{groups.path} is another file than when the run began; run it again")
            some = next(file.iter_batches(_SOME_ROWS, row_groups=numbers, use_threads=False))
            size = max(min(_BATCH_BYTES * some.num_rows // (some.nbytes or 1), _BATCH_ROWS), 1)
            for batch in file.iter_batches(size, row_groups=numbers, use_threads=False):
                yield batch.cast(schema)
    except (OSError, pa.ArrowException) as error:
        raise InputError(f"{groups.path} cannot be read as Parquet: {error}; check the file") from None
