"""What the processes of a run do: each loop gives its machine what comes in and carries what it returns.

Invariant: a batch is acknowledged in one ack, made after everything it caused has been handed to the sockets.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Collection, Iterable, Sequence
from heapq import heappop, heappush
from typing import NamedTuple

import zmq

from drift.engines.base import Settings
from drift.engines.local import feeding_step
from drift.engines.pacing import Pacing, needs_pace
from drift.engines.packing import in_forms
from drift.engines.zeromq.control import SignOfLife
from drift.engines.zeromq.sockets import Inbox, Outbox, Transport, flush_all
from drift.engines.zeromq.wire import (
    AckMessage,
    Batch,
    BreakOff,
    Codec,
    Finished,
    Message,
    MinimalTime,
    Oversized,
    Pace,
    ReleasedMessage,
)
from drift.machines.plan import Plan
from drift.machines.worker import BARRIER, Part, Worker
from drift_acker.ledger import Ledger, ack_of
from drift_acker.table import Ack, AckTable
from drift_barrier.barrier import FAILURES, Barrier, Released
from drift_barrier.digest import Encoded, encoded_pieces
from drift_graph.canonical import of_kind
from drift_graph.errors import DriftBug, ProcessError
from drift_graph.failures import unsendable
from drift_graph.graph import Dataflow
from drift_graph.item import Columns
from drift_graph.meta import BEGINNING, END_OF_TIME, global_time_of, least_meta, varint
from drift_graph.operators import Group, Sink

#: Frames taken from the inbox at once: enough for late items to meet what they correct, few enough to stay responsive.
_FRAMES_AT_ONCE = 16
#: How often the acker tells workers and the calling process where it stands; the barrier is told at once.
_NOTICE_INTERVAL_S = 0.001
#: How long a worker that has nothing else to do holds items back because older ones are in flight: so long, or what so
#: many batches take, since neighbours are as busy.
_PATIENCE_S, _PATIENCE_BATCHES = 0.05, 5
#: Fewer items than this never wait: to correct them costs less.
_PATIENT_ITEMS_MIN = 100
_POLL_MS = 100


class Peers(NamedTuple):
    """Addresses of the inboxes of a run."""

    workers: list[str]
    acker: str
    barrier: str
    caller: str


class Loop:
    """What every role has: sockets, a poller, counters for its signs of life."""

    def __init__(
        self, name: str, sender: int, secret: int, transport: Transport, dataflow: Dataflow, settings: Settings
    ) -> None:
        self.context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
        self.codec = Codec(sender, secret)
        self.transport = transport
        self.inbox = Inbox(self.context, transport, name, self.codec)
        self.ledger = Ledger(sender)
        self.dataflow = dataflow
        self.settings = settings
        self.outboxes: list[Outbox] = []
        self.poller = zmq.Poller()
        self.poller.register(self.inbox.socket, zmq.POLLIN)
        self.turns = 0
        self.waits = False
        self.poll_ms = _POLL_MS

    def connect(self, address: str) -> Outbox:
        outbox = Outbox(self.context, self.transport, address)
        self.outboxes.append(outbox)
        return outbox

    def start(self, peers: Peers) -> None:
        """Connect to the others."""
        raise NotImplementedError

    def turn(self, messages: list[Message]) -> None:
        """Handle what has come in."""
        raise NotImplementedError

    def run(self) -> None:
        """Forever; the process is ended from outside."""
        while True:
            self.waits = True
            self.poller.poll(self.poll_ms)
            self.waits = False
            messages = list(self.inbox.receive(_FRAMES_AT_ONCE))
            if messages or not self.poll_ms:
                self.turns += 1
            self.turn(messages)
            flush_all(self.outboxes, self.poller)

    def sign(self) -> SignOfLife:
        """What the process has to say of itself; called from another thread."""
        return SignOfLife(refused_frames=self.inbox.refused, last_refusal=self.inbox.last_refusal)


def granule_of(parts: Iterable[Part]) -> bytes:
    """The least global time in a source's batch: what all that it causes is tracked at."""
    return global_time_of(min(least_meta(columns.metas) for _, columns in parts))


