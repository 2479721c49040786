"""Columns come out the same however many threads Polars and Arrow have, eager and lazy.

A process takes the numbers of threads when it starts: so this file is a script, too, that prints what it computes.
"""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import polars as pl
import pyarrow as pa
import pytest
from test_row_by_row import EXAMPLES, ROWS

import drift
from drift.columns.expressions import _computed
from drift.columns.row_by_row import with_fixed_sums

COUNT = 600  # in pieces, to each thread some
SCHEMA = {"key": str, "n": int, "x": float, "at": int}


def trips() -> pl.DataFrame:
    """Rows with ties in every field, out of order, and floats whose sum depends on order."""
    numbers = [n * 7919 % COUNT for n in range(COUNT)]
    return pl.DataFrame(
        {
            "key": ["abcdefghijklm"[n % 13] for n in numbers],
            "n": [n % 7 for n in numbers],
            "x": [(0.1, 1e17, -1e17, 0.7, -0.0, 0.0)[n % 6] for n in numbers],
            "at": [n // 4 for n in numbers],
        },
        schema=SCHEMA,
    )


def graphs() -> dict[str, drift.Graph]:
    made: dict[str, drift.Graph] = {}

    def rows(name: str) -> Any:
        made[name] = drift.Graph(name)
        return made[name].source("rows", schema=SCHEMA, time=drift.EventTime("at", lateness=COUNT)).filter("n < 6")

    total, most = drift.agg.sum("x"), drift.agg.max(pl.col("n") * 2)
    rows("running").key_by("key").running(total=total, mean=drift.agg.mean("x"), most=most).sink("out")
    windows = rows("windows").key_by("key").window(drift.windows.tumbling(50))
    windows.rows(total=total, most=most, first=drift.agg.first("x"), n=drift.agg.count()).sink("out")
    sliding = rows("sliding").key_by("n").window(drift.windows.sliding(60, every=20))
    sliding.rows(total=total, least=drift.agg.min_by("x")).sink("out")
    rows("sessions").key_by("key").window(drift.windows.session(gap=2)).rows(total=total, most=most).sink("out")
    rows("dedup").dedup(key="n").sink("out")
    rows("ends").at_end(drift.agg.top(5, by="n")).sink("out")
    rows("counts").count("key").sink("out")
    return made


def computed() -> list[str]:
    """Lines that are to be the same in every process."""
    given = trips()
    chunks = pl.concat([given[at : at + 97] for at in range(0, COUNT, 97)], rechunk=False)
    lines: list[str] = []
    for name, graph in graphs().items():
        runs = [drift.run(graph, {"rows": given}), drift.run(graph, {"rows": chunks}, batch_items=150)]
        lines.extend(f"{name} {run.finish().digest}" for run in runs)
    rows = pl.concat([ROWS] * 8)
    wanted = [pl.struct(with_fixed_sums(each)).alias(str(at)) for at, each in enumerate(EXAMPLES)]
    ours = _computed(rows, [("select", tuple(each.meta.serialize() for each in wanted))])
    ways = [
        rows.select(wanted),
        *(rows.lazy().select(wanted).collect(engine=engine) for engine in ("in-memory", "streaming")),
    ]  # type: ignore[call-overload]
    for at, expression in enumerate(EXAMPLES):
        texts = {repr(way[str(at)].to_list()) for way in (ours, *ways)}
        assert len(texts) == 1, f"{expression} is not the same eager and lazy"
        lines.append(f"{str(expression)[:60]!r} {hashlib.blake2b(texts.pop().encode(), digest_size=8).hexdigest()}")
    return lines


@pytest.mark.long
def test_columns_are_the_same_with_one_and_with_two_threads_eager_and_lazy() -> None:
    found = []
    for threads in ("1", "2"):
        more = {"POLARS_MAX_THREADS": threads, "OMP_NUM_THREADS": threads, "PYTHONHASHSEED": threads}
        made = subprocess.run(
            [sys.executable, "-W", "ignore", __file__],
            env={**os.environ, **more, "PYTHONPATH": os.pathsep.join(sys.path)},
            capture_output=True,
            text=True,
        )
        assert made.returncode == 0, made.stderr
        counted, *lines = made.stdout.splitlines()
        assert counted == f"{threads} {threads}"
        found.append(lines)
    assert [pair for pair in zip(*found, strict=True) if pair[0] != pair[1]] == []
    assert len(set(found[0][: 2 * len(graphs())])) == len(graphs())
    assert len(found[0]) == 2 * len(graphs()) + len(EXAMPLES)


if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).parent.parent))
    print(pl.thread_pool_size(), pa.cpu_count())
    print("\n".join(computed()))
