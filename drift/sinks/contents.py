"""The content of a growing file as a hash, which goes on from a checkpoint without reading the file again.

Invariant: equal bytes give equal hashes, in whatever parts they were written.

Why: full blocks are chained: the hash of a chain is that of the chain before and the hash of the block. So of a file
that goes on only the last block, which is not full, is read.
"""

from __future__ import annotations

import os
from typing import Any, BinaryIO

import xxhash

BLOCK_BYTES = 1 << 20


class ContentHash:
    """The hash of what `add` was given."""

    def __init__(self) -> None:
        self._chain = b""
        self._block = xxhash.xxh3_128()
        self._bytes = 0  # in it

    def add(self, data: bytes | memoryview) -> None:
        left = memoryview(data)
        while left:
            piece = left[: BLOCK_BYTES - self._bytes]
            left = left[len(piece) :]
            self._block.update(piece)
            self._bytes += len(piece)
            if self._bytes == BLOCK_BYTES:
                self._chain = xxhash.xxh3_128_digest(self._chain + self._block.digest())
                self._block, self._bytes = xxhash.xxh3_128(), 0

    def form(self) -> list[str]:
        return [self._chain.hex(), self._block.hexdigest()]

    @classmethod
    def resumed(cls, form: Any, file: int, length: int) -> ContentHash:
        """The hash of a file with a stored hash and so many bytes, of which the last block is read.

        Raises:
            OSError: the file cannot be read.
        """
        found = cls()
        found._chain = bytes.fromhex(form[0])
        found.add(os.pread(file, length % BLOCK_BYTES, length - length % BLOCK_BYTES))
        return found

    @classmethod
    def of(cls, file: int, length: int) -> ContentHash:
        """The hash of the first bytes of a file. Raises OSError: the file cannot be read."""
        found = cls()
        for start in range(0, length, BLOCK_BYTES):
            found.add(os.pread(file, min(BLOCK_BYTES, length - start), start))
        return found


def file_hash(file: BinaryIO) -> str:
    """The hash of a whole file. Raises OSError: it cannot be read."""
    found = xxhash.xxh3_128()
    while block := file.read(BLOCK_BYTES):
        found.update(block)
    return found.hexdigest()
