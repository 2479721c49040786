"""Graphs over timed items on the engines: one output, whatever the engine, fusing, batches and order of arrival."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from typing import Any

import drift

#: A payload of the tests: (time, number unique in its source, value). Ties are ordered by the number.
Timed = tuple[int, int, Any]

LATENESS = 5

#: What a flow is run on, apart from the reference.
ENGINES: tuple[dict[str, Any], ...] = (
    {"batch_items": 1},
    {"batch_items": 7},
    {"batch_items": 4096},
    {"batch_items": 7, "fused": False},
)
ZEROMQ: dict[str, Any] = {"engine": "zeromq", "workers": 2}


def time_of(payload: Timed) -> int:
    return payload[0]


def number_of(payload: Timed) -> int:
    return payload[1]


def event_time() -> drift.EventTime:
    return drift.EventTime(time=time_of, tie=number_of, lateness=LATENESS)


def disordered(items: Sequence[Timed], seed: int) -> list[Timed]:
    """The items, each moved on by less than what lateness allows."""
    draw = random.Random(seed)
    return sorted(items, key=lambda item: item[0] + draw.random() * LATENESS)


def outputs(
    graph: drift.Graph, inputs: dict[str, Sequence[Any]], engines: Sequence[dict[str, Any]] = ENGINES
) -> list[Any]:
    """The payloads of the reference; every other engine gives the same digest."""
    return [payload for _, payload in timed_outputs(graph, inputs, engines)]


def timed_outputs(
    graph: drift.Graph, inputs: dict[str, Sequence[Any]], engines: Sequence[dict[str, Any]] = ENGINES
) -> list[tuple[int, Any]]:
    """The times and payloads of the reference; every other engine gives the same digest."""
    run = drift.run(graph, inputs, engine="reference")
    expected = [(item.time, item.payload) for item in run]
    for settings in engines:
        other = drift.run(graph, inputs, **settings)
        assert [(item.time, item.payload) for item in other] == expected, settings
        assert other.digest == run.digest, settings
    return expected


def outcome(run: drift.Run) -> tuple[list[Any], str, str]:
    """The items of a run, the error of a function that ended it, if one did, and the digest."""
    items: list[Any] = []
    error = ""
    try:
        items.extend(run)
    except drift.StepError as raised:
        error = str(raised)
    return items, error, run.digest


def flow(steps: Callable[..., Any], *names: str, time: drift.EventTime | None = None) -> drift.Graph:
    """The graph of a function from streams to a stream."""
    graph = drift.Graph("flow")
    steps(*(graph.source(name, time=time) for name in names)).sink("out")
    return graph
