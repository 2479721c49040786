"""route, split, zip, limit, dedup, inspect, flatten, drop_key: beside plain loops over sorted items."""

from __future__ import annotations

from typing import Any

import flows
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import drift
from drift_graph.errors import GraphError


def value(item: flows.Timed) -> Any:
    return item[2]


@st.composite
def timed(draw: st.DrawFn) -> list[flows.Timed]:
    times = draw(st.lists(st.integers(0, 30), max_size=20))
    items = [(time, number, draw(st.integers(0, 3))) for number, time in enumerate(times)]
    return flows.disordered(items, draw(st.integers(0, 1000)))


def is_below_5(number: int) -> bool:
    return number < 5


def is_even(number: int) -> bool:
    return number % 2 == 0


def is_positive(number: int) -> bool:
    return number > 0


@given(timed(), timed())
@settings(max_examples=10)
def test_a_zip_pairs_the_sorted_sides(left: list[flows.Timed], right: list[flows.Timed]) -> None:
    graph = flows.flow(lambda a, b: a.zip(b), "a", "b", time=flows.event_time())
    assert flows.outputs(graph, {"a": left, "b": right}) == list(zip(sorted(left), sorted(right)))


@given(st.integers(0, 300), st.integers(0, 300))
@settings(max_examples=10)
def test_what_waits_in_a_zip_comes_in_order_however_much_it_is(ahead: int, after: int) -> None:
    graph = flows.flow(lambda a, b: a.zip(b), "a", "b", time=flows.event_time())
    left = [(0, number, None) for number in range(ahead)]
    right = [(1, number, None) for number in range(after)]
    assert flows.outputs(graph, {"a": left, "b": right}, flows.ENGINES[1:2]) == list(zip(left, right))


@given(timed(), st.integers(0, 4), st.integers(0, 4), st.booleans())
@settings(max_examples=10)
def test_a_limit_gives_the_first_after_an_offset(
    items: list[flows.Timed], count: int, offset: int, keyed: bool
) -> None:
    def limited(stream: drift.Stream[Any]) -> drift.Stream[Any]:
        return stream.limit(count, offset, key=value) if keyed else stream.limit(count, offset)

    of_key: dict[Any, list[flows.Timed]] = {}
    for item in sorted(items):
        of_key.setdefault(item[2] if keyed else None, []).append(item)
    expected = sorted(item for each in of_key.values() for item in each[offset : offset + count])
    assert flows.outputs(flows.flow(limited, "in", time=flows.event_time()), {"in": items}) == expected


@given(timed(), st.none() | st.integers(0, 12))
@settings(max_examples=10)
def test_dedup_gives_the_first_of_a_key_for_ever_or_within_a_time(items: list[flows.Timed], within: int | None) -> None:
    graph = flows.flow(lambda stream: stream.dedup(value, within=within), "in", time=flows.event_time())
    given_at: dict[Any, int] = {}
    expected = []
    for item in sorted(items):
        last = given_at.get(item[2])
        if last is None or (within is not None and item[0] > last + within):
            given_at[item[2]] = item[0]
            expected.append(item)
    assert flows.outputs(graph, {"in": items}) == expected


def test_equal_payloads_are_one_by_their_bytes() -> None:
    graph = flows.flow(lambda stream: stream.dedup(), "in")
    assert flows.outputs(graph, {"in": [1, 1.0, True, 1, "a", "a"]}) == [1, 1.0, True, "a"]


def test_inspect_sees_every_item_and_changes_none() -> None:
    seen: list[int] = []
    graph = flows.flow(lambda stream: stream.inspect(seen.append), "in")
    assert [item.payload for item in drift.run(graph, {"in": range(3)})] == [0, 1, 2]
    assert seen == [0, 1, 2]


def test_flatten_drop_key_and_split() -> None:
    graph = drift.Graph("parts")
    first, second = graph.source("in").split(2)
    first.flatten().sink("members")
    second.drop_key().sink("values")
    run = drift.run(graph, {"in": [("a", 1), ("b", 2)]})
    assert [(item.sink, item.payload) for item in run] == [
        ("members", "a"), ("members", 1), ("values", 1),
        ("members", "b"), ("members", 2), ("values", 2),
    ]  # fmt: skip


