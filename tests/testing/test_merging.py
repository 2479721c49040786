"""`deterministic` finds merge functions that give something else than the aggregate itself, and no others."""

from __future__ import annotations

import operator
from dataclasses import dataclass
from typing import Any

import pytest
from hypothesis import Phase, settings
from hypothesis import strategies as st

import drift
from drift.testing.check import Case, check
from drift.testing.report import report as report_of
from drift.testing.schedule import Schedule


def less(a: int, b: int) -> int:
    return a - b


def one_more(number: int, _: Any) -> int:
    return number + 1


@dataclass(frozen=True)
class Spread(drift.agg.Aggregate[int, int]):
    """The distance between the least and the greatest payload."""

    keeps: int

    def begin(self, payload: int) -> tuple[int, int]:
        return payload, payload

    def add(self, accumulator: tuple[int, int], payload: int) -> tuple[int, int]:
        return min(accumulator[0], payload), max(accumulator[1], payload)

    def merge(self, left: tuple[int, int], right: tuple[int, int]) -> tuple[int, int]:
        return (left, right)[self.keeps - 1] if self.keeps else self.add(self.add(left, right[0]), right[1])

    def result(self, accumulator: tuple[int, int]) -> int:
        return accumulator[1] - accumulator[0]


INTS = [0, 2, 3, 3, 7, 8, 13, 15, 20]
FLOATS = [0.1, 0.7, 1.1, 2.3, 3.9, 9.7]
SLIDING = drift.windows.sliding(6, 2)
agg = drift.agg


def graph_of(aggregate: Any, window: Any) -> drift.Graph:
    graph = drift.Graph("merged")
    keyed = graph.source("numbers", time=drift.EventTime(time=int)).key_by(lambda n: 0)
    if window is None:
        keyed.at_end(aggregate, parts=4).sink("out")
    else:
        keyed.window(window).aggregate(aggregate).sink("out")
    return graph


def failure_of(aggregate: Any, window: Any, numbers: list[Any]) -> str:
    """What a run of the harness reports; "" if nothing."""
    result = check(Case(graph_of(aggregate, window).build(), {"numbers": numbers}, Schedule()))
    return "" if result.failure is None else report_of(result)


@pytest.mark.parametrize(
    ("aggregate", "window"),
    [
        (agg.reduce(less, merge=less), SLIDING),
        (agg.fold(0, one_more, merge=max), drift.windows.count(4, 2)),
        (agg.fold(0, one_more, merge=max), None),
        (agg.several(n=agg.count(), last=agg.reduce(less, merge=less)), SLIDING),
        (Spread(keeps=1), SLIDING),
    ],
    ids=["reduce", "by number", "at the end", "one of several", "a user's aggregate"],
)
def test_a_merge_that_is_not_what_the_aggregate_is_is_found(aggregate: Any, window: Any) -> None:
    report = failure_of(aggregate, window, INTS)
    assert "windows whose parts are merged wrong" in report
    assert "one by one" in report and "leave merge= out" in report


def test_the_harness_finds_it_among_drawn_inputs() -> None:
    wrong = drift.testing.deterministic(
        graph_of(agg.reduce(less, merge=less), SLIDING),
        numbers=st.lists(st.integers(0, 9), max_size=5),
        check_purity=False,
    )
    with pytest.raises(drift.testing.NotDeterministic, match="windows whose parts are merged wrong"):
        settings(max_examples=20, database=None, phases=[Phase.generate])(wrong(lambda run: None))()


@pytest.mark.parametrize(
    ("aggregate", "numbers"),
    [
        (agg.reduce(less), INTS),
        (agg.fold(0, one_more, merge=operator.add), INTS),
        (agg.reduce(operator.add, merge=operator.add), FLOATS),
        (Spread(keeps=0), INTS),
    ],
    ids=["without", "a count", "floats", "a user's aggregate"],
)
@pytest.mark.parametrize("window", [SLIDING, drift.windows.count(4, 2), None], ids=["sliding", "by number", "at end"])
def test_what_is_merged_right_passes(aggregate: Any, window: Any, numbers: Any) -> None:
    assert failure_of(aggregate, window, numbers) == ""
