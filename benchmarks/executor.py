"""Memory of one executor of Spark that does many rows: windows, running sums or another job of `benchmarks.frames`.

    python -m benchmarks.executor [--rows 100000000] [--heap 1g] [--only windows]

A cluster of one executor with two tasks at once, whose heap is `--heap`. Shown is the most memory that the JVM of the
executor, its workers of Python, and both together had, as of the system's count of their pages, which has a page that
several share once (PSS), looked at four times a second; and whether `local` has the same digest. The rows are in
Parquet, in 2,000,000 of each file, in the order of their times, and made one file after the other.
"""

from __future__ import annotations

import tempfile
import threading
import time
from pathlib import Path
from typing import Any

import click
import numpy as np
import polars as pl

import drift
from benchmarks.columns import ROWS_AT_ONCE
from benchmarks.frames import JOBS
from benchmarks.meters import processes_below

_FILE_ROWS = 2_000_000
_EVERY_S = 0.25
_EXECUTOR = "CoarseGrainedExecutorBackend"


def write(folder: Path, rows: int) -> None:
    for start in range(0, rows, _FILE_ROWS):
        count = min(_FILE_ROWS, rows - start)
        random = np.random.default_rng(start)
        keys = pl.Series(random.integers(0, 1000, count)).cast(pl.String).str.zfill(4)
        numbers = np.arange(start, start + count)
        columns = {"key": keys, "id": numbers, "val": random.integers(0, 1000, count), "fare": random.random(count)}
        frame = pl.DataFrame({**columns, "at": numbers // ROWS_AT_ONCE})
        frame.write_parquet(folder / f"{start:012}.parquet")


class Peaks(threading.Thread):
    """The most megabytes that an executor below this process had: Java, Python, both together."""

    def __init__(self) -> None:
        super().__init__(daemon=True)
        self.most = [0.0, 0.0, 0.0]
        self._ended = threading.Event()

    def run(self) -> None:
        while not self._ended.wait(_EVERY_S):
            java = python = 0.0
            for executor in processes_below():
                if _EXECUTOR not in _read(executor, "cmdline"):
                    continue
                java += _megabytes(executor)
                python += sum(map(_megabytes, processes_below(executor)))
            self.most = [max(pair) for pair in zip(self.most, (java, python, java + python))]

    def end(self) -> list[float]:
        self._ended.set()
        self.join()
        return self.most


def _read(process: int, name: str) -> str:
    try:
        return Path(f"/proc/{process}/{name}").read_text()
    except (FileNotFoundError, ProcessLookupError):  # it has ended meanwhile
        return ""


def _megabytes(process: int) -> float:
    lines = [line for line in _read(process, "smaps_rollup").splitlines() if line.startswith("Pss:")]
    return sum(int(line.split()[1]) for line in lines) / 1024


@click.command()
@click.option("--rows", default=100_000_000)
@click.option("--heap", default="1g")
@click.option(
    "--only", default="windows", type=click.Choice([name for name, job in JOBS.items() if len(job.sources) == 1])
)
def main(rows: int, heap: str, only: str) -> None:
    graph = JOBS[only].graph()
    settings = {"spark.executor.memory": heap, "spark.driver.memory": "1g"}
    with tempfile.TemporaryDirectory() as folder:
        write(Path(folder), rows)
        master = f"local-cluster[1,2,{1024 * int(heap.removesuffix('g'))}]"
        with drift.spark.session(master, **settings) as spark:
            frame: Any = spark.read.parquet(folder)
            peaks = Peaks()
            peaks.start()
            began = time.perf_counter()
            sources = {"rows": drift.spark.source(frame, payload="rows")}
            report = drift.run(graph, sources, engine="spark", spark=spark).finish()
            took = time.perf_counter() - began
            java, python, both = peaks.end()
        print(
            f"{only}: {report.items_in:,} rows in {took:.0f} s, {report.items_out:,} items; at most {both:.0f} MB in "
            f"the executor, {java:.0f} in Java, {python:.0f} in Python; digest {report.digest}",
            flush=True,
        )
        local = drift.run(graph, {"rows": drift.sources.parquet(Path(folder), payload="rows")}).finish()
        assert local.digest == report.digest, local.digest


if __name__ == "__main__":
    main()
