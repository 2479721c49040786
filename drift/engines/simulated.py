"""The machines under a schedule: sources, workers, acker and barrier in one process, on a network that is only thought.

Invariant: whatever the schedule says, minimal time never goes back, nothing below it is anywhere but in the barrier,
and at the end nothing is held. Each is checked at the step that could break it; a breach is a DriftBug.

Why it is the worst network there is: everything that is under way is a `Thing`, and any of them may come next, however
late. Only the acks of one source keep their order among themselves, because a promise must not overtake the message
before it. A message is one receiver's parts, tracked at the least global time in them; what a worker took and all that
it sent for it make one ack. What comes over a link has been pickled, so nothing is the same object on both sides.

A schedule decides what comes next and the few numbers there are to decide. Every decision has a `Key` that says what
it is about (the batch from worker 0 to worker 1 that begins with item 3), not when it is met; so a decision about one
thing means the same when others are taken away. `Schedule` itself is in order: what was sent first comes first, no
input is read before the last is settled, and batches are as large as they may be.
"""

from __future__ import annotations

import pickle
from collections import deque
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from drift.machines.maps import Ports
from drift.machines.plan import Plan, feeding_step
from drift.machines.worker import BARRIER, Part, Router, Worker
from drift_acker.ledger import Ledger, ack_of
from drift_acker.table import Ack, AckTable
from drift_barrier.barrier import Barrier, Released
from drift_barrier.digest import Algorithm
from drift_graph.errors import DriftBug, ProcessError, SettingsError
from drift_graph.graph import Dataflow
from drift_graph.inputs import Inputs
from drift_graph.item import Columns
from drift_graph.meta import BEGINNING, END_OF_TIME, global_time_of
from drift_graph.times import Arrived, EventTime, Late, SourceMachine, TimePolicy

#: A run of the simulator has an end: a machine that goes on for ever is broken.
_TURNS_MAX = 1_000_000
#: Where a simulated clock starts, in milliseconds since 1970; each turn takes one.
CLOCK_START_MS = 1_000_000_000_000


