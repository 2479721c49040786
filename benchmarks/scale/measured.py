"""What a message, an ack and an item cost each node of a run over zeromq, and a row a run on Spark.

Invariant: the nodes are the shipped ones, in one thread, and each message between two processes is a frame that one
encodes and the other decodes. What is measured is the CPU time of the node that sends, takes or handles it, so other
work on the machine changes it little.
"""

from __future__ import annotations

import tempfile
import time
from collections import defaultdict, deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import zmq

import drift
from benchmarks.meters import tree_cpu_seconds
from drift.engines.zeromq.sockets import QUEUE_FRAMES_MAX, Inbox, Outbox, Transport
from drift.engines.zeromq.wire import Codec
from drift.machines.nodes.acker import AckerNode
from drift.machines.nodes.barrier import BarrierNode
from drift.machines.nodes.feeding import FeedNode
from drift.machines.nodes.intake import Intake
from drift.machines.nodes.messages import AckMessage, Batch, Message
from drift.machines.nodes.node import ACKER, CALLER, Node, Send
from drift.machines.nodes.worker import WorkerNode
from drift.machines.plan import Plan
from drift.machines.worker import BARRIER
from drift_graph.times import SourceMachine

_SECRET = 7
#: Nodes of the calling process: what they send each other is no frame.
_CALLING = (CALLER, ACKER, BARRIER)
#: Seconds that the acker's clock goes on between two rounds of turns: what it waits between two notices.
_ROUND_S = 0.001


@dataclass(frozen=True)
class Measured:
    """CPU seconds and bytes.

    Attributes:
        feed_message, feed_item: of the calling process, for each message to a worker and each item fed.
        worker_message, worker_item: of a worker, for each message in or out, and each item in each step.
        ack: of the acker, from the frame on.
        barrier_message, barrier_item: of the barrier, from the frame on, with order and digest.
        frame, frame_byte: of the two processes that a frame goes between, in ZeroMQ over ipc.
        item_bytes, ack_bytes: in frames.
        caller_item: of the whole calling process in a run with two workers, as a check of the parts.
        row, level_row: on Spark, of a row, and more for each level of groupings.
        shuffle_bytes: on Spark, written of a row for a shuffle.
    """

    feed_message: float
    feed_item: float
    worker_message: float
    worker_item: float
    ack: float
    barrier_message: float
    barrier_item: float
    frame: float
    frame_byte: float
    item_bytes: float
    ack_bytes: float
    caller_item: float
    row: float
    level_row: float
    shuffle_bytes: float


def sums(levels: int) -> drift.Graph:
    """Running sums by key, one behind the other, each with keys of its own: every item changes its worker at each."""
    graph = drift.Graph("sums")
    stream = graph.source("pairs", time=drift.EventTime(lambda pair: pair[1], lateness=0))
    for level in range(levels):
        stream = stream.scan(key=_Key(level), initial=0, step=_add, name=f"sum{level}")
    stream.sink("sums")
    return graph


class _Key(NamedTuple):
    level: int

    def __call__(self, pair: tuple[int, int]) -> int:
        return pair[1] * 2654435761 % (1009 + 2 * self.level)


def _add(total: int, pair: tuple[int, int]) -> tuple[int, tuple[int, int]]:
    return total + pair[0] % 1000, (total + pair[0] % 1000, pair[1])


