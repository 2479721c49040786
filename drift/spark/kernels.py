"""The functions that Spark's tasks run by mapInArrow: from rows of batches to rows of batches, or to released items.

Invariant: a task's output rows depend on its input rows and the graph alone, so Spark may run it again anywhere.

Why: the kernels run the machines of the other engines, fed in the order of metas. If a user's function raises, the
result is a Failure, which is an item; an error in the input or in encoding a payload is a row too. So a job fails only
if the computer or this library is at fault.
"""

from __future__ import annotations

import gc
import pickle
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache

import pyarrow as pa
import pyarrow.compute as pc

from drift.engines.packing import packed_output
from drift.engines.shipping import rebuilt
from drift.engines.surroundings import Surroundings
from drift.machines.plan import feeding_step
from drift.records.format import RecordError
from drift.spark.batches import (
    BATCH_ITEMS,
    COUNT,
    ERROR,
    LATER,
    READ,
    STATE,
    BatchRow,
    Repeats,
    RowInbox,
    RowOutbox,
    error_row,
    record_batch,
    rows_in,
)
from drift.spark.blocks import PartDigest
from drift.spark.levels import Levels, LevelWorker, RangeSender, StateWriting
from drift_barrier.barrier import Barrier, Released
from drift_barrier.digest import Algorithm, Encoded
from drift_graph.errors import DriftBug, DriftError
from drift_graph.graph import Dataflow
from drift_graph.item import Columns
from drift_graph.meta import BEGINNING, END_OF_TIME, global_time_of
from drift_graph.metas import Metas
from drift_graph.payloads import NeedsRows
from drift_graph.segments import has_borders

_READY_ITEMS = 4 * BATCH_ITEMS
_GC_THRESHOLD = 100_000


@dataclass(frozen=True)
class Work:
    """The settings that every task of a run gets.

    Attributes:
        dataflow: pickled.
        around: the part of the driver's environment that functions see; folders on its module path are also searched if
            they exist on the task's machine.
        targets: how many tasks a level has.
        bounds: metas that cut the output into `targets` ranges, or fewer.
        end: nothing at or above it is released; below END_OF_TIME if an input ended with an error.
        heartbeat: of all sources at the end: later items at or above it are not due yet.
        writes_state: which states tasks write as rows of STATE, and restore from rows of STATE; None for none.
        repeats: what tasks do with items of equal metas.
        stores: tasks that read rows send them on unprocessed, to be stored in the ranges that `bounds` cut.
        begin: the cut from which the run resumes: items below it are skipped, and states are as of it.
        classes: of states.
    """

    dataflow: bytes
    around: Surroundings
    fused: bool
    targets: int
    bounds: tuple[bytes, ...]
    end: bytes = END_OF_TIME
    algorithm: Algorithm = "xxh3_128"
    heartbeat: bytes = END_OF_TIME
    writes_state: StateWriting | None = None
    repeats: Repeats = "bug"
    stores: bool = False
    begin: bytes = BEGINNING
    classes: tuple[type, ...] = ()

    @property
    def due_below(self) -> bytes:
        """When all rows have come, all later items below this meta have, too."""
        return min(self.end, self.heartbeat)

    def opened(self) -> Levels:
        dataflow = _dataflow(self.dataflow, self.around)
        self.around.enter(same_machine=False)  # since it cached the dataflow, this process may have run tasks of others
        gc.set_threshold(_GC_THRESHOLD, 20, 100)
        return Levels(dataflow, fused=self.fused, classes=self.classes)


@lru_cache(maxsize=4)
def _dataflow(packed: bytes, around: Surroundings) -> Dataflow:
    dataflow: Dataflow = rebuilt(packed, around, "a task of Spark", same_machine=False)
    return dataflow


class Refused(Exception):
    """No global time can be made for a row."""

    def __init__(self, key: bytes, error: DriftError) -> None:
        super().__init__(str(error))
        self.key = key
        self.error = error


def through_maps(
    work: Work, parts: Iterable[tuple[str, Columns, bytes]], *, counts_read: bool = False
) -> Iterator[pa.RecordBatch]:
    """Run the maps after the sources.

    Args:
        parts: (source, its items, a global time that no item of a later part lies below).
        counts_read: add a row with the number of items read.
    """
    levels = work.opened()
    outbox = RowOutbox(levels.last, work.targets)
    bounds = work.bounds
    worker: RangeSender | LevelWorker
    worker = RangeSender(bounds) if work.stores else _worker(work, levels, 0)
    read = 0
    try:
        for name, columns, settled in parts:
            read += len(columns.metas)
            worker.handle([(name, columns)], outbox, settled)
            yield from outbox.ready()
        yield from outbox.adding(worker.waiting(0))
    except Refused as refused:
        outbox.add_row(error_row(levels.last, refused.error, refused.key))
    except DriftError as error:
        outbox.add_row(error_row(levels.last, error))
    if counts_read:
        outbox.add_row(BatchRow(levels.last, 0, BEGINNING, READ, read, b""))
    yield from outbox.rest()


def _worker(work: Work, levels: Levels, level: int) -> LevelWorker:
    return LevelWorker(levels, level, work.targets, work.bounds, work.due_below, work.writes_state, work.begin)