def batches_of(
    parts: list[Part], receiver: int, granule: bytes, ledger: Ledger, codec: Codec, dataflow: Dataflow
) -> Iterable[tuple[tuple[bytes, int], bytes]]:
    """Parts for one process as frames, each with its granule and checksum; split until they fit.

    An item that cannot be pickled, or is too big by itself, is sent as a Failure: it ends the run where it stands in
    the order, and what is before it is released.
    """
    tracked = granule, ledger.checksum()
    try:
        told = [(name, in_forms(columns)) for name, columns in parts] if receiver == BARRIER else parts
        yield tracked, codec.encode(Batch(*tracked, told))
    except Exception as error:
        for half in _halves(parts) or [[_unsendable(*parts[0], error, dataflow)]]:
            yield from batches_of(half, receiver, granule, ledger, codec, dataflow)


def _unsendable(name: str, columns: Columns, error: Exception, dataflow: Dataflow) -> Part:
    """In place of the one item of a part: a failure of the step that made it."""
    metas, payloads, diffs = columns
    way = [operator for operator, _ in dataflow.passed(metas[0]) if not isinstance(operator, Sink)]
    failure = unsendable(way[-1], error, payloads[0])
    if isinstance(dataflow[name], Group):  # the item may be on its way to others as well
        metas = [metas[0] + varint(dataflow.ranks[name])]
    return FAILURES, Columns(metas, [failure], diffs)