class _Driven:
    """The nodes of one run."""

    def __init__(self, workers: int, levels: int, batch_items: int) -> None:
        plan = Plan(sums(levels).build())
        dataflow = plan.dataflow
        machines = [SourceMachine.of(source, rank) for rank, source in enumerate(dataflow.sources)]
        self.intake = Intake(machines, batch_items=batch_items, in_flight_max=100_000_000)
        self.feed = FeedNode(plan, workers, self.intake)
        self.nodes: dict[int, Node] = {worker: WorkerNode(plan, worker, workers) for worker in range(workers)}
        self.nodes |= {CALLER: self.feed, ACKER: AckerNode(1, [*range(workers), CALLER], [CALLER])}
        self.nodes[BARRIER] = BarrierNode(dataflow, "xxh3_128")
        self._codecs = {role: Codec(max(role + 1, 0), _SECRET) for role in self.nodes}
        self._inboxes: dict[int, deque[Message | bytes]] = {role: deque() for role in self.nodes}
        self.seconds: dict[int, float] = defaultdict(float)
        self.sent: dict[tuple[int, type], int] = defaultdict(int)
        self.sent_bytes: dict[type, int] = defaultdict(int)
        self.got: dict[tuple[int, type], int] = defaultdict(int)

    def run(self, items: int) -> None:
        """Feed so many items, to the end."""
        given, now_s = 0, 0.0
        while self.feed.finished is None:
            now_s += _ROUND_S
            while self.feed.may_read(now_s) and given <= items:
                many = min(self.intake.policy.items, items - given)
                payloads = [(number * 7919, number) for number in range(given, given + many)] or None
                given += many or 1
                self._charged(CALLER, partial(self._fed, payloads, now_s))
            for role, node in self.nodes.items():
                inbox = self._inboxes[role]
                while inbox or node.wake_s <= now_s:
                    taken = [inbox.popleft() for _ in range(min(len(inbox), node.messages_max))]
                    self._charged(role, partial(self._turn, role, taken, now_s))
                    if not taken:
                        break

    def _fed(self, payloads: list[Any] | None, now_s: float) -> list[Send]:
        given = self.intake.give(0, payloads, 0, now_s)
        return self.feed.feed([] if given is None else [given])

    def _turn(self, role: int, taken: Iterable[Message | bytes], now_s: float) -> list[Send]:
        codec = self._codecs[role]
        messages = [codec.decode(each) if isinstance(each, bytes) else each for each in taken]
        for message in messages:
            self.got[role, type(message)] += 1
        return self.nodes[role].turn(messages, now_s)

    def _charged(self, role: int, made: Callable[[], list[Send]]) -> None:
        """The CPU time of what a node does, and of the frames that it makes."""
        began = time.thread_time()
        for send in made():
            carried: Message | bytes = send.message
            if not (role in _CALLING and send.to in _CALLING):
                carried = self._codecs[role].encode(send.message)
                self.sent_bytes[type(send.message)] += len(carried)
            self.sent[role, type(send.message)] += 1
            self._inboxes[send.to].append(carried)
        self.seconds[role] += time.thread_time() - began


def nodes_measured(items: int) -> dict[str, float]:
    """What messages and items cost the nodes, from runs with few and many workers, so with large and small messages.

    Of one level only: behind a second one an item may come before an older one, and is then corrected.
    """
    rows: dict[str, list[tuple[float, float, float]]] = defaultdict(list)
    driven = [_Driven(workers, 1, batch_items) for workers, batch_items in ((2, 4096), (16, 256), (64, 16), (256, 1))]
    for each in driven:
        each.run(items)
        workers = [role for role in each.nodes if role >= 0]
        messages = sum(each.got[worker, Batch] + each.sent[worker, Batch] for worker in workers)
        rows["worker"].append((messages, items, sum(each.seconds[worker] for worker in workers)))
        rows["feed"].append((each.sent[CALLER, Batch], items, each.seconds[CALLER]))
        rows["barrier"].append((each.got[BARRIER, Batch], items, each.seconds[BARRIER]))
        sent = sum(each.sent[worker, AckMessage] for worker in workers)
    found = {"ack": sum(each.seconds[ACKER] for each in driven) / sum(each.got[ACKER, AckMessage] for each in driven)}
    found["item_bytes"] = driven[0].sent_bytes[Batch] / (2 * items)
    found["ack_bytes"] = driven[-1].sent_bytes[AckMessage] / sent
    for name, lines in rows.items():
        found[f"{name}_message"], found[f"{name}_item"] = _fitted(lines)
    return found


