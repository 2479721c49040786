"""Cases for our own laws: generated graphs, and inputs in an order of arrival; see `drift.testing.strategies`."""

from __future__ import annotations

from typing import Any, NamedTuple

from hypothesis import strategies as st

import drift
from drift.engines.simulated.simulation import Simulation
from drift.testing.recipes import (
    AWKWARD,
    STEPS,
    Opaque,
    Recipe,
    build,
    event_tie,
    event_time,
    few_keys,
    is_selected,
    one_key,
    opaque,
    same_payload,
)
from drift.testing.schedule import Player, Schedule
from drift.testing.strategies import payloads as _payloads
from drift.testing.strategies import recipes as _recipes
from drift_graph.meta import TIME_MAX, TIME_MIN

__all__ = [
    "AWKWARD",
    "STEPS",
    "Case",
    "Input",
    "Opaque",
    "Recipe",
    "arrival_inputs",
    "build",
    "cases",
    "event_inputs",
    "event_time",
    "few_keys",
    "inputs",
    "is_selected",
    "noisy",
    "numbers",
    "one_key",
    "opaque",
    "payloads",
    "recipes",
    "same_payload",
    "simulation",
    "times",
]

payloads = _payloads()
# Parts of metas.
numbers = st.integers(0, 300) | st.integers(0, 2**64 - 1)
times = st.integers(-5, 5) | st.integers(TIME_MIN, TIME_MAX)


def recipes(sources_max: int = 3, steps_max: int = 6, *, failing: bool = False) -> st.SearchStrategy[Recipe]:
    return _recipes(sources_max, steps_max, failing=failing, timed=False)


# Inputs.


class Input(NamedTuple):
    """What one source is given."""

    time: drift.ArrivalTime | drift.EventTime
    payloads: list[Any]


def arrival_inputs(items_max: int = 8) -> st.SearchStrategy[Input]:
    return st.builds(Input, st.just(drift.ArrivalTime()), st.lists(payloads, max_size=items_max))


@st.composite
def event_inputs(draw: st.DrawFn, items_max: int = 8, late: str = "error") -> Input:
    """Ties and disorder within lateness; beyond it as well where late items are diverted."""
    lateness = draw(st.integers(0, 4))
    behind_max = lateness + (2 if late == "divert" else 0)
    rows = draw(st.lists(st.tuples(st.integers(0, 2), st.integers(0, behind_max), payloads), max_size=items_max))
    tied = draw(st.booleans())
    now = draw(st.sampled_from([0, -3, 10**12]))
    drawn: list[Any] = []
    for number, (step, behind, payload) in enumerate(rows):
        now += step
        drawn.append((now - behind, payload, number) if tied else (now - behind, payload))
    return Input(drift.EventTime(event_time, lateness, event_tie if tied else None, late), drawn)  # type: ignore[arg-type]


def inputs(sources: int, items_max: int = 8) -> st.SearchStrategy[list[Input]]:
    return st.lists(arrival_inputs(items_max) | event_inputs(items_max), min_size=sources, max_size=sources)


class Case(NamedTuple):
    """A dataflow and what it is given."""

    recipe: Recipe
    inputs: list[Input]

    def dataflow(self) -> drift.Dataflow:
        return build(self.recipe, [each.time for each in self.inputs])

    def sources(self) -> dict[str, list[Any]]:
        return {f"in{rank}": each.payloads for rank, each in enumerate(self.inputs)}


@st.composite
def cases(draw: st.DrawFn, sources_max: int = 3, steps_max: int = 6, items_max: int = 8, failing: bool = False) -> Case:
    recipe = draw(recipes(sources_max, steps_max, failing=failing))
    return Case(recipe, draw(inputs(recipe.sources, items_max)))


# Schedules.


def noisy(data: st.DataObject) -> Player:
    """A drawn schedule, all of whose decisions may deviate from order; the simplest is in order."""
    return Player(Schedule(noise=data.draw(st.integers(0, 2**32 - 1), "noise")))


def simulation(case: Any, data: st.DataObject, **more: Any) -> Simulation:
    """A case in the simulator, under a drawn schedule."""
    more.setdefault("batch_items", data.draw(st.sampled_from([1, 2, 8]), "batch_items"))
    return Simulation(case.dataflow(), case.sources(), noisy(data), **more)
