"""`python -m benchmarks.nexmark --events N`: runs the queries on the engines, compares with DuckDB."""

from __future__ import annotations

import argparse
import sys
import time
from collections import Counter
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from rich.console import Console

import drift
from benchmarks.nexmark import columns, loops
from benchmarks.nexmark.duck import answer, database
from benchmarks.nexmark.events import events, number_of
from benchmarks.nexmark.queries import QUERIES, TABLES, graph_of
from benchmarks.tables import decimals, integer, table

ENGINES: dict[str, dict[str, Any]] = {
    "local": {"engine": "local"},
    "columns": {"engine": "local"},  # rows in columns, of a table
    "zeromq": {"engine": "zeromq", "workers": 2},
    "spark": {"engine": "spark"},
}
#: Besides these with checkpoints four times a second, of which the folder has what is kept.
WITH_CHECKPOINTS = {
    name: {**ENGINES[name.removesuffix(" checkpoints")], "state": True}
    for name in ("local checkpoints", "zeromq checkpoints")
}
_IN_COLUMNS = "columns"
_CHECKPOINTS_EVERY_S = 0.25
_CAPTION = (
    "Seconds from the events in memory to the last row, and events a second; DuckDB's are of one query over tables; "
    "those in columns, and of a plain loop over the events in order, are of processors, before rows become dicts. "
    "Every answer is that of DuckDB, row by row, and every engine's digest is that of local, but for rows in columns."
)


class Different(Exception):
    """An answer is not what it is compared with."""


def run_query(name: str, arrived: Any, settings: dict[str, Any]) -> tuple[list[Any], str, float, int]:
    """Rows, digest and seconds of a query on an engine, and how many bytes its checkpoints have."""
    with ExitStack() as closing:
        folder = None
        if settings.get("state"):
            folder = Path(closing.enter_context(TemporaryDirectory()))
            settings = {**settings, "state": drift.Checkpoints(folder, every_s=_CHECKPOINTS_EVERY_S)}
        in_columns = not isinstance(arrived, list)
        graph = columns.graph_of(columns.QUERIES[name]) if in_columns else graph_of(QUERIES[name])
        clock = time.process_time if in_columns else time.perf_counter
        started = clock()
        sources = columns.inputs_of(name, arrived) if in_columns else {"events": arrived, **TABLES.get(name, {})}
        run = drift.run(graph, sources, **settings)
        parts = [batch.payloads for batch in run.batches()]
        seconds = clock() - started
        rows = [payload for part in parts for payload in part]
        size = sum(file.stat().st_size for file in folder.rglob("*") if file.is_file()) if folder is not None else 0
        return rows, run.digest, seconds, size


def compare(name: str, engine: str, rows: Sequence[Any], expected: Sequence[Any]) -> None:
    """Raise Different where two answers are not the same rows, each as often."""
    found = Counter(tuple(row.values() if isinstance(row, dict) else row) for row in rows)
    wanted = Counter(expected)
    if found != wanted:
        more, missing = found - wanted, wanted - found
        raise Different(
            f"{name} on {engine}: {more.total():,} rows that DuckDB has not, such as {next(iter(more), None)!r}; "
            f"{missing.total():,} that it alone has, such as {next(iter(missing), None)!r}"
        )


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.nexmark", description=__doc__)
    parser.add_argument("--events", type=int, default=100_000, metavar="N", help="(100,000)")
    parser.add_argument("--engine", action="append", choices=list(ENGINES), help="(all); may be given again")
    parser.add_argument("--query", action="append", choices=list(QUERIES), help="(all); may be given again")
    parser.add_argument("--checkpoints", action="store_true", help="local and zeromq, without and with checkpoints")
    parsed = parser.parse_args(argv)
    engines = parsed.engine or (
        ["local", "local checkpoints", "zeromq", "zeromq checkpoints"] if parsed.checkpoints else list(ENGINES)
    )
    with ExitStack() as closing:
        settings = ENGINES | WITH_CHECKPOINTS
        if "spark" in engines:  # one session for all queries
            settings["spark"] = {"engine": "spark", "spark": closing.enter_context(drift.spark.session())}
        return run_all(parsed.query or list(QUERIES), engines, settings, parsed.events)


def run_all(queries: Sequence[str], engines: Sequence[str], settings: dict[str, dict[str, Any]], count: int) -> int:
    """Run queries on engines, print the table, and give the exit code."""
    console = Console(width=None if sys.stdout.isatty() else 120)
    arrived = events(count)
    connection = database(arrived)
    titles = [(f"{engine} s", "MB" if engine in WITH_CHECKPOINTS else "events/s") for engine in engines]
    in_order = sorted(arrived, key=number_of) if _IN_COLUMNS in engines else None
    beside = ["plain loop s"] if in_order is not None else []
    headings = ("", "rows", "DuckDB s", *beside, *(title for pair in titles for title in pair))
    made = table(f"Nexmark, {count:,} events", headings, _CAPTION)
    frame = columns.frame_of(arrived) if _IN_COLUMNS in engines else None
    different: list[str] = []
    for name in queries:
        started = time.perf_counter()
        expected = answer(connection, name)
        cells = [name, integer(len(expected)), decimals(time.perf_counter() - started)]
        digests: dict[str, str] = {}
        if in_order is not None:
            cells.append("")
            if name in loops.QUERIES:
                started = time.process_time()
                looped = list(loops.QUERIES[name](in_order))
                cells[-1] = decimals(time.process_time() - started)
                compare(name, "a plain loop", looped, expected)
        for engine in engines:
            if engine == _IN_COLUMNS and name not in columns.QUERIES:
                cells += ["", ""]
                continue
            given = frame if engine == _IN_COLUMNS else arrived
            rows, digest, seconds, size = run_query(name, given, settings[engine])
            if engine != _IN_COLUMNS:  # whose payloads are dicts
                digests[engine] = digest
            cells += [
                decimals(seconds),
                decimals(size / 1e6) if engine in WITH_CHECKPOINTS else integer(count / seconds),
            ]
            try:
                compare(name, engine, rows, expected)
            except Different as error:
                different.append(str(error))
        if len(set(digests.values())) > 1:
            different.append(f"{name}: the engines' outputs are not the same: {digests}")
        made.add_row(*cells)
    console.print(made)
    for line in different:
        console.print(line, markup=False, highlight=False)
    return 1 if different else 0


if __name__ == "__main__":
    sys.exit(main())
