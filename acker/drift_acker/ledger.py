"""A worker's side of the acker: the checksums of what it sends, and the one ack of what it processed.

Invariant: every message gets a checksum that no other message of the run has, and appears in exactly two acks: the
one of the batch that sent it and the one of the batch that consumed it.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import xxhash

from drift_acker.table import Ack


class Ledger:
    """Checksums of one sender. `sender` is its number, unique in the run and below 2**16."""

    def __init__(self, sender: int) -> None:
        self._sender = sender
        self._sent = 0

    def checksum(self) -> int:
        """64 bits for the next message, never 0."""
        self._sent += 1
        return xxhash.xxh64_intdigest(self._sender.to_bytes(2, "big") + self._sent.to_bytes(8, "big")) or 1


def ack_of(
    consumed: Iterable[tuple[bytes, int]],
    sent: Iterable[tuple[bytes, int]],
    heartbeats: Sequence[tuple[int, bytes]] = (),
) -> Ack:
    """One atomic ack of (granule, checksum) pairs."""
    cells: dict[bytes, int] = {}
    for pairs in (consumed, sent):
        for granule, checksum in pairs:
            cells[granule] = cells.get(granule, 0) ^ checksum
    return Ack(sorted(cells.items()), heartbeats)
