"""The blocks of a table: the hash of every 4096 rows, and a small check of every row, which says where in a block.

Invariant: a block's hash is that of `drift_barrier.digest`, of its rows' metas (global times, in the input) and
payloads; a row's checks depend on nothing but its meta and its payload.

Why both: a hash shows that something has changed, and a check, of three bytes, which row it is in.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import xxhash

from drift.records import columns
from drift.records.columns import Bytes, Strings
from drift_barrier.digest import BLOCK_ITEMS, Algorithm, Digest, Encoded

#: Of a payload, in two bytes, little-endian.
PayloadChecks = npt.NDArray[np.uint16]
_WEIGHT = np.uint32(2654435761)  # the golden ratio of 2**32


class Block(NamedTuple):
    """A block that is full, or the last one so far.

    Attributes:
        number: from 0.
        rows: 4096, or less in the last one.
        hash: of its metas and payloads.
        meta_checks: one byte for each row.
        payload_checks: two bytes for each row.
    """

    number: int
    rows: int
    hash: bytes
    meta_checks: bytes
    payload_checks: bytes


def payload_checks(payloads: Strings) -> PayloadChecks:
    """The low 16 bits of the xxh32 of each."""
    return low_bits(list(map(xxhash.xxh32_intdigest, payloads.listed())))


def low_bits(hashes: list[int]) -> PayloadChecks:
    return np.array(hashes, np.uint32).astype(np.uint16)


def meta_checks(metas: Strings) -> Bytes:
    """The top 8 bits of the sum, modulo 2**32, of every byte times 2654435761 * (2 * its index + 1)."""
    if not len(metas):
        return np.zeros(0, np.uint8)
    lengths = metas.lengths
    starts = (metas.offsets[:-1] - metas.offsets[0]).astype(np.int64)
    data = metas.data[metas.offsets[0] : metas.offsets[-1]].astype(np.uint32)
    step = int(lengths[0])
    if (lengths == step).all():
        weights = _weights(np.arange(step, dtype=np.uint32))
        sums = (data.reshape(-1, step) * weights).sum(axis=1, dtype=np.uint32)
    else:
        index = (np.arange(len(data)) - np.repeat(starts, lengths)).astype(np.uint32)
        sums = np.add.reduceat(data * _weights(index), starts, dtype=np.uint32)
    checks: Bytes = (sums >> np.uint32(24)).astype(np.uint8)
    return checks


def _weights(index: npt.NDArray[np.uint32]) -> npt.NDArray[np.uint32]:
    return _WEIGHT * (np.uint32(2) * index + np.uint32(1))


class Blocks:
    """Folds rows in as they come."""

    def __init__(self, algorithm: Algorithm) -> None:
        self.digest = Digest(algorithm)
        self.rows = 0
        self._taken = 0  # full blocks that were taken
        self._full: list[Block] = []
        self._meta_checks: list[bytes] = []
        self._payload_checks: list[bytes] = []

    def add(self, metas: Strings, payloads: Strings, checks: PayloadChecks, meta_data: bytes | None = None) -> None:
        """The next rows.

        Args:
            checks: of the payloads.
            meta_data: the canonical bytes of the metas, where they are at hand.
        """
        of_metas = meta_checks(metas)
        start, count = 0, len(metas)
        while start < count:
            room = BLOCK_ITEMS - self.rows % BLOCK_ITEMS
            end = min(start + room, count)
            data = meta_data if meta_data is not None and end - start == count else None
            piece = Encoded(
                end - start,
                data if data is not None else columns.bins(metas.slice(start, end)),
                payloads.slice(start, end).joined().tobytes(),
                False,
            )
            self.digest.add_encoded(piece)
            self._meta_checks.append(of_metas[start:end].tobytes())
            self._payload_checks.append(checks[start:end].astype("<u2").tobytes())
            self.rows += end - start
            if self.rows % BLOCK_ITEMS == 0:
                self._full.append(self._block(self.rows // BLOCK_ITEMS - 1, BLOCK_ITEMS, self.digest.blocks[-1]))
                self._meta_checks, self._payload_checks = [], []
            start = end

    def _block(self, number: int, rows: int, found: bytes) -> Block:
        return Block(number, rows, found, b"".join(self._meta_checks), b"".join(self._payload_checks))

    def take(self) -> list[Block]:
        """The full blocks since the last time, and what there is of the next one."""
        taken, self._full = self._full, []
        last = self.digest.open_block()
        if last is not None:
            taken.append(self._block(self.rows // BLOCK_ITEMS, *last))
        return taken
