"""Sends the rows of DataFrames to a record.

Invariant: the run computes from the recorded rows: each row once, with the global time under which it is processed, in
batches in the order of global times, each with the heartbeat of its source.

Why: the tasks that read rows send them on unprocessed, each row to the range of its global time. There the rows are
sorted, counted and encoded as in the record, and Spark persists these bytes on disk. They are read twice: once by the
driver, range after range, for the record, and once by the first level of the graph. So even if a DataFrame gives other
rows each time it is read, one reading counts (the sample read before decides only where ranges begin, which changes no
item). No row becomes an object on the driver.
"""

from __future__ import annotations

import pickle
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import reduce
from typing import Any

import pyarrow as pa

from drift.engines.feed import Feed
from drift.engines.packing import plain_columns
from drift.machines.worker import Part
from drift.records.messages import Stored
from drift.records.storable import Storable
from drift.spark.batches import BATCH_ITEMS, DDL, ERROR, READ, RowInbox, all_rows, record_batch, shuffled
from drift.spark.frames import Reading, RowOrder, level_0
from drift.spark.jobs import Job, answer
from drift.spark.kernels import Work, through_maps
from drift.spark.tasks import task
from drift_graph.canonical import stored_plain
from drift_graph.errors import DriftError
from drift_graph.item import Columns
from drift_graph.meta import BEGINNING, END_OF_TIME
from drift_graph.metas import Metas
from drift_graph.restore import restored_all

_CHUNK_ITEMS = 4 * BATCH_ITEMS
_NO_ITEMS = Columns(Metas(), [], None)
#: Items of one source, as bytes (`plain` if the payloads are scalars, tuples and dicts of these), and its heartbeat
#: after them; or no items and the heartbeat; or an error, with a key: of several errors the least key counts.
_STORED = pa.schema(
    [
        ("rank", pa.int32()),
        ("items", pa.int64()),
        ("metas", pa.binary()),
        ("payloads", pa.binary()),
        ("plain", pa.bool_()),
        ("heartbeat", pa.binary()),
        ("error", pa.binary()),
    ]
)
#: The columns that the run computes from.
STORED_ITEMS = ["rank", "items", "metas", "payloads", "plain"]
_STORED_DDL = "rank int, items long, metas binary, payloads binary, plain boolean, heartbeat binary, error binary"


class StoredRows:
    """The rows of DataFrames with their global times, persisted by Spark until `close`.

    Args:
        readings: each DataFrame with its reading, and the order in which it is read.
        work: with the bounds of the ranges that the rows are stored in.

    Attributes:
        items: how many rows were recorded.
    """

    def __init__(self, spark: Any, readings: Sequence[tuple[Reading, Any, RowOrder]], work: Work) -> None:
        from pyspark import StorageLevel

        self._spark = spark
        self._names = {reading.rank: reading.name for reading, _, _ in readings}
        storing = replace(work, stores=True)
        rows = reduce(
            lambda one, other: one.unionAll(other),
            (level_0(frame, storing, reading, order) for reading, frame, order in readings),
        )
        stored = shuffled(rows, work.targets).mapInArrow(task(store_items, work, self._names), _STORED_DDL)
        self._stored = stored.persist(StorageLevel.DISK_ONLY)
        self.items = 0

    def record(self, feed: Feed) -> None:
        """Record the rows; if some cannot be read or encoded, set the feed's error instead."""
        assert feed.on_stored is not None
        refused = answer(self._spark, self._stored.where("error is not null").select("error").collect)
        if refused:
            errors = [pickle.loads(row.error) for row in refused]
            feed.error = min(errors, key=lambda each: (each[0], str(each[1])))[1]
            return
        heartbeat = BEGINNING
        job = Job(self._spark, self._stored.drop("error"))
        try:
            for row in job.rows():
                if row is not None:
                    heartbeat = max(heartbeat, bytes(row.heartbeat))
                    feed.on_stored(Stored(row.rank, row.items, bytes(row.metas), bytes(row.payloads), heartbeat))
                    self.items += row.items
        finally:
            job.close()

    def level_0(self, work: Work) -> Any:
        """From the rows to rows of batches."""
        return self._stored.select(*STORED_ITEMS).mapInArrow(task(run_stored, work, self._names), DDL)

    def close(self) -> None:
        self._stored.unpersist()


def store_items(work: Work, names: Mapping[int, str], batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Encode the rows of batches of one range as in a record; a row without a global time or encoding is an error."""
    work.opened()
    inbox = RowInbox(_CHUNK_ITEMS, work.repeats)
    storable = Storable()
    upto = b""
    try:
        for row in all_rows(batches):
            if row.port == ERROR:
                yield _refused(row.body)
            elif row.port != READ:
                if inbox.is_due:
                    yield from _stored(inbox.below(inbox.bound(row.first)), row.first, names, storable)
                inbox.add(row)
                upto = work.bounds[row.target] if row.target < len(work.bounds) else b""
        yield from _stored(inbox.below(END_OF_TIME), upto, names, storable)
    except DriftError as error:
        yield _refused(pickle.dumps((b"", error), 5))


def _stored(
    parts: Sequence[Part], heartbeat: bytes, names: Mapping[int, str], storable: Storable
) -> Iterator[pa.RecordBatch]:
    """A row for each source, also for sources without items."""
    found = dict(parts)
    if not found:
        return
    for rank, name in names.items():
        items = found.get(name, _NO_ITEMS)
        data = stored_plain(items.payloads)
        plain = data is not None
        if data is None:
            data, bad = storable.stored(items.payloads, f"source {name!r}")
            if bad is not None:
                raise bad[1]
        row = rank, len(items.metas), items.metas.encoded(), data, plain, heartbeat, None
        yield record_batch([row], _STORED)


def _refused(error: bytes) -> pa.RecordBatch:
    return record_batch([(0, 0, b"", b"", True, b"", error)], _STORED)


def run_stored(work: Work, names: Mapping[int, str], batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Run the maps after the sources for stored items."""
    rows = (row for batch in batches for row in zip(*batch.to_pydict().values()))
    yield from through_maps(work, (_part(names[rank], *row) for rank, *row in rows if row[0]))


def _part(name: str, items: int, metas: bytes, payloads: bytes, plain: bool) -> tuple[str, Columns, bytes]:
    if plain:
        columns = plain_columns(items, metas, payloads)
    else:
        columns = Columns(Metas.decoded(items, metas), restored_all(payloads, {}), None)
    return name, columns, columns.metas[0]
