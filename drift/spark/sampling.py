"""What a look at some rows of a DataFrame says of all: where its output may be cut, and how it is to be read.

Invariant: what a look misses changes no output, and only little of what is in memory at once.

Why: every hundredth row is looked at, so what it does not see are few: of rows that it takes for sorted, some thousand
may not be. Where rows have a column of times nothing else is read.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from operator import gt
from typing import Any

import pyarrow as pa

from drift.arrow import python_values
from drift.spark.frames import TIME, Reading, Way, placed
from drift.spark.jobs import answer
from drift.spark.kernels import Work
from drift.spark.pieces import overlapping
from drift.spark.tasks import task
from drift_graph.meta import pack_time
from drift_graph.policies import EventTime

_LOOKED_AT = 0.01
_KEPT_MAX = 1000  # of one task
_PLACE_ITEMS_MAX = 1 << 18
_TASKS_OVERLAPPING_MAX = 64
_LOPSIDED_MIN = 1.5  # times its share
_ITEMS_OF_ONE_MIN = 1_000_000  # below which a shuffle of all takes longer than waiting for the task
_LOOK_DDL = "task int, first binary, items long"


class Look:
    """See the module.

    Args:
        some: the number of a task, the place of one of its rows or what that begins with, and for how many it stands;
            in the order that the task has them.

    Attributes:
        firsts: the places, and for how many each stands.
    """

    def __init__(self, some: Sequence[tuple[int, bytes, int]]) -> None:
        self.firsts = [(place, items) for _, place, items in some]
        self.places: dict[int, list[bytes]] = {}  # by task
        self._items: dict[int, int] = {}
        for number, place, items in some:
            self.places.setdefault(number, []).append(place)
            self._items[number] = self._items.get(number, 0) + items

    def crowded(self) -> bool:
        """Whether very many rows have one place."""
        crowds: dict[bytes, int] = {}
        for place, items in self.firsts:
            crowds[place] = crowds.get(place, 0) + items
        return max(crowds.values(), default=0) > _PLACE_ITEMS_MAX

    def in_order(self) -> bool:
        """Whether the rows of each task are, and only so many of them overlap."""
        if any(any(map(gt, each, islice(each, 1, None))) for each in self.places.values()):
            return False
        return overlapping((each[0], each[-1]) for each in self.places.values()) <= _TASKS_OVERLAPPING_MAX

    def lopsided(self, targets: int) -> bool:
        """Whether the others would wait for a task that has many more rows than its share."""
        most = max(self._items.values(), default=0)
        return most > _ITEMS_OF_ONE_MIN and most * targets > _LOPSIDED_MIN * sum(self._items.values())


def look_at(frame: Any, work: Work, reading: Reading) -> Look:
    """A look at some rows, or at their times where that says enough."""
    look = _look(frame.select(TIME), work, None) if reading.timed else None
    return look if look is not None and not look.crowded() else _look(frame, work, reading)


def _look(frame: Any, work: Work, reading: Reading | None) -> Look:
    some = frame.sample(_LOOKED_AT, 0).mapInArrow(task(look_at_rows, work, reading), _LOOK_DDL)
    return Look([(row.task, bytes(row.first), row.items) for row in answer(frame.sparkSession, some.collect)])


def look_at_rows(work: Work, reading: Reading | None, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Places of some rows, evenly over the task, with its number, and for how many rows each stands.

    Args:
        reading: None where the only column is that of times.
    """
    from pyspark import TaskContext

    work.opened()
    context = TaskContext.get()
    stride, at = 1, 0
    kept: list[bytes] = []
    for batch in batches:
        wanted = list(range(-at % stride, batch.num_rows, stride))
        at += batch.num_rows
        if wanted:
            kept += _places(batch.take(pa.array(wanted)), reading)
        while len(kept) > _KEPT_MAX:
            kept, stride = kept[::2], stride * 2
    task_number = context.partitionId() if context is not None else 0
    values: list[tuple[list[Any], Any]] = [
        ([task_number] * len(kept), pa.int32()),
        (kept, pa.binary()),
        ([round(stride / _LOOKED_AT)] * len(kept), pa.int64()),
    ]
    arrays = [pa.array(each, kind) for each, kind in values]
    yield pa.RecordBatch.from_arrays(arrays, names=["task", "first", "items"])


def _places(some: pa.RecordBatch, reading: Reading | None) -> list[bytes]:
    if reading is None:
        return [pack_time(time) for time in python_values(some.column(0)) if time is not None]
    return placed(reading.machine(), reading.payloads(some), reading.times(some))[0]


def way_of(reading: Reading, look: Look, targets: int) -> Way:
    """How rows are to be read."""
    if (isinstance(reading.policy, EventTime) and reading.policy.tie is not None) or look.crowded():
        return "place"
    if not reading.timed:
        return "lie" if look.in_order() else "place"
    lopsided = look.lopsided(targets)
    if look.in_order() and not lopsided:
        return "lie"
    return "spread by time" if lopsided or len(look.places) > _TASKS_OVERLAPPING_MAX else "time"
