"""What comes at the end, for all items and for each key, beside plain Python over sorted items."""

from __future__ import annotations

import itertools
from dataclasses import dataclass
from decimal import Decimal
from functools import reduce
from operator import add
from typing import Any

import flows
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from test_flow_windows import AGGREGATES, by_key, timed, value

import drift
from drift_graph.canonical import canonical
from drift_kernel import kernel


@given(timed(), st.booleans())
@settings(max_examples=8)
def test_each_key_gives_its_aggregates_once_at_the_end(items: list[flows.Timed], keyed: bool) -> None:
    several = drift.agg.several(**{name: aggregate for name, (aggregate, _) in AGGREGATES.items()})

    def steps(stream: drift.Stream[Any]) -> drift.Stream[Any]:
        return stream.key_by(value).at_end(several) if keyed else stream.at_end(several)

    expected = [
        (key, {name: plain(found) for name, (_, plain) in AGGREGATES.items()})
        for key, found in by_key(items, keyed).items()
    ]
    found = flows.outputs(flows.flow(steps, "in", time=flows.event_time()), {"in": items})
    assert found == (expected if keyed else [payload for _, payload in expected])


NAN = float("nan")
numbers = st.none() | st.integers(0, 3) | st.sampled_from([0.5, 2.5, NAN])


def of_extreme(extreme: Any) -> Any:
    return lambda values: extreme([each for each in values if each == each] or values[:1], default=None)


#: Of values without None.
LEAVE_OUT: dict[str, tuple[Any, Any]] = {
    "sum": (drift.agg.sum(value), lambda values: reduce(add, values) if values else None),
    "mean": (drift.agg.mean(value), lambda values: reduce(add, values) / len(values) if values else None),
    "var": (
        drift.agg.var(value, ddof=0).then(lambda found: found and found == found),
        lambda values: (
            None if not values else False if any(each != each for each in values) else len({*values}) > 1 or 0.0
        ),
    ),
    "min": (drift.agg.min(value), of_extreme(min)),
    "max": (drift.agg.max(value), of_extreme(max)),
    "max_by": (drift.agg.max_by(value).then(lambda item: item and item[2]), of_extreme(max)),
    "first": (drift.agg.first(value), lambda values: values[0] if values else None),
    "last": (drift.agg.last(value), lambda values: values[-1] if values else None),
    "n": (drift.agg.distinct_count(value), lambda values: len({*map(canonical, values)})),
    "about": (drift.agg.approximate_distinct_count(value), lambda values: len({*map(canonical, values)})),
    "least": (
        drift.agg.quantile(0, value),
        lambda values: None if not values else NAN if any(each != each for each in values) else float(min(values)),
    ),
    "top": (
        drift.agg.top(2, value).then(lambda items: [item[2] for item in items]),
        lambda values: sorted(values, key=lambda each: (each == each, each), reverse=True)[:2],
    ),
}