def _fitted(lines: list[tuple[float, float, float]]) -> tuple[float, float]:
    """(first, second) for lines of counts and seconds, so that the relative errors of all lines are least squares."""
    table = np.array(lines)
    first, second = np.linalg.lstsq(table[:, :2] / table[:, 2:], np.ones(len(table)), rcond=None)[0]
    return float(first), float(second)


def frames_measured(frames: int) -> dict[str, float]:
    """What ZeroMQ takes for a frame and for a byte of it, in both processes."""
    few, many = (_carried(frames, size) for size in (200, 200_000))
    return {"frame": few - 200 * (many - few) / 199_800, "frame_byte": (many - few) / 199_800}


def _carried(frames: int, size: int) -> float:
    """CPU seconds of this process, with ZeroMQ's threads, for each frame from an outbox to an inbox."""
    with tempfile.TemporaryDirectory() as folder, zmq.Context() as context:
        codec = Codec(1, _SECRET)
        transport = Transport(folder)
        inbox = Inbox(context, transport, "in", codec)
        outbox = Outbox(context, transport, inbox.address)
        body, received = b"x" * size, 0
        began = time.process_time()
        for sent in range(1, frames + 1):
            outbox.send(body)
            while received < sent and (sent % QUEUE_FRAMES_MAX == 0 or sent == frames):
                outbox.flush()
                received += inbox.socket.poll(1) and len(inbox.socket.recv_multipart())
        took = time.process_time() - began
        outbox.close(0)
        inbox.socket.close(linger=0)
    return took / frames


def caller_measured(items: int) -> dict[str, float]:
    """What an item costs the calling process of a real run, from runs of `items` and a quarter of that."""
    _, few, all_s = (_caller_seconds(many) for many in (items // 4, items // 4, items))  # the first imports
    return {"caller_item": (all_s - few) / (items - items // 4)}


def _caller_seconds(items: int) -> float:
    pairs = [(number * 7919, number) for number in range(items)]
    before = time.process_time()
    drift.run(sums(1), {"pairs": pairs}, engine="zeromq", workers=2, recover=False).finish()
    return time.process_time() - before


def spark_measured(spark: Any, rows: int) -> dict[str, float]:
    """What rows of a DataFrame cost on Spark: from runs over `rows` and a quarter of that, of one and three levels."""
    cost: dict[tuple[int, int], tuple[float, int]] = {}
    with tempfile.TemporaryDirectory() as folder:
        for many in (rows // 4, rows):
            path = str(Path(folder, str(many)))
            spark.range(many).selectExpr("id * 7919 % 1000 as value", "id as number").write.parquet(path)
            _spark_run(spark, path, many, 1)  # what is loaded and compiled once
            cost |= {(many, levels): _spark_run(spark, path, many, levels) for levels in (1, 3)}
    more = rows - rows // 4
    one, three = ((cost[rows, levels][0] - cost[rows // 4, levels][0]) / more for levels in (1, 3))
    level_row, shuffled = (three - one) / 2, (cost[rows, 3][1] - cost[rows, 1][1]) / (2 * rows)
    return {"row": one - level_row, "level_row": level_row, "shuffle_bytes": shuffled}


def _spark_run(spark: Any, path: str, rows: int, levels: int) -> tuple[float, int]:
    """CPU seconds of this process and all below it, and the bytes that Spark wrote for shuffles."""
    began, before = tree_cpu_seconds(), _shuffled(spark)
    frame = drift.spark.source(spark.read.parquet(path), payload="tuple", time="number")
    report = drift.run(sums(levels), {"pairs": frame}, engine="spark", spark=spark).finish()
    assert report.items_out == rows
    return tree_cpu_seconds() - began, _shuffled(spark) - before


def _shuffled(spark: Any) -> int:
    executors = spark.sparkContext._jsc.sc().statusStore().executorList(False)
    return sum(executors.apply(at).totalShuffleWrite() for at in range(executors.size()))
