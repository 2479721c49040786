"""Checks that recorded arrivals are what a source can have given.

Invariant: in batches that pass, every item has the rank of its source, no two items have one global time, and no item
is below an earlier heartbeat of its source; heartbeats never go back.

Why: engines rely on it without checking, so a record that breaks it would show as a bug of theirs. Only items at or
above the last heartbeat can be repeated, so memory holds what a run may have unsettled; and a batch above all earlier
ones need not be checked item by item.
"""

from __future__ import annotations

from collections import deque

import numpy as np

from drift.strings import Strings, first_of
from drift_graph.meta import BEGINNING, END_OF_TIME, varint
from drift_graph.metas import Metas, is_increasing, least_meta

_PRUNE_MIN = 1 << 16


class Arrivals:
    """The arrivals of one source.

    Args:
        rank: of the source.
    """

    def __init__(self, rank: int) -> None:
        self._rank = varint(rank)
        self._heartbeat = BEGINNING
        self._last = BEGINNING  # the greatest global time
        self._ordered: deque[Metas] = deque()  # batches, each above all before it
        self._others: set[bytes] = set()
        self._prune_at = _PRUNE_MIN

    @property
    def ended(self) -> bool:
        return self._heartbeat == END_OF_TIME

    def wrong_in(self, metas: Metas, strings: Strings, heartbeat: bytes) -> tuple[int, str] | None:
        """The first error in the next batch: the index of its item and a text; else None.

        Args:
            strings: the same metas, as columns.
        """
        if len(metas):
            found = self._of_other_source(strings) or self._out_of_order(metas)
            if found is not None:
                return found
        if not self._heartbeat <= heartbeat <= END_OF_TIME:
            below, before = (each[:40].hex() for each in (heartbeat, self._heartbeat))
            return 0, f"a heartbeat, {below}, is below the one before, {before}"
        self._heartbeat = heartbeat
        self._forget()
        return None

    def _of_other_source(self, strings: Strings) -> tuple[int, str] | None:
        """The first item whose global time has another rank."""
        indexes = strings.offsets[:-1, None] + np.arange(8, 8 + len(self._rank))
        wrong = (strings.data[indexes] != np.frombuffer(self._rank, np.uint8)).any(axis=1)
        index = first_of(wrong)
        return None if index is None else (index, "an item has the global time of another source")

    def _out_of_order(self, metas: Metas) -> tuple[int, str] | None:
        least = least_meta(metas)
        if least < self._heartbeat:
            index = list(metas).index(least)
            return index, "an item is below its source's heartbeat"
        if least > self._last and is_increasing(metas):
            self._ordered.append(metas)
            self._last = metas[-1]
            return None
        for batch in self._ordered:
            self._others.update(batch)
        self._ordered.clear()
        new = set(metas)
        if len(new) < len(metas) or not self._others.isdisjoint(new):
            return self._first_double(metas), "an item has the global time of another one"
        self._others |= new
        self._last = max(self._last, max(metas))
        return None

    def _first_double(self, metas: Metas) -> int:
        seen: set[bytes] = set()
        for index, meta in enumerate(metas):
            if meta in seen or meta in self._others:
                return index
            seen.add(meta)
        raise AssertionError("no global time is there twice")

    def _forget(self) -> None:
        """Drop what is below the heartbeat: it cannot be repeated."""
        while self._ordered and self._ordered[0][-1] < self._heartbeat:
            self._ordered.popleft()
        if len(self._others) >= self._prune_at:
            self._others = {meta for meta in self._others if meta >= self._heartbeat}
            self._prune_at = max(_PRUNE_MIN, 2 * len(self._others))
