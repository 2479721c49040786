"""The node of the output barrier: acknowledges batches, and releases items below minimal time.

Invariant: after its last output it sends the digest, once: at the end of time, at a failure or when the input breaks
off.
"""

from __future__ import annotations

from collections.abc import Sequence

from drift.machines.nodes.links import ABOVE_ALL, cut_columns
from drift.machines.nodes.messages import (
    Batch,
    BreakOff,
    CheckpointReply,
    Finished,
    Halt,
    Halted,
    Message,
    MinimalTime,
    ReleasedMessage,
    Restart,
    Rewind,
)
from drift.machines.nodes.node import ACKER, CALLER, Node, Send, ack_message, tracked
from drift.machines.plan import feeding_step
from drift.machines.worker import BARRIER
from drift_acker.ledger import ack_of
from drift_acker.table import Entry
from drift_barrier.barrier import Barrier, Released
from drift_barrier.digest import Algorithm, Digest, ListedParts, NewParts
from drift_graph.errors import DriftBug
from drift_graph.graph import Dataflow
from drift_graph.item import Columns
from drift_graph.meta import BEGINNING, END_OF_TIME
from drift_graph.metas import Metas
from drift_graph.segments import has_borders


class BarrierNode(Node):
    """
    Args:
        new_parts: see `Digest`.
    """

    receivers = (ACKER, CALLER)

    def __init__(self, dataflow: Dataflow, digest: Algorithm, new_parts: NewParts = ListedParts) -> None:
        self._dataflow = dataflow
        self._new_parts = new_parts
        self._digest: Algorithm = digest
        self.machine = self._machine()
        self.minimal_time = BEGINNING
        self._ended = self._has_failed = False
        self._passes_over = BEGINNING  # until minimal time is here, items that were released may come again

    def _machine(self) -> Barrier:
        steps, passes = lambda sink: feeding_step(self._dataflow, sink), has_borders(self._dataflow)
        return Barrier(self._digest, steps, passes_failures=passes, new_parts=self._new_parts)

    def halt(self, order: Halt) -> Halted:
        return Halted(order.generation, self.minimal_time, self.machine.position, self._ended)

    def rewind(self, order: Rewind) -> None:
        """Keep unreleased items below the checkpoint; a restarted barrier gets them again from their senders."""
        if BARRIER not in order.replaced:
            self.machine.rewind(order.checkpoint)
            self.minimal_time = order.checkpoint
            return
        if order.restart is None:
            raise DriftBug("a replaced barrier got no state to resume from")
        position, last = order.restart.position, order.restart.last
        self.machine = self._machine()
        self.machine.resume(position, last, digest_of(order.restart, self._digest, self._new_parts))
        self.minimal_time, self._passes_over = order.since, order.checkpoint
        self._ended = self._has_failed = False

    def go(self) -> list[Send]:
        """Release the items that minimal time had passed."""
        return [] if self._ended else self._release()

    def turn(self, messages: Sequence[Message], now_s: float, took_s: float = 0.0) -> list[Send]:
        consumed: list[Entry] = []
        sends: list[Send] = []
        before, breaks_off = self.minimal_time, False
        for message in messages:
            if isinstance(message, Batch):
                consumed.append(tracked(message))
                for name, columns in message.parts:
                    if self.minimal_time < self._passes_over:
                        columns = _above(columns, self.machine.last)
                    self.machine.add(name, columns)
            elif isinstance(message, MinimalTime):
                self.minimal_time = max(self.minimal_time, message.time)
                if (
                    message.checkpoint
                ):  # after all items below the checkpoint, and before those that a later notice releases
                    sends += self._release() if self.minimal_time != before and not self._ended else []
                    if not self._has_failed:  # a run would resume after the failure from a checkpoint above it
                        sends.append(Send(CALLER, CheckpointReply(message.checkpoint, BARRIER, message.time, [])))
                    before = self.minimal_time
            elif isinstance(message, BreakOff):
                self.minimal_time, breaks_off = max(self.minimal_time, message.time), True
        if consumed:
            sends.append(Send(ACKER, ack_message(ack_of(consumed, ()))))
        if self.minimal_time != before and not self._ended:
            sends += self._release()
        if breaks_off and not self._ended:
            sends.append(self._finish())
        return sends

    def _release(self) -> list[Send]:
        sends: list[Send] = []
        full = len(self.machine.digest.blocks)
        released = self.machine.release(self.minimal_time)
        if released is None and has_borders(self._dataflow):  # the next segment needs to know that no more items come
            released, self.machine.encoded = Released(self.machine.position, Metas(), [], ""), ()
        if released is not None:
            blocks = self.machine.digest.blocks[full:]
            message = ReleasedMessage(released, self.minimal_time, self.machine.encoded, full, blocks)
            sends.append(Send(CALLER, message))
        failed = self._has_failed = released is not None and released.error is not None
        if failed or self.minimal_time == END_OF_TIME:
            if len(self.machine) and not failed:
                raise DriftBug(f"{len(self.machine)} items are left in the barrier at the end of time")
            sends.append(self._finish())
        return sends

    def _finish(self) -> Send:
        self._ended = True
        digest = self.machine.digest
        return Send(CALLER, Finished(digest.hexdigest(), digest.blocks))


def digest_of(restart: Restart, algorithm: Algorithm, new_parts: NewParts = ListedParts) -> Digest:
    """The digest of the output released before the restart."""
    digest = Digest(algorithm, new_parts=new_parts)
    digest.resume(restart.blocks, restart.opened)
    return digest


def _above(columns: Columns, last: bytes) -> Columns:
    """The items above the last released one."""
    return cut_columns(columns, last + b"\0", ABOVE_ALL)
