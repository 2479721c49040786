"""The blocks of a table: a hash of every 4096 rows, and a short check of every row that locates a change in its block.

Invariant: a block's hash is that of `drift_barrier.digest`, of its rows' metas (in the input: global times) and
payloads; a row's checks depend on nothing but its meta and its payload.

Why both: the hash proves that a block has changed, the check, three bytes, says which row.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from drift.records.columns import ends_of, joined
from drift.spilled import Spilled
from drift_barrier.digest import BLOCK_ITEMS, Algorithm, Digest, Encoded


class Block(NamedTuple):
    """A full block, or the last one so far.

    Attributes:
        number: from 0.
        rows: 4096, or fewer in the last one.
        hash: of its metas and payloads.
        meta_checks: the low byte of `checks` of each meta.
        payload_checks: both bytes of `checks` of each payload, the low one first.
    """

    number: int
    rows: int
    hash: bytes
    meta_checks: bytes
    payload_checks: bytes


def checks(strings: pa.Array) -> npt.NDArray[np.uint16]:
    """For each string the sum of its bytes and above it its length, both modulo 256; any change of one byte changes
    it.
    """
    ends = ends_of(strings) - ends_of(strings)[0]
    both = np.zeros((len(strings), 2), np.uint8)
    data = np.append(np.frombuffer(joined(strings), np.uint8), np.uint8(0))  # where an empty one at the end begins
    sizes = np.diff(ends)
    both[:, 0] = np.add.reduceat(data, ends[:-1], dtype=np.uint8) if len(strings) else 0
    both[sizes == 0, 0], both[:, 1] = 0, sizes
    return both.view("<u2").reshape(-1)


class Blocks:
    """Adds rows to blocks as they come."""

    def __init__(self, algorithm: Algorithm) -> None:
        self.digest = Digest(algorithm, new_parts=Spilled)
        self.rows = 0
        self._full: list[Block] = []
        self._meta_checks: list[bytes] = []
        self._payload_checks: list[bytes] = []

    @staticmethod
    def after(hashes: list[bytes], algorithm: Algorithm) -> Blocks:
        """The blocks of a table that continues behind full blocks with these hashes."""
        blocks = Blocks(algorithm)
        blocks.digest.blocks = hashes
        blocks.rows = BLOCK_ITEMS * len(hashes)
        return blocks

    def add(self, metas: pa.Array, payloads: pa.Array) -> None:
        """Add the next rows: canonical bytes of both."""
        of_metas, of_payloads = checks(metas).astype(np.uint8), checks(payloads).astype("<u2")
        start, count = 0, len(metas)
        while start < count:
            room = BLOCK_ITEMS - self.rows % BLOCK_ITEMS
            end = min(start + room, count)
            data, of_payload = (joined(each[start:end]).tobytes() for each in (metas, payloads))
            encoded = Encoded(end - start, data, of_payload, False)
            self.digest.add_encoded(encoded)
            self._meta_checks.append(of_metas[start:end].tobytes())
            self._payload_checks.append(of_payloads[start:end].tobytes())
            self.rows += end - start
            if self.rows % BLOCK_ITEMS == 0:
                self._full.append(self._block(self.rows // BLOCK_ITEMS - 1, BLOCK_ITEMS, self.digest.blocks[-1]))
                self._meta_checks, self._payload_checks = [], []
            start = end

    def _block(self, number: int, rows: int, found: bytes) -> Block:
        return Block(number, rows, found, b"".join(self._meta_checks), b"".join(self._payload_checks))

    def take(self) -> list[Block]:
        """The blocks that have become full since the last call."""
        taken, self._full = self._full, []
        return taken

    @property
    def open(self) -> Block | None:
        """The block that is not full yet."""
        last = self.digest.open_block()
        return self._block(self.rows // BLOCK_ITEMS, *last) if last is not None else None
