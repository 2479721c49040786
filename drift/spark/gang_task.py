"""What one task of a worker gang does: it feeds its rows, works for its keys, and lets go of what is settled.

Invariant: over all tasks of an attempt, each item that leaves the level is given exactly once, and nothing that a
tombstone takes back is given; a task ends when the level is done, or its attempt fails as a whole.

Why: an item and the tombstone that takes it back come from one key, so from one task, and meet in that task's own
buffers; nothing leaves these before minimal time has passed it. Task 0 keeps the acker's table. A task promises the
global time of the item it feeds next, so tasks are to the acker what sources are to it elsewhere. Frames of another
attempt are refused: they are seeded with numbers that the tasks of one attempt drew and told each other.
"""

from __future__ import annotations

import json
import math
import secrets
import socket
import time
from collections import deque
from collections.abc import Iterable, Iterator
from operator import itemgetter
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import xxhash

from drift.engines.zeromq.roles import Loop, poll_ms
from drift.engines.zeromq.sockets import Transport, flush_all
from drift.machines.nodes.acker import AckerNode
from drift.machines.nodes.messages import AckMessage, Done, Message, MinimalTime, Pace
from drift.machines.nodes.node import ACKER, Send
from drift.machines.nodes.pacing import Pacing
from drift.machines.nodes.worker import WorkerNode
from drift.machines.plan import Plan
from drift.machines.worker import Part
from drift.spark.batches import TAKEN_BACK, Inbox, Outbox, Row, error_row, rows_in
from drift.spark.gang_lines import Lines, TaskLost
from drift.spark.kernels import Work
from drift.spark.levels import LevelWorker
from drift_barrier.barrier import Barrier
from drift_graph.errors import DriftBug, DriftError
from drift_graph.item import Columns
from drift_graph.meta import BEGINNING, END_OF_TIME, global_time_of

_READY_ITEMS = 4096
_POLL_MS = 100
_LINGER_MS = 10_000
#: Batches of one task that minimal time has not passed.
_BATCHES_AHEAD_MAX = 2
_BATCH_ITEMS_MAX = 4096


