"""`shift`, `diff` and `rolling` by key: in columns and in dicts what plain lists give."""

from __future__ import annotations

from typing import Any

import polars as pl
from hypothesis import given
from hypothesis import strategies as st

import drift
from drift.columns.rows import Frame
from drift.flow.fields import function_of
from drift.flow.running import running_step

SCHEMA = {"key": str, "n": int, "x": float, "text": str}
rows_of = st.fixed_dictionaries(
    {
        "key": st.sampled_from("abc"),
        "n": st.integers(-5, 5) | st.sampled_from([2**62, -(2**62), 2**63 - 1]),
        "x": st.floats(allow_nan=False),
        "text": st.none() | st.text(max_size=2),
    }
)


def graph_of(n: int) -> drift.Graph:
    graph = drift.Graph("shifted")
    keyed = graph.source("rows", schema=SCHEMA).key_by("key")
    agg = drift.agg
    keyed.running(before=agg.shift("n", n), word=agg.shift("text", n), more=agg.diff("x", n)).sink("shifted")
    keyed.running(more=agg.diff("n", n)).filter("more > 0").select("key", "more").sink("more")
    keyed.running(lately=agg.rolling(agg.max("n"), n + 1)).sink("rolling")
    return graph


@given(st.lists(rows_of, max_size=20), st.integers(1, 3), st.integers(1, 20))
def test_values_before_are_those_of_a_list_for_each_key(rows: list[dict[str, Any]], n: int, at_once: int) -> None:
    rows = [{name: row[name] for name in SCHEMA} for row in rows]
    seen: dict[str, list[dict[str, Any]]] = {}
    shifted: list[Any] = []
    more: list[Any] = []
    rolling: list[Any] = []
    for row in rows:
        of_key = seen.setdefault(row["key"], [])
        of_key.append(row)
        old = of_key[-1 - n] if len(of_key) > n else None
        before = None if old is None else old["n"]
        text = None if old is None else old["text"]
        shifted.append({**row, "before": before, "word": text, "more": None if old is None else row["x"] - old["x"]})
        if old is not None and row["n"] > old["n"]:
            more.append({"key": row["key"], "more": row["n"] - old["n"]})
        rolling.append({**row, "lately": max(each["n"] for each in of_key[-n - 1 :])})
    if any(not -(2**63) <= row["more"] < 2**63 for row in more) or any(abs(row["n"]) > 2**62 for row in rows):
        return  # an integer of a field has 64 bits: such a difference ends the run
    source = drift.sources.table(pl.DataFrame(rows, schema=SCHEMA), payload="rows")
    runs = [drift.run(graph_of(n), {"rows": given}, batch_items=at_once) for given in (rows, source)]
    runs.append(drift.run(graph_of(n), {"rows": rows}, engine="reference"))
    for run in runs:
        items = list(run)
        payloads = [[item.payload for item in items if item.sink == sink] for sink in ("shifted", "more", "rolling")]
        assert repr(payloads) == repr([shifted, more, rolling])
    assert len({run.digest for run in runs}) == 1


def test_values_before_stay_columns_and_numbers_that_may_overflow_do_not() -> None:
    states: dict[Any, Any] = {}

    def on_rows(step: Any, numbers: list[int]) -> Any:
        rows = Frame(pl.DataFrame({"key": ["a"] * len(numbers), "n": numbers}))
        known = lambda keys: [states.get(key, ()) for key in keys]  # noqa: E731
        return step.on_rows(function_of("key_by", "key"), rows, known, states.update)

    step = running_step({"before": drift.agg.shift("n"), "more": drift.agg.diff("n")})
    assert list(on_rows(step, [1, 5])) == [
        {"key": "a", "n": 1, "before": None, "more": None},
        {"key": "a", "n": 5, "before": 1, "more": 4},
    ]
    assert list(on_rows(step, [7])) == [{"key": "a", "n": 7, "before": 5, "more": 2}]
    assert states == {"a": ((5, 7), (5, 7))}
    assert on_rows(step, [2**63 - 1]) is None and states == {"a": ((5, 7), (5, 7))}


@given(st.lists(st.integers(0, 9), min_size=2, max_size=9), st.integers(1, 3), st.data())
def test_parts_are_merged_to_the_whole(values: list[int], n: int, data: st.DataObject) -> None:
    cut = data.draw(st.integers(1, len(values) - 1))
    for aggregate in (drift.agg.shift(n=n), drift.agg.diff(n=n), drift.agg.rolling(drift.agg.sum(), n)):

        def of(some: list[int], aggregate: Any = aggregate) -> Any:
            made = aggregate.begin(some[0])
            for value in some[1:]:
                made = aggregate.add(made, value)
            return made

        assert aggregate.merge(of(values[:cut]), of(values[cut:])) == of(values)
