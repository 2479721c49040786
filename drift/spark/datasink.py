"""Writes rows into a record: `df.writeStream.format("drift")`, `df.write.format("drift")`.

Invariant: a micro-batch is in the record completely and once, even if Spark gives it again after a crash; and a replay
of the record gives the output of a run over the rows.

Why: tasks write the rows to staging files under unique names. When all tasks have, one process gives the items their
global times, in the order of the tasks, and seals them together with the number of the micro-batch (see
`drift.records.appending`). A number that is already sealed is skipped.
"""

from __future__ import annotations

import shutil
import uuid
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import xxhash
from pyspark.sql.datasource import DataSourceArrowWriter, DataSourceStreamArrowWriter, WriterCommitMessage

from drift.load import absolute_target, load_dataflow
from drift.records.appending import Appender, WrittenBatch
from drift.records.reader import restored_many
from drift.spark.frames import Reading
from drift.strings import of_arrow
from drift_graph.canonical import stored_each
from drift_graph.errors import SettingsError
from drift_graph.policies import ArrivalTime

_STAGED = pa.schema([("source", pa.string()), ("payload", pa.binary())])
_STAGING = ".staged"
_ROWS_AT_ONCE = 1 << 14


@dataclass(frozen=True)
class Target:
    """The options of a write.

    Attributes:
        path: the record.
        graph: FILE:NAME of the graph.
        source: the source that all rows are of; "" if a column names it.
        column: that column.
        payload: what a payload is made of.
        writer: the checkpoint of the stream; "" for a batch.
    """

    path: Path
    graph: str
    source: str
    column: str
    payload: Any
    writer: str

    @staticmethod
    def of(options: Any, schema: Any, overwrite: bool) -> Target:
        """
        Raises:
            SettingsError: an option is missing, or does not fit the graph or the columns.
        """
        path, graph = options.get("path"), options.get("graph")
        if path is None or graph is None:
            raise SettingsError(
                "format 'drift' writes the input of a graph to a record: .option('graph', 'FILE.py:NAME') says which "
                "graph, and .start(PATH) or .save(PATH) where the record is to be"
            )
        if overwrite:
            raise SettingsError("a record is never overwritten; write with mode 'append' to a folder that is not there")
        sources = [source.name for source in load_dataflow(graph).sources]
        source, column = options.get("source", ""), options.get("sourceColumn", "")
        if column and column not in schema.names:
            raise SettingsError(f"sourceColumn={column!r} is none of the columns {', '.join(schema.names)}")
        if not source and not column and len(sources) == 1:
            source = sources[0]
        if source not in sources and not (column and not source):
            raise SettingsError(
                f"the graph {graph} has the sources {', '.join(map(repr, sources))}; say which one the rows are of, "
                f"with option source, or which column has it, with option sourceColumn"
            )
        payload = options.get("payload", "dict")
        if payload not in ("dict", "tuple", "value") or (payload == "value" and len(schema.names) - bool(column) != 1):
            raise SettingsError(
                f"payload={payload!r} does not fit; it is 'dict' or 'tuple' of the columns, or 'value' of the only one"
            )
        path = Path(path.removeprefix("file:")).absolute()
        return Target(path, absolute_target(graph), source, column, payload, options.get("checkpointLocation", ""))


@dataclass
class Staged(WriterCommitMessage):
    """The staging file of a task; `check` is a checksum over its rows that does not depend on their order."""

    name: str
    rows: int
    check: int


class _Writer:
    """Common to both kinds of write: tasks `write`, and one process does the rest."""

    def __init__(self, target: Target) -> None:
        self._target = target

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        """Write the rows of a task to a staging file."""
        target = self._target
        folder = target.path / _STAGING
        folder.mkdir(parents=True, exist_ok=True)
        staged = Staged(uuid.uuid4().hex, 0, 0)
        with pq.ParquetWriter(folder / staged.name, _STAGED, compression="lz4") as file:
            for batch in iterator:
                payloads = stored_each(self._payloads(batch))
                sources = batch.column(target.column).to_pylist() if target.column else [target.source] * len(batch)
                arrays = [pa.array(sources, pa.string()), pa.array(payloads, pa.binary())]
                file.write_batch(pa.RecordBatch.from_arrays(arrays, schema=_STAGED))
                staged.rows += len(batch)
                staged.check = (staged.check + sum(map(xxhash.xxh64_intdigest, payloads))) % 2**63
        return staged

    def _payloads(self, batch: pa.RecordBatch) -> Any:
        names = tuple(name for name in batch.schema.names if name != self._target.column)
        return Reading("", 0, ArrivalTime(), self._target.payload, names, False).payloads(batch.select(names))

    def _append(self, messages: Sequence[WriterCommitMessage | None], number: int | None) -> None:
        """Append a micro-batch to the record, or all rows to a new record."""
        target = self._target
        staged = [message for message in messages if isinstance(message, Staged)]
        batch = WrittenBatch(
            0 if number is None else number,
            sum(each.rows for each in staged),
            sum(each.check for each in staged) % 2**63,
        )
        appender = Appender(
            target.path, load_dataflow(target.graph), target.graph, target.writer, complete=number is None
        )
        if not _is_done(appender.last, batch, target):
            try:
                for each in staged:
                    for source, payloads in self._staged(each):
                        appender.add(source, payloads)
                if number is None:
                    appender.end()
                else:
                    appender.commit(batch)
            except BaseException:
                appender.abandon()
                raise
        self._remove()

    def _staged(self, staged: Staged) -> Iterator[tuple[str, list[Any]]]:
        """The rows in a task's staging file, by source."""
        with pq.ParquetFile(self._target.path / _STAGING / staged.name) as file:
            for batch in file.iter_batches(_ROWS_AT_ONCE):
                sources = batch.column("source")
                for source in pc.unique(sources).to_pylist():
                    rows = batch.filter(pc.equal(sources, source))
                    yield source, restored_many(of_arrow(rows.column("payload")), {})

    def _remove(self) -> None:
        """Remove the staging files, also those of tasks that died."""
        shutil.rmtree(self._target.path / _STAGING, ignore_errors=True)


class StreamSink(_Writer, DataSourceStreamArrowWriter):
    """Appends micro-batches to a record."""

    def commit(self, messages: Sequence[WriterCommitMessage | None], batchId: int) -> None:
        self._append(messages, batchId)

    def abort(self, messages: Sequence[WriterCommitMessage | None], batchId: int) -> None:
        self._remove()


class BatchSink(_Writer, DataSourceArrowWriter):
    """Writes a DataFrame as the whole input of a record."""

    def commit(self, messages: Sequence[WriterCommitMessage | None]) -> None:
        self._append(messages, None)

    def abort(self, messages: Sequence[WriterCommitMessage | None]) -> None:
        self._remove()


def _is_done(last: WrittenBatch, batch: WrittenBatch, target: Target) -> bool:
    """Whether a micro-batch is in the record already.

    Raises:
        SettingsError: the record and Spark's checkpoint do not match.
    """
    if batch == last:
        return True
    if batch.number == last.number + 1:
        return False
    rows = f" with {batch.rows:,} rows" if batch.number == last.number else ""
    raise SettingsError(
        f"Spark writes micro-batch {batch.number}{rows}, and the last one in the record {target.path} is "
        f"{last.number}, with {last.rows:,} rows: the checkpoint or the record was removed or restored, or the source "
        f"sent other rows the second time; write another record, with another checkpoint"
    )
