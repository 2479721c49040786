"""Who changes in place what it was handed is found: functions, sinks, the caller, and sources that give one object."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import pairwise
from typing import Any

import pytest

import drift
from drift_graph.unchanged import Sampler


def append(state: list[int], number: int) -> tuple[list[int], list[int]]:
    state.append(number)
    return state, state


def sort(payload: list[int]) -> list[int]:
    payload.sort()
    return payload


def grow(window: tuple[dict[str, int], ...]) -> int:
    window[-1]["seen"] = len(window)
    return len(window)


def key_of(payload: Any) -> int:
    return 0


def scanning() -> drift.Graph:
    graph = drift.Graph("scanning")
    initial: list[int] = []
    graph.source("in").scan(key_of, initial, append).sink("out")
    return graph


@pytest.mark.parametrize("batch_items", [1, 4096])
@pytest.mark.parametrize(
    "settings", [{}, {"engine": "zeromq", "workers": 2}, {"engine": "reference"}], ids=["local", "zeromq", "reference"]
)
def test_a_step_that_changes_its_state_is_found(batch_items: int, settings: dict[str, Any]) -> None:
    with pytest.raises(drift.ImpureStep, match=r"changed a payload or a state in place: it was \[\].* and is \[0"):
        drift.run(scanning(), {"in": range(10)}, batch_items=batch_items, **settings).finish()


def collect(state: list[int], number: int, time: int) -> tuple[list[int], list[int]]:
    state.append(number)
    return state, [number]


def ring(state: list[int], note: None, time: int) -> tuple[list[int], list[int]]:
    return state, []


every_engine = pytest.mark.parametrize("engine", ["local", "reference"])


@every_engine
@pytest.mark.parametrize("batch_items", [1, 4096])
def test_a_process_that_changes_its_state_is_found(engine: str, batch_items: int) -> None:
    graph = drift.Graph("collecting")
    initial: list[int] = []
    graph.source("in").process(key_of, initial, collect, ring).sink("out")
    with pytest.raises(drift.ImpureStep, match=r"changed a payload or a state in place: it was \[\].* and is \[0"):
        drift.run(graph, {"in": range(10)}, engine=engine, batch_items=batch_items).finish()


def least(payload: list[int]) -> int:
    payload.sort()
    return payload[0]


def one_time(payload: list[int]) -> int:
    return 1


def stepping(state: int, payload: list[int]) -> tuple[int, int]:
    return state + 1, state


BY_KEY: dict[str, Callable[[drift.Stream[Any]], drift.Stream[Any]]] = {
    "scan": lambda stream: stream.scan(least, 0, stepping),
    "group": lambda stream: stream.group(least, window=2).map(len),
    "at end": lambda stream: stream.key_by(least).at_end(drift.agg.count()),
    "window": lambda stream: stream.key_by(least).window(drift.windows.tumbling(4)).count(),
}
TIMED = {"time": drift.EventTime(least), "tie": drift.EventTime(one_time, tie=least)}
everywhere = pytest.mark.parametrize(
    "settings",
    [{}, {"engine": "reference"}, {"engine": "zeromq", "workers": 2}],
    ids=["local", "reference", "zeromq"],
)


@everywhere
@pytest.mark.parametrize("kind", BY_KEY)
def test_a_key_function_that_changes_a_payload_is_found_and_named(kind: str, settings: dict[str, Any]) -> None:
    graph = drift.Graph("keys")
    BY_KEY[kind](graph.source("in")).sink("out")
    with pytest.raises(drift.ImpureStep, match=r"in place: it was \[3, 0, 1\] and is \[0, 1, 3\]") as caught:
        drift.run(graph, {"in": [[3, number, 1] for number in range(10)]}, **settings).finish()
    assert f"{__file__}:{least.__code__.co_firstlineno}" in caught.value.where


@everywhere
@pytest.mark.parametrize("role", TIMED)
def test_a_time_or_tie_function_that_changes_a_payload_is_found_and_named(role: str, settings: dict[str, Any]) -> None:
    graph = drift.Graph("times")
    graph.source("in", time=TIMED[role]).map(len).sink("out")
    with pytest.raises(drift.ImpureStep, match=rf"the {role} function of source 'in' .*is \[0, 1, 3\]") as caught:
        drift.run(graph, {"in": [[3, number, 1] for number in range(10)]}, **settings).finish()
    assert f"{__file__}:{least.__code__.co_firstlineno}" in caught.value.where


def gather(collected: list[int], number: int) -> list[int]:
    collected.append(number)
    return collected


def of_pair(pair: tuple[list[int], int]) -> int:
    return pair[1]


GATHERED: dict[str, Callable[[Any], drift.Stream[Any]]] = {
    "at end": lambda stream: stream.key_by(key_of).at_end(drift.agg.fold([], gather)),
    "at end, then": lambda stream: stream.key_by(key_of).at_end(drift.agg.fold([], gather).then(len)),
    "several": lambda stream: stream.key_by(key_of).at_end(
        drift.agg.several(n=drift.agg.count(), all=drift.agg.fold([], gather))
    ),
    "tumbling": lambda stream: stream.key_by(key_of).window(drift.windows.tumbling(4)).fold([], gather),
    "session": lambda stream: stream.key_by(key_of).window(drift.windows.session(4)).fold([], gather),
    "sliding": lambda stream: (
        stream.key_by(key_of).window(drift.windows.sliding(4, 2)).aggregate(drift.agg.fold([], gather, gather))
    ),
    "early": lambda stream: (
        stream.key_by(key_of).window(drift.windows.sliding(4, 2), early=drift.windows.every(items=2)).fold([], gather)
    ),
    "parts": lambda stream: stream.key_by(key_of).at_end(drift.agg.fold([], gather, gather), parts=4),
    "rounds": lambda stream: stream.iterate(2, [], lambda pairs: pairs.map(of_pair), gather)[0],
    "count": lambda stream: (
        stream.key_by(key_of).window(drift.windows.count(9)).aggregate(drift.agg.fold([], gather, gather))
    ),
}


@every_engine
@pytest.mark.parametrize("kind", GATHERED)
def test_an_aggregate_that_changes_its_accumulator_is_found(kind: str, engine: str) -> None:
    graph = drift.Graph("gathered")
    GATHERED[kind](graph.source("in")).sink("out")
    with pytest.raises(
        drift.ImpureStep, match=r"changed a payload or a state in place: it was \[\] and is \[0"
    ) as caught:
        drift.run(graph, {"in": range(10)}, engine=engine).finish()
    assert f"{__file__}:{gather.__code__.co_firstlineno}" in caught.value.where


def test_the_reference_finds_a_function_that_changes_its_argument_only_now_and_then() -> None:
    def sorting(payload: list[int]) -> int:
        if payload[0] == 80_000:
            payload.sort()
        return payload[0]

    graph = drift.Graph("now and then")
    graph.source("in").map(sorting).sink("out")
    items = [[number, 0] for number in range(80_001)]
    with pytest.raises(drift.ImpureStep, match=r"it was \[80000, 0\] and is \[0, 80000\]"):
        drift.run(graph, {"in": items}, engine="reference").finish()


def marked(payload: dict[str, int]) -> int:
    payload["seen"] = 1
    return 0


def test_the_reference_finds_a_key_function_that_changes_its_payload() -> None:
    graph = drift.Graph("keys")
    graph.source("in").group(marked, 2).sink("out")
    with pytest.raises(drift.ImpureStep, match=r"it was {'a': 1} and is {'a': 1, 'seen': 1}"):
        drift.run(graph, {"in": [{"a": 1}]}, engine="reference").finish()


@every_engine
@pytest.mark.parametrize("batch_items", [1, 4096])
def test_a_map_that_changes_its_payload_is_found(engine: str, batch_items: int) -> None:
    graph = drift.Graph("sorting")
    graph.source("in").map(sort).sink("out")
    with pytest.raises(
        drift.ImpureStep, match=r"changed a payload in place: it was \[2, 1\] and is \[1, 2\]"
    ) as caught:
        drift.run(graph, {"in": [[0, 1], [2, 1]]}, engine=engine, batch_items=batch_items).finish()
    assert caught.value.step == "map sort" and "test_unchanged.py" in caught.value.where


@every_engine
def test_a_map_that_changes_what_is_in_its_window_is_found(engine: str) -> None:
    graph = drift.Graph("windows")
    graph.source("in").group(key_of, 2).map(grow).sink("out")
    with pytest.raises(drift.ImpureStep, match="changed a payload in place"):
        drift.run(graph, {"in": [{"a": 1}, {"a": 2}]}, engine=engine).finish()


def add(state: dict[str, int], item: str) -> tuple[dict[str, int], dict[str, int]]:
    grown = {**state, item: 1}
    return grown, grown


def dicts() -> drift.Graph:
    graph = drift.Graph("dicts")
    initial: dict[str, int] = {}
    graph.source("in").scan(key_of, initial, add).sink("out")
    return graph


@pytest.mark.parametrize("batch_items", [1, 2, 4096])
@pytest.mark.parametrize("engine", ["local", "reference"])
def test_a_loop_that_changes_the_payload_of_an_item_is_found(engine: str, batch_items: int) -> None:
    run = drift.run(dicts(), {"in": list("abcdef")}, engine=engine, batch_items=batch_items)
    with pytest.raises(drift.SinkError, match="the loop over the run changed the payload of an item in place"):
        for item in run:
            item.payload["mine"] = True
    assert "ended" in repr(run)


def test_a_sink_that_changes_the_payload_of_an_item_is_found() -> None:
    run = drift.run(dicts(), {"in": list("abc")}, sinks={"out": lambda item: item.payload.clear()})
    with pytest.raises(drift.SinkError, match=r"sink 'out' changed the payload of an item in place: it was {'a': 1}"):
        run.finish()


def reusing() -> Iterator[dict[str, int]]:
    row: dict[str, int] = {}
    for number in range(10):
        row["n"] = number
        yield row


@pytest.mark.parametrize("batch_items", [1, 2, 3, 4096])
def test_a_source_that_gives_one_object_again_and_again_is_found(batch_items: int) -> None:
    graph = drift.Graph("rows")
    graph.source("in").sink("out")
    with pytest.raises(drift.InputError, match=r"changed a payload in place after yielding it: it was {'n': 0}"):
        drift.run(graph, {"in": reusing()}, batch_items=batch_items).finish()
    same = {"n": 1}
    assert len(list(drift.run(graph, {"in": iter([same] * 9)}, batch_items=batch_items))) == 9


def test_less_and_less_is_inspected() -> None:
    sampler = Sampler()
    looked = [number for number in range(100_000) if sampler.sample([[number]])]
    assert looked[:32] == list(range(32)) and 40 < len(looked) < 80
    assert all(later - before < 17_000 for before, later in pairwise(looked))
    large = Sampler()
    assert [number for number in range(30_000) if large.sample([["x" * 5000]])] == [0, 20_030]
    assert not Sampler().sample([1, "text", (2, b"x")])
