"""Joins of rows in arrays give the pairs that rows one by one give, with the same metas."""

from __future__ import annotations

import pickle
import random
from itertools import accumulate
from typing import Any

import polars as pl
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from in_step import check_in_step

import drift
from drift.columns import joined
from drift.columns.rows import Frame
from drift.columns.sided import Key, PairRows, SideRows, of_side
from drift.flow.fields import key_of
from drift.machines import joining
from drift.machines.checkpoints import DELETED
from drift.machines.plan import Plan
from drift_graph.canonical import canonical_each, hash64
from drift_graph.item import Columns
from drift_graph.meta import TIME_MIN, global_time
from drift_graph.metas import Metas
from drift_kernel import kernel

LEFT, RIGHT = {"zone": str, "day": int, "fare": float}, {"zone": str, "day": int, "name": str}
KEYS: list[tuple[str, ...]] = [("zone",), ("day",), ("zone", "day")]
JOINS = ["all", "table", "inner table", "as of", "inner as of", (0, 0), (2, 3), (9, 0), (0, 9)]
Rows = list[dict[str, Any]]

steps = st.lists(st.sampled_from([0, 0, 0, 1, 1, 2, 9]), min_size=40, max_size=40)
zones = st.none() | st.sampled_from(["a", "b", "a text longer than a view"])
rows_of = st.lists(
    st.tuples(
        st.integers(0, 1),
        st.fixed_dictionaries({"zone": zones, "day": st.integers(0, 2), "name": st.sampled_from("xyz")}),
    ),
    min_size=16,
    max_size=40,
)


def stage_of(join: Any, key: tuple[str, ...]) -> Any:
    graph = drift.Graph("joins")
    left, right = graph.source("left"), graph.table("right") if "table" in join else graph.source("right")
    if "table" in join:
        by = (lambda row: tuple(row[name] for name in key)) if len(key) > 1 else key[0]
        left.join_table(right, by, how="inner" if "inner" in join else "left").sink("out")
    elif "as of" in join:
        left.key_by(*key).join_as_of(right.key_by(*key), how="inner" if "inner" in join else "left").sink("out")
    else:
        left.key_by(*key).join(right.key_by(*key), within=None if join == "all" else join).sink("out")
    (stage,) = Plan(graph.build()).stages().values()
    return stage


def sided(rows: list[tuple[int, dict[str, Any]]], key: tuple[str, ...]) -> Any:
    """The rows of both sides in columns, in their order."""
    parts: list[SideRows] = []
    order: dict[int, int] = {}
    for side, schema in enumerate((LEFT, RIGHT)):
        own = [at for at, (of, _) in enumerate(rows) if of == side]
        order.update(zip(own, range(len(order), len(rows))))
        if own:
            frame = pl.DataFrame([rows[at][1] for at in own], schema=schema)
            parts.append(of_side(side, Key(key, key_of(*key)), Frame(frame)))
    together = parts[0].joined(parts[1:])
    assert together is not None
    return together.in_order([order[at] for at in range(len(rows))])


def row_of(side: int, row: dict[str, Any]) -> dict[str, Any]:
    if side:
        return {name: row[name] for name in RIGHT}
    return {"zone": row["zone"], "day": row["day"], "fare": len(row["name"]) / 2}


@given(rows=rows_of, key=st.sampled_from(KEYS), join=st.sampled_from(JOINS), apart=steps, data=st.data())
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=60)
def test_rows_in_arrays_are_joined_as_rows_one_by_one(
    monkeypatch: pytest.MonkeyPatch,
    rows: list[tuple[int, dict[str, Any]]],
    key: tuple[str, ...],
    join: Any,
    apart: list[int],
    data: st.DataObject,
) -> None:
    is_table = "table" in join
    if is_table:
        rows = sorted(rows, key=lambda row: -row[0])
    if is_table and len(key) > 1:
        return  # such a key is a function there, and so none of columns
    some_rows = [(side, row_of(side, row)) for side, row in rows]
    times = [TIME_MIN if is_table and side else time for (side, _), time in zip(some_rows, accumulate(apart))]

    def batch_of(at: int, end: int) -> tuple[Any, list[Any]]:
        batch = sided(some_rows[at:end], key)
        listed = [(side, key_of(*key)(row), row) for side, row in some_rows[at:end]]
        assert canonical_each(batch) == canonical_each(listed)
        return batch, listed

    check_in_step(lambda: stage_of(join, key), times, batch_of, PairRows, data, monkeypatch)


@pytest.mark.parametrize("seed", [0, 3, 4])
def test_left_rows_of_which_some_come_as_objects_find_no_later_right_row(seed: int) -> None:
    draw = random.Random(seed)
    graph, time = drift.Graph("mixed"), drift.EventTime("day", lateness=4)
    left, other, right = (graph.source(name, schema={"day": int, "v": int}, time=time) for name in "abc")
    both = left.merge(other.map(lambda row: dict(row))).key_by("v")
    both.join_as_of(right.key_by("v")).map(lambda pair: (pair[0]["day"], pair[1] and pair[1]["day"])).sink("out")
    days = {name: sorted(draw.randrange(60) for _ in range(120)) for name in "abc"}
    rows = {name: [{"day": day, "v": draw.randrange(2)} for day in each] for name, each in days.items()}
    tables = {name: drift.sources.table(pl.DataFrame(each)) for name, each in rows.items()}
    digest = drift.run(graph, rows, engine="reference").finish().digest
    for batch_items in (3, 5, 20):
        assert drift.run(graph, tables, batch_items=batch_items).finish().digest == digest


