"""Every schedule of a small case: all orders in which messages can come, and all orders of arrival.

Invariant: schedules that differ only in the order of independent events are equivalent; `exhaustive` runs one schedule
of each equivalence class, and no class twice.

Why that is enough: two messages to different machines (workers, the barrier, the acker, a source) have the same effect
in either order, so only the orders at one machine count. The search is depth first and runs the case again for each
schedule; a message that was already tried first at some point sleeps in the sibling branches until an event comes that
depends on it (Godefroid's sleep sets).

The search does not vary numbers (batches have `batch_items` items, and a receiver takes one message at a time), nor,
unless `acks` is set, the order of acks and of notices of minimal time, which come as soon as they are sent.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

from drift.engines.simulated.schedule import Key, Scheduled
from drift.engines.simulated.simulation import Simulation
from drift.streams import Graph
from drift.testing.case import target_of_graph, write_report
from drift.testing.check import (
    Case,
    Interrupted,
    NotDeterministic,
    Output,
    Result,
    check,
    in_order,
    reference,
    times_of,
)
from drift.testing.schedule import ARRIVE, Deviation, Player, Schedule
from drift.testing.shrink import shrunk
from drift_graph.errors import SettingsError
from drift_graph.graph import Dataflow

SCHEDULES_MAX = 10_000
_PROMPT = frozenset(("ack", "heartbeat", "news", "pace", "break off", "wake"))


class TooManySchedules(SettingsError):
    """There are more schedules than `schedules_max`; the message estimates how many."""


@dataclass(frozen=True)
class Exhausted:
    """The result of running every schedule; all agree with the reference, since a difference is an error.

    Attributes:
        schedules: how many there are.
        arrivals: how many orders of arrival they cover.
    """

    schedules: int
    arrivals: int

    def __str__(self) -> str:
        return f"{self.schedules} of {self.schedules} schedules agree"


class _Seen(NamedTuple):
    """A message that could come, and the machines that it affects."""

    key: Key
    meets: frozenset[str]


class _Node:
    """A point of a schedule where several messages could come next."""

    def __init__(self, able: list[_Seen], asleep: dict[Key, frozenset[str]]) -> None:
        self.able = able
        self.asleep = asleep
        self.done: dict[Key, frozenset[str]] = {}
        self.chosen: _Seen | None = None
        self.branches = max(len(self.left()), 1)

    def choose(self) -> bool:
        """Choose the next message that is neither asleep nor done; False if there is none."""
        if self.chosen is not None:
            self.done[self.chosen.key] = self.chosen.meets
        left = self.left()
        self.chosen = left[0] if left else None
        return bool(left)

    def left(self) -> list[_Seen]:
        return [seen for seen in self.able if seen.key not in self.asleep and seen.key not in self.done]

    def asleep_below(self) -> dict[Key, frozenset[str]]:
        """The messages that sleep after the chosen one: those tried before it that are independent of it."""
        assert self.chosen is not None
        meets = self.chosen.meets
        return {key: other for key, other in {**self.asleep, **self.done}.items() if not other & meets}


class _Redundant(Interrupted):
    """All messages that could come here are asleep: another schedule has covered them."""


class _Search(Player):
    """A schedule that follows a path of nodes, and grows it where it ends."""

    def __init__(self, schedule: Schedule, path: list[_Node], acks: bool) -> None:
        super().__init__(schedule)
        self._path = path
        self._acks = acks
        self._at = 0

    def pick(self, events: Sequence[Scheduled], turn: int) -> int:
        if not self._acks:
            for at, event in enumerate(events):
                if event.key.kind in _PROMPT:
                    return at
        if self._at == len(self._path):
            asleep = self._path[-1].asleep_below() if self._path else {}
            node = _Node([_Seen(event.key, _meets(event)) for event in events], asleep)
            if not node.choose():
                raise _Redundant
            self._path.append(node)
        chosen = self._path[self._at].chosen
        assert chosen is not None
        self._at += 1
        return next(at for at, event in enumerate(events) if event.key == chosen.key)


def _meets(event: Scheduled) -> frozenset[str]:
    kind, link, source, _, _ = event.key
    if kind == "batch":
        return frozenset((link.partition(" > ")[2],))
    if kind in ("news", "pace", "break off", "wake"):
        return frozenset((link,))
    if kind == "read":
        return frozenset(("caller", "reads", source))
    return frozenset(("acker",))


class _All(Simulation):
    """A simulation that asks the player even if there is only one message: a sleeping one must not come."""

    def step(self) -> bool:
        events = self.events() if self.error is None else []
        if not events:
            return False
        self.fire(events[self._schedule.pick(events, self.turn)])
        return True


def exhaustive(
    graph: Graph | Dataflow,
    inputs: Mapping[str, Sequence[Any]],
    *,
    workers: int = 2,
    batch_items: int = 1,
    fused: bool = True,
    acks: bool = False,
    schedules_max: int = SCHEDULES_MAX,
) -> Exhausted:
    """Run every schedule of a small case, and every order of arrival that lateness allows.

    Args:
        inputs: for each source its payloads; a handful in all.
        workers, batch_items, fused: see `Schedule`.
        acks: whether to vary the order of acks and of notices of minimal time too: many times as many schedules.
        schedules_max: most schedules to run.

    Raises:
        NotDeterministic: a schedule gives another output than the reference.
        TooManySchedules: there are more than `schedules_max`; nothing is known about the case then.
    """
    dataflow = graph.build() if isinstance(graph, Graph) else graph
    arriving = in_order(dataflow, inputs)
    target = target_of_graph(graph, sys._getframe(1).f_globals)
    case = Case(dataflow, arriving, Schedule(workers=workers, batch_items=batch_items, fused=fused), target)
    expected = reference(case)
    count = 0
    orders = list(_arrival_orders(case))
    for number, deviations in enumerate(orders):
        arrived = replace(case, schedule=case.schedule.with_deviations(deviations))
        path: list[_Node] = []
        for result in _schedules(arrived, expected, path, acks):
            if result.failure is not None:
                _raise(result)
            count += 1
            if count > schedules_max:
                raise _too_many(case, schedules_max, count * len(orders) / (number + _searched(path)))
    return Exhausted(count, len(orders))


def _schedules(case: Case, expected: Output, path: list[_Node], acks: bool) -> Iterator[Result]:
    while True:
        try:
            yield check(case, expected, player=_Search(case.schedule, path, acks), simulation=_All)
        except _Redundant:
            pass
        while path and not path[-1].choose():
            path.pop()
        if not path:
            return


def _arrival_orders(case: Case) -> Iterator[list[Deviation]]:
    """For each order of arrival of all sources, the deviations that make it."""
    orders: list[list[Deviation]] = [[]]
    for source in case.dataflow.sources:
        payloads = case.inputs[source.name]
        if not source.time.reads_payloads or not source.time.may_reorder:
            continue
        times = times_of(source.time, payloads)
        if times is None or times != sorted(times):
            continue
        of_source = [_moved_up(source.name, order) for order in _allowed(times, source.time.lateness)]
        orders = [[*before, *one] for before in orders for one in of_source]
    yield from orders


def _allowed(times: Sequence[int], lateness: int) -> Iterator[list[int]]:
    """Orders in which no item is further than `lateness` behind one that arrived before it; depth first."""
    todo: list[list[int]] = [[]]
    while todo:
        order = todo.pop()
        if len(order) == len(times):
            yield order
            continue
        newest = max((times[at] for at in order), default=None)
        left = [at for at in range(len(times)) if at not in order]
        oldest = min(times[at] for at in left)
        in_time = [at for at in left if oldest >= max(times[at], times[at] if newest is None else newest) - lateness]
        todo += [[*order, at] for at in reversed(in_time)]


def _moved_up(source: str, order: Sequence[int]) -> list[Deviation]:
    """The deviations that make items arrive in an order: for each, its position relative to its own index."""
    made = []
    for index, at in enumerate(order):
        later = 0 if index <= at and list(order[: at + 1]) == list(range(at + 1)) else index + len(order) - at
        if later:
            made.append(Deviation(Key(ARRIVE, "", source, at, 0), later))
    return made


def _raise(result: Result) -> None:
    """Raise the failed case, shrunk and with its report."""
    log = result.simulation.log
    holds = [
        Deviation(event.key, event.arrival_turn - 1 - event.sent_turn)
        for event in log
        if event.arrival_turn - 1 > event.sent_turn
    ]
    schedule = result.case.schedule
    result.case = replace(result.case, schedule=schedule.with_deviations([*schedule.deviations, *holds]))
    again = check(result.case)
    failed = shrunk(again, items=False) if again.failure is not None else result
    message, path = write_report(failed)
    raise NotDeterministic(message, failed, path)


def _searched(path: Sequence[_Node]) -> float:
    """The share of the tree that lies before a path, if all branches of a node were equally large."""
    part, share = 0.0, 1.0
    for node in path:
        share /= node.branches
        part += share * len(node.done)
    return max(part, 1e-300)


def _too_many(case: Case, schedules_max: int, about: float) -> TooManySchedules:
    return TooManySchedules(
        f"{case.item_count} items on {case.schedule.workers} workers have more than {schedules_max} schedules: about "
        f"{about:.1g}, by the part of them that was searched; take fewer items or workers, or raise schedules_max"
    )
