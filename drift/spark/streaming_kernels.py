"""The functions that only the tasks of a stream run; the levels are the same as in a bounded run.

Invariant: the rows of a micro-batch depend on its items, the states stored before it, and the graph.

Why: a micro-batch holds all items of an interval of time, so its output lies above everything released before and
below everything released later; and between micro-batches everything is settled, so a level stores of a key only the
state that later items need.
"""

from __future__ import annotations

import pickle
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import pyarrow as pa

from drift.machines.plan import Plan
from drift.machines.worker import Router
from drift.spark.batches import COUNT, DDL, LATER, ROWS, STATE, BatchRow, RowOutbox, record_batch, rows_in
from drift.spark.frames import Counter, Reading, stamped
from drift.spark.kernels import OutputRange, RangeEnd, Work, through_maps
from drift.spark.levels import LevelWorker, StateWriting
from drift.spark.output import output_rows
from drift.spark.states import moved_states
from drift_graph.canonical import canonical, form_of, stored
from drift_graph.errors import DriftError, ImpureStep
from drift_graph.item import Columns
from drift_graph.meta import BEGINNING, read_varint, time_of
from drift_graph.restore import restored, restored_all

#: An item of a source that has arrived: the source's rank, its time, its stamp (a global time without the ordinal) and
#: its payload in stored form; or an error, and instead of the payload a key: of several errors the least key counts.
ARRIVED = pa.schema(
    [
        ("rank", pa.int32()),
        ("time", pa.int64()),
        ("stamp", pa.binary()),
        ("payload", pa.binary()),
        ("error", pa.binary()),
    ]
)
ARRIVED_DDL = "rank int, time long, stamp binary, payload binary, error binary"

#: A row of a micro-batch's result is an item, or one of ROWS in these columns: STATE, LATER, or END with a `RangeEnd`.
END = "\0end"
STATE_COLUMNS = [f"__drift_{field.name}" for field in ROWS]
STATE_DDL = ", ".join(f"__drift_{field}" for field in DDL.split(", "))


