"""A payload that cannot be compared between runs ends every engine with the same text, which names who made it."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import pytest

import drift
from drift.engines.simulated.simulation import Simulation
from drift_graph.graph import Dataflow

LOCK = threading.Lock()
NUMBERS = list(range(6))


def made(number: int) -> Any:
    return LOCK if number == 3 else number


def other(payload: Any) -> Any:
    return payload


FLOWS: dict[str, tuple[Callable[[drift.Stream[Any]], drift.Stream[Any]], str]] = {
    "to a sink": (lambda stream: stream, "made"),
    "through a filter": (lambda stream: stream.filter(lambda payload: True, name="kept"), "made"),
    "through filters": (lambda stream: stream.filter(other).filter(lambda payload: True, name="kept"), "made"),
    "by a map": (lambda stream: stream.map(other, name="other"), "other"),
}


def flow(name: str) -> Dataflow:
    graph = drift.Graph("formless")
    FLOWS[name][0](graph.source("numbers").map(made, name="made")).sink("out")
    return graph.build()


def ends_with(dataflow: Dataflow, **how: Any) -> str:
    with pytest.raises(drift.PayloadError) as raised:
        list(drift.run(dataflow, {"numbers": NUMBERS}, **how))
    return str(raised.value)


@pytest.mark.parametrize("name", FLOWS)
def test_the_text_is_the_same_on_every_engine(name: str) -> None:
    expected = ends_with(flow(name), engine="reference")
    assert expected.startswith(
        f"step {FLOWS[name][1]!r} made a payload that cannot be compared between runs: a _thread"
    )
    for how in ({}, {"batch_items": 1}, {"engine": "zeromq", "workers": 2}):
        assert ends_with(flow(name), **how).splitlines()[0] == expected.splitlines()[0]
    outcome = Simulation(flow(name), {"numbers": NUMBERS}, workers=2).run()
    assert str(outcome.error) == expected
