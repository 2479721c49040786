"""Aggregates of rows in columns, with the total order and the digest, beside plain loops with callbacks over dicts.

    python -m benchmarks.columns [--rows 1000000] [--rounds 3]

All are timed in one process, in turn, by processor time; the rows come from a Parquet file, the loops have their dicts
ready and make no digest.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import click

import drift
from benchmarks.expressions import seconds, table_of

SCHEMA = {"key": str, "id": int, "val": int, "fare": float}
Row = dict[str, Any]


def running(of: str) -> drift.Graph:
    graph = drift.Graph("running")
    rows = graph.source("rows", schema=SCHEMA).select("key", of)
    rows.key_by("key").running(total=drift.agg.sum(of)).sink("out")
    return graph


def running_loop(rows: list[Row], of: str) -> list[Row]:
    def add(total: Any, row: Row) -> tuple[Any, Row]:
        total += row[of]
        return total, {"key": row["key"], of: row[of], "total": total}

    totals: dict[str, Any] = {}
    made = []
    for row in rows:
        key = row["key"]
        totals[key], out = add(totals.get(key, 0), row)
        made.append(out)
    return made


@click.command()
@click.option("--rows", default=1_000_000)
@click.option("--rounds", default=3)
def main(rows: int, rounds: int) -> None:
    frame = table_of(rows)
    dicts = frame.to_dicts()
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "rows.parquet")
        frame.write_parquet(path, row_group_size=1 << 16)
        jobs: dict[str, tuple[drift.Graph, Callable[[], object]]] = {
            "running sum of integers": (running("val"), lambda: running_loop(dicts, "val")),
            "running sum of floats": (running("fare"), lambda: running_loop(dicts, "fare")),
        }
        for name, (graph, loop) in jobs.items():

            def in_columns(graph: drift.Graph = graph) -> drift.Report:
                source = drift.sources.parquet(path, payload="rows")
                return drift.run(graph, {"rows": source}, batch_items=1 << 16).finish()

            assert in_columns().digest == drift.run(graph, {"rows": dicts}).finish().digest
            times = [(seconds(loop), seconds(in_columns)) for _ in range(rounds)]
            plain, columns = (min(each) for each in zip(*times))
            print(
                f"{name}: plain loop {rows / plain / 1e6:.2f} M rows/s, columns {rows / columns / 1e6:.2f}: "
                f"{plain / columns:.2f} times"
            )


if __name__ == "__main__":
    main()
