"""Bytes in parts, in the order they came: in memory while they are few, beyond that in a file.

Invariant: iterating gives all bytes that were appended, also again and after more were; in memory are fewer than
`MEMORY_BYTES` and the last part.

Why: the file has no name, so it is gone with the object and with the process, however that ends. What is in memory goes
to its end as a whole.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from typing import BinaryIO

from drift_graph.errors import StorageError

MEMORY_BYTES = 32 * 2**20
_READ_BYTES = 2**20


class Spilled:
    """See the module, and `drift_barrier.digest.Parts`."""

    def __init__(self) -> None:
        self._in_memory: list[bytes] = []
        self._bytes = 0  # of these
        self._file: BinaryIO | None = None
        self._file_bytes = 0

    def append(self, part: bytes) -> None:
        """Add bytes at the end.

        Raises:
            StorageError: the file cannot be written.
        """
        self._in_memory.append(part)
        self._bytes += len(part)
        if self._bytes < MEMORY_BYTES:
            return
        with _stored():
            if self._file is None:
                self._file = tempfile.TemporaryFile(buffering=0)  # noqa: SIM115
            self._file.seek(self._file_bytes)
            for each in self._in_memory:
                rest = memoryview(each)
                while rest:
                    rest = rest[self._file.write(rest) :]
        self._file_bytes += self._bytes
        self._in_memory, self._bytes = [], 0

    def __iter__(self) -> Iterator[bytes]:
        """All bytes so far.

        Raises:
            StorageError: the file cannot be read.
        """
        at, end, in_memory = 0, self._file_bytes, self._in_memory[:]
        while at < end:
            assert self._file is not None
            with _stored():
                self._file.seek(at)
                part = self._file.read(min(_READ_BYTES, end - at))
            if not part:
                raise StorageError(f"a file in {tempfile.gettempdir()} has lost what this run has written there")
            at += len(part)
            yield part
        yield from in_memory


@contextmanager
def _stored() -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise StorageError(
            f"payloads for the digest take more than {MEMORY_BYTES >> 20} MiB, and they cannot be stored in "
            f"{tempfile.gettempdir()}: {error.strerror or error}; make room, or let TMPDIR name another folder"
        ) from error
