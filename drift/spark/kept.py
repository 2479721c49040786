"""The rows of DataFrames on their way into a record.

Invariant: what a run computes from is what is recorded: each row once, with the global time under which it is
processed, in batches in the order of global times, each with the promise of its source.

Why: rows get their global times in tasks, where they stay, on disk. They are read from there twice, once here in their
order, to be told, and once by the first level of the graph. So a DataFrame that gives other rows each time it is asked
is asked once.
"""

from __future__ import annotations

import pickle
from collections.abc import Iterable, Iterator
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from drift.engines.feed import Fed, Feed
from drift.records import columns
from drift.records.reader import restored_many
from drift.records.storable import Storable
from drift.spark.batches import DDL
from drift.spark.frames import Reading, Refused, numbered, sorted_by_place
from drift.spark.jobs import Job, answer
from drift.spark.kernels import Work
from drift.spark.recorded import firsts_of, run_recorded
from drift.spark.tasks import task
from drift_graph.canonical import stored_each, stored_plain
from drift_graph.errors import DriftError
from drift_graph.meta import BEGINNING
from drift_graph.times import Arrived

_KEPT = pa.schema(
    [("source", pa.string()), ("global_time", pa.binary()), ("payload", pa.binary()), ("error", pa.binary())]
)
_KEPT_DDL = "source string, global_time binary, payload binary, error binary"
_CHUNKS_DDL = "rows long, body binary"


class KeptRows:
    """The rows of DataFrames with their global times, kept by Spark until `close`.

    Args:
        readings: each DataFrame with how it is read.

    Attributes:
        items: how many rows there are.
    """

    def __init__(self, spark: Any, readings: list[tuple[Reading, Any]], work: Work) -> None:
        from pyspark import StorageLevel

        self._spark = spark
        self._ranks = {reading.name: reading.rank for reading, _ in readings}
        self._work = work
        frames = [
            sorted_by_place(frame, work, reading).mapInArrow(task(keep_rows, work, reading), _KEPT_DDL)
            for reading, frame in readings
        ]
        self._frames = [frame.persist(StorageLevel.DISK_ONLY) for frame in frames]
        self.items = 0

    def tell(self, feed: Feed) -> None:
        """Tell the rows to the feed, as what came of their sources; an error of theirs becomes the feed's."""
        every = self._frames[0]
        for frame in self._frames[1:]:
            every = every.unionAll(frame)
        refused = answer(self._spark, every.where("error is not null").select("error").collect)
        if refused:
            errors = [pickle.loads(row.error) for row in refused]
            feed.error = min(errors, key=lambda each: (each[0], str(each[1])))[1]
            return
        ordered = every.repartitionByRange(self._work.targets, "global_time").sortWithinPartitions("global_time")
        job = Job(self._spark, ordered.mapInArrow(task(packed_chunks), _CHUNKS_DDL))
        promise = BEGINNING
        try:
            chunk: pa.Table | None = None
            for row in job.rows():
                if row is None:
                    continue
                with pa.ipc.open_stream(row.body) as stream:
                    following = stream.read_all()
                if chunk is not None:
                    promise = following.column("global_time")[0].as_py()
                    if not self._tell_chunk(feed, chunk, promise):
                        return
                chunk = following
            if chunk is not None:
                self._tell_chunk(feed, chunk, promise)  # the feed has a promise for the end
        finally:
            job.close()

    def _tell_chunk(self, feed: Feed, chunk: pa.Table, promise: bytes) -> bool:
        """A batch of each source; whether the run may go on."""
        for name, rank in self._ranks.items():
            rows = chunk.filter(pc.equal(chunk.column("source"), name))
            metas = columns.of_arrow(rows.column("global_time")).listed()
            payloads = restored_many(columns.of_arrow(rows.column("payload")), {})
            self.items += len(metas)
            if not feed.tell(Fed(name, rank, Arrived(metas, payloads, promise, [], None))):
                return False
        return True

    def firsts(self) -> list[tuple[bytes, int]]:
        """Global times of some items."""
        return [first for frame in self._frames for first in firsts_of(frame)]

    def level_0(self, work: Work) -> list[Any]:
        """From the rows to rows of batches."""
        kernel = task(run_recorded, work, {})
        items = [frame.where("error is null").select("source", "global_time", "payload") for frame in self._frames]
        return [frame.mapInArrow(kernel, DDL) for frame in items]

    def close(self) -> None:
        for frame in self._frames:
            frame.unpersist()


def keep_rows(work: Work, reading: Reading, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """From rows sorted by place to items as a record has them; a row that has no place, or no form, is an error."""
    work.opened()
    storable = Storable()
    try:
        for items in numbered(reading, batches):
            data = stored_plain(items.payloads)
            if data is None:
                bad = storable.check(items.payloads, f"source {reading.name!r}")
                if bad is not None:
                    raise bad[1]
                data = b"".join(stored_each(items.payloads))
            strings = columns.values(len(items.payloads), data)
            yield _kept(reading.name, pa.array(items.metas, pa.binary()), columns.to_arrow(strings), None)
    except Refused as refused:
        yield _kept(reading.name, pa.array([b""]), pa.array([b""]), (refused.key, refused.error))
    except DriftError as error:
        yield _kept(reading.name, pa.array([b""]), pa.array([b""]), (b"", error))


def _kept(name: str, metas: pa.Array, payloads: pa.Array, error: tuple[bytes, DriftError] | None) -> pa.RecordBatch:
    count = len(metas)
    errors = pa.nulls(count, pa.binary()) if error is None else pa.array([pickle.dumps(error, 5)])
    return pa.RecordBatch.from_arrays([pa.array([name] * count), metas, payloads, errors], schema=_KEPT)


def packed_chunks(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Each batch as one row: so the driver takes a few thousand at once."""
    for batch in batches:
        if batch.num_rows:
            sink = pa.BufferOutputStream()
            with pa.ipc.new_stream(sink, batch.schema) as stream:
                stream.write_batch(batch)
            yield pa.RecordBatch.from_pydict({"rows": [batch.num_rows], "body": [sink.getvalue().to_pybytes()]})
