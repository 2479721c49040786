"""The nodes of a run and the messages in flight between them, on a simulated network and with simulated clocks.

Invariant: minimal time never decreases, and items below it are only in the barrier. Both are checked at each step that
could violate them; a violation is a DriftBug.

Why it is the worst possible network: every message in flight is a `Scheduled`, and any of them may come next, however
late. Only the acks of one source stay in order, because a heartbeat must not overtake the message before it. Messages
are pickled, so no object is shared by two nodes.

The nodes are those of every engine; this is another shell around them. The schedule decides everything that a shell
cannot: how long a frame stays in the outbox of the feed node, when a node that asked to be woken is woken, how much the
clocks of two nodes differ, how long a turn takes, and when a node is suspended for a while.
"""

from __future__ import annotations

import math
import pickle
from collections import deque

from drift.engines.simulated.nodes import Nodes
from drift.engines.simulated.schedule import Key, Pickled, Schedule, Scheduled
from drift.machines.nodes.acker import AckerNode
from drift.machines.nodes.barrier import BarrierNode
from drift.machines.nodes.feeding import FeedNode
from drift.machines.nodes.messages import (
    AckMessage,
    Batch,
    BreakOff,
    CheckpointReply,
    Committed,
    Finished,
    Message,
    MinimalTime,
    Oversized,
    Pace,
    ReleasedMessage,
    TakeCheckpoint,
)
from drift.machines.nodes.node import ACKER, CALLER, Node, Send
from drift.machines.nodes.recovery import RecoveryNode
from drift.machines.nodes.worker import WorkerNode
from drift.machines.worker import BARRIER, Worker
from drift_acker.table import AckTable
from drift_barrier.barrier import Barrier, Released
from drift_graph.errors import DriftBug, SettingsError
from drift_graph.meta import global_time_of
from drift_graph.times import SourceMachine

#: Differences between the clock of a node and those of the others, and durations of a turn.
_SKEWS_S = (0.0, 0.0004, 7.0, -3600.0)
_TURNS_S = (0.0, 0.02, 3.0)
#: How far a turn moves all clocks.
TURN_S = 0.0001
_KINDS: dict[type, str] = {
    Pace: "pace",
    BreakOff: "break off",
    TakeCheckpoint: "take checkpoint",
    CheckpointReply: "snapshot",
    Committed: "committed",
}


