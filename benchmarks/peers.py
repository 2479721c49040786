"""drift beside a plain loop, Bytewax, Polars and DuckDB, on the same input: one table.

    python -m benchmarks.peers [--items 200000] [--rows 1000000] [--rounds 3] [--only NAME ...]

Each number says how many times as fast as the plain loop a job runs, by the processor time of all threads of this
process; the best of the rounds, taken in turn. The loop calls the same functions over objects, or has its dicts ready;
it makes no digest. drift gives the total order and the digest of every item; Bytewax (`pip install bytewax`) orders by
key, Polars and DuckDB sort what they give by window and key.
"""

from __future__ import annotations

import gc
import tempfile
import time
from collections.abc import Callable, Iterable
from datetime import UTC, datetime, timedelta
from functools import partial
from importlib.util import find_spec
from operator import itemgetter
from pathlib import Path
from typing import Any

import click
import polars as pl

import drift
from benchmarks import columns as of_rows
from benchmarks import eventtime, windows, workloads
from benchmarks.expressions import table_of

Job = dict[str, Callable[[], object]]
_GAP = 100
_START = datetime(2020, 1, 1, tzinfo=UTC)
_time, _key, _number = itemgetter(0), itemgetter(1), itemgetter(2)


def drained(items: Iterable[Any]) -> int:
    return sum(1 for _ in items)


def finished(graph: drift.Graph, inputs: dict[str, Any]) -> drift.Report:
    return drift.run(graph, inputs).finish()


# Objects.


def plain_sessions(rows: list[windows.Event]) -> Iterable[Any]:
    def add(known: tuple[int, int, int], row: windows.Event) -> tuple[int, int, int]:
        return known[0], row[0], known[2] + row[2]

    sessions: dict[str, tuple[int, int, int]] = {}
    for row in rows:
        known = sessions.get(row[1])
        if known is not None and row[0] - known[1] >= _GAP:
            yield row[1], known
            known = None
        sessions[row[1]] = (row[0], row[0], row[2]) if known is None else add(known, row)
    yield from sessions.items()


def plain_sliding(rows: list[windows.Event]) -> Iterable[Any]:
    totals: dict[tuple[int, str], int] = {}
    for row in rows:
        start = _time(row) - _time(row) % 500
        for window in ((start - 500, _key(row)), (start, _key(row))):
            totals[window] = totals.get(window, 0) + _number(row)
    return totals.items()


def plain_maps(numbers: range) -> list[int]:
    made = []
    for number in numbers:
        result = workloads.minus(workloads.twice(workloads.plus(number)))
        if is_odd(result):
            made.append(result)
    return made


def is_odd(number: int) -> bool:
    return bool(workloads.flip(number) % 2)


def objects(count: int) -> dict[str, Job]:
    numbers = range(count)
    arriving = windows.events(count)
    in_order = sorted(arriving)
    late, ready = eventtime.out_of_order(count), eventtime.in_order(count)
    key = eventtime.KEYS["tuple"]
    by_time, by_number = windows.CASES.values()
    policy = drift.EventTime(_time, tie=_number, lateness=51)

    def windowed(kind: drift.windows.Windows) -> drift.Graph:
        graph = drift.Graph("windows")
        graph.source("in", time=policy).key_by(_key).window(kind).sum(_number).sink("out")
        return graph

    maps = drift.Graph("maps")
    stream = maps.source("in").map(workloads.plus).map(workloads.twice).map(workloads.minus).filter(is_odd)
    stream.sink("out")
    jobs: dict[str, Job] = {
        "running sum": {
            "plain": lambda: drained(workloads.plain_sum(numbers)),
            "drift": partial(finished, workloads.WORKLOADS["sum"].graph(), {"in": numbers}),
        },
        "count in event time": {
            "plain": lambda: drained(eventtime.plain_counts(ready, key)),
            "drift": partial(finished, eventtime.graph_of("tuple"), {"in": late}),
        },
        "windows by number": {
            "plain": lambda: drained(by_number.plain(arriving)),
            "drift": partial(finished, by_number.graph(), {"in": arriving}),
        },
        "tumbling windows": {
            "plain": lambda: drained(by_time.plain(arriving)),
            "drift": partial(finished, by_time.graph(), {"in": arriving}),
        },
        "sliding windows": {
            "plain": lambda: drained(plain_sliding(in_order)),
            "drift": partial(finished, windowed(drift.windows.sliding(1000, every=500)), {"in": arriving}),
        },
        "sessions": {
            "plain": lambda: drained(plain_sessions(in_order)),
            "drift": partial(finished, windowed(drift.windows.session(gap=_GAP)), {"in": arriving}),
        },
        "three maps and a filter": {
            "plain": lambda: plain_maps(numbers),
            "drift": partial(finished, maps, {"in": numbers}),
        },
    }
    if find_spec("bytewax"):
        for name, flow in bytewax_flows(numbers, late, arriving).items():
            jobs[name]["bytewax"] = flow
    return jobs


