"""The nodes of a run under a schedule: in one process, on a network and by clocks that are only thought.

Invariant: whatever the schedule says, minimal time never goes back, nothing below it is anywhere but in the barrier,
and at the end nothing is held. Each is checked at the step that could break it; a breach is a DriftBug.

Why it is the worst network there is: all that is under way is a `Scheduled`, and any of them may come next, however
late. Only the acks of one source keep their order among themselves, because a heartbeat must not overtake the message
before it. What comes over a link has been pickled, so nothing is the same object on both sides.

The nodes are those that every engine drives; this is one more shell around them, and what a shell has no say in, the
schedule says: how much a source has, how long a frame stays in the outbox of who feeds, when a node that wishes to be
woken is, how much the clocks of two nodes differ, how long a turn takes, and when a node stands still for a while.

A schedule decides what comes next and the few numbers there are to decide. Every decision has a `Key` that says what
it is about (the batch from worker 0 to worker 1 that begins with item 3), not when it is met; so a decision about one
thing means the same when others are taken away. `Schedule` itself is in order: what was sent first comes first, no
input is read before the last is settled, and batches are as large as they may be.
"""

from __future__ import annotations

import math
import pickle
import sys
from collections import deque
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, NamedTuple

import msgspec

from drift.engines.settings import Settings, count, setting
from drift.machines.nodes.acker import AckerNode
from drift.machines.nodes.barrier import BarrierNode
from drift.machines.nodes.cutting import CutPace
from drift.machines.nodes.feeding import FeedNode
from drift.machines.nodes.intake import Fed, Intake
from drift.machines.nodes.keeping import Keeping, parts_by
from drift.machines.nodes.links import LinkLogs
from drift.machines.nodes.messages import (
    AckMessage,
    Answer,
    Batch,
    BreakOff,
    Committed,
    CutPiece,
    Finished,
    Message,
    MinimalTime,
    Order,
    Oversized,
    Pace,
    ReleasedMessage,
    Rewind,
    TakeCut,
)
from drift.machines.nodes.node import ACKER, CALLER, Node, Send
from drift.machines.nodes.pacing import pacing_of
from drift.machines.nodes.pieces import InMemory, merged
from drift.machines.nodes.recovery import DEATHS_MAX, Effect, Recovered, RecoveryNode, Replace, Tell
from drift.machines.nodes.worker import WorkerNode
from drift.machines.plan import Plan
from drift.machines.worker import BARRIER, Worker, timed_steps
from drift_acker.table import AckTable
from drift_barrier.barrier import Barrier, Released
from drift_barrier.digest import Algorithm
from drift_graph.errors import DriftBug, ProcessError, SettingsError
from drift_graph.graph import Dataflow
from drift_graph.lateness import Late
from drift_graph.meta import END_OF_TIME, global_time_of
from drift_graph.metas import least_meta
from drift_graph.policies import EventTime, TimePolicy
from drift_graph.times import Arrived, SourceMachine

#: A run of the simulator has an end: a machine that goes on for ever is broken.
_TURNS_MAX = 1_000_000
#: Where a simulated clock starts, in milliseconds since 1970; each turn takes one.
CLOCK_START_MS = 1_000_000_000_000
#: By how much the clock of a node may differ from that of the others, and how long a turn may take.
_SKEWS_S = (0.0, 0.0004, 7.0, -3600.0)
_TURNS_S = (0.0, 0.02, 3.0)
#: What a turn takes by all clocks.
_TURN_S = 0.0001
_KINDS: dict[type, str] = {
    Pace: "pace",
    BreakOff: "break off",
    TakeCut: "take cut",
    CutPiece: "piece",
    Committed: "committed",
}
#: Between two cuts of a run in which processes die.
_CUT_S = 5 * _TURN_S
#: More processes do not die in one run.
_DEATHS_MAX = 6


class Key(NamedTuple):
    """What a decision is about.

    Attributes:
        kind: a thing that comes, "batch", "ack", "heartbeat", "news", "pace", "break off", "read" or "wake"; "outbox"
            and "still", for which something else is held up; or a number, see `Schedule.choose`.
        place: "worker 0 > worker 1" for a batch, otherwise a receiver or sender, or "".
        source, number: the item it begins with, by its index in its source's input; for news, of minimal time.
        nth: tells apart those for which all else is equal.
    """

    kind: str
    place: str
    source: str
    number: int
    nth: int


class _Message(NamedTuple):
    """Parts for one receiver, under way."""

    parts: bytes
    granule: bytes
    checksum: int


