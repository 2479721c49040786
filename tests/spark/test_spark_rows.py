"""Rows of DataFrames that stay columns: the stamps, the output and the errors are those of their dicts."""

from __future__ import annotations

import datetime
from itertools import pairwise
from typing import Any

import polars as pl
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

import drift
from drift.engines.shipping import packed
from drift.engines.surroundings import surroundings
from drift.spark.batches import all_rows
from drift.spark.frames import TIME, Reading, numbered, read_rows, stamp_rows
from drift.spark.kernels import Refused, Work
from drift_graph.errors import InputError
from drift_graph.policies import ArrivalTime, TimePolicy

SCHEMA = {"key": str, "n": int, "at": int, "fare": float}
ROWS = pa.schema([("key", pa.string()), ("n", pa.int64()), ("at", pa.int64()), ("fare", pa.float64())])
FEW = drift.EventTime("at")


def table_of(count: int) -> pa.Table:
    rows = [(f"k{at * 7 % 5}", at, at // 3, at * 0.1) for at in range(count)]
    return pa.Table.from_pylist([dict(zip(SCHEMA, row)) for row in rows], ROWS)


def graph_of(time: TimePolicy | None = FEW) -> drift.Graph:
    """Rows through expressions, windows, running sums and functions."""
    graph = drift.Graph("fares")
    rows = graph.source("rows", schema=SCHEMA, **({} if time is None else {"time": time}))
    dear = rows.filter(pl.col("n") % 3 != 0).with_columns(tip=pl.col("fare") * 0.15)
    dear.sink("dear")
    dear.key_by("key").running(total=drift.agg.sum("fare")).sink("totals")
    dear.map(lambda row: row["n"]).filter(lambda number: number % 2 == 0).sink("even")
    if time is not None:
        rows.key_by("key").window(drift.windows.tumbling(10)).rows(n=drift.agg.sum("n")).sink("windows")
        rows.key_by("key").window(drift.windows.sliding(10, every=4)).rows(n=drift.agg.sum("n")).sink("sliding")
    return graph


nulls = st.none() | st.integers(-3, 3)
columns_of_times = st.one_of(
    st.lists(st.integers(-3, 3), min_size=1, max_size=6),
    st.lists(nulls, min_size=1, max_size=6),
    st.lists(st.integers(2**63 - 3, 2**63 - 1) | st.integers(-(2**63), 3 - 2**63), min_size=1, max_size=6),
    st.lists(st.datetimes(timezones=st.just(datetime.UTC)), min_size=1, max_size=6),
)


@given(columns_of_times, st.sampled_from([None, "tie", abs]), st.booleans(), st.data())
def test_stamps_in_arrays_are_those_of_dicts(times: list[Any], tie: Any, beside: bool, data: st.DataObject) -> None:
    ties = data.draw(st.lists(nulls | st.integers(0, 300), min_size=len(times), max_size=len(times)))
    beside = beside and type(times[0]) is int and None not in times
    batch = pa.record_batch({"at": times, "tie": ties})
    columns = ("at", "tie")
    if beside:
        batch = batch.append_column(TIME, pa.array(times, pa.int64()))
    policy = drift.EventTime(
        "at", tie=(lambda row: abs(row["at"])) if tie is abs and beside else None if tie is abs else tie
    )
    found = [stamps_or_error(Reading("in", 0, policy, kind, columns, beside), batch) for kind in ("rows", "dict")]
    assert found[0] == found[1]


def stamps_or_error(reading: Reading, batch: pa.RecordBatch) -> Any:
    """The stamps, and the metas of rows that are sorted by these; or the error."""
    work = Work(packed(graph_of().build()), surroundings(), True, 1, ())
    (*stamped, last) = stamp_rows(work, reading, [batch])
    rows = pa.Table.from_batches([*stamped, last])
    rows = rows.sort_by([(rows.column_names[-2], "ascending")]).combine_chunks()
    try:
        every = [part.slice(at, 1) for part in rows.to_batches() for at in range(part.num_rows)]
        items = list(numbered(reading, every))
    except (InputError, Refused) as error:
        return type(error), str(error)
    return [(meta, repr(payload)) for each in items for meta, payload in zip(each.metas, each.payloads)]


@pytest.mark.parametrize("gap", [1, 2])
def test_numbered_rows_have_the_metas_of_arrival(gap: int) -> None:
    batch = table_of(5).append_column(TIME, pa.array(range(7, 7 + 5 * gap, gap), pa.int64())).to_batches()[0]
    found = [
        Reading("in", 0, ArrivalTime(), kind, tuple(SCHEMA), True).stamped(batch, b"\0")[1] for kind in ("rows", "dict")
    ]
    assert list(found[0]) == list(found[1]) and (found[0].numbers() is None) == (gap == 2)


def test_rows_stay_columns_between_tasks() -> None:
    work = Work(packed(graph_of().build()), surroundings(), True, 2, (), repeats="count")
    reading = Reading("rows", 0, FEW, "rows", tuple(SCHEMA), False)
    sent = [row for row in all_rows(read_rows(work, reading, table_of(300).to_batches(100))) if row.items and row.body]
    assert {type(row.columns().payloads).__name__ for row in sent if "even" not in row.port} == {"Frame"}
    for row in sent:
        assert all(before < after for before, after in pairwise(row.columns().metas))


TIMES: dict[str, tuple[TimePolicy | None, dict[str, Any]]] = {
    "a field": (FEW, {}),
    "a field and a tie": (drift.EventTime("at", tie="n"), {}),
    "a column": (drift.EventTime("n", tie="n"), {"time": "at"}),
    "order": (None, {"order_by": "n"}),
}


@pytest.mark.parametrize("kind", TIMES)
def test_output_of_rows_is_that_of_dicts(spark: Any, kind: str) -> None:
    time, arguments = TIMES[kind]
    table = pa.concat_tables([table_of(500), table_of(50)])  # some rows come twice
    frame = spark.createDataFrame(table).repartition(3)
    graph = graph_of(time)
    runs = [
        drift.run(
            graph, {"rows": drift.spark.source(frame, payload=payload, **arguments)}, engine="spark", partitions=2
        )
        for payload in ("rows", "dict")
    ]
    found = [[(item.sink, item.meta, repr(item.payload)) for item in run] for run in runs]
    assert found[0] == found[1] and len(found[0]) > 800
    digests = {run.digest for run in runs}
    if "time" not in arguments:
        in_order = sorted(table.to_pylist(), key=lambda row: int(row["n"]))
        digests.add(drift.run(graph, {"rows": in_order}).finish().digest)
    assert len(digests) == 1


def test_a_row_without_a_time_is_the_same_error(spark: Any) -> None:
    frame = spark.createDataFrame(pa.table({"key": ["a", "b"], "n": [1, 2], "at": [3, None], "fare": [0.5, 1.5]}))
    texts = []
    for payload in ("rows", "dict"):
        source = drift.spark.source(frame, payload=payload)  # type: ignore[arg-type]
        with pytest.raises(InputError, match="gave None") as raised:
            drift.run(graph_of(), {"rows": source}, engine="spark").finish()
        texts.append(str(raised.value))
    assert texts[0] == texts[1]


@pytest.mark.parametrize("arguments", [{}, {"time": "at"}, {"order_by": "n"}], ids=str)
def test_a_row_that_is_none_of_the_schema_is_the_same_error(spark: Any, arguments: dict[str, Any]) -> None:
    given_rows = pa.table({"key": ["a", "b"], "n": [1, 2], "at": [3, 4], "fare": [None, "1.5"]})
    graph = graph_of(None if "order_by" in arguments else FEW)
    texts = []
    for payload in ("rows", "dict"):
        source = drift.spark.source(spark.createDataFrame(given_rows), payload=payload, **arguments)  # type: ignore[arg-type]
        with pytest.raises(InputError, match=r"source 'rows': the field 'fare' is Float64, and .* has '1.5'") as raised:
            drift.run(graph, {"rows": source}, engine="spark").finish()
        texts.append(str(raised.value))
    assert texts[0] == texts[1]


def test_columns_of_other_types_and_in_another_order_are_taken_if_their_values_fit(spark: Any) -> None:
    fields = [("fare", pa.float64()), ("n", pa.int16()), ("key", pa.string()), ("at", pa.int32())]
    frame = spark.createDataFrame(table_of(300).select([name for name, _ in fields]).cast(pa.schema(fields)))
    expected = drift.run(graph_of(), {"rows": table_of(300).to_pylist()}).finish().digest
    for payload in ("rows", "dict"):
        source = drift.spark.source(frame, payload=payload)  # type: ignore[arg-type]
        assert drift.run(graph_of(), {"rows": source}, engine="spark").finish().digest == expected


def test_expressions_and_joins_of_rows_are_what_they_are_elsewhere(spark: Any) -> None:
    schema, others = {"id": int, "at": int, "zone": str, "n": int}, {"zone": str, "at": int, "rate": float}
    rows = [{"id": at, "at": at * 7 % 50 + at, "zone": "abc"[at % 3], "n": at % 11} for at in range(400)]
    rates = [{"zone": "abd"[at % 3], "at": at * 5, "rate": at / 7} for at in range(60)]
    graph = drift.Graph("joins")
    by_at = drift.EventTime(pl.col("at") * 2, lateness=400, tie=pl.col("id"))
    left = graph.source("rows", schema=schema, time=by_at)
    right = graph.source("rates", schema=others, time=drift.EventTime(pl.col("at") * 2))
    upper = left.key_by(pl.col("zone").str.to_uppercase().alias("upper"))
    upper.window(drift.windows.tumbling(20)).rows(n=drift.agg.sum(pl.col("n") * 2)).sink("windows")
    upper.running(few=drift.agg.count(pl.col("n") < 3), first=drift.agg.first("id")).sink("running")
    left.join(right, "zone", within=(0, 20), flat=True).sink("within")
    left.join_as_of(right, "zone", flat=True).sink("as of")
    left.join_table(pl.DataFrame({"zone": ["a", "b"], "name": ["x", "y"]}), "zone", on="zone", flat=True).sink("names")
    expected = list(drift.run(graph, {"rows": rows, "rates": rates}, engine="reference"))
    assert {item.sink for item in expected} == {"windows", "running", "within", "as of", "names"}
    frames = {"rows": pl.DataFrame(rows, schema=schema), "rates": pl.DataFrame(rates, schema=others)}
    on_spark = {
        name: drift.spark.source(spark.createDataFrame(each.to_arrow()).repartition(2), payload="rows")
        for name, each in frames.items()
    }
    for sources in (frames, on_spark):
        found = list(drift.run(graph, sources, engine="spark"))
        assert [(each.meta, each.sink) for each in found] == [(each.meta, each.sink) for each in expected]
        assert [each.payload for each in found] == [each.payload for each in expected]
