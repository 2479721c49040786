"""Rows of which an expression cannot be computed are diverted, the others stay columns; with dicts it is the same."""

from __future__ import annotations

from typing import Any

import polars as pl
from hypothesis import given
from hypothesis import strategies as st

import drift
from drift.columns.rows import Frame
from drift.diverting import ErrorsOnly, PartlyDiverted, TriedRows, WithoutErrors
from drift_graph.payloads import chosen

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
    assert isinstance(made, PartlyDiverted)
    good = chosen(made, WithoutErrors().each(made))
    assert type(good) is Frame and good.frame["n"].to_list() == [n for n in range(100) if n not in (3, 64)]
    assert chosen(made, bytes(3) + b"\1" + bytes(96)) == [made[3]] and made[3][1] == "read"
    reports = ErrorsOnly().each(made).members
    assert [each["payload"]["n"] for each in reports[1]] == [3, 64] and reports[0].count(1) == 2
    clean = tried.each(rows[4:50])
    assert type(clean) is Frame and WithoutErrors().each(clean) == b"\1" * 46
