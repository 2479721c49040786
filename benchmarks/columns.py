"""Aggregates and event time of rows in columns, with the total order and the digest, beside plain loops over dicts.

    python -m benchmarks.columns [--rows 1000000] [--rounds 3]

All are timed in one process, in turn, by processor time; the rows come from a Parquet file, the loops call functions,
have their dicts ready and make no digest. In event time, rows come up to 500 places late, those of one time in the
order of a column or of their hashes; the loops have them in order.
"""

from __future__ import annotations

import tempfile
from collections import defaultdict, deque
from collections.abc import Callable
from functools import partial
from itertools import groupby
from operator import itemgetter
from pathlib import Path
from typing import Any

import click
import numpy as np
import polars as pl

import drift
from benchmarks.expressions import seconds, table_of

SCHEMA = {"key": str, "id": int, "val": int, "fare": float}
ROWS_AT_ONCE, PLACES_LATE_MAX = 10, 500  # of one time
LATENESS = PLACES_LATE_MAX // ROWS_AT_ONCE
WINDOW, COUNTED, GAP = 1000, 10, 100  # of time; of rows; of time without rows
Row = dict[str, Any]
#: A graph, the file of its rows, these as dicts (in event time in order), and the loop over them.
Job = tuple[drift.Graph, Path, list[Row], Callable[[], object]]


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


def timed(graph: drift.Graph, tie: str | None) -> Any:
    policy = drift.EventTime("at", lateness=LATENESS, tie=tie)
    return graph.source("rows", schema={**SCHEMA, "at": int}, time=policy)


def selected(tie: str | None) -> drift.Graph:
    graph = drift.Graph("selected")
    timed(graph, tie).select("key", "id").sink("out")
    return graph


def selecting_loop(rows: list[Row]) -> list[Row]:
    def chosen(row: Row) -> Row:
        return {"key": row["key"], "id": row["id"]}

    return [chosen(row) for row in rows]


def windows(tie: str | None, kind: drift.windows.Windows) -> drift.Graph:
    graph = drift.Graph("windows")
    windowed = timed(graph, tie).key_by("key").window(kind)
    windowed.aggregate(total=drift.agg.sum("val")).sink("out")
    return graph


def windows_loop(rows: list[Row]) -> dict[tuple[int, str], int]:
    def window_of(row: Row) -> tuple[int, str]:
        return row["at"] - row["at"] % WINDOW, row["key"]

    totals: dict[tuple[int, str], int] = {}
    for row in rows:
        window = window_of(row)
        totals[window] = totals.get(window, 0) + row["val"]
    return totals


