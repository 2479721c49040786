"""Files that tasks read by themselves: a piece for each task, and no item goes through the JVM before it is in a batch.

Invariant: every piece is read by one task, whole and in its order.

Why: a DataFrame of as many rows as there are pieces, a row in each of its partitions, says which; and the tasks see the
disk that the files are on.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from itertools import accumulate
from pathlib import Path
from typing import Any

import pyarrow as pa

from drift.spark.batches import DDL, ROWS
from drift.spark.kernels import Work, run_level
from drift.spark.tasks import task

#: Numbers from the first on, up to the other: of batches in a file, or of rows in a record.
Piece = tuple[int, int]


def in_pieces(count: int, tasks: int, piece_max: int) -> list[Piece]:
    """So many numbers in pieces of one size, about: as many for each of the tasks, and each of `piece_max` at most."""
    pieces = min(tasks * -(-count // (tasks * piece_max)), count)
    return [(count * number // pieces, count * (number + 1) // pieces) for number in range(pieces)]


def overlapping(extents: Iterable[tuple[Any, Any]]) -> int:
    """How many of some closed intervals have a point in common, at most."""
    ends = [end for start, last in extents for end in ((start, 0, 1), (last, 1, -1))]
    return max(accumulate(change for _, _, change in sorted(ends)), default=0)


def read_by_tasks(spark: Any, pieces: Sequence[Piece], kernel: Callable[[Piece], Iterator[pa.RecordBatch]]) -> Any:
    """The DataFrame of what a kernel gives for the pieces, which are one or more."""
    numbers = spark.range(0, len(pieces), 1, len(pieces))
    return numbers.mapInArrow(task(_read, kernel, tuple(pieces)), DDL)


def _read(
    kernel: Callable[[Piece], Iterator[pa.RecordBatch]], pieces: Sequence[Piece], batches: Iterable[pa.RecordBatch]
) -> Iterator[pa.RecordBatch]:
    for batch in batches:
        for number in batch.column(0).to_pylist():
            yield from kernel(pieces[number])


def write_batches(path: Path, batches: Iterable[pa.RecordBatch]) -> int:
    """ROWS into a file; how many batches they are."""
    count = 0
    options = pa.ipc.IpcWriteOptions(compression="lz4")
    with pa.OSFile(str(path), "wb") as file, pa.ipc.new_file(file, ROWS, options=options) as writer:
        for batch in batches:
            writer.write_batch(batch)
            count += 1
    return count


def level_0(spark: Any, work: Work, path: Path, pieces: Sequence[Piece]) -> Any:
    """From the batches of a file, through the maps after the sources, to rows of batches."""
    return read_by_tasks(spark, pieces, partial(_run_batches, str(path), work))


def _run_batches(path: str, work: Work, piece: Piece) -> Iterator[pa.RecordBatch]:
    with pa.memory_map(path) as file:
        yield from run_level(work, 0, map(pa.ipc.open_file(file).get_batch, range(*piece)))
