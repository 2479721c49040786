"""A store: the checkpoints of one run, in some backend.

Invariant: a checkpoint that `checkpoints` returns was committed, and a run can resume from it, however a process ended.

Why: a backend has a checkpoint completely or not at all, with hashes of its snapshots, and nothing that a manifest
names changes while the manifest exists. A snapshot is removed when it is merged into the base, whose checkpoint is then
no newer than the oldest. Checkpoints are written by one thread, in their order, while the run continues.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from typing import NamedTuple

import xxhash

from drift.state.backend import Backend, Changes, Expected, Locked, OlderData, Reader, older_error
from drift.state.checkpoint import Checkpoint, StateDamaged, encoded
from drift.state.folding import Folding, fold
from drift.state.open_block import OpenedRows
from drift.state.patience import GivenUp, Patience, PatientReader
from drift.state.restored import RestoredStates
from drift.state.snapshots import Forms
from drift.state.tables import (
    as_merged,
    check_base,
    key_of,
    manifest,
    merged_in,
    name_of,
    number_of,
    numbers_in,
    part_of,
    row_of,
)
from drift_barrier.digest import Opened, hash_block
from drift_graph.errors import SettingsError

#: Number and total size of snapshots below the oldest checkpoint from which they are folded into the base.
_FOLDED_SNAPSHOTS = 64
_FOLDED_BYTES = 32 << 20
#: From this size on, a separate process folds them.
_SEPARATE_PROCESS_BYTES = 1 << 20
#: If the snapshots have this size, the run takes no further checkpoint until they are folded.
_WAITING_BYTES = 8 * _FOLDED_BYTES
#: Hashes of blocks that are one row.
_HASHES_IN_PART = 4096
#: How long a server may take to notice that the process that held the lock has ended.
_LOCKED_S = 5.0


class Written(NamedTuple):
    """The checkpoint that was written last.

    Attributes:
        size_bytes: of its snapshots: the states that changed since the checkpoint before.
        seconds: that writing it took.
    """

    taken_ms: int
    size_bytes: int
    seconds: float


class Store:
    """
    Args:
        keep: number of checkpoints to retain, 1 or more.
        away_max_s: how long the backend may be unavailable.

    Attributes:
        written: the last checkpoint that was written, and their number.
    """

    def __init__(self, backend: Backend, *, keep: int = 3, away_max_s: float = 60.0) -> None:
        self._backend = backend
        self._keep = keep
        self._away_max_s = away_max_s
        self._patience = Patience(backend.where, away_max_s)
        self._folding: Folding | None = None
        self._reader: Reader | None = None
        self._writer: ThreadPoolExecutor | None = None
        self._writing: Future[None] | None = None
        self._restored: RestoredStates | None = None
        self._names: Mapping[str, bytes] = {}  # the snapshots of the last checkpoint, with their hashes
        self._last: Expected | None = None  # the manifest of the last checkpoint
        self._opened = OpenedRows()
        self._hashes_from = 0  # so many hashes of blocks are stored
        self._has_failed = False  # whether the last checkpoint could not be written, or is being written
        self.written: tuple[Written | None, int] = None, 0

    @property
    def where(self) -> str:
        """The backend, for messages."""
        return self._backend.where

    def open_to_read(self) -> None:
        """Open it for reading, also while a run has it open. Raises SettingsError: it holds no state of a run."""
        if not self._patience.call(self._backend.exists):
            raise SettingsError(f"{self.where} holds no state of a run; name the one that --state named")
        self._reader = self._new_reader()

    def is_locked(self) -> bool:
        """Whether a run has it open."""
        return self._patience.call(self._backend.is_locked)

    def open(self) -> None:
        """Lock it, and make it if it does not exist.

        Raises:
            Locked: another process has it open.
            StorageError: it cannot store checkpoints.
        """
        deadline_s = time.monotonic() + _LOCKED_S
        while True:
            try:
                self._backend.open()
                break
            except Locked:
                if time.monotonic() > deadline_s:
                    raise
                time.sleep(_LOCKED_S / 100)  # until the server has noticed that a process has ended
        try:
            self._reader = self._reader or self._new_reader()
        except BaseException:
            self._backend.close()
            raise

    def _new_reader(self) -> Reader:
        return PatientReader(self._patience.call(self._backend.reader), self._patience)

    @property
    def _open_reader(self) -> Reader:
        assert self._reader is not None
        return self._reader

    # Reading.

    def checkpoints(self) -> list[Checkpoint]:
        """The retained checkpoints, by number. Raises StateDamaged: see there."""
        reader = self._open_reader
        found = [manifest(reader, key, self.where) for key in sorted(reader.sizes("cuts"), key=number_of)]
        merged = merged_in(reader)
        retained = [checkpoint for checkpoint in found if checkpoint is not None and checkpoint.number >= merged]
        if retained:
            check_base(merged, retained[-1].base, self.where)
        elif merged:
            raise StateDamaged(
                f"{self.where} has states that were merged up to checkpoint {merged}, and no checkpoint from there on: "
                f"its manifests were removed; bring them back, or start a new run with another state="
            )
        return retained

    def clear(self) -> None:
        """Remove what a run has stored that has committed no checkpoint."""
        self._write({table: dict.fromkeys(self._open_reader.sizes(table)) for table in ("snapshots", "opened")})

    def states(self, checkpoint: Checkpoint, forms: Forms) -> RestoredStates:
        """The states of a checkpoint; removes later checkpoints."""
        reader = self._open_reader
        key = key_of(checkpoint.number)
        (data,) = reader.read("cuts", [key])
        self._last = Expected("cuts", key, data or b"")
        later = dict.fromkeys(key for key in reader.sizes("cuts") if number_of(key) > checkpoint.number)
        unneeded = dict.fromkeys(
            name for name in reader.sizes("snapshots") if name.decode() not in checkpoint.snapshots
        )
        self._opened = OpenedRows(each for each in self.checkpoints() if each.number <= checkpoint.number)
        opened = self._opened.unneeded(reader.sizes("opened"))
        self._write({"cuts": later, "snapshots": unneeded, "opened": opened})
        self._names = checkpoint.snapshots
        self._hashes_from = checkpoint.output.blocks
        if self._restored is not None:
            self._restored.close()
        self._restored = RestoredStates(self._new_reader(), checkpoint, forms, self.where)
        return self._restored

    def blocks(self, checkpoint: Checkpoint) -> list[bytes]:
        """Hashes of the full blocks of the output below a checkpoint."""
        parts = [part_of(number) for number in range(-(-checkpoint.output.blocks // _HASHES_IN_PART))]
        found: list[bytes] = []
        for number, data in enumerate(self._open_reader.read("hashes", parts)):
            block_bytes = len(hash_block(checkpoint.output.algorithm, b""))
            hashes = _hashes_in(parts[number], data or b"", block_bytes)
            found += hashes[: checkpoint.output.blocks - len(found)]
            if len(found) < min((number + 1) * _HASHES_IN_PART, checkpoint.output.blocks):
                raise StateDamaged(
                    f"hashes {parts[number].decode()} of the output in {self.where}, which checkpoint "
                    f"{checkpoint.number} needs, were changed, cut off or removed since they were written; resume from "
                    f"an earlier checkpoint with from_checkpoint=, or start a new run with another state="
                )
        return found

    # Writing.

    @property
    def is_busy(self) -> bool:
        """Whether a checkpoint is still being written."""
        return self._writing is not None and not self._writing.done()

    def commit(
        self,
        checkpoint: Checkpoint,
        snapshots: Mapping[str, bytes],
        blocks: Sequence[bytes],
        opened: Opened | None,
        on_commit: Callable[[], None],
        told: Mapping[bytes, bytes] | None = None,
    ) -> None:
        """Commit a checkpoint; another thread writes it, whose errors the next call raises.

        Args:
            snapshots: the bytes of its snapshots, by name.
            blocks: hashes of all full blocks of the output.
            opened: the items of its last block, which is not full; None if no items came since the last checkpoint.
            on_commit: called when the checkpoint is committed.
            told: of the run, by name, in place of what `told` gives.
        """
        self.wait()
        if self._writer is None:
            self._writer = ThreadPoolExecutor(1, "drift-checkpoints")
        begin = self._hashes_from // _HASHES_IN_PART * _HASHES_IN_PART
        new = list(blocks[begin:]) if len(blocks) > self._hashes_from else []
        self._hashes_from = len(blocks)
        self._writing = self._writer.submit(self._commit, checkpoint, snapshots, begin, new, opened, on_commit, told)

    def told(self, *names: bytes) -> list[bytes | None]:
        """What was told last of the run under these names; None where nothing was."""
        return list(self._open_reader.read("history", names))

    def tell(self, told: Mapping[bytes, bytes]) -> None:
        """Store what is told of the run, behind the last checkpoint; nothing, if that could not be written."""
        self.wait()
        self._end_writer()
        if not self._has_failed:
            with suppress(GivenUp):
                self._write({"history": {**told}})

    def give_up(self) -> None:
        """Wait no more for a backend that is unavailable; what was to be stored there is not, which is logged."""
        self._patience.give_up()

    def wait(self) -> None:
        """Wait until the last checkpoint is written. Raises StorageError: it could not be."""
        if self._writing is not None:
            writing, self._writing = self._writing, None
            with suppress(GivenUp):
                writing.result()

    def _end_writer(self) -> None:
        """Wait for what the thread that writes still has, also where Ctrl-C came before anybody had noted that; a
        second Ctrl-C is not waited for again.
        """
        writer, self._writer = self._writer, None
        if writer is not None:
            writer.shutdown()

    def _commit(
        self,
        checkpoint: Checkpoint,
        snapshots: Mapping[str, bytes],
        begin: int,
        blocks: list[bytes],
        opened: Opened | None,
        on_commit: Callable[[], None],
        told: Mapping[bytes, bytes] | None,
    ) -> None:
        began_s, self._has_failed = time.monotonic(), True
        named = {name_of(checkpoint.number, name): data for name, data in snapshots.items()}
        names = {**self._names, **{name: xxhash.xxh3_128_digest(data) for name, data in named.items()}}
        changes: dict[str, dict[bytes, bytes | None]] = {
            "history": {**(told or {})},
            "snapshots": {name.encode(): data for name, data in named.items()},
            "hashes": {
                part: row_of(part, b"".join(blocks[start : start + _HASHES_IN_PART]))
                for start in range(0, len(blocks), _HASHES_IN_PART)
                for part in [part_of((begin + start) // _HASHES_IN_PART)]
            },
        }
        before: list[Expected] = []
        for row in self._opened.added(checkpoint, opened):
            last = changes.get("opened", {})
            self._write({"opened": last}, *before)  # no more than one row is in memory
            before = [Expected("opened", *each) for each in last.items()]  # who has it has all before
            changes["opened"] = row
        rows = self._opened.of(checkpoint.number)
        key = key_of(checkpoint.number)
        while True:
            merged = merged_in(self._open_reader)
            self._names = {name: hashed for name, hashed in names.items() if number_of(name) > merged}
            data = encoded(checkpoint.as_stored(self._names, merged, rows))
            try:
                self._write({**changes, "cuts": {key: data}}, *before, *([as_merged(merged)] if merged else []))
                break
            except OlderData:
                if merged_in(self._open_reader) <= merged:  # otherwise more was merged meanwhile
                    raise
        self._last = Expected("cuts", key, data)
        size_bytes = sum(map(len, snapshots.values()))
        written = Written(checkpoint.taken_ms, size_bytes, time.monotonic() - began_s)
        self.written = written, self.written[1] + 1
        on_commit()
        self._prune()
        self._has_failed = False

    def _write(self, changes: Changes, *expected: Expected) -> None:
        """Store changes, if the last checkpoint is where it was stored, and so is what else is expected."""
        if any(changes.values()):
            all_expected = [*([self._last] if self._last is not None else []), *expected]
            self._patience.call(lambda: self._backend.write(changes, all_expected))

    def _prune(self) -> None:
        """Remove checkpoints beyond the number to retain, and fold snapshots below the oldest into the base, many at
        once.
        """
        reader, backend = self._open_reader, self._backend
        numbers = numbers_in(reader)
        assert self._last is not None
        if numbers[-1:] != [number_of(self._last.key)]:
            raise older_error(self.where, self._last)
        oldest = numbers[-self._keep :][0]
        dropped = {key_of(number): None for number in numbers if number < oldest}
        self._write({"cuts": dropped, "opened": self._opened.dropped_below(oldest)})
        older = [size for name, size in reader.sizes("snapshots").items() if number_of(name) <= oldest]
        if self._folding is not None:
            if self._folding.is_done(wait=sum(older) >= _WAITING_BYTES):
                self._folding = None
        elif len(older) >= _FOLDED_SNAPSHOTS or sum(older) >= _FOLDED_BYTES:
            checkpoint = manifest(reader, key_of(oldest), self.where)
            if checkpoint is None:
                raise older_error(self.where, self._last)
            if sum(older) < _SEPARATE_PROCESS_BYTES and not backend.is_behind:
                self._patience.call(lambda: fold(backend, reader, checkpoint))
            else:
                self._folding = Folding(backend, checkpoint, self._away_max_s)

    def drop(self, number: int) -> None:
        if number not in numbers_in(self._open_reader):
            raise SettingsError(f"{self.where} has no checkpoint {number}; drift state list shows those it has")
        self._write({"cuts": {key_of(number): None}})

    def close(self) -> None:
        """Wait for the last checkpoint to be written, and close the backend."""
        try:
            self.wait()
        finally:
            self._end_writer()
            if self._folding is not None:
                self._folding.end()
                self._folding = None
            for each in (self._restored, self._reader, self._backend):
                if each is not None:
                    each.close()
            self._restored = self._reader = None


def _hashes_in(key: bytes, data: bytes, size: int) -> list[bytes]:
    """The hashes in a part; none if it was changed."""
    hashes = data[8:]
    if row_of(key, hashes) != data:
        return []
    return [hashes[start : start + size] for start in range(0, len(hashes), size)]
