"""A node: one process of a run as a state machine that gets messages and the time.

Invariant: what a node does depends on its turns alone: on the messages of each, in order, and on the clock reading. It
reads no clock, and knows neither sockets nor processes.

Why it matters: a shell around a node is a loop that carries messages and decides nothing, so the simulator, which
drives the same nodes under a drawn schedule, simulates the shipped code. Clocks decide when something is done, never
its result: so the clocks of two processes may differ arbitrarily.

A shell takes a node's turn when messages have come, and at the latest after the node's `wake_s`, even without messages;
an earlier turn does no harm.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from drift.machines.levels import Levels
from drift.machines.nodes.links import LoggedBatch
from drift.machines.nodes.messages import (
    AckMessage,
    Answer,
    Batch,
    Halt,
    Halted,
    Message,
    Order,
    Rewind,
    Rewound,
)
from drift.machines.plan import feeding_step
from drift.machines.worker import Part
from drift_acker.ledger import Ledger, ack_of
from drift_acker.table import Ack, Entry
from drift_barrier.barrier import FAILURES
from drift_graph.canonical import NoCanonicalForm, canonical
from drift_graph.errors import DriftBug
from drift_graph.failures import formless, unsendable
from drift_graph.graph import Dataflow
from drift_graph.item import Columns
from drift_graph.meta import global_time_of, varint
from drift_graph.operators import Sink

#: Receivers besides a worker's index and BARRIER: the acker, and the calling process.
ACKER, CALLER = -2, -3
#: The numbers by which ledgers and frames distinguish senders; worker w has w + 1.
CALLER_NUMBER = 0


class Send(NamedTuple):
    """A message, and who it is for: a worker's index, BARRIER, ACKER or CALLER."""

    to: int
    message: Message
    logged: LoggedBatch | None = None  # its entry in the link log, if there is one


class Node:
    """What all nodes are.

    When another process dies, a node rewinds to a checkpoint: it halts, rewinds and resumes by orders, never by itself.

    Attributes:
        messages_max: the most messages that it takes in one turn: enough for late items to meet what they correct, few
            enough to stay responsive.
        wake_s: the moment on its clock at which it needs a turn even without messages; math.inf for none.
        receivers: the roles it sends to.
        tombstones: how many a worker has made so far.
        held_by_message: whether the acker waits for a message, and not for a source.
        generation: of the messages that it takes and sends; increased by each rewind of the run.
        log_bytes: of link logs, as of the last notice.
        watched: whether calls of users' functions are logged.
        halted: whether it takes no turns; messages that it has sent are still carried.
    """

    messages_max = 16
    receivers: Sequence[int] = ()
    wake_s = math.inf
    tombstones = 0
    held_by_message = False
    log_bytes = 0
    generation = 0
    watched = False
    halted = False
    _ordered = 0  # generation of the last order

    def part(self, role: int) -> Node:
        """The node of a role, if this node combines several."""
        return self

    def through(self, sends: list[Send], now_s: float) -> list[Send]:
        """The messages that leave the process, of those that one of its combined nodes sends."""
        return sends

    def stand_by(self) -> None:
        """Take no turns until an order."""
        self.halted = True

    def obey(self, order: Order) -> tuple[list[Send], Answer | None]:
        """Obey an order of the calling process; returns messages to send, and the answer. Older orders are ignored."""
        if order.generation < self._ordered:
            return [], None
        self._ordered = order.generation
        if isinstance(order, Halt):
            self.halted, self.wake_s = True, math.inf
            return [], self.halt(order)
        if isinstance(order, Rewind):
            self.generation, self.halted, self.wake_s = order.generation, True, math.inf
            self.watched = order.watched
            self.rewind(order)
            return [], Rewound(order.generation)
        self.halted = False
        return self.go(), None

    def halt(self, order: Halt) -> Halted:
        """Halt; returns the minimal time that it knows."""
        raise NotImplementedError

    def rewind(self, order: Rewind) -> None:
        """Rewind to a checkpoint; a replaced process restores its state as of the committed checkpoint."""
        raise NotImplementedError

    def go(self) -> list[Send]:
        """Resume, since all have rewound; returns what to send before anything else."""
        return []

    def turn(self, messages: Sequence[Message], now_s: float, took_s: float = 0.0) -> list[Send]:
        """Handle messages.

        Args:
            messages: at most `messages_max`, in the order in which they came.
            took_s: how long the last turn took, including the sending of its messages.

        Returns:
            The messages to send, in order.
        """
        raise NotImplementedError

    def unsent(self, send: Send, error: Exception) -> list[Send]:
        """The messages to send in place of one that cannot be carried, for example since it is too long."""
        raise error


