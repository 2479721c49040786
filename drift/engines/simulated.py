"""The machines under a drawn schedule: workers, sources, acker and barrier in one process, without clock or socket.

Invariant: whatever `choose` says, minimal time never goes back, nothing below it is anywhere but in the barrier, and
at the end nothing is held. Each is checked at the step that could break it; a breach is a DriftBug.

Why it is the worst network there is: every link is a pool, and any message in it may come next, however late. Only
the acks of one source keep their order among themselves, because a promise must not overtake the message before it.
Each message is one receiver's parts, tracked at the least global time in them; what a worker took and all that it
sent for it make one ack. What comes over a link has been pickled, so nothing is the same object on both sides.

A schedule is a function `choose(n)` that gives a number below n. Always 0 is the plainest one: the largest batches,
the oldest message first, and no new input before the last one is settled.
"""

from __future__ import annotations

import pickle
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from drift.engines.local import feeding_step
from drift.machines.plan import Plan
from drift.machines.worker import BARRIER, Part, Worker
from drift_acker.ledger import Ledger, ack_of
from drift_acker.table import Ack, AckTable
from drift_barrier.barrier import Barrier, Released
from drift_barrier.digest import Algorithm
from drift_graph.errors import DriftBug, SettingsError
from drift_graph.graph import Dataflow
from drift_graph.item import Columns
from drift_graph.meta import END_OF_TIME, global_time_of
from drift_graph.times import Late, SourceMachine, TimePolicy

Choose = Callable[[int], int]


class _Message(NamedTuple):
    """Parts for one receiver, under way."""

    parts: bytes
    granule: bytes
    checksum: int


