"""Three expressions and a filter over a table, with the total order and the digest, beside a plain loop over dicts.

    python -m benchmarks.expressions [--rows 1000000] [--rounds 3]

Then the same from Parquet to Parquet, beside Polars' streaming engine, which orders and hashes nothing. All are timed
in one process, in turn, by the processor time of all threads; the loop has its dicts ready, and makes no digest.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import click
import numpy as np
import polars as pl

import drift


def table_of(count: int) -> pl.DataFrame:
    random = np.random.default_rng(7)
    keys = pl.Series(random.integers(0, 1000, count)).cast(pl.String).str.zfill(4)
    fares = random.random(count) * 100
    return pl.DataFrame({"key": keys, "id": np.arange(count), "val": random.integers(0, 1000, count), "fare": fares})


def computed(rows: Any) -> Any:
    """The filter and the expressions, of a stream or of a frame of Polars."""
    rows = rows.filter(pl.col("fare") > 20)
    rows = rows.with_columns(tip=pl.col("fare") * 0.15).with_columns(total=pl.col("fare") + pl.col("tip"))
    return rows.with_columns(loud=pl.col("key") + "!")


def graph_of(frame: pl.DataFrame) -> drift.Graph:
    graph = drift.Graph("fares")
    computed(graph.source("rows", schema=frame.schema)).sink("out")
    return graph


def loop(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    def is_dear(row: dict[str, Any]) -> bool:
        return bool(row["fare"] > 20)

    def with_tip(row: dict[str, Any]) -> dict[str, Any]:
        return {**row, "tip": row["fare"] * 0.15}

    def with_total(row: dict[str, Any]) -> dict[str, Any]:
        return {**row, "total": row["fare"] + row["tip"]}

    def loud(row: dict[str, Any]) -> dict[str, Any]:
        return {**row, "loud": row["key"] + "!"}

    return [loud(with_total(with_tip(row))) for row in rows if is_dear(row)]


def from_parquet_to_parquet(frame: pl.DataFrame, graph: drift.Graph, folder: Path, rounds: int) -> tuple[float, float]:
    """The seconds of Polars' streaming engine and of a run."""
    read = folder / "rows.parquet"
    frame.write_parquet(read, row_group_size=1 << 16)

    def polars() -> None:
        computed(pl.scan_parquet(read)).sink_parquet(folder / "polars.parquet", engine="streaming")

    def run() -> None:
        sink = drift.sinks.parquet(folder / "drift", resume="replace")
        source = drift.sources.parquet(read, payload="rows")
        drift.run(graph, {"rows": source}, sinks={"out": sink}).finish()

    times = [(seconds(polars), seconds(run)) for _ in range(rounds)]
    written = pl.read_parquet(folder / "drift" / "*.parquet").drop("position", "time")
    assert written.equals(pl.read_parquet(folder / "polars.parquet"))
    one, other = (min(each) for each in zip(*times))
    return one, other


def seconds(function: Callable[[], object]) -> float:
    began = time.process_time()
    function()
    return time.process_time() - began


@click.command()
@click.option("--rows", default=1_000_000)
@click.option("--rounds", default=3)
def main(rows: int, rounds: int) -> None:
    frame = table_of(rows)
    dicts, graph = frame.to_dicts(), graph_of(frame)

    def as_rows() -> drift.Report:
        return drift.run(graph, {"rows": drift.sources.table(frame, payload="rows")}).finish()

    def as_dicts() -> drift.Report:
        return drift.run(graph, {"rows": dicts}).finish()

    assert as_rows().digest == as_dicts().digest
    times = [(seconds(lambda: loop(dicts)), seconds(as_rows)) for _ in range(rounds)]
    plain, columns = (min(each) for each in zip(*times))
    print(f"plain loop {rows / plain / 1e6:.2f} M rows/s, rows {rows / columns / 1e6:.2f}: {plain / columns:.2f} times")
    with tempfile.TemporaryDirectory() as made:
        polars, columns = from_parquet_to_parquet(frame, graph, Path(made), rounds)
    print(
        f"from Parquet to Parquet: Polars' streaming engine {rows / polars / 1e6:.2f} M rows/s, "
        f"rows {rows / columns / 1e6:.2f}: {polars / columns:.2f} times"
    )


if __name__ == "__main__":
    main()