def granule_of(parts: Iterable[Part]) -> bytes:
    """The least global time in a source's batch, at which everything that it causes is tracked."""
    return global_time_of(min(columns.metas.least() for _, columns in parts))


def tracked(batch: Batch) -> Entry:
    return batch.granule, batch.checksum, batch.level


def ack_message(ack: Ack, items: int = 0, tombstones: int = 0) -> AckMessage:
    return AckMessage(list(ack.cells), list(ack.heartbeats), items, tombstones, list(ack.waiting))


def by_level(levels: Levels, parts: Sequence[Part]) -> list[tuple[int, list[Part]]]:
    """The parts for targets of each level, the least first."""
    found: dict[int, list[Part]] = {}
    for part in parts:
        found.setdefault(levels.level_of(part[0]), []).append(part)
    return [(level, found[level]) for level in sorted(found)]


def unsent_batch(send: Send, error: Exception, ledger: Ledger, dataflow: Dataflow) -> list[Send]:
    """Send the halves of a batch that cannot be carried; for a single item, a failure of the step that made it.

    The sender takes the batch back: one more ack says that it was consumed here, and the others sent for it. A failure
    ends the run at the item's position in the order, and all items before it are released.
    """
    batch = send.message
    if not isinstance(batch, Batch):
        raise DriftBug(f"{type(batch).__name__} cannot be sent: {error}") from error
    halves = _halves(batch.parts) or [[_unsendable(*batch.parts[0], error, dataflow)]]
    batches = [Batch(batch.granule, ledger.checksum(), parts, batch.level) for parts in halves]
    ack = ack_of([tracked(batch)], map(tracked, batches))
    return [*(Send(send.to, each) for each in batches), Send(ACKER, ack_message(ack))]


def split(parts: list[Part], items: int) -> tuple[list[Part], list[Part]]:
    """The first items of parts, and the others."""
    first: list[Part] = []
    for at, (name, columns) in enumerate(parts):
        count = len(columns.metas)
        if count > items:
            if items:
                first.append((name, columns.slice(0, items)))
            return first, [(name, columns.slice(items, count)), *parts[at + 1 :]]
        first.append((name, columns))
        items -= count
    return parts, []


def _unsendable(name: str, columns: Columns, error: Exception, dataflow: Dataflow) -> Part:
    """The failure that replaces the one item of a part, of the step that made it."""
    metas, payloads, diffs = columns
    if any(sink.name == name for sink in dataflow.sinks):
        try:
            canonical(payloads[0])
        except NoCanonicalForm as none:  # as on engines that send nothing
            return FAILURES, Columns(metas, [formless(feeding_step(dataflow, name), none, payloads[0])], diffs)
    path = [each.operator for each in dataflow.passed(metas[0]) if not isinstance(each.operator, Sink)]
    failure = unsendable(path[-1], error, payloads[0])
    if name in dataflow.groups:  # the item may be on its way to others as well
        metas = metas[:1].with_suffix(varint(dataflow.ranks[name]))
    return FAILURES, Columns(metas, [failure], diffs)


def _halves(parts: list[Part]) -> list[list[Part]] | None:
    if len(parts) > 1:
        return [parts[: len(parts) // 2], parts[len(parts) // 2 :]]
    name, columns = parts[0]
    count = len(columns.metas)
    if count < 2:
        return None
    return [[(name, columns.slice(0, count // 2))], [(name, columns.slice(count // 2, count))]]
