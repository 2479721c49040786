"""`shift`, `diff` and `rolling` by key: in columns and in dicts what plain lists give."""

from __future__ import annotations

import math
import operator
from functools import reduce
from typing import Any

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

import drift
from drift.columns.rows import Frame
from drift.flow.fields import function_of
from drift.flow.running import running_step
from drift_kernel import kernel

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


def on_rows(states: dict[Any, Any], values: list[Any], **named: Any) -> Any:
    """What a step of running aggregates gives of rows of one key, and their fields; it adds to the states."""
    rows = Frame(pl.DataFrame({"key": ["a"] * len(values), "n": values}))
    known = lambda keys: [states.get(key, ()) for key in keys]  # noqa: E731
    made = running_step(named).on_rows(function_of("key_by", "key"), rows, known, states.update)
    if kernel is None:
        assert made is None
        pytest.skip("rows are added one by one")
    return type(made) is Frame, [{name: row[name] for name in named} for row in made]


def test_values_before_stay_columns_and_differences_that_are_in_none_are_objects() -> None:
    states: dict[Any, Any] = {}
    step = {"before": drift.agg.shift("n"), "more": drift.agg.diff("n")}
    assert on_rows(states, [1, 5], **step) == (True, [{"before": None, "more": None}, {"before": 1, "more": 4}])
    assert on_rows(states, [7], **step) == (True, [{"before": 5, "more": 2}])
    assert states == {"a": ((5, 7), (5, 7))}
    found = [{"before": 7, "more": -(2**63) - 6}, {"before": 1 - 2**63, "more": 2**63 + 7}]
    assert on_rows(states, [1 - 2**63, 8], **step) == (False, found)
    assert states == {"a": ((1 - 2**63, 8), (1 - 2**63, 8))}
    assert on_rows(states, [2**63 - 1, None], more=step["before"]) == (True, [{"more": 8}, {"more": 2**63 - 1}])


@pytest.mark.parametrize(
    ("of", "batches"),
    [
        (drift.agg.sum("n"), [([1, 5], True, [1, 6]), ([2**63 - 7, 3], False, [2**63 - 1, 2**63 + 2])]),
        (drift.agg.sum("n"), [([None], False, [None]), ([None, 2, None], True, [None, 2, 2]), ([1.5], True, [3.5])]),
        (drift.agg.sum("n"), [([None, 2**63 - 1, 3], False, [None, 2**63 - 1, 2**63 + 2])]),
        (drift.agg.sum("n"), [([1.0], True, [1.0]), ([True], True, [2.0]), ([2**53], True, [2.0**53 + 2])]),
        (
            drift.agg.mean("n"),
            [([2**53 + 1, 2], True, [float(2**53 + 1), (2**53 + 3) / 2]), ([None], True, [2.0**52 + 2])],
        ),
        (drift.agg.mean("n"), [([2**63 - 1] * 3, True, [float(2**63 - 1)] * 3), ([5], True, [(3 * 2**63 + 2) / 4])]),
        (drift.agg.min("n"), [([0.0, -0.0], True, [0.0, 0.0]), ([-0.0], True, [0.0]), ([-1], True, [-1])]),
        (
            drift.agg.max("n"),
            [([math.nan, 2.0, math.nan], True, [math.nan, 2.0, 2.0]), ([None, 3.0], True, [2.0, 3.0])],
        ),
        (drift.agg.max("n"), [(["a", None, "b"], True, ["a", "a", "b"]), (["ab"], True, ["b"])]),
        (drift.agg.shift("n"), [(pl.Series([0.5, 1], dtype=pl.Float32), False, [None, 0.5]), ([2.0], True, [1.0])]),
        (drift.agg.count(), [(["a", None], True, [1, 2]), ([None], True, [3])]),
        (drift.agg.rolling(drift.agg.sum("n"), 3), [([1, 5], True, [1, 6]), ([2**63 - 1], False, [2**63 + 5])]),
        (
            drift.agg.rolling(drift.agg.mean("n"), 2),
            [([2**53, 3], True, [2.0**53, 2.0**52 + 1.5]), ([1.5], True, [2.25])],
        ),
        (drift.agg.rolling(drift.agg.max("n"), 2), [([1.0, math.nan], True, [1.0, 1.0]), ([-1.0], True, [-1.0])]),
    ],
)
def test_an_aggregate_whose_values_are_no_numbers_goes_on_with_objects(of: Any, batches: list[Any]) -> None:
    """Each batch with the type of its own column; `running` adds one by one, and so do the columns."""
    states: dict[Any, Any] = {}
    accumulator: Any = None
    for values, in_columns, expected in batches:
        assert repr(on_rows(states, values, total=of)) == repr((in_columns, [{"total": each} for each in expected]))
        for value in of.values_of([{"n": value} for value in values]):
            accumulator = of.begin_value(value) if accumulator is None else of.add_value(accumulator, value)
        assert repr(states) == repr({"a": (accumulator,)})


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
