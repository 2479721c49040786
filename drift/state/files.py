"""A folder of checkpoints: manifests, snapshots of what changed, and files by hash for what is below the oldest one.

Invariant: as for `Backend`. A manifest exists completely or not at all.

Why: a snapshot is written and flushed to the disk before the manifest that names it, and that is renamed into its
place; what is deleted is deleted last.

    cuts/0000000012.cut              a manifest of a checkpoint
    snapshots/0000000012-worker-0       what changed in a worker since the checkpoint before
    opened/0000000012-0                 items of the output's last block, which is not full
    hashes/0000000003                hashes of full blocks of the output
    history/NAME                     what is told of the run, for those that look at it
    base/                            the other tables: the states as of the oldest checkpoint, by key
    inputs/                          logs of sources that cannot be read again
    lock                             held by the process that has the folder open
"""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from drift.places import sync
from drift.state.backend import Changes, Expected, Locked, older_error
from drift.state.base import Base
from drift.state.checkpoint import StateDamaged
from drift_graph.errors import StorageError

BASE = "base"
#: Tables whose rows are files. What a manifest names is written before it, and deleted after it.
_FOLDERS = ("history", "snapshots", "opened", "hashes", "cuts")
#: Those of which each row has a new name.
_NEW = ("snapshots", "opened")


class FilesReader:
    """
    Args:
        merges_all: as for `Base`, whose tables it has.
    """

    def __init__(self, folder: Path, *, merges_all: bool = False) -> None:
        self._folder = folder
        self.base = Base(folder / BASE, merges_all=merges_all)

    def sizes(self, table: str) -> dict[bytes, int]:
        if table not in _FOLDERS:
            return self.base.sizes(table)
        found = {}
        try:
            for path in sorted((self._folder / table).iterdir()):
                with suppress(FileNotFoundError):  # removed since it was listed
                    found[os.fsencode(path.name)] = path.stat().st_size
        except OSError as error:
            raise StateDamaged(
                f"{self._folder / table} cannot be listed: {error.strerror}; bring the folder back as it was, or start "
                f"a new run with another state="
            ) from error
        return {name: size for name, size in found.items() if name[:1].isdigit() and not name.endswith(_PARTIAL)}

    def read(self, table: str, keys: Sequence[bytes]) -> list[bytes | None]:
        if table not in _FOLDERS:
            return self.base.read(table, keys)
        return [_read(self._folder / table / os.fsdecode(key)) for key in keys]

    def close(self) -> None:
        self.base.close()


class FilesBackend:
    """
    Args:
        folder: of the checkpoints; made if it does not exist.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._lock: int | None = None
        self._is_deputy = False
        self._tables = FilesReader(folder)

    @property
    def where(self) -> str:
        return str(self._folder)

    @property
    def logs(self) -> str:
        return str(self._folder / "inputs")

    def exists(self) -> bool:
        with self._reading():
            return (self._folder / "cuts").is_dir()

    def is_locked(self) -> bool:
        with self._reading(), suppress(FileNotFoundError), (self._folder / "lock").open("rb") as lock:
            try:
                fcntl.flock(lock, fcntl.LOCK_SH | fcntl.LOCK_NB)
            except BlockingIOError:
                return True
        return False

    @contextmanager
    def _reading(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            raise StorageError(
                f"the state in {self._folder} cannot be read: {error.strerror}; let its files be read by who runs "
                f"this, or name another folder"
            ) from error

    def deputy(self) -> tuple[FilesBackend, tuple[int, ...]]:
        """The lock is held until both processes have released it."""
        assert self._lock is not None
        deputy = FilesBackend(self._folder)
        deputy._is_deputy = True
        return deputy, (self._lock,)

    def open(self) -> None:
        if not self._is_deputy:
            self._take()
        self._tables = FilesReader(self._folder, merges_all=self._is_deputy)

    def _take(self) -> None:
        try:
            for each in (self._folder, *(self._folder / table for table in _FOLDERS)):
                each.mkdir(parents=True, exist_ok=True)
            self._lock = os.open(self._folder / "lock", os.O_RDWR | os.O_CREAT, 0o644)
        except OSError as error:
            raise StorageError(
                f"state cannot be stored in {self._folder}: {error.strerror}; nothing was written: name a folder that "
                f"can be written"
            ) from error
        try:
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            os.close(self._lock)
            self._lock = None
            raise Locked(
                f"another run, in this process or another, stores its state in {self._folder}; wait until it has ended "
                f"(one whose items are no longer taken ends with its close()), or give this run a folder of its own"
            ) from None

    @property
    def is_behind(self) -> bool:
        return self._tables.base.is_behind

    def reader(self) -> FilesReader:
        return FilesReader(self._folder)

    def write(self, changes: Changes, expected: Sequence[Expected] = ()) -> None:
        for each in expected:
            if not each.is_met(self._tables.read(each.table, [each.key])[0]):
                raise older_error(self.where, each)
        try:
            self._write(changes)
        except OSError as error:
            reason = error.strerror or str(error)
            raise StorageError(
                f"a checkpoint cannot be written to {self._folder}: {reason}; the checkpoints before it are whole. "
                f"Make room, or let the folder be written, and run again: the run resumes from the last checkpoint"
            ) from error

    def _write(self, changes: Changes) -> None:
        for table in _FOLDERS[:-1]:
            for path, data in self._files(changes, table):
                if data is not None:
                    # The others are written over, and a kill may come at any moment.
                    _write(path, data) if table in _NEW else _replace(path, data)
        others = {table: rows for table, rows in changes.items() if table not in _FOLDERS}
        if others:
            self._tables.base.write(others)
        for path, data in self._files(changes, "cuts"):
            if data is not None:
                _replace(path, data)
        if "cuts" in changes:
            sync(self._folder / "cuts")
        for table in reversed(_FOLDERS):
            for path, data in self._files(changes, table):
                if data is None:
                    path.unlink(missing_ok=True)
            if table == "cuts" and None in changes.get(table, {}).values():
                sync(self._folder / table)

    def _files(self, changes: Changes, table: str) -> list[tuple[Path, bytes | None]]:
        rows: Mapping[bytes, bytes | None] = changes.get(table, {})
        return [(self._folder / table / os.fsdecode(key), data) for key, data in rows.items()]

    def close(self) -> None:
        self._tables.close()
        if self._lock is not None:
            os.close(self._lock)
            self._lock = None


_PARTIAL = b".partial"


def _read(path: Path) -> bytes | None:
    """The bytes of a file; None if it does not exist."""
    try:
        return path.read_bytes()
    except FileNotFoundError:
        return None
    except OSError as error:
        raise StateDamaged(
            f"{path} cannot be read: {error.strerror}; let it be read, or bring it back as it was, or start a new run "
            f"with another state="
        ) from error


def _write(path: Path, data: bytes) -> None:
    with path.open("wb") as file:
        file.write(data)
        _flush(file)


def _replace(path: Path, data: bytes) -> None:
    """Write a file that exists completely or not at all."""
    partial = path.with_suffix(os.fsdecode(_PARTIAL))
    _write(partial, data)
    partial.replace(path)


def _flush(file: Any) -> None:
    file.flush()
    os.fsync(file.fileno())
