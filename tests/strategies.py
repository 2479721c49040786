"""Cases for our own laws: generated graphs, and inputs in an order of arrival; see `generated`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from generated import (
    OPERATIONS,
    STEPS,
    GeneratedCase,
    Numbers,
    Opaque,
    Recipe,
    Times,
    build,
    event_tie,
    event_time,
    few_keys,
    is_selected,
    one_key,
    opaque,
    same_payload,
    source_names,
)
from hypothesis import strategies as st

import drift
from drift.engines.simulated.simulation import Simulation
from drift.testing.check import in_order
from drift.testing.schedule import Player, Schedule
from drift.testing.strategies import payloads as _payloads
from drift.testing.strategies import schedules
from drift.testing.values import AWKWARD
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
    "scheduled_cases",
    "simulation",
    "times",
]

payloads = _payloads()
# Parts of metas.
numbers = st.integers(0, 300) | st.integers(0, 2**64 - 1)
times = st.integers(-5, 5) | st.integers(TIME_MIN, TIME_MAX)


# Graphs.


def _steps(*, failing: bool) -> st.SearchStrategy[tuple[Any, ...]]:
    """One step of a recipe: either of those that may raise, or of all others."""
    return st.one_of(
        [
            st.tuples(st.just(name), st.integers(0, 3), *map(_argument, operation.arguments))
            for name, operation in OPERATIONS.items()
            for _ in range(operation.weight or 1)
            if (operation.weight == 0) is failing
        ]
    )


def _argument(among: Sequence[str] | Numbers) -> st.SearchStrategy[Any]:
    return st.integers(*among) if isinstance(among, Numbers) else st.sampled_from(among)


def _policies() -> st.SearchStrategy[Times | None]:
    """Time policies of the sources of a generated graph; None is arrival time."""
    late = st.sampled_from(["error", "error", "error", "divert"])
    idle = st.sampled_from([None, None, None, 5])
    allowed = st.sampled_from([0, 0, 3])
    return st.none() | st.builds(Times, st.integers(0, 4), st.booleans(), late, idle, allowed)


@st.composite
def recipes(
    draw: st.DrawFn, sources_max: int = 3, steps_max: int = 6, *, failing: bool = False, timed: bool = False
) -> Recipe:
    """Graphs of any shape: see `generated.build`.

    Args:
        failing: whether steps may raise for some payloads.
        timed: whether sources may be in event time.
    """
    operations = _steps(failing=False)
    if failing:
        operations = st.booleans().flatmap((operations, _steps(failing=True)).__getitem__)
    sources = draw(st.integers(1, sources_max))
    steps = draw(st.lists(operations, min_size=1, max_size=steps_max))
    sinks = draw(st.lists(st.integers(0, 5), max_size=2, unique=True))
    policies = draw(st.lists(_policies(), min_size=sources, max_size=sources)) if timed else []
    return Recipe(sources, steps, sinks, policies)


@st.composite
def _inputs_of(draw: st.DrawFn, recipe: Recipe, items_max: int = 8, items_min: int = 0) -> dict[str, list[Any]]:
    """Inputs of the sources of a generated graph, in an order of arrival."""
    return {
        name: draw(_input(recipe.times[rank] if rank < len(recipe.times) else None, items_min, items_max))
        for rank, name in enumerate(source_names(recipe))
    }


@st.composite
def _input(draw: st.DrawFn, policy: Times | None, items_min: int, items_max: int) -> list[Any]:
    if policy is None:
        return draw(st.lists(payloads, min_size=items_min, max_size=items_max))
    behind_max = policy.lateness + policy.allowed + (2 if policy.late == "divert" else 0)
    row = st.tuples(st.integers(0, 2), st.integers(0, behind_max), payloads)
    drawn = draw(st.lists(row, min_size=items_min, max_size=items_max))
    now = draw(st.sampled_from([0, -3, 10**12])) if drawn else 0
    timed: list[Any] = []
    for number, (step, behind, payload) in enumerate(drawn):
        now += step
        timed.append((now - behind, payload, number) if policy.tied else (now - behind, payload))
    return timed


@st.composite
def scheduled_cases(
    draw: st.DrawFn,
    recipe: st.SearchStrategy[Recipe] | None = None,
    schedule: st.SearchStrategy[Schedule] | None = None,
    items_max: int = 8,
    items_min: int = 0,
) -> GeneratedCase:
    """A generated graph, inputs for it and a schedule."""
    made = draw(recipes(timed=True) if recipe is None else recipe)
    dataflow = build(made)
    inputs = in_order(dataflow, draw(_inputs_of(made, items_max, items_min)))
    return GeneratedCase(dataflow, inputs, draw(schedules() if schedule is None else schedule), recipe=made)


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
    allowed = draw(st.sampled_from([0, 3])) if late == "divert" else 0
    behind_max = lateness + allowed + (2 if late == "divert" else 0)
    rows = draw(st.lists(st.tuples(st.integers(0, 2), st.integers(0, behind_max), payloads), max_size=items_max))
    tied = draw(st.booleans())
    now = draw(st.sampled_from([0, -3, 10**12]))
    drawn: list[Any] = []
    for number, (step, behind, payload) in enumerate(rows):
        now += step
        drawn.append((now - behind, payload, number) if tied else (now - behind, payload))
    tie = event_tie if tied else None
    return Input(drift.EventTime(event_time, lateness, tie, late, allowed=allowed), drawn)  # type: ignore[arg-type]


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
