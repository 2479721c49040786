"""Rows of which an expression cannot be computed are diverted, the others stay columns; with dicts it is the same."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import polars as pl
from hypothesis import given, settings
from hypothesis import strategies as st

import drift
from drift.columns.rows import Frame
from drift.diverting import ErrorsOnly, LateOnly, TriedRows, WithoutErrors
from drift_graph.item import Columns, joined, sorted_by_meta
from drift_graph.payloads import Mixed, chosen
from drift_graph.times import SourceMachine

SCHEMA = {"n": int, "text": str}
NUMBER = pl.col("text").str.to_integer()


def halved(rows: pl.DataFrame) -> pl.DataFrame:
    if (rows["number"] == 7).any():
        raise ValueError("seven")
    return rows.with_columns(half=rows["number"] / 2)


def graph_of() -> drift.Graph:
    graph = drift.Graph("diverting")
    rows = graph.source("rows", schema=SCHEMA)
    numbers = rows.with_columns(number=NUMBER, on_error="divert", name="read").filter("n >= 0")
    numbers.map_batches(halved, schema={**SCHEMA, "number": int, "half": float}, on_error="divert").sink("halves")
    numbers.select(both=pl.col("number") + pl.col("n")).sink("sums")
    rows.filter(NUMBER > 3, on_error="divert", name="large ones").sink("large")
    return graph


texts = st.sampled_from(["1", "7", "12", "x", "", "-3"])


@given(st.lists(texts, max_size=12), st.integers(1, 12))
def test_rows_that_cannot_be_computed_are_diverted_in_columns_and_in_dicts(texts: list[str], at_once: int) -> None:
    dicts = [{"n": n, "text": text} for n, text in enumerate(texts)]
    source = drift.sources.table(pl.DataFrame(dicts, schema=SCHEMA), payload="rows")
    graph = graph_of()
    runs = [
        drift.run(graph, {"rows": dicts}, engine="reference"),
        drift.run(graph, {"rows": dicts}, batch_items=at_once),
        drift.run(graph, {"rows": source}, batch_items=at_once),
    ]
    found = [[(item.sink, item.meta, repr(item.payload)) for item in run] for run in runs]
    assert found[0] == found[1] == found[2] and len({run.digest for run in runs}) == 1

    def number_of(row: dict[str, Any]) -> int | None:
        try:
            return int(row["text"])
        except ValueError:
            return None

    items = list(drift.run(graph, {"rows": source}))
    payloads = {sink: [item.payload for item in items if item.sink == sink] for sink in ("sums", "large", "halves")}
    good = [(row, number) for row in dicts if (number := number_of(row)) is not None]
    assert payloads["sums"] == [{"both": number + row["n"]} for row, number in good]
    assert payloads["large"] == [row for row, number in good if number > 3]
    assert [row["half"] for row in payloads["halves"]] == [number / 2 for _, number in good if number != 7]
    errors = [item.payload for item in items if item.sink == "errors"]
    assert [each["payload"] for each in errors if each["location"] == "read"] == [
        row for row in dicts if number_of(row) is None
    ]
    assert len(errors) == 2 * (len(dicts) - len(good)) + sum(number == 7 for _, number in good)


def test_what_can_be_computed_stays_columns() -> None:
    rows = Frame(pl.DataFrame({"n": range(100), "text": ["x" if n in (3, 64) else str(n) for n in range(100)]}))
    graph = drift.Graph("one")
    graph.source("rows", schema=SCHEMA).with_columns(number=NUMBER, name="read", on_error="divert").sink("out")
    tried = next(each.function for each in graph.build().operators if each.name == "read")
    assert isinstance(tried, TriedRows)
    made = tried.each(rows)
    assert isinstance(made, Mixed)
    good = chosen(made, WithoutErrors().each(made))
    assert type(good) is Frame and good.frame["n"].to_list() == [n for n in range(100) if n not in (3, 64)]
    assert chosen(made, bytes(3) + b"\1" + bytes(96)) == [made[3]] and made[3][1] == "read"
    reports = ErrorsOnly().each(made).members
    assert [each["payload"]["n"] for each in reports[1]] == [3, 64] and reports[0].count(1) == 2
    clean = tried.each(rows[4:50])
    assert type(clean) is Frame and WithoutErrors().each(clean) == b"\1" * 46


late_graph = drift.Graph("late ones apart")
_fares = late_graph.source("rows", schema={"at": int, "fare": int}, time=drift.EventTime("at", lateness=5), late="late")
_fares.with_columns(twice=pl.col("fare") * 2).sink("out")
_fares.window(drift.windows.tumbling(10)).rows(fares=drift.agg.sum("fare")).sink("sums")


@settings(max_examples=25)
@given(st.lists(st.integers(0, 40), min_size=1, max_size=40), st.integers(1, 40))
def test_rows_around_late_ones_that_go_to_a_sink_are_as_dicts_are(times: list[int], at_once: int) -> None:
    dicts = [{"at": time, "fare": number} for number, time in enumerate(times)]
    frame = drift.sources.table(pl.DataFrame(dicts), payload="rows")
    how: list[dict[str, Any]] = [{"batch_items": at_once}, {"batch_items": at_once, "fused": False}, {}]
    runs = [drift.run(late_graph, {"rows": dicts}, engine="reference")]
    runs += [drift.run(late_graph, {"rows": rows}, **each) for rows in (dicts, frame) for each in how]
    found = [[(item.sink, item.meta, repr(item.payload)) for item in run] for run in runs]
    assert all(each == found[0] for each in found) and len({run.digest for run in runs}) == 1
    greatest, late = times[0], []
    for row in dicts:
        if row["at"] < greatest - 5:
            late.append(row)
        greatest = max(greatest, row["at"])
    items = list(drift.run(late_graph, {"rows": frame}))
    set_apart = [item.payload["payload"] for item in items if item.sink == "late"]
    assert sorted(set_apart, key=lambda row: row["fare"]) == late  # of one heartbeat they are ordered by their ties
    sums = {item.payload["start"]: item.payload["fares"] for item in items if item.sink == "sums"}
    good = [row for row in dicts if row not in late]
    assert sums == {
        start: sum(row["fare"] for row in good if row["at"] // 10 * 10 == start)
        for start in {row["at"] // 10 * 10 for row in good}
    }


def test_rows_around_late_ones_stay_columns_while_they_are_sorted_and_joined() -> None:
    machine = SourceMachine("rows", 0, drift.EventTime("at", lateness=5), late_apart=True)
    batches = []
    for times in ([20, 7, 22, 18, 9], [30, 29, 28], [26, 25, 24]):
        arrived = machine.take(Frame(pl.DataFrame({"at": times})))
        batches.append(Columns(arrived.metas, arrived.payloads, None))
    assert [type(each.payloads) for each in batches] == [Mixed, Frame, Mixed] and machine.late_apart == 3
    for several in (batches, batches[::-1], batches[1:]):
        ordered = sorted_by_meta(joined(several)).payloads
        assert type(ordered) is Mixed
        good = chosen(ordered, WithoutErrors().each(ordered))
        assert type(good) is Frame and good.frame["at"].is_sorted()
    selected, reports = LateOnly().each(ordered[:]).members
    assert [each["payload"] for each in reports] == [{"at": 24}] and selected.count(1) == 1


def test_rows_with_late_ones_between_them_are_recorded_where_they_were(tmp_path: Path) -> None:
    rows = [{"at": number + 9 * (number % 4 == 0), "fare": number} for number in range(200)]
    frame = drift.sources.table(pl.DataFrame(rows), payload="rows")
    run = drift.run(late_graph, {"rows": frame}, record=tmp_path / "record")
    items = list(run)
    assert sum(item.sink == "late" for item in items) == 150
    again = drift.replay(tmp_path / "record", late_graph)
    assert list(again) == items and again.digest == run.digest
