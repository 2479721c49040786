"""Rows in event time: what their columns give at once is what their dicts give one by one."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

import drift
import drift_graph.times as times_module
from drift.columns.rows import Frame
from drift_graph.functions import is_expression
from drift_graph.item import Columns, sorted_by_meta
from drift_graph.policies import EventTime
from drift_graph.times import SourceMachine

Rows = list[dict[str, Any]]
ZEROMQ: dict[str, Any] = {"engine": "zeromq", "workers": 2}
BERLIN = "Europe/Berlin"

#: Types of the column of times, with a value for each small number; None and the last ones are times of no row.
KINDS: dict[str, tuple[Any, Any]] = {
    "int": (pl.Int64, lambda n: n),
    "least": (pl.Int64, lambda n: n - 2**63),
    "small": (pl.Int8, lambda n: n - 20),
    "unsigned": (pl.UInt64, lambda n: n + 2**63 - 30),
    "ms": (pl.Datetime("ms", "UTC"), lambda n: datetime(1969, 12, 31, 23, 59, 59, tzinfo=UTC) + timedelta(0, n / 8)),
    "us": (
        pl.Datetime("us", "UTC"),
        lambda n: datetime(1970, 1, 1, tzinfo=UTC) + timedelta(microseconds=333 * (n - 9)),
    ),
    "zone": (pl.Datetime("us", BERLIN), lambda n: datetime(2024, 10, 27, 0, tzinfo=UTC) + timedelta(0, n * 300)),
    "naive": (pl.Datetime("us"), lambda n: datetime(2024, 3, 31, 1, 50) + timedelta(0, n * 60)),
    "local": (pl.Datetime("us"), lambda n: datetime(2024, 3, 31, 1) + timedelta(0, n * 60)),
    "first": (pl.Datetime("us", "UTC"), lambda n: datetime(1, 1, 1, tzinfo=UTC) + timedelta(n // 9)),
    "text": (pl.String, lambda n: f"2024-01-01T00:00:{n:02}Z"),
    "float": (pl.Float64, float),
    "date": (pl.Date, lambda n: datetime(2024, 1, 1).date() + timedelta(n)),
}

small = st.integers(0, 40) | st.integers(0, 5)
numbers = st.lists(st.tuples(small, small | st.integers(0, 2)), max_size=30)
policies = st.fixed_dictionaries({
    "lateness": st.sampled_from([0, 3, 10, 50, 2000, 2**70]), "tie": st.sampled_from(["id", "id", "name", None]),
    "late": st.sampled_from(["error", "divert"]), "future_max": st.sampled_from([None, None, 0, 7]),
    "zone": st.sampled_from([None, "UTC", BERLIN]),
})  # fmt: skip


def frame_of(pairs: Sequence[tuple[Any, Any]], kind: str, nulls: Sequence[int] = ()) -> pl.DataFrame:
    dtype, value = KINDS[kind]
    values = [None if at in nulls else value(time) for at, (time, _) in enumerate(pairs)]
    ids = [None if at + 1 in nulls else tie for at, (_, tie) in enumerate(pairs)]
    columns = {"id": pl.Series(ids, dtype=pl.Int64), "at": pl.Series(values, dtype=dtype)}
    return pl.DataFrame({**columns, "name": [f"n{tie}" for _, tie in pairs]})


def taken(machine: SourceMachine, payloads: Any) -> tuple[object, ...]:
    arrived = machine.take(payloads)
    error = None if arrived.error is None else (type(arrived.error), str(arrived.error))
    ordered = sorted_by_meta(Columns(arrived.metas, arrived.payloads, None))
    late = [(each, dict(each.payload)) for each in arrived.late]
    found = list(arrived.metas), list(arrived.payloads), list(ordered.metas), list(ordered.payloads)
    return *found, arrived.heartbeat, late, error, machine.judging, machine.remembered()


@given(
    numbers,
    st.sampled_from([*KINDS, *["int"] * 9, "us"]),
    policies,
    st.sampled_from([(), (), (), (3,), (9,)]),
    st.integers(1, 12),
    st.sampled_from([{}, {}, {"diverting": True}, {"late_apart": True}, {"live": True}]),
)
@example([(5, -1), (6, -1)], "int", {"tie": "id"}, (), 2, {})
@example([(0, 1), (40, 2), (30, 3), (31, 3)], "int", {"tie": "id", "lateness": 9, "late": "divert"}, (), 2, {})
@example([(1, 1), (2, 2), (2, 2)], "int", {"tie": None}, (), 3, {})
@example([(1, 1), (1, 1)], "int", {"tie": None}, (), 1, {})
@example([(3, 1), (30, 2), (4, 3)], "int", {"tie": "id", "lateness": 9, "late": "divert"}, (), 3, {})
@example([(2**63 + 5, 1), (0, 2)], "least", {"tie": "id", "lateness": 2**62, "late": "divert"}, (), 2, {})
@example([(1, 1), (2**63 + 5, 2), (3, 3)], "least", {"tie": "id", "lateness": 2**62, "late": "divert"}, (), 3, {})
@example([(1, 1), (2, 2), (3, 3), (4, 4)], "int", {"tie": "name"}, (3,), 9, {})
@example([(1, 1), (2, 2), (3, 3), (4, 4)], "int", {"tie": "id"}, (1,), 9, {"diverting": True})
@example([(31, 1)], "unsigned", {}, (), 1, {})
@example([(1, 1), (5, 2), (0, 3)], "int", {"tie": "id", "late": "divert"}, (), 3, {"late_apart": True})
@example([(21, 1), (14, 2), (15, 2)], "int", {"tie": "id", "lateness": 3}, (), 1, {"late_apart": True})
def test_columns_give_the_metas_late_items_and_errors_of_dicts(
    pairs: list[tuple[int, int]],
    kind: str,
    policy: dict[str, Any],
    nulls: Sequence[int],
    batch_items: int,
    settings: dict[str, Any],
) -> None:
    frame = frame_of(pairs, kind, nulls)
    dicts = Frame(frame).values
    machines = [SourceMachine("rows", 0, EventTime("at", **policy), **settings) for _ in range(2)]
    for start in range(0, len(pairs), batch_items):
        some = slice(start, start + batch_items)
        by_columns, by_dicts = taken(machines[0], Frame(frame[some])), taken(machines[1], dicts[some])
        assert by_columns == by_dicts
        if by_dicts[6] is not None:
            return


@pytest.mark.parametrize("kind", ["int", "small", "ms", "us", "zone", "local", "text"])
@pytest.mark.parametrize("tie", ["id", "name", None])
def test_times_of_columns_are_found_at_once(kind: str, tie: str | None, monkeypatch: pytest.MonkeyPatch) -> None:
    """Or the test above would compare nothing."""
    monkeypatch.setattr(times_module, "times_of", None)
    policy = EventTime("at", tie=tie, lateness=10**7, future_max=10**7, zone=BERLIN)
    machine = SourceMachine("rows", 0, policy)
    for start in (0, 20):
        arrived = machine.take(Frame(frame_of([(start + at * 7 % 20, start + at) for at in range(20)], kind)))
        ordered = sorted_by_meta(Columns(arrived.metas, arrived.payloads, None))
        assert type(ordered.payloads) is Frame
        found = ordered.metas.times()
        assert list(found) == sorted(arrived.metas.times())
        assert list(found) == [policy.time_of(row["at"]) for row in ordered.payloads]


@pytest.mark.parametrize("tie", ["id", None])
def test_equal_rows_and_late_rows_are_found_at_once(tie: str | None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(times_module, "times_of", None)
    machine = SourceMachine("rows", 0, EventTime("at", tie=tie, lateness=9, late="divert"))
    equal = machine.take(Frame(frame_of([(1, 1), (1, 1), (2, 2), (1, 1)], "int")))
    assert [meta[-1] for meta in equal.metas] == [0, 1, 0, 2]
    late = machine.take(Frame(frame_of([(20, 5), (5, 9), (11, 6), (2, 2)], "int")))
    assert [each.time for each in late.late] == [5, 2] and [row["id"] for row in late.payloads] == [5, 6]
    assert type(late.payloads) is Frame
    assert machine.take(Frame(frame_of([(1, 7)], "int"))).payloads == []


def graph_of(tie: str | None, schema: Any, lateness: int) -> drift.Graph:
    graph = drift.Graph("timed")
    rows = graph.source("rows", schema=schema, time=EventTime("at", tie=tie, lateness=lateness))
    rows.key_by("name").window(drift.windows.tumbling(5)).aggregate(n=drift.agg.sum("id")).sink("out")
    rows.filter(pl.col("id") != 3).select("id", twice=pl.col("id") * 2).sink("selected")
    return graph


def table(frame: pl.DataFrame) -> Any:
    return drift.sources.table(frame, payload="rows")


def shuffled(count: int, step: int = 1) -> pl.DataFrame:
    random = np.random.default_rng(3)
    order = np.argsort(np.arange(count) + random.integers(0, 40, count))
    return frame_of([(at // 3, at) for at in range(count)], "int")[order]


@pytest.mark.long
@pytest.mark.parametrize("tie", ["id", None])
def test_rows_in_event_time_go_over_processes_and_resume_from_cuts(tie: str | None, tmp_path: Path) -> None:
    frame = shuffled(900)
    graph = graph_of(tie, frame.schema, 50)
    expected = list(drift.run(graph, {"rows": Frame(frame).values}, engine="reference"))
    run = drift.run(graph, {"rows": table(frame)}, batch_items=64, **ZEROMQ)
    assert list(run) == expected
    found: list[Any] = []
    for _ in range(9):  # each a run that stops after some more
        run = drift.run(graph, {"rows": table(frame)}, state=tmp_path / "state", batch_items=40)
        for item in run:
            found.append(item)
            if len(found) % 300 == 0:
                run.stop()
    assert found == expected


def test_times_of_a_fixed_offset_and_of_a_tie_function_are_those_of_dicts() -> None:
    offset = timezone(timedelta(hours=2))
    frame = frame_of([(at, at) for at in range(9)], "naive")
    for policy in (EventTime("at", zone=offset), EventTime("at", tie=lambda row: row["id"], zone="UTC")):
        machines = [SourceMachine("rows", 0, policy) for _ in range(2)]
        assert taken(machines[0], Frame(frame)) == taken(machines[1], Frame(frame).values)


EXPRESSIONS = {
    "int": pl.col("at") // 2 + pl.col("id"),
    "us": pl.col("at").dt.offset_by("1h"),
    "naive": pl.col("at").dt.replace_time_zone(BERLIN, ambiguous="earliest", non_existent="null"),
    "text": pl.col("at").str.replace("T", " "),
}
TIES = {"id": pl.col("id") * 2 + 1, "name": pl.col("name") + "!", None: None}


@given(numbers, st.sampled_from(list(EXPRESSIONS)), st.sampled_from(list(TIES)), st.integers(1, 12), st.booleans())
def test_expressions_give_the_metas_late_items_and_errors_of_dicts(
    pairs: list[tuple[int, int]], kind: str, tie: str | None, batch_items: int, is_null: bool
) -> None:
    frame = frame_of(pairs, kind, (3,) if is_null else ())
    graph = drift.Graph("timed")
    policy = EventTime(EXPRESSIONS[kind], lateness=50, tie=TIES[tie], late="divert", zone="UTC")
    graph.source("rows", schema=frame.schema, time=policy).sink("out")
    (source,) = graph.build().sources
    machines = [SourceMachine.of(source, 0) for _ in range(2)]
    for start in range(0, len(pairs), batch_items):
        some = frame[start : start + batch_items]
        by_columns, by_dicts = taken(machines[0], Frame(some)), taken(machines[1], Frame(some).values)
        assert by_columns == by_dicts
        if by_dicts[6] is not None:
            return


def test_times_by_expressions_are_found_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Or the test above would compare nothing; and they are those of the function that says the same."""
    frame = frame_of([(at * 7 % 20, at) for at in range(20)], "int")
    graph = drift.Graph("timed")
    policy = EventTime(pl.col("at") * 10, lateness=10**7, tie=pl.col("id") + 1)
    graph.source("rows", schema=frame.schema, time=policy).sink("out")
    same = EventTime(lambda row: row["at"] * 10, lateness=10**7, tie=lambda row: row["id"] + 1)
    expected = list(SourceMachine("rows", 0, same).take(Frame(frame).values).metas)
    monkeypatch.setattr(times_module, "times_of", None)
    arrived = SourceMachine.of(graph.build().sources[0], 0).take(Frame(frame))
    assert list(arrived.metas) == expected


