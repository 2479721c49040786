"""Aggregates of rows in columns, running and in windows, are those of adding row by row, to the last bit."""

from __future__ import annotations

import itertools
import math
from collections import Counter
from collections.abc import Callable
from functools import reduce
from operator import add
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
from columns import meta_at
from flows import ZEROMQ
from hypothesis import example, given, settings
from hypothesis import strategies as st
from strategies import noisy

import drift
from drift.columns import aggregates
from drift.columns import rows as rows_module
from drift.columns.groups import values_by_key
from drift.columns.rows import Frame
from drift.engines.simulated.simulation import Simulation
from drift.flow.accumulators import Aggregate, _LeavesOutNone
from drift.flow.fields import function_of
from drift.flow.running import RunningStep
from drift.flow.windows import NumberedStep
from drift.machines.keyed import KeyedStage
from drift.machines.plan import Plan
from drift_graph.canonical import canonical, canonical_each, encode_many
from drift_graph.errors import GraphError
from drift_graph.item import Columns
from drift_graph.meta import END_OF_TIME, varint
from drift_graph.metas import Metas
from drift_kernel import kernel

SCHEMA = {"zone": str, "day": int, "n": int, "fare": float}
Rows = list[dict[str, Any]]
KEYS: list[tuple[str, ...]] = [("zone",), ("day",), ("zone", "day")]
AGGREGATES: dict[str, Callable[[], Aggregate[Any, Any]]] = {
    "count": drift.agg.count,
    "total": lambda: drift.agg.sum("fare"),
    "whole": lambda: drift.agg.sum("n"),
    "mean": lambda: drift.agg.mean("fare"),
    "of whole": lambda: drift.agg.mean("n"),
    "least": lambda: drift.agg.min("fare"),
    "n": lambda: drift.agg.max("n"),
    "function": lambda: drift.agg.sum(lambda row: (row["n"] or 0) % 3),
    "spread": lambda: drift.agg.std("fare"),
    "last": drift.agg.last,
    "nearest": lambda: drift.agg.min_by("n"),
    "zones": lambda: drift.agg.distinct_count("zone"),
    "about": lambda: drift.agg.approximate_distinct_count("zone"),
    "days": lambda: drift.agg.collect("day"),
    "some": lambda: drift.agg.count(lambda row: row["n"] and row["n"] > 3),
    "dearest": lambda: drift.agg.max_by("fare"),
    "first": drift.agg.first,
    "reduced": lambda: drift.agg.reduce(lambda one, other: {**one, "fare": other["fare"]}),
    "twice": lambda: drift.agg.sum(pl.col("fare") * 2 + pl.col("n")),
    "thirds": lambda: drift.agg.mean(pl.col("n") // 3),
    "most": lambda: drift.agg.max(pl.col("n") % 7),
    "dear": lambda: drift.agg.count(pl.col("fare") > 3),
    "least n": lambda: drift.agg.max_by(-pl.col("day")).then(lambda row: row["n"]),
    "first day": lambda: drift.agg.first("day"),
    "last fare": lambda: drift.agg.last(pl.col("fare") * 2),
    "first sum": lambda: drift.agg.first(lambda row: row["n"] and row["n"] + row["day"]),
    "whole first": lambda: drift.agg.first("n"),
    "thirds of fares": lambda: drift.agg.quantile([1 / 3, 1.0], "fare"),
    "two": lambda: drift.agg.top(2, "fare").then(lambda rows: tuple(row["n"] for row in rows)),
    "places": lambda: drift.agg.distinct_count(pl.col("zone").fill_null("-")),
}
WINDOWS = {
    "tumbling": drift.windows.tumbling(7),
    "small": drift.windows.tumbling(1),
    "with their ends": drift.windows.tumbling(7, 2, closed="right"),
    "sliding": drift.windows.sliding(9, every=4),
    "apart": drift.windows.sliding(3, every=5),
    "calendar": drift.windows.calendar("1d"),
    "session": drift.windows.session(gap=2),
    "count": drift.windows.count(3),
}
over_of = st.none() | st.sampled_from(list(WINDOWS))

fares = st.floats(-1e3, 1e3) | st.sampled_from([None, None, 0.1, 1e16, -1e16, 0.0, -0.0, math.inf, math.nan])
whole = st.integers(-9, 300) | st.sampled_from([None, None, 2**53 + 1, 2**62, -(2**62), 2**63 - 1])
rows_of = st.lists(
    st.fixed_dictionaries(
        {"zone": st.none() | st.sampled_from("abé"), "day": st.integers(0, 2), "n": whole, "fare": fares}
    ),
    max_size=40,
)
tame = st.lists(
    st.fixed_dictionaries(
        {
            "zone": st.sampled_from("abé"),
            "day": st.integers(0, 2),
            "n": st.integers(-9, 300),
            "fare": st.floats(1e-9, 9),
        }
    ),
    max_size=40,
)
names_of = st.lists(st.sampled_from(list(AGGREGATES)), min_size=1, max_size=4, unique=True)


def of_zone_a(values: list[tuple[int, float]]) -> Rows:
    return [{"zone": "a", "day": 1, "n": n, "fare": fare} for n, fare in values]


def graph_of(key: tuple[str, ...], names: list[str], over: str | None = None, by: str | None = None) -> drift.Graph:
    """
    Args:
        over: the windows; None for running aggregates.
        by: the field with the time; None for the order of the rows.
    """
    graph = drift.Graph("running")
    time = None if by is None else drift.EventTime(by, lateness=400)
    keyed = graph.source("rows", schema=SCHEMA, time=time).key_by(*key)
    named = {name: AGGREGATES[name]() for name in names}
    if over == "rolling":
        rows = keyed.rolling(20, closed="left", **named)
    else:
        rows = keyed.running(name="running", **named) if over is None else keyed.window(WINDOWS[over]).rows(**named)
    rows.sink("out")
    return graph


def table(rows: Rows) -> Any:
    return drift.sources.table(pl.DataFrame(rows, schema=SCHEMA), payload="rows")


@given(rows_of | tame, st.sampled_from(KEYS), names_of, st.integers(1, 20), over_of, st.sampled_from([None, "day"]))
@example(of_zone_a([(1, 0.1), (1, 0.2), (1, 0.3), (1, 1e16), (1, 1.0)]), ("zone",), ["total"], 2, None, None)
@example(of_zone_a([(1, 0.1), (1, 0.2), (1, 0.3), (1, 1e16), (1, 1.0)]), ("zone",), ["total"], 2, "tumbling", None)
@example(of_zone_a([(1, -0.0)]), ("zone",), ["total"], 2, None, None)
@example(of_zone_a([(2, 2.0), (1, 1.0), (3, 3.0)]), ("zone",), ["least", "n"], 9, None, None)
@example(of_zone_a([(1, -0.0)]), ("zone",), ["total"], 2, "tumbling", None)
@example(of_zone_a([(2**62, 0.1)] * 3), ("zone",), ["whole"], 9, None, None)
@example(of_zone_a([(2**62, 0.1)] * 3), ("zone",), ["whole"], 9, "tumbling", None)
@example(of_zone_a([(2**53 + at, 1.0) for at in (1, 2, 4)]), ("zone",), ["of whole"], 9, None, None)
@example(of_zone_a([(2**53 + at, 1.0) for at in (0, 0, 3)]), ("zone",), ["of whole"], 9, "tumbling", None)
@example([{"zone": each, "day": 1, "n": 1, "fare": 1.0} for each in "abba"], ("zone",), ["count"], 1, "tumbling", None)
@example(of_zone_a([(1, 0.0), (1, -0.0)]), ("day",), ["least"], 9, None, None)
@example(of_zone_a([(1, 0.0), (1, -0.0)]), ("day",), ["least"], 9, "tumbling", None)
@example(of_zone_a([(1, 1.0), (1, math.nan), (1, 0.5)]), ("day",), ["least"], 9, None, None)
@example(of_zone_a([(1, 1.0), (1, math.nan), (1, 0.5)]), ("day",), ["least"], 9, "tumbling", None)
@example(of_zone_a([(at % 4, 1.0) for at in range(20)]), ("day",), ["n", "count", "last"], 9, "tumbling", "n")
@example(
    [{"zone": "a", "day": at % 3, "n": at, "fare": 1.0 * at} for at in range(6)],
    ("zone",),
    ["first day", "last fare"],
    2,
    "tumbling",
    None,
)
def test_rows_and_dicts_have_one_digest_on_each_engine(
    rows: Rows, key: tuple[str, ...], names: list[str], batch_items: int, over: str | None, by: str | None
) -> None:
    graph = graph_of(key, names, over, by)
    plain = drift.run(graph, {"rows": rows}, engine="reference").finish()
    for source, engine in itertools.product((rows, table(rows)), ("local", "reference")):
        assert (
            drift.run(graph, {"rows": source}, engine=engine, batch_items=batch_items).finish().digest == plain.digest
        )


@given(
    st.lists(st.tuples(st.sampled_from("ab"), st.integers(0, 9), st.none() | st.integers(-5, 5)), max_size=14),
    st.integers(1, 5),
    st.sampled_from(["right", "left", "both", "none"]),
    st.integers(-7, 7) | st.just(0),
    st.data(),
)
@settings(max_examples=24)
def test_rows_roll_over_those_of_a_span_before_them(
    drawn: list[tuple[str, int, int | None]], span: int, closed: Any, offset: int, data: st.DataObject
) -> None:
    rows = [{"zone": zone, "day": day, "n": n, "fare": 0.0} for zone, day, n in drawn]
    graph = drift.Graph("rolling")
    keyed = graph.source("rows", schema=SCHEMA, time=drift.EventTime("day", lateness=10)).key_by("zone")
    rolled = keyed.rolling(span, closed=closed, offset=offset, total=drift.agg.sum("n"), rows=drift.agg.count())
    rolled.with_columns(rows=pl.col("rows") * 1).sink("out")
    expected = []
    for row in rows:
        day = row["day"] + offset
        first, end = day - span + (closed in ("right", "none")), day + (closed in ("right", "both"))
        inside = [each["n"] for each in rows if each["zone"] == row["zone"] and first <= each["day"] < end]
        values = [each for each in inside if each is not None]
        expected.append({**row, "total": sum(values) if values else None, "rows": len(inside)})
    run = drift.run(graph, {"rows": rows}, engine="reference")
    assert sorted(repr(item.payload) for item in run) == sorted(map(repr, expected))
    for source in (rows, table(rows)):
        assert drift.run(graph, {"rows": source}, batch_items=5).finish().digest == run.digest
    simulated = Simulation(graph.build(), {"rows": rows}, noisy(data), workers=2, batch_items=3).run()
    assert simulated.error is None and simulated.digest == run.digest


values_of = st.none() | st.integers(-3, 3) | st.just(math.nan)


@given(
    st.lists(st.tuples(st.sampled_from("ab"), values_of), max_size=12),
    st.tuples(st.integers(0, 3), st.integers(0, 3), st.integers(1, 4), st.booleans()),
    st.data(),
)
@settings(max_examples=12)
def test_rows_of_a_frame_and_places_in_a_window_are_those_of_sql_on_each_engine(
    drawn: list[tuple[str, Any]], sizes: tuple[int, int, int, bool], data: st.DataObject
) -> None:
    import duckdb

    preceding, following, parts, descending = sizes
    rows = [{"at": at, "zone": zone, "n": n} for at, (zone, n) in enumerate(drawn)]
    graph = drift.Graph("frames")
    source = graph.source("rows", time=drift.EventTime("at"))
    keyed, agg = source.key_by("zone"), drift.agg
    frame = drift.windows.rows(preceding, following)
    keyed.rolling(frame, rows=agg.count(), ns=agg.count("n"), next=agg.nth(min(preceding, 1), "n")).sink("frames")
    places = {"number": agg.row_number("n", descending), "rank": agg.rank("n", descending)}
    places |= {"dense": agg.dense_rank("n", descending), "part": agg.ntile(parts, "n", descending)}
    keyed.window(drift.windows.tumbling(5)).each(**places, all=agg.count()).sink("places")
    source.cross_join(graph.table("table")).sink("pairs")
    source.cross_join(list("yxy")).sink("listed")
    inputs = {"rows": rows, "table": list("yxy")}
    run = drift.run(graph, inputs, engine="reference")
    found: dict[str, list[Any]] = {"frames": [], "places": [], "pairs": [], "listed": []}
    for item in run:
        found[item.sink].append(item.payload)
    for name, order in (("listed", "yxy"), ("pairs", "xyy")):  # a table's order depends on the bytes of its rows
        assert list(map(repr, found[name])) == [repr((row, each)) for row in rows for each in order]
    for noise in (None, noisy(data)):
        if noise is None:
            assert drift.run(graph, inputs, batch_items=3).finish().digest == run.digest
        else:
            simulated = Simulation(graph.build(), inputs, noise, workers=2, batch_items=3).run()
            assert simulated.error is None and simulated.digest == run.digest
    if not rows:
        return
    connection = duckdb.connect()
    connection.execute("CREATE TABLE input (moment BIGINT, zone TEXT, n DOUBLE)")
    connection.executemany("INSERT INTO input VALUES (?, ?, ?)", [list(row.values()) for row in rows])
    by = f"PARTITION BY zone, moment // 5 ORDER BY (n IS NULL), isnan(n), n {'DESC' if descending else 'ASC'}"
    nth = f"nth_value(n, {min(preceding, 1) + 1}) OVER f"
    query = f"""SELECT moment, count(*) OVER f, count(n) OVER f, {nth}, row_number() OVER ({by}, moment),
        rank() OVER ({by}), dense_rank() OVER ({by}), ntile({parts}) OVER ({by}, moment),
        count(*) OVER (PARTITION BY zone, moment // 5) FROM input WINDOW f AS (
            PARTITION BY zone ORDER BY moment ROWS BETWEEN {preceding} PRECEDING AND {following} FOLLOWING
        ) ORDER BY moment"""
    expected = connection.execute(query).fetchall()
    frames = {row["at"]: [row["rows"], row["ns"], row["next"]] for row in found["frames"]}
    places_of = {row["at"]: [row[name] for name in (*places, "all")] for row in found["places"]}
    made = [(at, *frames[at], *places_of[at]) for at in sorted(frames)]
    assert [[str(each) if each != each else each for each in row] for row in made] == [
        [str(each) if each != each else each for each in row] for row in expected
    ]


@pytest.mark.parametrize("settings", [{}, {"batch_items": 3}, {"engine": "reference"}])
def test_expressions_go_on_behind_the_rows_of_windows_with_their_places(settings: dict[str, Any]) -> None:
    graph = drift.Graph("shares")
    source = graph.source("rows", schema={"zone": str, "n": float}).key_by("zone")
    dear = drift.agg.count(pl.col("n") > 3)
    rows = source.window(drift.windows.count(2)).each(
        place=drift.agg.rank("n", descending=True), total=drift.agg.sum("n"), dear=dear, ns=drift.agg.count("n")
    )
    assert list(rows.schema) == ["zone", "n", "total", "dear", "ns", "place"]
    rows.filter(pl.col("place") == 1).select("zone", "dear", "ns", share=pl.col("n") / pl.col("total")).sink("out")
    inputs = [{"zone": zone, "n": n} for zone, n in (("a", 1.0), ("b", 6.0), ("a", 3.0), ("b", None))]
    assert [item.payload for item in drift.run(graph, {"rows": inputs}, **settings)] == [
        {"zone": "a", "dear": 0, "ns": 2, "share": 0.75},
        {"zone": "b", "dear": 1, "ns": 1, "share": 1.0},
    ]


IN_COLUMNS = [*list(AGGREGATES)[:7], "twice", "thirds", "most"]
names_in_columns = st.lists(st.sampled_from(IN_COLUMNS), min_size=1, max_size=4, unique=True)


@given(tame | rows_of, names_in_columns | names_of, st.sampled_from(["tumbling", "small", "calendar"]), st.data())
def test_windows_of_rows_in_any_order_are_those_of_dicts(
    rows: Rows, names: list[str], over: str, data: st.DataObject
) -> None:
    """Rows and dicts in turn come to one machine: nothing may come below some batches, and below others rows do. Ends
    may pass before their rows are there, and the machine may have to go back to what is complete.
    """
    graph = drift.Graph("windows")
    named = {name: AGGREGATES[name]() for name in names}
    key = data.draw(st.sampled_from(KEYS))
    windows = graph.source("rows", schema=SCHEMA).key_by(*key).window(WINDOWS[over])
    windows.aggregate(**named).sink("out") if data.draw(st.booleans()) else windows.aggregate(named.popitem()[1]).sink(
        "out"
    )
    (stage,) = Plan(graph.build()).stages().values()
    assert isinstance(stage, KeyedStage)
    stage.track()
    sent: Counter[tuple[bytes, bytes]] = Counter()

    def send(out: Columns) -> None:
        for place, diff in zip(zip(out.metas, canonical_each(out.payloads)), out.diffs or [1] * len(out.metas)):
            sent[place] += diff

    come = data.draw(st.sampled_from(["in columns", "in order", "in any order"]))
    stays = come == "in columns"  # and in order, so that windows stay in arrays from batch to batch
    in_order = come != "in any order"
    left: Any = list(range(len(rows)) if in_order else data.draw(st.permutations(range(len(rows)))))
    while left:
        size = data.draw(st.integers(1, min(len(left), 3 if in_order else 99)))
        batch, left = sorted(left[:size]), left[size:]
        if in_order or data.draw(st.booleans()):
            stage.complete_below = meta_at(min(left, default=len(rows)))
        some: Any = [rows[at] for at in batch]
        metas: Any = [meta_at(at) for at in batch]
        if stays or data.draw(st.booleans()):
            some = Frame(pl.DataFrame(some, schema=SCHEMA))
            if data.draw(st.booleans()):
                metas = Metas.stamped(np.array(batch, np.int64), np.zeros(len(batch), np.uint64), varint(0), varint(0))
        send(stage.process(Columns(Metas(metas), some, None), {}))
        if data.draw(st.booleans()):
            heartbeat = data.draw(st.integers(min(left, default=len(rows)), len(rows) + 7))
            stage.heartbeat = max(stage.heartbeat, meta_at(heartbeat))
            send(stage.fire({}))
        if data.draw(st.integers(0, 5)) == 0:
            checkpoint = stage.complete_below or meta_at(0)
            stage.settle(checkpoint)
            if data.draw(st.booleans()):
                stage.changed(checkpoint)
            else:
                stage.rewind(checkpoint)
                sent = Counter({place: diff for place, diff in sent.items() if place[0] < checkpoint})
                left = [at for at in range(len(rows)) if at in left or meta_at(at) >= checkpoint]
                left = data.draw(st.just(left) | st.permutations(left))
    stage.heartbeat = END_OF_TIME
    send(stage.fire({}))
    expected = [canonical(item.payload) for item in drift.run(graph, {"rows": rows}, engine="reference")]
    assert set(sent.values()) <= {0, 1}
    assert [form for (_, form), diff in sorted(sent.items()) if diff] == expected


def test_windows_in_arrays_end_where_dicts_begin_others() -> None:
    rows = [{"zone": "ab"[at % 2], "day": 1, "n": at, "fare": 1.0} for at in range(35)]
    graph = graph_of(("zone",), ["count"], over="tumbling")
    (stage,) = Plan(graph.build()).stages().values()
    sent: list[tuple[bytes, bytes]] = []
    for start in range(0, len(rows), 7):
        some: Any = rows[start : start + 7]
        stage.complete_below = meta_at(start + 7)
        as_rows = Frame(pl.DataFrame(some, schema=SCHEMA)) if start % 2 == 0 else some
        out = stage.process(Columns(Metas([meta_at(start + at) for at in range(7)]), as_rows, None), {})
        sent += zip(out.metas, canonical_each(out.payloads))
    assert len(sent) == 8 and len(set(sent)) == 8, "all but those of the last batch"
    ends = [each.payload["end"] for each in drift.run(graph, {"rows": rows}, engine="reference")]
    assert ends == [end for end in (7, 14, 21, 28, 35) for _ in "ab"]


sizes = st.sampled_from([(1, 1), (2, 2), (3, 3), (7, 7), (2, 1), (3, 2), (7, 3), (4, 2), (2, 3)])


@given(tame | rows_of, st.sampled_from(KEYS), names_in_columns, sizes, st.integers(1, 20))
@example([{"zone": "a", "day": 0, "n": 0, "fare": fare} for fare in (None, 1.0, None)], ("zone",), ["least"], (2, 1), 9)
def test_windows_by_number_of_rows_are_those_of_dicts(
    rows: Rows, key: tuple[str, ...], names: list[str], size: tuple[int, int], batch_items: int
) -> None:
    graph = drift.Graph("windows")
    windows = graph.source("rows", schema=SCHEMA).key_by(*key).window(drift.windows.count(*size))
    windows.rows(**{name: AGGREGATES[name]() for name in names}).sink("flat")
    windows.aggregate(AGGREGATES[names[0]]()).sink("out")
    expected = list(drift.run(graph, {"rows": rows}, engine="reference"))
    found = list(drift.run(graph, {"rows": table(rows)}, batch_items=batch_items))
    assert encode_many([item.payload for item in found]) == encode_many([item.payload for item in expected])
    assert [item.meta for item in found] == [item.meta for item in expected]


@pytest.mark.parametrize("fares", [[-0.0] * 4, [1.5, -0.0, -0.0, -0.0]])
@pytest.mark.parametrize("numbers", [[2**62] * 4, [2**52, 1, 2**53, 1], [-(2**62), -(2**62), -1, 3]])
def test_sums_of_windows_by_number_are_those_of_python(fares: list[float], numbers: list[int]) -> None:
    rows = [{"zone": "a", "day": 0, "n": n, "fare": fare} for n, fare in zip(numbers, fares)]
    graph = drift.Graph("windows")
    windows = graph.source("rows", schema=SCHEMA).key_by("zone").window(drift.windows.count(4))
    windows.rows(n=drift.agg.sum("n"), fare=drift.agg.sum("fare")).sink("out")
    for batch_items in (1, 3, 4):
        (found,) = [item.payload for item in drift.run(graph, {"rows": table(rows)}, batch_items=batch_items)]
        assert found["n"] == sum(numbers) and repr(found["fare"]) == repr(reduce(add, fares))


@pytest.mark.skipif(kernel is None, reason="without the kernel they are counted one by one")
@given(tame.filter(len), st.integers(1, 3))
def test_tame_rows_are_counted_into_windows_in_columns(rows: Rows, size: int) -> None:
    """Or the test above would compare nothing."""
    step = NumberedStep(function_of("key", "zone"), drift.agg.mean("fare"), size, size)
    table = step.table
    for some in (rows, rows):
        batch = step.in_columns(Frame(pl.DataFrame(some, schema=SCHEMA)))
        assert batch is not None
        codes, keys, values = batch
        *ended, are_arrays = table.add(codes, keys, values, True)
        table.keep()
        made = step.windows_in_columns(codes, keys, *ended)
        assert are_arrays and made is not None and len(made) == len(some)


@given(tame, st.data())
def test_rows_in_any_order_are_corrected(rows: Rows, data: st.DataObject) -> None:
    """Columns are for what nothing can come below any more; what may be corrected is added row by row."""
    graph = graph_of(("zone",), ["total", "count"])
    (stage,) = Plan(graph.build()).stages().values()
    assert isinstance(stage, KeyedStage)
    sent: dict[tuple[bytes, bytes], int] = {}
    left = data.draw(st.permutations(range(len(rows))))
    while left:
        size = data.draw(st.integers(1, len(left)))
        batch, left = sorted(left[:size]), left[size:]
        if data.draw(st.booleans()):  # or what is known comes later than the batch
            stage.complete_below = meta_at(min(left, default=len(rows)))
        frame = Frame(pl.DataFrame([rows[at] for at in batch], schema=SCHEMA))
        out = stage.process(Columns(Metas([meta_at(at) for at in batch]), frame, None), {})
        for place, diff in zip(zip(out.metas, canonical_each(out.payloads)), out.diffs or [1] * len(out.metas)):
            sent[place] = sent.get(place, 0) + diff
    expected = [canonical(item.payload) for item in drift.run(graph, {"rows": rows}, engine="reference")]
    assert {place: diff for place, diff in sent.items() if diff} == {
        (meta_at(at), form): 1 for at, form in enumerate(expected)
    }


@pytest.mark.skipif(kernel is None, reason="without the kernel rows are added one by one")
@given(st.lists(st.tuples(st.sampled_from([0, 0, 0, 0, 0, 0, 0, 1, 2, 3]), st.floats(-9, 9)), min_size=1, max_size=200))
def test_values_are_added_in_order(drawn: list[tuple[int, float]]) -> None:
    codes, values = (np.array(each) for each in zip(*drawn))
    totals: dict[int, float] = {}
    expected = [totals.__setitem__(key, totals.get(key, 0.5) + value) or totals[key] for key, value in drawn]
    assert kernel is not None
    ((made,), have_one), last = kernel.Accumulators("sum").running(codes, values, None, [0.5] * 64)
    assert made.tolist() == expected and last == [totals.get(key, 0.5) for key in range(64)] and have_one is None


TEXTS = st.text("ab\0é", max_size=4) | st.text("ab", max_size=3).map("aaaaaaaaé{}".format)  # up to 13 bytes


@given(st.lists(TEXTS, min_size=1, max_size=20) | st.lists(TEXTS | st.none(), min_size=1), st.integers(0, 3))
def test_texts_have_numbers_in_the_order_of_their_first_rows(texts: list[str | None], start: int) -> None:
    rows = Frame(pl.DataFrame({"of": ["", *texts, "b"]}, schema={"of": str}))[min(start, len(texts)) :]
    expected = list(dict.fromkeys(row["of"] for row in rows))
    codes, values = aggregates.codes_of(rows, ["of"]) or (np.zeros(0), [])
    assert values == expected and codes.tolist() == [expected.index(row["of"]) for row in rows]


def test_many_different_texts_have_numbers() -> None:
    texts = [f"text {at % 3000}" for at in range(0, 70_000, 7)]
    expected = list(dict.fromkeys(texts))
    codes, values = aggregates.codes_of(Frame(pl.DataFrame({"of": texts})), ["of"]) or (np.zeros(0), [])
    assert values == expected and [values[code] for code in codes.tolist()] == texts


@given(tame.filter(len), st.sampled_from([(), *KEYS]))
def test_tame_rows_are_added_to_windows_in_columns(rows: Rows, key: tuple[str, ...]) -> None:
    """Or the tests above would compare nothing."""
    parts = [AGGREGATES[name]() for name in list(AGGREGATES)[:7]]
    batch = values_by_key(Frame(pl.DataFrame(rows, schema=SCHEMA)), key, parts)
    assert batch is not None
    codes, keys, values = batch
    of_rows = [tuple(row[name] for name in key) for row in rows]
    assert codes.tolist() == [list(dict.fromkeys(of_rows)).index(each) for each in of_rows]
    assert len(keys) == len(set(of_rows))
    assert [type(each) for each, *_ in values] == [type(None), *[np.ndarray] * 6]


@pytest.mark.skipif(kernel is None, reason="the arrays are the kernel's")
@pytest.mark.parametrize("over", ["tumbling", "sliding", "session", "count"])
@pytest.mark.parametrize("as_table", [True, False])
def test_nulls_leave_windows_in_arrays(over: str, as_table: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    rows = [
        {"zone": "ab"[at % 2], "day": at // 4 * 3, "n": None if at % 3 else at, "fare": None if at % 20 > 5 else at / 7}
        for at in range(60)
    ]
    graph = graph_of(("zone",), ["total", "whole", "mean", "of whole", "least", "n", "count"], over, "day")
    expected = drift.run(graph, {"rows": rows}, engine="reference").finish().digest
    for name in ("start", "more"):  # of single values
        monkeypatch.setattr(_LeavesOutNone, name, None)
    for batch_items in (1, 4, 60):
        found = drift.run(graph, {"rows": table(rows) if as_table else rows}, batch_items=batch_items).finish()
        assert found.digest == expected


@pytest.mark.parametrize("over", [None, "tumbling", "session", "count"])
@pytest.mark.parametrize("of", ["fare", pl.col("fare") * 1])
def test_a_null_that_is_an_error_ends_the_run_at_its_row_after_all_rows_before_it(of: Any, over: str | None) -> None:
    rows = [{"zone": "a", "day": 1, "n": at, "fare": None if at == 12 else 1.0} for at in range(15)]
    graph = drift.Graph("running")
    keyed = graph.source("rows", schema=SCHEMA).key_by("zone")
    named = {"least": drift.agg.min(of, nulls="error"), "first": drift.agg.first(of, nulls="error")}
    (keyed.running(**named) if over is None else keyed.window(WINDOWS[over]).rows(**named)).sink("out")
    for source, batch_items in itertools.product((rows, table(rows)), (1, 99)):
        found: list[Any] = []
        with pytest.raises(drift.StepError, match=r"agg.min of .*fare.* is None of \{.*'n': 12.*nulls='error'"):
            found.extend(drift.run(graph, {"rows": source}, batch_items=batch_items))
        assert len(found) == {None: 12, "tumbling": 1, "session": 0, "count": 4}[over]


@pytest.mark.skipif(kernel is None, reason="without the kernel rows are added one by one")
@given(tame, st.sampled_from(KEYS))
def test_tame_rows_stay_columns(rows: Rows, key: tuple[str, ...]) -> None:
    """Or the tests above would compare nothing."""
    step = RunningStep(("a", "b", "c", "d", "e"), tuple(AGGREGATES[name]() for name in list(AGGREGATES)[1:6]))
    frame, key_of = Frame(pl.DataFrame(rows, schema=SCHEMA)), drift.flow.fields.key_of(*key)  # type: ignore[attr-defined]
    out = step.on_rows(key_of, frame, lambda keys: [()] * len(keys), lambda states: None)
    assert isinstance(out, Frame) or not rows


@pytest.mark.skipif(kernel is None, reason="without the kernel rows are added one by one")
@given(tame.filter(len), st.sampled_from(KEYS))
def test_expressions_of_tame_rows_are_aggregated_in_columns(rows: Rows, key: tuple[str, ...]) -> None:
    """Or the laws would compare nothing."""
    made = graph_of(key, ["twice", "thirds", "most"]).build()
    step, key_of = made["running.state"].function.step, made["running"].key.key  # type: ignore[attr-defined]
    frame = Frame(pl.DataFrame(rows, schema=SCHEMA))
    assert isinstance(step.on_rows(key_of, frame, lambda keys: [()] * len(keys), lambda states: None), Frame)


@pytest.mark.parametrize("tie", ["id", None])
def test_fields_of_rows_are_read_without_their_dicts(tie: str | None, monkeypatch: pytest.MonkeyPatch) -> None:
    """Keys, times, ties and what windows aggregate."""
    rows = [{"id": at, "at": at + at * 7 % 50, "zone": f"{at % 9}", "n": at % 7, "fare": at / 3} for at in range(2000)]
    graph = drift.Graph("windows")
    stream = graph.source("rows", time=drift.EventTime("at", tie=tie, lateness=60)).key_by("zone")
    totals = {"n": drift.agg.count(), "total": drift.agg.sum("fare"), "few": drift.agg.count(lambda row: row["n"] < 2)}
    totals["mean"] = drift.agg.mean("n")
    if tie is not None:
        del totals["few"]  # a function gets dicts
    stream.window(drift.windows.tumbling(100)).rows(**totals).sink("out")
    expected = drift.run(graph, {"rows": rows}, engine="reference").finish().digest
    made = []
    by_columns = rows_module.payloads_of

    def counted(columns: Any, names: Any, payload: Any, count: int) -> list[Any]:
        if payload == "dict":
            made.append(count)
        return by_columns(columns, names, payload, count)

    monkeypatch.setattr(rows_module, "payloads_of", counted)
    source = drift.sources.table(pl.DataFrame(rows), payload="rows")
    assert drift.run(graph, {"rows": source}, batch_items=256).finish().digest == expected
    assert tie is None or sum(made) < 500 or kernel is None  # a sample of each batch


def test_what_follows_takes_the_fields_and_the_rows() -> None:
    rows = [{"zone": "ab"[at % 2], "day": at % 3, "n": at, "fare": at / 7} for at in range(300)]
    graph = drift.Graph("running")
    made = (
        graph.source("rows", schema=SCHEMA)
        .key_by("zone")
        .running(total=drift.agg.sum("fare"), n=drift.agg.count(), least=drift.agg.min("n"))
    )
    assert made.schema == {**pl.Schema(SCHEMA), "n": pl.Int64(), "total": pl.Float64(), "least": pl.Int64()}
    share = made.filter(pl.col("n") > 3).select("zone", share=pl.col("fare") / pl.col("total"))
    share.key_by("zone").running(most=drift.agg.max("share")).map(lambda row: row["most"]).sink("out")
    expected = drift.run(graph, {"rows": rows}, engine="reference").finish().digest
    for source in (rows, table(rows)):
        assert drift.run(graph, {"rows": source}, batch_items=64).finish().digest == expected
    assert drift.run(graph, {"rows": table(rows)}, **ZEROMQ).finish().digest == expected


@pytest.mark.parametrize("over", [None, "tumbling", "sliding", "count", "rolling"])
def test_a_run_in_columns_resumes_from_a_checkpoint(over: str | None, tmp_path: Path) -> None:
    """Some keys have items in the open windows only."""
    rows = [{"zone": "abc"[at % 3], "day": at // 9, "n": at % 11, "fare": at / 7} for at in range(600)]
    graph = graph_of(("zone", "day"), ["total", "count", "of whole"], over)
    expected = list(drift.run(graph, {"rows": rows}, engine="reference"))
    found = []
    for _ in range(9):  # each a run that stops after some more
        run = drift.run(graph, {"rows": table(rows)}, state=tmp_path / "state", batch_items=40)
        for item in run:
            found.append(item)
            if len(found) % 170 == 0:
                run.stop()
    assert found == expected


def test_expressions_are_keys_and_what_is_aggregated() -> None:
    """In columns, of dicts and over processes; a key that is an expression is a field from there on."""
    rows = [{"zone": "abc"[at % 3] * 2, "day": at % 2, "n": at, "fare": at / 7} for at in range(120)]
    graph = drift.Graph("expressions")
    of_zone = graph.source("rows", schema=SCHEMA).key_by(pl.col("zone").str.head(1).alias("letter"), "day", pl.col("n"))
    twos = of_zone.running(total=drift.agg.sum(pl.col("fare") * pl.col("n")))
    assert twos.schema == {**pl.Schema(SCHEMA), "letter": pl.String(), "total": pl.Float64()}
    letters = twos.key_by("letter").window(drift.windows.count(5)).rows(least=drift.agg.min(pl.col("total") / 2))
    assert letters.schema == {"key": pl.String(), "start": pl.Int64(), "end": pl.Int64(), "least": pl.Float64()}
    letters.sink("letters")
    twos.at_end(drift.agg.count(where=pl.col("total") > 3)).sink("dear")
    plain = list(drift.run(graph, {"rows": rows}, engine="reference"))
    dear = sum(row["fare"] * row["n"] > 3 for row in rows)
    assert [item.payload for item in plain if item.sink == "dear"] == [dear] and len(plain) == 25
    firsts = [item.payload for item in plain if item.payload != dear][:3]
    assert [row["key"] for row in firsts] == ["a", "b", "c"]
    assert [row["least"] for row in firsts] == [at * (at / 7) / 2 for at in range(3)]
    for source, how in itertools.product((rows, table(rows)), ({}, {"batch_items": 7}, ZEROMQ)):
        assert list(drift.run(graph, {"rows": source}, **how)) == plain


def test_an_expression_that_has_no_fields_yet_says_where_they_are_known() -> None:
    with pytest.raises(GraphError, match="takes an expression where the fields of the rows are known only"):
        drift.agg.sum(pl.col("n")).begin({"n": 1})


@pytest.mark.parametrize(
    ("write", "says"),
    [
        (lambda rows: rows.key_by("zon").running(n=drift.agg.count()), "key_by .* has the field 'zon'.*mean 'zone'"),
        (lambda rows: rows.key_by("zone").running(n=drift.agg.sum("fair")), "the field 'fair'.*mean 'fare'"),
        (lambda rows: rows.count("zon"), "count .* has the field 'zon'.*mean 'zone'"),
        (lambda rows: rows.dedup("zon"), "dedup .* has the field 'zon'"),
        (lambda rows: rows.join(rows, "zon"), "join .* has the field 'zon'"),
        (lambda rows: rows.join(rows, "zone", "zon"), "join .* has the field 'zon'"),
        (lambda rows: rows.scan("zon", 0, max), "scan .* has the field 'zon'"),
        (lambda rows: rows.at_end(drift.agg.top(3, "fair")), "the field 'fair'.*mean 'fare'"),
        (lambda rows: rows.at_end(drift.agg.count("fair")), "the field 'fair'.*mean 'fare'"),
        (lambda rows: rows.key_by("zone").running(), "running takes aggregates by name"),
        (lambda rows: rows.key_by("zone").rolling(1), "^rolling takes aggregates by name"),
        (lambda rows: rows.key_by("zone").rolling(1, n=5), "^rolling: n= 5 is no aggregate"),
        (
            lambda rows: rows.key_by("zone").rolling(drift.windows.rows(1, 1), closed="left", n=drift.agg.count()),
            "rolling over a number of rows has no closed= and no offset=, and got 'left' and 0",
        ),
        (lambda rows: rows.key_by("zone").running(n=7), "running: n="),
        (lambda rows: rows.at_end(drift.agg.sum(pl.col("fair") * 2)), "the field 'fair'.*mean 'fare'"),
        (lambda rows: rows.at_end(drift.agg.sum(pl.col("n") - pl.col("n").mean())), "not row by row"),
        (lambda rows: rows.at_end(drift.agg.sum(pl.all())), "gives 4 values of a row"),
        (lambda rows: rows.map(dict).at_end(drift.agg.sum(pl.col("n"))), "are not known"),
        (lambda rows: rows.key_by(pl.col("zone").str.head(1)), "'zone', which is a field.*alias"),
        (lambda rows: rows.map(dict).key_by(pl.col("n") + 1), "are not known"),
    ],
)
def test_what_cannot_be_is_refused_when_the_step_is_written(write: Callable[[Any], Any], says: str) -> None:
    with pytest.raises(GraphError, match=says):
        write(drift.Graph("refused").source("rows", schema=SCHEMA))


def test_a_value_that_cannot_be_added_ends_the_run_at_its_item() -> None:
    rows = [{"zone": "a", "fare": 1.5}, {"zone": "a", "fare": "x"}, {"zone": "a", "fare": 2.5}]
    graph = drift.Graph("bad")
    graph.source("rows").key_by("zone").running(total=drift.agg.sum("fare")).sink("out")
    run = drift.run(graph, {"rows": rows})
    assert next(run).payload["total"] == 1.5
    with pytest.raises(drift.StepError, match="running"):
        next(run)


@drift.testing.deterministic(graph_of(("zone",), ["total", "count", "least"]), rows=rows_of)
@settings(max_examples=5)
def test_running_passes_the_harness() -> None: ...
