"""Windows in columns are the windows: their values, forms and metas; and they stay columns to the output."""

from __future__ import annotations

import pickle
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import polars as pl
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

import drift
from drift.columns.rows import Frame
from drift.columns.windows import WindowRows, window_rows
from drift_barrier.barrier import Barrier
from drift_graph.canonical import canonical_each, encode_many, stored_each
from drift_graph.item import Columns
from drift_graph.payloads import AtMostOne, are_rows, joined
from drift_kernel import kernel

texts = st.text(max_size=3) | st.sampled_from(["x" * 20, "y" * 250, "z" * 70_000])
keys = st.one_of(
    st.lists(st.none() | texts, min_size=1, max_size=9),
    st.lists(st.none() | st.integers(-(2**63), 2**63 - 1), min_size=1, max_size=9),
    st.lists(st.tuples(texts, st.integers(-9, 300)), min_size=1, max_size=9),
    st.integers(1, 9).map(lambda count: [None] * count),
)


@given(keys, st.sampled_from([None, ("n",), ("total", "n"), ("key", "a" * 200)]), st.data())
@example(["a"], None, None)
def test_windows_in_columns_are_windows(of: list[Any], names: tuple[str, ...] | None, data: Any) -> None:
    fields = 2 if type(of[0]) is tuple else 0 if set(of) == {None} else 1
    counts = [len(of)] if data is None else [(at := data.draw(st.integers(0, len(of)))), len(of) - at]
    bounds = [(-7, 2**40), (5, 7)][: len(counts)]
    numbers = [at * 1000 - 1 for at in range(len(of))]
    values = [np.array(numbers), np.array(numbers) / 7][: 1 if names is None else len(names)]
    made = window_rows(drift.Window, of, fields, bounds, counts, values, names)
    assert made is not None
    of_windows = [bound for bound, count in zip(bounds, counts) for _ in range(count)]
    results: Sequence[Any] = numbers
    if names is not None:
        results = [dict(zip(names, each)) for each in zip(*(each.tolist() for each in values))]
    expected = [drift.Window(key, *bound, value) for key, bound, value in zip(of, of_windows, results)]
    again = joined([made[:1], made[1:]])
    order = list(range(len(of)))[::-1]
    sent = pickle.loads(pickle.dumps(made[1:]))
    for rows, windows in (
        (made, expected),
        (again, expected),
        (made.in_order(order), expected[::-1]),
        (sent, expected[1:]),
        (joined([made[:1], sent]), expected),
    ):
        assert isinstance(rows, WindowRows)
        assert list(rows) == windows and list(map(type, rows.values)) == [drift.Window] * len(rows)
        assert encode_many(rows) == encode_many(windows) and canonical_each(rows) == canonical_each(windows)
        assert stored_each(rows) == stored_each(windows)
    if names is not None and "key" not in names:
        named = ("key", "start", "end")[not fields :]
        flat = made.flat(named)
        assert (flat is None) == (fields > 1)
        if flat is not None:
            dicts = [{name: getattr(each, name) for name in named} | each.value for each in expected]
            assert isinstance(flat, Frame) and stored_each(flat) == stored_each(dicts)


def test_windows_of_other_values_are_not_joined_in_columns() -> None:
    one, other = (
        window_rows(drift.Window, ["a"], 1, [(0, 1)], [1], [np.array([5])], names) for names in (("n",), ("m",))
    )
    assert [each.value for each in joined([one, other])] == [{"n": 5}, {"m": 5}]
    assert list(joined([one, Frame(pl.DataFrame({"n": [1]}))])) == [*one, {"n": 1}]


NUMBERED = {"key": pl.Int32, "name": str, "at": int, "n": pl.Int16, "x": float, "day": pl.Date}


@given(st.binary(max_size=9).map(lambda drawn: bytes(each % 2 for each in drawn)), st.integers(0, 9), st.integers(0, 9))
def test_a_part_of_at_most_one_window_each_has_its_own_and_stays_columns(has: bytes, start: int, end: int) -> None:
    rows = Frame(pl.DataFrame({"n": range(sum(has))}, schema={"n": pl.Int64}))
    each = iter(rows.values)
    families = [(next(each),) if one else () for one in has]
    part = AtMostOne(has, rows)[start:end]
    assert list(part) == families[start:end] and are_rows(part.members[1]) and part.members[0] == has[start:end]