@given(st.lists(numbers, min_size=1, max_size=12))
@settings(max_examples=8)
def test_none_is_left_out_of_aggregates_and_an_aggregate_of_nothing_is_none(values: list[Any]) -> None:
    several = drift.agg.several(all=drift.agg.collect(value), **{name: each for name, (each, _) in LEAVE_OUT.items()})
    graph = drift.Graph("nulls")
    stream = graph.source("in", time=flows.event_time())
    for windows in (
        drift.windows.sliding(4, 3),
        drift.windows.tumbling(3),
        drift.windows.session(2),
        drift.windows.count(2),
    ):
        stream.window(windows).aggregate(several).map(lambda window: window.value).sink(f"{windows}")
    stream.at_end(several).sink("out")
    stream.at_end(several, parts=3).sink("parts")
    items = [(at + at // 4, at, each) for at, each in enumerate(values)]
    run = drift.run(graph, {"in": items}, engine="reference")
    outputs = [item.payload for item in run]
    assert drift.run(graph, {"in": items}, batch_items=5).finish().digest == run.digest
    for found in outputs:
        left = [each for each in found["all"] if each is not None]
        expected = {name: plain(left) for name, (_, plain) in LEAVE_OUT.items()}
        assert canonical({**found, "all": None}) == canonical({"all": None, **expected})


@pytest.mark.parametrize("parts", [None, 1])
def test_where_there_is_nothing_but_nan_the_first_is_the_least_and_the_greatest(parts: int | None) -> None:
    several = drift.agg.several(least=drift.agg.min_by(value), greatest=drift.agg.max_by(value))
    graph = flows.flow(lambda stream: stream.at_end(several, parts=parts), "in", time=flows.event_time())
    (found,) = flows.outputs(graph, {"in": [(at, at, each) for at, each in enumerate([None, NAN, NAN, None])]})
    assert {name: item[1] for name, item in found.items()} == {"least": 1, "greatest": 1}


@pytest.mark.parametrize("schema", [None, {"v": int}])
def test_a_difference_from_none_is_none(schema: Any) -> None:
    graph = drift.Graph("differences")
    stream = graph.source("in") if schema is None else graph.source("in", schema=schema)
    stream.key_by(lambda row: 0).running(more=drift.agg.diff("v")).map(lambda row: row["more"]).sink("out")
    found = flows.outputs(graph, {"in": [{"v": each} for each in (1, None, 3, 4)]}, ())
    assert found == [None, None, None, 1]


@given(
    st.lists(st.integers(-9, 9) | st.floats(-9, 9), min_size=1, max_size=9),
    st.lists(st.sampled_from([0, 0.1, 0.25, 0.5, 0.75, 1]), min_size=1, max_size=4),
    st.sampled_from(["linear", "lower", "higher", "nearest", "midpoint"]),
)
@settings(max_examples=20)
def test_quantiles_are_those_of_numpy_and_of_decimals_exact(values: list[Any], shares: list[Any], way: Any) -> None:
    graph = flows.flow(lambda stream: stream.at_end(drift.agg.quantile(shares, interpolation=way)), "in")
    (found,) = flows.outputs(graph, {"in": values}, ())
    assert all(type(each) is float for each in found)
    assert found == pytest.approx(np.quantile(np.array(values, float), shares, method=way).tolist())
    (exact,) = flows.outputs(graph, {"in": [Decimal(round(each)) for each in values]}, ())
    whole = np.quantile(np.array([round(each) for each in values], float), shares, method=way).tolist()
    assert all(type(each) is Decimal for each in exact) and list(map(float, exact)) == pytest.approx(whole)


def test_ends_of_ends_come_after_them() -> None:
    def steps(stream: drift.Stream[Any]) -> drift.Stream[Any]:
        odd = drift.agg.sum(lambda item: item[1] % 2 if item[2] else None)
        of_keys = stream.key_by(value).at_end(drift.agg.several(n=drift.agg.count(), odd=odd))
        return of_keys.at_end(drift.agg.top(4, by=count_of))

    items = [(number, number, number % 7 % 4) for number in range(100)]
    graph = flows.flow(steps, "in", time=flows.event_time())
    (found,) = flows.outputs(graph, {"in": items})
    assert [(key, of["n"], of["odd"]) for key, of in found] == [(0, 29, None), (1, 29, 15), (2, 28, 14), (3, 14, 7)]


def count_of(pair: tuple[Any, dict[str, Any]]) -> int:
    return pair[1]["n"]  # type: ignore[no-any-return]


@given(timed(), st.booleans(), st.integers(1, 12))
@settings(max_examples=8)
def test_an_end_in_two_steps_gives_what_one_step_gives(items: list[flows.Timed], keyed: bool, parts: int) -> None:
    several = drift.agg.several(**{name: aggregate for name, (aggregate, _) in AGGREGATES.items()})

    def found(parts: int | None, engines: Any) -> list[Any]:
        def steps(stream: drift.Stream[Any]) -> drift.Stream[Any]:
            if keyed:
                return stream.key_by(value).at_end(several, parts=parts)
            return stream.at_end(several, parts=parts)

        return flows.outputs(flows.flow(steps, "in", time=flows.event_time()), {"in": items}, engines)

    assert found(parts, flows.ENGINES) == found(None, ())


@pytest.mark.long
def test_floats_in_two_steps_are_added_up_by_stretches_of_the_order_with_any_workers() -> None:
    items = [(number // 3, number, 0.1 * number) for number in range(200)]
    by_parts = [reduce(add, [item[2] for item in items[start : start + 30]]) for start in range(0, 200, 30)]
    total = reduce(add, by_parts)  # `sum` makes up for what is lost, from Python 3.12 on
    assert total != reduce(add, [item[2] for item in items])
    graph = flows.flow(lambda stream: stream.at_end(drift.agg.sum(value), parts=10), "in", time=flows.event_time())
    for seed in range(2):
        engines = [*flows.ENGINES, {**flows.ZEROMQ, "workers": 3}]
        assert flows.outputs(graph, {"in": flows.disordered(items, seed)}, engines) == [total]
    numbered = flows.flow(lambda stream: stream.at_end(drift.agg.collect(), parts=7), "in")
    assert flows.outputs(numbered, {"in": range(100)}) == [tuple(range(100))]


def test_stretches_that_are_no_time_are_refused() -> None:
    with pytest.raises(drift.GraphError, match=r"at_end: parts=0 .at .*test_flow_ends"):
        drift.Graph("refused").source("in").at_end(drift.agg.count(), parts=0)


READS = itertools.count()


@dataclass(frozen=True, order=True)
class Read:
    """Counts how often a field of a payload is read, by whatever encodes, compares or orders it."""

    n: int

    def __getattribute__(self, name: str) -> Any:
        next(READS)
        return object.__getattribute__(self, name)


@pytest.mark.parametrize("more", [{"engine": "reference"}, {"batch_items": 1}], ids=str)
@pytest.mark.parametrize(
    "aggregate",
    [drift.agg.collect, drift.agg.sort, drift.agg.distinct, lambda: drift.agg.quantile(0), lambda: drift.agg.top(5)],
)
def test_an_item_costs_what_it_costs_however_many_values_an_aggregate_has_stored(aggregate: Any, more: Any) -> None:
    def reads(count: int) -> int:
        graph = drift.Graph("reads")
        graph.source("in").at_end(aggregate()).sink("out")
        payloads = [Read(n) for n in range(count)]
        before = next(READS)
        drift.run(graph, {"in": payloads}, **more).finish()
        return next(READS) - before

    if kernel is None and aggregate is drift.agg.sort and "batch_items" in more:
        pytest.skip("without the kernel each batch looks at the whole state of a sort for what may change")
    first, second, last = map(reads, (32, 64, 128))
    assert last - second <= 2.5 * (second - first)  # 2 if linear, 2.3 if each of its logarithm costs, 4 if quadratic
