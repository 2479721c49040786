"""Three expressions and a filter over a table, with the total order and the digest, beside a plain loop over dicts.

    python -m benchmarks.expressions [--rows 1000000] [--rounds 3]

Both are timed in one process, in turn, by processor time; the loop has its dicts ready, and makes no digest.
"""

from __future__ import annotations

import time
from collections.abc import Callable
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


def graph_of(frame: pl.DataFrame) -> drift.Graph:
    graph = drift.Graph("fares")
    rows = graph.source("rows", schema=frame.schema).filter(pl.col("fare") > 20)
    rows = rows.with_columns(tip=pl.col("fare") * 0.15).with_columns(total=pl.col("fare") + pl.col("tip"))
    rows.with_columns(loud=pl.col("key") + "!").sink("out")
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
        return drift.run(graph, {"rows": drift.sources.table(frame, payload="rows")}, batch_items=1 << 16).finish()

    def as_dicts() -> drift.Report:
        return drift.run(graph, {"rows": dicts}).finish()

    assert as_rows().digest == as_dicts().digest
    times = [(seconds(lambda: loop(dicts)), seconds(as_rows)) for _ in range(rounds)]
    plain, columns = (min(each) for each in zip(*times))
    print(f"plain loop {rows / plain / 1e6:.2f} M rows/s, rows {rows / columns / 1e6:.2f}: {plain / columns:.2f} times")


if __name__ == "__main__":
    main()
