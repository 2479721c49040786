"""The digest of a run's output: a hash for every block of 4096 items, and a hash over the block hashes.

Invariant: the digest depends on the released metas and payloads and their order, not on how they were batched.

Why: blocks are cut by position, and a block is hashed as the canonical bytes of the pair (metas, payloads), each a
tuple: every value in it carries its length. Two outputs differ first in the first block whose hashes differ, and
blocks can be hashed independently, in parallel.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import chain
from typing import Any, Literal, NamedTuple, Protocol

import xxhash

from drift_graph.canonical import joined_by_block
from drift_graph.metas import Metas

BLOCK_ITEMS = 4096
Algorithm = Literal["xxh3_128", "sha256"]
Part = bytes | memoryview
_PIECE_BYTES = 2**20


class Parts(Protocol):
    """Bytes in parts."""

    def append(self, part: bytes, /) -> None: ...
    def __iter__(self) -> Iterator[bytes]: ...

    def since(self, start: int, /) -> Iterator[bytes]:
        """The bytes from this one on; another thread may append meanwhile."""


class ListedParts(list[bytes]):
    """Parts in memory."""

    def since(self, start: int, /) -> Iterator[bytes]:
        for part in self:
            if start < len(part):
                yield part[start:]
            start = max(start - len(part), 0)


#: Makes empty parts, which may be in a file: the payloads of the open block take as much as 4096 items do.
NewParts = Callable[[], Parts]


def new_hash(algorithm: Algorithm, data: bytes = b"") -> Any:
    """A hash object, of these bytes so far."""
    if algorithm == "sha256":
        import hashlib  # here: it loads OpenSSL

        return hashlib.sha256(data)
    return xxhash.xxh3_128(data)


def block_head(count: int) -> tuple[bytes, bytes]:
    """The bytes before the metas of a block, and before its payloads."""
    array = b"\xdc" + count.to_bytes(2, "big")
    return b"\x92" + array, array


def hash_of_parts(algorithm: Algorithm, count: int, metas: Iterable[Part], payloads: Iterable[Part]) -> bytes:
    """The hash of a block of `count` items, from parts of the canonical bytes of their metas and payloads.

    The parts are neither joined nor kept, since a block may be large.
    """
    hashing = new_hash(algorithm)
    head, between = block_head(count)
    for part in chain((head,), metas, (between,), payloads):
        hashing.update(part)
    digest: bytes = hashing.digest()
    return digest


def hash_block(algorithm: Algorithm, data: bytes) -> bytes:
    """The hash of one block's bytes, or of the joined block hashes of a run."""
    digest: bytes = new_hash(algorithm, data).digest()
    return digest


class Encoded(NamedTuple):
    """Consecutive items of one block as canonical bytes; `plain`: their payloads are scalars and tuples only."""

    items: int
    metas: bytes
    payloads: bytes
    plain: bool


def encoded_by_block(metas: Metas, payloads: list[Any], room: int = BLOCK_ITEMS) -> Iterator[Encoded]:
    """Items encoded block by block; of rows each block as it is taken, since all together outgrow a processor's cache.

    Args:
        room: how many items the first block has room for.

    Raises:
        NoCanonicalForm: a payload has none.
    """
    start = 0
    for payload_bytes, is_plain, _ in joined_by_block(payloads, room, BLOCK_ITEMS):
        end = min(start + room, len(metas))
        yield Encoded(end - start, metas.encoded(start, end), payload_bytes, is_plain)
        start, room = end, BLOCK_ITEMS


class Extent(NamedTuple):
    """How much there is of a block: items, and the bytes of their metas and of their payloads."""

    items: int = 0
    metas: int = 0
    payloads: int = 0

    def and_(self, items: int, metas: int, payloads: int) -> Extent:
        return Extent(self.items + items, self.metas + metas, self.payloads + payloads)


class OpenBlock:
    """The items of the block that is not full, as canonical bytes.

    Payloads are hashed behind all metas of their block, so the bytes stay until it is full.
    """

    def __init__(self, new_parts: NewParts = ListedParts) -> None:
        self.count = 0
        self.metas: list[bytes] = []
        self.payloads = new_parts()
        self._extent = Extent()

    def add(self, part: Encoded) -> None:
        """Add the next items, which must fit; or more bytes of the payloads of those before."""
        self.count += part.items
        assert self.count <= BLOCK_ITEMS
        self.metas.append(part.metas)
        self.payloads.append(part.payloads)
        self._extent = self._extent.and_(part.items, len(part.metas), len(part.payloads))

    def opened(self) -> Opened:
        """The items that are there now."""
        return Opened(self, self._extent)