def run_gang(work: Work, level: int, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """The body of one task of a barrier stage: rows in and out as those of `run_level`."""
    from pyspark import BarrierTaskContext

    context = BarrierTaskContext.get()
    index = context.partitionId()
    host = context.getTaskInfos()[index].address.rpartition(":")[0]
    loop = GangLoop(index, work, level, transport_of(work, socket.gethostbyname(host)), batches)
    try:
        hello = json.dumps([loop.address(socket.gethostbyname(host)), secrets.randbits(64)])
        hellos = [json.loads(each) for each in context.allGather(hello)]
        loop.join([address for address, _ in hellos], [nonce for _, nonce in hellos])
        yield from loop.output()
    finally:
        loop.close()


def transport_of(work: Work, address: str) -> Transport:
    """Sockets on the interface that Spark knows this executor by, or on all where none of this machine has it."""
    assert work.gang is not None
    with socket.socket() as probe:
        try:
            probe.bind((address, 0))
        except OSError:
            address = "0.0.0.0"
    return Transport("", work.gang.public_key, work.gang.secret_key, address, work.gang.silence_max_s)


class GangLoop(Loop):
    """A worker that feeds itself and buffers its own output, and in task 0 the acker; see the module."""

    def __init__(
        self, index: int, work: Work, level: int, transport: Transport, batches: Iterable[pa.RecordBatch]
    ) -> None:
        levels = work.opened()
        plan = Plan(levels.dataflow, fused=work.fused, only=levels.groups(level))
        self._worker = WorkerNode(plan, index, work.targets, feeds_itself=True)
        super().__init__(self._worker, f"worker-{index}", index + 1, 0, transport)
        self._index = index
        self._levels = levels
        self._feeder = _Feeder(batches, level)
        self._leaving = LevelWorker(levels, level, work.targets, work.bounds, work.due_below)
        self._outbox = Outbox(levels.last, work.targets)
        self._buffers: dict[str, Barrier] = {}
        self._acker: AckerNode | None = None
        if index == 0:
            every = range(work.targets)
            self._acker = AckerNode(work.targets, every, every, barrier=False, pacing=Pacing(_BATCH_ITEMS_MAX))
        self._to_self: list[Message] = []  # that need no socket
        self._took_s = 0.0
        self._done = 0  # tasks that told so to task 0
        self._minimal_time = BEGINNING
        self._settled = BEGINNING
        self._fed: deque[bytes] = deque()  # the last metas of batches that minimal time may not have passed
        self._stopped = False
        self._finished = False

    def address(self, host: str) -> str:
        """Where the other tasks connect to."""
        return f"tcp://{host}:{self.inbox.address.rpartition(':')[2]}"

    def join(self, addresses: list[str], nonces: list[int]) -> None:
        """Take part in the attempt whose tasks these are."""
        self.codec.reseed(xxhash.xxh64_intdigest(json.dumps(nonces).encode()))
        others = {index: self.connect(each) for index, each in enumerate(addresses) if index != self._index}
        self.carrier.boxes.update(others)
        if self._acker is None:
            self.carrier.boxes[ACKER] = self.connect(addresses[0])
        self._lines = Lines(dict(others), addresses)

    def output(self) -> Iterator[pa.RecordBatch]:
        """Work to the end; the rows that leave."""
        failed = False
        try:
            while self._settled != END_OF_TIME and not self._stopped:
                self._work()
                self._settle()
                yield from self._feeder.passing()
                yield from self._outbox.ready()
        except TaskLost:
            raise
        except DriftError as error:  # every attempt would meet it: it ends the run
            self._outbox.add_row(error_row(self._levels.last, error))
            failed = True
        self._finish(failed=failed)
        self._outbox.add_row(Row(self._levels.last, 0, BEGINNING, TAKEN_BACK, self._worker.tombstones, b""))
        yield from self._feeder.passing()
        yield from self._outbox.rest()

    def _work(self) -> None:
        feeds = self._has_room()
        wake_s = min(self._worker.wake_s, self._acker.wake_s if self._acker is not None else math.inf)
        self.poller.poll(0 if feeds or self._to_self else poll_ms(wake_s))
        messages = [*self._to_self, *self.inbox.receive(self._worker.messages_max)]
        self._to_self = []
        for message in messages:
            if isinstance(message, MinimalTime):
                self._minimal_time = max(self._minimal_time, message.time)
            elif isinstance(message, Pace):
                self._feeder.batch_items = message.items
            elif isinstance(message, Done):
                self._note_done(message)
        now_s = time.monotonic()
        if messages or now_s >= self._worker.wake_s:
            self._carry(self._worker.turn(messages, now_s, self._took_s))
            self._took_s = time.monotonic() - now_s
        if feeds:
            self._feed()
        if self._acker is not None:
            acks = [message for message in (*messages, *self._to_self) if isinstance(message, AckMessage)]
            self._to_self = []
            self._carry(self._acker.turn(acks, time.monotonic()))
        flush_all(self.carrier.boxes.values(), self.poller)
        self._lines.check()

    def _carry(self, sends: list[Send]) -> None:
        """Give to the sockets what is for other tasks, and to the buffers what has left."""
        own = (ACKER, self._index) if self._acker is not None else (self._index,)
        self._to_self += [send.message for send in sends if send.to in own]
        self.carrier.carry([send for send in sends if send.to not in own], self._unsent)
        for name, columns in self._worker.output:
            buffer = self._buffers.get(name)
            if buffer is None:
                buffer = self._buffers[name] = Barrier()
            buffer.add(name, columns)
        self._worker.output = []

    def _unsent(self, send: Send, error: Exception) -> list[Send]:
        sends = self._worker.unsent(send, error)
        if self._acker is None:
            return sends
        self._to_self += [send.message for send in sends if send.to == ACKER]
        return [send for send in sends if send.to != ACKER]

    def _has_room(self) -> bool:
        if self._feeder.ended or any(box.waiting for box in self.carrier.boxes.values()):
            return False
        while self._fed and self._fed[0] < self._minimal_time:
            self._fed.popleft()
        return len(self._fed) < _BATCHES_AHEAD_MAX

    def _feed(self) -> None:
        """The items that come next, and in one ack with them the promise of what comes after."""
        items, promise = self._feeder.take()
        self._fed += [meta for meta, _, _ in items if meta < promise][-1:]  # minimal time will pass no others yet
        self._carry(self._worker.feed(_parts(items), self._index, promise, time.monotonic()))

    def _settle(self) -> None:
        """Let go of what minimal time has passed."""
        if self._minimal_time == self._settled:
            return
        self._settled = self._minimal_time
        leaving: list[Part] = []
        for name, buffer in self._buffers.items():
            settled = buffer.settled(self._settled)
            if settled is not None:
                leaving.append((name, Columns(settled[0], settled[1], None)))
            if self._settled == END_OF_TIME and len(buffer):
                raise DriftBug(f"{len(buffer)} items for {name!r} are left in a buffer at the end of time")
        self._leaving.leave(leaving, self._outbox)

    # The end.

    def _note_done(self, message: Done) -> None:
        """In task 0: a task has ended, well or with an error. In others: stop, for one has failed."""
        if self._acker is None:
            self._stopped = True
            return
        self._done += 1
        self._lines.forgive(message.worker)
        self._stopped = self._stopped or message.failed

    def _finish(self, *, failed: bool) -> None:
        """Tell task 0, which stays until all have told it, and stops the others where one has failed."""
        boxes = self.carrier.boxes
        done = Done(self._index, failed)
        if self._acker is None:
            self._carry([Send(ACKER, done)])
            while boxes[ACKER].waiting:
                flush_all([boxes[ACKER]], self.poller)
                self.poller.poll(_POLL_MS)
                self._lines.check()
            self._finished = True
            return
        if failed or self._stopped:
            self._carry([Send(other, done) for other in boxes])
        while self._done < len(boxes):
            flush_all(boxes.values(), self.poller)
            self.poller.poll(_POLL_MS)
            for message in self.inbox.receive(self._worker.messages_max):
                if isinstance(message, Done):
                    self._note_done(message)
            self._lines.check()

    def close(self) -> None:
        """Let go of the sockets; where the work was done, once task 0 has been told so."""
        for to, box in self.carrier.boxes.items():
            box.close(_LINGER_MS if self._finished and to == ACKER else 0)
        self.inbox.socket.close(linger=0)
        self.context.term()


_Item = tuple[bytes, str, Any]


class _Feeder:
    """The items of a task's rows in the order of metas.

    Attributes:
        ended: nothing is left.
        batch_items: how many to give at once.
    """

    def __init__(self, batches: Iterable[pa.RecordBatch], level: int) -> None:
        self.ended = False
        self.batch_items = 1
        self._passing: list[pa.RecordBatch] = []
        self._inbox = Inbox(_READY_ITEMS)
        self._rows = self._own_rows(batches, level)
        self._next: Row | None = None
        self._begun = False
        self._items: list[_Item] = []
        self._at = 0

    def passing(self) -> Iterator[pa.RecordBatch]:
        """Rows of later levels, which this level hands on."""
        passing, self._passing = self._passing, []
        yield from passing

    def take(self) -> tuple[list[_Item], bytes]:
        """The next items, and the global time that those after them do not go below."""
        if self._at == len(self._items):
            self._items, self._at = self._more(), 0
        items = self._items[self._at : self._at + self.batch_items]
        self._at += len(items)
        if self._at < len(self._items):
            return items, global_time_of(self._items[self._at][0])
        if self._next is not None:
            return items, global_time_of(self._next.first)
        self.ended = True
        return items, END_OF_TIME

    def _more(self) -> list[_Item]:
        """The items below the first row that is not looked at yet."""
        if not self._begun:
            self._begun = True
            self._next = next(self._rows, None)
        while self._next is not None:
            self._inbox.add(self._next)
            self._next = next(self._rows, None)
            if self._inbox.is_due or self._next is None:
                parts = self._inbox.below(END_OF_TIME if self._next is None else self._next.first)
                items = [
                    (meta, name, payload) for name, columns in parts for meta, payload in zip(columns[0], columns[1])
                ]
                if items:
                    return sorted(items, key=itemgetter(0))
        return []

    def _own_rows(self, batches: Iterable[pa.RecordBatch], level: int) -> Iterator[Row]:
        for batch in batches:
            others = pc.not_equal(batch.column("level"), level)
            if pc.any(others).as_py():
                self._passing.append(batch.filter(others))
                batch = batch.filter(pc.equal(batch.column("level"), level))
            yield from rows_in(batch)


def _parts(items: list[_Item]) -> list[Part]:
    ports: dict[str, tuple[list[bytes], list[Any]]] = {}
    for meta, name, payload in items:
        metas, payloads = ports.setdefault(name, ([], []))
        metas.append(meta)
        payloads.append(payload)
    return [(name, Columns(metas, payloads, None)) for name, (metas, payloads) in ports.items()]