def _halves(parts: list[Part]) -> tuple[list[Part], list[Part]] | None:
    if len(parts) > 1:
        return parts[: len(parts) // 2], parts[len(parts) // 2 :]
    name, (metas, payloads, diffs) = parts[0]
    middle = len(metas) // 2
    if middle == 0:
        return None
    first = Columns(metas[:middle], payloads[:middle], diffs and diffs[:middle])
    return [(name, first)], [(name, Columns(metas[middle:], payloads[middle:], diffs and diffs[middle:]))]


class WorkerLoop(Loop):
    """A worker.

    It is optimistic with patience. Large batches for a grouping wait while older items are in flight, for as long as
    there is other work, and then for `_PATIENCE_S`: a neighbour that is only a little behind would have them corrected.
    Nothing is released later for it: minimal time waits as well. What no neighbour sends comes in the order in which it
    was fed, and does not wait.

    Args:
        only: the groupings to run, where the workers feed themselves.
    """

    def __init__(
        self,
        index: int,
        secret: int,
        transport: Transport,
        dataflow: Dataflow,
        settings: Settings,
        *,
        only: Collection[str] | None = None,
    ) -> None:
        super().__init__(f"worker-{index}", index + 1, secret, transport, dataflow, settings)
        self._index = index
        plan = Plan(dataflow, fused=settings.fused, only=only)
        self._worker = Worker(plan, index, settings.workers)
        self._groupings = {name for component in plan.components for name in component}
        # What these give the calling process sends by keys, in order; to all other groupings neighbours send as well.
        dealt = {each.name for each in dataflow.sources if only is None and not plan.programs[each.name].has_maps}
        self._patient = {to for name, program in plan.programs.items() if name not in dealt for to in program.targets}
        self._unmapped: deque[Batch] = deque()
        self._waiting: list[tuple[bytes, int, Batch]] = []  # a heap by granule
        self._came = 0
        self._waiting_since_s = 0.0
        self._batch_s = 0.0  # what the last one took
        self._in_flight = BEGINNING
        self._told_tombstones = 0

    def start(self, peers: Peers) -> None:
        self._peers = {
            index: self.connect(address) for index, address in enumerate(peers.workers) if index != self._index
        }
        self._peers[BARRIER] = self.connect(peers.barrier)
        self._acker = self.connect(peers.acker)

    def turn(self, messages: list[Message]) -> None:
        at_once: list[Batch] = []
        for message in messages:
            if isinstance(message, Batch):
                if self._may_wait(message):
                    self._wait(message)
                elif self.settings.workers == 1 or message.parts[0][0] in self._groupings:
                    at_once.append(message)
                else:
                    self._unmapped.append(message)
            elif isinstance(message, MinimalTime):
                self._in_flight = message.in_flight
                self._worker.settle(message.time)
        while self._waiting and self._waiting[0][0] <= self._in_flight:
            at_once.append(heappop(self._waiting)[2])
        now_s = time.monotonic()
        if at_once:
            self._handle(at_once)
            self._waiting_since_s = now_s
        elif self._unmapped:
            batch = self._unmapped.popleft()
            self._send([batch], self._timed(self._worker.pass_maps, batch.parts))
        elif self._waiting and now_s - self._waiting_since_s >= max(_PATIENCE_S, _PATIENCE_BATCHES * self._batch_s):
            self._handle([heappop(self._waiting)[2]])
        self.poll_ms = 0 if self._unmapped else 10 if self._waiting else _POLL_MS

    def _may_wait(self, batch: Batch) -> bool:
        if self.settings.workers == 1 or self._patient.isdisjoint(name for name, _ in batch.parts):
            return False
        return sum(len(columns.metas) for _, columns in batch.parts) >= _PATIENT_ITEMS_MIN

    def _handle(self, batches: list[Batch]) -> None:
        self._send(batches, self._timed(self._worker.handle, [part for batch in batches for part in batch.parts]))

    def _timed(self, work: Callable[[list[Part]], dict[int, list[Part]]], parts: list[Part]) -> dict[int, list[Part]]:
        started_s = time.monotonic()
        sends = work(parts)
        self._batch_s = time.monotonic() - started_s
        return sends

    def _wait(self, batch: Batch) -> None:
        if not self._waiting:
            self._waiting_since_s = time.monotonic()
        self._came += 1
        heappush(self._waiting, (batch.granule, self._came, batch))

    def _send(self, batches: list[Batch], sends: dict[int, list[Part]]) -> None:
        """Send what batches have caused, and acknowledge them."""
        consumed = [(batch.granule, batch.checksum) for batch in batches]
        sent = self._sent(min(batch.granule for batch in batches), sends)
        self._acknowledge(ack_of(consumed, sent))

    def _acknowledge(self, ack: Ack, items: int = 0) -> None:
        made, self._told_tombstones = self._worker.tombstones - self._told_tombstones, self._worker.tombstones
        self._acker.send(self.codec.encode(ack_message(ack, items, made)))

    def _sent(self, granule: bytes, sends: dict[int, list[Part]]) -> list[tuple[bytes, int]]:
        """Send items on, or keep those for this worker; what the ack has to say of it."""
        sent: list[tuple[bytes, int]] = []
        for receiver, parts in sends.items():
            if receiver == self._index:
                tracked = granule, self.ledger.checksum()
                sent.append(tracked)
                self._wait(Batch(*tracked, parts))
                continue
            for tracked, frame in batches_of(parts, receiver, granule, self.ledger, self.codec, self.dataflow):
                sent.append(tracked)
                self._peers[receiver].send(frame)
        return sent

    def sign(self) -> SignOfLife:
        sign = super().sign()
        sign.tombstones = self._worker.tombstones
        return sign


def ack_message(ack: Ack, items: int = 0, tombstones: int = 0) -> AckMessage:
    return AckMessage(list(ack.cells), list(ack.heartbeats), items, tombstones)


class AckerLoop(Loop):
    """The acker."""

    def __init__(self, secret: int, transport: Transport, dataflow: Dataflow, settings: Settings) -> None:
        super().__init__("acker", 0xFFFF, secret, transport, dataflow, settings)
        self._table = AckTable(range(len(dataflow.sources)))
        self._told = BEGINNING, BEGINNING, 0
        self._next_notice_s = 0.0
        self._batches = 0  # of the input
        paced = needs_pace(Plan(dataflow, fused=settings.fused), settings.workers)
        self._pacing = Pacing(settings.batch_items) if paced else None

    def start(self, peers: Peers) -> None:
        self._barrier = self.connect(peers.barrier)
        self._others = [self.connect(address) for address in (*peers.workers, peers.caller)]
        self._caller = self._others[-1]

    def turn(self, messages: list[Message]) -> None:
        table = self._table
        before = table.minimal_time
        for message in messages:
            if isinstance(message, AckMessage):
                table.handle(Ack(message.cells, message.heartbeats))
                self._batches += message.items > 0
                if self._pacing is not None:
                    granule = message.cells[0][0] if message.items else BEGINNING
                    self._pacing.note(message.items, message.tombstones, granule)
        if self._pacing is not None and self._pacing.judge(table.least_in_flight):
            self._caller.send(self.codec.encode(Pace(self._pacing.batch_items)))
        moved = table.minimal_time != before
        news = table.minimal_time, table.least_in_flight, self._batches
        self.poll_ms = _POLL_MS
        if news == self._told:
            return
        held_by = table.held_by()
        rank = -1 if held_by is None else held_by
        frame = self.codec.encode(MinimalTime(table.minimal_time, table.least_in_flight, rank, self._batches))
        if moved:
            self._barrier.send(frame)
        now_s = time.monotonic()
        if now_s < self._next_notice_s and not table.quiet:
            self.poll_ms = 1
            return
        self._told = news
        self._next_notice_s = now_s + _NOTICE_INTERVAL_S
        for other in self._others:
            other.send(frame)

    def sign(self) -> SignOfLife:
        sign = super().sign()
        sign.held_by_message = not self._table.quiet and self._table.held_by() is None
        return sign


class BarrierLoop(Loop):
    """The output barrier."""

    def __init__(self, secret: int, transport: Transport, dataflow: Dataflow, settings: Settings) -> None:
        super().__init__("barrier", 0xFFFE, secret, transport, dataflow, settings)
        self._barrier = Barrier(settings.digest, lambda sink: feeding_step(dataflow, sink))
        self._minimal_time = BEGINNING
        self._ended = False

    def start(self, peers: Peers) -> None:
        self._acker = self.connect(peers.acker)
        self._caller = self.connect(peers.caller)

    def turn(self, messages: list[Message]) -> None:
        consumed: list[tuple[bytes, int]] = []
        before = self._minimal_time
        for message in messages:
            if isinstance(message, Batch):
                consumed.append((message.granule, message.checksum))
                for name, columns in message.parts:
                    self._barrier.add(name, columns)
            elif isinstance(message, MinimalTime):
                self._minimal_time = max(self._minimal_time, message.time)
            elif isinstance(message, BreakOff):
                self._ended = True
                self._finish()
        if consumed:
            self._acker.send(self.codec.encode(ack_message(ack_of(consumed, ()))))
        if self._minimal_time != before and not self._ended:
            self._release()

    def _release(self) -> None:
        released = self._barrier.release(self._minimal_time)
        if released is not None:
            self._send(released, self._barrier.encoded)
            self._ended = released.error is not None
        if self._minimal_time == END_OF_TIME or self._ended:
            if len(self._barrier) and not self._ended:
                raise DriftBug(f"{len(self._barrier)} items are left in the barrier at the end of time")
            self._ended = True
            self._finish()

    def _finish(self) -> None:
        digest = self._barrier.digest
        self._caller.send(self.codec.encode(Finished(digest.hexdigest(), digest.blocks)))

    def _send(self, released: Released, encoded: Sequence[Encoded] = ()) -> None:
        try:
            self._caller.send(self.codec.encode(ReleasedMessage(released, self._minimal_time, encoded)))
        except Oversized:
            position, metas, payloads, sinks, error = released
            middle = len(metas) // 2
            if middle == 0:
                raise ProcessError("an item of the output is longer than a frame may be") from None
            for half, its_error in ((slice(middle), None), (slice(middle, None), error)):
                its_metas, its_payloads = metas[half], of_kind(payloads, payloads[half])
                its_sinks = sinks if isinstance(sinks, str) else sinks[half]
                piece = Released(position + (half.start or 0), its_metas, its_payloads, its_sinks, its_error)
                self._send(piece, encoded_pieces(its_metas, its_payloads))


def make_loop(role: str, secret: int, transport: Transport, dataflow: Dataflow, settings: Settings) -> Loop:
    """The loop of a role: "acker", "barrier", or a worker's index as text."""
    if role == "acker":
        return AckerLoop(secret, transport, dataflow, settings)
    if role == "barrier":
        return BarrierLoop(secret, transport, dataflow, settings)
    return WorkerLoop(int(role), secret, transport, dataflow, settings)
