"""The node of the calling process: feeds the batches of the sources, and takes released output.

Invariant: the number of fed batches in flight is bounded; if the input breaks off, all items below that point are
released.

Why: a batch counts as in flight until a notice that included it says that nothing as old is in flight. If the input
breaks off, heartbeats hold minimal time: once a notice has reached the least heartbeat sent, nothing is in flight below
it; the barrier gets this time, releases the rest and answers with its digest.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Sequence

from drift.machines.maps import Ports
from drift.machines.nodes.checkpointing import PRICE, PRICE_LIVE, PRICE_WITH_TIME
from drift.machines.nodes.gathering import Gathering
from drift.machines.nodes.intake import Fed, Intake
from drift.machines.nodes.links import least_time
from drift.machines.nodes.messages import (
    Batch,
    BreakOff,
    CheckpointReply,
    Committed,
    Finished,
    Halt,
    Halted,
    Message,
    MinimalTime,
    Pace,
    ReleasedMessage,
    Restart,
    Rewind,
)
from drift.machines.nodes.node import (
    ACKER,
    CALLER_NUMBER,
    Node,
    Send,
    ack_message,
    by_level,
    granule_of,
    tracked,
    unsent_batch,
)
from drift.machines.nodes.pacing import needs_pace
from drift.machines.nodes.rewind_log import RewindLog
from drift.machines.plan import Plan
from drift.machines.worker import BARRIER, Part, Router, Snapshot
from drift_acker.ledger import Ledger, ack_of
from drift_graph.item import Columns, sorted_by_meta
from drift_graph.meta import BEGINNING, END_OF_TIME
from drift_graph.payloads import are_rows

#: Batches that may be in flight, for each worker and one more.
_BATCHES_AHEAD_MAX = 2
#: The least number in flight (and one for each worker) while live sources give less than a batch: items that come
#: meanwhile travel together, and arrive sooner than if they queued behind each other.
_LIVE_AHEAD_MIN = 2


class FeedNode(Node):
    """
    Args:
        plan: what the workers run.
        workers: how many there are.
        intake: the run's sources; this node sets how much is read from them at once.
        batches_ahead_max: batches that may be in flight; two for each worker and two more, if None.
        turn_items: items that one worker maps before the next has its turn; a batch, if None.
        starts_small: whether few items are fed at first to workers that map them, as how long they take is not known.
        rewind_log: stores what recovery needs; None: nothing is stored.

    Attributes:
        minimal_time: from the last notice.
        held_by: rank of the source that holds minimal time, or -1.
        fed_again: items that were fed again after rewinds.
        finished: the last message of the run.
        error: with which the run ends: a failure that was released, an error of the input, or that no source may be
            read any more.
    """

    messages_max = 64

    def __init__(
        self,
        plan: Plan,
        workers: int,
        intake: Intake,
        *,
        batches_ahead_max: int | None = None,
        turn_items: int | None = None,
        starts_small: bool = False,
        rewind_log: RewindLog | None = None,
    ) -> None:
        self.receivers = [*range(workers), BARRIER, ACKER]
        self.rewind_log = rewind_log
        self.minimal_time = BEGINNING
        self.held_by = -1
        self._released: list[ReleasedMessage] = []
        self.finished: Finished | None = None
        self.error: Exception | None = None
        self._plan = plan
        self._workers = workers
        self._intake = intake
        self._ledger = Ledger(CALLER_NUMBER)
        self._router = Router(plan, workers)
        self._gathering = Gathering(intake)
        self._paced = needs_pace(plan, workers)
        self._turn_items = turn_items
        self._batches_ahead_max = batches_ahead_max or _BATCHES_AHEAD_MAX * (workers + 1)
        self._live_ahead_max = batches_ahead_max or max(_LIVE_AHEAD_MIN, workers)
        if self._paced:
            intake.policy.pace(1)  # until the acker says otherwise
        elif not any(plan.programs[machine.name].has_maps for machine in intake.machines):
            intake.policy.multiply(workers)  # since they share each batch
        elif starts_small and workers > 1:
            intake.policy.begin(1)
        self._heartbeats = [BEGINNING] * len(intake.machines)  # the last sent, by source
        self._sent: list[tuple[int, bytes]] = []  # number and granule of batches that may not be processed yet
        self._batches = self._items = 0
        self._mapper, self._mapped = 0, 0  # the worker whose turn it is to map, and the items it has got in its turn
        self._timed = 0, 0.0  # items that workers had mapped, and how long that took, at the last notice
        self._learned = 0, 0, 0  # batches, items and tombstones when the gathering last learned of them
        self._breaks_off = False
        self._replaced = Rewind(0, BEGINNING, BEGINNING, [])
        self._again: deque[Fed] = deque()  # to be fed again
        self.fed_again = 0
        self._restored_at = BEGINNING  # nothing is fed before a notice of this minimal time has come

    def may_read(self, now_s: float = math.inf, *, stuck: bool = False) -> bool:
        """Whether to read the sources now; `stuck`: messages that were sent before have not left yet."""
        if self.error is not None or self.halted or self._again or now_s < self._intake.policy.next_s:
            return False
        return not self._intake.finished and self._intake.error is None and self._room(stuck)

    def feed(self, fed: list[Fed], *, stuck: bool = False) -> list[Send]:
        """Add what the sources gave, if anything; returns the messages for items that are fed now."""
        self._gathering.add(fed)
        sends: list[Send] = []
        while self._again and self._room(stuck):
            sends += self._feed(self._again.popleft())
        if not self._again and self._room(stuck) and self._gathering.is_due(self.minimal_time, more=bool(fed)):
            for each in self._gathering.take():
                sends += self._feed(each)
        return sends + self._end()

    def turn(self, messages: Sequence[Message], now_s: float, took_s: float = 0.0) -> list[Send]:
        sends: list[Send] = []
        for message in messages:
            if isinstance(message, MinimalTime):
                self._notice(message)
            elif isinstance(message, ReleasedMessage):
                self.minimal_time = max(self.minimal_time, message.minimal_time)
                self._released.append(message)
                self.error = message.released.error or self.error
                if self.rewind_log is not None:
                    self.rewind_log.note_released(message)
            elif isinstance(message, Pace):
                self._intake.policy.pace(message.items)
            elif isinstance(message, CheckpointReply):
                sends += self._note_reply(message, now_s)
            elif isinstance(message, Finished):
                self.finished = message
        return sends + self._take_checkpoint(now_s) + self._end()

    def _take_checkpoint(self, now_s: float) -> list[Send]:
        if self.rewind_log is None or not self.restored:
            return []
        policy = self._intake.policy
        price = PRICE_WITH_TIME if policy.keeps_up else PRICE_LIVE if policy.is_live else PRICE
        checkpoint = self.rewind_log.take(now_s, self.minimal_time, price)
        return [Send(ACKER, checkpoint)] if checkpoint is not None else []

    def _note_reply(self, reply: CheckpointReply, now_s: float) -> list[Send]:
        if self.rewind_log is None:  # the reply was in flight when logging stopped
            return []
        checkpoint = self.rewind_log.note_reply(reply, now_s)
        return (
            [Send(worker, Committed(checkpoint)) for worker in range(self._workers)] if checkpoint is not None else []
        )

    @property
    def awaits_room(self) -> bool:
        """Whether feeding waits for room for a checkpoint: turns without messages try to take one."""
        return self.rewind_log is not None and self.rewind_log.is_full(self.minimal_time)

    def stop_logging(self) -> list[Send]:
        """Stop storing data for recovery, in all nodes: no process will be replaced any more."""
        self.rewind_log = None
        return [Send(worker, Committed(END_OF_TIME, restarts=False)) for worker in range(self._workers)]

    def begin_at(self, checkpoint: bytes, output: Restart, snapshot: Snapshot) -> None:
        """Resume from a checkpoint that another run committed, before anything is fed."""
        assert self.rewind_log is not None
        self.minimal_time = checkpoint
        self.rewind_log.begin_at(checkpoint, output, snapshot)

    def take_released(self) -> list[ReleasedMessage]:
        """The batches of output received since the last call."""
        if self.rewind_log is not None and self.rewind_log.holds:
            return []
        released, self._released = self._released, []
        return released

    def unsent(self, send: Send, error: Exception) -> list[Send]:
        return unsent_batch(send, error, self._ledger, self._plan.dataflow)

    def halt(self, order: Halt) -> Halted:
        """Halt; items that were released before may still come."""
        return Halted(order.generation, self.minimal_time)

    @property
    def has_released(self) -> bool:
        """Whether batches of output wait for `take_released`."""
        return bool(self._released)

    @property
    def restored(self) -> bool:
        """Whether all replaced processes have reached the checkpoint that all have rewound to."""
        return not self.halted and self._restored_at == BEGINNING

    @property
    def position(self) -> int:
        """The position of the next item to come from the barrier."""
        return self.rewind_log.position if self.rewind_log is not None else 0

    @property
    def since(self) -> bytes:
        """The committed checkpoint, from which replaced processes start."""
        return self.rewind_log.since if self.rewind_log is not None else BEGINNING

    def snapshots_of(self, worker: int) -> list[bytes]:
        """Names of the snapshots that a replaced worker starts with."""
        return self.rewind_log.snapshots_of(worker) if self.rewind_log is not None else []

    def restart(self) -> Restart:
        """The state that a replaced barrier resumes from."""
        assert self.rewind_log is not None
        return self.rewind_log.restart()

    def described(self, checkpoint: bytes) -> str:
        """The position of a checkpoint in the input, in words."""
        return self.rewind_log.described(checkpoint, self._again) if self.rewind_log is not None else ""

    def rewind(self, order: Rewind) -> None:
        """Go back: items at or above the checkpoint are fed again, with the same metas and heartbeats."""
        assert self.rewind_log is not None
        self.minimal_time = order.checkpoint
        self._again = self.rewind_log.rewind(order, self._again)
        self.fed_again += sum(len(fed.arrived.metas) for fed in self._again)
        self._replaced = order
        self._restored_at = order.checkpoint
        self._ledger = Ledger(CALLER_NUMBER, order.generation)
        self._heartbeats = [order.checkpoint] * len(self._heartbeats)
        self._sent, self._batches, self._items, self._learned, self._timed = [], 0, 0, (0, 0, 0), (0, 0.0)
        if self._paced:
            self._intake.policy.pace(1)
        self._breaks_off, self.error = False, None

    def go(self) -> list[Send]:
        """Send replaced processes the items that they had below the checkpoint; nothing else comes below it."""
        assert self.rewind_log is not None
        order, batches = self._replaced, []
        sends: list[Send] = []
        for receiver in order.replaced:
            for of_all in self.rewind_log.links.between(receiver, order.since, order.checkpoint):
                for level, parts in by_level(self._plan.levels, of_all):
                    batches.append(Batch(least_time(parts), self._ledger.checksum(), parts, level))
                    sends.append(Send(receiver, batches[-1]))
        ack = ack_of((), map(tracked, batches), [(0, order.checkpoint)])
        sends.append(Send(ACKER, ack_message(ack)))
        others = range(1, len(self._heartbeats))
        return sends + [Send(ACKER, ack_message(ack_of((), (), [(rank, order.checkpoint)]))) for rank in others]

    def _feed(self, fed: Fed) -> list[Send]:
        """Messages with the items for the workers, then one ack with them and the source's heartbeat."""
        name, rank, arrived = fed
        batches: list[Batch] = []
        sends: list[Send] = []
        if arrived.metas:
            columns = Columns(arrived.metas, arrived.payloads, None)
            if are_rows(columns.payloads):  # where they are sorted before they are split, nobody looks for the least
                columns = sorted_by_meta(columns)
            granule = granule_of([(name, columns)])
            for receiver, of_all in self._route(name, columns).items():
                for level, parts in by_level(self._plan.levels, of_all):
                    batches.append(Batch(granule, self._ledger.checksum(), parts, level))
                    logged = self.rewind_log.links.log(receiver, parts) if self.rewind_log is not None else None
                    sends.append(Send(receiver, batches[-1], logged))
            if batches:
                self._batches += 1
                self._items += len(arrived.metas)
                self._sent.append((self._batches, granule))
        self._heartbeats[rank] = arrived.heartbeat
        if self.rewind_log is not None:
            self.rewind_log.note_fed(fed, self._intake.machines[rank].above_all_items())
        ack = ack_of((), map(tracked, batches), [(rank, arrived.heartbeat)])
        return [*sends, Send(ACKER, ack_message(ack, len(arrived.metas) if batches else 0))]

    def _route(self, source: str, columns: Columns) -> dict[int, list[Part]]:
        """Split a batch: workers run maps in turn; items directly for groupings go to the owners of their keys."""
        program = self._plan.programs[source]
        if program.has_maps:
            if self._mapped >= (self._turn_items or self._intake.policy.items):  # live ones do not overtake each other
                self._mapper, self._mapped = (self._mapper + 1) % self._workers, 0
            self._mapped += len(columns.metas)
            return {self._mapper: [(source, columns)]}
        ports: Ports = {}
        program.run(columns, ports)
        return self._router.route(ports)

    def _room(self, stuck: bool) -> bool:
        """Whether so few batches are in flight that the workers may get more."""
        if self.halted or self._restored_at != BEGINNING or self.awaits_room:
            return False
        ahead = sum(granule >= self.minimal_time for _, granule in self._sent)  # others were released before the notice
        return not stuck and ahead < (self._live_ahead_max if self._intake.policy.keeps_up else self._batches_ahead_max)

    def _notice(self, notice: MinimalTime) -> None:
        self.minimal_time = max(self.minimal_time, notice.time)
        self.held_by = notice.held_by
        if notice.time >= self._restored_at:
            self._restored_at = BEGINNING
        if self.rewind_log is not None:
            self.rewind_log.settle(self.minimal_time)
        processed, in_flight = notice.batches, notice.in_flight
        self._sent = [(number, granule) for number, granule in self._sent if number > processed or granule >= in_flight]
        if notice.mapped_items > self._timed[0] and not self._paced:
            items, took_s = notice.mapped_items - self._timed[0], notice.mapped_s - self._timed[1]
            self._intake.policy.learn(items, 0, took_s=took_s)
            self._timed = notice.mapped_items, notice.mapped_s
        batches, items, tombstones = self._learned
        through = self._sent[0][0] - 1 if self._sent else self._batches
        if through > batches and not self._paced:  # all corrections of what was fed until the last time are known
            self._gathering.learn(self._items - items, notice.tombstones - tombstones)
            self._learned = self._batches, self._items, notice.tombstones

    def _end(self) -> list[Send]:
        """Break off, if the input has ended with an error and all items below it are processed."""
        if self.halted or self._again or self._restored_at != BEGINNING:
            return []
        settled = not self._gathering and self.minimal_time == min(self._heartbeats, default=END_OF_TIME)
        if self._breaks_off or self.error is not None or not settled:
            return []
        self.error = self._intake.error or self._intake.out_of_credit(self.minimal_time)
        if self.error is None:
            return []
        self._breaks_off = True
        return [Send(BARRIER, BreakOff(self.minimal_time))]
