"""Files that tasks read directly, one partition each: items go through the JVM only in batches.

Invariant: every partition is read by one task, completely and in order.

Why: the partitions are the rows of a DataFrame with one row in each partition; and the tasks can read the disk that the
files are on.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from itertools import accumulate
from pathlib import Path
from typing import Any, TypeVar

import pyarrow as pa

from drift.spark.batches import DDL, ROWS
from drift.spark.kernels import Work, run_level
from drift.spark.tasks import task

#: A range of numbers, the second excluded: of batches in a file, or of rows in a record.
Partition = tuple[int, int]

Of = TypeVar("Of")


def in_partitions(count: int, tasks: int, size_max: int) -> list[Partition]:
    """Split `count` numbers into partitions of about one size, at most `size_max`: equally many for each task."""
    partitions = min(tasks * -(-count // (tasks * size_max)), count)
    return [(count * number // partitions, count * (number + 1) // partitions) for number in range(partitions)]


def overlapping(extents: Iterable[tuple[Any, Any]]) -> int:
    """The most closed intervals that have a point in common."""
    ends = [end for start, last in extents for end in ((start, 0, 1), (last, 1, -1))]
    return max(accumulate(change for _, _, change in sorted(ends)), default=0)


def read_by_tasks(spark: Any, partitions: Sequence[Of], kernel: Callable[[Of], Iterator[pa.RecordBatch]]) -> Any:
    """The DataFrame of a kernel's rows for the partitions, of which there is at least one."""
    numbers = spark.range(0, len(partitions), 1, len(partitions))
    return numbers.mapInArrow(task(_read, kernel, tuple(partitions)), DDL)


def _read(
    kernel: Callable[[Of], Iterator[pa.RecordBatch]], partitions: Sequence[Of], batches: Iterable[pa.RecordBatch]
) -> Iterator[pa.RecordBatch]:
    for batch in batches:
        for number in batch.column(0).to_pylist():
            yield from kernel(partitions[number])


def write_batches(path: Path, batches: Iterable[pa.RecordBatch]) -> int:
    """Write batches of ROWS to a file; returns how many."""
    count = 0
    options = pa.ipc.IpcWriteOptions(compression="lz4")
    with pa.OSFile(str(path), "wb") as file, pa.ipc.new_file(file, ROWS, options=options) as writer:
        for batch in batches:
            writer.write_batch(batch)
            count += 1
    return count


def level_0(spark: Any, work: Work, path: Path, partitions: Sequence[Partition]) -> Any:
    """Run the maps after the sources on the batches of a file; gives rows of batches."""
    return read_by_tasks(spark, partitions, partial(_run_batches, str(path), work))


def _run_batches(path: str, work: Work, partition: Partition) -> Iterator[pa.RecordBatch]:
    with pa.memory_map(path) as file:
        yield from run_level(work, 0, map(pa.ipc.open_file(file).get_batch, range(*partition)))