def arrive_rows(work: Work, reading: Reading, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    work.opened()
    machine = reading.machine()
    for batch in batches:
        payloads, times = reading.payloads(batch), reading.times(batch)
        found, error = stamped(machine, payloads, times)
        stamps = list(found)
        errors: list[bytes | None] = [None] * len(stamps)
        if isinstance(error, ImpureStep):  # of all rows, which are not what they were
            stamps, errors = [BEGINNING], [pickle.dumps((b"", error), 5)]
        elif error is not None:
            stamps, errors = [], []
            for index, payload in enumerate(payloads):
                stamp, reason = stamped(machine, [payload], None if times is None else [times[index]])
                stamps.append(stamp[0] if reason is None else BEGINNING)
                errors.append(None if reason is None else pickle.dumps((form_of(payload), reason), 5))
        arrays = [
            [reading.rank] * len(stamps),
            [time_of(stamp) if stamp else None for stamp in stamps],
            stamps,
            [stored(payload) if stamp else BEGINNING for stamp, payload in zip(stamps, payloads)],
            errors,
        ]
        yield pa.RecordBatch.from_arrays(
            [pa.array(values, field.type) for values, field in zip(arrays, ARRIVED)], schema=ARRIVED
        )


def number_items(
    work: Work, readings: Mapping[int, Reading], batches: Iterable[pa.RecordBatch]
) -> Iterator[pa.RecordBatch]:
    """Make items of payloads sorted by stamp, and run the maps after the sources; gives rows of batches."""
    yield from through_maps(work, _numbered(readings, batches, work.begin))


def _numbered(
    readings: Mapping[int, Reading], batches: Iterable[pa.RecordBatch], begin: bytes
) -> Iterator[tuple[str, Columns, bytes]]:
    counters = {rank: Counter(reading) for rank, reading in readings.items()}
    for batch in batches:
        for rank, (stamps, payloads) in _by_source(batch).items():
            metas = counters[rank].metas(stamps, payloads)
            at = metas.count_below(begin)  # some items of the checkpoint's stamp may lie below the checkpoint
            if at < len(metas):
                yield readings[rank].name, Columns(metas[at:], payloads[at:], None), metas[at]


def _by_source(batch: pa.RecordBatch) -> dict[int, tuple[list[bytes], list[Any]]]:
    found: dict[int, tuple[list[bytes], list[Any]]] = {}
    payloads = restored_all(b"".join(batch.column("payload").to_pylist()))
    for stamp, payload in zip(batch.column("stamp").to_pylist(), payloads):
        stamps, of_source = found.setdefault(read_varint(stamp, 8)[0], ([], []))
        stamps.append(stamp)
        of_source.append(payload)
    return found


def moved(work: Work, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Rows of stored states and later items, which another number of tasks wrote, as rows for those of `work`."""
    levels = work.opened()
    router = Router(Plan(levels.dataflow, fused=levels.fused), work.targets)
    writing = StateWriting(-1, everything=True, heartbeat=work.begin)
    later = LevelWorker(levels, 0, work.targets, work.bounds, work.begin, writing)
    below = RowOutbox(levels.last, work.targets)  # later items that were processed already
    for batch in batches:
        rows = list(rows_in(batch))
        for row in rows:
            if row.port == LATER:
                later.move_later(row, below)
        yield record_batch(
            [each for row in rows if row.port == STATE for each in moved_states(row, router, levels.alone)]
        )
    yield record_batch([row._replace(level=row.items) for row in later.waiting(0)])


def release(
    work: Work,
    batches: Iterable[pa.RecordBatch],
    *,
    start: int,
    schema: pa.Schema,
    sink: str | None,
    columns: list[pa.Field] | None,
) -> Iterator[pa.RecordBatch]:
    """The items of one range of a micro-batch, with positions from `start` on; then states, and a `RangeEnd`."""
    states: list[BatchRow] = []
    output = OutputRange(work, _without_states(batches, work.opened().last, start, states))
    error: DriftError | None = None
    try:
        for batch in output.released():
            for rows in output_rows(batch, sink, columns):
                yield _widened(schema, rows)
    except DriftError as raised:  # a payload that does not fit its columns
        error = raised
    if output.target >= 0:
        end = RangeEnd(*output.digest.parts(), error or output.error)
        states.append(BatchRow(-1, output.target, BEGINNING, END, output.position, pickle.dumps(end, 5)))
    if states:
        stored = record_batch(states)
        yield _widened(schema, pa.RecordBatch.from_arrays(stored.columns, names=STATE_COLUMNS))


def _without_states(
    batches: Iterable[pa.RecordBatch], last: int, start: int, states: list[BatchRow]
) -> Iterator[pa.RecordBatch]:
    """Moves rows of states to `states`; gives a COUNT of the items released before, then the other rows."""
    begun = False
    for batch in batches:
        rows: list[BatchRow] = []
        for row in rows_in(batch):
            if not begun:
                begun = True
                rows.append(BatchRow(last, row.target, BEGINNING, COUNT, start, b""))
            if row.port == STATE or row.port == LATER:
                states.append(row)
            else:
                rows.append(row)
        yield record_batch(rows)


def _widened(schema: pa.Schema, batch: pa.RecordBatch) -> pa.RecordBatch:
    """The batch with all columns of a schema; columns that it lacks are null."""
    have = dict(zip(batch.schema.names, batch.columns))
    arrays = [have[field.name] if field.name in have else pa.nulls(batch.num_rows, field.type) for field in schema]
    return pa.RecordBatch.from_arrays(arrays, schema=schema)


def late_rows(
    work: Work, heartbeats: Mapping[int, tuple[str, int]], batches: Iterable[pa.RecordBatch]
) -> Iterator[pa.RecordBatch]:
    """Late items as rows: source, time, the heartbeat that the item lies below, payload as canonical bytes."""
    work.opened()
    for batch in batches:
        ranks, payloads = batch.column("rank").to_pylist(), batch.column("payload").to_pylist()
        arrays = [
            pa.array([heartbeats[rank][0] for rank in ranks], pa.string()),
            batch.column("time"),
            pa.array([heartbeats[rank][1] for rank in ranks], pa.int64()),
            pa.array([canonical(restored(payload)) for payload in payloads], pa.binary()),
        ]
        yield pa.RecordBatch.from_arrays(arrays, names=["source", "time", "heartbeat", "payload"])
