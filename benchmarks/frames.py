"""A DataFrame of Spark in event time: windows, sessions, joins, running sums and maps by drift, beside Spark's own SQL.

    python -m benchmarks.frames [--rows 1000000] [--rounds 3] [--only NAME ...]

drift takes the rows as columns, orders its output and hashes it; Spark's results go to nobody ("noop"), in no order.
"local" is drift in one process, from the same files. Of the first 100,000 rows the results of both are compared before,
and of all rows the digests of Spark and local; sessions that touch are one in Spark, so its gap is a microsecond less.
An interval join in SQL is one of keys and bins of time, or it would compare all rows of a key; Spark has no as-of join,
so that is the last value of a window over the union of both sides. Of a join the rows are those of both sides together.
"Rows to Python alone" hands the rows to tasks that drop them: no graph can do without, since the tie of an item is a
hash of all its fields. The rows are in Parquet, in the order of their times.
Measured are seconds, and processor time of Java and Python together.
"""

from __future__ import annotations

import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import click
import polars as pl
import pyarrow as pa

import drift
from benchmarks.columns import GAP, ROWS_AT_ONCE, WINDOW
from benchmarks.expressions import table_of
from benchmarks.meters import tree_cpu_seconds

SCHEMA = {"key": str, "id": int, "val": int, "fare": float, "at": int}
WITHIN = 100  # of time, before and behind: a row of the left has about two of the right
_BIN = 2 * WITHIN + 1
_ROW_GROUPS = 8
_COMPARED_ROWS = 100_000


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


def interval_join() -> drift.Graph:
    graph = drift.Graph("interval")
    left, right = _rows(graph, "at", "left"), _rows(graph, "at", "right")
    left.join(right, "key", within=(WITHIN, WITHIN), flat=True).sink("out")
    return graph


def as_of_join() -> drift.Graph:
    graph = drift.Graph("as of")
    left, right = _rows(graph, "at", "left"), _rows(graph, "at", "right")
    left.join_as_of(right, "key", flat=True).select("key", "id", "val", "fare", "at", "at_right").sink("out")
    return graph


def maps() -> drift.Graph:
    graph = drift.Graph("maps")
    dear = _rows(graph, "id").filter(pl.col("fare") > 20).with_columns(tip=pl.col("fare") * 0.15)
    dear.with_columns(loud=pl.col("key") + "!", total=pl.col("fare") + pl.col("tip")).sink("out")
    return graph


def _rows(graph: drift.Graph, time: str, name: str = "rows") -> Any:
    return graph.source(name, schema=SCHEMA, time=drift.EventTime(time))


def _dropped(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    yield pa.RecordBatch.from_pydict({"rows": [sum(batch.num_rows for batch in batches)]})


class Job(NamedTuple):
    graph: Callable[[], drift.Graph]
    query: str
    sources: tuple[str, ...] = ("rows",)


JOBS = {
    "windows": Job(
        windows,
        f"""
        select key, at - at % {WINDOW} as start, start + {WINDOW} as end, sum(val) as total from rows
        group by key, start
        """,
    ),
    "sessions": Job(
        sessions,
        f"""
        select key, unix_seconds(session.start) as start, unix_seconds(session.end) + 1 as end, total from (
            select key, session_window(timestamp_seconds(at), '{GAP * 10**6 - 1} microseconds') as session,
                sum(val) as total from rows group by key, session
        )
        """,
    ),
    "interval join": Job(
        interval_join,
        f"""
        select l.key, l.id, l.val, l.fare, l.at, r.id as id_right, r.val as val_right, r.fare as fare_right,
            r.at as at_right
        from (
            select *, explode(sequence((at - {WITHIN}) div {_BIN}, (at + {WITHIN}) div {_BIN})) as bin from left
        ) l join (select *, at div {_BIN} as bin from right) r
        on l.key = r.key and l.bin = r.bin and r.at between l.at - {WITHIN} and l.at + {WITHIN}
        """,
        ("left", "right"),
    ),
    "as-of join": Job(
        as_of_join,
        """
        select key, id, val, fare, at, at_right from (
            select *, last_value(case when side = 0 then at end, true) over (
                partition by key order by at, side rows between unbounded preceding and current row
            ) as at_right
            from (select 0 as side, * from right union all select 1 as side, * from left)
        ) where side = 1
        """,
        ("left", "right"),
    ),
    "running sums": Job(
        running,
        "select key, id, val, sum(val) over (partition by key order by id) as total from rows",
    ),
    "maps": Job(
        maps,
        """
        select key, id, val, fare, at, fare * 0.15D as tip, concat(key, '!') as loud, fare + fare * 0.15D as total
        from rows where fare > 20
        """,
    ),
}


def written(folder: Path, rows: int) -> dict[str, str]:
    """The files of the sources, by their names: all rows, and each half of them."""
    frame = table_of(rows).with_columns(at=pl.col("id") // ROWS_AT_ONCE)
    is_left = frame["id"] % 2 == 0
    paths = {name: str(folder / f"{rows} {name}.parquet") for name in ("rows", "left", "right")}
    for name, of in (("rows", frame), ("left", frame.filter(is_left)), ("right", frame.filter(~is_left))):
        of.write_parquet(paths[name], row_group_size=max(1, -(-len(of) // _ROW_GROUPS)))
    return paths


def on_spark(job: Job, frames: dict[str, Any], payload: Any = "rows") -> drift.Run:
    sources = {name: drift.spark.source(frames[name], payload=payload) for name in job.sources}
    return drift.run(job.graph(), sources, engine="spark")


def on_local(job: Job, paths: dict[str, str]) -> drift.Report:
    sources = {name: drift.sources.parquet(paths[name], payload="rows") for name in job.sources}
    return drift.run(job.graph(), sources).finish()


def seen(spark: Any, paths: dict[str, str]) -> dict[str, Any]:
    """The files as DataFrames, and as views for queries."""
    frames = {name: spark.read.parquet(path) for name, path in paths.items()}
    for name, frame in frames.items():
        frame.createOrReplaceTempView(name)
    return frames


@click.command()
@click.option("--rows", default=1_000_000)
@click.option("--rounds", default=3)
@click.option("--only", multiple=True, help="Jobs whose names contain this.")
def main(rows: int, rounds: int, only: tuple[str, ...]) -> None:
    chosen = {name: job for name, job in JOBS.items() if not only or any(each in name for each in only)}
    with (
        tempfile.TemporaryDirectory() as folder,
        drift.spark.session("local[2]", **{"spark.driver.memory": "4g"}) as spark,
    ):
        few = written(Path(folder), min(rows, _COMPARED_ROWS))
        frames = seen(spark, few)
        for job in chosen.values():
            in_columns = on_spark(job, frames)
            found = Counter(tuple(item.payload.values()) for item in in_columns)
            assert found == Counter(map(tuple, spark.sql(job.query).collect()))
            assert in_columns.digest == on_spark(job, frames, "dict").finish().digest
        paths = written(Path(folder), rows)
        frames = seen(spark, paths)
        for name, job in chosen.items():
            assert on_spark(job, frames).finish().digest == on_local(job, paths).digest
            jobs: dict[str, Callable[[], object]] = {
                "Spark SQL": lambda job=job: spark.sql(job.query).write.format("noop").mode("overwrite").save(),  # type: ignore[misc]
                "rows to Python alone": lambda: frames["rows"].mapInArrow(_dropped, "rows long").collect(),
                "drift on Spark": lambda job=job: on_spark(job, frames).finish(),  # type: ignore[misc]
                "local": lambda job=job: on_local(job, paths),  # type: ignore[misc]
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
