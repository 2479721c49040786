"""Steps of one key behind each other are of one level, where the plan knows that the key passes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import polars as pl
import pytest

import drift
from drift.machines.plan import Plan

SCHEMA = {"zone": str, "n": int, "at": int}
Chain = Callable[[Any], Any]
HOUR, DAY = drift.windows.tumbling(9), drift.windows.tumbling(99)
TOTAL = drift.agg.sum("n")


def running(rows: Any, *keys: Any, **named: Any) -> Any:
    return rows.key_by(*keys or ("zone",)).running(**(named or {"total": TOTAL}))


def windows(rows: Any, key: Any, cut: Any = HOUR) -> Any:
    return rows.key_by(key).window(cut).rows(n=TOTAL)


def levels_of(chain: Chain) -> int:
    """Of a chain of two steps, how many there are behind each other."""
    graph = drift.Graph("chain")
    chain(graph.source("rows", schema=SCHEMA, time=drift.EventTime("at"))).sink("out")
    return Plan(graph.build()).levels.last


def zone_of(row: dict[str, Any]) -> Any:
    return row["zone"]


ONE: dict[str, Chain] = {
    "the field": lambda rows: running(running(rows)),
    "expressions beside it": lambda rows: running(running(rows).with_columns(n=pl.col("total") % 7)),
    "it is selected": lambda rows: running(running(rows).select("n", "zone")),
    "it is renamed": lambda rows: running(running(rows).select("n", area="zone"), "area"),
    "two fields": lambda rows: running(running(rows, "zone", "n"), "zone", "n", more=drift.agg.count()),
    "filters": lambda rows: running(running(rows).filter(pl.col("total") > 3).filter(zone_of)),
    "dedup": lambda rows: windows(rows.dedup("zone"), "zone"),
    "rolling": lambda rows: windows(rows.key_by("zone").rolling(9, total=TOTAL), "zone"),
    "windows": lambda rows: windows(windows(rows, "zone"), "key", DAY),
    "windows of a function": lambda rows: windows(windows(rows, zone_of), "key", DAY),
    "windows by number": lambda rows: windows(windows(rows, "zone", drift.windows.count(3)), "key", DAY),
    "sessions": lambda rows: windows(windows(rows, "zone", drift.windows.session(3)), "key", DAY),
    "sliding windows": lambda rows: windows(windows(rows, "zone", drift.windows.sliding(6, every=3)), "key", DAY),
    "three steps": lambda rows: running(windows(running(rows), "zone").select("n", area="key"), "area"),
}
TWO: dict[str, Chain] = {
    "another field": lambda rows: running(running(rows), "n"),
    "one of two fields": lambda rows: running(running(rows, "zone", "n")),
    "two fields in another order": lambda rows: running(running(rows, "zone", "n"), "n", "zone"),
    "the step writes over it": lambda rows: running(running(rows, "n", n=TOTAL), "n"),
    "an expression writes over it": lambda rows: running(running(rows).with_columns(zone=pl.col("zone") + "a")),
    "another field has its name": lambda rows: running(running(rows, "n").select("zone", n="total"), "n"),
    "a cast of it": lambda rows: running(running(rows, "n").select("zone", n=pl.col("n").cast(pl.Int32)), "n"),
    "functions": lambda rows: running(running(rows).map(lambda row: row), zone_of),
    "a function beside": lambda rows: running(
        (made := running(rows)).merge(made.map(lambda row: {**row, "zone": "a"})), zone_of
    ),
    "a function is the key": lambda rows: running(running(rows, zone_of), zone_of),
    "the source beside": lambda rows: running(rows.merge(running(rows, n=TOTAL))),
    "a path into it": lambda rows: running(running(rows, "zone.a").with_columns(zone=pl.col("zone") + "a"), "zone.a"),
    "windows by another field": lambda rows: windows(windows(rows, "zone"), "n", DAY),
}


@pytest.mark.parametrize("chain", ONE.values(), ids=ONE)
def test_a_key_that_is_known_to_pass_makes_one_level(chain: Chain) -> None:
    assert levels_of(chain) == 1


@pytest.mark.parametrize("chain", TWO.values(), ids=TWO)
def test_a_key_that_may_change_makes_two(chain: Chain) -> None:
    assert levels_of(chain) == 2


def test_behind_a_cycle_a_key_that_passes_makes_two() -> None:
    """What comes round is of the level of the cycle, and may come below what the step behind it has passed."""
    graph = drift.Graph("cycle")
    around = graph.feedback("around")
    rows = graph.source("rows", schema=SCHEMA, time=drift.EventTime("at")).merge(around)
    inside = windows(rows, "zone")
    inside.filter(lambda row: row["n"] > 1).map(lambda row: {"zone": row["key"], "n": row["n"] // 4}).feed(around)
    running(inside, "key", total=TOTAL).sink("out")
    assert Plan(graph.build()).levels.last == 2
