"""Counts the items of a source that are not settled: at or above minimal time.

Invariant: an item counts once, from when it was accepted until minimal time is past it.

Why: batches lie in a heap by their least unsettled meta, so what is settled is found without looking at the rest.
"""

from __future__ import annotations

from heapq import heappop, heappush

from drift_graph.metas import Metas


class Unsettled:
    """Batches of metas, consumed from below by minimal time."""

    def __init__(self) -> None:
        self._count = 0
        self._batches = 0
        self._sent: list[tuple[bytes, int, Metas, int]] = []  # a heap: next unsettled meta, number, metas, its index

    def add(self, metas: Metas) -> None:
        """Add accepted metas, one or more."""
        metas = metas.sorted()[1]
        self._batches += 1
        self._count += len(metas)
        heappush(self._sent, (metas[0], self._batches, metas, 0))

    def at(self, minimal_time: bytes) -> int:
        """How many accepted items are at or above minimal time, which must not decrease between calls."""
        sent = self._sent
        while sent and sent[0][0] < minimal_time:
            _, number, metas, settled = heappop(sent)
            end = metas.count_below(minimal_time, settled)
            self._count -= end - settled
            if end < len(metas):
                if 2 * end > len(metas):  # else an item far ahead would keep the settled ones in memory
                    metas, end = metas[end:], 0
                heappush(sent, (metas[end], number, metas, end))
        return self._count
