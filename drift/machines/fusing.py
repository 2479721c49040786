"""Cycles that run as one loop: how each form is recognized in a graph, and the stage that implements it.

Invariant: a fused form sends the metas and payloads that its operators would send one by one.

Why: a cycle is only fused if nothing but its own operators consumes the grouping's output, and nothing but the grouping
consumes what they feed back.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from drift.machines.keyed import KeyedStage, Place
from drift.machines.logics import ProcessLogic, ScanLogic
from drift.operators import (
    ProcessOutput,
    ProcessState,
    ProcessTimers,
    ScanKey,
    ScanOutput,
    ScanState,
)
from drift_graph.graph import Dataflow
from drift_graph.meta import varint
from drift_graph.operators import Group, Map


class Fused(NamedTuple):
    """A cycle as one stage.

    Attributes:
        output: name of the map whose output the stage produces.
        maps: names of the maps that the stage replaces.
        key: key function for items from outside the cycle.
        make: creates a stage; the argument says whether items may come back to it through other operators.
    """

    output: str
    maps: tuple[str, ...]
    key: Callable[[Any], Any]
    make: Callable[[bool], KeyedStage]


def fused_form(dataflow: Dataflow, group: Group) -> Fused | None:
    """The fused form of the cycle around a grouping; None if it has none."""
    if not isinstance(group.key, ScanKey) or group.window != 2:
        return None
    by_function: dict[type, Map] = {}
    for consumer in dataflow.consumers(group.name):
        if not isinstance(consumer, Map):
            return None
        by_function[type(consumer.function)] = consumer
    for functions, form in forms.items():
        if set(by_function) == set(functions):
            maps = [by_function[function] for function in functions]
            if all(dataflow.consumers(fed_back.name) == (group,) for fed_back in maps[:-1]):
                return form(dataflow, group, *maps)
    return None


def _scan(dataflow: Dataflow, group: Group, state: Map, output: Map) -> Fused:
    place = Place(group, state, None, tuple(varint(dataflow.ranks[each.name]) for each in (group, state, output)))
    assert isinstance(group.key, ScanKey) and isinstance(state.function, ScanState)
    key, function = group.key.key, state.function

    def stage(cyclic: bool) -> KeyedStage:
        return KeyedStage(ScanLogic(key, function), place, cyclic=cyclic)

    return Fused(output.name, (state.name, output.name), group.key.key, stage)


def _process(dataflow: Dataflow, group: Group, state: Map, timers: Map, output: Map) -> Fused:
    process = state.function.process  # type: ignore[attr-defined]
    ranks = tuple(varint(dataflow.ranks[each.name]) for each in (group, state, timers, output))
    place = Place(group, state, timers, ranks)

    def stage(cyclic: bool) -> KeyedStage:
        return KeyedStage(ProcessLogic(process, in_cycle=cyclic), place, cyclic=cyclic)

    return Fused(output.name, (state.name, timers.name, output.name), process.key, stage)


def _step(dataflow: Dataflow, group: Group, state: Map, output: Map) -> Fused:
    process = state.function.process  # type: ignore[attr-defined]
    place = Place(group, state, None, tuple(varint(dataflow.ranks[each.name]) for each in (group, state, output)))

    def stage(cyclic: bool) -> KeyedStage:
        return KeyedStage(ProcessLogic(process, is_timed=False), place, cyclic=cyclic)

    return Fused(output.name, (state.name, output.name), process.key, stage)


#: By the types of the functions of the maps after the grouping: those of the feedback first, that of the output last.
forms: dict[tuple[type, ...], Callable[..., Fused]] = {
    (ScanState, ScanOutput): _scan,
    (ProcessState, ProcessTimers, ProcessOutput): _process,
    (ProcessState, ProcessOutput): _step,
}