def release_later(work: Work, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Send later items for sinks to the ranges of this micro-batch; items that are not due stay rows of LATER."""
    levels = work.opened()
    outbox = RowOutbox(levels.last, work.targets)
    worker = _worker(work, levels, 0)
    for batch in batches:
        for row in rows_in(batch):
            worker.release_later(row, outbox)
            yield from outbox.ready()
    yield from outbox.adding(worker.waiting(0))
    yield from outbox.rest()


def run_level(work: Work, level: int, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Run the groupings of a level, or for level 0 the maps after the sources; rows of later levels pass through."""
    levels = work.opened()
    outbox = RowOutbox(levels.last, work.targets)
    target = 0
    try:
        worker = _worker(work, levels, level)
        inbox = RowInbox(_READY_ITEMS, work.repeats)
        for batch in batches:
            passing = pc.not_equal(batch.column("level"), level)
            if pc.any(passing).as_py():
                yield batch.filter(passing)
                batch = batch.filter(pc.equal(batch.column("level"), level))
            for row in rows_in(batch):
                target = row.target
                if row.port == STATE:
                    worker.recall(row)
                    continue
                if level == 0:
                    worker.handle([(row.port, row.columns())], outbox, row.first)
                    yield from outbox.ready()
                    continue
                if inbox.is_due:
                    bound = inbox.bound(global_time_of(row.first) if worker.cuts_at_times else row.first)
                    worker.handle(inbox.below(bound), outbox, bound)
                    yield from outbox.ready()
                if row.port == LATER:
                    inbox.add_columns(*worker.recall_later(row), len(row.body))
                else:
                    inbox.add(row)
        worker.handle(inbox.below(END_OF_TIME), outbox, END_OF_TIME)
        yield from outbox.adding(worker.waiting(target))
        if work.writes_state:
            yield from outbox.adding(worker.state_rows(target, work.writes_state))
    except DriftBug:
        raise
    except DriftError as error:
        outbox.add_row(error_row(levels.last, error))
    yield from outbox.rest()


#: What `release` gives: batches of the output in order, and at the end of each range what is left of it.
RELEASED = pa.schema([("target", pa.int32()), ("position", pa.int64()), ("items", pa.int64()), ("body", pa.binary())])
RELEASED_DDL = "target int, position long, items long, body binary"


@dataclass(frozen=True)
class RangeEnd:
    """What the driver gets of a range of the output.

    Attributes:
        blocks: of the digest, those that lie within the range, by number.
        edges: the parts of other blocks.
        error: what the run ends with after this range.
        items_read: by tasks, from DataFrames; reported to the first range.
    """

    blocks: list[tuple[int, bytes]]
    edges: list[tuple[int, int, bytes, bytes]]
    error: Exception | None
    items_read: int = 0


def run_release(work: Work, batches: Iterable[pa.RecordBatch], *, with_items: bool) -> Iterator[pa.RecordBatch]:
    """The output barrier of one range: batches with their items where these are wanted, and a `RangeEnd`."""
    output = OutputRange(work, batches)
    for batch in output.released():
        if with_items and batch.payloads:
            body = pickle.dumps((*packed_output(batch.metas, batch.payloads, output.encoded), batch.sinks), 5)
            yield record_batch([(output.target, batch.position, len(batch.metas), body)], RELEASED)
    if output.target >= 0:
        end = RangeEnd(*output.digest.parts(), output.error, output.items_read)
        yield record_batch([(output.target, output.position, -1, pickle.dumps(end, 5))], RELEASED)


def released_batches(work: Work, batches: Iterable[pa.RecordBatch]) -> Iterator[Released]:
    """The items of one range; the last batch holds the error, where there is one."""
    output = OutputRange(work, batches)
    yield from output.released()
    if output.error is not None:
        yield Released(output.position, Metas(), [], "", output.error)


class OutputRange:
    """One range of the output, merged and released in order."""

    def __init__(self, work: Work, batches: Iterable[pa.RecordBatch]) -> None:
        dataflow = work.opened().dataflow
        self.target = -1
        self.error: Exception | None = None
        self.items_read = 0
        self.digest = PartDigest(work.algorithm, 0)
        self._work = work
        self._batches = batches
        passes = has_borders(dataflow)
        self._barrier = Barrier(work.algorithm, lambda sink: feeding_step(dataflow, sink), passes_failures=passes)

    @property
    def position(self) -> int:
        return self._barrier.position

    @property
    def encoded(self) -> Sequence[Encoded]:
        """The last released batch, as the bytes that went into the digest."""
        return self._barrier.encoded

    def released(self) -> Iterator[Released]:
        """The items of the range; ends at an error."""
        barrier, end = self._barrier, self._work.end
        inbox = RowInbox(_READY_ITEMS, self._work.repeats)
        begun = False
        errors: list[tuple[bytes, str, DriftError]] = []
        for row in self._rows():
            if row.port == COUNT:
                barrier.position += row.items
                continue
            if row.port == READ:
                self.items_read += row.items
                continue
            if row.port == ERROR:
                key, error = pickle.loads(row.body)
                errors.append((key, str(error), error))
                continue
            if errors:
                break
            if not begun:
                begun = True
                self.digest = barrier.digest = PartDigest(self._work.algorithm, barrier.position)
            if row.first >= end:
                break
            if inbox.is_due:
                yield from self._release(inbox, inbox.bound(row.first))
                if self.error is not None:
                    return
            inbox.add(row)
        if errors:
            again = [error for _, _, error in errors if isinstance(error, NeedsRows)]
            self.error = again[0] if again else min(errors, key=lambda each: each[:2])[2]
            return
        yield from self._release(inbox, end)

    def _rows(self) -> Iterator[BatchRow]:
        for batch in self._batches:
            for row in rows_in(batch):
                if self.target not in (-1, row.target):
                    raise DriftBug(f"a task got two ranges of the output, {self.target} and {row.target}")
                self.target = row.target
                yield row

    def _release(self, inbox: RowInbox, bound: bytes) -> Iterator[Released]:
        try:
            parts = inbox.below(bound)
        except RecordError as error:
            self.error = error
            return
        for port, columns in parts:
            self._barrier.add(port, columns)
        batch = self._barrier.release(bound)
        if batch is not None:
            self.error = batch.error
            yield batch
