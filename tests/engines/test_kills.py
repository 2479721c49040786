"""What a run guarantees when its process is killed: four guarantees, by what its sources and its sinks can do.

Processes are killed by SIGKILL within sinks, between log and release, and while a checkpoint is written; then the same
call is made again.
"""

from __future__ import annotations

import csv
import json
import os
import random
import signal
import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psycopg
import pyarrow.parquet as pq
import pytest
import redis as redis_client
from killed import ITEMS, graph, sink_of, source_of

import drift


def content_of(kind: str, folder: str, place: str) -> list[tuple[int, int, int]]:
    """What is in a sink: position, number, sum."""
    if kind in ("jsonl", "callable"):
        rows = [json.loads(line) for line in Path(folder, "out.jsonl").read_text().splitlines()]
        return [(row["position"], *row["payload"]) if kind == "jsonl" else tuple(row) for row in rows]
    if kind == "csv":
        with Path(folder, "out.csv").open(newline="") as file:
            return [(int(row["position"]), int(row["n"]), int(row["sum"])) for row in csv.DictReader(file)]
    if kind == "parquet":
        table = pq.read_table(f"{folder}/out.parquet")
        return list(zip(*(table.column(name).to_pylist() for name in ("position", "n", "sum"))))
    if kind == "sqlite":
        with sqlite3.connect(f"{folder}/out.db") as connection:
            return connection.execute("select position, n, sum from out order by 1").fetchall()
    if kind == "postgres":
        with psycopg.connect(place) as connected:
            return connected.execute("select position, n, sum from killed order by 1").fetchall()
    with redis_client.Redis.from_url(place, decode_responses=True) as client:
        entries: Any = client.xrange("killed")
    return [(int(entry[:-2]) - 1, *json.loads(fields["payload"])) for entry, fields in entries]


def killed(kind: str, out: str, folder: Path, place: str, state: str, calls: int, stdin: int | None) -> int:
    """Run in a process that kills itself; how it ended."""
    arguments = [kind, out, str(folder), place, state, str(calls)]
    program = [sys.executable, str(Path(__file__).parents[1] / "killed.py"), *arguments]
    done = subprocess.run(program, stdin=stdin, stderr=subprocess.PIPE)
    assert done.returncode in (0, -signal.SIGKILL) or b"SinkError" in done.stderr, done.stderr.decode()
    return done.returncode


@pytest.fixture
def pipe() -> Iterator[int]:
    """A pipe with all numbers in it, which outlives whoever reads it."""
    reading, writing = os.pipe()
    os.write(writing, b"".join(b"%08d" % n for n in range(ITEMS)))
    os.close(writing)
    yield reading
    os.close(reading)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "in.jsonl").write_text("".join(f"{n}\n" for n in range(ITEMS)))
    return tmp_path


def expected() -> list[tuple[int, int, int]]:
    times = {"n": drift.EventTime(lambda n: n)}
    return [(item.position, *item.payload) for item in drift.run(graph(), {"n": range(ITEMS)}, times=times)]


@pytest.mark.parametrize(
    ("kind", "out"),
    [
        ("file", "jsonl"), ("file", "csv"), ("file", "parquet"), ("file", "sqlite"), ("file", "postgres"),
        ("file", "redis"), ("once", "jsonl"), ("once", "sqlite"),
    ],
)  # fmt: skip
def test_exactly_once_a_source_that_is_read_again_or_logged_and_a_sink_that_knows_what_it_has(
    kind: str, out: str, folder: Path, pipe: int, request: pytest.FixtureRequest
) -> None:
    place = request.getfixturevalue(f"{out}_url") if out in ("postgres", "redis") else ""
    choose = random.Random(f"{kind} {out}")
    deaths, calls = 0, 25 if kind == "file" else 120
    while killed(kind, out, folder, place, "state", choose.randrange(1, calls) if deaths < 4 else 10**9, pipe):
        deaths += 1
    assert deaths >= 3
    assert content_of(out, str(folder), place) == expected()


def test_at_least_once_a_sink_that_does_not_know_what_it_has(folder: Path, pipe: int) -> None:
    choose = random.Random(3)
    deaths = 0
    while killed("once", "callable", folder, "", "state", choose.randrange(60, 200) if deaths < 4 else 10**9, pipe):
        deaths += 1
    found = content_of("callable", str(folder), "")
    assert sorted(set(found)) == expected(), "nothing is lost, and what comes again is what came"
    assert len(found) > len(set(found)), "some came twice"


def test_at_most_once_a_source_that_gives_other_items_to_the_next_run(folder: Path, pipe: int) -> None:
    assert killed("once", "jsonl", folder, "", "", 60, pipe) == -signal.SIGKILL
    first = content_of("jsonl", str(folder), "")
    assert killed("once", "jsonl", folder, "", "", 10**9, pipe) == 1, "the sink refuses the items of another input"
    found = content_of("jsonl", str(folder), "")
    assert found == first == expected()[: len(first)] and 0 < len(first) < ITEMS


def test_none_neither_source_nor_sink(folder: Path, pipe: int) -> None:
    assert killed("once", "callable", folder, "", "", 60, pipe) == -signal.SIGKILL
    assert killed("once", "callable", folder, "", "", 10**9, pipe) == 0
    found = content_of("callable", str(folder), "")
    assert len({position for position, _, _ in found}) < len(found), "positions come again, for other items"
    assert set(found) != set(expected())


def test_the_run_says_which_of_the_four_it_is(folder: Path, tmp_path: Path) -> None:
    levels = {}
    for kind in ("file", "once"):
        for out in ("sqlite", "callable"):
            for more in ({"state": tmp_path / "state"}, {}):
                given, taking = {"n": source_of(kind, str(folder))}, {"out": sink_of(out, str(folder), "")}
                with drift.run(graph(), given, sinks=taking, **more) as run:
                    levels[kind, out, bool(more)] = run.report.guarantee.partition(",")[0]
    assert levels == {
        ("file", "sqlite", True): "exactly once", ("file", "sqlite", False): "exactly once",
        ("file", "callable", True): "at least once", ("file", "callable", False): "at least once",
        ("once", "sqlite", True): "exactly once", ("once", "sqlite", False): "at most once",
        ("once", "callable", True): "at least once", ("once", "callable", False): "none",
    }  # fmt: skip