@dataclass
class Outcome:
    """What a simulated run released, and the error it ended with, if any; `pieces` has it as it was released."""

    pieces: list[Released]
    digest: str
    error: Exception | None
    late: list[Late]
    tombstones: int

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
        choose: the schedule.
        workers, fused, batch_items, in_flight_max, digest: as in `Settings`.
        times: time policies by source, in place of those of the graph.
    """

    def __init__(
        self,
        dataflow: Dataflow,
        inputs: Mapping[str, Sequence[Any]],
        choose: Choose,
        *,
        workers: int = 2,
        fused: bool = True,
        times: Mapping[str, TimePolicy] | None = None,
        batch_items: int = 8,
        in_flight_max: int = 1_000_000,
        digest: Algorithm = "xxh3_128",
    ) -> None:
        plan = Plan(dataflow, fused=fused)
        policies = {source.name: source.time for source in dataflow.sources} | dict(times or {})
        self.workers = [Worker(plan, index, workers) for index in range(workers)]
        self.acker = AckTable(range(len(dataflow.sources)))
        self.barrier = Barrier(digest, lambda sink: feeding_step(dataflow, sink))
        self.sources = [
            SourceMachine(source.name, rank, policies[source.name]) for rank, source in enumerate(dataflow.sources)
        ]
        self.late: list[Late] = []
        self.pieces: list[Released] = []
        self.error: Exception | None = None
        self._inputs = [deque(inputs[source.name]) for source in dataflow.sources]
        self._choose = choose
        self._batch_items = batch_items
        self._in_flight_max = in_flight_max
        self._input_error: Exception | None = None
        self._ledgers = [Ledger(sender) for sender in range(workers + len(self.sources))]
        self._inboxes: dict[int, list[_Message]] = {index: [] for index in (*range(workers), BARRIER)}
        self._acks: list[Ack] = []
        self._source_acks: list[deque[Ack]] = [deque() for _ in self.sources]
        self._minimal_times = [self.acker.minimal_time]
        self._known = [0] * (workers + 1 + len(self.sources))  # which of them each has: workers, barrier, sources

    def run(self) -> Outcome:
        """To the end of the input, or the first error."""
        while self.error is None and (events := self._events()):
            event, index = events[self._pick(len(events))]
            event(index)
        if self.error is None:
            self.error = self._input_error
            if self.acker.minimal_time == END_OF_TIME:
                self._check_settled()
            elif self.error is None:
                raise SettingsError(f"in_flight_max={self._in_flight_max} is too small for the lateness of a source")
        tombstones = sum(worker.tombstones for worker in self.workers)
        return Outcome(self.pieces, self.barrier.digest.hexdigest(), self.error, self.late, tombstones)

    def _pick(self, count: int) -> int:
        """A choice; where there is none nothing is drawn."""
        chosen = self._choose(count) if count > 1 else 0
        if not 0 <= chosen < count:
            raise SettingsError(f"choose({count}) gave {chosen!r}")
        return chosen

    def _events(self) -> list[tuple[Callable[[int], None], int]]:
        """All that could happen next."""
        events: list[tuple[Callable[[int], None], int]] = []
        for receiver, inbox in self._inboxes.items():
            if inbox:
                events.append((self._collect if receiver == BARRIER else self._work, receiver))
        if self._acks:
            events.append((self._ack, -1))
        events += [(self._ack, rank) for rank, acks in enumerate(self._source_acks) if acks]
        last = len(self._minimal_times) - 1
        events += [(self._notice, receiver) for receiver, known in enumerate(self._known) if known < last]
        events += [(self._read, rank) for rank in range(len(self.sources)) if self._may_read(rank)]
        return events

    # Sources.

    def _may_read(self, rank: int) -> bool:
        return self._input_error is None and not self.sources[rank].finished and self._room(rank) > 0

    def _room(self, rank: int) -> int:
        known = self._minimal_times[self._known[len(self.workers) + 1 + rank]]
        return self._in_flight_max - self.sources[rank].unsettled(known)

    def _read(self, rank: int) -> None:
        source, left = self.sources[rank], self._inputs[rank]
        sent: list[_Message] = []
        if not left:
            heartbeat = source.finish()
        else:
            most = min(len(left), self._batch_items, self._room(rank))
            arrived = source.take([left.popleft() for _ in range(most - self._pick(most))])
            heartbeat = arrived.heartbeat
            self.late += arrived.late
            self._input_error = arrived.error
            if arrived.metas:
                part = source.name, Columns(arrived.metas, arrived.payloads, None)
                sent = self._send(len(self.workers) + rank, self._pick(len(self.workers)), [part])
        self._source_acks[rank].append(ack_of((), map(_tracked, sent), [(rank, heartbeat)]))

    # Workers and the barrier.

    def _take(self, receiver: int) -> tuple[list[_Message], list[Part]]:
        """One or several of the messages for a receiver, in any order."""
        inbox = self._inboxes[receiver]
        count = 1 + self._pick(len(inbox))
        taken = [inbox.pop(self._pick(len(inbox))) for _ in range(count)]
        return taken, [part for message in taken for part in pickle.loads(message.parts)]

    def _send(self, sender: int, receiver: int, parts: list[Part]) -> list[_Message]:
        """Parts on their way: in one message or in several."""
        several = len(parts) > 1 and self._pick(2) == 1
        messages: list[_Message] = []
        for these in [[part] for part in parts] if several else [parts]:
            granule = global_time_of(min(min(columns.metas) for _, columns in these))
            if granule < self.acker.minimal_time:
                raise DriftBug(f"{these[0][0]!r} is sent items at {granule.hex()}, which is below minimal time")
            messages.append(_Message(pickle.dumps(these), granule, self._ledgers[sender].checksum()))
        self._inboxes[receiver] += messages
        return messages

    def _work(self, index: int) -> None:
        taken, parts = self._take(index)
        sent: list[_Message] = []
        for receiver, outgoing in self.workers[index].handle(parts).items():
            sent += self._send(index, receiver, outgoing)
        if sent and min(sent, key=_tracked).granule < min(taken, key=_tracked).granule:
            raise DriftBug("a worker sent an item that is older than everything it was given")
        self._acks.append(ack_of(map(_tracked, taken), map(_tracked, sent)))

    def _collect(self, _: int) -> None:
        taken, parts = self._take(BARRIER)
        for name, columns in parts:
            self.barrier.add(name, columns)
        self._acks.append(ack_of(map(_tracked, taken), ()))

    # Minimal time.

    def _ack(self, rank: int) -> None:
        ack = self._acks.pop(self._pick(len(self._acks))) if rank < 0 else self._source_acks[rank].popleft()
        minimal_time = self.acker.handle(ack)
        if minimal_time is None:
            return
        if minimal_time <= self._minimal_times[-1]:
            raise DriftBug(f"minimal time went back to {minimal_time.hex()}")
        self._minimal_times.append(minimal_time)
        for receiver, inbox in self._inboxes.items():
            for message in inbox:
                if message.granule < minimal_time:
                    raise DriftBug(f"a message to {receiver} is in flight below minimal time {minimal_time.hex()}")

    def _notice(self, receiver: int) -> None:
        """Minimal time comes to a receiver: the last one, or one that has been under way for a while."""
        newer = len(self._minimal_times) - 1 - self._known[receiver]
        self._known[receiver] += newer - self._pick(newer)
        minimal_time = self._minimal_times[self._known[receiver]]
        if receiver < len(self.workers):
            self.workers[receiver].settle(minimal_time)
        elif receiver == len(self.workers):
            released = self.barrier.release(minimal_time)
            if released is not None:
                self.pieces.append(released)
                self.error = released.error

    def _check_settled(self) -> None:
        for index, worker in enumerate(self.workers):
            if worker.held:
                raise DriftBug(f"worker {index} still holds {worker.held} items at the end")
        if len(self.barrier):
            raise DriftBug(f"the barrier still holds {len(self.barrier)} items at the end")
        if self.acker.in_flight:
            raise DriftBug(f"{self.acker.in_flight} ack cells are not zero at the end")


def _tracked(message: _Message) -> tuple[bytes, int]:
    return message.granule, message.checksum


def simulate(dataflow: Dataflow, inputs: Mapping[str, Sequence[Any]], choose: Choose, **settings: Any) -> Outcome:
    """Run a dataflow under a schedule; `settings` are those of `Simulation`.

    Raises:
        DriftBug: a law is broken.
    """
    return Simulation(dataflow, inputs, choose, **settings).run()
