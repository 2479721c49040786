"""A function that changes a dict of a row in place is found, as it is where payloads are dicts."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import polars as pl
import pytest
from flows import ZEROMQ

import drift

SCHEMA = {"at": int, "key": str, "fare": float}
ROWS = [{"at": at, "key": "ab"[at % 2], "fare": at / 2} for at in range(40)]


def raising(row: Any) -> str:
    row["fare"] += 100
    return str(row["key"])


def raising_time(row: Any) -> int:
    row["fare"] += 100
    return int(row["at"])


def key_of(row: Any) -> str:
    return str(row["key"])


def add(total: float, row: Any) -> tuple[float, float]:
    return total + row["fare"], total + row["fare"]


STEPS: dict[str, Callable[[Any], Any]] = {
    "map": lambda rows: rows.map(raising),
    "filter": lambda rows: rows.filter(raising).scan(key_of, 0.0, add),
    "behind an expression": lambda rows: rows.filter(pl.col("fare") >= 0).map(raising),
    "scan": lambda rows: rows.scan(raising, 0.0, add),
    "group": lambda rows: rows.group(raising, window=2).map(len),
    "window": lambda rows: rows.key_by(raising).window(drift.windows.tumbling(4)).sum("fare"),
}
TIMED = {"time": drift.EventTime(raising_time), "tie": drift.EventTime("at", tie=raising_time)}
HERE: dict[str, dict[str, Any]] = {"local": {}, "reference": {"engine": "reference"}}


def everywhere(name: str, kinds: Iterable[str], over_processes: Iterable[str]) -> pytest.MarkDecorator:
    """Each kind in this process; some over processes, where the same code runs."""
    cases = [pytest.param(kind, HERE[each], id=f"{kind}-{each}") for kind in kinds for each in HERE]
    cases += [pytest.param(kind, ZEROMQ, id=f"{kind}-zeromq") for kind in over_processes]
    return pytest.mark.parametrize((name, "settings"), cases)


def run(graph: drift.Graph, settings: dict[str, Any]) -> drift.Run:
    source = drift.sources.table(pl.DataFrame(ROWS, schema=SCHEMA), payload="rows")
    return drift.run(graph, {"rows": source}, **settings)


@everywhere("kind", STEPS, ["behind an expression", "scan"])
def test_a_function_that_changes_the_dict_of_a_row_is_found(kind: str, settings: dict[str, Any]) -> None:
    graph = drift.Graph("steps")
    STEPS[kind](graph.source("rows", schema=SCHEMA)).sink("out")
    with pytest.raises(drift.ImpureStep, match=r"'fare': \d+\.\d\} and is \{.*'fare': 1\d\d\.\d\}") as caught:
        run(graph, settings).finish()
    assert caught.value.where == f"{__file__}:{raising.__code__.co_firstlineno}"


@everywhere("role", TIMED, ["tie"])
def test_a_time_or_tie_function_that_changes_the_dict_of_a_row_is_found(role: str, settings: dict[str, Any]) -> None:
    graph = drift.Graph("times")
    graph.source("rows", schema=SCHEMA, time=TIMED[role]).map(key_of).sink("out")
    with pytest.raises(drift.ImpureStep, match=rf"the {role} function of source 'rows' .*'fare': 1\d\d\.\d\}}"):
        run(graph, settings).finish()
