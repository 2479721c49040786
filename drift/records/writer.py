"""Writes a record: takes the messages of a run, fills parts, seals them.

Invariant: at every moment the manifest on the disk lists complete, synced files that fit together (see `format`).

Why: all tables are sealed at once, between two messages; messages come in the order of cause and effect.
"""

from __future__ import annotations

import io
import os
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, Generic, TypeVar

import msgspec
import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq

from drift.arrow import numbers_column
from drift.places import sync, write_safely
from drift.records.blocks import Block, Blocks
from drift.records.columns import Parts, split, values
from drift.records.environment import environment
from drift.records.format import (
    MANIFEST,
    TABLES,
    File,
    Manifest,
    Outcome,
    as_file,
    sealed,
)
from drift.records.journal import JournalWriter
from drift.records.messages import Answers, Arrival, Begin, Finish, LateRow, Learned, Message, Output
from drift.records.tables import ROW_GROUP_ITEMS, SCHEMAS, encoding
from drift_barrier.digest import BLOCK_ITEMS, Algorithm, new_hash
from drift_graph.errors import DriftBug
from drift_graph.metas import Metas

_ROW_GROUP_BYTES = {"blocks": 1 << 20}
_ROW_GROUP_BYTES_MAX = 32 << 20
_BATCH_BYTES_MAX = 1 << 30  # columns of files have offsets of 32 bits
#: Messages are made into columns in batches of this size: a few rows cost as much as thousands.
_GATHERED_ITEMS = 8 * BLOCK_ITEMS
_GATHERED_BYTES = 8 << 20


class _HashedFile(io.RawIOBase):
    """A file that hashes what is written to it."""

    def __init__(self, path: Path, algorithm: Algorithm) -> None:
        self._file = path.open("wb", buffering=0)
        self._hash = new_hash(algorithm)
        self.size = 0
        self.drops = False  # what is written

    def writable(self) -> bool:
        return True

    def tell(self) -> int:
        return self.size

    def write(self, data: Any) -> int:
        view = memoryview(data).cast("B")
        self._hash.update(view)
        self.size += len(view)
        rest = view
        while rest and not self.drops:
            rest = rest[self._file.write(rest) :]
        return len(view)

    def close(self) -> None:
        if not self.closed:
            self._file.close()
        super().close()

    def sync(self) -> str:
        """Make it durable; returns the hash."""
        os.fsync(self._file.fileno())
        text: str = self._hash.hexdigest()
        return text


class _Table:
    """One table: the part that is being filled."""

    def __init__(self, folder: Path, name: str, algorithm: Algorithm) -> None:
        self._folder = folder
        self._name = name
        self._algorithm = algorithm
        self._schema = SCHEMAS[name]
        self._group_bytes = _ROW_GROUP_BYTES.get(name, _ROW_GROUP_BYTES_MAX)
        self._parts = self._first = 0  # those that are sealed, and their rows
        self._pending: list[pa.RecordBatch] = []
        self._pending_rows = self._pending_bytes = 0
        self._file: _HashedFile | None = None
        self._parquet: pq.ParquetWriter | None = None
        self.rows = 0  # of the part
        self.bytes = 0

    def add(self, arrays: list[Any]) -> None:
        if len(arrays[0]) > 1 and sum(each.nbytes for each in arrays) > _BATCH_BYTES_MAX:
            half = len(arrays[0]) // 2
            self.add([each[:half] for each in arrays])
            self.add([each[half:] for each in arrays])
            return
        arrays = [each.cast(kind) for each, kind in zip(arrays, self._schema.types)]
        batch = pa.RecordBatch.from_arrays(arrays, schema=self._schema)
        self._pending.append(batch)
        size = batch.nbytes
        self.rows += len(batch)
        self.bytes += size
        self._pending_rows += len(batch)
        self._pending_bytes += size
        if self._pending_rows >= ROW_GROUP_ITEMS or self._pending_bytes >= self._group_bytes:
            self._flush()

    def _flush(self) -> None:
        table = pa.Table.from_batches(self._pending, schema=self._schema)
        if self._parquet is None:
            (self._folder / self._name).mkdir(exist_ok=True)
            self._file = _HashedFile(self._temporary, self._algorithm)
            self._parquet = pq.ParquetWriter(self._file, self._schema, **encoding(self._schema))
        self._parquet.write_table(table, row_group_size=ROW_GROUP_ITEMS)
        self._pending = []
        self._pending_rows = self._pending_bytes = 0

    @property
    def _temporary(self) -> Path:
        return self._folder / self._name / f".part-{self._parts:05}.tmp"

    def seal(self) -> File | None:
        """Make the part a permanent file; None if it is empty."""
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
        sync(self._folder / self._name)
        file = File(f"{self._name}/{name}", self._name, self._first, self.rows, self._file.size, found)
        self._first += self.rows
        self._parts += 1
        self.rows = self.bytes = 0
        self._file = self._parquet = None
        return file

    def abandon(self) -> None:
        """Remove the part that is not sealed."""
        if self._file is not None:
            self._file.drops = True  # what the writer of Parquet still holds, and writes as it is collected
            self._file.close()
            self._temporary.unlink(missing_ok=True)


