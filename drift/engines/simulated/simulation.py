"""A run under a schedule: reads the sources and drives the nodes, to the end or the first error.

Invariant: under any schedule, no item is held at the end, and when no event is possible any more, minimal time has
reached the end. A violation is a DriftBug.

Why: the possible events are messages in flight, nodes that asked to be woken, and sources that may be read. The
schedule decides how many items a source has, and whether a live source has any.
"""

from __future__ import annotations

import sys
from collections import deque
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from drift.engines.settings import Settings, setting
from drift.engines.simulated.deaths import MortalNetwork
from drift.engines.simulated.network import TURN_S
from drift.engines.simulated.nodes import Nodes, opened
from drift.engines.simulated.outcome import Handed, SimulatedOutput
from drift.engines.simulated.schedule import Schedule, Scheduled
from drift.machines.nodes.barrier import digest_of
from drift.machines.nodes.checkpointing import CheckpointPace
from drift.machines.nodes.feeding import FeedNode
from drift.machines.nodes.intake import Fed, Intake
from drift.machines.nodes.node import CALLER
from drift.machines.nodes.rewind_log import RewindLog
from drift.machines.nodes.snapshots import InMemory
from drift.machines.nodes.worker import WorkerNode
from drift.machines.plan import Plan
from drift.machines.worker import timed_steps
from drift_graph.canonical import NoCanonicalForm, canonical
from drift_graph.diverted import is_diverted
from drift_graph.errors import DriftBug, ProcessError, SettingsError
from drift_graph.graph import Dataflow
from drift_graph.inputs import late_before
from drift_graph.lateness import Late
from drift_graph.meta import END_OF_TIME
from drift_graph.numbers import why_no_int
from drift_graph.times import Arrived, SourceMachine

#: A simulated run with more turns is reported as endless.
_TURNS_MAX = 1_000_000
#: Start of the simulated clock, in milliseconds since 1970; each turn takes one.
CLOCK_START_MS = 1_000_000_000_000
#: Time between two checkpoints in a run with deaths.
_CHECKPOINT_S = 5 * TURN_S


@dataclass(frozen=True)
class SimulatedSettings(Settings):
    """Settings of a simulated run, in addition to those of all engines."""

    workers: int = setting(2, why_no_int)
    batch_items: int = setting(8, why_no_int)


