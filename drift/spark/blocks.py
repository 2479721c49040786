"""The digest of a range of the output, and of an output that was hashed in ranges.

Invariant: `joined_digest` over consecutive ranges gives the digest of all their items together.

Why: blocks are cut by position in the whole output. A range hashes the blocks that lie within it, and gives the bytes
of those that it shares with its neighbours, fewer than 4096 items at each end.
"""

from __future__ import annotations

from collections.abc import Iterable

from drift_barrier.digest import BLOCK_ITEMS, Algorithm, Digest, hash_of_parts

#: Position of the first item, how many items, canonical bytes of their metas and of their payloads.
Edge = tuple[int, int, bytes, bytes]


class PartDigest(Digest):
    """Folds in the items from a position on.

    Args:
        start: position of the first item.
    """

    def __init__(self, algorithm: Algorithm, start: int) -> None:
        super().__init__(algorithm)
        self._start = start
        self._first_block = start // BLOCK_ITEMS
        self._open.count = start % BLOCK_ITEMS
        self._head: Edge | None = None

    def parts(self) -> tuple[list[tuple[int, bytes]], list[Edge]]:
        """Hashes of full blocks by number, and the bytes of the others."""
        full = list(enumerate(self.blocks, self._first_block))
        edges: list[Edge] = []
        if self._head is not None:
            full = full[1:]
            edges.append(self._head)
        at = max(self._start, (self._first_block + len(self.blocks)) * BLOCK_ITEMS)
        count = self._open.count - at % BLOCK_ITEMS
        if count:
            edges.append((at, count, b"".join(self._open.metas), b"".join(self._open.payloads)))
        return full, edges

    def _open_block(self) -> bytes:
        if not self.blocks and self._start % BLOCK_ITEMS:  # it began before this range
            count = self._open.count - self._start % BLOCK_ITEMS
            self._head = self._start, count, b"".join(self._open.metas), b"".join(self._open.payloads)
            return b""
        return super()._open_block()


def joined_digest(algorithm: Algorithm, blocks: Iterable[tuple[int, bytes]], edges: Iterable[Edge]) -> list[bytes]:
    """The block hashes of the whole output; the last block may not be full."""
    found = dict(blocks)
    shared: dict[int, list[Edge]] = {}
    for edge in sorted(edges):
        shared.setdefault(edge[0] // BLOCK_ITEMS, []).append(edge)
    for number, parts in shared.items():
        count = sum(part[1] for part in parts)
        found[number] = hash_of_parts(algorithm, count, [part[2] for part in parts], [part[3] for part in parts])
    assert sorted(found) == list(range(len(found))), "a block of the digest is missing"
    return [found[number] for number in range(len(found))]
