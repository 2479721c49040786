"""Joins that give rows: the fields of both sides, in columns and in dicts."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import pandas as pd
import polars as pl
import pytest
from flows import ZEROMQ
from hypothesis import given, settings
from hypothesis import strategies as st

import drift
from drift.columns.lookups import lookup
from drift.columns.rows import Frame
from drift.flow.fields import key_of
from drift_graph.errors import GraphError

SCHEMA = {"zone": str, "day": int, "fare": float}
TABLE = {"zone": str, "day": int, "name": str}
Rows = list[dict[str, Any]]

zones = st.none() | st.sampled_from(["a", "b", "a text longer than a view"])
rows_of = st.lists(
    st.fixed_dictionaries({"zone": zones, "day": st.integers(0, 3), "fare": st.sampled_from([0.0, 2.5])}), max_size=30
)
table_of = st.lists(
    st.fixed_dictionaries({"zone": zones, "day": st.integers(0, 3), "name": st.none() | st.sampled_from("xyz")}),
    max_size=8,
)


def frame(rows: Rows, schema: dict[str, Any] = SCHEMA) -> pl.DataFrame:
    return pl.DataFrame(rows, schema=schema)


def table(rows: Rows, schema: dict[str, Any] = SCHEMA) -> Any:
    return drift.sources.table(frame(rows, schema), payload="rows")


def joined(rows: Rows, of_table: Rows, key: str, how: str, nulls_equal: bool) -> Rows:
    """What a loop gives."""
    other = "day" if key == "zone" else "zone"
    found = []
    for row in rows:
        matches = [each for each in of_table if each[key] == row[key] and (nulls_equal or row[key] is not None)]
        if not matches and how == "left":
            matches = [{other: None, "name": None}]
        found += [{**row, f"{other}_right": each[other], "name": each["name"]} for each in matches]
    return found


def digests(graph: drift.Graph, rows: Rows, batch_items: int) -> set[str]:
    runs = itertools.product((rows, table(rows)), ("reference", "local"))
    return {
        drift.run(graph, {"rows": source}, engine=engine, batch_items=batch_items).finish().digest
        for source, engine in runs
    }


@given(
    rows_of,
    table_of,
    st.sampled_from(["zone", "day"]),
    st.sampled_from(["left", "inner"]),
    st.integers(1, 20),
    st.booleans(),
)
def test_rows_are_joined_with_a_table_in_memory_as_in_a_loop(
    rows: Rows, of_table: Rows, key: str, how: Any, batch_items: int, nulls_equal: bool
) -> None:
    graph = drift.Graph("lookup")
    flat = graph.source("rows", schema=SCHEMA).join_table(
        frame(of_table, TABLE), key, on=key, how=how, flat=True, nulls_equal=nulls_equal
    )
    flat.sink("out")
    flat.select("fare", label=pl.col("name") + "!").sink("named")
    run = drift.run(graph, {"rows": table(rows)}, batch_items=batch_items)
    expected = joined(rows, of_table, key, how, nulls_equal)
    out = [item.payload for item in run if item.sink == "out"]
    assert out == expected and all(list(row) == list(flat.schema or ()) for row in out)
    assert digests(graph, rows, batch_items) == {run.digest}


@given(rows_of, st.lists(st.sampled_from(["a", "b", "c"]), unique=True, min_size=1), st.integers(1, 9))
def test_a_mapping_to_dicts_is_a_table_with_one_row_for_each_key(rows: Rows, of: list[str], batch_items: int) -> None:
    graph = drift.Graph("mapping")
    mapping = {key: {"name": key * 2, "zone": at} for at, key in enumerate(of)}
    flat = graph.source("rows", schema=SCHEMA).join_table(mapping, "zone", how="inner", flat=True)
    flat.sink("out")
    run = drift.run(graph, {"rows": table(rows)}, batch_items=batch_items)
    assert [item.payload for item in run] == [
        {**row, "name": row["zone"] * 2, "zone_right": of.index(row["zone"])} for row in rows if row["zone"] in of
    ]
    assert digests(graph, rows, batch_items) == {run.digest}


def test_keys_of_other_types_and_functions_find_their_rows() -> None:
    rows = [{"zone": "A", "day": at, "fare": at / 2} for at in range(6)]
    sizes = pd.DataFrame({"half": [0.5, 1.0, 2.0], "size": [1, 2, 3]})
    for key in ("fare", lambda row: row["day"] / 2):
        graph = drift.Graph("floats")
        graph.source("rows", schema=SCHEMA).join_table(sizes, key, on="half", flat=True, name="sized").sink("out")
        run = drift.run(graph, {"rows": table(rows)})
        found = [item.payload for item in run]
        assert [row["size"] for row in found] == [None, 1, 2, None, 3, None]
        assert ("half" in found[0]) is (key != "fare")
        assert digests(graph, rows, 4) == {run.digest}


def test_joined_rows_stay_columns_and_travel() -> None:
    rows = [{"zone": f"{at * 7 % 50}", "day": at % 5, "fare": 1.0} for at in range(200)]
    of_table = [{"zone": f"{at % 40}", "day": at, "name": "x"} for at in range(60)]
    function = lookup(
        frame(of_table, TABLE),
        "zone",
        tuple(frame([]).schema.items()),
        key_of("zone"),
        ("zone",),
        outer=True,
        nulls_equal=True,
        what="join",
    )
    found: Any = function.each(Frame(frame(rows)))
    counts, made = found.members
    assert isinstance(made, Frame) and sum(counts) == len(made) == len([row for each in found for row in each])
    graph = drift.Graph("lookup")
    source = graph.source("rows", schema=SCHEMA)
    source.join_table(frame(of_table, TABLE), "zone", on="zone", flat=True).sink("out")
    expected = drift.run(graph, {"rows": rows}, engine="reference").finish().digest
    assert drift.run(graph, {"rows": table(rows)}, **ZEROMQ).finish().digest == expected


JOINS: dict[str, Callable[..., Any]] = {
    "join": lambda left, right, how, **flat: left.join(right, "zone", how=how, **flat),
    "within": lambda left, right, how, **flat: left.join(right, "zone", within=(1, 1), how=how, **flat),
    "window": lambda left, right, how, **flat: left.join(
        right, "zone", within=drift.windows.tumbling(2), how=how, **flat
    ),
    "as of": lambda left, right, how, **flat: left.join_as_of(right, "zone", within=1, how=how, **flat),
    "table": lambda left, right, how, **flat: left.join_table(right, "zone", how=how, **flat),
}
HOWS = ["inner", "left", "right", "full"]


def graph_of(join: str, how: str) -> drift.Graph:
    """Pairs to one sink, and their rows to another."""
    graph = drift.Graph("joins")
    by_day = drift.EventTime("day", lateness=4)
    left = graph.source("rows", schema=SCHEMA, time=by_day)
    right = graph.table("table", schema=TABLE) if join == "table" else graph.source("table", schema=TABLE, time=by_day)
    how = how if join != "table" else HOWS[HOWS.index(how) % 2]
    JOINS[join](left, right, how, name="of two").sink("pairs")
    flat = JOINS[join](left, right, how, name="flat", flat=True)
    flat.sink("flat rows")
    flat.select("fare", "name").sink("some")
    return graph


@given(rows_of, table_of, st.sampled_from(list(JOINS)), st.sampled_from(HOWS), st.integers(1, 20))
@settings(max_examples=50)
def test_flat_rows_are_the_pairs(rows: Rows, of_table: Rows, join: str, how: str, batch_items: int) -> None:
    graph = graph_of(join, how)
    run = drift.run(graph, {"rows": rows, "table": of_table}, engine="reference")
    items = list(run)
    pairs, flat, some = (
        [item.payload for item in items if item.sink == sink] for sink in ("pairs", "flat rows", "some")
    )
    keeps_key = how in ("right", "full") and join != "table"
    expected = []
    for left, right in pairs:
        of_left = {name: None if left is None else left[name] for name in SCHEMA}
        of_right = right or dict.fromkeys(TABLE)
        key = {"zone_right": of_right["zone"]} if keeps_key else {}
        expected.append({**of_left, **key, "day_right": of_right["day"], "name": of_right["name"]})
    assert flat == expected and [list(row) for row in flat] == [list(row) for row in expected]
    assert some == [{"fare": row["fare"], "name": row["name"]} for row in flat]
    sources: list[dict[str, Any]] = [
        {"rows": rows, "table": of_table},
        {"rows": table(rows), "table": table(of_table, TABLE)},
        {"rows": table(rows), "table": of_table},
    ]
    for each in sources:
        assert drift.run(graph, each, batch_items=batch_items).finish().digest == run.digest


def test_fields_are_known_behind_joins() -> None:
    graph = drift.Graph("fields")
    left, right = graph.source("rows", schema=SCHEMA), graph.source("table", schema=TABLE)
    flat = left.join(right, "zone", flat=True).schema
    assert flat == {**pl.Schema(SCHEMA), "day_right": pl.Int64(), "name": pl.String()}
    assert left.join(right, "zone", how="semi").schema == pl.Schema(SCHEMA)
    assert left.join(right, "zone").schema is None
    keyed = left.key_by("zone").join(right.key_by("zone"), how="full", flat=True).schema
    assert keyed is not None and list(keyed) == ["zone", "day", "fare", "zone_right", "day_right", "name"]
    as_of = left.key_by("zone", "day").join_as_of(right.key_by("zone", "day"), flat=True).schema
    assert as_of is not None and list(as_of) == ["zone", "day", "fare", "name"]


@pytest.mark.parametrize(
    ("write", "says"),
    [
        (lambda rows, more: rows.join(more, "zone", how="anti", flat=True), "how='anti'.*no flat ones"),
        (lambda rows, more: rows.join(more.map(dict), "zone", flat=True), "join with flat=True.*those of .* not known"),
        (lambda rows, more: rows.map(dict).join_table({}, "zone", flat=True), "join_table with flat=True.*not known"),
        (lambda rows, more: rows.join_table({"a": 1}, "zone", flat=True), "dicts with the same fields"),
        (lambda rows, more: rows.join_table({"a": {"n": 1}, "b": {"m": 1}}, "zone", flat=True), "the same fields"),
        (lambda rows, more: rows.join_table({"a": {"n": 1}, "b": {"n": 0.5}}, "zone", flat=True), "can be columns"),
        (
            lambda rows, more: rows.with_columns(day_right="day").join(more, "zone", flat=True),
            "two fields 'day_right'; rename",
        ),
    ],
)
def test_what_cannot_be_flat_is_refused_when_the_step_is_written(write: Callable[..., Any], says: str) -> None:
    graph = drift.Graph("refused")
    with pytest.raises(GraphError, match=says):
        write(graph.source("rows", schema=SCHEMA), graph.source("more", schema=TABLE))


def test_a_row_with_other_fields_ends_the_run_at_its_item() -> None:
    graph = drift.Graph("bad")
    graph.source("rows", schema=SCHEMA).join_table({"a": {"n": 1}}, "zone", flat=True, name="joined").sink("out")
    rows = [{"zone": "a", "day": 1, "fare": 1.0}, {"zone": "a", "day": 1}]
    run = drift.run(graph, {"rows": rows})
    assert next(run).payload == {**rows[0], "n": 1}
    with pytest.raises(drift.InputError, match="item 1 of source 'rows'"):
        next(run)