def test_keys_whose_rows_are_dropped_leave_the_checkpoints() -> None:
    stage = stage_of((2, 2), ("zone",))
    stage.track()
    stored: dict[Any, Any] = {}
    for at in range(0, 300, 10):
        rows = [
            (side, row_of(side, {"zone": f"{at + side}", "day": 1, "name": "x"})) for side in (0, 1) for _ in "abcde"
        ]
        metas = [global_time(at + number, 0, number, 0) for number in range(10)]
        stage.heartbeat = stage.complete_below = global_time(at + 10, 0, 0, 0)
        stage.process(Columns(Metas(metas), sided(rows, ("zone",)), None), {})
        stage.settle(stage.heartbeat)
        stored.update(stage.changed(stage.heartbeat))
        stored = {each: state for each, state in stored.items() if state is not DELETED}
        assert 0 < len(stored) < 10


def graph_of(join: Any, *, event_time: bool = True) -> drift.Graph:
    graph = drift.Graph("joins")
    by_day = drift.EventTime("day", lateness=3) if event_time else None
    left = graph.source("left", schema=LEFT, time=by_day)
    if join == "table":
        flat = left.join_table(graph.table("right", schema=RIGHT), "zone", flat=True)
    else:
        right = graph.source("right", schema=RIGHT, time=by_day)
        if join == "as of":
            flat = left.join_as_of(right, "zone", flat=True)
        else:
            flat = left.join(right, "zone", within=None if join == "all" else join, flat=True)
    flat.sink("out")
    flat.select("fare", word=pl.col("name") + "!").sink("some")
    return graph


def sources(left: Rows, right: Rows) -> dict[str, Any]:
    return {
        name: drift.sources.table(pl.DataFrame(rows, schema=schema), payload="rows")
        for name, rows, schema in (("left", left, LEFT), ("right", right, RIGHT))
    }


def many(count: int) -> tuple[Rows, Rows]:
    left = [{"zone": f"{at * 7 % 50}", "day": at // 3 + at % 2, "fare": at / 2} for at in range(count)]
    return left, [{"zone": f"{at * 9 % 40}", "day": at // 3, "name": f"{at}"} for at in range(count)]


@pytest.mark.parametrize("join", ["all", "table", "as of", (5, 5), (0, 1)])
def test_joined_rows_stay_in_arrays(join: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Or the law above would compare nothing."""
    left, right = many(300)
    graph = graph_of(join)
    plain = drift.run(graph, {"left": left, "right": right}, engine="reference").finish()

    def never(self: object, *given: Any) -> Any:
        raise AssertionError(f"{self} made objects")

    monkeypatch.setattr(SideRows, "values", property(never))
    monkeypatch.setattr(PairRows, "_made_values", never)
    for form in (joining.JoiningRows, joining.WaitingRows):
        monkeypatch.setattr(form, "_states_of", never)
    assert drift.run(graph, sources(left, right), batch_items=64).finish().digest == plain.digest


@pytest.mark.parametrize("new_numbers", [False, True])
def test_keys_with_new_numbers_meet_the_same_rows(new_numbers: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    left, right = many(600)
    graph = graph_of((3, 3))
    plain = drift.run(graph, {"left": left, "right": right}, engine="reference").finish()
    numbered = []
    anew = joined.Joined._number_anew
    monkeypatch.setattr(joined.Joined, "_number_anew", lambda self, keys: numbered.append(keys) or anew(self, keys))
    monkeypatch.setattr(joined, "UNUSED_MIN", -99 if new_numbers else 1 << 16)
    assert drift.run(graph, sources(left, right), batch_items=16).finish().digest == plain.digest
    assert bool(numbered) is new_numbers


def test_keys_that_are_no_columns_are_left_to_objects() -> None:
    left, right = many(100)
    graph = drift.Graph("floats")
    by_day = drift.EventTime("day", lateness=3)
    one = graph.source("left", schema=LEFT, time=by_day)
    one.join(graph.source("right", schema=RIGHT, time=by_day), "fare", lambda row: len(row["name"]) / 2).sink("out")
    plain = drift.run(graph, {"left": left, "right": right}, engine="reference").finish()
    assert plain.items_out
    assert drift.run(graph, sources(left, right), batch_items=16).finish().digest == plain.digest


@pytest.mark.parametrize("join", JOINS)
def test_joins_wait_until_nothing_comes_below_their_rows_and_correct_nothing(join: Any) -> None:
    assert stage_of(join, ("zone",)).has_columns


@given(rows_of, st.sampled_from(KEYS), st.data())
def test_rows_of_both_sides_travel_as_columns_to_the_owners_of_their_keys(
    rows: Any, key: tuple[str, ...], data: st.DataObject
) -> None:
    if not rows:
        return
    batch = sided(rows, key)
    start = data.draw(st.integers(0, len(rows) - 1))
    some = batch[start : data.draw(st.integers(start + 1, len(rows)))]
    travelled = pickle.loads(pickle.dumps(some))
    assert type(travelled) is SideRows
    assert travelled.values == some.values
    assert travelled.joined([batch]).values == [*some.values, *batch.values]
    owners = travelled.remainders((), 3)
    assert owners is None or list(owners) == [hash64(each[1]) % 3 for each in some.values]
    assert (owners is None) is (kernel is None)