def test_a_run_whose_times_are_expressions_is_the_same_on_each_engine() -> None:
    frame = frame_of([(at * 7 % 50, at) for at in range(200)], "int")
    graph = drift.Graph("timed")
    rows = graph.source("rows", schema=frame.schema, time=EventTime(pl.col("at") * 3, lateness=200, tie=pl.col("id")))
    rows.key_by("name").window(drift.windows.tumbling(9)).rows(n=drift.agg.sum("id")).sink("out")
    expected = list(drift.run(graph, {"rows": frame.to_dicts()}, engine="reference"))
    assert [item.meta for item in expected] == sorted(item.meta for item in expected) and len(expected) > 100
    for how in ({}, {"batch_items": 7}, ZEROMQ):
        assert list(drift.run(graph, {"rows": frame}, **how)) == expected


def test_a_time_by_an_expression_needs_the_fields() -> None:
    by_at = EventTime(pl.col("at"))
    with pytest.raises(drift.GraphError, match=r"source 'rows' .* an expression, and no schema="):
        drift.Graph("timed").source("rows", time=by_at)
    with pytest.raises(drift.GraphError, match="the field 'at', and the rows have 'as'"):
        drift.Graph("timed").source("rows", schema={"as": int}, time=by_at)
    graph = drift.Graph("timed")
    graph.source("rows").sink("out")
    with pytest.raises(drift.SettingsError, match=r"times\['rows'\] has an expression, and a run does not know"):
        drift.run(graph, {"rows": []}, times={"rows": by_at})


@pytest.mark.parametrize(
    ("policy", "says"),
    [
        (
            EventTime("att"),
            r"EventTime\(time=\.\.\.\) of source 'rows' .*'att', and the rows have .*mean 'at'",
        ),
        (EventTime("at", tie="id"), r"EventTime\(tie=\.\.\.\) .*has the field 'id', and the rows have 'at', 'trip'$"),
        (EventTime(pl.col("att") * 10), "has the field 'att', and the rows have 'at', 'trip'; did you mean 'at'"),
    ],
)
def test_a_time_of_a_field_that_the_rows_do_not_have_is_refused_where_it_is_written(policy: Any, says: str) -> None:
    schema = {"at": int, "trip": pl.Struct({"at": pl.Int64})}
    with pytest.raises(drift.GraphError, match=says):
        drift.Graph("times").source("rows", schema=schema, time=policy)
    graph = drift.Graph("times")
    graph.source("rows", schema=schema, time=EventTime("trip.at", tie="at")).sink("out")
    if not is_expression(policy.time):
        with pytest.raises(drift.GraphError, match=r"times\['rows'\] .*and the rows have 'at', 'trip'"):
            drift.run(graph, {"rows": []}, times={"rows": policy})
