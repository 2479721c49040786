"""The loop of a worker's process: carries messages between its node and its sockets, and decides nothing.

Invariant: an ack leaves after all messages that it reports.

Why: the results of a turn are passed to the sockets in order.
"""

from __future__ import annotations

import contextlib
import math
import os
import time
from collections.abc import Callable, Container, Iterable, Sequence
from functools import partial
from pathlib import Path
from queue import SimpleQueue
from typing import NamedTuple

import zmq

from drift.engines.observed import Timeline, own_state
from drift.engines.overflow import Overflow
from drift.engines.zeromq.calls import CallWriter
from drift.engines.zeromq.control import SignOfLife
from drift.engines.zeromq.settings import ZeromqSettings
from drift.engines.zeromq.shelf import SnapshotFiles
from drift.engines.zeromq.sockets import Inbox, Outbox, Transport, drop_all, flush_all
from drift.engines.zeromq.wire import Codec, opened
from drift.machines.checkpoints import Lookup
from drift.machines.nodes.links import LinkLogs
from drift.machines.nodes.messages import Answer, Batch, CheckpointReply, Message, Order, Rewind
from drift.machines.nodes.node import ACKER, CALLER, Node, Send
from drift.machines.nodes.rewind_log import parts_decoder
from drift.machines.nodes.worker import WorkerNode
from drift.machines.plan import Plan
from drift.machines.worker import BARRIER, timed_steps
from drift_graph.graph import Dataflow

_POLL_MS = 100
#: Between two looks at the connections to other machines.
_CHECK_INTERVAL_S = 0.2
#: A turn without items, for example of the acker, is only noted if it takes longer.
_LONG_S = 0.001


class Peers(NamedTuple):
    """Addresses of the inboxes of a run."""

    workers: list[str]
    caller: str  # with the barrier and the acker


class Assignment(NamedTuple):
    """An order of the recovery; at the beginning of a generation, with its secret and addresses."""

    order: Order
    secret: int = 0
    peers: Peers | None = None


class Carrier:
    """Sends the messages of a node: each as a frame to the outbox of its receiver.

    Args:
        here: receivers whose nodes are in this process.

    Attributes:
        boxes: outboxes by receiver.
        shelf: if the calling process is on another machine: the shelf of snapshots, which are sent to it before the
            reply that names them.
    """

    def __init__(self, codec: Codec, here: Container[int] = ()) -> None:
        self._codec = codec
        self._here = here
        self.boxes: dict[int, Outbox] = {}
        self.shelf: SnapshotFiles | None = None
        self._sent: set[bytes] = set()  # names of snapshots that the last reply had

    def carry(self, sends: Iterable[Send], unsent: Callable[[Send, Exception], list[Send]]) -> list[Message]:
        """Send each message, in order; returns those for nodes of this process.

        Args:
            unsent: gives the replacements of a message that cannot be a frame.
        """
        last: Message | None = None
        frame = b""
        here: list[Message] = []
        for send in sends:
            if send.to in self._here:
                here.append(send.message)
                continue
            if send.message is not last:  # one message for many receivers is encoded once
                try:
                    frame = self._codec.encode(send.message)
                except Exception as error:  # pickling a payload may raise anything
                    here += self.carry(unsent(send, error), unsent)
                    continue
                last = send.message
            if send.logged is not None:
                send.logged.content = frame
            if isinstance(send.message, CheckpointReply):
                self._send_snapshots(send.message, self.boxes[send.to])
            self.boxes[send.to].send(frame)
        return here

    def _send_snapshots(self, reply: CheckpointReply, box: Outbox) -> None:
        """Send those that a reply names, although the last one may have, since that may be lost; drop the others."""
        if self.shelf is None:
            return
        names = {snapshot.name for snapshot in reply.snapshots or ()}
        for name in sorted(self._sent - names):
            self.shelf.drop(name)
        for name in sorted(names):
            for part in self.shelf.parts(name):
                box.send(self._codec.encode(part))
        self._sent = names


