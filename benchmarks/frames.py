"""A DataFrame of Spark in event time: windows, sessions, running sums and maps by drift, beside Spark's own SQL.

    python -m benchmarks.frames [--rows 1000000] [--rounds 3] [--only NAME]

drift takes the rows as columns and as dicts, orders its output and hashes it; Spark's results go to nobody ("noop"), in
no order. They are compared once before; sessions that touch are one in Spark, so its gap is a microsecond less. "Rows
to Python alone" hands the rows to tasks that drop them: no graph can do without, since the tie of an item is a hash of
all its fields. The rows are in Parquet, in the order of their times.
Measured are seconds, and processor time of Java and Python together.
"""

from __future__ import annotations

import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import click
import polars as pl
import pyarrow as pa

import drift
from benchmarks.columns import GAP, ROWS_AT_ONCE, WINDOW
from benchmarks.expressions import table_of
from benchmarks.meters import tree_cpu_seconds

SCHEMA = {"key": str, "id": int, "val": int, "fare": float, "at": int}
_ROW_GROUPS = 8


def windows() -> drift.Graph:
    graph = drift.Graph("windows")
    windowed = _rows(graph, "at").key_by("key").window(drift.windows.tumbling(WINDOW))
    windowed.rows(total=drift.agg.sum("val")).sink("out")
    return graph


def running() -> drift.Graph:
    graph = drift.Graph("running")
    _rows(graph, "id").select("key", "id", "val").key_by("key").running(total=drift.agg.sum("val")).sink("out")
    return graph


def sessions() -> drift.Graph:
    graph = drift.Graph("sessions")
    windowed = _rows(graph, "at").key_by("key").window(drift.windows.session(gap=GAP))
    windowed.rows(total=drift.agg.sum("val")).sink("out")
    return graph


def maps() -> drift.Graph:
    graph = drift.Graph("maps")
    dear = _rows(graph, "id").filter(pl.col("fare") > 20).with_columns(tip=pl.col("fare") * 0.15)
    dear.with_columns(loud=pl.col("key") + "!", total=pl.col("fare") + pl.col("tip")).sink("out")
    return graph


def _rows(graph: drift.Graph, time: str) -> Any:
    return graph.source("rows", schema=SCHEMA, time=drift.EventTime(time))


def _dropped(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    yield pa.RecordBatch.from_pydict({"rows": [sum(batch.num_rows for batch in batches)]})


SQL = {
    "windows": f"""
        select key, at - at % {WINDOW} as start, start + {WINDOW} as end, sum(val) as total from rows
        group by key, start
    """,
    "sessions": f"""
        select key, unix_seconds(session.start) as start, unix_seconds(session.end) + 1 as end, total from (
            select key, session_window(timestamp_seconds(at), '{GAP * 10**6 - 1} microseconds') as session,
                sum(val) as total from rows group by key, session
        )
    """,
    "running sums": "select key, id, val, sum(val) over (partition by key order by id) as total from rows",
    "maps": """
        select key, id, val, fare, at, fare * 0.15D as tip, concat(key, '!') as loud, fare + fare * 0.15D as total
        from rows where fare > 20
    """,
}


@click.command()
@click.option("--rows", default=1_000_000)
@click.option("--rounds", default=3)
@click.option("--only", default="", help="Jobs whose names contain this.")
def main(rows: int, rounds: int, only: str) -> None:
    frame = table_of(rows).with_columns(at=pl.col("id") // ROWS_AT_ONCE)
    with tempfile.TemporaryDirectory() as folder, drift.spark.session("local[2]") as spark:
        path = str(Path(folder, "rows.parquet"))
        frame.write_parquet(path, row_group_size=-(-rows // _ROW_GROUPS))
        given = spark.read.parquet(path)
        given.createOrReplaceTempView("rows")
        for (name, query), graph in zip(SQL.items(), (windows(), sessions(), running(), maps())):
            if only not in name:
                continue

            def run(payload: Any, graph: drift.Graph = graph) -> drift.Run:
                return drift.run(graph, {"rows": drift.spark.source(given, payload=payload)}, engine="spark")

            in_columns = run("rows")
            found = Counter(tuple(item.payload.values()) for item in in_columns)
            assert found == Counter(map(tuple, spark.sql(query).collect()))
            assert in_columns.digest == run("dict").finish().digest
            jobs: dict[str, Callable[[], object]] = {
                "Spark SQL": lambda query=query: spark.sql(query).write.format("noop").mode("overwrite").save(),  # type: ignore[misc]
                "rows to Python alone": lambda: given.mapInArrow(_dropped, "rows long").collect(),
                "rows": lambda run=run: run("rows").finish(),  # type: ignore[misc]
                "dicts": lambda run=run: run("dict").finish(),  # type: ignore[misc]
            }
            print(f"{name}: {_shown(jobs, rounds)}", flush=True)


def _shown(jobs: dict[str, Callable[[], object]], rounds: int) -> str:
    found: dict[str, list[tuple[float, float]]] = {}
    for _ in range(rounds):
        for name, job in jobs.items():
            began = time.perf_counter(), tree_cpu_seconds()
            job()
            found.setdefault(name, []).append((time.perf_counter() - began[0], tree_cpu_seconds() - began[1]))
    least = {name: [min(each) for each in zip(*times)] for name, times in found.items()}
    by = least["Spark SQL"]
    return ", ".join(
        f"{name} {seconds:.2f} s, {cpu:.2f} s of CPU ({by[0] / seconds:.2f} and {by[1] / cpu:.2f} of Spark SQL)"
        for name, (seconds, cpu) in least.items()
    )


if __name__ == "__main__":
    main()
