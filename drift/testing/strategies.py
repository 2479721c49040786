"""Hypothesis strategies: payloads with awkward values, schedules."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from drift.calling.asks import calls_of
from drift.testing.calls import TestAnswers, answered
from drift.testing.hypothesis import st
from drift.testing.schedule import Schedule
from drift.testing.values import AWKWARD
from drift_graph.graph import Dataflow

# Payloads.


def awkward() -> st.SearchStrategy[Any]:
    """Values that `==`, `hash` or an encoding gets wrong: 1, True and 1.0; 0.0 and -0.0; NaN; lone surrogates; ints
    beyond 64 bits; nested ones."""
    return st.sampled_from(AWKWARD)


def payloads() -> st.SearchStrategy[Any]:
    """Mostly small ints, so that keys and values meet again, and now and then an awkward value."""
    few = st.integers(0, 6)
    return few | few | few | awkward()


def rows(kind: type, *, min_size: int = 0, max_size: int = 30) -> st.SearchStrategy[list[Any]]:
    """Inputs for a source whose payloads are of a type: a dataclass, a named tuple, `int`, `dict[str, float]`."""
    return st.lists(st.from_type(kind), min_size=min_size, max_size=max_size)


def answers_of(
    dataflow: Dataflow, calls: Mapping[str, st.SearchStrategy[Any] | Callable[..., Any]], *, errors: bool
) -> dict[str, st.SearchStrategy[TestAnswers]]:
    """A strategy for what each call is asked.

    Args:
        calls: for each call a strategy for its answers, or a function.
        errors: whether drawn calls may also fail where that ends the run.

    Raises:
        SettingsError: a call has no answers.
    """
    drawn: dict[str, st.SearchStrategy[TestAnswers]] = {}
    of_graph = calls_of(dataflow)
    for name, of_call in calls.items():
        if not isinstance(of_call, st.SearchStrategy):
            drawn[name] = st.just(TestAnswers(of_call))
            continue
        asks = of_graph.get(name)
        fails = st.booleans() if errors or (asks is not None and asks.diverts) else st.just(False)
        pairs = st.lists(st.tuples(of_call, fails), min_size=1, max_size=5)
        drawn[name] = pairs.map(lambda them: TestAnswers(None, [each[0] for each in them], [each[1] for each in them]))
    answered(dataflow, dict.fromkeys(drawn, TestAnswers(None)))
    return drawn


# Schedules.


def schedules(
    *,
    workers: Sequence[int] = (1, 2, 3),
    batch_items: Sequence[int] = (1, 2, 3, 8),
    fused: Sequence[bool] = (True, False),
    in_flight_max: Sequence[int] = (Schedule.in_flight_max,),
    live: Sequence[str] = (),
    losses: bool = False,
    deaths: bool = False,
) -> st.SearchStrategy[Schedule]:
    """Schedules; the first value of each setting is the plainest, to which the others shrink.

    Args:
        live: sources that are live in some of the runs.
        losses: whether messages may be lost; such a run ends with a ProcessError.
        deaths: whether processes may die; such a run recovers from a checkpoint.
    """
    return st.builds(
        Schedule,
        workers=st.sampled_from(workers),
        batch_items=st.sampled_from(batch_items),
        fused=st.sampled_from(fused),
        in_flight_max=st.sampled_from(in_flight_max),
        live=st.sampled_from([(), tuple(live)]) if live else st.just(()),
        noise=st.integers(0, 2**32 - 1),
        losses=st.booleans() if losses else st.just(False),
        deaths=st.just(deaths),
    )
