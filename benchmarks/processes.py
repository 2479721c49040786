"""What rows in columns cost the calling process and its workers, over zeromq.

    python -m benchmarks.processes [--rows 1000000] [--rounds 3] [--workers 2]

The rows are those of `benchmarks.columns` in event time, up to 500 places late, from Parquet. Processor time for each
row, less that of a run of ten rows: the least of the rounds of the calling process, whose share bounds how many workers
can be busy, and of all others together. The digest is compared with that of one process.
"""

from __future__ import annotations

import resource
import tempfile
import time
from pathlib import Path

import click
import polars as pl

import drift
from benchmarks.columns import GAP, ROWS_AT_ONCE, WINDOW, out_of_order, timed, windows
from benchmarks.expressions import table_of


def running() -> drift.Graph:
    graph = drift.Graph("running")
    timed(graph, "id").key_by("key").running(total=drift.agg.sum("val")).sink("out")
    return graph


def cost(graph: drift.Graph, read: Path, workers: int) -> tuple[float, float, str]:
    """The processor time of this process and of the others, in seconds, and the digest."""

    def so_far() -> tuple[float, float]:
        used = resource.getrusage(resource.RUSAGE_CHILDREN)
        return time.process_time(), used.ru_utime + used.ru_stime

    before = so_far()
    source = drift.sources.parquet(read, payload="rows")
    run = drift.run(graph, {"rows": source}, engine="zeromq", workers=workers)
    digest = run.finish().digest
    caller, others = (after - first for after, first in zip(so_far(), before))
    return caller, others, digest


@click.command()
@click.option("--rows", default=1_000_000)
@click.option("--rounds", default=3)
@click.option("--workers", default=2)
def main(rows: int, rounds: int, workers: int) -> None:
    graphs = {
        "tumbling windows, ties in a column": windows("id", drift.windows.tumbling(WINDOW)),
        "tumbling windows, ties by hash": windows(None, drift.windows.tumbling(WINDOW)),
        "sliding windows": windows("id", drift.windows.sliding(WINDOW, every=WINDOW // 2)),
        "sessions": windows("id", drift.windows.session(gap=GAP)),
        "running sums": running(),
    }
    frame = table_of(rows).with_columns(at=pl.col("id") // ROWS_AT_ONCE)
    with tempfile.TemporaryDirectory() as folder:
        path, few = Path(folder, "rows.parquet"), Path(folder, "few.parquet")
        out_of_order(frame).write_parquet(path, row_group_size=1 << 16)
        frame.head(10).write_parquet(few)
        for name, graph in graphs.items():
            expected = drift.run(graph, {"rows": drift.sources.parquet(path, payload="rows")}).finish().digest
            found = []
            for _ in range(rounds):
                start, (caller, others, digest) = cost(graph, few, workers), cost(graph, path, workers)
                assert digest == expected
                found.append((caller - start[0], others - start[1]))
            callers, workers_s = (min(each) / rows * 1e6 for each in zip(*found))
            print(f"{name}: {callers:.2f} us of the caller for each row, {workers_s:.2f} of its workers")


if __name__ == "__main__":
    main()
