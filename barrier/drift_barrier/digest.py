"""The digest of a run's output: a hash for every block of 4096 items, and a hash over the block hashes.

Invariant: the digest depends on the released metas and payloads and their order, not on how they were batched.

Why: blocks are cut by position, and a block is hashed as the canonical bytes of the pair (metas, payloads), each a
tuple: every value in it carries its length. Two outputs differ first in the first block whose hashes differ, and
blocks can be hashed apart from each other, in parallel.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, Literal, NamedTuple

import xxhash

from drift_graph.canonical import canonical_each, encode_metas, encode_plain
from drift_graph.metas import Metas, have_one_length
from drift_graph.payloads import of_kind

BLOCK_ITEMS = 4096
Algorithm = Literal["xxh3_128", "sha256"]
Part = bytes | memoryview


def new_hash(algorithm: Algorithm, data: bytes = b"") -> Any:
    """A hash object, of these bytes so far."""
    if algorithm == "sha256":
        import hashlib  # here: it loads OpenSSL

        return hashlib.sha256(data)
    return xxhash.xxh3_128(data)


def block_head(count: int) -> tuple[bytes, bytes]:
    """What stands before the metas of a block, and before its payloads."""
    array = b"\xdc" + count.to_bytes(2, "big")
    return b"\x92" + array, array


def hash_of_parts(algorithm: Algorithm, count: int, metas: Iterable[Part], payloads: Iterable[Part]) -> bytes:
    """The hash of a block: of how many items, and the canonical bytes of their metas and of their payloads.

    The parts of these are not joined, since a block may be large.
    """
    hashing = new_hash(algorithm)
    head, between = block_head(count)
    for part in (head, *metas, between, *payloads):
        hashing.update(part)
    digest: bytes = hashing.digest()
    return digest


def hash_block(algorithm: Algorithm, data: bytes) -> bytes:
    """The hash of one block's bytes, or of the joined block hashes of a run."""
    digest: bytes = new_hash(algorithm, data).digest()
    return digest


class Encoded(NamedTuple):
    """Consecutive items of one block as canonical bytes; `plain` where their payloads are scalars and tuples only."""

    items: int
    metas: bytes
    payloads: bytes
    plain: bool


def encoded_pieces(metas: Metas, payloads: list[Any], room: int = BLOCK_ITEMS) -> list[Encoded]:
    """Items encoded block by block, where the first block has room for that many.

    Raises:
        NoCanonicalForm: for a payload without one.
    """
    pieces: list[Encoded] = []
    start = 0
    at_once, each = b"", 0
    if len(metas) > room and have_one_length(metas):  # cut as bytes
        at_once = encode_metas(metas)
        each = len(at_once) // len(metas)
    while start < len(metas):
        end = min(start + room, len(metas))
        whole = end - start == len(metas)
        values = payloads if whole else of_kind(payloads, payloads[start:end])
        plain = encode_plain(values)
        payload_bytes = b"".join(canonical_each(values)) if plain is None else plain
        cut = at_once[start * each : end * each]
        meta_bytes = cut or encode_metas(metas if whole else metas[start:end])
        pieces.append(Encoded(end - start, meta_bytes, payload_bytes, plain is not None))
        start, room = end, BLOCK_ITEMS
    return pieces


class Digest:
    """Folds released items in, batch by batch; behind `blocks`, where others were hashed before."""

    def __init__(self, algorithm: Algorithm = "xxh3_128", blocks: Iterable[bytes] = ()) -> None:
        self.algorithm: Algorithm = algorithm
        self.blocks: list[bytes] = list(blocks)
        self._count = 0  # items of the block that is not full yet, and their bytes
        self._metas: list[bytes] = []
        self._payloads: list[bytes] = []

    def add(self, metas: Metas, payloads: list[Any]) -> list[Encoded]:
        """The next items of the output, in order; returns what was hashed, in pieces of a block at most.

        Raises:
            NoCanonicalForm: for a payload without one; then none of the items is added.
        """
        pieces = encoded_pieces(metas, payloads, BLOCK_ITEMS - self._count)
        for piece in pieces:
            self.add_encoded(piece)
        return pieces

    def add_encoded(self, piece: Encoded) -> None:
        """The next items, which do not go beyond the open block."""
        self._count += piece.items
        assert self._count <= BLOCK_ITEMS
        self._metas.append(piece.metas)
        self._payloads.append(piece.payloads)
        if self._count == BLOCK_ITEMS:
            self.blocks.append(self._open_block())
            self._count, self._metas, self._payloads = 0, [], []

    def opened(self) -> list[Encoded]:
        """The items of the block that is not full, in one piece at the most."""
        if not self._count:
            return []
        return [Encoded(self._count, b"".join(self._metas), b"".join(self._payloads), False)]

    def resume(self, blocks: Sequence[bytes], opened: Sequence[Encoded]) -> None:
        """Before any item: be the digest of output whose full blocks have these hashes, with these items after them."""
        self.blocks = list(blocks)
        for piece in opened:
            self.add_encoded(piece)

    def open_block(self) -> tuple[int, bytes] | None:
        """How many items the last block has, and its hash so far; None where the last block is full."""
        return (self._count, self._open_block()) if self._count else None

    def hexdigest(self) -> str:
        """The digest of everything added so far."""
        blocks = [*self.blocks, self._open_block()] if self._count else self.blocks
        return hash_block(self.algorithm, b"".join(blocks)).hex()

    def _open_block(self) -> bytes:
        return hash_of_parts(self.algorithm, self._count, self._metas, self._payloads)
