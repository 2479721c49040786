"""A record of input that grows batch by batch, written by one process after another.

Invariant: every batch is in the record completely or not at all, and once, whichever process dies when.

Why: the files of a batch, and the state for the next batch, are durable before the manifest or a line of its journal
lists them and names the batch. Files that a dead process left under unlisted names are overwritten by the next one.
"""

from __future__ import annotations

import shutil
import time
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from drift.records.blocks import Blocks
from drift.records.describe import describe
from drift.records.format import MANIFEST, Manifest, Outcome, RecordError, write_safely
from drift.records.messages import Arrival, Begin, LateRow, split_metas
from drift.records.reader import Record
from drift.records.recorder import Recording
from drift.records.writer import RecordWriter
from drift_graph.canonical import stored, stored_each, stored_plain
from drift_graph.errors import SettingsError
from drift_graph.graph import Dataflow
from drift_graph.restore import restored
from drift_graph.times import Arrived, Remembered, SourceMachine

_STATES = "stream"


class WrittenBatch(NamedTuple):
    """The batch that was written last.

    Attributes:
        number: -1 before the first.
        rows, check: its number of rows, and a checksum over them.
    """

    number: int
    rows: int
    check: int


class Appender:
    """A record that is open for one more batch.

    Args:
        folder: of the record; it is created if missing.
        target: "file.py:name" of the graph, for a replay.
        writer: identifies the writer; another one may not continue the record.
        complete: whether the batch is all input, so that none of its items is late.

    Attributes:
        last: the batch before.

    Raises:
        SettingsError: the folder holds something else, or a record that has ended.
    """

    def __init__(self, folder: Path, dataflow: Dataflow, target: str, writer: str, *, complete: bool = False) -> None:
        self._folder = folder
        policies = [source.time.never_late() if complete else source.time for source in dataflow.sources]
        self._machines = {
            source.name: SourceMachine.of(source, rank, policy)
            for rank, (source, policy) in enumerate(zip(dataflow.sources, policies))
        }
        fresh = describe(
            dataflow,
            target=target,
            engine="spark",
            workers=1,
            settings={},
            algorithm="xxh3_128",
            times={},
            live=dict.fromkeys(self._machines, False),
        )
        self.last = WrittenBatch(-1, 0, 0)
        self._batches = 0
        if (folder / MANIFEST).exists():
            record = Record(folder)
            self._check(record.manifest, fresh, writer)
            if self.last.number >= 0:
                self._writer = RecordWriter(self._begin(record.manifest), self._resume(record))
                return
        elif folder.is_dir() and any(each.name[0] != "." for each in folder.iterdir()):
            raise SettingsError(f"{folder} is not empty, and holds no record; pass a folder that does not exist")
        folder.mkdir(parents=True, exist_ok=True)
        fresh.started = datetime.now(UTC).isoformat()
        fresh.settings = {"written": [writer, *self.last]}
        self._writer = RecordWriter(self._begin(fresh))

    def _begin(self, manifest: Manifest) -> Begin:
        limits = Recording("")
        return Begin(
            str(self._folder), msgspec.json.encode(manifest), limits.part_items_max, limits.part_bytes_max, 0.0
        )

    def _check(self, manifest: Manifest, fresh: Manifest, writer: str) -> None:
        written = manifest.settings.get("written")
        if written is None:
            raise SettingsError(
                f"{self._folder} holds the record of a run, and a record is never overwritten; pass a folder that does "
                f"not exist"
            )
        if manifest.outcome.state != "running":
            raise SettingsError(f"the record {self._folder} has ended, so nothing can be added; pass another folder")
        by, *last = written
        self.last = WrittenBatch(*last)
        if self.last.number < 0:
            return
        if by != writer:
            raise SettingsError(
                f"the record {self._folder} is written by {by}, and not by {writer}: two writers would mix their items "
                f"in it; give each its own folder"
            )
        if _sources(manifest) != _sources(fresh):
            raise SettingsError(
                f"the record {self._folder} has the sources {_sources(manifest)}, and the graph now has "
                f"{_sources(fresh)}, with other names or time policies; write another record"
            )

    def _resume(self, record: Record) -> Blocks:
        """Load the state of the process that wrote the last batch; returns the blocks of the input so far."""
        path = self._state_of(self.last.number)
        try:
            self._batches, hashes, machines = restored(path.read_bytes())
        except FileNotFoundError:
            raise RecordError(
                f"{path} is missing, and without it nothing can be added to the record {self._folder}; the record can "
                f"still be read and replayed; write further input to another record"
            ) from None
        for machine, remembered in zip(self._machines.values(), machines):
            machine.recall(Remembered(*remembered))
        blocks = Blocks.after(hashes, record.manifest.algorithm)
        for metas, payloads in record.input(blocks.rows):
            blocks.add(metas, payloads)
        return blocks

    def _state_of(self, number: int) -> Path:
        return self._folder / _STATES / f"{number}.state"

    def add(self, source: str, payloads: Sequence[Any]) -> None:
        """Add items of a source in the order of arrival.

        Raises:
            DriftError: an item would end a run: it is late, has no time, or cannot be stored.
        """
        machine = self._machines.get(source)
        if machine is None:
            raise SettingsError(
                f"a row is of source {source!r}, and the graph has the sources {', '.join(map(repr, self._machines))}; "
                f"correct the column of sources, or the graph"
            )
        self._send(source, machine.take(list(payloads)))

    def _send(self, source: str, arrived: Arrived) -> None:
        if arrived.error is not None:
            raise arrived.error
        machine, metas, payloads = self._machines[source], arrived.metas, arrived.payloads
        late = [LateRow(late.time, late.heartbeat, late.reason, stored(late.payload)) for late in arrived.late]
        data = stored_plain(payloads)
        first_time, metas_bytes = split_metas(metas)
        self._writer.handle(
            Arrival(
                self._batches,
                list(self._machines).index(source),
                time.time_ns(),
                len(payloads),
                first_time,
                metas_bytes,
                b"".join(stored_each(payloads)) if data is None else data,
                machine.heartbeat,
                late,
            )
        )
        self._batches += 1

    def commit(self, batch: WrittenBatch) -> None:
        """Make the added items part of the record, as this batch."""
        manifest = self._writer.manifest
        manifest.settings = {"written": [manifest.settings["written"][0], *batch]}
        path = self._state_of(batch.number)
        self._writer.seal(lambda: self._remember(path))
        for other in path.parent.iterdir():
            if other != path:
                other.unlink()

    def _remember(self, path: Path) -> None:
        """Write the state for the next batch."""
        path.parent.mkdir(exist_ok=True)
        machines = [tuple(machine.remembered()) for machine in self._machines.values()]
        write_safely(path, stored((self._batches, self._writer.input_hashes, machines)))

    def abandon(self) -> None:
        """Leave the record as it was."""
        self._writer.abandon()

    def end(self) -> None:
        """End the input behind the items added."""
        for name, machine in self._machines.items():
            arrived = machine.settle()
            machine.finish()
            self._send(name, arrived)
        self._writer.end(Outcome("stopped"), datetime.now(UTC).isoformat())
        shutil.rmtree(self._folder / _STATES, ignore_errors=True)


def _sources(manifest: Manifest) -> dict[str, Any]:
    """The sources' time policies by name, without the code of their functions: its results are recorded."""
    return {each["name"]: each["parameters"] for each in manifest.fingerprint["operators"] if each["kind"] == "source"}
