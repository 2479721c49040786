"""The digest of a run's output: a hash for every block of 4096 items, and a hash over the block hashes.

Invariant: the digest depends on the released metas and payloads and their order, not on how they were batched.

Why: blocks are cut by position, and a block is hashed as the canonical bytes of the pair (metas, payloads), each a
tuple: every value in it carries its length. Two outputs differ first in the first block whose hashes differ, and
blocks can be hashed apart from each other, in parallel.
"""

from __future__ import annotations

import hashlib
from typing import Any, Literal

import xxhash

from drift_graph.canonical import encode_many, encode_metas
from drift_graph.meta import Metas

BLOCK_ITEMS = 4096
Algorithm = Literal["xxh3_128", "sha256"]


def block_bytes(count: int, metas: bytes, payloads: bytes) -> bytes:
    """What a block's hash is taken of: how many items, and the canonical bytes of their metas and of their payloads."""
    array = b"\xdc" + count.to_bytes(2, "big")
    return b"\x92" + array + metas + array + payloads


def hash_block(algorithm: Algorithm, data: bytes) -> bytes:
    """The hash of one block's bytes, or of the joined block hashes of a run."""
    return hashlib.sha256(data).digest() if algorithm == "sha256" else xxhash.xxh3_128_digest(data)


class Digest:
    """Folds released items in, batch by batch."""

    def __init__(self, algorithm: Algorithm = "xxh3_128") -> None:
        self.algorithm: Algorithm = algorithm
        self.blocks: list[bytes] = []
        self._count = 0  # items of the block that is not full yet, and their bytes
        self._metas: list[bytes] = []
        self._payloads: list[bytes] = []

    def add(self, metas: Metas, payloads: list[Any]) -> None:
        """The next items of the output, in order.

        Raises:
            NoCanonicalForm: for a payload without one; then none of the items is added.
        """
        pieces: list[tuple[int, bytes, bytes]] = []
        start, room = 0, BLOCK_ITEMS - self._count
        while start < len(metas):
            end = min(start + room, len(metas))
            if end - start == len(metas):
                pieces.append((end, encode_metas(metas), encode_many(payloads)))
            else:
                pieces.append((end - start, encode_metas(metas[start:end]), encode_many(payloads[start:end])))
            start, room = end, BLOCK_ITEMS
        for count, meta_bytes, payload_bytes in pieces:
            self._count += count
            self._metas.append(meta_bytes)
            self._payloads.append(payload_bytes)
            if self._count == BLOCK_ITEMS:
                self.blocks.append(self._open_block())
                self._count, self._metas, self._payloads = 0, [], []

    def hexdigest(self) -> str:
        """The digest of everything added so far."""
        blocks = [*self.blocks, self._open_block()] if self._count else self.blocks
        return hash_block(self.algorithm, b"".join(blocks)).hex()

    def _open_block(self) -> bytes:
        return hash_block(self.algorithm, block_bytes(self._count, b"".join(self._metas), b"".join(self._payloads)))