class Loop:
    """Sockets and a clock around a node."""

    def __init__(self, node: Node, name: str, sender: int, secret: int, transport: Transport) -> None:
        self.node = node
        self.context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
        self.codec = Codec(sender, secret)
        self.transport = transport
        self.inbox = Inbox(self.context, transport, name, self.codec)
        self.carrier = Carrier(self.codec)
        self.poller = zmq.Poller()
        self.poller.register(self.inbox.socket, zmq.POLLIN)
        self.turns = 0
        self.waits = False
        self.plan: Plan | None = None  # of a worker
        self.timeline: Timeline | None = None  # if the run is watched
        self.call_file: Path | None = None  # of a worker
        self.lost = 0  # the secret of the generation in which a connection to another machine was lost
        self.watches_connections = False
        self._next_check_s = 0.0
        self._watch: CallWriter | None = None
        self._noted_tombstones = 0
        self._took_s = 0.0  # the last turn
        self._orders: SimpleQueue[Assignment] = SimpleQueue()
        self._woken, self._wakes = os.pipe()
        self.poller.register(self._woken, zmq.POLLIN)
        self._answer: Callable[[Answer], None] = lambda answer: None

    def assign(self, assignment: Assignment) -> None:
        """Pass an order to the node, from another thread."""
        self._orders.put(assignment)
        os.write(self._wakes, b"\0")

    def _obey(self) -> None:
        """Carry out the orders received so far."""
        os.read(self._woken, 1)
        order, secret, peers = self._orders.get()
        if isinstance(order, Rewind) and order.watched and self.call_file is not None:
            with contextlib.suppress(OSError):  # without room for its file, calls are not watched
                self._watch = CallWriter(self.call_file, order.refused)
        if isinstance(order, Rewind) and peers is not None and self.codec.reseed(secret):
            drop_all(self.carrier.boxes.values(), self.poller)
            self.start(peers)
        sends, answer = self.node.obey(order)
        if self.node.halted and self.inbox.socket in self.poller:
            self.poller.unregister(self.inbox.socket)
        elif not self.node.halted and self.inbox.socket not in self.poller:
            self.poller.register(self.inbox.socket, zmq.POLLIN)
        self.carrier.carry(sends, self.node.unsent)
        if answer is not None:
            self._answer(answer)

    def connect(self, address: str) -> Outbox:
        return Outbox(self.context, self.transport, address)

    def start(self, peers: Peers) -> None:
        """Connect to the receivers of this node's messages."""
        self.carrier.boxes.update(connected(peers, self.node.receivers, self.connect))

    def run(self, answer: Callable[[Answer], None]) -> None:
        """Run forever; the process is ended from outside. `answer`: called with the node's answers to orders."""
        self._answer = answer
        while True:
            self.step()

    def step(self) -> None:
        """Wait for messages, and give the node a turn."""
        node = self.node
        self.waits = True
        ready = dict(self.poller.poll(poll_ms(node.wake_s)))
        self.waits = False
        if self._woken in ready:
            self._obey()
        messages = list(self.inbox.receive(node.messages_max)) if not node.halted else []
        began_s = time.monotonic()
        if messages or began_s >= node.wake_s:
            self.turns += 1
            if self._watch is not None:
                self._watch_on()
            self.carrier.carry(node.turn(messages, began_s, self._took_s), node.unsent)
            self._took_s = time.monotonic() - began_s
            if self.timeline is not None:
                self._add_to_timeline(messages, began_s, self._took_s)
        flush_all(self.carrier.boxes.values(), self.poller)
        if self.watches_connections and began_s >= self._next_check_s:
            self._next_check_s = began_s + _CHECK_INTERVAL_S
            if any(box.check() for box in self.carrier.boxes.values()):
                self.lost = self.codec.secret

    def close(self, linger_ms: int) -> None:
        """Close the sockets; sent frames have `linger_ms` to leave."""
        for box in dict.fromkeys(self.carrier.boxes.values()):
            box.close(linger_ms)
        self.inbox.socket.close(linger=0)
        self.context.destroy()  # with sockets that could not be connected
        os.close(self._woken)
        os.close(self._wakes)

    def _watch_on(self) -> None:
        assert self._watch is not None
        if self.node.watched:
            self._watch.begin()
        else:
            self._watch.end()
            self._watch = None

    def _add_to_timeline(self, messages: Sequence[Message], began_s: float, took_s: float) -> None:
        assert self.timeline is not None
        items = sum(len(columns.metas) for each in messages if isinstance(each, Batch) for _, columns in each.parts)
        tombstones = self.node.tombstones
        if items or tombstones != self._noted_tombstones or took_s > _LONG_S:
            self.timeline.add(began_s, began_s + took_s, items, tombstones - self._noted_tombstones)
            self._noted_tombstones = tombstones

    def sign(self) -> SignOfLife:
        """The sign of life of the process; called from another thread."""
        sign = SignOfLife(
            tombstones=self.node.tombstones,
            refused_frames=self.inbox.refused,
            last_refusal=self.inbox.last_refusal,
            log_bytes=self.node.log_bytes,
            lost=self.lost,
        )
        if self.timeline is not None:
            state = own_state("")
            sign.memory_bytes, sign.cpu_s, sign.at_s = state.memory_bytes, state.cpu_s, state.at_s
            sign.bars = self.timeline.take()
            sign.counts = self.plan.totals() if self.plan is not None else {}
        return sign


def connected(peers: Peers, receivers: Iterable[int], connect: Callable[[str], Outbox]) -> dict[int, Outbox]:
    """An outbox for each receiver; receivers in the same process share it."""
    where = {**dict(enumerate(peers.workers)), **dict.fromkeys((BARRIER, ACKER, CALLER), peers.caller)}
    boxes: dict[str, Outbox] = {}
    for to in receivers:
        if where[to] not in boxes:
            boxes[where[to]] = connect(where[to])
    return {to: boxes[where[to]] for to in receivers}


def poll_ms(wake_s: float) -> int:
    """How long to wait for messages, given the time at which the node is to be woken."""
    left_ms = (wake_s - time.monotonic()) * 1000 if wake_s != math.inf else _POLL_MS
    return min(max(math.ceil(left_ms), 0), _POLL_MS)


def make_loop(
    index: int,
    address: str,
    secret: int,
    transport: Transport,
    dataflow: Dataflow,
    settings: ZeromqSettings,
    shelf: SnapshotFiles,
    base: Callable[[str], Lookup] | None = None,
) -> Loop:
    """The loop of a worker. `base`: the states that the run resumes from."""
    plan = Plan(dataflow, fused=settings.fused, counted=time.perf_counter if settings.counted else None)
    links = LinkLogs(parts_decoder(opened), lasting=(BARRIER,)) if settings.recover else None
    shelf.timed = timed_steps(plan)
    memory_max = settings.memory_of_worker
    relief = None if memory_max is None else partial(Overflow, memory_max)
    worker = WorkerNode(plan, index, settings.workers, links=links, shelf=shelf, starts_small=True, relief=relief)
    worker.base = base
    loop = Loop(worker, address, index + 1, secret, transport)
    loop.plan = plan
    if settings.listen is not None:
        loop.carrier.shelf, loop.watches_connections = shelf, True
    loop.call_file = shelf.folder / f"{address}.call"
    if settings.counted:
        loop.timeline = Timeline()
    return loop