def sliding_loop(rows: list[Row]) -> dict[tuple[int, str], int]:
    def windows_of(row: Row) -> tuple[tuple[int, str], tuple[int, str]]:
        start = row["at"] - row["at"] % (WINDOW // 2)
        return (start - WINDOW // 2, row["key"]), (start, row["key"])

    totals: dict[tuple[int, str], int] = {}
    for row in rows:
        for window in windows_of(row):
            totals[window] = totals.get(window, 0) + row["val"]
    return totals


def count_loop(rows: list[Row]) -> list[tuple[str, int]]:
    def add(known: tuple[int, int], row: Row) -> tuple[int, int]:
        return known[0] + 1, known[1] + row["val"]

    open_windows: dict[str, tuple[int, int]] = {}
    made = []
    for row in rows:
        key = row["key"]
        known = open_windows[key] = add(open_windows.get(key, (0, 0)), row)
        if known[0] == COUNTED:
            made.append((key, open_windows.pop(key)[1]))
    return made


def session_loop(rows: list[Row]) -> list[tuple[str, tuple[int, int, int]]]:
    def add(known: tuple[int, int, int], row: Row) -> tuple[int, int, int]:
        return known[0], row["at"], known[2] + row["val"]

    sessions: dict[str, tuple[int, int, int]] = {}
    made = []
    for row in rows:
        key, at = row["key"], row["at"]
        known = sessions.get(key)
        if known is not None and at - known[1] >= GAP:
            made.append((key, known))
            known = None
        sessions[key] = (at, at, row["val"]) if known is None else add(known, row)
    return made + list(sessions.items())


def rolled() -> drift.Graph:
    graph = drift.Graph("rolled")
    rows = timed(graph, "id").key_by("key").rolling(WINDOW, total=drift.agg.sum("val"), rows=drift.agg.count())
    rows.sink("out")
    return graph


def rolling_loop(rows: list[Row]) -> list[Row]:
    def value(row: Row) -> int:
        return row["val"]  # type: ignore[no-any-return]

    spans: dict[str, deque[tuple[int, int]]] = defaultdict(deque)
    totals: dict[str, int] = defaultdict(int)
    made = []
    for at, group in groupby(rows, key=itemgetter("at")):
        of_time = list(group)
        for row in of_time:
            key, val = row["key"], value(row)
            spans[key].append((at, val))
            totals[key] += val
        for row in of_time:
            key = row["key"]
            span = spans[key]
            while span[0][0] <= at - WINDOW:
                totals[key] -= span.popleft()[1]
            made.append({**row, "total": totals[key], "rows": len(span)})
    return made


def out_of_order(frame: pl.DataFrame) -> pl.DataFrame:
    """Each row up to `PLACES_LATE_MAX` places later."""
    arrival = np.arange(frame.height) + np.random.default_rng(8).integers(0, PLACES_LATE_MAX, frame.height)
    return frame[np.argsort(arrival, kind="stable")]


@click.command()
@click.option("--rows", default=1_000_000)
@click.option("--rounds", default=3)
def main(rows: int, rounds: int) -> None:
    frame = table_of(rows)
    dicts = frame.to_dicts()
    timed = frame.with_columns(at=pl.col("id") // ROWS_AT_ONCE)
    timed_dicts = timed.to_dicts()
    with tempfile.TemporaryDirectory() as folder:
        path, late_path = Path(folder, "rows.parquet"), Path(folder, "late.parquet")
        frame.write_parquet(path, row_group_size=1 << 16)
        out_of_order(timed).write_parquet(late_path, row_group_size=1 << 16)
        jobs: dict[str, Job] = {
            "running sum of integers": (running("val"), path, dicts, lambda: running_loop(dicts, "val")),
            "running sum of floats": (running("fare"), path, dicts, lambda: running_loop(dicts, "fare")),
        }
        for tie, how in (("id", "ties in a column"), (None, "ties by hash")):
            jobs[f"sorted, {how}"] = (selected(tie), late_path, timed_dicts, lambda: selecting_loop(timed_dicts))
            tumbling = windows(tie, drift.windows.tumbling(WINDOW))
            jobs[f"tumbling windows, {how}"] = (tumbling, late_path, timed_dicts, lambda: windows_loop(timed_dicts))
        kinds: dict[str, tuple[drift.windows.Windows, Callable[[list[Row]], object]]] = {
            "sliding windows": (drift.windows.sliding(WINDOW, every=WINDOW // 2), sliding_loop),
            "windows by number": (drift.windows.count(COUNTED), count_loop),
            "sessions": (drift.windows.session(gap=GAP), session_loop),
        }
        for name, (kind, loop_of) in kinds.items():
            jobs[name] = windows("id", kind), late_path, timed_dicts, partial(loop_of, timed_dicts)
        jobs["rolling over a span"] = rolled(), late_path, timed_dicts, lambda: rolling_loop(timed_dicts)
        for name, (graph, read, items, loop) in jobs.items():

            def in_columns(graph: drift.Graph = graph, read: Path = read) -> drift.Report:
                source = drift.sources.parquet(read, payload="rows")
                return drift.run(graph, {"rows": source}).finish()

            assert in_columns().digest == drift.run(graph, {"rows": items}).finish().digest
            times = [(seconds(loop), seconds(in_columns)) for _ in range(rounds)]
            plain, columns = (min(each) for each in zip(*times))
            print(
                f"{name}: plain loop {rows / plain / 1e6:.2f} M rows/s, columns {rows / columns / 1e6:.2f}: "
                f"{plain / columns:.2f} times"
            )


if __name__ == "__main__":
    main()
