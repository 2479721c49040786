"""The timers of a stage: by key, and over all keys in order.

Invariant: `by_key` has the timers that are set, each key's as a heap; `upcoming` has each of them, and dead ones too.

Why: a timer that fires, or is taken back, is only marked where it waits among those of all keys.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable
from heapq import heappop, heappush
from typing import Any

from drift.operators import Timer
from drift_graph.meta import is_later, moment_of

#: The meta at which a timer waits, a number that tells equal ones apart, its key, and the timer.
Upcoming = tuple[bytes, int, Any, "Due"]


class Due:
    """A timer.

    Attributes:
        set_at: the meta of the row that set it.
        alive: whether it is set and has not fired.
    """

    __slots__ = ("alive", "meta", "set_at", "timer")

    def __init__(self, meta: bytes, timer: Timer, set_at: bytes) -> None:
        self.meta = meta
        self.timer = timer
        self.set_at = set_at
        self.alive = True

    def __lt__(self, other: Due) -> bool:
        return self.meta < other.meta


class Timers:
    """The timers that are set.

    Attributes:
        by_key: of each key that has any, a heap.
        upcoming: a heap over all keys.
    """

    def __init__(self) -> None:
        self.by_key: dict[Any, list[Due]] = {}
        self.upcoming: list[Upcoming] = []
        self._count = 0

    def set(self, key: Any, due: Due) -> None:
        heappush(self.by_key.setdefault(key, []), due)
        self._count += 1
        heappush(self.upcoming, (due.meta, self._count, key, due))

    def pop(self, key: Any, due: Due) -> None:
        """Take the first timer of a key, because it fires."""
        heap = self.by_key[key]
        if len(heap) == 1:
            del self.by_key[key]
        else:
            heappop(heap)
        due.alive = False

    def of(self, key: Any) -> list[Due]:
        return list(self.by_key.get(key, ()))

    def put(self, key: Any, timers: Iterable[Due]) -> None:
        """Make these the timers of a key that are set."""
        for due in self.by_key.pop(key, ()):
            due.alive = False
        for due in timers:
            due.alive = True
            self.set(key, due)

    @property
    def least(self) -> bytes | None:
        """The meta of the first timer that is set. A worker tells of it, and below it time may have passed."""
        while self.upcoming and not self.upcoming[0][3].alive:
            heappop(self.upcoming)
        return self.upcoming[0][0] if self.upcoming else None

    def take_moment(self, bound: bytes, most: int = sys.maxsize) -> list[Upcoming]:
        """Take out the first timers below a bound, which are of one moment; none if there is none below it."""
        upcoming, taken = self.upcoming, list[Upcoming]()
        moment = b""
        while upcoming and len(taken) < most and upcoming[0][0] < bound and upcoming[0][0].startswith(moment):
            meta, _, _, due = entry = heappop(upcoming)
            if due.alive:
                taken.append(entry)
                moment = moment or (moment_of(meta) if is_later(meta) else meta)
        return taken

    def __len__(self) -> int:
        return sum(map(len, self.by_key.values()))
