"""A record's input on Spark: its tasks read the record's own Parquet files.

Invariant: the items get their recorded global times and payloads, and nothing is released that the recorded promises do
not cover.

Why: the order is in the global times, so a task may read any rows. Rows of sources in event time are sorted on their
way, for they were recorded as they arrived; those in arrival time are in order in the files.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import groupby
from typing import Any

import pyarrow as pa

from drift.engines.recorded import RecordedFeed, RecordEnds
from drift.records import columns
from drift.records.format import RecordError
from drift.records.reader import Record, restored_many
from drift.spark.batches import DDL, Outbox, error_row
from drift.spark.jobs import answer
from drift.spark.kernels import Work
from drift.spark.levels import LevelWorker
from drift.spark.tasks import task
from drift.spark.values import python_values
from drift_graph.errors import DriftError
from drift_graph.item import Columns
from drift_graph.meta import BEGINNING, END_OF_TIME, Metas, is_increasing
from drift_graph.restore import Classes

_SAMPLED = 0.01
_PIECE_ITEMS = 8192


class RecordedInput:
    """The input of a replay.

    Attributes:
        end: nothing at or above it may be released.
        error: what the run ends with.
        items_in, late_items: how many there are.
    """

    def __init__(self, feed: RecordedFeed, record: Record) -> None:
        self._record = record
        self._manifest = record.manifest
        promises = {source.name: BEGINNING for source in self._manifest.sources} | dict(record.promises())
        self.end = min(promises.values(), default=END_OF_TIME)
        self.error: Exception | None = None
        if self.end != END_OF_TIME:
            self.error = feed.ends_with or RecordEnds("the record ends here")
        for late in record.late():
            feed.on_late(late)
        self.items_in, self.late_items = self._manifest.items_in, self._manifest.late_items
        self._sorts = any(source.policy.get("time") != "arrival" for source in self._manifest.sources)

    def read(self, spark: Any) -> Any:
        """The rows of the input as a DataFrame; None where there are none."""
        paths = [str(self._record.path.resolve() / file.path) for file in self._manifest.of("input")]
        if not paths or not self._manifest.items_in:
            return None
        return spark.read.parquet(*paths).select("source", "global_time", "payload")

    def level_0(self, frame: Any, work: Work) -> Any:
        """From rows of the input to rows of batches."""
        if self._sorts:
            frame = frame.repartition(work.targets, "global_time").sortWithinPartitions("global_time")
        return frame.mapInArrow(task(run_recorded, work, dict(self._record.classes), self._sorts), DDL)


def firsts_of(frame: Any) -> list[tuple[bytes, int]]:
    """Global times of some items of a DataFrame, each with how many it stands for."""
    some = frame.select("global_time").sample(_SAMPLED, 0)
    return [(bytes(row.global_time), 1) for row in answer(frame.sparkSession, some.collect)]


def run_recorded(
    work: Work, classes: Classes, in_order: bool, batches: Iterable[pa.RecordBatch]
) -> Iterator[pa.RecordBatch]:
    """The maps after the sources, for recorded items; `in_order` where they were sorted on their way."""
    last: dict[str, bytes] = {}
    levels = work.opened()
    outbox = Outbox(levels.last, work.targets)
    worker = LevelWorker(levels, 0, work.targets, work.bounds)
    try:
        for whole in batches:
            for start in range(0, whole.num_rows, _PIECE_ITEMS):
                for source, columns_read in _by_source(whole.slice(start, _PIECE_ITEMS), classes):
                    _check_order(source, columns_read.metas, last, in_order)
                    worker.handle([(source, columns_read)], outbox, columns_read.metas[0])
                yield from outbox.ready()
    except DriftError as error:
        outbox.add_row(error_row(levels.last, error))
    yield from outbox.rest()


def _check_order(source: str, metas: Metas, last: dict[str, bytes], in_order: bool) -> None:
    """Refuse two items of one global time: engines would call that a bug of theirs."""
    if is_increasing(metas) and not (in_order and metas[0] <= last.get(source, BEGINNING)):
        last[source] = metas[-1]
        return
    raise RecordError(
        f"two input items of source {source!r} have one global time; no run records that: `drift audit --intact` tells "
        f"whether the record was changed"
    )


def _by_source(batch: pa.RecordBatch, classes: Classes) -> Iterator[tuple[str, Columns]]:
    names = python_values(batch.column("source"))
    metas = python_values(batch.column("global_time"))
    payloads = restored_many(columns.of_arrow(batch.column("payload")), classes)
    if len(set(names)) == 1:
        yield names[0], Columns(metas, payloads, None)
        return
    start = 0
    for name, group in groupby(names):
        end = start + sum(1 for _ in group)
        yield name, Columns(metas[start:end], payloads[start:end], None)
        start = end