class Opened:
    """The items of a block that was not full, as of one moment; more may have been added since.

    Attributes:
        extent: how much there was.
    """

    def __init__(self, block: OpenBlock, extent: Extent) -> None:
        self._block = block
        self.extent = extent

    def since(self, begin: Extent, size: int) -> Iterator[Encoded]:
        """What is behind `begin`: metas in the first part, and no more than `size` bytes of payloads in each.

        So the parts behind the first one have no items of their own.
        """
        items, metas, left = (end - start for end, start in zip(self.extent, begin, strict=True))
        of_metas = b"".join(self._block.metas)[begin.metas : begin.metas + metas]
        for payloads in _in_pieces(self._block.payloads.since(begin.payloads), left, size):
            yield Encoded(items, of_metas, payloads, False)
            items, of_metas = 0, b""

    def __iter__(self) -> Iterator[Encoded]:
        return self.since(Extent(), _PIECE_BYTES)


def _in_pieces(parts: Iterable[bytes], total: int, size: int) -> Iterator[bytes]:
    """The first `total` bytes of parts in pieces of one size; the last one may be shorter."""
    piece: list[memoryview] = []
    room = min(size, total)
    for part in parts:
        rest = memoryview(part)
        while len(rest) >= room > 0:
            yield b"".join([*piece, rest[:room]])
            rest, total, piece = rest[room:], total - min(size, total), []
            room = min(size, total)
        if not room:
            return
        piece.append(rest)
        room -= len(rest)


class Digest:
    """Folds released items into block hashes, batch by batch.

    Args:
        new_parts: makes what holds the payloads of the open block.
    """

    def __init__(self, algorithm: Algorithm = "xxh3_128", new_parts: NewParts = ListedParts) -> None:
        self.algorithm: Algorithm = algorithm
        self.blocks: list[bytes] = []
        self._new_parts = new_parts
        self._open = OpenBlock(new_parts)

    def add(self, metas: Metas, payloads: list[Any], *, keeps: bool = False) -> list[Encoded]:
        """Add the next items of the output.

        Args:
            keeps: whether to return their bytes, at most one part for each block; else there are none.

        Raises:
            NoCanonicalForm: a payload has none; then none of the items is added.
        """
        kept: list[Encoded] = []
        hashes: list[bytes] = []  # of whole blocks
        ends: list[Encoded] = []  # what is in front of them, in the open block, and behind them
        for part in encoded_by_block(metas, payloads, BLOCK_ITEMS - self._open.count):
            if keeps:
                kept.append(part)
            if part.items == BLOCK_ITEMS:
                hashes.append(hash_of_parts(self.algorithm, part.items, (part.metas,), (part.payloads,)))
            else:
                ends.append(part)
        for part in ends[:1]:
            self.add_encoded(part)
        self.blocks += hashes
        for part in ends[1:]:
            self.add_encoded(part)
        return kept

    def add_encoded(self, part: Encoded) -> None:
        """Add the next items, which must fit into the open block."""
        self._open.add(part)
        if self._open.count == BLOCK_ITEMS:
            self.blocks.append(self._open_block())
            self._open = OpenBlock(self._new_parts)

    def opened(self) -> Opened:
        """The items of the open block."""
        return self._open.opened()

    def resume(self, blocks: Sequence[bytes], opened: Iterable[Encoded]) -> None:
        """Continue from output whose full blocks have these hashes, followed by these items; called before any item."""
        self.blocks = list(blocks)
        for part in opened:
            self.add_encoded(part)

    def open_block(self) -> tuple[int, bytes] | None:
        """The number of items in the open block, and its hash so far; None if there is no open block."""
        return (self._open.count, self._open_block()) if self._open.count else None

    def hexdigest(self) -> str:
        """The digest of everything added so far."""
        blocks = [*self.blocks, self._open_block()] if self._open.count else self.blocks
        return hash_block(self.algorithm, b"".join(blocks)).hex()

    def _open_block(self) -> bytes:
        return hash_of_parts(self.algorithm, self._open.count, self._open.metas, self._open.payloads)
