"""Runs by seed: the same seed gives the same input, the same schedule and the same output on every machine.

Invariant: the run of a seed depends on the seed, the graph, the inputs and the versions of Python, Hypothesis and this
library; not on the hash seed, the clock, or which other seeds were run.

Why: schedules are hashes of the seed. Hypothesis draws the values of a strategy in blocks for SEEDS_A_BLOCK seeds, each
from the block's own seed, which costs a fraction of a test's example; so seeds of one block are best run in a row.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from typing import Any

from drift.calling.asks import calls_of
from drift.machines.plan import Plan
from drift.streams import Graph
from drift.testing.calls import TestAnswers, answered
from drift.testing.check import Case, Result, check, in_order, may_idle, policies_of
from drift.testing.schedule import HELD, Schedule
from drift_graph.errors import SettingsError
from drift_graph.graph import Dataflow

SEEDS_A_BLOCK = 100
ITEMS_MAX = 30

_WORKERS = (1, 2, 2, 3)
_BATCH_ITEMS = (1, 1, 2, 3, 8)
_FUSED = (True, True, True, False)


class Seeds:
    """Cases of a graph by number.

    Args:
        graph: the dataflow.
        inputs: for each source a Hypothesis strategy for a list of payloads, or payloads, of which each run gets up to
            `items_max` consecutive ones.
        live: sources that have a clock in half of the runs; by default those whose time policy has `idle_after_ms`.
        losses: whether messages are sometimes lost; such a run ends with a ProcessError.
        deaths: whether processes die, and the run recovers from a checkpoint.
        calls: for each call of the graph a Hypothesis strategy for its answers, or a function that is asked in its
            place; of those that are left out the `stub` that is declared.
        errors: whether drawn calls may also fail where that ends the run.
        target: of the graph, for case files: "file.py:name".

    Raises:
        SettingsError: a source is missing, or there is no such source; a call has no answers.
    """

    def __init__(
        self,
        graph: Graph | Dataflow,
        inputs: Mapping[str, Any],
        *,
        live: Collection[str] | None = None,
        losses: bool = False,
        deaths: bool = False,
        items_max: int = ITEMS_MAX,
        calls: Mapping[str, Any] | None = None,
        errors: bool = False,
        target: str = "",
    ) -> None:
        self.dataflow = graph.build() if isinstance(graph, Graph) else graph
        in_order(self.dataflow, dict.fromkeys(inputs, ()))
        if live is None:
            live = [name for name, policy in policies_of(self.dataflow).items() if may_idle(policy)]
        self._live = tuple(live)
        self._losses, self._deaths = losses, deaths
        self._items_max = items_max
        self._target = target
        self._answers = _answers_of(self.dataflow, calls or {}, errors)
        self._plans = {} if self._answers else {fused: Plan(self.dataflow, fused=fused) for fused in (True, False)}
        self._strategies = {name: payloads for name, payloads in inputs.items() if hasattr(payloads, "flatmap")}
        self._pools: dict[str, Sequence[Any]] = {
            name: payloads if isinstance(payloads, Sequence) else list(payloads)
            for name, payloads in inputs.items()
            if name not in self._strategies
        }
        self._block = -1
        self._drawn: list[dict[str, list[Any]]] = []
        self._drawn_answers: list[dict[str, TestAnswers]] = []

    def case(self, seed: int) -> Case:
        if type(seed) is not int or seed < 0:
            raise SettingsError(f"seed={seed!r} is not an int of 0 or more")
        chosen = random.Random(seed)
        payloads = dict(self._values(seed)) if self._strategies or self._answers else {}
        for name in self._pools:
            payloads[name] = self._chunk(self._pools[name], chosen)
        inputs = in_order(self.dataflow, {source.name: payloads[source.name] for source in self.dataflow.sources})
        schedule = _schedule(chosen, live=self._live, losses=self._losses, deaths=self._deaths)
        return Case(self._answered(seed), inputs, schedule, self._target)

    def run(self, seed: int) -> Result:
        """The run of a seed, compared with the reference."""
        case = self.case(seed)
        return check(case, plan=self._plans.get(case.schedule.fused))

    def _answered(self, seed: int) -> Dataflow:
        """The graph with the answers of a seed, whose block has been drawn."""
        if not self._answers:
            return self.dataflow
        return answered(self.dataflow, self._drawn_answers[seed % SEEDS_A_BLOCK % len(self._drawn_answers)])

    def _chunk(self, pool: Sequence[Any], chosen: random.Random) -> list[Any]:
        count = int(chosen.random() * (min(self._items_max, len(pool)) + 1))
        start = int(chosen.random() * (len(pool) - count + 1))
        return list(pool[start : start + count])

    def _values(self, seed: int) -> dict[str, list[Any]]:
        block, at = divmod(seed, SEEDS_A_BLOCK)
        if block != self._block:
            from drift.testing.hypothesis import st

            self._drawn = drawn(st.fixed_dictionaries(self._strategies), block, SEEDS_A_BLOCK)
            if self._answers:
                self._drawn_answers = drawn(st.fixed_dictionaries(self._answers), block, SEEDS_A_BLOCK)
            self._block = block
        return {name: list(values) for name, values in self._drawn[at % len(self._drawn)].items()}


def _answers_of(dataflow: Dataflow, calls: Mapping[str, Any], errors: bool) -> dict[str, Any]:
    """A strategy for what each call is asked."""
    stubs = {name: asks.stub for name, asks in calls_of(dataflow).items() if asks.stub is not None}
    if not calls_of(dataflow) and not calls:
        return {}
    from drift.testing.strategies import answers_of

    return answers_of(dataflow, {**stubs, **calls}, errors=errors)


def drawn(strategy: Any, seed: int, count: int) -> list[Any]:
    """Values of a Hypothesis strategy, the same for the same seed: `count` of them, or all if there are fewer."""
    from drift.testing.hypothesis import HealthCheck, Phase, given, settings
    from drift.testing.hypothesis import seed as seeded

    values: list[Any] = []

    @seeded(seed)
    @settings(
        max_examples=count,
        phases=[Phase.generate],
        database=None,
        deadline=None,
        derandomize=False,
        suppress_health_check=list(HealthCheck),
    )
    @given(strategy)
    def draw(value: Any) -> None:
        values.append(value)

    draw()
    return values[:count]


def _schedule(
    chosen: random.Random, *, live: tuple[str, ...] = (), losses: bool = False, deaths: bool = False
) -> Schedule:
    return Schedule(
        workers=_one(_WORKERS, chosen),
        batch_items=_one(_BATCH_ITEMS, chosen),
        fused=_one(_FUSED, chosen),
        live=live if live and chosen.random() < 0.5 else (),
        noise=1 + int(chosen.random() * 2**48),
        losses=losses and chosen.random() < 0.1,
        deaths=deaths,
    )


def _one(several: Sequence[Any], chosen: random.Random) -> Any:
    return several[int(chosen.random() * len(several))]


def counts(result: Result) -> Counter[str]:
    """How often each kind of deviation occurred in a run, in words, for a line of progress."""
    found: Counter[str] = Counter()
    for key in result.made:
        found[_FAULTS[key.kind]] += 1
    return found


_FAULTS = {
    **HELD,
    "arrive": "late arrivals",
    "cut": "batches cut",
    "split": "messages split",
    "together": "messages joined",
    "outbox": "kept in an outbox",
    "still": "standstills",
    "skew": "clocks that differ",
    "took": "slow turns",
    "pause": "pauses",
    "clock": "clock jumps",
    "lost": "losses",
    "death": "deaths",
    "caller dies": "deaths of who asks",
    "answered": "answers out of order",
    "piece": "releases in pieces",
    "joined": "releases joined",
    "dies in a release": "deaths between two pieces of a release",
    "resumed": "older checkpoints",
    "fate": "losses with a sender",
}
