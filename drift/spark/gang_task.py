"""One task of a worker gang: the shell of a member (`drift.machines.nodes.member`), from rows to rows.

Invariant: a task ends when the level is done, or its attempt fails as a whole.

Why: the last notice reaches every task, since the sender's sockets stay open until it has left; a task that fails
reports its error to all others; and the others detect a task that dies silently (`gang_lines.py`). Frames of another
attempt are refused: their seed is made of random numbers that the tasks of one attempt exchanged.
"""

from __future__ import annotations

import json
import secrets
import socket
import time
from collections.abc import Iterable, Iterator
from operator import itemgetter
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import xxhash

from drift.engines.zeromq.roles import Loop
from drift.engines.zeromq.sockets import Transport
from drift.machines.nodes.acker import AckerNode
from drift.machines.nodes.member import MemberNode
from drift.machines.nodes.messages import Done
from drift.machines.nodes.node import ACKER, Send
from drift.machines.nodes.pacing import Pacing
from drift.machines.nodes.together import WithAcker
from drift.machines.plan import Plan
from drift.machines.worker import Part
from drift.spark.batches import RETRACTED, BatchRow, RowInbox, RowOutbox, error_row, rows_in
from drift.spark.gang_lines import Lines, TaskLost
from drift.spark.kernels import Work
from drift.spark.levels import LevelWorker
from drift_graph.errors import DriftError
from drift_graph.item import Columns
from drift_graph.meta import BEGINNING, END_OF_TIME, global_time_of

_READY_ITEMS = 4096
_LINGER_MS = 10_000
_BATCH_ITEMS_MAX = 1024


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
        loop.leave()


def transport_of(work: Work, address: str) -> Transport:
    """Sockets on the interface of this executor's address in Spark; on all interfaces if none has that address."""
    assert work.gang is not None
    with socket.socket() as probe:
        try:
            probe.bind((address, 0))
        except OSError:
            address = "0.0.0.0"
    return Transport("", work.gang.public_key, work.gang.secret_key, address, work.gang.silence_max_s)


class GangLoop(Loop):
    """The shell of a member, with the acker in task 0: feeds the rows of a task, and gives the rows that leave."""

    def __init__(
        self, index: int, work: Work, level: int, transport: Transport, batches: Iterable[pa.RecordBatch]
    ) -> None:
        levels = work.opened()
        plan = Plan(levels.dataflow, fused=work.fused, only=levels.groups(level))
        member = self._member = MemberNode(plan, index, work.targets)
        node = _with_acker(member, work.targets) if index == 0 else member
        super().__init__(node, f"worker-{index}", index + 1, 0, transport)
        self._index = index
        self._levels = levels
        self._feeder = _Feeder(batches, level)
        self._leaving = LevelWorker(levels, level, work.targets, work.bounds, work.due_below)
        self._outbox = RowOutbox(levels.last, work.targets)
        self._linger_ms = 0

    def address(self, host: str) -> str:
        """The address that the other tasks connect to."""
        return f"tcp://{host}:{self.inbox.address.rpartition(':')[2]}"

    def join(self, addresses: list[str], nonces: list[int]) -> None:
        """Join the attempt that consists of these tasks."""
        self.codec.reseed(xxhash.xxh64_intdigest(json.dumps(nonces).encode()))
        boxes = {index: self.connect(each) for index, each in enumerate(addresses) if index != self._index}
        self._lines = Lines(boxes, addresses)
        self.carrier.boxes = boxes if self._index == 0 else {**boxes, ACKER: boxes[0]}

    def output(self) -> Iterator[pa.RecordBatch]:
        """Run the level to its end; gives the rows that leave it."""
        member = self._member
        try:
            while member.minimal_time != END_OF_TIME and not member.stopped:
                self._step()
                yield from self._feeder.passing()
                yield from self._outbox.ready()
        except TaskLost:
            raise
        except DriftError as error:  # every attempt would meet it: it ends the run
            self._outbox.add_row(error_row(self._levels.last, error))
            self._carry([Send(other, Done(self._index)) for other in self.carrier.boxes if other != ACKER])
        while self._stuck:
            self.step()
            self._lines.check()
        self._linger_ms = _LINGER_MS  # so that the last notice, or the error, is still sent
        self._outbox.add_row(BatchRow(self._levels.last, 0, BEGINNING, RETRACTED, member.tombstones, b""))
        yield from self._feeder.passing()
        yield from self._outbox.rest()

    def _step(self) -> None:
        """One turn of the loop; then feed more items, if there is room, and send on settled output."""
        member = self._member
        feeds = member.may_feed and not self._stuck
        self.step(at_once=feeds)
        if feeds:
            items, heartbeat = self._feeder.take(member.batch_items)
            self._carry(member.feed(_parts(items), heartbeat, time.monotonic()))
        self._leaving.leave(member.settled(), self._outbox)
        self._lines.check()

    @property
    def _stuck(self) -> bool:
        """Whether some socket accepts no more frames."""
        return any(box.waiting for box in self.carrier.boxes.values())

    def _carry(self, sends: list[Send]) -> None:
        self.carrier.carry(self.node.through(sends, time.monotonic()), self.node.unsent)

    def leave(self) -> None:
        """Close the sockets."""
        self.close(self._linger_ms)


def _with_acker(member: MemberNode, workers: int) -> WithAcker:
    every = range(workers)
    acker = AckerNode(len(every), every, every, barrier=False, pacing=Pacing(_BATCH_ITEMS_MAX))
    return WithAcker(member, 0, acker)


_Item = tuple[bytes, str, Any]


class _Feeder:
    """The items of a task's rows in the order of metas."""

    def __init__(self, batches: Iterable[pa.RecordBatch], level: int) -> None:
        self._passing: list[pa.RecordBatch] = []
        self._inbox = RowInbox(_READY_ITEMS)
        self._rows = self._own_rows(batches, level)
        self._next: BatchRow | None = None
        self._read_all = False
        self._items: list[_Item] = []
        self._at = 0

    def passing(self) -> Iterator[pa.RecordBatch]:
        """Rows of later levels, which this level passes through."""
        passing, self._passing = self._passing, []
        yield from passing

    def take(self, items_max: int) -> tuple[list[_Item], bytes]:
        """The next items, and a lower bound of the global times of later ones: END_OF_TIME if there are none."""
        while len(self._items) - self._at < items_max and not self._read_all:
            self._items, self._at = self._items[self._at :] + self._more(), 0
        items = self._items[self._at : self._at + items_max]
        self._at += len(items)
        if self._at < len(self._items):
            return items, global_time_of(self._items[self._at][0])
        return items, END_OF_TIME if self._next is None else global_time_of(self._next.first)

    def _more(self) -> list[_Item]:
        """The items below the first row that was not read yet."""
        while not self._read_all:
            row, self._next = self._next, next(self._rows, None)
            self._read_all = self._next is None
            if row is not None:
                self._inbox.add(row)
            if self._next is None or self._inbox.is_due:
                parts = self._inbox.below(END_OF_TIME if self._next is None else self._next.first)
                items = [
                    (meta, name, payload) for name, columns in parts for meta, payload in zip(columns[0], columns[1])
                ]
                if items:
                    return sorted(items, key=itemgetter(0))
        return []

    def _own_rows(self, batches: Iterable[pa.RecordBatch], level: int) -> Iterator[BatchRow]:
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
