"""Sources that fall idle do not wait for each other, however many there are, and change nothing in the output."""

from __future__ import annotations

from collections.abc import Sequence
from operator import itemgetter
from typing import Any

from hypothesis import Phase, example, given, settings
from hypothesis import strategies as st

import drift
from drift.engines.simulated.simulation import Simulation
from drift.machines.nodes.intake import Intake
from drift.testing.check import Case, check
from drift.testing.schedule import Schedule
from drift_graph.meta import pack_time
from drift_graph.times import SourceMachine

#: An item: its time, and its key.
Items = Sequence[tuple[int, int]]
_TURNS_MAX = 20_000  # a run has some hundreds
NAMES = ("a", "b", "c", "d", "e")

items = st.lists(st.tuples(st.integers(0, 40), st.integers(0, 2)), max_size=8)
inputs = st.lists(items, min_size=3, max_size=len(NAMES)).map(lambda several: dict(zip(NAMES, several)))
lengths = st.lists(st.sampled_from([3, 20, None]), min_size=5, max_size=5)


class UntilReleased(Simulation):
    """No source ends before all items are released: only those that are idle can let them be. They are read in turn."""

    _last = 0

    def _read(self, rank: int) -> None:
        if self.turn > _TURNS_MAX:
            raise AssertionError("sources that are idle hold back what was read")
        self._last = rank
        super()._read(rank)

    def _readable(self) -> list[int]:
        return sorted(super()._readable(), key=lambda rank: (rank - self._last - 1) % len(self.sources))

    def _has_nothing_now(self, rank: int, first: int) -> bool:
        pauses = super()._has_nothing_now(rank, first)
        waits = any(self._inputs) or self.intake.unsettled(self._feed_node.minimal_time) > 0
        return pauses or (waits and not self._inputs[rank])


def appended(state: tuple[Any, ...], item: tuple[int, int]) -> tuple[tuple[Any, ...], tuple[Any, ...]]:
    state = (*state, item)[-3:]
    return state, state


def graph_of(idle_after_ms: dict[str, int | None]) -> drift.Graph:
    """The sources merged, into a step whose output depends on the order."""
    graph = drift.Graph("several")
    policies = {
        name: drift.EventTime(itemgetter(0), lateness=3, late="divert", idle_after_ms=after)
        for name, after in idle_after_ms.items()
    }
    first, *others = [graph.source(name, time=policy) for name, policy in policies.items()]
    first.merge(*others).scan(itemgetter(1), (), appended).sink("out")
    return graph


@settings(max_examples=60, phases=(Phase.explicit, Phase.generate))  # schedules are noise, as in `test_deaths.py`
@given(inputs, st.integers(1, 3), st.sampled_from([1, 2, 8]), st.integers(1, 2**32 - 1), st.booleans())
def test_all_is_released_while_all_sources_are_idle_and_none_has_ended(
    inputs: dict[str, list[tuple[int, int]]], workers: int, batch_items: int, noise: int, deaths: bool
) -> None:
    schedule = Schedule(workers, batch_items, live=tuple(inputs), noise=noise, deaths=deaths)
    graph = graph_of(dict.fromkeys(inputs, 5)).build()
    result = check(Case(graph, inputs, schedule), simulation=UntilReleased)
    assert result.failure is None, result.failure


#: The first two are idle by turns, and the second gives items again; the last two end.
GIVES_AGAIN: list[Any] = [
    *((0, [(1, 0)], 0), (1, [(2, 0)], 0), (2, [(90, 0)], 0), (3, None, 0), (4, None, 0)),
    *((1, [], 30), (1, [(80, 0)], 0), (0, [], 30)),
]


@example([3, 3, None, None, None], GIVES_AGAIN)
@given(lengths, st.lists(st.tuples(st.integers(0, 4), st.none() | items, st.sampled_from([0, 2, 30]))))
def test_idle_sources_hold_nothing_back_and_do_not_pass_those_that_are_not(
    idle_after_ms: list[int | None], reads: list[tuple[int, list[tuple[int, int]] | None, int]]
) -> None:
    """Each read: of which source, what it gives (None: its end), after so many milliseconds."""
    graph = graph_of(dict(zip(NAMES, idle_after_ms))).build()
    machines = [SourceMachine.of(each, rank, live=True) for rank, each in enumerate(graph.sources)]
    intake = Intake(machines, batch_items=100, in_flight_max=1000)
    now_ms, greatest, last_s = 0, [-1] * len(machines), [0.0] * len(machines)
    awake = dict.fromkeys(range(len(machines)))
    silence: list[tuple[int, Items | None, int]] = [(rank, [], 30 * (not rank)) for rank in range(len(machines))]
    for rank, taken, later_ms in [*reads, *silence, *silence]:
        now_ms += later_ms
        machine, after_ms = machines[rank], idle_after_ms[rank]
        if machine.finished:
            continue
        before = machine.heartbeat
        intake.give(rank, None if taken is None else list(taken), now_ms, now_ms / 1000)
        greatest[rank] = max([greatest[rank], *(time for time, _ in taken or ())])
        assert machine.heartbeat >= before
        if taken:
            awake[rank], last_s[rank] = None, now_ms
        elif taken is None or (after_ms is not None and now_ms - last_s[rank] >= after_ms):
            awake.pop(rank, None)
        if awake and taken == []:
            slowest = min(machines[other].heartbeat for other in awake)
            assert machine.heartbeat <= max(before, pack_time(greatest[rank] + 1), slowest)
    for machine in machines:
        if awake:
            assert machine.heartbeat >= min(machines[other].heartbeat for other in awake)
        elif not machine.finished:
            assert machine.heartbeat > pack_time(max(greatest)) or max(greatest) < 0
