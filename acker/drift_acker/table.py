"""In-flight messages, folded into one XOR per granule of global time.

Invariant: nothing below `minimal_time` is in flight or still to come, and `minimal_time` never decreases.

Why: a message is tracked at the least global time in it, its granule; whatever its processing causes is at that time
or later. Its checksum is XORed into the cell of its granule once when it is sent and once when it was processed, and
a batch reports both sides in one ack. So a cell is zero, and removed, exactly when nothing of its granule is in flight
(but for odds of 2**-64), and a new cell is never below all present cells and heartbeats. Acks may come in any
order and arbitrarily late. The idea is Storm's acker, with time in place of tuple trees.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from sortedcontainers import SortedDict

from drift_graph.errors import DriftBug
from drift_graph.meta import BEGINNING, END_OF_TIME


class Ack(NamedTuple):
    """The messages that one processed batch consumed and sent, reported at once.

    Attributes:
        cells: (granule, XOR of the checksums of all messages consumed and sent at that granule).
        heartbeats: (source rank, its heartbeat after the batch); a source reports both at once, so its message is
            in the table before its heartbeat passes it.
        waiting: (granule, XOR of the checksums of later items that began or ceased to wait there); such items hold
            minimal time back, but are not in flight.
    """

    cells: Sequence[tuple[bytes, int]]
    heartbeats: Sequence[tuple[int, bytes]] = ()
    waiting: Sequence[tuple[bytes, int]] = ()


class AckTable:
    """The acker's machine: `handle` acks, read `minimal_time`.

    Args:
        sources: ranks of the senders of heartbeats.
        since: initial value of minimal time and of every heartbeat.
    """

    def __init__(self, sources: Iterable[int], since: bytes = BEGINNING) -> None:
        self._cells: SortedDict[bytes, int] = SortedDict()
        self._waiting: SortedDict[bytes, int] = SortedDict()
        self._heartbeats: dict[int, bytes] = dict.fromkeys(sources, since)
        self.minimal_time = since

    def handle(self, ack: Ack) -> bytes | None:
        """Fold an ack in; returns the new minimal time if it has changed, else None.

        Raises:
            DriftBug: the ack is below minimal time, or a heartbeat decreases.
        """
        self._fold(self._cells, ack.cells)
        self._fold(self._waiting, ack.waiting)
        for rank, heartbeat in ack.heartbeats:
            if heartbeat < self._heartbeats[rank]:
                raise DriftBug(f"the heartbeat of source {rank} decreased to {heartbeat.hex()}")
            self._heartbeats[rank] = heartbeat
        minimal = self.least_heartbeat
        for cells in (self._cells, self._waiting):
            if cells:
                minimal = min(minimal, cells.peekitem(0)[0])
        if minimal <= self.minimal_time:
            return None
        self.minimal_time = minimal
        return minimal

    def _fold(self, cells: SortedDict[bytes, int], folded: Iterable[tuple[bytes, int]]) -> None:
        for granule, checksum in folded:
            if granule < self.minimal_time:
                raise DriftBug(
                    f"an ack at {granule.hex()} is below minimal time {self.minimal_time.hex()}: released too early"
                )
            remaining = cells.get(granule, 0) ^ checksum
            if remaining:
                cells[granule] = remaining
            else:
                cells.pop(granule, None)

    @property
    def least_in_flight(self) -> bytes:
        """The least granule with a message in flight; END_OF_TIME if there is none."""
        return self._cells.peekitem(0)[0] if self._cells else END_OF_TIME

    @property
    def least_heartbeat(self) -> bytes:
        """The least heartbeat: no source will send an item below it."""
        return min(self._heartbeats.values(), default=END_OF_TIME)

    @property
    def in_flight(self) -> int:
        """The number of granules with messages in flight or later items that wait."""
        return len(self._cells) + len(self._waiting)

    @property
    def waits(self) -> bool:
        """Whether any later item waits."""
        return bool(self._waiting)

    @property
    def quiet(self) -> bool:
        """Whether every source has ended and nothing is in flight."""
        return self.minimal_time == END_OF_TIME

    def held_by(self) -> int | None:
        """Rank of the source whose heartbeat is minimal time; None if a message in flight holds it back."""
        rank, least = min(self._heartbeats.items(), key=lambda pair: (pair[1], pair[0]))
        return rank if least <= self.minimal_time else None
