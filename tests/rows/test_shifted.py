"""`shift`, `diff` and `rolling` by key: in columns and in dicts what plain lists give."""

from __future__ import annotations

import operator
from functools import reduce
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


ROLLED = ("sum", "mean", "min", "max")


def rolled(rows: list[dict[str, Any]], of: str, suffix: str) -> dict[str, Any]:
    values = [row[of] for row in rows]
    total = reduce(operator.add, values)  # `sum` of floats is another one from Python 3.12 on
    made = {"sum": total, "mean": total / len(values), "min": min(values), "max": max(values)}
    return {name + suffix: value for name, value in made.items()}


def graph_of(n: int) -> drift.Graph:
    graph = drift.Graph("shifted")
    keyed = graph.source("rows", schema=SCHEMA).key_by("key")
    agg = drift.agg
    keyed.running(before=agg.shift("n", n), word=agg.shift("text", n), more=agg.diff("x", n)).sink("shifted")
    keyed.running(more=agg.diff("n", n)).filter("more > 0").select("key", "more").sink("more")
    rolling = {kind: agg.rolling(getattr(agg, kind)("n"), n + 1) for kind in ROLLED}
    keyed.running(**rolling, **{f"{kind} x": agg.rolling(getattr(agg, kind)("x"), n) for kind in ROLLED}).sink(
        "rolling"
    )
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
        rolling.append({**row, **rolled(of_key[-n - 1 :], "n", ""), **rolled(of_key[-n:], "x", " x")})
    if any(abs(row["sum"]) >= 2**63 for row in rolling):
        return
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


def test_rolling_aggregates_stay_columns_and_are_not_computed_where_they_may_overflow() -> None:
    states: dict[Any, Any] = {}

    def on_rows(of: Any, values: list[Any]) -> Any:
        step = running_step({"lately": drift.agg.rolling(of, 3)})
        rows = Frame(pl.DataFrame({"key": ["a"] * len(values), "n": values}))
        known = lambda keys: [states.get(key, ()) for key in keys]  # noqa: E731
        made = step.on_rows(function_of("key_by", "key"), rows, known, states.update)
        return None if made is None else [row["lately"] for row in made]

    assert on_rows(drift.agg.sum("n"), [1, 5]) == [1, 6]
    assert on_rows(drift.agg.sum("n"), [7, 9]) == [13, 21]
    assert states == {"a": ((5, 7, 9),)}
    assert on_rows(drift.agg.sum("n"), [2**62]) is None
    assert on_rows(drift.agg.mean("n"), [2**53]) is None
    assert on_rows(drift.agg.sum("n"), [1.5]) is None  # behind integers
    assert states == {"a": ((5, 7, 9),)}
    assert on_rows(drift.agg.mean("n"), [2]) == [6.0]
    states.clear()
    assert on_rows(drift.agg.max("n"), [1.0, float("nan")]) is None
    assert on_rows(drift.agg.min("n"), [0.0, -0.0]) is None
    assert on_rows(drift.agg.sum("n"), [0.1, 0.2, 0.3, 0.4]) == [0.1, 0.1 + 0.2, 0.1 + 0.2 + 0.3, 0.2 + 0.3 + 0.4]


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
