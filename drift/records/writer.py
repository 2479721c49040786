"""Writes a record: takes what a run tells, fills parts, seals them.

Invariant: at every moment the manifest on the disk lists whole, synced files that fit together (see `format`).

Why: all tables are sealed at once, between two messages; messages come in the order of cause and effect.
"""

from __future__ import annotations

import io
import os
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from drift.records import columns
from drift.records.blocks import Blocks
from drift.records.columns import Strings, plain, to_arrow
from drift.records.environment import environment
from drift.records.format import (
    MANIFEST,
    TABLES,
    File,
    Manifest,
    Outcome,
    as_file,
    new_hash,
    read_state,
    sealed,
    write_safely,
)
from drift.records.journal import JournalWriter, sync_folder
from drift.records.messages import Arrival, Begin, Finish, LateRow, Learned, Message, Output
from drift.records.tables import ROW_GROUP_ITEMS, SCHEMAS
from drift_barrier.digest import Algorithm
from drift_graph.errors import DriftBug
from drift_graph.meta import NumberedMetas

_ROW_GROUP_BYTES = 32 << 20

#: Takes half as much space again as zstd at its fastest, and two thirds of the time to write and to read.
_LZ4 = "lz4"
_bytes = frozenset({"meta", "global_time", "payload"})
_deltas = ["batch", "time", "position", "at_ns"]
_statistics = ["batch", "time", "position", "block"]


class _HashedFile(io.RawIOBase):
    """A file that hashes what is written to it."""

    def __init__(self, path: Path, algorithm: Algorithm) -> None:
        self._file = path.open("wb", buffering=0)
        self._hash = new_hash(algorithm)
        self.size = 0

    def writable(self) -> bool:
        return True

    def tell(self) -> int:
        return self.size

    def write(self, data: Any) -> int:
        view = memoryview(data).cast("B")
        self._hash.update(view)
        self.size += len(view)
        rest = view
        while rest:
            rest = rest[self._file.write(rest) :]
        return len(view)

    def close(self) -> None:
        if not self.closed:
            self._file.close()
        super().close()

    def sync(self) -> str:
        """Make it safe; returns the hash."""
        os.fsync(self._file.fileno())
        text: str = self._hash.hexdigest()
        return text


class _Table:
    """One table: the part that is being filled."""

    def __init__(self, folder: Path, name: str, algorithm: Algorithm, sealed: list[File]) -> None:
        self._folder = folder
        self._name = name
        self._algorithm = algorithm
        self._schema = SCHEMAS[name]
        self._parts = len(sealed)
        self._first = sum(file.rows for file in sealed)
        self._pending: list[pa.RecordBatch] = []
        self._pending_rows = self._pending_bytes = 0
        self._file: _HashedFile | None = None
        self._parquet: pq.ParquetWriter | None = None
        self.rows = 0  # of the part
        self.bytes = 0

    def add(self, arrays: list[Any]) -> None:
        batch = pa.RecordBatch.from_arrays(arrays, schema=self._schema)
        self._pending.append(batch)
        size = batch.nbytes
        self.rows += len(batch)
        self.bytes += size
        self._pending_rows += len(batch)
        self._pending_bytes += size
        if self._pending_rows >= ROW_GROUP_ITEMS or self._pending_bytes >= _ROW_GROUP_BYTES:
            self._flush()

    def _flush(self) -> None:
        if self._parquet is None:
            (self._folder / self._name).mkdir(exist_ok=True)
            self._file = _HashedFile(self._temporary, self._algorithm)
            self._parquet = pq.ParquetWriter(
                self._file,
                self._schema,
                compression={name: _LZ4 if name in _bytes else "zstd" for name in self._schema.names},
                compression_level={name: 1 for name in self._schema.names if name not in _bytes},
                use_dictionary=[name for name in ("source", "sink", "table") if name in self._schema.names],
                column_encoding={name: "DELTA_BINARY_PACKED" for name in _deltas if name in self._schema.names},
                write_statistics=[name for name in _statistics if name in self._schema.names],
            )
        table = pa.Table.from_batches(self._pending, schema=self._schema)
        self._parquet.write_table(table, row_group_size=ROW_GROUP_ITEMS)
        self._pending = []
        self._pending_rows = self._pending_bytes = 0

    @property
    def _temporary(self) -> Path:
        return self._folder / self._name / f".part-{self._parts:05}.tmp"

    def seal(self) -> File | None:
        """Make the part a file that stays; None where it is empty."""
        if not self.rows:
            return None
        if self._pending:
            self._flush()
        assert self._parquet is not None and self._file is not None
        self._parquet.close()
        found = self._file.sync()
        self._file.close()
        name = f"part-{self._parts:05}.parquet"
        self._temporary.rename(self._folder / self._name / name)
        sync_folder(self._folder / self._name)
        file = File(f"{self._name}/{name}", self._name, self._first, self.rows, self._file.size, found)
        self._first += self.rows
        self._parts += 1
        self.rows = self.bytes = 0
        self._file = self._parquet = None
        return file

    def abandon(self) -> None:
        """Remove the part that is not sealed."""
        if self._file is not None:
            self._file.close()
            self._temporary.unlink(missing_ok=True)


