"""What type checkers infer of a graph: payloads have the types that functions give, and an engine is one of four."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

from mypy import api
from waiting import HANG_S

ROOT = Path(__file__).parents[1]
PROGRAM = """
from typing import Any, TypeGuard, assert_type

import drift


class Trip:
    origin: str
    delay: int


def is_text(value: object) -> TypeGuard[str]:
    return isinstance(value, str)


def delayed(trip: Trip) -> bool:
    return trip.delay > 0


def origin(trip: Trip) -> str:
    return trip.origin


def running(total: int, trip: Trip) -> tuple[int, float]:
    return total + trip.delay, 0.5


graph = drift.Graph("types")
trips = graph.source("trips", type=Trip)
assert_type(trips, drift.Stream[Trip])
assert_type(graph.source("any"), drift.Stream[Any])
assert_type(graph.source("timed", type=Trip, time=drift.EventTime(lambda trip: trip.delay)), drift.Stream[Trip])
assert_type(trips.filter(delayed), drift.Stream[Trip])
assert_type(trips.filter(lambda trip: trip.delay > 0), drift.Stream[Trip])
assert_type(graph.source("objects", type=object).filter(is_text), drift.Stream[str])
assert_type(trips.map(origin), drift.Stream[str])
assert_type(trips.count(key=origin), drift.Stream[tuple[str, int]])
assert_type(trips.scan(origin, 0, running), drift.Stream[float])
assert_type(trips.group(origin, 2), drift.Stream[tuple[Trip, ...]])


def of(item: drift.Item[Trip]) -> None:
    assert_type(item.payload, Trip)
    assert_type(item.time, int)


drift.run(graph, {}, engine="zeromq", workers=2)
drift.run(graph, {}, engine="sparkle")  # WRONG
trips.filter(lambda trip: trip.destination)  # WRONG
trips.count(key=lambda trip: trip.destination)  # WRONG
"""
WRONG = [number for number, line in enumerate(PROGRAM.splitlines(), 1) if "# WRONG" in line]


def test_what_mypy_infers(tmp_path: Path) -> None:
    program = tmp_path / "program.py"
    program.write_text(PROGRAM)
    said, trouble, _ = api.run(["--strict", "--config-file", str(ROOT / "pyproject.toml"), str(program)])
    assert sorted({int(line) for line in re.findall(r"program\.py:(\d+): error", said)}) == WRONG, said + trouble


def test_what_pyright_infers(tmp_path: Path) -> None:
    program = tmp_path / "program.py"
    program.write_text(PROGRAM)
    (tmp_path / "pyrightconfig.json").write_text('{"typeCheckingMode": "standard"}')
    command = [sys.executable, "-m", "basedpyright", "--pythonpath", sys.executable, str(program)]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=HANG_S)
    found = sorted({int(line) for line in re.findall(r"program\.py:(\d+):\d+ - error", done.stdout)})
    assert found == WRONG, done.stdout + done.stderr
