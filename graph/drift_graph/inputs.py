"""The sources of a run together: where an error of one of them ends the input, and in which order late items are told.

Invariant: the error that a run's input ends with, what is below it, and which late items are told, in which order,
follow from what each source gave, never from which source was read first or how much of it at once.

Why: each of these has a place, a heartbeat and the rank of the source. The place of an error is the heartbeat that its
source had made by its own arrivals before the bad item, and there that source stays; that of a late item is the
heartbeat it was behind. The places of one source never go back. So an error is the run's once every other source has
passed its place, and a late item is told once every source has come to its place: nothing below comes any more.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from heapq import heappop, heappush
from operator import itemgetter

from drift_graph.lateness import Late
from drift_graph.meta import pack_time
from drift_graph.times import SourceMachine

#: Heartbeat and rank.
Place = tuple[bytes, int]


class Inputs:
    """What the sources of a run have come to.

    Args:
        machines: of all sources, by rank.
    """

    def __init__(self, machines: Sequence[SourceMachine]) -> None:
        self._machines = machines
        self._errors: dict[int, Exception] = {}
        self._late: list[tuple[Place, int, Late]] = []  # a heap; the number keeps those of one place in order
        self._late_count = 0
        self._held = [0] * len(machines)

    def fail(self, rank: int, error: Exception) -> None:
        """A source ends with an error, where its machine stands."""
        self._errors[rank] = error

    def may_read(self, rank: int) -> bool:
        """Whether a source has not ended, and what it gives may matter."""
        if self._machines[rank].finished or rank in self._errors:
            return False
        return not self._errors or self._place(rank) < self._end

    @property
    def error(self) -> Exception | None:
        """What the input ends with, once that is certain; minimal time comes to its place then, and stays."""
        if not self._errors or any(map(self.may_read, range(len(self._machines)))):
            return None
        return self._errors[self._end[1]]

    def divert(self, rank: int, late: Iterable[Late]) -> None:
        """Items of a source that came too late, in the order of their arrival."""
        for each in late:
            self._late_count += 1
            self._held[rank] += 1
            heappush(self._late, ((pack_time(each.heartbeat), rank), self._late_count, each))

    def told(self) -> list[Late]:
        """The late items that it is time to tell."""
        late = self._late
        if not late:
            return []
        reached = min(map(self._place, range(len(self._machines))))
        given: list[Late] = []
        while late and late[0][0] <= reached:
            (_, rank), _, each = heappop(late)
            self._held[rank] -= 1
            given.append(each)
        return given

    def held(self, rank: int) -> int:
        """How many late items of a source wait to be told."""
        return self._held[rank]

    def _place(self, rank: int) -> Place:
        return self._machines[rank].heartbeat, rank

    @property
    def _end(self) -> Place:
        return min(map(self._place, self._errors))


def told_at_last(late: Iterable[Late], heartbeats: Mapping[str, bytes]) -> list[Late]:
    """The late items that `Inputs` would have told, in its order, when the sources had come to these heartbeats.

    Args:
        late: of each source in the order of arrival.
        heartbeats: by source, in the order of ranks.
    """
    ranks = {name: rank for rank, name in enumerate(heartbeats)}
    reached = min(((heartbeat, ranks[name]) for name, heartbeat in heartbeats.items()), default=(b"", 0))
    places = [((pack_time(each.heartbeat), ranks[each.source]), each) for each in late]
    return [each for place, each in sorted(places, key=itemgetter(0)) if place <= reached]