class RecordWriter:
    """Takes messages; `due` says when `seal` is to be called.

    Args:
        begin: the first message; its folder exists and is empty, or holds the record of the manifest in it.
        input_blocks: of a record that goes on, which has no output.
    """

    def __init__(self, begin: Begin, input_blocks: Blocks | None = None) -> None:
        self._begin = begin
        self._folder = Path(begin.folder)
        self.manifest = manifest = msgspec.json.decode(begin.manifest, type=Manifest)
        self._tables = {name: _Table(self._folder, name, manifest.algorithm, manifest.of(name)) for name in TABLES}
        self._output = Blocks(self.manifest.algorithm)
        self._input = input_blocks or Blocks(self.manifest.algorithm)
        self._sources = pa.array([source.name for source in self.manifest.sources], pa.string())
        self._sinks = pa.array(self.manifest.sinks, pa.string())
        self._late_items = manifest.late_items
        self._journal = JournalWriter(self._folder, manifest.algorithm)
        if input_blocks is None:
            self.manifest = msgspec.structs.replace(manifest, **environment(), **self._digests())
            self._write_manifest()
        else:
            _, journal, size = read_state(self._folder)
            self._journal.go_on(journal, size, manifest.growing())

    def handle(self, message: Message) -> None:
        if isinstance(message, Arrival):
            self._arrive(message)
        elif isinstance(message, Output):
            self._release(message)
        elif isinstance(message, Learned):
            self.manifest.classes[message.name] = message.place
        elif isinstance(message, Finish):
            self._finish(message)
        else:
            raise DriftBug(f"the writer of a record was sent a second {type(message).__name__}")

    @property
    def full(self) -> bool:
        """A part has as much as a file should."""
        tables = self._tables.values()
        begin = self._begin
        return any(table.rows >= begin.part_items_max or table.bytes >= begin.part_bytes_max for table in tables)

    @property
    def input_hashes(self) -> list[bytes]:
        """Of the full blocks of the input."""
        return self._input.digest.blocks

    @property
    def unsealed(self) -> bool:
        return any(table.rows for table in self._tables.values())

    def _arrive(self, arrival: Arrival) -> None:
        batch, count = arrival.batch, arrival.count
        source = _constant(self._sources, arrival.source, 1)
        self._tables["arrivals"].add(
            [
                pa.array([batch], pa.int64()),
                source,
                pa.array([count], pa.int64()),
                pa.array([len(arrival.late)], pa.int64()),
                pa.array([arrival.at_ns], pa.int64()),
                pa.array([arrival.heartbeat], pa.binary()),
                pa.array([arrival.first_time is not None]),
            ]
        )
        if count:
            metas = _metas(arrival)
            payloads = columns.values(count, arrival.payloads)
            self._input.add(metas, payloads)
            self._tables["input"].add(
                [
                    _repeated(batch, count),
                    _constant(self._sources, arrival.source, count),
                    plain(columns.times_of(metas), pa.int64()),
                    to_arrow(metas),
                    to_arrow(payloads),
                ]
            )
        if arrival.late:
            self._divert(batch, arrival.source, arrival.late)
        self._late_items += len(arrival.late)

    def _divert(self, batch: int, source: int, late: list[LateRow]) -> None:
        self._tables["late"].add(
            [
                _repeated(batch, len(late)),
                _constant(self._sources, source, len(late)),
                pa.array([row.time for row in late], pa.int64()),
                pa.array([row.heartbeat for row in late], pa.int64()),
                pa.array([row.reason for row in late], pa.string()),
                pa.array([row.payload for row in late], pa.binary()),
            ]
        )

    def _release(self, output: Output) -> None:
        count = output.count
        if output.position != self._output.rows:
            raise DriftBug(f"the writer of a record was told of position {output.position} after {self._output.rows}")
        metas = _metas(output)
        payloads = columns.values(count, output.payloads)
        self._output.add(metas, payloads, output.metas if output.first_time is None else None)
        if isinstance(output.sinks, int):
            sinks = _constant(self._sinks, output.sinks, count)
        else:
            sinks = pa.DictionaryArray.from_arrays(pa.array(output.sinks, pa.int32()), self._sinks)
        self._tables["output"].add(
            [
                plain(np.arange(output.position, output.position + count, dtype=np.int64), pa.int64()),
                sinks,
                plain(columns.times_of(metas), pa.int64()),
                to_arrow(columns.global_times(metas)),
                to_arrow(metas),
                to_arrow(payloads),
            ]
        )

    def seal(self) -> None:
        """Make everything told so far safe, and list it."""
        files = self._seal_tables()
        added = self._journal.append(msgspec.to_builtins(files), self.manifest.growing())
        if added is None:
            self._write_manifest()
        else:
            self.manifest.self_hash = added

    def _seal_tables(self) -> list[File]:
        """The new files; the manifest here has them."""
        for table, blocks in (("input", self._input), ("output", self._output)):
            for block in blocks.take():
                row: list[list[Any]] = [[table], *([value] for value in block)]
                self._tables["blocks"].add(
                    [pa.array(value, field.type) for value, field in zip(row, SCHEMAS["blocks"])]
                )
        files = [file for table in self._tables.values() if (file := table.seal()) is not None]
        manifest = self.manifest
        manifest.files += files
        manifest.items_in, manifest.late_items = self._input.rows, self._late_items
        manifest.items_out = self._output.rows
        for name, digest in self._digests().items():
            setattr(manifest, name, digest)
        return files

    def _digests(self) -> dict[str, str]:
        return {"digest": self._output.digest.hexdigest(), "input_digest": self._input.digest.hexdigest()}

    def _finish(self, finish: Finish) -> None:
        outcome = Outcome(finish.state, finish.error, finish.kind, finish.by_input)  # type: ignore[arg-type]
        self.end(outcome, finish.ended)
        if finish.digest and finish.digest != self.manifest.digest:
            raise DriftBug(
                f"the record's output has digest {self.manifest.digest} and the run's {finish.digest}; please report it"
            )

    def end(self, outcome: Outcome, ended: str) -> None:
        """Seal what is there, with how the run ended."""
        self.manifest.outcome, self.manifest.ended = outcome, ended
        self._seal_tables()
        self._write_manifest()

    def abandon(self) -> None:
        """Leave what is sealed and remove the rest, where writing has failed."""
        for table in self._tables.values():
            table.abandon()

    def _write_manifest(self) -> None:
        self.manifest = sealed(self.manifest)
        data = as_file(self.manifest)
        write_safely(self._folder / MANIFEST, data)
        self._journal.follow(self.manifest.self_hash, len(data), self.manifest.growing())


def _metas(message: Arrival | Output) -> Strings:
    if message.first_time is not None:
        return columns.numbered(NumberedMetas(message.first_time, message.count, message.metas))
    return columns.byte_strings(message.count, message.metas)


def _constant(names: pa.Array, index: int, count: int) -> pa.Array:
    return pa.DictionaryArray.from_arrays(plain(np.full(count, index, np.int32), pa.int32()), names)


def _repeated(value: int, count: int) -> pa.Array:
    return plain(np.full(count, value, np.int64), pa.int64())