class Scheduled:
    """Something under way.

    Attributes:
        key: what it is.
        due: the turn at which it may come.
        born, came: the turns at which it was sent and came; -1 before that.
        to: whom it comes to: a worker's index, BARRIER, ACKER or CALLER.
        message: a batch; `carried` any other message.
        in_outbox_until: the turn at which it leaves the outbox of its sender.
        rank: of the source that is read, or whose heartbeat it brings.
        sender: who sent it.
        life: of which life it is, of whom it comes to: of a process that was replaced nothing comes to the next.
        generation: of who sent it, when it did.
        then: what it does, where it is no message between nodes.
    """

    __slots__ = (
        "key",
        "due",
        "born",
        "came",
        "to",
        "message",
        "carried",
        "in_outbox_until",
        "rank",
        "sender",
        "life",
        "generation",
        "then",
    )

    def __init__(self, key: Key, born: int, hold: int, to: int = 0) -> None:
        self.key = key
        self.born = born
        self.due = born + hold
        self.came = -1
        self.to = to
        self.message: _Message | None = None
        self.carried: Message | None = None
        self.in_outbox_until = born
        self.rank = -1
        self.sender = CALLER
        self.life = self.generation = 0
        self.then: Callable[[], None] | None = None

    def __repr__(self) -> str:
        kind, place, source, number, _ = self.key
        return f"<{kind} {place} {source} {number}>".replace("  ", " ")


class Schedule:
    """In order. Others deviate from it."""

    def hold(self, key: Key) -> int:
        """For how many turns a thing is held up, 0 or more, when it is sent; a frame, in the outbox of who feeds it
        ("outbox"); and a node that stands still after a turn ("still").
        """
        return 0

    def choose(self, key: Key, count: int) -> int:
        """A number below `count`; 0 is the plainest.

        By kind: "cut", how many items fewer a batch of a source has than it could have; "split", whether a batch is
        too long to be carried, and goes in halves; "together", how many more of the messages that wait for a receiver
        it takes at once; "pause", whether a live source has nothing now; "clock", by how much its clock jumps; "skew",
        by how much a node's clock differs; "took", how long a turn took.
        """
        return 0

    def pick(self, things: Sequence[Scheduled], turn: int) -> int:
        """Which thing comes next, by its index; reads are the last."""
        for at, thing in enumerate(things):
            if thing.due <= turn:
                return at
        return min(range(len(things)), key=lambda at: things[at].due)

    def is_lost(self, key: Key) -> bool:
        """Whether a batch never comes."""
        return False

    def fired(self, thing: Scheduled) -> None:
        """A thing has come."""


class Handed(NamedTuple):
    """What a source gave to the dataflow at once, with its metas: all that a replay needs."""

    name: str
    arrived: Arrived


@dataclass
class Outcome:
    """What a simulated run released, and the error it ended with, if any; `pieces` has it as it was released."""

    pieces: list[Released]
    digest: str
    error: Exception | None
    late: list[Late]
    tombstones: int
    handed: list[Handed] = field(default_factory=list)
    log: list[Scheduled] = field(default_factory=list)
    input_error: Exception | None = None

    def items(self) -> list[tuple[int, bytes, Any, str]]:
        """(position, meta, payload, sink) of each item."""
        rows: list[tuple[int, bytes, Any, str]] = []
        for position, metas, payloads, sinks, _ in self.pieces:
            names = [sinks] * len(metas) if isinstance(sinks, str) else sinks
            rows += zip(range(position, position + len(metas)), metas, payloads, names)
        return rows


@dataclass(frozen=True)
class SimulatedSettings(Settings):
    """Settings of a simulated run, beside those of all."""

    workers: int = setting(2, count)


