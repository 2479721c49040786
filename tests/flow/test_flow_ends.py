"""What comes at the end, for all items and for each key, beside plain Python over sorted items."""

from __future__ import annotations

import itertools
from dataclasses import dataclass
from functools import reduce
from operator import add
from typing import Any

import flows
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from test_flow_windows import AGGREGATES, by_key, timed, value

import drift


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


def test_ends_of_ends_come_after_them_over_zeromq_too() -> None:
    def steps(stream: drift.Stream[Any]) -> drift.Stream[Any]:
        return stream.key_by(value).at_end(drift.agg.count()).at_end(drift.agg.top(2, by=count_of))

    items = [(number, number, number % 7 % 4) for number in range(100)]
    graph = flows.flow(steps, "in", time=flows.event_time())
    assert flows.outputs(graph, {"in": items}, [*flows.ENGINES, flows.ZEROMQ]) == [((0, 29), (1, 29))]


def count_of(pair: tuple[Any, int]) -> int:
    return pair[1]


def test_many_payloads_of_one_key_are_collected_in_no_more_than_a_multiple_of_the_time_of_few() -> None:
    graph = flows.flow(lambda stream: stream.at_end(drift.agg.collect()), "in")
    number = 50_000
    assert drift.run(graph, {"in": range(number)}).finish().digest
    assert [item.payload for item in drift.run(graph, {"in": range(number)})] == [tuple(range(number))]


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

    first, second, last = map(reads, (32, 64, 128))
    assert last - second <= 2.5 * (second - first)  # 2 if linear, 2.3 if each of its logarithm costs, 4 if quadratic
