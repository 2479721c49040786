"""Rows that are rolled over in arrays are those that the step gives one by one, with the same metas."""

from __future__ import annotations

import math
from itertools import accumulate
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
from flows import ZEROMQ
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from in_step import check_in_step

import drift
from drift.columns.rolling import Rolled
from drift.columns.rows import Frame
from drift.flow.running import RollingStep
from drift.machines.checkpoints import DELETED
from drift.machines.forms import forms_of
from drift.machines.plan import Plan
from drift_graph.item import Columns
from drift_graph.meta import END_OF_TIME, global_time
from drift_graph.metas import Metas
from drift_kernel import kernel

pytestmark = pytest.mark.skipif(kernel is None, reason="the form in arrays is in the kernel")

SCHEMA = {"zone": str, "day": int, "n": int, "fare": float}
KEYS: list[tuple[str, ...]] = [("zone",), ("day",), ("zone", "day")]
CLOSED = ["right", "left", "both", "none"]
AGGREGATES: dict[str, Any] = {
    "rows": drift.agg.count(),
    "total": drift.agg.sum("fare"),
    "whole": drift.agg.sum("n"),
    "mean": drift.agg.mean("fare"),
    "of whole": drift.agg.mean("n"),
    "least": drift.agg.min("fare"),
    "most": drift.agg.max("n"),
    "fare": drift.agg.max("fare"),
}

steps = st.lists(st.sampled_from([0, 0, 0, 1, 1, 2, 3, 5, 11]), min_size=40, max_size=40)
zones = st.none() | st.sampled_from(["a", "b", "a text longer than a view"])
fares = st.sampled_from([None, 0.1, 0.2, 0.3, 1e16, -1e16, 0.0, -0.0, math.inf, math.nan])
numbers = st.none() | st.integers(-3, 3) | st.sampled_from([2**53 + 1, 2**62, -(2**63)])
rows_of = st.lists(
    st.fixed_dictionaries({"zone": zones, "day": st.integers(0, 2), "n": numbers, "fare": fares}),
    min_size=16,
    max_size=40,
)
spans = st.tuples(st.integers(1, 6), st.sampled_from(CLOSED), st.sampled_from([0, 0, 0, -1, -7]))


def graph_of(key: tuple[str, ...], span: tuple[int, Any, int], names: list[str], time: Any = None) -> drift.Graph:
    length, closed, offset = span
    graph = drift.Graph("rolled")
    keyed = graph.source("rows", schema=SCHEMA, time=time).key_by(*key)
    keyed.rolling(length, closed=closed, offset=offset, **{name: AGGREGATES[name] for name in names}).sink("out")
    return graph


def stage_of(*of: Any) -> Any:
    (stage,) = Plan(graph_of(*of).build()).stages().values()
    return stage


@given(
    rows=rows_of,
    key=st.sampled_from(KEYS),
    span=spans,
    names=st.lists(st.sampled_from(list(AGGREGATES)), min_size=1, max_size=4, unique=True),
    apart=steps,
    data=st.data(),
)
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_rows_in_arrays_are_rolled_over_as_rows_one_by_one(
    monkeypatch: pytest.MonkeyPatch,
    rows: list[dict[str, Any]],
    key: tuple[str, ...],
    span: tuple[int, Any, int],
    names: list[str],
    apart: list[int],
    data: st.DataObject,
) -> None:
    def batch_of(at: int, end: int) -> tuple[Any, list[Any]]:
        return Frame(pl.DataFrame(rows[at:end], schema=SCHEMA)), rows[at:end]

    times = list(accumulate(apart))[: len(rows)]
    check_in_step(lambda: stage_of(key, span, names), times, batch_of, Frame, data, monkeypatch)


def table(rows: list[dict[str, Any]]) -> Any:
    return drift.sources.table(pl.DataFrame(rows, schema=SCHEMA))