class Simulation:
    """One run of a dataflow under a schedule.

    Args:
        dataflow: the graph.
        inputs: the payloads of each source, in the order of their arrival.
        schedule: what comes next.
        numbers: for each source the index by which keys know each of its payloads; their places, if None.
        live: names of sources that have a clock, and not always something to give.
        workers, fused, batch_items, in_flight_max, digest: `SimulatedSettings`, with which they are checked.
        times: time policies by source, in place of those of the graph.
        machines: the sources' machines, in place of new ones; such as have decided before.
        plan: the dataflow's, where it is known.
        fed_by_hand: `feed` brings more input later, as much at once as it likes, and batches take turns on the workers.
        deaths: processes die where the schedule says so, and the run goes back to a cut and on.

    Attributes:
        died: names of the processes that died, in order.
        generation: how often all went back.
        recovery, keeping: what decides on the way back, and what is kept for it; None where nobody may die.
        refused: messages of older generations that came, and were refused.
        recovered: how often all came to the cut.
    """

    def __init__(
        self,
        dataflow: Dataflow,
        inputs: Mapping[str, Sequence[Any]],
        schedule: Schedule | None = None,
        *,
        numbers: Mapping[str, Sequence[int]] | None = None,
        live: Collection[str] = (),
        workers: int = 2,
        fused: bool = True,
        times: Mapping[str, TimePolicy] | None = None,
        batch_items: int = 8,
        in_flight_max: int = 1_000_000,
        digest: Algorithm = "xxh3_128",
        plan: Plan | None = None,
        machines: Sequence[SourceMachine] | None = None,
        fed_by_hand: bool = False,
        deaths: bool = False,
    ) -> None:
        SimulatedSettings(
            workers=workers, fused=fused, batch_items=batch_items, in_flight_max=in_flight_max, digest=digest
        )
        self.plan = plan or Plan(dataflow, fused=fused)
        policies = {source.name: source.time for source in dataflow.sources} | dict(times or {})
        self.sources = list(machines or ()) or [
            SourceMachine(
                source.name, rank, policies[source.name], live=source.name in live, sets_apart=source.sets_apart
            )
            for rank, source in enumerate(dataflow.sources)
        ]
        self.late: list[Late] = []
        self.pieces: list[Released] = []
        self.handed: list[Handed] = []
        self.log: list[Scheduled] = []
        self.error: Exception | None = None
        self.turn = 0
        self.now_ms = CLOCK_START_MS
        self.under_way: list[Scheduled] = []
        self.lost: list[Scheduled] = []
        self.intake = (_FedByHand if fed_by_hand else Intake)(
            self.sources, batch_items=batch_items, in_flight_max=in_flight_max, now_s=CLOCK_START_MS / 1000
        )
        self._workers = workers
        self._digest: Algorithm = digest
        self._deaths = deaths
        self._pace_items = batch_items
        by_hand = {"batches_ahead_max": sys.maxsize, "turn_items": 1} if fed_by_hand else {}
        self._shelf = InMemory(timed_steps(self.plan))
        keeping = self.keeping = Keeping(_opened, workers, self._shelf, CutPace(_CUT_S)) if deaths else None
        self._feed_node = FeedNode(self.plan, workers, self.intake, keeping=keeping, **by_hand)
        self.intake.batch_items = min(self.intake.batch_items, batch_items)  # how much there is, the schedule says
        self._roles = [*range(workers), BARRIER, ACKER]
        self._nodes: dict[int, Node] = {to: self._new_node(to) for to in self._roles}
        self._nodes[CALLER] = self._feed_node
        self.recovery = RecoveryNode(self._feed_node, workers) if deaths else None
        self._lives = dict.fromkeys(self._nodes, 0)
        self._dead: set[int] = set()
        self.died: list[str] = []
        self.refused = self.recovered = 0
        self._released: deque[Scheduled] = deque()  # under way to who feeds; they come in order
        self._names = {to: f"worker {to}" for to in range(workers)}
        self._names |= {BARRIER: "barrier", ACKER: "acker", CALLER: "caller"}
        self._schedule = schedule or Schedule()
        self._skews_s = {to: self._skew_s(to) for to in self._nodes}
        self._leapt_s = 0.0  # what the clocks of all nodes went on for those that wished to be woken
        self._took_s = dict.fromkeys(self._nodes, 0.0)
        self._still_until = dict.fromkeys(self._nodes, 0)
        self._inputs = [deque(inputs[source.name]) for source in dataflow.sources]
        self._numbers = [
            deque(numbers[source.name] if numbers else range(len(inputs[source.name]))) for source in dataflow.sources
        ]
        self._fed = list(map(len, self._inputs))
        self._by_hand = fed_by_hand
        self._in_flight_max = in_flight_max
        self._credit_matters = fed_by_hand or in_flight_max < sum(map(len, self._inputs))
        self._heartbeats: list[deque[Scheduled]] = [deque() for _ in self.sources]
        self._reads: list[Scheduled | None] = [None] * len(self.sources)
        self._wakes: dict[int, Scheduled] = {}
        self._first_read = [-1] * len(self.sources)  # the item that the last reading began with
        self._times = 0
        self._items: dict[bytes, tuple[str, int]] = {}
        self._met: dict[tuple[str, str, str, int], int] = {}

    def _new_node(self, to: int) -> Node:
        dataflow = self.plan.dataflow
        if to == BARRIER:
            return BarrierNode(dataflow, self._digest)
        if to == ACKER:
            pacing = pacing_of(self.plan, self._workers, self._pace_items)
            return AckerNode(len(self.sources), [*range(self._workers), CALLER], [CALLER], pacing=pacing)
        links = LinkLogs(parts_by(_opened)) if self._deaths else None
        return WorkerNode(self.plan, to, self._workers, links=links, shelf=self._shelf)

    @property
    def workers(self) -> list[Worker]:
        return [node.machine for node in map(self._nodes.get, range(self._workers)) if isinstance(node, WorkerNode)]

    @property
    def acker(self) -> AckTable:
        node = self._nodes[ACKER]
        assert isinstance(node, AckerNode)
        return node.table

    @property
    def barrier(self) -> Barrier:
        return self._barrier_node.machine

    @property
    def _barrier_node(self) -> BarrierNode:
        node = self._nodes[BARRIER]
        assert isinstance(node, BarrierNode)
        return node

    @property
    def generation(self) -> int:
        return self.recovery.generation if self.recovery is not None else 0

    # The run.

    def run(self) -> Outcome:
        """To the end of the input, or the first error."""
        while self.step():
            pass
        return self.end()

    def step(self) -> bool:
        """One turn; False where nothing can come any more."""
        if self.error is not None:
            return False
        things = self.things()
        if not things:
            return False
        self.fire(things[self._schedule.pick(things, self.turn) if len(things) > 1 else 0])
        return True

    def end(self) -> Outcome:
        """What came of it.

        Raises:
            DriftBug: something is held at the end.
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
                    f"{self.lost[0].key.place.replace(' > ', ' to ')}; everything released before stands. Run again"
                )
            elif self.error is None:
                self._check_progress()
            elif self._feed_node.finished is None:
                raise DriftBug(f"nothing is under way, and the run does not break off at its error: {self.error}")
        tombstones = sum(worker.tombstones for worker in self.workers)
        finished = self._feed_node.finished
        return Outcome(
            self.pieces,
            finished.digest if finished is not None else self.barrier.digest.hexdigest(),
            self.error,
            self.late,
            tombstones,
            self.handed,
            self.log,
            self.intake.inputs.error,
        )

    def things(self) -> list[Scheduled]:
        """All that could come next: what is under way, oldest first; who wishes to be woken; and reads, the source
        furthest behind first.
        """
        ready = self._readable()
        if len(ready) > 1:
            ready.sort(key=lambda rank: self.sources[rank].heartbeat)
        under_way = self.under_way
        if self._deaths and any(node.halted for node in self._nodes.values()):
            under_way = [thing for thing in under_way if self._may_come(thing)]
        return [*under_way, *self._wakes.values(), *map(self._read_of, ready)]

    @property
    def wakes(self) -> list[Scheduled]:
        """Of each node that wishes to be woken."""
        return list(self._wakes.values())

    def fire(self, thing: Scheduled) -> None:
        """A thing comes.

        Raises:
            DriftBug: a law is broken.
        """
        self.turn = max(self.turn, thing.due) + 1
        self.now_ms += 1
        if self.turn > _TURNS_MAX:
            raise DriftBug(f"the run does not end: {_TURNS_MAX} turns, and {len(self.under_way)} things are under way")
        thing.came = self.turn
        self.log.append(thing)
        kind = thing.key.kind
        if kind == "read":
            self._reads[thing.rank] = None
            self._read(thing.rank)
        elif kind == "wake":
            self._wake(thing)
        else:
            self.under_way.remove(thing)
            if thing.then is not None:
                if thing.life == self._lives[thing.to]:
                    self._let(thing.then)
            elif not self._comes(thing):
                pass
            elif kind == "batch":
                self._receive(thing)
            elif kind == "ack" or kind == "heartbeat":
                self._fold(thing)
            elif thing.carried is not None and thing.to == CALLER:
                self._take_in(thing.carried)
            elif thing.carried is not None:
                self._turn(thing.to, [thing.carried])
        if not self._by_hand and self.error is None and not self._readable():
            self._feed([])  # as a shell does that has nothing to read
        if self.recovery is not None:
            self._may_die(thing)
        self._schedule.fired(thing)

    def feed(self, rank: int, payloads: Sequence[Any]) -> None:
        """More input for a source."""
        numbers = self._numbers[rank]
        start = self._fed[rank]
        self._inputs[rank].extend(payloads)
        numbers.extend(range(start, start + len(payloads)))
        self._fed[rank] += len(payloads)

    def read(self, rank: int) -> None:
        """A source gives what it has, as far as batches and credit go; or the news that its input has ended."""
        if not self._may_read(rank):
            raise SettingsError(f"source {self.sources[rank].name!r} may not be read: it has ended, or has no credit")
        self.fire(self._read_of(rank))

    def heartbeat(self, rank: int, heartbeat: bytes) -> None:
        """A source gives a heartbeat."""
        self._first_read[rank] = -1
        fed = self.intake.beat(rank, heartbeat)
        self.late += self.intake.inputs.told()
        self._feed([fed])

    def drop(self, place: str) -> list[Scheduled]:
        """A connection ("worker 0 > worker 1") ends: the batches under way on it are lost, as over ZeroMQ."""
        gone = [thing for thing in self.under_way if thing.key.kind == "batch" and thing.key.place == place]
        self.under_way = [thing for thing in self.under_way if thing not in gone]
        self.lost += gone
        return gone

    def _thing(self, kind: str, place: str, source: str, number: int, to: int, sender: int = CALLER) -> Scheduled:
        met = kind, place, source, number
        nth = self._met.get(met, 0)
        self._met[met] = nth + 1
        key = Key(*met, nth)
        thing = Scheduled(key, self.turn, self._schedule.hold(key), to)
        thing.due = max(thing.due, self._still_until[to])
        thing.sender, thing.life, thing.generation = sender, self._lives[to], self._nodes[sender].generation
        return thing

    def _send_thing(self, kind: str, place: str, source: str, number: int, send: Send, sender: int) -> Scheduled:
        thing = self._thing(kind, place, source, number, send.to, sender)
        thing.carried = send.message
        return thing

    def _pick(self, kind: str, place: str, source: str, number: int, nth: int, count: int) -> int:
        """A number; where there is no choice nothing is asked."""
        if count < 2:
            return 0
        chosen = self._schedule.choose(Key(kind, place, source, number, nth), count)
        if not 0 <= chosen < count:
            raise SettingsError(f"a schedule chose {chosen!r} of {count} for {kind} {place}")
        return chosen

    # Nodes and their clocks.

    def _skew_s(self, to: int) -> float:
        return _SKEWS_S[self._pick("skew", self._names[to], "", 0, 0, len(_SKEWS_S))]

    def _now_s(self, to: int) -> float:
        return self.turn * _TURN_S + self._leapt_s + self._skews_s[to]

    def _turn(self, to: int, messages: list[Message]) -> None:
        """A node's turn, and what comes of it."""
        node = self._nodes[to]
        before = self.acker.minimal_time
        sends = node.turn(messages, self._now_s(to), self._took_s[to])
        if self.acker.minimal_time != before:
            self._check_minimal_time(before)
        self._follow_wake(to)
        self._carry(to, sends)

    def _follow_wake(self, to: int) -> None:
        if self._nodes[to].wake_s == math.inf:
            self._wakes.pop(to, None)
        elif to not in self._wakes:
            self._wakes[to] = self._thing("wake", self._names[to], "", 0, to)

    def _wake(self, thing: Scheduled) -> None:
        """A node is woken, at the moment that it wished for or later."""
        del self._wakes[thing.to]
        early_s = self._nodes[thing.to].wake_s - self._now_s(thing.to)
        if early_s > 0:
            self._leapt_s += early_s + _TURN_S
        self._turn(thing.to, [])

    def _stand_still(self, thing: Scheduled) -> None:
        """Who has just had a thing may do nothing for a while, and then find all that has come."""
        turns = self._schedule.hold(thing.key._replace(kind="still"))
        if turns:
            until = self._still_until[thing.to] = self.turn + turns
            for other in (*self.under_way, *self._wakes.values()):
                if other.to == thing.to:
                    other.due = max(other.due, until)

    def _check_minimal_time(self, before: bytes) -> None:
        minimal_time = self.acker.minimal_time
        if minimal_time < before:
            raise DriftBug(f"minimal time went back to {minimal_time.hex()}")
        for other in self.under_way:
            if other.message is None or other.generation != self._nodes[ACKER].generation:
                continue
            if other.message.granule < minimal_time:
                raise DriftBug(f"a message ({other.key.place}) is in flight below minimal time {minimal_time.hex()}")
        self._times += 1

    # Sources.

    def _readable(self) -> list[int]:
        """Sources that the shell of who feeds would read now, in any order."""
        if not self._feed_node.may_read(stuck=self._is_stuck()):
            return []
        return [rank for rank in range(len(self.sources)) if self._may_read(rank)]

    def _is_stuck(self) -> bool:
        """Something that was fed is in an outbox still."""
        return any(thing.in_outbox_until > self.turn for thing in self.under_way)

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
        thing = self._reads[rank]
        if thing is None:
            name = self.sources[rank].name
            thing = self._reads[rank] = self._thing("read", "", name, self._first(rank), CALLER)
            thing.rank = rank
        return thing

    def _read(self, rank: int) -> None:
        source, left, numbers = self.sources[rank], self._inputs[rank], self._numbers[rank]
        first = self._first_read[rank] = self._first(rank)
        payloads: list[Any] | None = None
        if source.live and self._has_nothing_now(rank, first):
            payloads = []
        elif left:
            most = len(left) if self._by_hand else min(len(left), self.intake.batch_items, self.room(rank))
            count = most - self._pick("cut", "", source.name, first, 0, most)
            payloads = [left.popleft() for _ in range(count)]
        fed = self.intake.give(rank, payloads, self.now_ms if source.live else 0, self.now_ms / 1000)
        if payloads and fed is not None:
            self._know(source.name, payloads, [numbers.popleft() for _ in payloads], fed.arrived)
            self.handed.append(Handed(source.name, fed.arrived))
        self.late += self.intake.inputs.told()
        self.intake.error = self.intake.inputs.error
        self._feed([] if fed is None else [fed])

    def _know(self, name: str, payloads: list[Any], numbers: list[int], arrived: Arrived) -> None:
        """Remember which item has which global time; those that were late are in between."""
        at = 0
        for meta, payload in zip(arrived.metas, arrived.payloads):
            while payloads[at] is not payload:
                at += 1
            self._items[meta] = name, numbers[at]
            at += 1

    def _feed(self, fed: list[Fed]) -> None:
        node = self._feed_node
        self._carry(CALLER, node.feed(fed, stuck=self._is_stuck()))
        if self._by_hand and fed:
            self._carry(CALLER, node.feed([]))  # nothing is gathered that the test has not fed

    # Sources that have nothing for a while.

    def _has_nothing_now(self, rank: int, first: int) -> bool:
        source = self.sources[rank]
        read = self.log[-1].key
        idle_after_ms = source.policy.idle_after_ms if isinstance(source.policy, EventTime) else None
        jumps = 0, 1, 10, idle_after_ms or 1000
        self.now_ms += jumps[self._pick("clock", "", source.name, first, read.nth, len(jumps))]
        return self._pick("pause", "", source.name, first, read.nth, 2) == 1

    # Deaths, and the way back.

    def _may_come(self, thing: Scheduled) -> bool:
        """Whether it is told by a pipe, or its receiver takes turns."""
        return thing.then is not None or thing.to == CALLER or not self._nodes[thing.to].halted

    def _is_taken(self, thing: Scheduled) -> bool:
        """Whether a message comes to the process that it was sent to, and in its generation."""
        if thing.life != self._lives[thing.to] or thing.to in self._dead:
            return False
        if thing.generation != self._nodes[thing.to].generation:
            self.refused += 1
            return False
        return True

    def _comes(self, thing: Scheduled) -> bool:
        """The same; what comes in order behind it may come next."""
        if thing.key.kind == "released":
            assert self._released[0] is thing
            self._released.popleft()
            self.under_way += list(self._released)[:1]
        elif thing.rank >= 0 and self._heartbeats[thing.rank] and self._heartbeats[thing.rank][0] is thing:
            waiting = self._heartbeats[thing.rank]
            waiting.popleft()
            self.under_way += list(waiting)[:1]
        return self._is_taken(thing)

    def _may_die(self, thing: Scheduled) -> None:
        """Who has just had a thing may die."""
        to, (kind, place, source, number, nth) = thing.to, thing.key
        name = self._names[to]
        if to == CALLER or to in self._dead or self._feed_node.finished is not None:
            return
        if len(self.died) >= _DEATHS_MAX or self.died.count(name) >= DEATHS_MAX - 1:
            return
        if self._pick("death", f"{name}, {kind} {place}".rstrip(), source, number, nth, 2):
            self.die(to)

    def die(self, to: int) -> None:
        """A process dies: what it was sent is gone, and of what it has sent whatever the schedule says."""
        name = self._names[to]
        self._dead.add(to)
        self.died.append(name)
        self._lives[to] += 1
        self._wakes.pop(to, None)
        left: list[Scheduled] = []
        for other in self.under_way:
            gone = other.to == to or (other.sender == to and other.then is None and other.to != CALLER)
            if not gone or (other.to != to and not self._pick_of("fate", other, 2)):
                left.append(other)
        self.under_way = left
        if to == BARRIER and self._released:
            head = self._released[0]
            lost = self._pick_of("fate", head, len(self._released) + 1)
            for _ in range(lost):
                gone_thing = self._released.pop()
                if gone_thing is head:
                    self.under_way.remove(head)
        self._tell("told", name, CALLER, lambda: self._do(self._recovering.died([to])))

    def _pick_of(self, kind: str, thing: Scheduled, count: int) -> int:
        _, place, source, number, nth = thing.key
        return self._pick(kind, f"{thing.key.kind} {place}".rstrip(), source, number, nth, count)

    @property
    def _recovering(self) -> RecoveryNode:
        assert self.recovery is not None
        return self.recovery

    def _let(self, then: Callable[[], None]) -> None:
        try:
            then()
        except ProcessError as error:  # what the recovery ends the run with
            self.error = error

    def _tell(self, kind: str, place: str, to: int, then: Callable[[], None]) -> None:
        """Something that comes by a pipe, or that a shell sees."""
        thing = self._thing(kind, place, "", self.generation, to)
        thing.then = then
        self.under_way.append(thing)

    def _do(self, effects: Sequence[Effect]) -> None:
        """What the recovery decides."""
        for effect in effects:
            if isinstance(effect, Send):
                self._carry(CALLER, [effect])
            elif isinstance(effect, Replace):
                self._tell("start", self._names[effect.role], effect.role, partial(self._start, effect.role))
            elif isinstance(effect, Tell) and effect.role not in self._dead:
                if isinstance(effect.order, Rewind):
                    self._heartbeats = [deque() for _ in self.sources]
                order = pickle.loads(pickle.dumps(effect.order))
                self._tell("order", self._names[effect.role], effect.role, partial(self._obey, effect.role, order))
        if any(isinstance(effect, Recovered) for effect in effects):
            self.recovered += 1

    def _start(self, to: int) -> None:
        """Another process is there for one that has died."""
        node = self._nodes[to] = self._new_node(to)
        node.generation, node.halted = -1, True  # it takes no message before it has been told where to begin
        self._dead.discard(to)
        self._do(self._recovering.started(to))

    def _obey(self, to: int, order: Order) -> None:
        if to in self._dead:
            return
        node = self._nodes[to]
        sends, answer = node.obey(order)
        self._follow_wake(to)
        self._carry(to, sends)
        if answer is not None:
            self._tell("answer", self._names[to], CALLER, partial(self._hear, to, answer))

    def _hear(self, to: int, answer: Answer) -> None:
        self._do(self._recovering.answered(to, answer))

    def _release_later(self, send: Send, sender: int) -> None:
        """A piece of the output is under way, behind those before it."""
        thing = self._send_thing("released", self._names[sender], "", self._times, send, sender)
        if isinstance(send.message, ReleasedMessage):
            piece = send.message
            as_bytes = pickle.dumps(msgspec.structs.replace(piece, released=piece.released._replace(error=None)))
            thing.carried = msgspec.structs.replace(piece, carried=as_bytes)
        self._released.append(thing)
        if len(self._released) == 1:
            self.under_way.append(thing)

    # What is under way.

    def _carry(self, sender: int, sends: list[Send]) -> None:
        for send in sends:
            message = send.message
            if isinstance(message, Batch):
                self._send_batch(sender, send, message)
            elif isinstance(message, AckMessage):
                self._send_ack(sender, send, message)
            elif isinstance(message, MinimalTime):
                self.under_way.append(self._send_thing("news", self._names[send.to], "", self._times, send, sender))
            elif isinstance(message, ReleasedMessage | Finished):  # in order
                if self.recovery is not None:
                    self._release_later(send, sender)
                else:  # nothing hangs on when it comes
                    self._take_in(message)
            elif isinstance(message, CutPiece) and sender == BARRIER:  # behind what it has released
                self._release_later(send, sender)
            else:
                kind = _KINDS[type(message)]
                self.under_way.append(self._send_thing(kind, self._names[send.to], "", self._times, send, sender))

    def _take_in(self, message: Message) -> None:
        """Who feeds is sent a message."""
        self._turn(CALLER, [message])
        for piece in self._feed_node.take_released():
            self.pieces.append(piece.released)
            self.error = piece.released.error
        if self.recovery is not None:
            self._do(self.recovery.came())
            self._merge()

    def _merge(self) -> None:
        """Pieces of cuts that are to be made one are."""
        assert self.keeping is not None
        while (due := self.keeping.due_to_merge()) is not None:
            worker, several = due
            one = merged(layer.whole() for layer in self._shelf.get([piece.name for piece in several]))
            self.keeping.merged(worker, several, *self._shelf.put(one)[:2])

    def _send_batch(self, sender: int, send: Send, batch: Batch, *, whole: bool = False) -> None:
        least = global_time_of(min(least_meta(columns.metas) for _, columns in batch.parts))
        name = self._names[sender] if sender != CALLER else self._items[batch.granule][0]
        if batch.granule < self.acker.minimal_time:
            raise DriftBug(f"{batch.parts[0][0]!r} is sent items at {batch.granule.hex()}, which is below minimal time")
        if least < batch.granule:
            raise DriftBug(f"{name} sent an item that is older than everything it was given")
        place = f"{name} > {self._names[send.to]}"
        source, number = self._items.get(least, ("", -1))
        if not whole and sum(len(columns.metas) for _, columns in batch.parts) > 1:
            nth = self._met.get(("batch", place, source, number), 0)
            if self._pick("split", place, source, number, nth, 2):
                halves = self._nodes[sender].unsent(send, Oversized("the schedule says so"))
                for half in halves:
                    if isinstance(half.message, Batch):
                        self._send_batch(sender, half, half.message, whole=True)
                    else:
                        self._carry(sender, [half])
                return
        thing = self._thing("batch", place, source, number, send.to, sender)
        thing.message = _Message(pickle.dumps(batch.parts), batch.granule, batch.checksum)
        if send.kept is not None:
            send.kept.content = pickle.dumps(batch)
        if sender == CALLER and (turns := self._schedule.hold(thing.key._replace(kind="outbox"))):
            thing.in_outbox_until = self.turn + turns
            thing.due = max(thing.due, thing.in_outbox_until)
        (self.lost if self._schedule.is_lost(thing.key) else self.under_way).append(thing)

    def _send_ack(self, sender: int, send: Send, ack: AckMessage) -> None:
        if not ack.heartbeats or ack.heartbeats[0][0] >= len(self.sources):
            source, number = self._items.get(ack.cells[0][0], ("", -1)) if ack.cells else ("", -1)
            self.under_way.append(self._send_thing("ack", self._names[sender], source, number, send, sender))
            return
        rank = ack.heartbeats[0][0]
        name = self.sources[rank].name
        thing = self._send_thing("heartbeat", name, name, self._first_read[rank], send, sender)
        thing.rank = rank
        waiting = self._heartbeats[rank]
        waiting.append(thing)
        if len(waiting) == 1:
            self.under_way.append(thing)

    def _receive(self, thing: Scheduled) -> None:
        """A batch comes, and perhaps others that wait for the same receiver."""
        _, place, source, number, nth = thing.key
        to = thing.to
        waiting = [other for other in self.under_way if other.message is not None and other.to == to]
        waiting = waiting[: self._nodes[to].messages_max - 1]
        messages: list[Message] = []
        for each in [thing, *waiting[: self._pick("together", place, source, number, nth, len(waiting) + 1)]]:
            if each is not thing:
                self.under_way.remove(each)
                each.came = self.turn
                self.log.append(each)
                if not self._is_taken(each):
                    continue
            assert each.message is not None
            messages.append(Batch(each.message.granule, each.message.checksum, pickle.loads(each.message.parts)))
        self._turn(to, messages)
        if to != BARRIER:
            self._took_s[to] = _TURNS_S[self._pick("took", place, source, number, nth, len(_TURNS_S))]
        self._stand_still(thing)

    def _fold(self, thing: Scheduled) -> None:
        """An ack comes."""
        assert thing.carried is not None
        self._turn(ACKER, [thing.carried])
        self._stand_still(thing)

    def items_of(self, thing: Scheduled) -> list[tuple[str, int]]:
        """(source, index) of the input items that a thing is about: all those behind a batch."""
        if thing.message is None:
            return [thing.key[2:4]] if thing.key.source else []
        metas = [meta for _, columns in pickle.loads(thing.message.parts) for meta in columns.metas]
        times = dict.fromkeys(map(global_time_of, metas))
        return sorted((self._items[time] for time in times if time in self._items), key=lambda item: item[1])

    @property
    def released_below(self) -> bytes:
        """Minimal time as the barrier has heard of it: everything below is released."""
        return self._barrier_node.minimal_time

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
            f"nothing is under way, and minimal time stands at {self.acker.minimal_time.hex()}: a message is not "
            f"accounted for, {self.acker.in_flight} ack cells are not zero"
        )


class _FedByHand(Intake):
    """Sources of a driver: a test may give more credit, or another heartbeat, at any time."""

    def out_of_credit(self, minimal_time: bytes) -> SettingsError | None:
        return None


def _opened(carried: bytes) -> Message:
    message: Message = pickle.loads(carried)
    return message


def simulate(
    dataflow: Dataflow, inputs: Mapping[str, Sequence[Any]], schedule: Schedule | None = None, **settings: Any
) -> Outcome:
    """Run a dataflow under a schedule; `settings` are those of `Simulation`.

    Raises:
        DriftBug: a law is broken.
    """
    return Simulation(dataflow, inputs, schedule, **settings).run()
