"""Bytes in parts, in the order they came: in memory while they are few, beyond that in a file.

Invariant: iterating gives all bytes that were appended, also again and after more were; in memory are fewer than
`MEMORY_BYTES` and the last part.

Why: the file has no name, so it is gone with the object and with the process, however that ends. What is in memory goes
to its end as a whole. One thread appends; another may read, at places of its own in the file.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from typing import BinaryIO

from drift_barrier.digest import ListedParts
from drift_graph.errors import StorageError

MEMORY_BYTES = 32 * 2**20
_READ_BYTES = 2**20


class Spilled:
    def __init__(self) -> None:
        # The bytes in the file, and what is behind them; replaced together, since another thread may read.
        self._stored: tuple[int, list[bytes]] = 0, []
        self._bytes = 0  # of those in memory
        self._file: BinaryIO | None = None

    def append(self, part: bytes) -> None:
        """Add bytes at the end. Raises StorageError: the file cannot be written."""
        file_bytes, in_memory = self._stored
        in_memory.append(part)
        self._bytes += len(part)
        if self._bytes < MEMORY_BYTES:
            return
        with _stored():
            if self._file is None:
                self._file = tempfile.TemporaryFile(buffering=0)  # noqa: SIM115
            self._file.seek(file_bytes)
            for each in in_memory:
                rest = memoryview(each)
                while rest:
                    rest = rest[self._file.write(rest) :]
        self._stored, self._bytes = (file_bytes + self._bytes, []), 0

    def __iter__(self) -> Iterator[bytes]:
        """All bytes so far; see `since`."""
        return self.since(0)

    def since(self, start: int, /) -> Iterator[bytes]:
        """The bytes from this one on that are there when the first one is asked for.

        Raises:
            StorageError: the file cannot be read.
        """
        end, appended = self._stored
        in_memory = appended[:]
        at = min(start, end)
        while at < end:
            assert self._file is not None
            with _stored():
                part = os.pread(self._file.fileno(), min(_READ_BYTES, end - at), at)
            if not part:
                raise StorageError(f"a file in {tempfile.gettempdir()} has lost what this run has written there")
            at += len(part)
            yield part
        yield from ListedParts(in_memory).since(max(start - end, 0))


@contextmanager
def _stored() -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise StorageError(
            f"payloads for the digest take more than {MEMORY_BYTES >> 20} MiB, and they cannot be stored in "
            f"{tempfile.gettempdir()}: {error.strerror or error}; make room, or let TMPDIR name another folder"
        ) from error
