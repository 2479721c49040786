"""Deaths of processes in a simulated run, and its recovery from a checkpoint.

Invariant: a dead process receives and sends nothing more; its successor takes no message before it knows the checkpoint
to begin at.

Why: a message is addressed to one life of a process, and is only taken in that life. The schedule decides which of the
messages that it had sent still arrive; released output arrives in order, so that a tail of it is lost.
"""

from __future__ import annotations

import pickle
from collections import deque
from collections.abc import Callable, Sequence
from functools import partial

from drift.engines.simulated.network import Network
from drift.engines.simulated.nodes import Nodes
from drift.engines.simulated.schedule import Schedule, Scheduled
from drift.machines.nodes.feeding import FeedNode
from drift.machines.nodes.messages import Answer, Message, Order, Rewind
from drift.machines.nodes.node import CALLER, Send
from drift.machines.nodes.recovery import DEATHS_MAX, Command, Effect, RecoveryNode, Replace
from drift.machines.nodes.rewind_log import RewindLog
from drift.machines.nodes.snapshots import merged
from drift.machines.worker import BARRIER
from drift_graph.errors import ProcessError
from drift_graph.times import SourceMachine

#: The most deaths in one run.
_DEATHS_MAX = 6


class MortalNetwork(Network):
    """Without `rewind_log` no process dies.

    Args:
        rewind_log: the checkpoints and logs for a recovery.

    Attributes:
        died: names of the processes that died, in order.
        generation: number of recoveries begun.
        recovery, rewind_log: the node that decides on recoveries, and the checkpoints and logs for them; None without
            deaths.
    """

    def __init__(
        self,
        nodes: Nodes,
        feed_node: FeedNode,
        sources: list[SourceMachine],
        schedule: Schedule,
        rewind_log: RewindLog | None,
    ) -> None:
        recovery = RecoveryNode(feed_node, nodes.workers) if rewind_log is not None else None
        super().__init__(nodes, feed_node, sources, schedule, recovery)
        self.rewind_log = rewind_log
        self.died: list[str] = []
        self._new_nodes = nodes

    @property
    def generation(self) -> int:
        return self.recovery.generation if self.recovery is not None else 0

    @property
    def _recovering(self) -> RecoveryNode:
        assert self.recovery is not None
        return self.recovery

    # Deaths.

    def _may_die(self, event: Scheduled) -> None:
        """Let the receiver of an event die after it, if the schedule says so."""
        to, (kind, link, source, number, nth) = event.to, event.key
        name = self._names[to]
        if to == CALLER or to in self._dead or self._feed_node.finished is not None:
            return
        if len(self.died) >= _DEATHS_MAX or self.died.count(name) >= DEATHS_MAX - 1:
            return
        if self._pick("death", f"{name}, {kind} {link}".rstrip(), source, number, nth, 2):
            self.die(to)

    def die(self, to: int) -> None:
        """Let a process die: messages to it are lost, and of its own those that the schedule chooses."""
        name = self._names[to]
        self._dead.add(to)
        self.died.append(name)
        self._lives[to] += 1
        self._wakes.pop(to, None)
        left: list[Scheduled] = []
        for other in self.in_flight:
            dropped = other.to == to or (other.sender == to and other.action is None and other.to != CALLER)
            if not dropped or (other.to != to and not self._pick_of("fate", other, 2)):
                left.append(other)
        self.in_flight = left
        if to == BARRIER and self._released:
            head = self._released[0]
            lost = self._pick_of("fate", head, len(self._released) + 1)
            for _ in range(lost):
                lost_event = self._released.pop()
                if lost_event is head:
                    self.in_flight.remove(head)
        self._deliver("noticed", name, CALLER, lambda: self._do(self._recovering.died([to])))

    # Recovery.

    def _run_action(self, action: Callable[[], None]) -> None:
        try:
            action()
        except ProcessError as error:  # the recovery gives up
            self.error = error

    def _deliver(self, kind: str, link: str, to: int, action: Callable[[], None]) -> None:
        """Schedule an event that comes by a pipe, or that a shell notices."""
        event = self._event(kind, link, "", self.generation, to)
        event.action = action
        self.in_flight.append(event)

    def _do(self, effects: Sequence[Effect]) -> None:
        """Carry out decisions of the recovery."""
        for effect in effects:
            if isinstance(effect, Send):
                self._carry(CALLER, [effect])
            elif isinstance(effect, Replace):
                self._deliver("start", self._names[effect.role], effect.role, partial(self._start, effect.role))
            elif isinstance(effect, Command) and effect.role not in self._dead:
                if isinstance(effect.order, Rewind):
                    self._heartbeats = [deque() for _ in self.sources]
                order = pickle.loads(pickle.dumps(effect.order))
                self._deliver("order", self._names[effect.role], effect.role, partial(self._obey, effect.role, order))

    def _start(self, to: int) -> None:
        """The successor of a dead process is ready."""
        node = self._nodes[to] = self._new_nodes.new(to)
        node.generation, node.halted = -1, True  # it takes no message before it knows the checkpoint to begin at
        self._dead.discard(to)
        self._do(self._recovering.started(to))

    def _obey(self, to: int, order: Order) -> None:
        if to in self._dead:
            return
        node = self._nodes[to]
        sends, answer = node.obey(order)
        self._follow_wake(to)
        self._carry(to, sends)
        if answer is not None:
            self._deliver("answer", self._names[to], CALLER, partial(self._answered, to, answer))

    def _answered(self, to: int, answer: Answer) -> None:
        self._do(self._recovering.answered(to, answer))

    def _take_in(self, message: Message) -> None:
        super()._take_in(message)
        if self.recovery is not None:
            self._do(self.recovery.received())
            self._merge()

    def _merge(self) -> None:
        """Merge the snapshots of checkpoints that are due."""
        assert self.rewind_log is not None
        while (due := next(self.rewind_log.due_to_merge(), None)) is not None:
            shelf = self._new_nodes.shelf
            one = merged(shelf.snapshot(each.name) for each in due.snapshots)
            self.rewind_log.merged(due, *shelf.put(one)[:2])

    def _may_arrive(self, event: Scheduled) -> bool:
        """Whether an event may come now: it comes by a pipe, or its receiver is not halted."""
        return event.action is not None or event.to == CALLER or not self._nodes[event.to].halted
