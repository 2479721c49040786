"""A record's input on Spark: its tasks read the record's own Parquet files.

Invariant: the items get their recorded global times and payloads; nothing is released that the recorded heartbeats do
not cover.

Why: the global times define the order, so a task may read any rows. It reads consecutive rows; they were recorded as
they arrived, so they are in order except for late ones, and the batches made of them overlap little. If the times of
many row groups overlap, Spark sorts the rows first. No task sees all rows, so none can check them: `replay` has
compared the files with their hashes before.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import partial
from itertools import groupby
from typing import Any

import pyarrow as pa

from drift.arrow import python_values
from drift.engines.recorded import RecordedFeed, RecordEnds
from drift.records.columns import GLOBAL_TIME, metas_of, strings_of
from drift.records.reader import Record, restored_many
from drift.spark.batches import DDL
from drift.spark.kernels import Work, through_maps
from drift.spark.partitions import Partition, in_partitions, overlapping, read_by_tasks
from drift.spark.tasks import task
from drift_graph.inputs import late_until
from drift_graph.item import Columns
from drift_graph.meta import BEGINNING, END_OF_TIME, pack_time
from drift_graph.metas import Metas
from drift_graph.restore import Classes

_COLUMNS = ("source", *GLOBAL_TIME, "payload")
_PARTS = 16  # of a row group's range of times
_CHUNK_ITEMS = 8192
_PARTITION_ITEMS_MAX = 1 << 19  # that one task reads
_OVERLAPPING_MAX = 4  # row groups, which are in memory at once


class RecordedInput:
    """The input of a replay.

    Attributes:
        end: nothing at or above it may be released.
        error: the error that ends the run; None if there is none.
        items_in: how many items there are.
    """

    def __init__(self, feed: RecordedFeed, record: Record) -> None:
        self._record = record
        self._classes = dict(record.classes)
        self._manifest = record.manifest
        heartbeats = {source.name: BEGINNING for source in self._manifest.sources} | dict(record.heartbeats())
        self.end = min(heartbeats.values(), default=END_OF_TIME)
        self.error: Exception | None = None
        if self.end != END_OF_TIME:
            self.error = feed.ends_with or RecordEnds("the record ends here")
        reported = late_until(record.late(), heartbeats)
        feed.add_late(reported)
        self.items_in = self._manifest.items_in
        self._extents = [] if not self.items_in else list(record.input_extents())

    @property
    def firsts(self) -> list[tuple[bytes, int]]:
        """Times spread evenly over each row group, and how many items each stands for."""
        return [
            (pack_time(least + (greatest - least) * part // _PARTS), rows // _PARTS + 1)
            for least, greatest, rows in self._extents
            for part in range(_PARTS)
        ]

    def level_0(self, spark: Any, work: Work) -> Any:
        """From rows of the input to rows of batches."""
        overlap = overlapping((least, greatest) for least, greatest, _ in self._extents)
        if overlap <= _OVERLAPPING_MAX:
            partitions = in_partitions(self.items_in, work.targets, _PARTITION_ITEMS_MAX)
            path = str(self._record.path.resolve())
            return read_by_tasks(spark, partitions, partial(_run_rows, path, self._classes, work))
        paths = [str(self._record.path.resolve() / file.path) for file in self._manifest.of("input")]
        frame = spark.read.parquet(*paths).select(*_COLUMNS).repartition(work.targets, *GLOBAL_TIME)
        return frame.sortWithinPartitions(*GLOBAL_TIME).mapInArrow(task(run_recorded, work, self._classes), DDL)


def _run_rows(path: str, classes: Classes, work: Work, partition: Partition) -> Iterator[pa.RecordBatch]:
    yield from run_recorded(work, classes, Record(path).input_rows(*partition))


def run_recorded(work: Work, classes: Classes, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Run the maps after the sources for recorded items."""
    parts = (
        part
        for rows in batches
        for start in range(0, rows.num_rows, _CHUNK_ITEMS)
        for part in _by_source(rows.slice(start, _CHUNK_ITEMS), classes)
    )
    yield from through_maps(work, ((name, items, items.metas[0]) for name, items in parts))


def _by_source(batch: pa.RecordBatch, classes: Classes) -> Iterator[tuple[str, Columns]]:
    names = python_values(batch.column("source"))
    metas = metas_of(batch, GLOBAL_TIME).to_pylist()
    payloads = restored_many(strings_of(batch.column("payload")), classes)
    every = Columns(Metas(metas), payloads, None)
    if len(set(names)) == 1:
        yield names[0], every
        return
    start = 0
    for name, group in groupby(names):
        end = start + sum(1 for _ in group)
        yield name, every.slice(start, end)
        start = end