class Simulation(MortalNetwork):
    """One run of a dataflow under a schedule.

    Args:
        inputs: the payloads of each source, in the order of their arrival.
        schedule: decides which event comes next.
        numbers: for each source the numbers of its payloads in keys; their indices, if None.
        live: names of sources that have a clock, and do not always have items.
        machines: the sources' machines, in place of new ones; for instance machines that replay decisions.
        plan: of the dataflow, if it was made before.
        fed_by_hand: `feed` adds input later, in any amount, and batches go to the workers in turn.
        deaths: processes die when the schedule says so, and the run recovers from a checkpoint.
        settings: see `SimulatedSettings`.
    """

    def __init__(
        self,
        dataflow: Dataflow,
        inputs: Mapping[str, Sequence[Any]],
        schedule: Schedule | None = None,
        *,
        numbers: Mapping[str, Sequence[int]] | None = None,
        live: Collection[str] = (),
        plan: Plan | None = None,
        machines: Sequence[SourceMachine] | None = None,
        fed_by_hand: bool = False,
        deaths: bool = False,
        **settings: Any,
    ) -> None:
        given = SimulatedSettings(**settings)
        if any(each.asks for each in dataflow.operators):
            raise SettingsError(
                f"graph {dataflow.name!r} has calls, which this simulated run does not ask; test it with "
                f"drift.testing.deterministic(graph, ..., calls={{NAME: answers}})"
            )
        plan, workers, batch_items = plan or Plan(dataflow, fused=given.fused), given.workers, given.batch_items
        sources = list(machines or ()) or [
            SourceMachine.of(source, rank, source.time, live=source.name in live)
            for rank, source in enumerate(dataflow.sources)
        ]
        self.intake = (_FedByHand if fed_by_hand else Intake)(
            sources, batch_items=batch_items, in_flight_max=given.in_flight_max, now_s=CLOCK_START_MS / 1000
        )
        by_hand: dict[str, Any] = {"batches_ahead_max": sys.maxsize, "turn_items": 1} if fed_by_hand else {}
        shelf = InMemory(timed_steps(plan))
        rewind_log = RewindLog(opened, workers, shelf, CheckpointPace(_CHECKPOINT_S)) if deaths else None
        feed_node = FeedNode(plan, workers, self.intake, rewind_log=rewind_log, **by_hand)
        self.intake.policy.pace(min(self.intake.policy.items, batch_items))  # the schedule decides how many there are
        nodes = Nodes(plan, workers, given.digest, batch_items, shelf, deaths)
        super().__init__(nodes, feed_node, sources, schedule or Schedule(), rewind_log)
        self.late: list[Late] = []
        self.handed: list[Handed] = []
        self.now_ms = CLOCK_START_MS
        self._inputs = [deque(inputs[source.name]) for source in dataflow.sources]
        self._numbers = [
            deque(numbers[source.name] if numbers else range(len(inputs[source.name]))) for source in dataflow.sources
        ]
        self._before: list[list[tuple[Any, int]]] = [[] for _ in sources]  # read, and perhaps not judged yet
        self._fed = list(map(len, self._inputs))
        self._by_hand = fed_by_hand
        self._in_flight_max = given.in_flight_max
        self._credit_matters = fed_by_hand or given.in_flight_max < sum(map(len, self._inputs))
        self._reads: list[Scheduled | None] = [None] * len(sources)

    # The run.

    def run(self) -> SimulatedOutput:
        """Run to the end of the input, or the first error."""
        while self.step():
            pass
        return self.end()

    def step(self) -> bool:
        """Take one turn; returns False if no event is possible any more."""
        if self.error is not None:
            return False
        events = self.events()
        if not events:
            return False
        self.fire(events[self._schedule.pick(events, self.turn) if len(events) > 1 else 0])
        return True

    def end(self) -> SimulatedOutput:
        """The outcome.

        Raises:
            DriftBug: items are held at the end.
            SettingsError: the credit of a source is too small for its lateness.
        """
        if self.error is None:
            self.error = self._feed_node.error or self.intake.inputs.error
            if isinstance(self.error, SettingsError):
                raise self.error
            if self.acker.minimal_time == END_OF_TIME:
                self._check_settled()
            elif self.lost:
                self.error = self.error or ProcessError(
                    f"{len(self.lost)} messages were lost between the processes of the run, the first of them from "
                    f"{self.lost[0].key.link.replace(' > ', ' to ')}; everything released before stands. Run again"
                )
            elif self.error is None:
                self._check_progress()
            elif self._feed_node.finished is None:
                raise DriftBug(f"nothing is in flight, and the run does not break off at its error: {self.error}")
        tombstones = sum(worker.tombstones for worker in self.workers)
        return SimulatedOutput(
            self.released,
            self._digest_of_received(),
            self.error,
            late_before(self.late, self.error),
            tombstones,
            self.handed,
            self.log,
        )

    def _digest_of_received(self) -> str:
        """The digest of the output received: the barrier that sent it may have a successor that knows nothing yet."""
        if (finished := self._feed_node.finished) is not None:
            return finished.digest
        if self.rewind_log is None:
            return self.barrier.digest.hexdigest()
        return digest_of(self.rewind_log.restart(), self.barrier.digest.algorithm).hexdigest()

    def events(self) -> list[Scheduled]:
        """All possible next events: messages in flight, oldest first; nodes that asked to be woken; and reads, the
        source with the least heartbeat first.
        """
        ready = self._readable()
        if len(ready) > 1:
            ready.sort(key=lambda rank: self.sources[rank].heartbeat)
        in_flight = self.in_flight
        if self.recovery is not None and any(node.halted for node in self._nodes.values()):
            in_flight = [event for event in in_flight if self._may_arrive(event)]
        return [*in_flight, *self._wakes.values(), *map(self._read_of, ready)]

    @property
    def wakes(self) -> list[Scheduled]:
        """An event for each node that asked to be woken."""
        return list(self._wakes.values())

    def fire(self, event: Scheduled) -> None:
        """Let an event come. Raises DriftBug: an invariant is violated."""
        self.turn = max(self.turn, event.due) + 1
        self.now_ms += 1
        if self.turn > _TURNS_MAX:
            raise DriftBug(f"the run does not end: {_TURNS_MAX} turns, and {len(self.in_flight)} events are in flight")
        event.arrival_turn = self.turn
        self.log.append(event)
        kind = event.key.kind
        if kind == "read":
            self._reads[event.rank] = None
            self._read(event.rank)
        elif kind == "wake":
            self._wake(event)
        else:
            self.in_flight.remove(event)
            if event.action is not None:
                if event.life == self._lives[event.to]:
                    self._run_action(event.action)
            elif not self._arrives(event):
                pass
            elif kind == "batch":
                self._receive(event)
            elif kind == "ack" or kind == "heartbeat":
                self._fold(event)
            elif event.carried is not None and event.to == CALLER:
                self._take_in(event.carried)
            elif event.carried is not None:
                self._turn(event.to, [event.carried])
        if not self._by_hand and self.error is None and not self._readable():
            self._feed([])  # like a shell that has nothing to read
        if self.recovery is not None:
            self._may_die(event)
        self._schedule.fired(event)

    def feed(self, rank: int, payloads: Sequence[Any]) -> None:
        """Add input to a source."""
        numbers = self._numbers[rank]
        start = self._fed[rank]
        self._inputs[rank].extend(payloads)
        numbers.extend(range(start, start + len(payloads)))
        self._fed[rank] += len(payloads)

    def read(self, rank: int) -> None:
        """Read a source, up to its batch size and credit; at its end, the heartbeat of the end."""
        if not self._may_read(rank):
            raise SettingsError(f"source {self.sources[rank].name!r} may not be read: it has ended, or has no credit")
        self.fire(self._read_of(rank))

    def heartbeat(self, rank: int, heartbeat: bytes) -> None:
        """Let a source send a heartbeat."""
        self._first_read[rank] = -1
        fed = self.intake.beat(rank, heartbeat)
        self.late += self.intake.inputs.take_late()
        self._feed([fed])

    def drop(self, link: str) -> list[Scheduled]:
        """End a connection ("worker 0 > worker 1"): the batches in flight on it are lost, as over ZeroMQ."""
        dropped = [event for event in self.in_flight if event.key.kind == "batch" and event.key.link == link]
        self.in_flight = [event for event in self.in_flight if event not in dropped]
        self.lost += dropped
        return dropped

    # Sources.

    def _readable(self) -> list[int]:
        """Ranks of the sources that a shell of the feed node would read now, in any order."""
        if not self._feed_node.may_read(stuck=self._is_stuck()):
            return []
        return [rank for rank in range(len(self.sources)) if self._may_read(rank)]

    def _is_stuck(self) -> bool:
        """Whether input is still in an outbox."""
        return any(event.in_outbox_until > self.turn for event in self.in_flight)

    def _may_read(self, rank: int) -> bool:
        return self.intake.inputs.may_read(rank) and self.room(rank) > 0

    def room(self, rank: int) -> int:
        """How many items a source may give now."""
        return self.intake.room(rank, self._feed_node.minimal_time) if self._credit_matters else self._in_flight_max

    def _first(self, rank: int) -> int:
        """Index of the next item of a source."""
        numbers = self._numbers[rank]
        return numbers[0] if numbers else -1

    def _read_of(self, rank: int) -> Scheduled:
        event = self._reads[rank]
        if event is None:
            name = self.sources[rank].name
            event = self._reads[rank] = self._event("read", "", name, self._first(rank), CALLER)
            event.rank = rank
        return event

    def _read(self, rank: int) -> None:
        source, left = self.sources[rank], self._inputs[rank]
        first = self._first_read[rank] = self._first(rank)
        payloads: list[Any] | None = None
        if source.live and self._has_nothing_now(rank, first):
            payloads = []
        elif left:
            most = len(left) if self._by_hand else min(len(left), self.intake.policy.items, self.room(rank))
            count = most - self._pick("cut", "", source.name, first, 0, most)
            payloads = [left.popleft() for _ in range(count)]
        self._give(rank, payloads)

    def end_of(self, rank: int) -> None:
        self._give(rank, None)

    def _give(self, rank: int, payloads: list[Any] | None) -> None:
        source, numbers, before = self.sources[rank], self._numbers[rank], self._before[rank]
        fed = self.intake.give(rank, payloads, self.now_ms if source.live else 0, self.now_ms / 1000)
        if fed is not None and (payloads or fed.arrived.metas or fed.arrived.late or fed.arrived.error is not None):
            before += [(payload, numbers.popleft()) for payload in payloads or ()]
            self._know(source.name, before, fed.arrived)
            self.handed.append(Handed(source.name, fed.arrived))
        if not source.has_held:
            before.clear()
        self.late += self.intake.inputs.take_late()
        self.intake.error = self.intake.inputs.error
        self._feed([] if fed is None else [fed])

    def _has_nothing_now(self, rank: int, first: int) -> bool:
        source = self.sources[rank]
        read = self.log[-1].key
        idle_after_ms = source.policy.idle_after_ms
        jumps = 0, 1, 10, idle_after_ms or 1000
        self.now_ms += jumps[self._pick("clock", "", source.name, first, read.nth, len(jumps))]
        return self._pick("pause", "", source.name, first, read.nth, 2) == 1

    def _know(self, name: str, read: list[tuple[Any, int]], arrived: Arrived) -> None:
        """Note the global time of each item.

        Args:
            read: payloads with their numbers; those of the batch are removed. Others were late, or wait to be judged.
        """
        for meta, payload in zip(arrived.metas, arrived.payloads):
            at = next(at for at, (one, _) in enumerate(read) if _is_of(payload, one))
            self._items[meta] = name, read.pop(at)[1]

    def _feed(self, fed: list[Fed]) -> None:
        node = self._feed_node
        self._carry(CALLER, node.feed(fed, stuck=self._is_stuck()))
        if self._by_hand and fed:
            self._carry(CALLER, node.feed([]))  # do not wait to gather more input: the test feeds it

    # The end.

    def _check_settled(self) -> None:
        for index in range(self._workers):
            node = self._nodes[index]
            assert isinstance(node, WorkerNode)
            if node.held:
                raise DriftBug(f"worker {index} still holds {node.held} items at the end")
        if len(self.barrier):
            raise DriftBug(f"the barrier still holds {len(self.barrier)} items at the end")
        if self.acker.in_flight:
            raise DriftBug(f"{self.acker.in_flight} ack cells are not zero at the end")

    def _check_progress(self) -> None:
        raise DriftBug(
            f"nothing is in flight, and minimal time stands at {self.acker.minimal_time.hex()}: a message is not "
            f"accounted for, {self.acker.in_flight} ack cells are not zero"
        )


def _is_of(taken: Any, payload: Any) -> bool:
    """Whether a source took a payload as this item: it may be diverted, and have the order of fields of a schema."""
    if taken is payload:
        return True
    item = taken[3] if is_diverted(taken) else taken
    try:
        return canonical(item) == canonical(payload)
    except NoCanonicalForm:
        return False


class _FedByHand(Intake):
    """Sources of a test driver, which may exceed the credit, or set another heartbeat, at any time."""

    def out_of_credit(self, minimal_time: bytes) -> SettingsError | None:
        return None