def bytewax_flows(
    numbers: range, late: list[eventtime.Event], arriving: list[windows.Event]
) -> dict[str, Callable[[], object]]:
    import bytewax.operators as op
    import bytewax.operators.windowing as win
    from bytewax.dataflow import Dataflow
    from bytewax.testing import TestingSink, TestingSource, run_main

    def flow(items: Any, steps: Callable[[Any], Any]) -> Callable[[], object]:
        def run() -> int:
            out: list[Any] = []
            made = Dataflow("flow")
            op.output("out", steps(op.input("in", made, TestingSource(items, batch_size=1000))), TestingSink(out))
            run_main(made)
            return len(out)

        return run

    clock = win.EventClock(
        ts_getter=lambda event: _START + timedelta(milliseconds=event[0]), wait_for_system_duration=timedelta(days=1)
    )

    def folded(stream: Any, windower: Any) -> Any:
        keyed = op.key_on("key", stream, _key)
        return win.fold_window("fold", keyed, clock, windower, int, lambda n, e: n + e[2], lambda a, b: a + b).down

    def total(state: int | None, number: int) -> tuple[int, tuple[int, int]]:
        return workloads.add(state or 0, number)

    def counted(state: int | None, event: eventtime.Event) -> tuple[int, Any]:
        return eventtime.count_event(state or 0, event)

    def event_counts(stream: Any) -> Any:
        keyed = op.key_on("key", stream, lambda event: f"{event[1]} {event[0] // 1000}")
        return op.stateful_map("count", keyed, counted)

    of_number = win.TumblingWindower(length=timedelta(milliseconds=1000), align_to=_START)
    sliding = win.SlidingWindower(
        length=timedelta(milliseconds=1000), offset=timedelta(milliseconds=500), align_to=_START
    )
    sessions = win.SessionWindower(gap=timedelta(milliseconds=_GAP))
    key_of = workloads.key_of
    return {
        "running sum": flow(
            numbers, lambda s: op.stateful_map("sum", op.key_on("key", s, lambda n: str(key_of(n))), total)
        ),
        "count in event time": flow(late, event_counts),
        "tumbling windows": flow(arriving, lambda s: folded(s, of_number)),
        "sliding windows": flow(arriving, lambda s: folded(s, sliding)),
        "sessions": flow(arriving, lambda s: folded(s, sessions)),
        "three maps and a filter": flow(
            numbers,
            lambda s: op.filter(
                "f",
                op.map("c", op.map("b", op.map("a", s, workloads.plus), workloads.twice), workloads.minus),
                is_odd,
            ),
        ),
    }


# Rows in columns, from Parquet.