class Network:
    """
    Args:
        feed_node: the node that feeds, which lives as long as the run.
        schedule: decides which event comes next.
        recovery: decides on recoveries; None without deaths.

    Attributes:
        released: the batches of the released output.
        log: all events so far, in order.
        in_flight, lost: the events in flight, oldest first, and those that never come.
    """

    def __init__(
        self,
        nodes: Nodes,
        feed_node: FeedNode,
        sources: list[SourceMachine],
        schedule: Schedule,
        recovery: RecoveryNode | None,
    ) -> None:
        self.plan = nodes.plan
        self.sources = sources
        self.recovery = recovery
        self.released: list[Released] = []
        self.released_times: list[bytes] = []  # for each, minimal time as it was released
        self.log: list[Scheduled] = []
        self.error: Exception | None = None
        self.turn = 0
        self.in_flight: list[Scheduled] = []
        self.lost: list[Scheduled] = []
        self._workers = nodes.workers
        self._nodes: dict[int, Node] = {to: nodes.new(to) for to in nodes.roles}
        self._nodes[CALLER] = self._feed_node = feed_node
        self._lives = dict.fromkeys(self._nodes, 0)
        self._dead: set[int] = set()
        self._released: deque[Scheduled] = deque()  # in flight to the feed node; they come in order
        self._names = nodes.names
        self._schedule = schedule
        self._skews_s = {
            to: _SKEWS_S[self._pick("skew", self._names[to], "", 0, 0, len(_SKEWS_S))] for to in self._nodes
        }
        self._leapt_s = 0.0  # how far all clocks were moved for nodes that asked to be woken
        self._took_s = dict.fromkeys(self._nodes, 0.0)
        self._suspended_until = dict.fromkeys(self._nodes, 0)
        self._heartbeats: list[deque[Scheduled]] = [deque() for _ in sources]
        self._wakes: dict[int, Scheduled] = {}
        self._first_read = [-1] * len(sources)  # by source the first item of the last read
        self._items: dict[bytes, tuple[str, int]] = {}  # source and number of each item read, by global time
        self._times = 0  # number of times that minimal time increased
        self._met: dict[tuple[str, str, str, int], int] = {}

    @property
    def workers(self) -> list[Worker]:
        return [node.machine for node in map(self._nodes.get, range(self._workers)) if isinstance(node, WorkerNode)]

    @property
    def acker(self) -> AckTable:
        node = self._nodes[ACKER]
        assert isinstance(node, AckerNode)
        return node.table

    @property
    def barrier(self) -> Barrier:
        return self._barrier_node.machine

    @property
    def _barrier_node(self) -> BarrierNode:
        node = self._nodes[BARRIER]
        assert isinstance(node, BarrierNode)
        return node

    @property
    def released_below(self) -> bytes:
        """Minimal time as known to the barrier: everything below is released."""
        return self._barrier_node.minimal_time

    def items_of(self, event: Scheduled) -> list[tuple[str, int]]:
        """(source, index) of the input items of an event: for a batch, of all that caused it."""
        if event.message is None:
            return [event.key[2:4]] if event.key.source else []
        metas = [meta for _, columns in pickle.loads(event.message.parts) for meta in columns.metas]
        times = dict.fromkeys(map(global_time_of, metas))
        return sorted((self._items[time] for time in times if time in self._items), key=lambda item: item[1])

    # What the schedule decides.

    def _event(self, kind: str, link: str, source: str, number: int, to: int, sender: int = CALLER) -> Scheduled:
        met = kind, link, source, number
        nth = self._met.get(met, 0)
        self._met[met] = nth + 1
        key = Key(*met, nth)
        event = Scheduled(key, self.turn, self._schedule.hold(key), to)
        event.due = max(event.due, self._suspended_until[to])
        event.sender, event.life, event.generation = sender, self._lives[to], self._nodes[sender].generation
        return event

    def _send_event(self, kind: str, link: str, source: str, number: int, send: Send, sender: int) -> Scheduled:
        event = self._event(kind, link, source, number, send.to, sender)
        event.carried = send.message
        return event

    def _pick(self, kind: str, link: str, source: str, number: int, nth: int, count: int) -> int:
        """A number below `count`, from the schedule unless there is no choice."""
        if count < 2:
            return 0
        chosen = self._schedule.choose(Key(kind, link, source, number, nth), count)
        if not 0 <= chosen < count:
            raise SettingsError(f"a schedule chose {chosen!r} of {count} for {kind} {link}")
        return chosen

    def _pick_of(self, kind: str, event: Scheduled, count: int) -> int:
        _, link, source, number, nth = event.key
        return self._pick(kind, f"{event.key.kind} {link}".rstrip(), source, number, nth, count)

    # Nodes and their clocks.

    def _now_s(self, to: int) -> float:
        return self.turn * TURN_S + self._leapt_s + self._skews_s[to]

    def _turn(self, to: int, messages: list[Message]) -> None:
        """Give a node a turn, and send its messages."""
        node = self._nodes[to]
        before = self.acker.minimal_time
        sends = node.turn(messages, self._now_s(to), self._took_s[to])
        if self.acker.minimal_time != before:
            self._check_minimal_time(before)
        self._follow_wake(to)
        self._carry(to, sends)

    def _follow_wake(self, to: int) -> None:
        if self._nodes[to].wake_s == math.inf:
            self._wakes.pop(to, None)
        elif to not in self._wakes:
            self._wakes[to] = self._event("wake", self._names[to], "", 0, to)

    def _wake(self, event: Scheduled) -> None:
        """Wake a node, at the time that it asked for or later."""
        del self._wakes[event.to]
        early_s = self._nodes[event.to].wake_s - self._now_s(event.to)
        if early_s > 0:
            self._leapt_s += early_s + TURN_S
        self._turn(event.to, [])

    def _suspend(self, event: Scheduled) -> None:
        """Suspend the receiver of an event for a while, if the schedule says so; messages wait meanwhile."""
        turns = self._schedule.hold(event.key._replace(kind="still"))
        if turns:
            until = self._suspended_until[event.to] = self.turn + turns
            for other in (*self.in_flight, *self._wakes.values()):
                if other.to == event.to:
                    other.due = max(other.due, until)

    def _check_minimal_time(self, before: bytes) -> None:
        minimal_time = self.acker.minimal_time
        if minimal_time < before:
            raise DriftBug(f"minimal time decreased to {minimal_time.hex()}")
        for other in self.in_flight:
            if other.message is None or other.generation != self._nodes[ACKER].generation:
                continue
            if other.message.granule < minimal_time:
                raise DriftBug(f"a message ({other.key.link}) is in flight below minimal time {minimal_time.hex()}")
        self._times += 1

    # What is sent.

    def _carry(self, sender: int, sends: list[Send]) -> None:
        for send in sends:
            message = send.message
            if isinstance(message, Batch):
                self._send_batch(sender, send, message)
            elif isinstance(message, AckMessage):
                self._send_ack(sender, send, message)
            elif isinstance(message, MinimalTime):
                self.in_flight.append(self._send_event("news", self._names[send.to], "", self._times, send, sender))
            elif isinstance(message, ReleasedMessage | Finished):  # in order
                if self.recovery is not None:
                    self._release_later(send, sender)
                else:  # its moment makes no difference
                    self._take_in(message)
            elif isinstance(message, CheckpointReply) and sender == BARRIER:  # after its released output
                self._release_later(send, sender)
            else:
                kind = _KINDS[type(message)]
                self.in_flight.append(self._send_event(kind, self._names[send.to], "", self._times, send, sender))

    def _release_later(self, send: Send, sender: int) -> None:
        """Send a batch of the output, after the batches before it."""
        event = self._send_event("released", self._names[sender], "", self._times, send, sender)
        self._released.append(event)
        if len(self._released) == 1:
            self.in_flight.append(event)

    def _send_batch(self, sender: int, send: Send, batch: Batch, *, is_half: bool = False) -> None:
        least = global_time_of(min(columns.metas.least() for _, columns in batch.parts))
        name = self._names[sender] if sender != CALLER else self._items[batch.granule][0]
        if batch.granule < self.acker.minimal_time:
            raise DriftBug(f"{batch.parts[0][0]!r} is sent items at {batch.granule.hex()}, which is below minimal time")
        if least < batch.granule:
            raise DriftBug(f"{name} sent an item that is older than everything it was given")
        link = f"{name} > {self._names[send.to]}"
        source, number = self._items.get(least, ("", -1))
        if not is_half and sum(len(columns.metas) for _, columns in batch.parts) > 1:
            nth = self._met.get(("batch", link, source, number), 0)
            if self._pick("split", link, source, number, nth, 2):
                self._send_halves(sender, send, Oversized("the schedule says so"))
                return
        try:
            parts = pickle.dumps(batch.parts)
        except Exception as error:  # pickling a payload may raise anything
            self._send_halves(sender, send, error)
            return
        event = self._event("batch", link, source, number, send.to, sender)
        event.message = Pickled(parts, batch.granule, batch.checksum, batch.level)
        if send.logged is not None:
            send.logged.content = pickle.dumps(batch)
        if sender == CALLER and (turns := self._schedule.hold(event.key._replace(kind="outbox"))):
            event.in_outbox_until = self.turn + turns
            event.due = max(event.due, event.in_outbox_until)
        (self.lost if self._schedule.is_lost(event.key) else self.in_flight).append(event)

    def _send_halves(self, sender: int, send: Send, error: Exception) -> None:
        for half in self._nodes[sender].unsent(send, error):
            if isinstance(half.message, Batch):
                self._send_batch(sender, half, half.message, is_half=True)
            else:
                self._carry(sender, [half])

    def _send_ack(self, sender: int, send: Send, ack: AckMessage) -> None:
        if not ack.heartbeats or ack.heartbeats[0][0] >= len(self.sources):
            source, number = self._items.get(ack.cells[0][0], ("", -1)) if ack.cells else ("", -1)
            self.in_flight.append(self._send_event("ack", self._names[sender], source, number, send, sender))
            return
        rank = ack.heartbeats[0][0]
        name = self.sources[rank].name
        event = self._send_event("heartbeat", name, name, self._first_read[rank], send, sender)
        event.rank = rank
        waiting = self._heartbeats[rank]
        waiting.append(event)
        if len(waiting) == 1:
            self.in_flight.append(event)

    # What comes.

    def _is_taken(self, event: Scheduled) -> bool:
        """Whether a message reaches the life of the process that it was sent to, in the same generation."""
        if event.life != self._lives[event.to] or event.to in self._dead:
            return False
        return event.generation == self._nodes[event.to].generation

    def _arrives(self, event: Scheduled) -> bool:
        """Like `_is_taken`; and let the next message come, if messages of this kind come in order."""
        if event.key.kind == "released":
            assert self._released[0] is event
            self._released.popleft()
            self.in_flight += list(self._released)[:1]
        elif event.rank >= 0 and self._heartbeats[event.rank] and self._heartbeats[event.rank][0] is event:
            waiting = self._heartbeats[event.rank]
            waiting.popleft()
            self.in_flight += list(waiting)[:1]
        return self._is_taken(event)

    def _take_in(self, message: Message) -> None:
        """Pass a message to the feed node."""
        self._turn(CALLER, [message])
        for batch in self._feed_node.take_released():
            self.released.append(batch.released)
            self.released_times.append(batch.minimal_time)
            self.error = batch.released.error

    def _receive(self, event: Scheduled) -> None:
        """A batch arrives, perhaps with others that wait for the same receiver."""
        _, link, source, number, nth = event.key
        to = event.to
        waiting = [other for other in self.in_flight if other.message is not None and other.to == to]
        waiting = waiting[: self._nodes[to].messages_max - 1]
        messages: list[Message] = []
        for each in [event, *waiting[: self._pick("together", link, source, number, nth, len(waiting) + 1)]]:
            if each is not event:
                self.in_flight.remove(each)
                each.arrival_turn = self.turn
                self.log.append(each)
                if not self._is_taken(each):
                    continue
            assert each.message is not None
            parts, granule, checksum, level = each.message
            messages.append(Batch(granule, checksum, pickle.loads(parts), level))
        self._turn(to, messages)
        if to != BARRIER:
            self._took_s[to] = _TURNS_S[self._pick("took", link, source, number, nth, len(_TURNS_S))]
        self._suspend(event)

    def _fold(self, event: Scheduled) -> None:
        assert event.carried is not None
        self._turn(ACKER, [event.carried])
        self._suspend(event)
