"""Snapshots of checkpoints as files in the private folder of a run; a key is looked up without reading the rest of the
file.

Invariant: a file gets its final name when it is complete, and is never changed after that.

Why: the writer of a file gives it a unique name, and announces that name only afterwards. A worker writes its snapshot
unsorted, which is quick. The merger merges snapshots into one by key (`drift.engines.by_key`).
"""

from __future__ import annotations

import mmap
import os
import time
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from itertools import groupby
from pathlib import Path
from typing import BinaryIO

from drift.engines.by_key import ByKey, FileByKey, write_by_key
from drift.machines.nodes.messages import SnapshotPart
from drift.machines.nodes.snapshots import Layer, LoadedLayer, NoRoom, packed, unpacked
from drift.machines.worker import Snapshot
from drift_graph.errors import ProcessError

#: Most bytes of a file in one message to another machine.
PART_BYTES = 1 << 20
_AS_IT_IS, _BY_KEY = b"\0", b"\1"


class SnapshotFiles:
    """A `Shelf` in a folder.

    Args:
        writer: prefix of the names of files that this process writes.
        timed: names of the steps whose states have timers.
        writing: held while a file is made.
    """

    def __init__(
        self,
        folder: str,
        writer: str,
        timed: Collection[str],
        writing: Callable[[], AbstractContextManager[object]] = nullcontext,
    ) -> None:
        self.folder = Path(folder)
        self._writer = writer
        self.timed = timed
        self._writing = writing
        self._written = 0

    def put(self, snapshot: Snapshot) -> tuple[bytes, int, float]:
        began_s = time.thread_time()
        data = packed(snapshot)
        packed_s = time.thread_time() - began_s
        began_s = time.perf_counter()
        try:
            return *self._write(
                lambda file: file.writelines((_AS_IT_IS, data))
            ), packed_s + time.perf_counter() - began_s
        except NoRoom as no_room:
            no_room.tried_s = packed_s + time.perf_counter() - began_s
            raise

    def get(self, names: Sequence[bytes]) -> list[Layer]:
        """Consecutive files of the same kind are one layer."""
        layers: list[Layer] = []
        for is_by_key, group in groupby(map(self._data, names), lambda data: data[:1] == _BY_KEY):
            if is_by_key:
                layers.append(ByKey(list(map(FileByKey, group))))
            else:
                layers.append(LoadedLayer([unpacked(data[1:]) for data in group], self.timed))
        return layers

    def snapshot(self, name: bytes) -> Snapshot:
        return unpacked(self._data(name)[1:])

    def parts(self, name: bytes) -> Iterator[SnapshotPart]:
        """A snapshot, for a shelf on another machine."""
        data = self._data(name)
        for begin in range(0, len(data), PART_BYTES):
            end = begin + PART_BYTES
            yield SnapshotPart(name, begin, bytes(data[begin:end]), end >= len(data))

    def take(self, part: SnapshotPart) -> None:
        """Store the next part of a snapshot of a shelf on another machine.

        Raises:
            ProcessError: there is no room for it.
        """
        path = self.folder / Path(os.fsdecode(part.name)).name
        unfinished = path.with_suffix(".unfinished")
        try:
            with unfinished.open("wb" if part.begin == 0 else "ab") as file:
                file.write(part.data)
            if part.is_last:
                unfinished.rename(path)
        except OSError as error:
            raise ProcessError(
                f"the snapshot of a worker on another machine cannot be stored in {self.folder}: {error.strerror}; "
                f"everything released before stands. Make room, or let TMPDIR name another folder, and run again"
            ) from error

    def _data(self, name: bytes) -> memoryview:
        with (self.folder / os.fsdecode(name)).open("rb") as file:
            return memoryview(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ))

    def drop(self, name: bytes) -> None:
        (self.folder / os.fsdecode(name)).unlink(missing_ok=True)

    def merge(self, names: Sequence[bytes]) -> tuple[bytes, int]:
        """Merge consecutive snapshots into one, in which keys can be looked up."""
        parts = [FileByKey(data) if data[:1] == _BY_KEY else unpacked(data[1:]) for data in map(self._data, names)]

        def write(file: BinaryIO) -> None:
            file.write(_BY_KEY)
            write_by_key(file, parts, self.timed)

        return self._write(write)

    def _write(self, write: Callable[[BinaryIO], object]) -> tuple[bytes, int]:
        self._written += 1
        path = self.folder / f"{self._writer}.{self._written}.snapshot"
        try:
            with self._writing():
                file = path.open("xb")
            with file:
                write(file)
                return os.fsencode(path.name), file.tell()
        except OSError as error:
            path.unlink(missing_ok=True)
            raise NoRoom(f"{path} cannot be written: {error}") from error
