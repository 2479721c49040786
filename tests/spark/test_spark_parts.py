"""Rows that tasks add up before they send them give the windows of these rows; see `drift.spark.added_up`."""

from __future__ import annotations

from typing import Any

import polars as pl
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from test_spark_kernels import done, released
from test_spark_kernels import small_batches as small_batches

import drift
import drift.spark.added_up as parts_module
from drift.engines.shipping import packed
from drift.engines.surroundings import surroundings
from drift.spark.added_up import adds_up, read_parts
from drift.spark.frames import TIME, Reading, read_rows
from drift.spark.kernels import Work
from drift.spark.prepare import bounds_of
from drift_graph.meta import pack_time
from drift_graph.payloads import NeedsRows
from drift_kernel import kernel

SCHEMA = {"key": str, "place": int, "n": int, "fare": float, "at": int}
ROWS = pa.schema(
    [("key", pa.string()), ("place", pa.int64()), ("n", pa.int64()), ("fare", pa.float64()), ("at", pa.int64())]
)
FEW = drift.EventTime("at")
KINDS = (
    drift.windows.tumbling(4),
    drift.windows.tumbling(3, offset=1),
    drift.windows.sliding(5, every=2),
    drift.windows.sliding(2, every=5),
    drift.windows.calendar("1d"),
)
AGGREGATES = {
    "count": drift.agg.count(),
    "sum": drift.agg.sum("n"),
    "mean": drift.agg.mean("n"),
    "least": drift.agg.min("fare"),
    "greatest": drift.agg.max("n"),
    "double": drift.agg.max("double"),
    "computed": drift.agg.sum(pl.col("n").clip(-9, 9) * 2),
}
KEYS = ((), ("key",), ("place",), ("key", "place"))

small = st.integers(-3, 3)
rows = st.tuples(
    st.none() | st.sampled_from(["a", "bb", "a text beyond twelve bytes", ""]),
    st.none() | small,
    st.none() | small | st.sampled_from([2**40, -(2**61), 2**62]),
    st.sampled_from([None, 0.0, -1.5, 2.25, -0.0]),
    st.integers(-9, 9) | st.integers(86_400_000 - 2, 86_400_000 + 2),
)


@st.composite
def graphs(draw: st.DrawFn) -> drift.Graph:
    graph = drift.Graph("windows")
    stream: Any = graph.source("rows", schema=SCHEMA, time=FEW)
    if draw(st.booleans()):
        stream = stream.filter(pl.col("fare") >= -1.0)
    names = draw(st.lists(st.sampled_from(list(AGGREGATES)), min_size=1, max_size=3, unique=True))
    if "double" in names:
        stream = stream.with_columns(double=pl.col("n").clip(-9, 9) * 2)
        stream = stream.filter(pl.col("double") != 4) if draw(st.booleans()) else stream
    if key := draw(st.sampled_from(KEYS)):
        stream = stream.key_by(*key)
    windowed = stream.window(draw(st.sampled_from(KINDS)))
    if len(key) < 2 and draw(st.booleans()):
        windowed.rows(**{name: AGGREGATES[name] for name in names}).sink("out")
    else:
        windowed.aggregate(**{name: AGGREGATES[name] for name in names}).sink("out")
    return graph


def table_of(given_rows: list[tuple[Any, ...]]) -> pa.Table:
    return pa.Table.from_pylist([dict(zip(SCHEMA, row)) for row in given_rows], ROWS)


def reading_of(policy: Any = FEW, payload: Any = "rows", *, timed: bool = False) -> Reading:
    return Reading("rows", 0, policy, payload, tuple(SCHEMA), timed)


def given_off(rows: pa.Table, work: Work, splits: int, reading: Reading, read: Any) -> pa.Table:
    tasks = [rows.slice(at, splits) for at in range(0, len(rows), splits)]
    return done(read(work, reading, task.to_batches(max_chunksize=2)) for task in tasks)


of_the_kernel = pytest.mark.skipif(kernel is None, reason="without the kernel rows are not added up")


@of_the_kernel
@given(graphs(), st.lists(rows, min_size=1, max_size=30), st.sampled_from([1, 2, 3]), st.data())
def test_windows_of_rows_that_were_added_up_are_those_of_the_rows(
    graph: drift.Graph, given_rows: list[tuple[Any, ...]], targets: int, data: st.DataObject
) -> None:
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(parts_module, "_CHUNK_ROWS", data.draw(st.integers(1, 8)))
        table, splits, timed = table_of(given_rows), data.draw(st.integers(1, 9)), data.draw(st.booleans())
        dataflow = graph.build()
        assert adds_up(dataflow, reading_of(timed=timed), ROWS)
        bounds = bounds_of([(pack_time(row[-1]), 1) for row in given_rows], targets)
        work = Work(packed(dataflow), surroundings(), True, targets, bounds, repeats="count")
        frame = table.append_column(TIME, table["at"]) if timed else table
        output = released(work, given_off(frame, work, splits, reading_of(timed=timed), read_parts))
    plain = released(work, given_off(table, work, splits, reading_of(), read_rows))
    in_order = sorted(table.to_pylist(), key=lambda row: row["at"])
    assert plain.digest == drift.run(graph, {"rows": in_order}, engine="reference").finish().digest
    if output.error is not None:
        assert output.error[0] == NeedsRows.__name__ and not output.items
        assert any(abs(row[2] or 0) > 2**60 or str(row[3]) == "-0.0" for row in given_rows)
    else:
        assert output == plain


