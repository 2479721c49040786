"""Counts the items of a source that are not settled: at or above minimal time.

Invariant: an item counts once, from when it was accepted until minimal time is past it.

Why: batches lie in a heap by their least unsettled meta, so what is settled is found without looking at the rest. They
are sorted for it where somebody else will need them sorted, so that it costs nothing here.
"""

from __future__ import annotations

from heapq import heappop, heappush

from drift_graph.metas import (
    Metas,
    count_below,
    is_random_access_slow,
    known_to_increase,
    least_meta,
    metas_from_on,
    sorted_where_cached,
)


class Unsettled:
    """Batches of metas, consumed from below by minimal time."""

    def __init__(self) -> None:
        self._count = 0
        self._batches = 0
        self._sent: list[tuple[bytes, int, Metas, int]] = []  # a heap: next unsettled meta, number, metas, its index

    def add(self, metas: Metas) -> None:
        """Add accepted metas, one or more."""
        metas = sorted_where_cached(metas)
        self._batches += 1
        self._count += len(metas)
        heappush(self._sent, (least_meta(metas), self._batches, metas, 0 if known_to_increase(metas) else -1))

    def at(self, minimal_time: bytes) -> int:
        """How many accepted items are at or above minimal time, which must not decrease between calls."""
        sent = self._sent
        while sent and sent[0][0] < minimal_time:
            _, number, metas, settled = heappop(sent)
            if settled < 0:  # not sorted; usually few remain
                left = metas_from_on(metas, minimal_time)
                self._count -= len(metas) - len(left)
                if left:
                    heappush(sent, (least_meta(left), number, left, -1 if is_random_access_slow(left) else 0))
                continue
            end = len(metas) if metas[-1] < minimal_time else count_below(metas, minimal_time, settled)
            self._count -= end - settled
            if end < len(metas):
                if 2 * end > len(metas):  # else an item far ahead would keep the settled ones in memory
                    metas, end = metas[end:], 0
                heappush(sent, (metas[end], number, metas, end))
        return self._count
