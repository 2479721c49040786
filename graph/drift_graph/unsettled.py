"""How many items of a source are not settled: at or above minimal time.

Invariant: an item is counted once, from when it was accepted until minimal time is past it.

Why: batches lie in a heap by their least unsettled meta, so what is settled is found without looking at the rest.
"""

from __future__ import annotations

from bisect import bisect_left
from heapq import heappop, heappush

from drift_graph.metas import Metas, are_looked_up_slowly, known_to_increase, least_meta, metas_from_on


class Unsettled:
    """Batches of metas, of which minimal time takes from below."""

    def __init__(self) -> None:
        self._count = 0
        self._batches = 0
        self._sent: list[tuple[bytes, int, Metas, int]] = []  # a heap: next unsettled meta, number, metas, its index

    def add(self, metas: Metas) -> None:
        """These were accepted; one at least."""
        self._batches += 1
        self._count += len(metas)
        heappush(self._sent, (least_meta(metas), self._batches, metas, 0 if known_to_increase(metas) else -1))

    def at(self, minimal_time: bytes) -> int:
        """How many accepted items are at or above minimal time, which must not go back from call to call."""
        sent = self._sent
        while sent and sent[0][0] < minimal_time:
            _, number, metas, settled = heappop(sent)
            if settled < 0:  # not sorted: most often little is left to be
                left = metas_from_on(metas, minimal_time)
                self._count -= len(metas) - len(left)
                if left:
                    heappush(sent, (least_meta(left), number, left, -1 if are_looked_up_slowly(left) else 0))
                continue
            end = bisect_left(metas, minimal_time, settled)
            self._count -= end - settled
            if end < len(metas):
                if 2 * end > len(metas):  # else one far ahead would keep what was settled with it
                    metas, end = metas[end:], 0
                heappush(sent, (metas[end], number, metas, end))
        return self._count
