"""Later items that wait for their time, in front of a grouping; and items for a stage that has no use for them before.

Invariant: every item and tombstone that was added is taken exactly once, after the bound that it waits for has passed
it.

Why: sorted batches are in a heap by their first meta; the part below a bound is cut off. The output does not depend on
when an item is taken, since groupings correct themselves; but a later item that was processed at once would be
corrected by every item before its time, and so would a window by those that come out of order. What steps that wait for
their level have not run yet is here, and by the least of it the level is tracked.
"""

from __future__ import annotations

from heapq import heappop, heappush
from operator import itemgetter

from drift_graph.item import Columns, sorted_by_meta
from drift_graph.meta import BEGINNING, LATER_MARK, LATER_MARK_AT, in_rounds, is_later, moment_of, reached
from drift_graph.metas import Metas

_mark = itemgetter(LATER_MARK_AT)


class Pending:
    """Later items for one grouping. `rounds_from`: below it no item is in a round."""

    def __init__(self, rounds_from: bytes = BEGINNING) -> None:
        self._rounds_from = rounds_from
        self._heap: list[tuple[bytes, int, Columns]] = []
        self._added = 0

    def __len__(self) -> int:
        return sum(len(columns.metas) for _, _, columns in self._heap)

    @property
    def least(self) -> bytes | None:
        """The least meta that waits."""
        return self._heap[0][0] if self._heap else None

    def add(self, columns: Columns) -> None:
        """Add items and tombstones, sorted by meta."""
        self._added += 1
        heappush(self._heap, (columns.metas[0], self._added, columns))

    def held(self) -> list[Columns]:
        """All waiting items, in batches that are each sorted by meta."""
        return [columns for _, _, columns in sorted(self._heap, key=lambda entry: entry[:2])]

    def clear(self) -> None:
        """Drop all waiting items, since the worker rewinds to a checkpoint: their senders have them."""
        self._heap.clear()

    def is_due(self, heartbeat: bytes, minimal_time: bytes) -> bool:
        """Whether `take` would return any items."""
        if not self._heap or self._heap[0][0] >= heartbeat:
            return False
        return any(self._due(columns.metas[:1], heartbeat, minimal_time) for _, _, columns in self._heap)

    def take(self, heartbeat: bytes, minimal_time: bytes) -> list[Columns]:
        """Take the items whose time has come: below the heartbeat and, in a round, once minimal time has reached it."""
        taken: list[Columns] = []
        rounds: list[Columns] = []
        while self._heap and self._heap[0][0] < heartbeat:
            _, _, columns = heappop(self._heap)
            end = self._due(columns.metas, heartbeat, minimal_time)
            if end:
                taken.append(columns.slice(0, end))
            if end < len(columns.metas):
                rest = columns.slice(end, len(columns.metas))
                if rest.metas[0] < heartbeat:
                    rounds.append(rest)
                else:
                    self.add(rest)
        for columns in rounds:
            self.add(columns)
        return taken

    def _due(self, metas: Metas, heartbeat: bytes, minimal_time: bytes) -> int:
        """For how many of the sorted later metas the time has come."""
        end = metas.count_below(heartbeat)
        rounds_from = max(reached(minimal_time), self._rounds_from)
        if rounds_from < heartbeat:
            for at in range(metas.count_below(rounds_from), end):
                if in_rounds(metas[at]):
                    return at
        return end


def split(columns: Columns, heartbeat: bytes, minimal_time: bytes) -> tuple[Columns | None, Columns | None]:
    """Split a batch for a grouping into the items to process now, and the items that wait, sorted by meta."""
    if LATER_MARK not in set(map(_mark, columns.metas)):
        return columns, None
    columns = sorted_by_meta(columns)
    bound = reached(minimal_time)
    first, last = columns.metas[0], columns.metas[-1]
    if (
        is_later(first)
        and last.startswith(moment_of(first))
        and _waits(last, heartbeat, bound) is (waits_all := _waits(first, heartbeat, bound))
    ):
        return (None, columns) if waits_all else (columns, None)
    waits = [_waits(meta, heartbeat, bound) for meta in columns.metas]
    if not any(waits):
        return columns, None
    if all(waits):
        return None, columns
    now, later = ([at for at, each in enumerate(waits) if each is not chosen] for chosen in (True, False))
    return columns.in_order(now), columns.in_order(later)


def _waits(meta: bytes, heartbeat: bytes, bound: bytes) -> bool:
    return is_later(meta) and (meta >= heartbeat or (meta >= bound and in_rounds(meta)))
