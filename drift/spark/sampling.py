"""A sample of a DataFrame's rows, which decides where the output is cut into ranges and how the rows are read.

Invariant: whatever the sample misses changes no output, and little of the memory needed.

Why: one row in a hundred is sampled, so few rows deviate from it unseen: if the sample is sorted, perhaps a thousand
rows are not. If rows have a column of times, only that column is read.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import islice
from operator import gt
from typing import Any

import pyarrow as pa

from drift.arrow import python_values
from drift.spark.frames import TIME, Reading, RowOrder, stamped
from drift.spark.jobs import answer
from drift.spark.kernels import Work
from drift.spark.partitions import overlapping
from drift.spark.tasks import mapped, task
from drift_graph.meta import pack_time
from drift_graph.moments import Field
from drift_graph.policies import EventTime

#: The time of a value; None if it has none.
TimeOf = Callable[[Any], int | None]

_SAMPLE_FRACTION = 0.01
_SAMPLED_MAX = 1000  # of one task
_STAMP_ITEMS_MAX = 1 << 18
_TASKS_OVERLAPPING_MAX = 64
_LOPSIDED_MIN = 1.5  # times its share
_ITEMS_OF_ONE_MIN = 1_000_000  # below which a shuffle of all takes longer than waiting for the task
_SAMPLE_DDL = "task int, first binary, items long"


class RowSample:
    """
    Args:
        some: for each sampled row the number of its task, its stamp (a global time without the ordinal) or a prefix of
            it, and how many rows it stands for; in the order in which the task has them.

    Attributes:
        firsts: the stamps, and how many rows each stands for.
    """

    def __init__(self, some: Sequence[tuple[int, bytes, int]]) -> None:
        self.firsts = [(stamp, items) for _, stamp, items in some]
        self.stamps: dict[int, list[bytes]] = {}  # by task
        self._items: dict[int, int] = {}
        for number, stamp, items in some:
            self.stamps.setdefault(number, []).append(stamp)
            self._items[number] = self._items.get(number, 0) + items

    def crowded(self) -> bool:
        """Whether very many rows have one stamp."""
        counts: dict[bytes, int] = {}
        for stamp, items in self.firsts:
            counts[stamp] = counts.get(stamp, 0) + items
        return max(counts.values(), default=0) > _STAMP_ITEMS_MAX

    def in_order(self) -> bool:
        """Whether each task has its rows in order, and few enough tasks overlap."""
        if any(any(map(gt, each, islice(each, 1, None))) for each in self.stamps.values()):
            return False
        return overlapping((each[0], each[-1]) for each in self.stamps.values()) <= _TASKS_OVERLAPPING_MAX

    def lopsided(self, targets: int) -> bool:
        """Whether the other tasks would wait for one that has many more rows than its share."""
        most = max(self._items.values(), default=0)
        return most > _ITEMS_OF_ONE_MIN and most * targets > _LOPSIDED_MIN * sum(self._items.values())


def sampled(frame: Any, work: Work, reading: Reading) -> RowSample:
    """Sample the times of rows, or of complete rows if there is no column of times or too many rows share one time."""
    sample, policy = None, reading.policy
    if reading.timed:
        sample = _sampled(frame.select(TIME), work, None)
    elif isinstance(policy, EventTime) and type(policy.time) is Field and policy.time.path in reading.columns:
        name = policy.time.path.replace("`", "``")
        sample = _sampled(frame.select(frame[f"`{name}`"]), work, policy.time_of)
    return sample if sample is not None and not sample.crowded() else _sampled(frame, work, reading)


def _sampled(frame: Any, work: Work, reading: Reading | TimeOf | None) -> RowSample:
    rows = mapped(frame.sample(_SAMPLE_FRACTION, 0), task(sample_rows, work, reading), _SAMPLE_DDL)
    return RowSample([(row.task, bytes(row.first), row.items) for row in answer(frame.sparkSession, rows.collect)])


def sample_rows(
    work: Work, reading: Reading | TimeOf | None, batches: Iterable[pa.RecordBatch]
) -> Iterator[pa.RecordBatch]:
    """Stamps of some rows, spread evenly over the task: the task's number, the stamp, how many rows it stands for.

    Args:
        reading: where the only column is that of times, what gives a value's time, or None for one that has times.
    """
    from pyspark import TaskContext

    work.opened()
    context = TaskContext.get()
    stride, at = 1, 0
    chosen: list[bytes] = []
    for batch in batches:
        wanted = list(range(-at % stride, batch.num_rows, stride))
        at += batch.num_rows
        if wanted:
            chosen += _stamps(batch.take(pa.array(wanted)), reading)
        while len(chosen) > _SAMPLED_MAX:
            chosen, stride = chosen[::2], stride * 2
    task_number = context.partitionId() if context is not None else 0
    values: list[tuple[list[Any], Any]] = [
        ([task_number] * len(chosen), pa.int32()),
        (chosen, pa.binary()),
        ([round(stride / _SAMPLE_FRACTION)] * len(chosen), pa.int64()),
    ]
    arrays = [pa.array(each, kind) for each, kind in values]
    yield pa.RecordBatch.from_arrays(arrays, names=["task", "first", "items"])


def _stamps(some: pa.RecordBatch, reading: Reading | TimeOf | None) -> list[bytes]:
    if not isinstance(reading, Reading):
        values = python_values(some.column(0))
        times = values if reading is None else map(reading, values)
        return [pack_time(time) for time in times if time is not None]
    return list(stamped(reading.machine(), reading.payloads(some), reading.times(some))[0])


def row_order(reading: Reading, sample: RowSample, targets: int) -> RowOrder:
    """Choose how the rows are read."""
    if reading.policy.tie is not None or sample.crowded():
        return "stamp"
    if not reading.timed:
        return "own" if sample.in_order() else "stamp"
    lopsided = sample.lopsided(targets)
    if sample.in_order() and not lopsided:
        return "own"
    return "spread by time" if lopsided or len(sample.stamps) > _TASKS_OVERLAPPING_MAX else "time"