@pytest.mark.parametrize("key", ["key", "name", None])
def test_fields_of_rows_for_windows_are_known(key: str | None) -> None:
    """So expressions follow; and what they are of is what the rows have."""
    graph = drift.Graph("fields")
    timed: Any = graph.source("rows", schema=NUMBERED, time=drift.EventTime("at", lateness=9))
    by_key = timed if key is None else timed.key_by(key)
    named = {
        "count": drift.agg.count(),
        "total": drift.agg.sum("n"),
        "mean": drift.agg.mean("n"),
        "x": drift.agg.min("x"),
    }
    rows = by_key.window(drift.windows.tumbling(5)).rows(**named)
    of_key = {} if key is None else {"key": pl.String() if key == "name" else pl.Int64()}
    kinds = dict.fromkeys(("start", "end", "count", "total"), pl.Int64()) | dict.fromkeys(("mean", "x"), pl.Float64())
    assert rows.schema == of_key | kinds
    rows.filter(pl.col("count") > 1).with_columns(twice=pl.col("total") * 2).sink("out")
    made = [
        {"key": at % 3, "name": "ab"[at % 2], "at": at, "n": at % 7, "x": at / 2, "day": None}
        | ({key: None} if at == 4 and key else {})
        for at in range(30)
    ]
    frame = pl.DataFrame(made, schema=NUMBERED)
    runs = [drift.run(graph, {"rows": drift.sources.table(frame, payload="rows")}), drift.run(graph, {"rows": made})]
    runs.append(drift.run(graph, {"rows": made}, engine="reference"))
    assert len({run.finish().digest for run in runs}) == 1 and runs[0].report.items_out > 3


@pytest.mark.parametrize(
    "change",
    [
        lambda keyed: keyed.window(drift.windows.tumbling(5)).rows(days=drift.agg.max("day")),
        lambda keyed: keyed.window(drift.windows.tumbling(5)).rows(last=drift.agg.last()),
        lambda keyed: keyed.window(drift.windows.tumbling(5), fill={"n": None}).rows(n=drift.agg.count()),
        lambda keyed: keyed.window(drift.windows.tumbling(5), early=drift.windows.every(items=2)).rows(
            n=drift.agg.count()
        ),
        lambda keyed: keyed._stream.key_by("key", "name").window(drift.windows.count(2)).rows(n=drift.agg.count()),
        lambda keyed: keyed._stream.key_by("day").window(drift.windows.count(2)).rows(n=drift.agg.count()),
        lambda keyed: keyed._stream.key_by(len).window(drift.windows.count(2)).rows(n=drift.agg.count()),
    ],
)
def test_fields_of_rows_for_windows_are_not_guessed(change: Callable[[Any], Any]) -> None:
    graph = drift.Graph("fields")
    keyed = graph.source("rows", schema=NUMBERED, time=drift.EventTime("at")).key_by("key")
    assert change(keyed).schema is None


def test_rows_for_windows_of_an_unknown_field_are_an_error() -> None:
    stream = drift.Graph("fields").source("rows", schema=NUMBERED, time=drift.EventTime("at"))
    with pytest.raises(drift.GraphError, match=r"key_by .*'nam'.*rows have .*'name'"):
        stream.key_by("nam").window(drift.windows.tumbling(5)).rows(n=drift.agg.count())


@pytest.mark.skipif(kernel is None, reason="the kernel is not built here")
@pytest.mark.parametrize("flat", [False, True])
@pytest.mark.parametrize("tie", ["id", None])
def test_windows_stay_columns_to_the_output(tie: str | None, flat: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """Or the tests of their digests would compare nothing."""
    rows = [{"id": 1000 + at, "at": at + at * 7 % 50, "zone": f"{at % 9}", "n": at % 7} for at in range(2000)]
    graph = drift.Graph("windows")
    windows = graph.source("rows", time=drift.EventTime("at", tie=tie, lateness=60)).key_by("zone")
    over, named = windows.window(drift.windows.tumbling(100)), {"n": drift.agg.count(), "mean": drift.agg.mean("n")}
    (over.rows(**named) if flat else over.aggregate(**named)).sink("out")
    expected = drift.run(graph, {"rows": rows}, engine="reference").finish().digest
    kinds = []
    add = Barrier.add

    def seen(self: Barrier, sink: str, columns: Columns) -> None:
        kinds.append(type(columns.payloads))
        add(self, sink, columns)

    monkeypatch.setattr(Barrier, "add", seen)
    source = drift.sources.table(pl.DataFrame(rows), payload="rows")
    assert drift.run(graph, {"rows": source}, batch_items=256).finish().digest == expected
    assert set(kinds) == {Frame if flat else WindowRows}
