"""A folder of cuts: manifests, snapshots of what changed, and a file of SQLite with what lies below the oldest cut.

Invariant: as for `Backend`. A manifest exists completely or not at all.

Why: a snapshot is written and flushed to the disk before the manifest that names it, and that is renamed into its
place.

    cuts/0000000012.cut              a manifest
    snapshots/0000000012-worker-0       what changed in a worker since the cut before
    base.sqlite                      the states as of the oldest cut, by key
    blocks                           hashes of the full blocks of the output
    inputs/                          logs of sources that cannot be read again
    lock                             held by the process that has the folder open
"""

from __future__ import annotations

import fcntl
import os
import sqlite3
from collections.abc import Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from drift.records.journal import sync_folder
from drift.state.backend import Changes, Locked
from drift.state.base import Base
from drift.state.cut import StateDamaged
from drift.state.snapshots import LaterForm
from drift_graph.errors import SettingsError

BASE = "base.sqlite"
_DIGITS = 10


class FilesReader:
    """See `Reader`."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._base = Base(folder / BASE)

    def numbers(self) -> list[int]:
        """See `Reader`."""
        return sorted(int(path.stem) for path in (self._folder / "cuts").glob("*.cut"))

    def manifest(self, number: int) -> bytes | None:
        """See `Reader`."""
        return _read(_path_of(self._folder, number))

    def snapshots(self) -> dict[str, int]:
        """See `Reader`."""
        found = {}
        for path in (self._folder / "snapshots").iterdir():
            with suppress(FileNotFoundError):  # removed since it was listed
                found[path.name] = path.stat().st_size
        return found

    def snapshot(self, name: str) -> bytes | None:
        """See `Reader`."""
        return _read(self._folder / "snapshots" / name)

    def blocks(self) -> bytes:
        """See `Reader`."""
        return _read(self._folder / "blocks") or b""

    def folded(self) -> int:
        """See `Reader`."""
        return self._base.folded()

    def find(self, step: str, keys: Sequence[bytes]) -> Iterable[tuple[bytes, bytes]]:
        """See `Reader`."""
        return self._base.find(step, keys)

    def rows(self, step: str, *, timed: bool) -> Iterable[tuple[bytes, bytes]]:
        """See `Reader`."""
        return self._base.rows(step, timed=timed)

    def later(self) -> list[LaterForm]:
        """See `Reader`."""
        return self._base.later()

    def close(self) -> None:
        self._base.close()


class FilesBackend:
    """See `Backend`.

    Args:
        folder: of the cuts; made if it does not exist.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._lock: int | None = None
        self._is_deputy = False
        self._base: Base | None = None

    @property
    def where(self) -> str:
        return str(self._folder)

    @property
    def logs(self) -> str:
        """See `Backend`."""
        return str(self._folder / "inputs")

    def exists(self) -> bool:
        """See `Backend`."""
        return (self._folder / "cuts").is_dir() and (self._folder / BASE).exists()

    def deputy(self) -> tuple[FilesBackend, tuple[int, ...]]:
        """See `Backend`; the lock is held until both processes have released it."""
        assert self._lock is not None
        deputy = FilesBackend(self._folder)
        deputy._is_deputy = True
        return deputy, (self._lock,)

    def open(self) -> None:
        """See `Backend`."""
        if not self._is_deputy:
            self._take()
        self._base = Base(self._folder / BASE, writes=True)

    def _take(self) -> None:
        try:
            for each in (self._folder, self._folder / "cuts", self._folder / "snapshots"):
                each.mkdir(parents=True, exist_ok=True)
            self._lock = os.open(self._folder / "lock", os.O_RDWR | os.O_CREAT, 0o644)
        except OSError as error:
            raise SettingsError(f"state cannot be stored in {self._folder}: {error.strerror}") from error
        try:
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            os.close(self._lock)
            self._lock = None
            raise Locked(
                f"another process stores the state of its run in {self._folder}; wait until it has ended, or give this "
                f"run a folder of its own"
            ) from None

    def reader(self) -> FilesReader:
        """See `Backend`."""
        return FilesReader(self._folder)

    def commit(self, number: int, snapshots: Mapping[str, bytes], at: int, blocks: bytes, manifest: bytes) -> None:
        """See `Backend`."""
        try:
            for name, data in snapshots.items():
                _write(self._folder / "snapshots" / name, data)
            if blocks:
                path = self._folder / "blocks"
                with path.open("r+b" if path.exists() else "w+b") as file:
                    file.seek(at)
                    file.write(blocks)
                    file.truncate()
                    _flush(file)
            path = _path_of(self._folder, number)
            partial = path.with_suffix(".partial")
            _write(partial, manifest)
            partial.replace(path)
            sync_folder(path.parent)
        except OSError as error:
            raise SettingsError(f"a cut cannot be written to {self._folder}: {error.strerror}") from error

    def forget(self, numbers: Collection[int], snapshots: Collection[str]) -> None:
        """See `Backend`."""
        for number in numbers:
            _path_of(self._folder, number).unlink(missing_ok=True)
        if numbers:
            sync_folder(self._folder / "cuts")
        for name in snapshots:
            (self._folder / "snapshots" / name).unlink(missing_ok=True)

    def fold(self, number: int, changes: Changes) -> None:
        """See `Backend`."""
        assert self._base is not None
        try:
            self._base.fold(number, changes)
        except sqlite3.Error as error:
            raise SettingsError(f"{self._folder / BASE} cannot be written: {error}") from error

    def close(self) -> None:
        """See `Backend`."""
        if self._base is not None:
            self._base.close()
            self._base = None
        if self._lock is not None:
            os.close(self._lock)
            self._lock = None


def _path_of(folder: Path, number: int) -> Path:
    return folder / "cuts" / f"{number:0{_DIGITS}}.cut"


def _read(path: Path) -> bytes | None:
    """The bytes of a file; None if it does not exist."""
    try:
        return path.read_bytes()
    except FileNotFoundError:
        return None
    except OSError as error:
        raise StateDamaged(f"{path} cannot be read: {error.strerror}") from error


def _write(path: Path, data: bytes) -> None:
    with path.open("wb") as file:
        file.write(data)
        _flush(file)


def _flush(file: Any) -> None:
    file.flush()
    os.fsync(file.fileno())
