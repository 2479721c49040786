"""Who changes in place what it was handed is found: functions, sinks, the caller, and sources that give one object."""

from __future__ import annotations

from collections.abc import Iterator
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
@pytest.mark.parametrize("settings", [{}, {"engine": "zeromq", "workers": 2}], ids=["local", "zeromq"])
def test_a_step_that_changes_its_state_is_found(batch_items: int, settings: dict[str, Any]) -> None:
    with pytest.raises(drift.ImpureStep, match=r"changed a payload or a state in place: it was \[\].* and is \[0"):
        drift.run(scanning(), {"in": range(10)}, batch_items=batch_items, **settings).finish()


def collect(state: list[int], number: int, time: int) -> tuple[list[int], list[int]]:
    state.append(number)
    return state, [number]


def ring(state: list[int], note: None, time: int) -> tuple[list[int], list[int]]:
    return state, []


@pytest.mark.parametrize("batch_items", [1, 4096])
def test_a_process_that_changes_its_state_is_found(batch_items: int) -> None:
    graph = drift.Graph("collecting")
    initial: list[int] = []
    graph.source("in").process(key_of, initial, collect, ring).sink("out")
    with pytest.raises(drift.ImpureStep, match=r"changed a payload or a state in place: it was \[\].* and is \[0"):
        drift.run(graph, {"in": range(10)}, batch_items=batch_items).finish()


@pytest.mark.parametrize("batch_items", [1, 4096])
def test_a_map_that_changes_its_payload_is_found(batch_items: int) -> None:
    graph = drift.Graph("sorting")
    graph.source("in").map(sort).sink("out")
    with pytest.raises(
        drift.ImpureStep, match=r"changed a payload in place: it was \[2, 1\] and is \[1, 2\]"
    ) as caught:
        drift.run(graph, {"in": [[0, 1], [2, 1]]}, batch_items=batch_items).finish()
    assert caught.value.step == "map sort" and "test_unchanged.py" in caught.value.where


def test_a_map_that_changes_what_is_in_its_window_is_found() -> None:
    graph = drift.Graph("windows")
    graph.source("in").group(key_of, 2).map(grow).sink("out")
    with pytest.raises(drift.ImpureStep, match="changed a payload in place"):
        drift.run(graph, {"in": [{"a": 1}, {"a": 2}]}).finish()


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