M = TypeVar("M", Arrival, Output)


class _Gathered(Generic[M]):
    """Messages that wait to be made into columns."""

    def __init__(self, items_max: int, bytes_max: int) -> None:
        self._items_max = min(items_max, _GATHERED_ITEMS)
        self._bytes_max = min(bytes_max, _GATHERED_BYTES)
        self.messages: list[M] = []
        self.items = self._bytes = 0

    def add(self, message: M) -> bool:
        """Add one; returns whether there are enough."""
        self.messages.append(message)
        self.items += message.count
        self._bytes += len(message.metas) + len(message.payloads)
        return max(self.items, len(self.messages)) >= self._items_max or self._bytes >= self._bytes_max

    def take(self) -> list[M]:
        taken, self.messages = self.messages, []
        self.items = self._bytes = 0
        return taken


class RecordWriter:
    """Handles messages; `due` says when `seal` is to be called.

    Args:
        begin: the first message; its folder exists and is empty.
    """

    def __init__(self, begin: Begin) -> None:
        self._begin = begin
        self._folder = Path(begin.folder)
        manifest = msgspec.json.decode(begin.manifest, type=Manifest)
        self._tables = {name: _Table(self._folder, name, manifest.algorithm) for name in TABLES}
        self._output, self._input = Blocks(manifest.algorithm), Blocks(manifest.algorithm)
        self._sources = pa.array([source.name for source in manifest.sources], pa.string())
        self._sinks = pa.array(manifest.sinks, pa.string())
        self._late_items = 0
        self._arrivals: _Gathered[Arrival] = _Gathered(begin.part_items_max, begin.part_bytes_max)
        self._outputs: _Gathered[Output] = _Gathered(begin.part_items_max, begin.part_bytes_max)
        self._journal = JournalWriter(self._folder, manifest.algorithm)
        self._has_ended = False
        self.manifest = msgspec.structs.replace(manifest, **environment(), **self._digests())
        self._write_manifest()

    def handle(self, message: Message) -> None:
        if isinstance(message, Arrival):
            if self._arrivals.add(message):
                self._arrive()
        elif isinstance(message, Output):
            expected = self._output.rows + self._outputs.items
            if message.position != expected:
                raise DriftBug(f"the writer of a record received position {message.position} after {expected}")
            if self._outputs.add(message):
                self._release()
        elif isinstance(message, Answers):
            values = [message.call] * len(message.metas), message.metas, message.failed, message.payloads
            self._tables["answers"].add([pa.array(each, kind) for each, kind in zip(values, SCHEMAS["answers"].types)])
        elif isinstance(message, Learned):
            self.manifest.classes[message.name] = message.target
        elif isinstance(message, Finish):
            self._finish(message)
        else:
            raise DriftBug(f"the writer of a record was sent a second {type(message).__name__}")

    @property
    def full(self) -> bool:
        """Whether a part has reached its limit."""
        tables = self._tables.values()
        begin = self._begin
        return any(table.rows >= begin.part_items_max or table.bytes >= begin.part_bytes_max for table in tables)

    @property
    def unsealed(self) -> bool:
        gathered = self._arrivals.messages or self._outputs.messages
        return bool(gathered) or any(table.rows for table in self._tables.values())

    def _arrive(self) -> None:
        arrivals = self._arrivals.take()
        counts = np.array([arrival.count for arrival in arrivals], np.int64)
        batches = np.array([arrival.batch for arrival in arrivals], np.int64)
        sources = np.array([arrival.source for arrival in arrivals], np.int32)
        late = np.array([len(arrival.late) for arrival in arrivals], np.int64)
        self._tables["arrivals"].add(
            [
                numbers_column(batches, pa.int64()),
                _named(self._sources, sources),
                numbers_column(counts, pa.int64()),
                numbers_column(late, pa.int64()),
                numbers_column(np.array([arrival.at_ns for arrival in arrivals], np.int64), pa.int64()),
                pa.array([arrival.heartbeat for arrival in arrivals], pa.binary()),
                pa.array([arrival.first_time is not None for arrival in arrivals], pa.bool_()),
            ]
        )
        full = [arrival for arrival in arrivals if arrival.count]
        if full:
            (bins, times, ties, _), payloads = _metas(full), _payloads(full)
            self._input.add(bins, payloads)
            self._add_blocks("input", self._input.take())
            self._tables["input"].add(
                [
                    numbers_column(np.repeat(batches, counts), pa.int64()),
                    _named(self._sources, np.repeat(sources, counts)),
                    times,
                    ties,
                    payloads,
                ]
            )
        for arrival in arrivals:
            if arrival.late:
                self._divert(arrival.batch, arrival.source, arrival.late)

    def _divert(self, batch: int, source: int, late: list[LateRow]) -> None:
        self._tables["late"].add(
            [
                numbers_column(np.full(len(late), batch, np.int64), pa.int64()),
                _named(self._sources, _each(source, len(late))),
                pa.array([row.time for row in late], pa.int64()),
                pa.array([row.heartbeat for row in late], pa.int64()),
                pa.array([row.reason for row in late], pa.string()),
                pa.array([row.payload for row in late], pa.binary()),
            ]
        )
        self._late_items += len(late)

    def _release(self) -> None:
        outputs = self._outputs.take()
        (bins, times, ties, paths), payloads = _metas(outputs), _payloads(outputs)
        first = self._output.rows
        self._output.add(bins, payloads)
        self._add_blocks("output", self._output.take())
        self._tables["output"].add(
            [
                numbers_column(np.arange(first, self._output.rows, dtype=np.int64), pa.int64()),
                _named(self._sinks, np.concatenate([_each(output.sinks, output.count) for output in outputs])),
                times,
                ties,
                paths,
                payloads,
            ]
        )

    def _add_blocks(self, table: str, blocks: list[Block]) -> None:
        if blocks:
            values = [[table] * len(blocks), *zip(*blocks)]
            self._tables["blocks"].add([pa.array(each, field.type) for each, field in zip(values, SCHEMAS["blocks"])])

    def seal(self) -> None:
        """Make everything so far durable, and list it."""
        files = self._seal_tables()
        added = self._journal.append(msgspec.to_builtins(files), self.manifest.growing())
        if added is None:
            self._write_manifest()
        else:
            self.manifest.self_hash = added

    def _seal_tables(self) -> list[File]:
        """The new files, which are added to the manifest in memory."""
        if self._arrivals.messages:
            self._arrive()
        if self._outputs.messages:
            self._release()
        for table, blocks in (("input", self._input), ("output", self._output)):
            if (last := blocks.open) is not None:
                self._add_blocks(table, [last])
        with ThreadPoolExecutor(len(TABLES)) as pool:  # the disk syncs several files in the time of one
            files = [file for file in pool.map(_Table.seal, self._tables.values()) if file is not None]
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
        """Seal the rest, with how the run ended."""
        self.manifest.outcome, self.manifest.ended = outcome, ended
        self._seal_tables()
        self._write_manifest()
        self._has_ended = True

    def abandon(self) -> None:
        """Remove all that is not sealed, after writing has failed."""
        for table in self._tables.values():
            table.abandon()

    def break_off(self, reason: str, ended: str) -> None:
        """After `abandon`, write into the manifest that the record ends at the last seal, unless it has ended.

        Raises:
            OSError: that cannot be written either.
        """
        if self._has_ended:
            return
        self.manifest.outcome, self.manifest.ended = Outcome("broken off", reason), ended
        self._write_manifest()

    def _write_manifest(self) -> None:
        self.manifest = sealed(self.manifest)
        data = as_file(self.manifest)
        write_safely(self._folder / MANIFEST, data)
        self._journal.follow(self.manifest.self_hash, len(data), self.manifest.growing())


def _metas(messages: Sequence[Arrival | Output]) -> Parts:
    return split(_count(messages), b"".join(map(_metas_of, messages)))


def _metas_of(message: Arrival | Output) -> bytes | memoryview:
    if message.first_time is None:
        return message.metas
    return Metas.numbered(message.first_time, message.count, bytes(message.metas)).encoded()


def _payloads(messages: Sequence[Arrival | Output]) -> pa.Array:
    return values(_count(messages), b"".join([message.payloads for message in messages]))


def _count(messages: Sequence[Arrival | Output]) -> int:
    return sum(message.count for message in messages)


def _each(numbers: int | list[int], count: int) -> npt.NDArray[np.int32]:
    return np.full(count, numbers, np.int32) if isinstance(numbers, int) else np.array(numbers, np.int32)


def _named(names: pa.Array, numbers: npt.NDArray[np.int32]) -> pa.Array:
    return pa.DictionaryArray.from_arrays(numbers_column(numbers, pa.int32()), names)
