"""Iterations beside plain loops: over what the round before gave, or the same items, with states between."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import flows
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import drift
from drift.engines.simulated.simulation import Simulation
from drift.testing.schedule import Player, Schedule

LOCAL: tuple[dict[str, Any], ...] = ({"batch_items": 4}, {"batch_items": 4, "fused": False})
ENGINES = pytest.mark.parametrize("engine", [*LOCAL, flows.ZEROMQ], ids=str)

Pairs = drift.Stream[tuple[Any, Any]]


def outcome(graph: drift.Graph, inputs: dict[str, Any], **more: Any) -> list[tuple[str, Any]]:
    return [(item.sink, item.payload) for item in drift.run(graph, inputs, **more)]


def by_sink(graph: drift.Graph, inputs: dict[str, Any], engine: dict[str, Any]) -> dict[str, list[Any]]:
    """The output of the reference, which an engine gives too."""
    expected = drift.run(graph, inputs, engine="reference")
    found: dict[str, list[Any]] = {}
    for item in expected:
        found.setdefault(item.sink, []).append(item.payload)
    run = drift.run(graph, inputs, **engine)
    run.finish()
    assert run.digest == expected.digest
    return found


def second(pair: tuple[Any, Any]) -> Any:
    return pair[1]


def ten_more(pair: tuple[int, int]) -> int:
    return pair[1] + 10


def added(state: int, item: int) -> int:
    return state + item


def tens(items: Pairs) -> drift.Stream[int]:
    return items.map(ten_more)


# Drawn bodies beside a plain loop.


def halves(items: Pairs) -> drift.Stream[Any]:
    return items.flat_map(lambda pair: [pair[1] // 2] if pair[1] > (pair[0] or 0) % 3 else [])


def plain_halves(state: Any, numbers: Sequence[int]) -> list[int]:
    return [number // 2 for number in numbers if number > (state or 0) % 3]


def sums(items: Pairs) -> drift.Stream[Any]:
    return items.map(lambda pair: pair[1] + pair[0] % 5).key_by(lambda n: n % 3).at_end(drift.agg.sum()).map(second)


def plain_sums(state: Any, numbers: Sequence[int]) -> list[int]:
    found: dict[int, int] = {}
    for number in numbers:
        number += state % 5
        found[number % 3] = found.get(number % 3, 0) + number
    return list(found.values())


def twice(items: Pairs) -> drift.Stream[Any]:
    """A loop within it, of the items that are odd; two of its rounds, or until they are even."""
    odd, even = items.map(second).route(lambda number: number % 2)
    _, inner = odd.iterate(2, 0, lambda s: s.map(lambda pair: pair[1] * 3 + pair[0] % 7), added, lambda n: n % 2 == 0)
    return even.map(lambda number: number + 1).merge(inner)


def plain_twice(state: Any, numbers: Sequence[int]) -> list[int]:
    odd = [number for number in numbers if number % 2]
    inner = 0
    for _ in range(2):
        odd = [number * 3 + inner % 7 for number in odd]
        inner = sum(odd, inner)
        if inner % 2 == 0:
            break
    return [number + 1 for number in numbers if number % 2 == 0] + odd


BODIES: list[tuple[Callable[[Pairs], drift.Stream[Any]], Callable[[Any, Sequence[int]], list[int]]]] = [
    (halves, plain_halves),
    (sums, plain_sums),
    (twice, plain_twice),
]


def plain(numbers: Sequence[int], step: Any, rounds: int, modulus: int, replays: bool) -> tuple[Any, list[int]]:
    state, items = 0, list(numbers)
    for _ in range(rounds):
        items = step(state, numbers if replays else items)
        state = sum(items, state)
        if state % modulus == 0 or (not items and not replays):
            break
    return state, items


def looped(body: Any, rounds: int, modulus: int, replays: bool, aggregate: Any) -> drift.Graph:
    graph = drift.Graph("looped")
    source = graph.source("in", time=drift.EventTime(lambda number: number, lateness=100))

    def until(state: int) -> bool:
        return state % modulus == 0

    if replays:
        source.replay(rounds, 0, body, added, until, aggregate=aggregate).sink("state")
    else:
        state, items = source.iterate(rounds, 0, body, added, until, aggregate=aggregate)
        state.sink("state")
        items.sink("items")
    return graph


@given(
    st.lists(st.integers(0, 60), min_size=1, max_size=12),
    st.integers(0, len(BODIES) - 1),
    st.integers(1, 4),
    st.sampled_from([2, 3, 7, 1000]),
    st.booleans(),
    st.sampled_from([None, drift.agg.sum()]),
    st.integers(1, 2**32),
)
@settings(max_examples=8)
def test_rounds_are_those_of_a_plain_loop(
    numbers: list[int], at: int, rounds: int, modulus: int, replays: bool, aggregate: Any, noise: int
) -> None:
    body, step = BODIES[at]
    state, items = plain(numbers, step, rounds, modulus, replays)
    graph = looped(body, rounds, modulus, replays, aggregate)
    expected = drift.run(graph, {"in": numbers}, engine="reference")
    found = [(item.sink, item.payload) for item in expected]
    assert [payload for sink, payload in found if sink == "state"] == [state]
    if not replays:
        assert sorted(payload for sink, payload in found if sink == "items") == sorted(items)
    for engine in LOCAL:
        assert drift.run(graph, {"in": numbers}, **engine).finish().digest == expected.digest
    for workers in (1, 3):
        schedule = Player(Schedule(noise=noise))
        run = Simulation(graph.build(), {"in": numbers}, schedule, workers=workers, batch_items=4).run()
        assert run.error is None and run.digest == expected.digest


@pytest.mark.parametrize("where", ["body", "table key", "fold", None])
@given(st.integers(0, 11), st.integers(0, 2), st.sampled_from([1, 4, 1000]))
@settings(max_examples=4)
def test_a_round_taken_at_once_gives_what_its_items_give_one_by_one(
    where: str | None, item: int, turn: int, batch_items: int
) -> None:
    """Where a call raises as well: at any item, in any round."""

    def checked(at: str, number: int, state: int) -> int:
        if at == where and (state, number) == (turn, item):
            raise LookupError(number)
        return number

    graph = drift.Graph("at once")
    numbers = graph.source("in")
    rows = numbers.flat_map(lambda number: [(number, "one"), (number, "more")] if number % 4 else [])

    def body(pairs: Pairs) -> drift.Stream[Any]:
        known = pairs.map(lambda pair: (pair[0], checked("body", pair[1], pair[0])))
        joined = known.join_table(rows, lambda pair: checked("table key", pair[1], pair[0]), lambda row: row[0])
        counted = joined.scan(lambda pair: pair[0][1], 0, lambda count, pair: (count + 1, (pair, count)))
        counted.sink("seen")
        return counted.key_by(lambda each: each[0][0][1]).at_end(drift.agg.count()).map(lambda pair: pair[0])

    def fold(state: int, number: int) -> int:
        return state + (checked("fold", number, state) == 11)

    numbers.iterate(3, 0, body, fold)[1].sink("last")
    outputs = []
    for engine in ({"engine": "reference"}, {"batch_items": batch_items}):
        run = drift.run(graph, {"in": range(12)}, **engine)
        found: list[Any] = []
        try:
            found += ((each.sink, each.payload) for each in run)
        except drift.StepError as error:
            found.append(str(error))
        outputs.append((found, run.digest))
    assert outputs[0] == outputs[1]


def test_nothing_of_a_round_is_retained_for_corrections_on_local(monkeypatch: pytest.MonkeyPatch) -> None:
    """Once minimal time has reached a round, nothing comes below its items."""
    kept: list[int] = []
    monkeypatch.setattr("drift.machines.log.Log.append", lambda log, metas, *columns: kept.append(len(metas)))
    graph = drift.Graph("whole")

    def body(pairs: Pairs) -> drift.Stream[Any]:
        counted = pairs.map(second).scan(lambda n: n % 7, 0, lambda count, n: (count + 1, n))
        return counted.key_by(lambda n: n).at_end(drift.agg.count()).map(lambda pair: pair[0])

    graph.source("in").iterate(3, 0, body, added)[0].sink("sum")
    (item,) = drift.run(graph, {"in": range(100)})
    assert item.payload == 3 * sum(range(100)) and kept == []


# Rounds by hand.


def test_what_comes_by_rounds_by_hand_corrects_what_is_behind_it() -> None:
    """Its moments are between those of input items, which came in one batch with what comes before it."""
    graph = drift.Graph("between")
    loop: drift.Feedback[int] = graph.feedback("loop")
    seen = graph.source("in").merge(loop).group(lambda number: number % 2, 1)
    seen.flat_map(lambda window: [drift.next_round(window[0] - 2)] if window[0] > 1 else [], later=True).feed(loop)
    last = seen.map(second_of_none).scan(lambda number: None, 0, lambda before, number: (number, (before, number)))
    last.sink("in a row")
    by_sink(graph, {"in": range(9)}, {"batch_items": 1000})


def test_what_rounds_send_to_a_later_time_is_corrected_by_what_later_rounds_send_there() -> None:
    """All sources are past that time, but not the rounds that send to it, and the first item takes most of them."""
    graph = drift.Graph("ahead")
    loop: drift.Feedback[int] = graph.feedback("loop")
    numbers = graph.source("in").map(lambda number: drift.at(10, number), later=True)
    seen = numbers.merge(loop).group(lambda number: number, 1)
    seen.flat_map(lambda window: [drift.next_round(window[0] - 2)] if window[0] > 1 else [], later=True).feed(loop)
    left = seen.flat_map(lambda window: [drift.at(20, window[0])] if window[0] < 2 else [], later=True)
    last = left.scan(lambda number: None, -1, lambda before, number: (number, (before, number)))
    last.sink("in a row")
    assert by_sink(graph, {"in": [5, 2]}, {})["in a row"] == [(-1, 1), (1, 0)]


@ENGINES
def test_items_are_put_a_round_later_by_hand(engine: dict[str, Any]) -> None:
    """Of each time the rounds come one after the other, with all items of one before the next."""
    graph = drift.Graph("by hand")
    loop: drift.Feedback[int] = graph.feedback("loop")
    numbers = graph.source("in").map(lambda number: drift.at(number // 4 * 4 + 4, number), later=True)
    seen = numbers.merge(loop).group(lambda number: None, 1, name="seen")
    seen.flat_map(
        lambda window: [drift.next_round(window[0] // 2)] if window[0] > 1 else [], later=True, name="half"
    ).feed(loop)
    seen.map(second_of_none).sink("out")
    found = by_sink(graph, {"in": range(8)}, engine)["out"]
    assert found == [0, 1, 2, 3, 1, 1, 4, 5, 6, 7, 2, 2, 3, 3, 1, 1, 1, 1]


def second_of_none(window: tuple[int, ...]) -> int:
    return window[-1]


def test_rounds_without_end_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("drift_graph.later.HOPS_MAX", 50)
    graph = drift.Graph("for ever")
    loop: drift.Feedback[int] = graph.feedback("loop")
    seen = graph.source("in").merge(loop).group(lambda number: None, 1)
    seen.flat_map(lambda window: [drift.next_round(window[0])], later=True, name="once more").feed(loop)
    seen.sink("out")
    with pytest.raises(drift.StepError, match=r"'once more'[^~]*a round later, for 50 times"):
        drift.run(graph, {"in": [1]}).finish()


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"max_rounds": 0}, "an int of 1 or more, not 0"),
        ({"fold": 3}, "fold= a function, not 3"),
        ({"until": "x"}, "until= a function, not 'x'"),
        ({"aggregate": drift.agg.sum}, "is no aggregate"),
        ({"body": lambda items: 3}, "is not a stream of it"),
    ],
)
@pytest.mark.parametrize("kind", ["iterate", "replay"])
def test_what_is_no_iteration_is_refused(kind: str, wrong: dict[str, Any], message: str) -> None:
    items = {"max_rounds": 3, "state": 0, "body": tens, "fold": added, **wrong}
    with pytest.raises(drift.GraphError, match=message):
        getattr(drift.Graph("wrong").source("in"), kind)(**items)


def test_a_function_that_fails_in_a_round_ends_the_run_with_its_name() -> None:
    graph = drift.Graph("fails")
    graph.source("in").replay(
        5, 3, lambda s: s.map(lambda pair: pair[1] // pair[0], name="by state"), lambda n, _: n - 1
    ).sink("out")
    message = []
    for engine in ("reference", "local"):
        with pytest.raises(drift.StepError, match=r"'by state'[^~]*ZeroDivisionError") as raised:
            drift.run(graph, {"in": [5]}, engine=engine).finish()
        message.append(str(raised.value))
    assert message[0] == message[1]


def test_a_body_that_reaches_another_stream_or_the_graph_is_no_part_of_the_loop() -> None:
    def graph() -> drift.Graph:
        written = drift.Graph("reaching")
        edges = written.source("edges")

        def body(items: Pairs) -> drift.Stream[Any]:
            items.sink(f"rounds of {written!r:.1}")
            return items.map(second).join_table(edges, second, second).map(second)

        edges.iterate(3, 0, body, added)[0].sink("iterated")
        edges.replay(3, 0, lambda items: items.map(second).join_table(edges, second, second), added).sink("replayed")
        return written

    first, again = graph(), graph()
    assert first == again and first.build() == again.build()
    assert "into the future" in str(first)


def test_iterations_by_lambdas_are_told_apart_in_a_row_and_in_each_other() -> None:
    def twice(items: drift.Stream[int]) -> drift.Stream[int]:
        return items.iterate(2, 0, lambda pairs: pairs.map(lambda pair: pair[1] + 1), added)[1]

    graph = drift.Graph("lambdas")
    once = graph.source("in").iterate(2, 0, lambda pairs: twice(pairs.map(second)), added)[1]
    once.replay(2, 0, lambda pairs: pairs.map(second), added).sink("sum")
    twice(once).sink("items")
    found = by_sink(graph, {"in": [1, 2]}, LOCAL[0])
    assert found == {"sum": [22], "items": [7, 8]}


@pytest.mark.parametrize("aggregate", [drift.agg.fold(0, max), drift.agg.reduce(max)])
def test_what_a_round_gives_is_folded_by_a_function_that_cannot_merge(aggregate: Any) -> None:
    graph = drift.Graph("rounds")
    graph.source("in").replay(1, 0, lambda pairs: pairs.map(second), added, aggregate=aggregate).sink("state")
    assert by_sink(graph, {"in": [0, 3, 2, 2]}, LOCAL[0]) == {"state": [3]}
