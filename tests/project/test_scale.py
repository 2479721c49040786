"""Plans for many machines follow from what was measured, by formulas and a simulation; a few are known by hand."""

from __future__ import annotations

import json
import sys
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]
sys.path[:0] = [str(ROOT)]

from benchmarks.scale.__main__ import BEGIN, END, arguments, planned, replaced  # noqa: E402
from benchmarks.scale.measured import Measured, caller_measured, frames_measured, nodes_measured, spark_measured  # noqa: E402
from benchmarks.scale.queues import LAYOUTS, Case, simulated  # noqa: E402
from benchmarks.scale.shuffles import CORES, cost  # noqa: E402

DOCUMENT = (ROOT / "docs" / "scale.md").read_text()
NOTHING = Measured(**dict.fromkeys((field.name for field in fields(Measured)), 0.0))
AS_IT_IS, APART, TREE, BARRIERS, SOURCES = LAYOUTS


@pytest.mark.smoke
def test_the_tables_of_the_document_follow_from_its_measured_line() -> None:
    line = DOCUMENT.partition(BEGIN)[2].partition(" -->")[0]
    text = planned(Measured(**json.loads(line)), arguments().get_default("batches"))
    assert replaced(DOCUMENT, text) == DOCUMENT and text.endswith(END)


def test_everything_is_measured_and_takes_time() -> None:
    found = nodes_measured(20_000) | frames_measured(500) | caller_measured(4000)
    assert set(found) | {"row", "level_row", "shuffle_bytes"} == {field.name for field in fields(Measured)}
    assert all(
        found[name] > 0 for name in ("ack", "feed_item", "worker_message", "worker_item", "barrier_item", "frame")
    )
    assert 12 < found["item_bytes"] < 100  # a meta's time and tie, at least


def test_what_rows_put_into_a_shuffle_is_measured(spark: Any) -> None:
    found = spark_measured(spark, 4000)
    assert set(found) == {"row", "level_row", "shuffle_bytes"} and 10 < found["shuffle_bytes"] < 100


@pytest.mark.parametrize(("layout", "bears"), [(AS_IT_IS, 1 / 3e-6), (APART, 1 / 2e-6), (SOURCES, 4 / 2e-6)])
def test_without_messages_a_run_is_as_fast_as_its_busiest_process(layout: object, bears: float) -> None:
    costs = replace(NOTHING, feed_item=1e-6, barrier_item=2e-6, worker_item=1e-6)
    found = simulated(costs, Case(100, 1, 0.0), layout, 40)  # type: ignore[arg-type]
    assert found.items_per_s == pytest.approx(bears, rel=0.05)
    assert max(found.busy.values()) == pytest.approx(1, abs=0.05)


def test_workers_bound_until_there_are_enough_of_them() -> None:
    costs = replace(NOTHING, feed_item=1e-6)
    few, many = (simulated(costs, Case(workers, 1, 100e-6), APART, 400) for workers in (10, 1000))
    assert few.bound == "workers" and 0.8e5 < few.items_per_s <= 1e5
    assert many.bound == "feed" and many.items_per_s == pytest.approx(1e6, rel=0.05)


def test_a_tree_of_ackers_helps_where_the_acker_is_busiest() -> None:
    costs, case = replace(NOTHING, ack=10e-6), Case(1000, 4, 0.0)
    one, tree = (simulated(costs, case, layout, 40).items_per_s for layout in (APART, TREE))
    assert tree > 20 * one


def test_rows_on_spark_cost_what_they_cost_on_every_core() -> None:
    costs = replace(NOTHING, row=1e-6, level_row=2e-6, shuffle_bytes=20.0)
    few, many = (cost(costs, 1e9, 2, machines) for machines in (1, 4))
    assert few.core_hours == many.core_hours == pytest.approx(5e3 / 3600)
    assert few.shuffled == 60e9 and few.bound == "rows"
    assert few.hours > few.core_hours / CORES > many.hours > few.hours / 4
    assert cost(costs, 1e13, 2, 4).bound == "blocks"