class Key(NamedTuple):
    """What a decision is about.

    Attributes:
        kind: a thing under way, "batch", "ack", "promise", "news" or "read"; or a number, see `Schedule.choose`.
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


class Thing:
    """Something under way.

    Attributes:
        key: what it is.
        due: the turn at which it may come.
        born, came: the turns at which it was sent and came; -1 before that.
        to: index of a worker or a source, or BARRIER.
    """

    __slots__ = ("key", "due", "born", "came", "to", "message", "ack", "time")

    def __init__(self, key: Key, born: int, hold: int, to: int = 0) -> None:
        self.key = key
        self.born = born
        self.due = born + hold
        self.came = -1
        self.to = to
        self.message: _Message | None = None
        self.ack: Ack | None = None
        self.time = BEGINNING

    def __repr__(self) -> str:
        kind, place, source, number, _ = self.key
        return f"<{kind} {place} {source} {number}>".replace("  ", " ")


class Schedule:
    """In order. Others deviate from it."""

    def hold(self, key: Key) -> int:
        """For how many turns a thing is held up, 0 or more, when it is sent."""
        return 0

    def choose(self, key: Key, count: int) -> int:
        """A number below `count`; 0 is the plainest.

        By kind: "cut", how many items fewer a batch of a source has than it could have; "to", how many workers
        further it goes; "split", whether parts for one receiver are messages of their own; "together", how many
        more of the messages that wait for a receiver it takes at once; "maps first", whether a worker only runs the
        maps of a source's batch and sends itself the rest; "pause", whether a live source has nothing now; "clock",
        by how much its clock jumps.
        """
        return 0

    def pick(self, things: Sequence[Thing], turn: int) -> int:
        """Which thing comes next, by its index; reads are the last."""
        for at, thing in enumerate(things):
            if thing.due <= turn:
                return at
        return min(range(len(things)), key=lambda at: things[at].due)

    def is_lost(self, key: Key) -> bool:
        """Whether a batch never comes."""
        return False

    def fired(self, thing: Thing) -> None:
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
    log: list[Thing] = field(default_factory=list)
    input_error: Exception | None = None

    def items(self) -> list[tuple[int, bytes, Any, str]]:
        """(position, meta, payload, sink) of each item."""
        rows: list[tuple[int, bytes, Any, str]] = []
        for position, metas, payloads, sinks, _ in self.pieces:
            names = [sinks] * len(metas) if isinstance(sinks, str) else sinks
            rows += zip(range(position, position + len(metas)), metas, payloads, names)
        return rows


class Simulation:
    """One run of a dataflow under a schedule.

    Args:
        dataflow: the graph.
        inputs: the payloads of each source, in the order of their arrival.
        schedule: what comes next.
        numbers: for each source the index by which keys know each of its payloads; their places, if None.
        live: names of sources that have a clock, and not always something to give.
        workers, fused, batch_items, in_flight_max, digest: as in `Settings`.
        times: time policies by source, in place of those of the graph.
        machines: the sources' machines, in place of new ones; such as have decided before.
        plan: the dataflow's, where it is known.
        fed_by_hand: whether `feed` brings more input later.
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
    ) -> None:
        self.plan = plan or Plan(dataflow, fused=fused)
        policies = {source.name: source.time for source in dataflow.sources} | dict(times or {})
        self.workers = [Worker(self.plan, index, workers) for index in range(workers)]
        self.acker = AckTable(range(len(dataflow.sources)))
        self.barrier = Barrier(digest, lambda sink: feeding_step(dataflow, sink))
        self.sources = list(machines or ()) or [
            SourceMachine(source.name, rank, policies[source.name], live=source.name in live)
            for rank, source in enumerate(dataflow.sources)
        ]
        self.late: list[Late] = []
        self.pieces: list[Released] = []
        self.handed: list[Handed] = []
        self.log: list[Thing] = []
        self.error: Exception | None = None
        self.turn = 0
        self.now_ms = CLOCK_START_MS
        self.under_way: list[Thing] = []
        self.lost: list[Thing] = []
        self._schedule = schedule or Schedule()
        self._inputs = [deque(inputs[source.name]) for source in dataflow.sources]
        self._numbers = [
            deque(numbers[source.name] if numbers else range(len(inputs[source.name]))) for source in dataflow.sources
        ]
        self._fed = list(map(len, self._inputs))
        self._batch_items = batch_items
        self._in_flight_max = in_flight_max
        self._credit_matters = fed_by_hand or in_flight_max < sum(map(len, self._inputs))
        self.inputs = Inputs(self.sources)
        self._ledgers = [Ledger(sender) for sender in range(workers + len(self.sources))]
        self._router = Router(self.plan, workers)
        self._names = [f"worker {index}" for index in range(workers)]
        self._names += [machine.name for machine in self.sources]
        self._promises: list[deque[Thing]] = [deque() for _ in self.sources]
        self._reads: list[Thing | None] = [None] * len(self.sources)
        self._batches = 0
        self._times = 0
        self._known = dict.fromkeys((*range(workers), BARRIER), BEGINNING)  # minimal time, as each has heard of it
        self._credited = [BEGINNING] * len(self.sources)
        self._promised = [BEGINNING] * len(self.sources)  # as in Feed
        self._last_item_ms = [self.now_ms] * len(self.sources)
        self._items: dict[bytes, tuple[str, int]] = {}
        self._met: dict[tuple[str, str, str, int], int] = {}

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
            self.error = self.inputs.error
            if self.acker.minimal_time == END_OF_TIME:
                self._check_settled()
            elif self.lost:
                self.error = self.error or ProcessError(
                    f"{len(self.lost)} messages were lost between the processes of the run, the first of them from "
                    f"{self.lost[0].key.place.replace(' > ', ' to ')}; everything released before stands. Run again"
                )
            elif self.error is None:
                self._check_progress()
        tombstones = sum(worker.tombstones for worker in self.workers)
        return Outcome(
            self.pieces,
            self.barrier.digest.hexdigest(),
            self.error,
            self.late,
            tombstones,
            self.handed,
            self.log,
            self.inputs.error,
        )

    def things(self) -> list[Thing]:
        """All that could come next: what is under way, oldest first, then reads, the source furthest behind first."""
        ready = [rank for rank in range(len(self.sources)) if self._may_read(rank)]
        if len(ready) > 1:
            ready.sort(key=lambda rank: self.sources[rank].heartbeat)
        return [*self.under_way, *map(self._read_of, ready)]

    def fire(self, thing: Thing) -> None:
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
            self._reads[thing.to] = None
            self._read(thing.to)
        else:
            self.under_way.remove(thing)
            if kind == "batch":
                self._work(thing) if thing.to != BARRIER else self._collect(thing)
            elif kind == "ack":
                self._ack(thing)
            elif kind == "promise":
                self._promise(thing)
            else:
                self._notice(thing)
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

    def promise(self, rank: int, heartbeat: bytes) -> None:
        """A source tells what it promises now."""
        self._promised[rank] = heartbeat
        self.late += self.inputs.told()
        self._send_promise(rank, -1, ack_of((), (), [(rank, heartbeat)]))

    def least_other_promise(self, rank: int) -> bytes:
        """What the sources but one promise at least."""
        return min((each for other, each in enumerate(self._promised) if other != rank), default=BEGINNING)

    def drop(self, place: str) -> list[Thing]:
        """A connection ("worker 0 > worker 1") ends: the batches under way on it are lost, as over ZeroMQ."""
        gone = [thing for thing in self.under_way if thing.key.kind == "batch" and thing.key.place == place]
        self.under_way = [thing for thing in self.under_way if thing not in gone]
        self.lost += gone
        return gone

    def _thing(self, kind: str, place: str, source: str, number: int, to: int = 0) -> Thing:
        met = kind, place, source, number
        nth = self._met.get(met, 0)
        self._met[met] = nth + 1
        key = Key(*met, nth)
        return Thing(key, self.turn, self._schedule.hold(key), to)

    def _pick(self, kind: str, place: str, source: str, number: int, nth: int, count: int) -> int:
        """A number; where there is no choice nothing is asked."""
        if count < 2:
            return 0
        chosen = self._schedule.choose(Key(kind, place, source, number, nth), count)
        if not 0 <= chosen < count:
            raise SettingsError(f"a schedule chose {chosen!r} of {count} for {kind} {place}")
        return chosen

    # Sources.

    def _may_read(self, rank: int) -> bool:
        return self.inputs.may_read(rank) and self.room(rank) > 0

    def room(self, rank: int) -> int:
        """How many items a source may give now."""
        if not self._credit_matters:
            return self._in_flight_max
        return self._in_flight_max - self.sources[rank].unsettled(self._credited[rank])

    def _first(self, rank: int) -> int:
        """Index of the next item of a source."""
        numbers = self._numbers[rank]
        return numbers[0] if numbers else -1

    def _read_of(self, rank: int) -> Thing:
        thing = self._reads[rank]
        if thing is None:
            name = self.sources[rank].name
            thing = self._reads[rank] = self._thing("read", "", name, self._first(rank), rank)
        return thing

    def _read(self, rank: int) -> None:
        source, left, numbers = self.sources[rank], self._inputs[rank], self._numbers[rank]
        first = self._first(rank)
        sent: list[_Message] = []
        if source.live and self._has_nothing_now(rank, first):
            heartbeat = self._idle(rank)
        elif not left:
            self._promised[rank] = source.above_all_seen()
            heartbeat = source.finish()
        else:
            most = min(len(left), self._batch_items, self.room(rank))
            count = most - self._pick("cut", "", source.name, first, 0, most)
            payloads = [left.popleft() for _ in range(count)]
            arrived = source.take(payloads, self.now_ms if source.live else 0)
            self._know(source.name, payloads, [numbers.popleft() for _ in range(count)], arrived)
            heartbeat = self._promised[rank] = arrived.heartbeat
            self._last_item_ms[rank] = self.now_ms
            self.inputs.divert(rank, arrived.late)
            self.handed.append(Handed(source.name, arrived))
            if arrived.error is not None:
                self.inputs.fail(rank, arrived.error)
            if arrived.metas:
                sent = self._give(rank, first, Columns(arrived.metas, arrived.payloads, None))
        self.late += self.inputs.told()
        self._send_promise(rank, first, ack_of((), map(_tracked, sent), [(rank, heartbeat)]))

    def _know(self, name: str, payloads: list[Any], numbers: list[int], arrived: Arrived) -> None:
        """Remember which item has which global time; those that were late are in between."""
        at = 0
        for meta, payload in zip(arrived.metas, arrived.payloads):
            while payloads[at] is not payload:
                at += 1
            self._items[meta] = name, numbers[at]
            at += 1

    def _give(self, rank: int, first: int, columns: Columns) -> list[_Message]:
        """A source's batch goes to a worker that runs its maps; where there are none, to the owners of its keys."""
        name = self.sources[rank].name
        sender = len(self.workers) + rank
        if self.plan.programs[name].has_maps:
            further = self._pick("to", "", name, first, 0, len(self.workers))
            worker = (self._batches + further) % len(self.workers)
            self._batches += 1
            return self._send(sender, worker, [(name, columns)])
        ports: Ports = {}
        self.plan.programs[name].run(columns, ports)
        return self._send_all(sender, self._router.route(ports))

    def _send_promise(self, rank: int, first: int, ack: Ack) -> None:
        name = self.sources[rank].name
        thing = self._thing("promise", name, name, first, rank)
        thing.ack = ack
        waiting = self._promises[rank]
        waiting.append(thing)
        if len(waiting) == 1:
            self.under_way.append(thing)

    def _promise(self, thing: Thing) -> None:
        waiting = self._promises[thing.to]
        waiting.popleft()
        if waiting:
            self.under_way.append(waiting[0])
        self._handle(thing)

    # Clocks, and sources that have nothing for a while.

    def _has_nothing_now(self, rank: int, first: int) -> bool:
        source = self.sources[rank]
        read = self.log[-1].key
        idle_after_ms = source.policy.idle_after_ms if isinstance(source.policy, EventTime) else None
        jumps = 0, 1, 10, idle_after_ms or 1000
        self.now_ms += jumps[self._pick("clock", "", source.name, first, read.nth, len(jumps))]
        return self._pick("pause", "", source.name, first, read.nth, 2) == 1

    def _idle(self, rank: int) -> bytes:
        """What `Feed` does where a source gave nothing."""
        source = self.sources[rank]
        heartbeat = source.tick(self.now_ms)
        idle_after_ms = source.policy.idle_after_ms if isinstance(source.policy, EventTime) else None
        if idle_after_ms is not None and self.now_ms - self._last_item_ms[rank] >= idle_after_ms:
            heartbeat = source.idle(self.least_other_promise(rank))
        self._promised[rank] = heartbeat
        return heartbeat

    # Workers and the barrier.

    def _take(self, thing: Thing) -> tuple[list[_Message], list[Part]]:
        """A message and perhaps others that wait for the same receiver."""
        _, place, source, number, nth = thing.key
        waiting = [other for other in self.under_way if other.key.kind == "batch" and other.to == thing.to]
        taken = [thing]
        for other in waiting[: self._pick("together", place, source, number, nth, len(waiting) + 1)]:
            self.under_way.remove(other)
            other.came = self.turn
            self.log.append(other)
            taken.append(other)
        messages = [each.message for each in taken if each.message is not None]
        return messages, [part for message in messages for part in pickle.loads(message.parts)]

    def _send_all(self, sender: int, sends: Mapping[int, list[Part]]) -> list[_Message]:
        sent: list[_Message] = []
        for receiver, parts in sends.items():
            sent += self._send(sender, receiver, parts)
        return sent

    def _send(self, sender: int, receiver: int, parts: list[Part]) -> list[_Message]:
        """Parts on their way: in one message or in several."""
        place = f"{self._names[sender]} > {'barrier' if receiver == BARRIER else self._names[receiver]}"
        pieces = [parts]
        if len(parts) > 1:
            source, number = self._items[_granule_of(parts)]
            if self._pick("split", place, source, number, self._met.get(("batch", place, source, number), 0), 2):
                pieces = [[part] for part in parts]
        messages: list[_Message] = []
        for these in pieces:
            granule = global_time_of(min(min(columns.metas) for _, columns in these))
            if granule < self.acker.minimal_time:
                raise DriftBug(f"{these[0][0]!r} is sent items at {granule.hex()}, which is below minimal time")
            messages.append(_Message(pickle.dumps(these), granule, self._ledgers[sender].checksum()))
        for message in messages:
            self._put(place, receiver, message)
        return messages

    def _put(self, place: str, receiver: int, message: _Message) -> None:
        source, number = self._items.get(message.granule, ("", -1))
        thing = self._thing("batch", place, source, number, receiver)
        thing.message = message
        (self.lost if self._schedule.is_lost(thing.key) else self.under_way).append(thing)

    def items_of(self, thing: Thing) -> list[tuple[str, int]]:
        """(source, index) of the input items that a thing is about: all those behind a batch."""
        if thing.message is None:
            return [thing.key[2:4]] if thing.key.source else []
        metas = [meta for _, columns in pickle.loads(thing.message.parts) for meta in columns.metas]
        times = dict.fromkeys(map(global_time_of, metas))
        return sorted((self._items[time] for time in times if time in self._items), key=lambda item: item[1])

    def _work(self, thing: Thing) -> None:
        taken, parts = self._take(thing)
        worker = self.workers[thing.to]
        programs = self.plan.programs
        sends = None
        if len(self.workers) > 1 and all(name in self._names and programs[name].has_maps for name, _ in parts):
            _, place, source, number, nth = thing.key
            if self._pick("maps first", place, source, number, nth, 2):
                sends = worker.pass_maps(parts)
        sent = self._send_all(thing.to, worker.handle(parts) if sends is None else sends)
        if sent and min(sent, key=_tracked).granule < min(taken, key=_tracked).granule:
            raise DriftBug("a worker sent an item that is older than everything it was given")
        self._send_ack(thing, ack_of(map(_tracked, taken), map(_tracked, sent)))

    def _collect(self, thing: Thing) -> None:
        taken, parts = self._take(thing)
        for name, columns in parts:
            self.barrier.add(name, columns)
        self._send_ack(thing, ack_of(map(_tracked, taken), ()))

    def _send_ack(self, batch: Thing, ack: Ack) -> None:
        sender = "barrier" if batch.to == BARRIER else self._names[batch.to]
        thing = self._thing("ack", sender, batch.key.source, batch.key.number)
        thing.ack = ack
        self.under_way.append(thing)

    # Minimal time.

    def _ack(self, thing: Thing) -> None:
        self._handle(thing)

    def _handle(self, thing: Thing) -> None:
        assert thing.ack is not None
        before = self.acker.minimal_time
        minimal_time = self.acker.handle(thing.ack)
        if minimal_time is None:
            return
        if minimal_time <= before:
            raise DriftBug(f"minimal time went back to {minimal_time.hex()}")
        for other in self.under_way:
            if other.message is not None and other.message.granule < minimal_time:
                raise DriftBug(f"a message ({other.key.place}) is in flight below minimal time {minimal_time.hex()}")
        self._times += 1
        for index in range(len(self.workers)):
            self._tell(self._names[index], index, minimal_time)
        self._tell("barrier", BARRIER, minimal_time)
        if self._credit_matters:
            for rank, source in enumerate(self.sources):
                self._tell(source.name, len(self.workers) + rank, minimal_time)

    def _tell(self, name: str, receiver: int, minimal_time: bytes) -> None:
        thing = self._thing("news", name, "", self._times, receiver)
        thing.time = minimal_time
        self.under_way.append(thing)

    def _notice(self, thing: Thing) -> None:
        """Minimal time comes to a receiver; older news than the last is none."""
        receiver, minimal_time = thing.to, thing.time
        if receiver >= len(self.workers):
            rank = receiver - len(self.workers)
            self._credited[rank] = max(self._credited[rank], minimal_time)
            return
        if minimal_time <= self._known[receiver]:
            return
        self._known[receiver] = minimal_time
        if receiver != BARRIER:
            self.workers[receiver].settle(minimal_time)
            return
        released = self.barrier.release(minimal_time)
        if released is not None:
            self.pieces.append(released)
            self.error = released.error

    @property
    def released_below(self) -> bytes:
        """Minimal time as the barrier has heard of it: everything below is released."""
        return self._known[BARRIER]

    # The end.

    def _check_settled(self) -> None:
        for index, worker in enumerate(self.workers):
            if worker.held:
                raise DriftBug(f"worker {index} still holds {worker.held} items at the end")
        if len(self.barrier):
            raise DriftBug(f"the barrier still holds {len(self.barrier)} items at the end")
        if self.acker.in_flight:
            raise DriftBug(f"{self.acker.in_flight} ack cells are not zero at the end")

    def _check_progress(self) -> None:
        if all(source.finished for source in self.sources):
            raise DriftBug(
                f"nothing is under way, and minimal time stands at {self.acker.minimal_time.hex()}: a message is not "
                f"accounted for, {self.acker.in_flight} ack cells are not zero"
            )
        raise SettingsError(f"in_flight_max={self._in_flight_max} is too small for the lateness of a source")


def _tracked(message: _Message) -> tuple[bytes, int]:
    return message.granule, message.checksum


def _granule_of(parts: Sequence[Part]) -> bytes:
    return global_time_of(min(min(columns.metas) for _, columns in parts))


def simulate(
    dataflow: Dataflow, inputs: Mapping[str, Sequence[Any]], schedule: Schedule | None = None, **settings: Any
) -> Outcome:
    """Run a dataflow under a schedule; `settings` are those of `Simulation`.

    Raises:
        DriftBug: a law is broken.
    """
    return Simulation(dataflow, inputs, schedule, **settings).run()
