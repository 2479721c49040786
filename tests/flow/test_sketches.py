"""Sketches beside what they are about: sets and sorted lists; and the law that order and merges change nothing."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import drift
from drift.flow.accumulators import Aggregate
from drift.flow.sketches import bucket_of, buckets_for, middle_of

numbers = st.integers(-(10**9), 10**9) | st.floats(allow_nan=False, allow_infinity=False)


def added(aggregate: Aggregate[Any, Any], values: list[Any]) -> Any:
    accumulator = aggregate.begin(values[0])
    for value in values[1:]:
        accumulator = aggregate.add(accumulator, value)
    return accumulator


def found(aggregate: Aggregate[Any, Any], values: list[Any]) -> Any:
    return aggregate.result(added(aggregate, values))


@given(
    st.lists(st.lists(st.integers(0, 300), min_size=1, max_size=150), min_size=1, max_size=5),
    st.integers(4, 8),
    st.randoms(use_true_random=False),
)
def test_a_distinct_count_is_of_the_set_in_any_order_and_in_any_parts(
    parts: list[list[int]], precision: int, random: Any
) -> None:
    aggregate = drift.agg.approximate_distinct_count(precision=precision)
    values = [value for part in parts for value in part]
    expected = found(aggregate, sorted(set(values)))
    merged = added(aggregate, parts[0])
    for part in parts[1:]:
        merged = aggregate.merge(merged, added(aggregate, part))
    assert aggregate.result(merged) == expected
    random.shuffle(values)
    assert found(aggregate, values) == expected
    if len(set(values)) <= 2**precision // 8:
        assert expected == len(set(values))


@pytest.mark.parametrize(("precision", "error"), [(6, 0.39), (12, 0.049), (14, 0.025)])
def test_a_distinct_count_is_off_by_no_more_than_three_standard_deviations(precision: int, error: float) -> None:
    aggregate = drift.agg.approximate_distinct_count(precision=precision)
    accumulator = aggregate.begin(0)
    for number in range(30_000):
        accumulator = aggregate.add(accumulator, str(number))
        if number in (10, 100, 1000, 5000, 29_999):
            assert aggregate.result(accumulator) == pytest.approx(number + 2, rel=error)


@given(
    st.lists(st.lists(numbers, min_size=1, max_size=200), min_size=1, max_size=4),
    st.sampled_from([0.0, 0.25, 0.5, 0.9, 1.0]),
    st.sampled_from([0.5, 0.1, 0.01, 0.001]),
    st.randoms(use_true_random=False),
)
def test_a_quantile_is_near_the_value_of_its_rank_in_any_order_and_in_any_parts(
    parts: list[list[float]], q: float, error: float, random: Any
) -> None:
    aggregate = drift.agg.approximate_quantile(q, error=error)
    values = [value for part in parts for value in part]
    merged = added(aggregate, parts[0])
    for part in parts[1:]:
        merged = aggregate.merge(merged, added(aggregate, part))
    about = aggregate.result(merged)
    exact = sorted(values)[int(q * (len(values) - 1))]
    assert abs(about - exact) <= error * abs(exact)
    random.shuffle(values)
    assert found(aggregate, values) == about


@given(st.lists(numbers, min_size=2, max_size=2), st.sampled_from([1, 64]))
def test_buckets_are_in_the_order_of_numbers(two: list[float], buckets: int) -> None:
    low, high = (bucket_of(each, buckets) for each in sorted(two))
    assert low <= high and bucket_of(middle_of(low, buckets), buckets) == low


def test_what_sketches_give_stays() -> None:
    names = [f"name {number % 9000}" for number in range(10_000)]
    assert found(drift.agg.approximate_distinct_count(), names) == GOLDEN[0]
    fares = [number * 7919 % 10_007 / 7 - 100 for number in range(10_000)]
    assert [found(drift.agg.approximate_quantile(q), fares) for q in (0.01, 0.5, 0.99)] == GOLDEN[1]
    assert buckets_for(0.01) == 64


GOLDEN = (9029, [-85.5, 612.0, 1320.0])


@pytest.mark.parametrize("engine", ["reference", "local", "zeromq"])
def test_sliding_windows_share_sketches(engine: Any) -> None:
    graph = drift.Graph("shares")
    source = graph.source("numbers", time=drift.EventTime(time=lambda number: number // 10))
    users = drift.agg.approximate_distinct_count(lambda number: number % 700, precision=6)
    windows = source.window(drift.windows.sliding(40, every=10))
    windows.rows(users=users, middle=drift.agg.approximate_quantile(0.5)).sink("out")
    rows = [item.payload for item in drift.run(graph, {"numbers": range(2000)}, engine=engine)]
    for row in rows:
        inside = range(max(10 * row["start"], 0), min(10 * row["end"], 2000))
        assert row["users"] == found(drift.agg.approximate_distinct_count(precision=6), [n % 700 for n in inside])
        assert row["middle"] == pytest.approx(inside[(len(inside) - 1) // 2], rel=0.01)


@pytest.mark.parametrize("value", [float("nan"), float("inf"), "7"])
def test_what_is_no_finite_number_fails_at_its_item(value: Any) -> None:
    graph = drift.Graph("bad")
    graph.source("numbers").at_end(drift.agg.approximate_quantile(0.5)).sink("out")
    with pytest.raises(drift.StepError, match=r"has no place among quantiles|must be real number"):
        list(drift.run(graph, {"numbers": [1, value]}))