def many(count: int) -> list[dict[str, Any]]:
    return [{"zone": "abc"[at % 3], "day": at // 4, "n": at % 7, "fare": at / 3} for at in range(count)]


@pytest.mark.parametrize("closed", CLOSED)
@pytest.mark.parametrize("settings", [{}, {"batch_items": 7}, {"engine": "reference"}])
def test_each_run_gives_the_rows_that_a_loop_gives(closed: Any, settings: dict[str, Any]) -> None:
    rows = many(200)
    graph = graph_of(("zone",), (5, closed, 0), list(AGGREGATES), drift.EventTime("day", lateness=9, tie="n"))
    run = drift.run(graph, {"rows": table(rows)}, **settings)
    found = sorted(repr(item.payload) for item in run)
    expected = []
    for row in rows:
        first, end = row["day"] - 5 + (closed in ("right", "none")), row["day"] + (closed in ("right", "both"))
        inside = [each for each in rows if each["zone"] == row["zone"] and first <= each["day"] < end]
        fares, ns = [each["fare"] for each in inside], [each["n"] for each in inside]
        total = None
        for fare in fares:
            total = fare if total is None else total + fare
        made = {
            "rows": len(inside),
            "total": total,
            "whole": sum(ns) if ns else None,
            "mean": total / len(fares) if total is not None else None,
            "of whole": sum(ns) / len(ns) if ns else None,
            "least": min(fares, default=None),
            "most": max(ns, default=None),
            "fare": max(fares, default=None),
        }
        expected.append(repr({**row, **made}))
    assert found == sorted(expected)


def test_rolled_rows_stay_in_arrays_and_are_the_same_over_zeromq(monkeypatch: pytest.MonkeyPatch) -> None:
    rows = many(3000)
    graph = graph_of(("zone",), (20, "right", 0), list(AGGREGATES), drift.EventTime("day", lateness=9))
    digest = drift.run(graph, {"rows": rows}, engine="reference").finish().digest
    assert drift.run(graph, {"rows": table(rows)}, **ZEROMQ).finish().digest == digest

    def no_objects(*_: Any) -> Any:
        raise AssertionError("a row has become a dict")

    monkeypatch.setattr(RollingStep, "__call__", no_objects)
    assert drift.run(graph, {"rows": table(rows)}, batch_items=100).finish().digest == digest
    assert forms_of(graph.build())["rolling by field zone"][1:] == (
        "settled",
        (("rows", "rows"),),
        "rows",
        1,
        "arrays",
        "",
    )


@pytest.mark.parametrize("offset, of, why", [
    (3, drift.agg.sum("n"), "its spans end behind their rows"),
    (0, drift.agg.last("n"), "value is not count, sum, mean, min or max of a field"),
    (0, drift.agg.sum(pl.col("n") * 2), "value is not count, sum, mean, min or max of a field"),
])  # fmt: skip
def test_other_spans_and_aggregates_are_of_objects(offset: int, of: Any, why: str) -> None:
    graph = drift.Graph("others")
    keyed = graph.source("rows", schema=SCHEMA, time=drift.EventTime("day", lateness=9)).key_by("zone")
    keyed.rolling(3, offset=offset, value=of, name="rolled").sink("out")
    form = forms_of(graph.build())["rolled"]
    assert (form.gives, form.why) == ("objects", why)
    rows = many(100)
    digest = drift.run(graph, {"rows": rows}, engine="reference").finish().digest
    assert drift.run(graph, {"rows": table(rows)}, batch_items=9).finish().digest == digest


def test_a_frame_of_rows_says_what_is_in_columns() -> None:
    graph = drift.Graph("frames")
    keyed = graph.source("rows", schema=SCHEMA, time=drift.EventTime("day", lateness=9)).key_by("zone")
    keyed.rolling(drift.windows.rows(2), total=drift.agg.sum("n"), name="frames").sink("out")
    keyed.running(total=drift.agg.rolling(drift.agg.sum("n"), 3), name="last").sink("last")
    forms = forms_of(graph.build())
    assert forms["frames"].gives == "objects" and "drift.agg.rolling(of, n)" in forms["frames"].why
    assert forms["last"].gives == "rows"
    found: dict[str, list[Any]] = {"out": [], "last": []}
    for item in drift.run(graph, {"rows": table(many(60))}, batch_items=7):
        found[item.sink].append(item.payload)
    assert found["out"] == found["last"]


@pytest.mark.parametrize("field, value", [("n", None), ("n", 2**62), ("n", -(2**62)), ("fare", math.nan)])
@pytest.mark.parametrize("batch_items", [10, 1000])
def test_an_aggregate_that_is_not_added_in_arrays_has_objects_beside_the_others(
    field: str, value: Any, batch_items: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    rows = many(90)
    for at in (40, 41, 43, 44):
        rows[at][field] = value
    aggregates = {**AGGREGATES, "first zone": drift.agg.min("zone"), "last zone": drift.agg.max("zone")}
    graph = drift.Graph("rolled")
    keyed = graph.source("rows", schema=SCHEMA, time=drift.EventTime("day", lateness=9)).key_by("n")
    keyed.rolling(9, closed="none", **aggregates).sink("out")
    digest = drift.run(graph, {"rows": rows}, engine="reference").finish().digest
    monkeypatch.setattr(RollingStep, "on_time", None)  # of each key and time that would be in objects
    assert drift.run(graph, {"rows": table(rows)}, batch_items=batch_items).finish().digest == digest


def test_a_row_that_is_in_no_span_is_not_asked_for_its_value(monkeypatch: pytest.MonkeyPatch) -> None:
    """Between others of its key, in one run."""
    monkeypatch.setattr(RollingStep, "on_time", None)
    rows = [{**row, "zone": "a", "day": at // 2 * 9, "n": None if at == 5 else 1} for at, row in enumerate(many(12))]
    graph = drift.Graph("needed")
    keyed = graph.source("rows", schema=SCHEMA, time=drift.EventTime("day")).key_by("zone")
    keyed.rolling(3, closed="left", total=drift.agg.sum("n", nulls="error"), of=drift.agg.min("zone")).sink("out")
    assert [item.payload["total"] for item in drift.run(graph, {"rows": table(rows)})] == [None] * 12


@pytest.mark.parametrize("others", [{}, {"mean": drift.agg.mean("n")}])
def test_a_field_that_needs_a_value_ends_the_run_at_its_row(others: dict[str, Any]) -> None:
    graph = drift.Graph("needed")
    keyed = graph.source("rows", schema=SCHEMA, time=drift.EventTime("day")).key_by("zone")
    keyed.rolling(3, **others, total=drift.agg.sum("n", nulls="error")).sink("out")
    rows = [{**row, "n": None if row["day"] == 3 else 1} for row in many(40)]
    with pytest.raises(drift.StepError, match="sum of field n is None"):
        drift.run(graph, {"rows": table(rows)}).finish()


def test_a_run_goes_on_from_its_checkpoints_with_rows_in_arrays(tmp_path: Path) -> None:
    rows, time = many(2000), drift.EventTime("day", lateness=9, tie="n")
    graph = graph_of(("zone",), (20, "left", 0), ["total", "rows"], time)
    whole = [item.payload for item in drift.run(graph, {"rows": rows}, engine="reference")]
    found: list[Any] = []
    while len(found) < len(whole):
        run = drift.run(graph, {"rows": table(rows)}, state=str(tmp_path / "state"), batch_items=100)
        before = len(found)
        for item in run:
            found.append(item.payload)
            if len(found) == before + 500:
                run.stop()
        assert len(found) > before
    assert found == whole


def test_stretches_are_checked_and_added_to_what_is_there() -> None:
    assert kernel is not None
    made, counts = np.array([1.0, 0.0]), np.array([1, 0])
    one, two = np.array([1, 2]), np.array([3, 2])
    kernel.rolled(np.array([9.0, 2.0, 4.0]), np.array([1, 1, 0], np.uint8), one, two, made, counts, "sum")
    assert (made.tolist(), counts.tolist()) == ([3.0, 0.0], [2, 0])
    for bad in ((np.array([0, 0]), np.array([4, 0])), (np.array([-1, 0]), np.array([2, 0]))):
        with pytest.raises(IndexError, match="there are 3 values"):
            kernel.rolled(np.arange(3.0), None, *bad, made, counts, "min")
    with pytest.raises(ValueError, match="as many bounds"):
        kernel.rolled(np.arange(3.0), None, one, two[:1], made, counts, "min")
    with pytest.raises(ValueError, match="asked about"):
        kernel.rolled(np.arange(3.0), np.ones(2, np.uint8), one, two, made, counts, "min")
    for sign in (1, -1):
        with pytest.raises(OverflowError):
            far = np.array([2**62, 2**62, 2**62]) * sign
            kernel.rolled(far, None, np.array([0]), np.array([3]), np.array([0]), np.array([0]), "sum")


@pytest.mark.parametrize("closed", CLOSED)
def test_timers_that_forget_are_those_of_the_step_whatever_the_times(closed: Any) -> None:
    for length in (1, 2, 3, 5):
        for pattern in range(1 << 7):
            times = [0, *(at + 1 for at in range(7) if pattern >> at & 1), 9]
            sent: list[list[bytes]] = []
            for in_columns in (True, False):
                stage = stage_of(("zone",), (length, closed, 0), ["rows"])
                rows = many(3)[:1] * len(times)
                payloads: Any = Frame(pl.DataFrame(rows, schema=SCHEMA)) if in_columns else rows
                stage.heartbeat = stage.complete_below = END_OF_TIME
                metas = Metas([global_time(time, 0, number, 0) for number, time in enumerate(times)])
                made = stage.process(Columns(metas, payloads, None), {}), stage.fire({})
                sent.append(sorted(meta for each in made for meta in each.metas))
            assert sent[0] == sent[1]


def test_rows_of_several_times_that_wait_are_handed_back_with_what_forgets_the_others(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    values, rows = Rolled._values, [{"zone": "a", "day": 0, "n": at, "fare": 0.5} for at in range(4)]

    def raises_at_3(self: Any, codes: Any, times: Any, runs: Any) -> Any:
        assert 3 not in times, "as a function that raises"
        return values(self, codes, times, runs)

    monkeypatch.setattr(Rolled, "_values", raises_at_3)
    sent: list[list[bytes]] = []
    for in_columns in (True, False):
        stage, found = stage_of(("zone",), (4, "right", 0), ["whole"]), list[bytes]()
        for some, times, bound in ((rows[:1], [0], global_time(2, 0, 0, 0)), (rows[1:], [3, 3, 7], END_OF_TIME)):
            payloads: Any = Frame(pl.DataFrame(some, schema=SCHEMA)) if in_columns else some
            stage.heartbeat = stage.complete_below = bound
            metas = Metas([global_time(time, 0, number, 0) for number, time in enumerate(times, times[0])])
            for made in (stage.process(Columns(metas, payloads, None), {}), stage.fire({})):
                found += made.metas
        sent.append(sorted(found))
    assert sent[0] == sent[1] and len(sent[0]) == 4


def test_keys_whose_rows_are_forgotten_leave_the_checkpoints() -> None:
    stage = stage_of(("zone",), (2, "right", 0), ["rows"])
    stage.track()
    stored: dict[Any, Any] = {}
    for at in range(0, 300, 10):
        rows = [{"zone": f"{at + number // 5}", "day": 1, "n": 1, "fare": 0.5} for number in range(10)]
        metas = [global_time(at + number, 0, number, 0) for number in range(10)]
        stage.heartbeat = stage.complete_below = global_time(at + 10, 0, 0, 0)
        stage.process(Columns(Metas(metas), Frame(pl.DataFrame(rows, schema=SCHEMA)), None), {})
        stage.fire({})
        stage.settle(stage.heartbeat)
        stored.update(stage.changed(stage.heartbeat))
        stored = {each: state for each, state in stored.items() if state is not DELETED}
        assert len(stored) == 1


def test_keys_whose_rows_are_forgotten_leave_the_checkpoints_before_the_rows_leave_the_arrays() -> None:
    """A run of many rows stays as it is while few come behind it."""
    stage = stage_of(("zone",), (2, "right", 0), ["rows"])
    stage.track()
    stored: dict[Any, Any] = {}
    for times in (range(10), [10], [11], [12]):
        rows = [{"zone": str(time), "day": 1, "n": 1, "fare": 0.5} for time in times]
        stage.heartbeat = stage.complete_below = global_time(times[-1] + 1, 0, 0, 0)
        metas = Metas([global_time(time, 0, time, 0) for time in times])
        stage.process(Columns(metas, Frame(pl.DataFrame(rows, schema=SCHEMA)), None), {})
        stage.fire({})
        stage.settle(stage.heartbeat)
        stored.update(stage.changed(stage.heartbeat))
        stored = {each: state for each, state in stored.items() if state is not DELETED}
        assert len(stored) == 2


@pytest.mark.parametrize("large", [[2**53 + 3, 2**53 + 2, 2**53 + 5], [-(2**53) - 3, -(2**53) - 2, -(2**53) - 5]])
def test_means_beyond_53_bits_are_rounded_once(large: list[int]) -> None:
    rows = [{"zone": "a", "day": 0, "n": n, "fare": 0.5} for n in large]
    graph = graph_of(("zone",), (9, "both", 0), ["of whole"], drift.EventTime("day"))
    found = [item.payload["of whole"] for item in drift.run(graph, {"rows": table(rows)})]
    assert found == [sum(large) / 3] * 3 != [float(sum(large)) / 3] * 3