@pytest.mark.parametrize(
    "steps, words",
    [
        (lambda s: s.route(), "route takes one predicate or more"),
        (lambda s: s.route(3), "takes predicates, not 3"),
        (lambda s: s.route(is_even, 3), "takes predicates, not 3"),
        (lambda s: s.limit(-1), "count= an int of 0 or more, not -1"),
        (lambda s: s.limit(1, 1.5), "offset= an int of 0 or more"),
        (lambda s: s.dedup(within=-1), "within=-1"),
        (lambda s: s.dedup(within=True), "within=True"),
        (lambda s: s.split(0), "split takes an int of 1 or more"),
        (lambda s: s.zip([1]), "is not a stream of it"),
    ],
)
def test_what_means_nothing_is_refused(steps: Any, words: str) -> None:
    with pytest.raises(drift.GraphError, match=words):
        steps(drift.Graph("refused").source("in"))


def test_a_predicate_that_raises_is_named() -> None:
    def fails(number: int) -> bool:
        return 1 // number > 0

    graph = drift.Graph("failing")
    first, second, _ = graph.source("in").route(is_positive, fails)
    first.merge(second).sink("out")
    released = []
    with pytest.raises(drift.StepError, match=r"(?s)fails.*ZeroDivisionError") as caught:
        released.extend(drift.run(graph, {"in": [2, 1, 0, 3]}))
    assert [item.payload for item in released] == [2, 1]
    assert "payload  0" in str(caught.value)


def test_streams_of_a_route_that_are_not_used_are_left_out() -> None:
    graph = drift.Graph("routes")
    stream = graph.source("in")
    low, even, _ = stream.route(is_below_5, is_even)
    graph.source("more").sink("other")
    with pytest.raises(drift.GraphError, match=r"step 'in' .*leads to no sink"):
        graph.build()
    low.sink("low")
    assert "route is_below_5.1" not in str(graph) and "after 0" not in str(graph)
    even.sink("even")
    assert "after 0" in str(graph) and "after 1" not in str(graph)
    found = [(item.sink, item.payload) for item in drift.run(graph, {"in": [1, 6, 7], "more": []})]
    assert found == [("low", 1), ("even", 6)]


def test_routes_by_lambdas_are_told_apart() -> None:
    graph = drift.Graph("routes")
    stream = graph.source("in")
    for bound in (5, 9):
        stream.route(lambda number, bound=bound: number < bound)[0].sink(f"below {bound}")
    assert [item.sink for item in drift.run(graph, {"in": [6, 1]})] == ["below 9", "below 5", "below 9"]


def test_the_name_of_a_field_is_a_key_wherever_a_function_is() -> None:
    def ended(state: int, note: None, time: int) -> tuple[int, list[Any]]:
        return state, []

    def graph_of(key: Any) -> drift.Graph:
        graph = drift.Graph("fields")
        trips = graph.source("trips")
        trips.count(key).sink("counts")
        trips.reduce(key, lambda one, other: one if one["fare"] > other["fare"] else other).sink("dearest")
        trips.scan(key, 0, lambda total, trip: (total + trip["fare"], total + trip["fare"])).sink("totals")
        trips.process(key, 0, lambda n, trip, time: (n + 1, [(n, trip["zone"])]), ended).sink("numbers")
        trips.group(key, 2).map(len).sink("sizes")
        trips.limit(1, key=key).sink("first")
        return graph

    trips = [{"zone": zone, "fare": fare} for fare, zone in enumerate("abaac")]
    keys = "zone", lambda trip: trip["zone"]
    found = [[(item.sink, item.payload) for item in drift.run(graph_of(key), {"trips": trips})] for key in keys]
    assert found[0] == found[1]
    with pytest.raises(GraphError, match="count takes a function"):
        drift.Graph("none").source("trips").count("")
