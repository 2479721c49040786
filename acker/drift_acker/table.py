"""In-flight messages, folded into one XOR per granule of global time.

Invariant: nothing below `minimal_time` is in flight or still to come, and `minimal_time` never decreases.

Why: a message is tracked at the least global time in it, its granule; whatever its processing causes is at that time
or later. Its checksum is XORed into the cell of its granule once when it is sent and once when it was processed, and
a batch reports both sides in one ack. So a cell is zero, and removed, exactly when nothing of its granule is in flight
(but for odds of 2**-64), and no cell appears below a cell or a heartbeat that has not gone yet. Acks may come in any
order and as late as they like. The idea is Storm's acker, with time in place of tuple trees.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from sortedcontainers import SortedDict

from drift_graph.errors import DriftBug
from drift_graph.meta import BEGINNING, END_OF_TIME


class Ack(NamedTuple):
    """What one processed batch consumed and sent, in one piece.

    Attributes:
        cells: (granule, XOR of the checksums of all messages consumed and sent at that granule).
        heartbeats: (source rank, its heartbeat after the batch); a source reports both at once, so its message is
            in the table before its heartbeat goes past it.
        waiting: (granule, XOR of the checksums of what began and ceased to wait there for its time); later items that a
            worker holds back minimal time, but are not in flight.
    """

    cells: Sequence[tuple[bytes, int]]
    heartbeats: Sequence[tuple[int, bytes]] = ()
    waiting: Sequence[tuple[bytes, int]] = ()


class AckTable:
    """The acker's machine: `handle` acks, read `minimal_time`.

    Args:
        sources: who give heartbeats.
        since: minimal time, and every heartbeat, at first.
    """

    def __init__(self, sources: Iterable[int], since: bytes = BEGINNING) -> None:
        self._cells: SortedDict[bytes, int] = SortedDict()
        self._waiting: SortedDict[bytes, int] = SortedDict()
        self._heartbeats: dict[int, bytes] = dict.fromkeys(sources, since)
        self.minimal_time = since

    def handle(self, ack: Ack) -> bytes | None:
        """Fold an ack in; returns the new minimal time where it moved, else None.

        Raises:
            DriftBug: for an ack below minimal time, or a heartbeat that goes back.
        """
        self._fold(self._cells, ack.cells)
        self._fold(self._waiting, ack.waiting)
        for rank, heartbeat in ack.heartbeats:
            if heartbeat < self._heartbeats[rank]:
                raise DriftBug(f"the heartbeat of source {rank} went back to {heartbeat.hex()}")
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
            left = cells.get(granule, 0) ^ checksum
            if left:
                cells[granule] = left
            else:
                cells.pop(granule, None)

    @property
    def least_in_flight(self) -> bytes:
        """The least granule with something in flight; END_OF_TIME where there is none."""
        return self._cells.peekitem(0)[0] if self._cells else END_OF_TIME

    @property
    def least_heartbeat(self) -> bytes:
        """Below it no source sends an item any more."""
        return min(self._heartbeats.values(), default=END_OF_TIME)

    @property
    def in_flight(self) -> int:
        """How many granules have something in flight, or waiting for its time."""
        return len(self._cells) + len(self._waiting)

    @property
    def waits(self) -> bool:
        """Whether something waits for its time."""
        return bool(self._waiting)

    @property
    def quiet(self) -> bool:
        """Every source has ended and nothing is in flight."""
        return self.minimal_time == END_OF_TIME

    def held_by(self) -> int | None:
        """Rank of the source whose heartbeat is minimal time; None where a message in flight holds it back."""
        rank, least = min(self._heartbeats.items(), key=lambda pair: (pair[1], pair[0]))
        return rank if least <= self.minimal_time else None
