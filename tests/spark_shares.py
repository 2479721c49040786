"""What Spark does between two levels, without Spark: for tests of what its tasks run."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from strategies import Case

import drift
from drift.spark.batches import record_batch, rows_in
from drift.spark.blocks import joined_digest
from drift.spark.kernels import RangeEnd
from drift_barrier.digest import hash_block


def shuffled(batches: Iterable[Any], targets: int) -> list[list[Any]]:
    """The rows of each task, in the order of first metas."""
    rows = sorted((row for batch in batches for row in rows_in(batch)), key=lambda row: row.first)
    return [[record_batch([row for row in rows if row.target == target])] for target in range(targets)]


def digest_and_error(ends: list[RangeEnd]) -> tuple[str, str]:
    """Of an output, from the ends of its ranges."""
    blocks = [block for end in ends for block in end.blocks]
    edges = [edge for end in ends for edge in end.edges]
    error = next((str(end.error) for end in ends if end.error is not None), "")
    return hash_block("xxh3_128", b"".join(joined_digest("xxh3_128", blocks, edges))).hex(), error


def in_reference(case: Case) -> tuple[str, str]:
    """The right digest and error."""
    run = drift.run(case.dataflow(), case.sources(), engine="reference")
    try:
        run.finish()
    except drift.DriftError as error:
        return run.digest, str(error)
    return run.digest, ""
