"""The node of a worker in a gang, which has no feed and no barrier: it feeds itself, and holds back its own output.

Invariant: nothing that a tombstone will cancel is ever output, and each item is output once.

Why: an item and its tombstone come from one key, so from one worker, and meet here; nothing leaves before minimal time
has passed it. A member sends the acker a heartbeat, the global time of what it feeds next, so to the acker it is a
source; the first member runs the acker in its process (`together.py`).

A member is ahead of minimal time by several batches and is less patient than other workers: what it feeds next is
there to be worked on while the others end what they feed now, which comes back to it in fewer and fewer items.
Where that has to be corrected often, the pace makes batches small.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence

from drift.machines.nodes.messages import Done, Message, MinimalTime, Pace
from drift.machines.nodes.node import ACKER, Send, granule_of
from drift.machines.nodes.worker import WorkerNode
from drift.machines.plan import Plan
from drift.machines.worker import BARRIER, Part
from drift_acker.ledger import ack_of
from drift_barrier.barrier import Barrier
from drift_graph.errors import DriftBug
from drift_graph.item import Columns
from drift_graph.meta import BEGINNING, END_OF_TIME
from drift_graph.metas import greatest_meta

#: Batches of one member that minimal time has not passed.
_BATCHES_AHEAD_MAX = 4


class MemberNode(WorkerNode):
    """See the module.

    Attributes:
        batch_items: how many items to feed at once.
        minimal_time: as far as it has heard.
        stopped: another has failed, and all end here.
    """

    patience_s, patience_batches = 0.002, 1

    def __init__(self, plan: Plan, index: int, workers: int) -> None:
        super().__init__(plan, index, workers, feeds_itself=True)
        self.receivers = [*(other for other in range(workers) if other != index), ACKER]
        self.batch_items = 1
        self.minimal_time = BEGINNING
        self.stopped = False
        self._buffers: dict[str, Barrier] = {}
        self._settled_to = BEGINNING
        self._fed: deque[bytes] = deque()  # the last metas of batches that minimal time may not have passed
        self._fed_all = False

    def turn(self, messages: Sequence[Message], now_s: float, took_s: float = 0.0) -> list[Send]:
        for message in messages:
            if isinstance(message, MinimalTime):
                self.minimal_time = max(self.minimal_time, message.time)
            elif isinstance(message, Pace):
                self.batch_items = message.items
            elif isinstance(message, Done):
                self.stopped = True
        return super().turn(messages, now_s, took_s)

    @property
    def _waiting_above(self) -> bytes:
        """The end of its oldest batch in flight: meanwhile the others feed their keys of the same stretch."""
        return max(self._in_flight, self._fed[0] if self._fed else BEGINNING)

    @property
    def may_feed(self) -> bool:
        """Whether so few of its batches are in flight that the next may be fed."""
        while self._fed and self._fed[0] < self.minimal_time:
            self._fed.popleft()
        return not self._fed_all and len(self._fed) < _BATCHES_AHEAD_MAX

    def feed(self, parts: list[Part], heartbeat: bytes, now_s: float) -> list[Send]:
        """Feed its next items, and in one ack the heartbeat after them: END_OF_TIME if no more items follow."""
        self._fed_all = heartbeat == END_OF_TIME
        last = max((greatest_meta(columns.metas) for _, columns in parts), default=BEGINNING)
        if BEGINNING < last < heartbeat:
            self._fed.append(last)
        sends, sent = self._sent(granule_of(parts), self.machine.pass_maps(parts), now_s) if parts else ([], [])
        items = sum(len(columns.metas) for _, columns in parts) if sent else 0
        return [*sends, self._ack(ack_of((), sent, [(self._index, heartbeat)]), items)]

    def _sent(
        self, granule: bytes, parts_by_receiver: dict[int, list[Part]], now_s: float
    ) -> tuple[list[Send], list[tuple[bytes, int]]]:
        for name, columns in parts_by_receiver.pop(BARRIER, ()):
            self._buffers.setdefault(name, Barrier()).add(name, columns)
        return super()._sent(granule, parts_by_receiver, now_s)

    def settled(self) -> list[Part]:
        """The items that minimal time has passed since the last call, by target."""
        if self.minimal_time == self._settled_to:
            return []
        self._settled_to = self.minimal_time
        leaving: list[Part] = []
        for name, buffer in self._buffers.items():
            settled = buffer.settled(self.minimal_time)
            if settled is not None:
                leaving.append((name, Columns(settled[0], settled[1], None)))
            if self.minimal_time == END_OF_TIME and len(buffer):
                raise DriftBug(f"{len(buffer)} items for {name!r} are left in a buffer at the end of time")
        return leaving
