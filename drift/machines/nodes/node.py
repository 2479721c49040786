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

from drift.machines.nodes.links import Kept
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
from drift.machines.worker import Part
from drift_acker.ledger import Ledger, ack_of
from drift_acker.table import Ack
from drift_barrier.barrier import FAILURES
from drift_graph.errors import DriftBug
from drift_graph.failures import unsendable
from drift_graph.graph import Dataflow
from drift_graph.item import Columns
from drift_graph.meta import global_time_of, varint
from drift_graph.metas import least_meta
from drift_graph.operators import Sink

#: Who a message is for, besides a worker's index and BARRIER: the acker, and the calling process.
ACKER, CALLER = -2, -3
#: The numbers by which ledgers and frames tell senders apart; worker w has w + 1.
CALLER_NUMBER, BARRIER_NUMBER = 0, 0xFFFE


class Send(NamedTuple):
    """A message, and who it is for: a worker's index, BARRIER, ACKER or CALLER."""

    to: int
    message: Message
    kept: Kept | None = None  # where the node keeps it for one that may have to be replaced


class Node:
    """What all nodes are.

    When another process dies, a node goes back to a cut: it halts, rewinds and goes on by orders, never by itself.

    Attributes:
        messages_max: most messages that it takes in one turn: enough for late items to meet what they correct, few
            enough to stay responsive.
        wake_s: the moment on its clock at which it wishes for a turn though nothing comes; math.inf for none.
        receivers: to whom it sends.
        tombstones: made so far, by a worker.
        held_by_message: whether the acker waits for a message, and not for a source.
        generation: of the messages that it takes and sends; one more each time that all go back.
        log_bytes: of link logs, as of the last notice.
        watched: calls of users' functions are to be written down.
        halted: it takes no turns; who carries its messages goes on carrying those that it has sent.
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
        """The node of a role, where several are one."""
        return self

    def through(self, sends: list[Send], now_s: float) -> list[Send]:
        """What leaves of what one of the nodes has to send, where several are one."""
        return sends

    def stand_by(self) -> None:
        """Take no turns before an order says so."""
        self.halted = True

    def obey(self, order: Order) -> tuple[list[Send], Answer | None]:
        """What to send, and to answer, when the calling process says how to go on; older orders are passed over."""
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
        """How far it has come."""
        raise NotImplementedError

    def rewind(self, order: Rewind) -> None:
        """Go back to a cut, or begin anew where it is one of the replaced."""
        raise NotImplementedError

    def go(self) -> list[Send]:
        """All have gone back: what to send before anything else."""
        return []

    def turn(self, messages: Sequence[Message], now_s: float, took_s: float = 0.0) -> list[Send]:
        """Handle what has come.

        Args:
            messages: at most `messages_max`, in the order in which they came.
            now_s: what the clock says.
            took_s: how long the last turn took, with the sending of what it returned.

        Returns:
            What to send, in order.
        """
        raise NotImplementedError

    def unsent(self, send: Send, error: Exception) -> list[Send]:
        """What to send in place of a message that cannot be carried, for example since it is too long."""
        raise error


def granule_of(parts: Iterable[Part]) -> bytes:
    """The least global time in a source's batch: what all that it causes is tracked at."""
    return global_time_of(min(least_meta(columns.metas) for _, columns in parts))


def tracked(batch: Batch) -> tuple[bytes, int]:
    """What acks say of a batch."""
    return batch.granule, batch.checksum


def ack_message(ack: Ack, items: int = 0, tombstones: int = 0) -> AckMessage:
    return AckMessage(list(ack.cells), list(ack.heartbeats), items, tombstones, list(ack.waiting))


def unsent_batch(send: Send, error: Exception, ledger: Ledger, dataflow: Dataflow) -> list[Send]:
    """In place of a batch that cannot be carried its halves; in place of an item, a failure of the step that made it.

    The sender takes the batch back: one more ack says that it was consumed here, and the others sent for it. A failure
    ends the run where the item stands in the order, and what is before it is released.
    """
    batch = send.message
    if not isinstance(batch, Batch):
        raise DriftBug(f"{type(batch).__name__} cannot be sent: {error}") from error
    pieces = _halves(batch.parts) or [[_unsendable(*batch.parts[0], error, dataflow)]]
    batches = [Batch(batch.granule, ledger.checksum(), parts) for parts in pieces]
    ack = ack_of([tracked(batch)], map(tracked, batches))
    return [*(Send(send.to, each) for each in batches), Send(ACKER, ack_message(ack))]


def _unsendable(name: str, columns: Columns, error: Exception, dataflow: Dataflow) -> Part:
    """In place of the one item of a part: a failure of the step that made it."""
    metas, payloads, diffs = columns
    way = [each.operator for each in dataflow.passed(metas[0]) if not isinstance(each.operator, Sink)]
    failure = unsendable(way[-1], error, payloads[0])
    if name in dataflow.groups:  # the item may be on its way to others as well
        metas = [metas[0] + varint(dataflow.ranks[name])]
    return FAILURES, Columns(metas, [failure], diffs)


def _halves(parts: list[Part]) -> list[list[Part]] | None:
    if len(parts) > 1:
        return [parts[: len(parts) // 2], parts[len(parts) // 2 :]]
    name, columns = parts[0]
    count = len(columns.metas)
    if count < 2:
        return None
    return [[(name, columns.cut(0, count // 2))], [(name, columns.cut(count // 2, count))]]