def added_up(write: Any, given_rows: list[tuple[Any, ...]], targets: int, splits: int) -> tuple[Any, Any]:
    """What comes of rows that are added up by tasks of so many rows each, and the graph."""
    graph = drift.Graph("windows")
    write(graph.source("rows", schema=SCHEMA, time=FEW))
    work = Work(packed(graph.build()), surroundings(), True, targets, (), repeats="count")
    return released(work, given_off(table_of(given_rows), work, splits, reading_of(), read_parts)), graph


@of_the_kernel
@pytest.mark.parametrize(
    ("aggregate", "values"),
    [
        (drift.agg.min("fare"), (2.25, -0.0, 0.0)),
        (drift.agg.max("fare"), (-2.25, -0.0, 0.0)),
        (drift.agg.min("fare"), (float("nan"), 1.0, 2.0)),
        (drift.agg.sum("n"), (2**62, 2**62, 0)),
        (drift.agg.mean("n"), (-(2**62), -(2**62) - 1, 0)),
        (drift.agg.sum("n", nulls="error"), (1, None, 2)),
    ],
)
def test_what_is_not_exact_in_any_order_is_not_added_up(aggregate: Any, values: tuple[Any, ...]) -> None:
    given_rows = [
        ("a", 0, *((0, each) if type(each) is float else (each, 0.0)), at) for each, at in zip(values, (0, 2, 1))
    ]
    output, _ = added_up(lambda rows: with_windows(rows, n=aggregate), given_rows, 1, 2)
    assert output.error is not None and output.error[0] == NeedsRows.__name__ and not output.items


@of_the_kernel
def test_parts_go_where_the_rows_of_their_keys_go() -> None:
    given_rows = [(key, 0, 1, 0.5, 0) for key in "aabcdefghhgfedcba"]
    output, graph = added_up(with_windows, given_rows, 3, 9)
    rows = [dict(zip(SCHEMA, row)) for row in given_rows]
    assert output.digest == drift.run(graph, {"rows": rows}, engine="reference").finish().digest


def with_windows(stream: Any, **aggregates: Any) -> None:
    stream.key_by("key").window(KINDS[0]).aggregate(**aggregates or {"n": drift.agg.count()}).sink("out")


def with_two_consumers(stream: Any) -> None:
    with_windows(stream)
    stream.sink("all")


GRAPHS: dict[str, tuple[Any, bool]] = {
    "counts": (with_windows, True),
    "a sum of integers": (lambda rows: with_windows(rows, n=drift.agg.sum("n")), True),
    "the least float": (lambda rows: with_windows(rows, n=drift.agg.min("fare")), True),
    "a sum of floats": (lambda rows: with_windows(rows, n=drift.agg.sum("fare")), False),
    "a mean of floats that are computed": (
        lambda rows: with_windows(rows.select("key", half=pl.col("n") * 0.5), n=drift.agg.mean("half")),
        False,
    ),
    "a sum of integers that are computed": (lambda rows: with_windows(rows, n=drift.agg.sum(pl.col("n") * 2)), True),
    "a sum of floats that are computed": (lambda rows: with_windows(rows, n=drift.agg.sum(pl.col("n") / 2)), False),
    "an aggregate of objects": (lambda rows: with_windows(rows, n=drift.agg.first()), False),
    "a function": (lambda rows: with_windows(rows.filter(lambda row: row["n"] > 1)), False),
    "a key that is computed": (lambda rows: rows.key_by(len).window(KINDS[0]).count().sink("out"), False),
    "sessions": (lambda rows: rows.key_by("key").window(drift.windows.session(3)).count().sink("out"), False),
    "rows too": (with_two_consumers, False),
}


@pytest.mark.parametrize("name", GRAPHS)
def test_what_is_added_up_is_exact_in_any_order(name: str) -> None:
    write, exact = GRAPHS[name]
    graph = drift.Graph("windows")
    write(graph.source("rows", schema=SCHEMA, time=FEW))
    dataflow = graph.build()
    assert adds_up(dataflow, reading_of(), ROWS) == (exact and kernel is not None)
    assert not adds_up(dataflow, reading_of(payload="dict"), ROWS)
    assert not adds_up(dataflow, reading_of(drift.EventTime("at", tie="n")), ROWS)
    assert not adds_up(dataflow, reading_of(drift.EventTime(lambda row: row["at"])), ROWS)
    assert not adds_up(dataflow, reading_of(), ROWS.set(3, pa.field("fare", pa.decimal128(9, 2))))


@pytest.mark.parametrize("added", [False, True])
def test_a_run_over_rows_that_cannot_be_added_up_begins_again(spark: Any, added: bool) -> None:
    graph = drift.Graph("windows")
    stream = graph.source("rows", schema=SCHEMA, time=FEW)
    stream.key_by("key").window(KINDS[0]).rows(n=drift.agg.count(), least=drift.agg.min("fare")).sink("out")
    rows = [(f"k{at % 5}", at % 3, at * 7 % 11, at * 0.5, at) for at in range(500)]
    rows[77] = ("k2", 1, None, None if added else -0.0, 76)
    frame = spark.createDataFrame(table_of(rows))
    runs = [
        drift.run(graph, {"rows": drift.spark.source(frame, payload=payload)}, engine="spark", partitions=2)
        for payload in ("rows", "dict")
    ]
    found = [[(item.meta, repr(item.payload)) for item in run] for run in runs]
    assert found[0] == found[1] and len(found[0]) > 400
    reports = [run.finish() for run in runs]
    assert reports[0].digest == reports[1].digest and {report.items_in for report in reports} == {500}
