"""The pace: how many items are fed at once to workers that correct each other.

Invariant: feeding continues, one item at a time at least, however many items are taken back.

Why: a correction that goes round a cycle through other workers changes what was fed after it, and each change may go
round as well, so the work grows with the square of what is fed at once. It begins with one item; twice as many are fed
while little is taken back, and half as many where much is. That is judged when everything that
was fed before the pace was set is through: sooner, what it brings about would not be known. Steps of cycles do not wait
for levels, so they need it: a loop over 20 keys takes back 6,600 outputs, and 210,000 in five times the time without.
"""

from __future__ import annotations

from drift.machines.plan import Plan
from drift_graph.meta import BEGINNING

#: Tombstones for an item that was fed, which brings about several that go round: more are wasteful, fewer are cheap.
#: Of a loop over 50, 1,000 and 20,000 keys these took the least time of what was tried, but for some tenths.
_WASTEFUL, _CHEAP = 8, 2


class Pacing:
    """
    Attributes:
        batch_items: how many items to feed at once.

    Args:
        items_max: the most items at once.
    """

    def __init__(self, items_max: int) -> None:
        self.batch_items = 1
        self._items_max = items_max
        self._items = self._tombstones = 0  # since the pace was judged
        self._newest = self._judged_at = BEGINNING

    def anew(self) -> Pacing:
        """A new pacing after a rewind, when nothing is in flight."""
        return Pacing(self._items_max)

    def count(self, items: int, tombstones: int, granule: bytes) -> None:
        """Count an ack: the number of items fed at this granule, and of tombstones."""
        self._tombstones += tombstones
        if items:
            self._items += items
            self._newest = max(self._newest, granule)

    def judge(self, in_flight: bytes) -> bool:
        """Judge the pace, when nothing is in flight below `in_flight`; whether it has changed."""
        if in_flight <= self._judged_at or not self._items:
            return False
        before = self.batch_items
        if self._tombstones > _WASTEFUL * self._items:
            self.batch_items = max(before // 2, 1)
        elif self._tombstones < _CHEAP * self._items:
            self.batch_items = min(2 * before, self._items_max)
        self._items = self._tombstones = 0
        self._judged_at = self._newest
        return self.batch_items != before


def needs_pace(plan: Plan, workers: int) -> bool:
    """Whether corrections may go round a cycle through several workers."""
    return workers > 1 and any(map(plan.is_cyclic, plan.components))


def pacing_of(plan: Plan, workers: int, items_max: int) -> Pacing | None:
    return Pacing(items_max) if needs_pace(plan, workers) else None
