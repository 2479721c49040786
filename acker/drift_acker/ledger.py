"""A worker's side of the acker: the checksums of what it sends, and the one ack of what it processed.

Invariant: every message gets a checksum that no other message of the run has, and appears in exactly two acks: the
one of the batch that sent it and the one of the batch that consumed it.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import xxhash

from drift_acker.table import Ack, Entry


class Ledger:
    """Checksums of one sender.

    Args:
        sender: its number, unique in the run and below 2**16.
        generation: of the run, below 2**16; each rewind starts a new one, with new numbers.
    """

    def __init__(self, sender: int, generation: int = 0) -> None:
        self._sender = sender
        self._sent = generation << 48

    def checksum(self) -> int:
        """The checksum of the next message, 64 bits, never 0."""
        self._sent += 1
        return xxhash.xxh64_intdigest(self._sender.to_bytes(2, "big") + self._sent.to_bytes(8, "big")) or 1


class Hold:
    """Tracks what of one level waits for its time in a worker.

    Attributes:
        granule: the least of their global times, or one before it; None if nothing waits. The messages that a worker
            sends are tracked at this or less, since an item may make a waiting timer fire.
    """

    def __init__(self, ledger: Ledger, level: int = 0) -> None:
        self._ledger = ledger
        self._level = level
        self._tracked: Entry | None = None

    @property
    def granule(self) -> bytes | None:
        return None if self._tracked is None else self._tracked[0]

    def moved(self, least: bytes | None, *, leant_on: bool = False) -> list[Entry]:
        """The entries of the next ack, so that all items that wait now are tracked.

        Args:
            least: the least global time that waits now.
            leant_on: whether messages sent with the ack are tracked at `granule`, or what comes to wait behind it with
                the ack, at or above it. If so, the checksum changes: a later ack which reports that nothing waits there
                cannot clear the cell before this ack has arrived.
        """
        before = self._tracked
        if least == self.granule and not leant_on:
            return []
        self._tracked = None if least is None else (least, self._ledger.checksum(), self._level)
        return [each for each in (before, self._tracked) if each is not None]


def ack_of(
    consumed: Iterable[Entry],
    sent: Iterable[Entry],
    heartbeats: Sequence[tuple[int, bytes]] = (),
    waiting: Sequence[Entry] = (),
) -> Ack:
    """One atomic ack of entries."""
    cells: dict[tuple[bytes, int], int] = {}
    for entries in (consumed, sent):
        for granule, checksum, level in entries:
            cells[granule, level] = cells.get((granule, level), 0) ^ checksum
    return Ack(
        [(granule, checksum, level) for (granule, level), checksum in sorted(cells.items())], heartbeats, waiting
    )
