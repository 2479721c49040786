"""The sources of a run together: where an error of one ends the input, and the order in which late items are reported.

Invariant: the error that ends the input, the items below it, and the late items that are reported, with their order,
follow from what each source gave, never from which source was read first or how much at once.

Why: each of these has a position in the order of the run, a heartbeat with the rank of the source. For an error it is
the heartbeat that its source had reached by its own arrivals before the bad item, where that source stays; for a late
item it is the heartbeat that it was behind. The positions of one source never decrease. So an error ends the run once
every other source has passed its position, and a late item is reported once every source has reached its position:
nothing below can come any more.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from heapq import heappop, heappush
from operator import itemgetter

from drift_graph.lateness import Late
from drift_graph.meta import pack_time
from drift_graph.times import SourceMachine

#: Heartbeat and rank.
_Position = tuple[bytes, int]


class Inputs:
    """How far the sources of a run have come. `machines`: of all sources, by rank."""

    def __init__(self, machines: Sequence[SourceMachine]) -> None:
        self._machines = machines
        self._errors: dict[int, Exception] = {}
        self._late: list[tuple[_Position, int, Late]] = []  # a heap; the number orders late items of one position
        self._late_count = 0
        self._held = [0] * len(machines)

    def fail(self, rank: int, error: Exception) -> None:
        """A source ends with an error at the heartbeat of its machine."""
        self._errors[rank] = error

    def may_read(self, rank: int) -> bool:
        """Whether a source has not ended and its next items may matter."""
        if self._machines[rank].finished or rank in self._errors:
            return False
        return not self._errors or self._position(rank) < self._end

    @property
    def error(self) -> Exception | None:
        """The error that the input ends with, once it is certain; minimal time stops at its position."""
        if not self._errors or any(map(self.may_read, range(len(self._machines)))):
            return None
        return self._errors[self._end[1]]

    def divert(self, rank: int, late: Iterable[Late]) -> None:
        """Add late items of a source, in the order of their arrival."""
        for each in late:
            self._late_count += 1
            self._held[rank] += 1
            heappush(self._late, ((pack_time(each.heartbeat), rank), self._late_count, each))

    def take_late(self) -> list[Late]:
        """Take the late items that are due to be reported."""
        late = self._late
        if not late:
            return []
        reached = min(map(self._position, range(len(self._machines))))
        due: list[Late] = []
        while late and late[0][0] <= reached:
            (_, rank), _, each = heappop(late)
            self._held[rank] -= 1
            due.append(each)
        return due

    def held(self, rank: int) -> int:
        """How many late items of a source wait to be reported."""
        return self._held[rank]

    def _position(self, rank: int) -> _Position:
        return self._machines[rank].heartbeat, rank

    @property
    def _end(self) -> _Position:
        return min(map(self._position, self._errors))


def late_until(late: Iterable[Late], heartbeats: Mapping[str, bytes]) -> list[Late]:
    """The late items that `Inputs` would have reported, in its order, once the sources had reached these heartbeats.

    Args:
        late: of each source in the order of arrival.
        heartbeats: by source, in the order of ranks.
    """
    ranks = {name: rank for rank, name in enumerate(heartbeats)}
    reached = min(((heartbeat, ranks[name]) for name, heartbeat in heartbeats.items()), default=(b"", 0))
    positions = [((pack_time(each.heartbeat), ranks[each.source]), each) for each in late]
    return [each for position, each in sorted(positions, key=itemgetter(0)) if position <= reached]


def late_before(late: Iterable[Late], error: Exception | None) -> list[Late]:
    """The late items that lie before what a run ended with: the item that a function failed for, if there is one."""
    meta = getattr(error, "meta", b"")
    return [each for each in late if not meta or pack_time(each.heartbeat) < meta]