def rows(count: int, folder: Path) -> dict[str, Job]:
    frame = table_of(count)
    timed = frame.with_columns(at=pl.col("id") // of_rows.ROWS_AT_ONCE)
    ready, dicts = frame.to_dicts(), timed.to_dicts()
    path, late = folder / "rows.parquet", folder / "late.parquet"
    frame.write_parquet(path, row_group_size=1 << 16)
    of_rows.out_of_order(timed).write_parquet(late, row_group_size=1 << 16)
    size = of_rows.WINDOW

    def run(graph: drift.Graph, file: Path) -> Callable[[], object]:
        return lambda: finished(graph, {"rows": drift.sources.parquet(file, payload="rows")})

    def tumbled(every: int) -> pl.DataFrame:
        scan = pl.scan_parquet(late)
        windowed = [scan.with_columns(w=(pl.col("at") // every) * every - back) for back in range(0, size, every)]
        made = pl.concat(windowed).group_by("w", "key").agg(pl.col("val").sum()).sort("w", "key")
        return made.collect(engine="streaming")

    def sessions() -> pl.DataFrame:
        scan = pl.scan_parquet(late).select("key", "at", "val", "id").sort("key", "at", "id")
        new = (pl.col("at").diff() >= of_rows.GAP) | (pl.col("key") != pl.col("key").shift())
        numbered = scan.with_columns(s=new.fill_null(True).cum_sum()).group_by("s")
        made = numbered.agg(pl.col("key").first(), a=pl.col("at").min(), b=pl.col("at").max(), v=pl.col("val").sum())
        return made.sort("b", "key").collect()

    def running() -> pl.DataFrame:
        return pl.scan_parquet(path).select("key", "val", total=pl.col("val").cum_sum().over("key")).collect()

    tumbling = drift.windows.tumbling(size)
    jobs: dict[str, Job] = {
        "rows: running sum": {
            "plain": lambda: of_rows.running_loop(ready, "val"),
            "drift": run(of_rows.running("val"), path),
            "polars": running,
        },
        "rows: tumbling, ties in a column": {
            "plain": lambda: of_rows.windows_loop(dicts),
            "drift": run(of_rows.windows("id", tumbling), late),
            "polars": lambda: tumbled(size),
        },
        "rows: tumbling, ties by hash": {
            "plain": lambda: of_rows.windows_loop(dicts),
            "drift": run(of_rows.windows(None, tumbling), late),
            "polars": lambda: tumbled(size),
        },
        "rows: sliding": {
            "plain": lambda: of_rows.sliding_loop(dicts),
            "drift": run(of_rows.windows("id", drift.windows.sliding(size, every=size // 2)), late),
            "polars": lambda: tumbled(size // 2),
        },
        "rows: by number": {
            "plain": lambda: of_rows.count_loop(dicts),
            "drift": run(of_rows.windows("id", drift.windows.count(of_rows.COUNTED)), late),
        },
        "rows: sessions": {
            "plain": lambda: of_rows.session_loop(dicts),
            "drift": run(of_rows.windows("id", drift.windows.session(gap=of_rows.GAP)), late),
            "polars": sessions,
        },
    }
    if find_spec("duckdb"):
        for name, query in duckdb_queries(path, late, size).items():
            jobs[name]["duckdb"] = query
    return jobs


def duckdb_queries(path: Path, late: Path, size: int) -> dict[str, Callable[[], object]]:
    import duckdb

    base = duckdb.connect()

    def query(text: str) -> Callable[[], object]:
        return lambda: base.execute(text).fetchnumpy()

    tumbling = f"select \"at\" // {size} w, key, sum(val) t from '{late}' group by all order by w, key"
    half = size // 2
    sliding = (
        f"select (\"at\" // {half}) * {half} - back w, key, sum(val) t from '{late}', (values (0), ({half})) b(back) "
        "group by all order by w, key"
    )
    gap = of_rows.GAP
    sessions = (
        'with a as (select key, "at" a0, val, id, case when "at" - lag("at") over (partition by key order by "at", id) '
        f"< {gap} then 0 else 1 end n from '{late}'), b as (select *, sum(n) over (partition by key order by a0, id "
        "rows unbounded preceding) s from a) select key, s, min(a0) a, max(a0) b, sum(val) from b group by key, s "
        "order by b, key"
    )
    running = (
        "select key, val, sum(val) over (partition by key order by id rows unbounded preceding) t, id "
        f"from '{path}' order by id"
    )
    return {
        "rows: running sum": query(running),
        "rows: tumbling, ties in a column": query(tumbling),
        "rows: tumbling, ties by hash": query(tumbling),
        "rows: sliding": query(sliding),
        "rows: sessions": query(sessions),
    }


def best(job: Job, rounds: int) -> dict[str, float]:
    """The least processor seconds of each, taken in turn."""
    least = dict.fromkeys(job, float("inf"))
    for _ in range(rounds):
        for name, function in job.items():
            gc.collect()
            began_s = time.process_time()
            function()
            least[name] = min(least[name], time.process_time() - began_s)
    return least


@click.command()
@click.option("--items", default=200_000, help="Objects of a job.")
@click.option("--rows", "count", default=1_000_000, help="Rows of a job.")
@click.option("--rounds", default=3)
@click.option("--only", multiple=True, help="Jobs whose names contain this.")
def main(items: int, count: int, rounds: int, only: tuple[str, ...]) -> None:
    peers = ("drift", "bytewax", "polars", "duckdb")
    print(f"| of the plain loop | {' | '.join(peers)} |\n|---|{'---|' * len(peers)}", flush=True)
    with tempfile.TemporaryDirectory() as folder:
        jobs = {**objects(items), **rows(count, Path(folder))}
        for name, job in jobs.items():
            if only and not any(each in name for each in only):
                continue
            least = best(job, rounds)
            cells = (f"{least['plain'] / least[peer]:.2f}" if peer in least else "" for peer in peers)
            print(f"| {name} | {' | '.join(cells)} |", flush=True)


if __name__ == "__main__":
    main()
