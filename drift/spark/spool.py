"""Reads sources that Spark cannot read, on the driver, and writes their items for Spark.

Invariant: the metas and the late items are those of every engine, and an error in the input comes after the same items;
items are written in the order of metas as far as a source's lateness allows.

Why: the sources are read by the `Feed` of the other engines. Items in event time wait here until the heartbeat of
their source is above them, at most `held_max` items; any more are written unsorted, which costs memory later.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterator
from typing import Any

import pyarrow as pa

from drift.engines.feed import Feed
from drift.spark.batches import BATCH_ITEMS, BatchRow, Cutter, record_batch
from drift_graph.item import Columns, joined, sorted_by_meta
from drift_graph.meta import END_OF_TIME
from drift_graph.metas import Metas

_ROWS_BYTES = 1 << 20


class _Sorter:
    """Holds the items of one source until their order is final."""

    def __init__(self, held_max: int) -> None:
        self._held_max = held_max
        self._batches: list[Columns] = []
        self._items = 0
        self._due = 4 * BATCH_ITEMS

    def add(self, metas: Metas, payloads: list[Any], heartbeat: bytes) -> Columns | None:
        """Take items; returns the items whose order is final, once there are enough of them."""
        if metas.numbers() is not None:
            return Columns(metas, payloads, None)
        if metas:
            self._batches.append(Columns(metas, payloads, None))
            self._items += len(metas)
        if not self._items or (self._items < self._due and heartbeat != END_OF_TIME):
            return None
        every = sorted_by_meta(joined(self._batches))
        end = bisect_left(every.metas, heartbeat) if self._items < self._held_max else self._items
        ready = every.slice(0, end)
        self._batches = [every.slice(end, self._items)] if end < self._items else []
        self._items -= end
        self._due = max(4 * BATCH_ITEMS, 2 * self._items)
        return ready if ready.metas else None


class Spool:
    """Reads sources to their end.

    Attributes:
        firsts: the first meta of each row written, in the order of writing: where the output may be cut into ranges.
        end: nothing at or above it may be released.
        error: the error that ends the run; None if there is none.
    """

    def __init__(self, feed: Feed, held_max: int) -> None:
        self.firsts: list[tuple[bytes, int]] = []
        self.end = END_OF_TIME
        self.error: Exception | None = None
        self._feed = feed
        self._held_max = held_max
        self._cutter = Cutter()

    def batches(self, watch: Callable[[], None]) -> Iterator[pa.RecordBatch]:
        """The rows of level 0; `watch` is called between reads."""
        rows: list[BatchRow] = []
        size = 0
        for row in self._rows(watch):
            self.firsts.append((row.first, row.items))
            rows.append(row)
            size += len(row.body)
            if size >= _ROWS_BYTES:
                yield record_batch(rows)
                rows, size = [], 0
        if rows:
            yield record_batch(rows)

    def _rows(self, watch: Callable[[], None]) -> Iterator[BatchRow]:
        feed = self._feed
        sorters: dict[str, _Sorter] = {}
        while not feed.finished and feed.error is None:
            fed = feed.poll(END_OF_TIME)
            watch()
            for name, _, arrived in fed:
                sorter = sorters.get(name)
                if sorter is None:
                    sorter = sorters[name] = _Sorter(self._held_max)
                yield from self._cut(name, sorter.add(arrived.metas, arrived.payloads, arrived.heartbeat))
            if not fed and feed.error is None:
                feed.wait()
        if feed.error is not None:
            self.error, self.end = feed.error, feed.heartbeat
            for name, sorter in sorters.items():
                yield from self._cut(name, sorter.add(Metas(), [], END_OF_TIME))

    def _cut(self, name: str, columns: Columns | None) -> Iterator[BatchRow]:
        return self._cutter.rows(0, 0, name, columns) if columns is not None else iter(())
