"""In-flight messages, folded into one XOR per level and granule of global time.

Invariant: nothing of levels up to l that is below `frontiers[l]` is in flight, waits or is still to come, and no
frontier ever decreases. The last one is minimal time.

Why: a message is tracked at the least global time in it, its granule; whatever its processing causes is at that time
or later, and of the same level or a greater one. Its checksum is XORed into the cell of its level and granule once
when it is sent and once when it was processed, and a batch reports both sides in one ack. So a cell is zero, and
removed, exactly when nothing of its granule is in flight (but for odds of 2**-64), and a new cell is never below the
frontier of its level. Acks may come in any order and arbitrarily late. The idea is Storm's acker, with time in place of
tuple trees; levels are Timely's frontiers of places in a graph, as few as there are steps behind each other that wait.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from sortedcontainers import SortedDict

from drift_graph.errors import DriftBug
from drift_graph.meta import BEGINNING, END_OF_TIME

#: A granule, a checksum or the XOR of several, and the level.
Entry = tuple[bytes, int, int]


class Ack(NamedTuple):
    """The messages that one processed batch consumed and sent, reported at once.

    Attributes:
        cells: (granule, XOR of the checksums of all messages consumed and sent at that granule and level, level).
        heartbeats: (source rank, its heartbeat after the batch); a source reports both at once, so its message is
            in the table before its heartbeat passes it.
        waiting: (granule, XOR of the checksums of items that began or ceased to wait there, level); such items hold
            frontiers back, but are not in flight.
    """

    cells: Sequence[Entry]
    heartbeats: Sequence[tuple[int, bytes]] = ()
    waiting: Sequence[Entry] = ()


class AckTable:
    """The acker's machine: `handle` acks, read `minimal_time`.

    Args:
        sources: ranks of the senders of heartbeats.
        since: initial value of all frontiers and of every heartbeat.
        levels: how many there are.

    Attributes:
        frontiers: by level, least first.
    """

    def __init__(self, sources: Iterable[int], since: bytes = BEGINNING, levels: int = 1) -> None:
        self._cells: list[SortedDict[bytes, int]] = [SortedDict() for _ in range(levels)]
        self._waiting: list[SortedDict[bytes, int]] = [SortedDict() for _ in range(levels)]
        self._heartbeats: dict[int, bytes] = dict.fromkeys(sources, since)
        self.frontiers = (since,) * levels

    @property
    def minimal_time(self) -> bytes:
        """Nothing below it is in flight or still to come."""
        return self.frontiers[-1]

    def handle(self, ack: Ack) -> bytes | None:
        """Fold an ack in; returns the new minimal time if it has changed, else None.

        Raises:
            DriftBug: the ack is below the frontier of its level, or a heartbeat decreases.
        """
        self._fold(self._cells, ack.cells)
        self._fold(self._waiting, ack.waiting)
        for rank, heartbeat in ack.heartbeats:
            if heartbeat < self._heartbeats[rank]:
                raise DriftBug(f"the heartbeat of source {rank} decreased to {heartbeat.hex()}")
            self._heartbeats[rank] = heartbeat
        before, least = self.minimal_time, self.least_heartbeat
        frontiers = []
        for passed, *level in zip(self.frontiers, self._cells, self._waiting):
            for cells in level:
                if cells:
                    least = min(least, cells.peekitem(0)[0])
            frontiers.append(max(passed, least))
        self.frontiers = tuple(frontiers)
        return self.minimal_time if self.minimal_time > before else None

    def _fold(self, levels: Sequence[SortedDict[bytes, int]], folded: Iterable[Entry]) -> None:
        for granule, checksum, level in folded:
            if granule < self.frontiers[level]:
                raise DriftBug(
                    f"an ack at {granule.hex()} is below {self.frontiers[level].hex()}, the frontier of level {level} "
                    f"of {len(levels)}: it moved too early"
                )
            cells = levels[level]
            remaining = cells.get(granule, 0) ^ checksum
            if remaining:
                cells[granule] = remaining
            else:
                cells.pop(granule, None)

    @property
    def least_in_flight(self) -> bytes:
        """The least granule with a message in flight; END_OF_TIME if there is none."""
        return min((cells.peekitem(0)[0] for cells in self._cells if cells), default=END_OF_TIME)

    @property
    def least_heartbeat(self) -> bytes:
        """The least heartbeat: no source will send an item below it."""
        return min(self._heartbeats.values(), default=END_OF_TIME)

    @property
    def in_flight(self) -> int:
        """The number of granules, by level, with messages in flight or later items that wait."""
        return sum(map(len, self._cells)) + sum(map(len, self._waiting))

    @property
    def waits(self) -> bool:
        """Whether any later item waits."""
        return any(self._waiting)

    @property
    def quiet(self) -> bool:
        """Whether every source has ended and nothing is in flight."""
        return self.minimal_time == END_OF_TIME

    def held_by(self) -> int | None:
        """Rank of the source whose heartbeat is minimal time; None if a message in flight holds it back."""
        rank, least = min(self._heartbeats.items(), key=lambda pair: (pair[1], pair[0]))
        return rank if least <= self.minimal_time else None
