"""Files that tasks read directly, one piece each: items go through the JVM only in batches.

Invariant: every piece is read by one task, completely and in order.

Why: the pieces are the rows of a DataFrame with one row in each partition; and the tasks can read the disk that the
files are on.
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

#: A range of numbers, the second excluded: of batches in a file, or of rows in a record.
Piece = tuple[int, int]


def in_pieces(count: int, tasks: int, piece_max: int) -> list[Piece]:
    """Split `count` numbers into pieces of about one size, at most `piece_max`: equally many pieces for each task."""
    pieces = min(tasks * -(-count // (tasks * piece_max)), count)
    return [(count * number // pieces, count * (number + 1) // pieces) for number in range(pieces)]


def overlapping(extents: Iterable[tuple[Any, Any]]) -> int:
    """The most closed intervals that have a point in common."""
    ends = [end for start, last in extents for end in ((start, 0, 1), (last, 1, -1))]
    return max(accumulate(change for _, _, change in sorted(ends)), default=0)


def read_by_tasks(spark: Any, pieces: Sequence[Piece], kernel: Callable[[Piece], Iterator[pa.RecordBatch]]) -> Any:
    """The DataFrame of a kernel's rows for the pieces, of which there is at least one."""
    numbers = spark.range(0, len(pieces), 1, len(pieces))
    return numbers.mapInArrow(task(_read, kernel, tuple(pieces)), DDL)


def _read(
    kernel: Callable[[Piece], Iterator[pa.RecordBatch]], pieces: Sequence[Piece], batches: Iterable[pa.RecordBatch]
) -> Iterator[pa.RecordBatch]:
    for batch in batches:
        for number in batch.column(0).to_pylist():
            yield from kernel(pieces[number])


def write_batches(path: Path, batches: Iterable[pa.RecordBatch]) -> int:
    """Write batches of ROWS to a file; returns how many."""
    count = 0
    options = pa.ipc.IpcWriteOptions(compression="lz4")
    with pa.OSFile(str(path), "wb") as file, pa.ipc.new_file(file, ROWS, options=options) as writer:
        for batch in batches:
            writer.write_batch(batch)
            count += 1
    return count


def level_0(spark: Any, work: Work, path: Path, pieces: Sequence[Piece]) -> Any:
    """Run the maps after the sources on the batches of a file; gives rows of batches."""
    return read_by_tasks(spark, pieces, partial(_run_batches, str(path), work))


def _run_batches(path: str, work: Work, piece: Piece) -> Iterator[pa.RecordBatch]:
    with pa.memory_map(path) as file:
        yield from run_level(work, 0, map(pa.ipc.open_file(file).get_batch, range(*piece)))
