"""The node of a worker: optimistic, with patience.

Invariant: older items are processed before newer ones that they could correct, if both have arrived, and no batch waits
for ever. A turn's batches are acknowledged in one ack, with all messages that they caused.

Why patience: large batches for a step that corrects itself wait while older items are in flight, as long as there is
other work, and a while longer: otherwise a neighbour that is only a little behind would have them corrected. Nothing is
released later for it, since minimal time waits as well. Batches from the feed come in order, and do not wait; nor do
items of steps that wait for their level, which hold them back themselves.

Memory: a batch of which too much would be made is taken in pieces; the rest is a message of this worker to itself, with
an own granule. A worker that has made much that may still be in flight takes further batches, of input or for
groupings, only if nothing older is in flight, so it goes on at the pace at which others take what it makes; and the one
with the oldest batch always goes on. What it made of timers, or of outputs that waited, is in no batch of others, so a
notice may not know of it yet: it counts until minimal time has passed it, and the one with the oldest timer goes on.
"""

from __future__ import annotations

import math
import sys
from collections import deque
from collections.abc import Callable, Sequence
from heapq import heappop, heappush
from itertools import accumulate
from operator import gt
from typing import Protocol

from drift.machines.checkpoints import Lookup
from drift.machines.nodes.batching import BatchPolicy
from drift.machines.nodes.links import ABOVE_ALL, LinkLogs, LoggedBatch, cut_parts, least_time
from drift.machines.nodes.messages import Batch, CheckpointReply, Committed, Halt, Halted, Message, MinimalTime, Rewind
from drift.machines.nodes.node import (
    ACKER,
    CALLER,
    Node,
    Send,
    ack_message,
    by_level,
    granule_of,
    split,
    tracked,
    unsent_batch,
)
from drift.machines.nodes.snapshots import NoRoom, Shelf, SnapshotName, merged, restored_from
from drift.machines.plan import Plan
from drift.machines.worker import BARRIER, Part, Snapshot, Worker
from drift_acker.ledger import Hold, Ledger, ack_of
from drift_acker.table import Ack, Entry
from drift_graph.functions import safe_text
from drift_graph.meta import BEGINNING, END_OF_TIME
from drift_graph.sizes import BATCH_BYTES, made_bytes

#: Fewer items than this never wait: to correct them costs less.
_PATIENT_ITEMS_MIN = 100
#: Its own share of a batch, if it is small, does not wait where so many items caused fewer tombstones than this share.
_JUDGED_ITEMS, _LITTLE = 1000, 0.1
#: What a worker should make in a turn.
_MADE_MAX = 2 * BATCH_BYTES
#: What a worker may have made while it may be in flight.
_AHEAD_BYTES_MAX = 4 * BATCH_BYTES


class Relief(Protocol):
    """Drops states of a worker from memory, and finds them again.

    Attributes:
        lookup: by name of the grouping, the lookup for keys that are not in memory.
    """

    lookup: Callable[[str], Lookup]

    def relieve(self, worker: Worker) -> None:
        """Drop states if they take too much memory."""


class WorkerNode(Node):
    """
    Args:
        index: which of the workers this is.
        workers: how many there are.
        links: logs what is sent to neighbours, which may have to be replaced; None: nothing is logged.
        shelf: stores snapshots of checkpoints, if there are `links`.
        starts_small: whether it takes few items at first, as it does not know what is made of them.
        relief: makes what drops states, from the lookup for keys that were never dropped; None: all are in memory.

    Attributes:
        levels: of the plan.
        base: the lookup for keys that no snapshot has, by name of the grouping.
        patience_s, patience_batches: how long a worker that has nothing else to do holds items back because older ones
            are in flight: so long, or as long as so many batches take, since neighbours are as busy.
    """

    patience_s, patience_batches = 0.05, 5

    def __init__(
        self,
        plan: Plan,
        index: int,
        workers: int,
        *,
        links: LinkLogs | None = None,
        shelf: Shelf | None = None,
        starts_small: bool = False,
        relief: Callable[[Callable[[str], Lookup] | None], Relief] | None = None,
    ) -> None:
        self._starts_small = starts_small
        self._plan, self._index, self._workers = plan, index, workers
        self._make_relief = relief
        self._relief: Relief | None = None
        self.machine = self._hired(None, rewinds=links is not None)
        self.links = links
        self.base: Callable[[str], Lookup] | None = None
        self._shelf = shelf
        self._snapshots: list[SnapshotName] | None = []  # not committed yet; None if a state cannot be stored
        self._unstored_snapshot: Snapshot | None = None  # there was no room for it
        self._no_room: NoRoom | None = None  # the last error
        self._unstorable = ""  # why a state cannot be stored
        self._later_sends: dict[int, list[Part]] = {}  # to be sent again
        self._order: Rewind | None = None  # until minimal time has reached its checkpoint
        self._watched_to = BEGINNING
        self.receivers = [*(other for other in range(workers) if other != index), BARRIER, ACKER]
        if links is not None:  # snapshots of checkpoints go to the calling process
            self.receivers.append(CALLER)
        self.levels = plan.levels
        self._start_ledger(0)
        self._groupings = {name for component in plan.components for name in component}
        # The calling process sends the items of these sources by key, in order; all other groupings get items from
        # neighbours as well.
        sources = [source.name for source in plan.dataflow.sources]
        dealt = {name for name in sources if not plan.programs[name].has_maps}
        self._patient = {to for name, program in plan.programs.items() if name not in dealt for to in program.targets}
        self._sources = len(sources)
        self._reported_tombstones = 0
        self._begin(BEGINNING)

    def _hired(self, below: Callable[[str], Lookup] | None, *, rewinds: bool) -> Worker:
        """A worker without states; `below` finds those of keys that it asks for first."""
        machine = Worker(self._plan, self._index, self._workers, rewinds=rewinds, tracks=rewinds, knows_flight=True)
        if self._make_relief is not None:
            self._relief = self._make_relief(below)
            machine.page(self._relief.lookup)
        return machine

    def _start_ledger(self, generation: int) -> None:
        self._ledger = Ledger(self._index + 1, generation)
        self._holds = [Hold(self._ledger, level) for level in range(self.levels.count)]

    def _begin(self, reached: bytes) -> None:
        """Start with nothing in flight, at this minimal time."""
        self._unmapped: deque[Batch] = deque()
        self._at_once: list[Batch] = []
        self._policy = BatchPolicy(sys.maxsize, _MADE_MAX)
        if self._starts_small:
            self._policy.begin()
        self._made: list[tuple[bytes, int]] = []  # a heap: granule and bytes of what was made, and may be in flight
        self._fired: list[tuple[bytes, int]] = []  # the same of what no batch caused: until minimal time has passed it
        self._made_bytes = 0
        self._mapped_items, self._mapped_s = 0, 0.0  # not reported yet
        self._mapped = 0  # items, in the last turn
        self._waiting: list[tuple[bytes, int, Batch]] = []  # a heap by granule
        self._arrivals = 0
        self._waiting_since_s = 0.0
        self._judged, self._corrects_little = (0, 0), False  # until so many items, with so many tombstones; since then
        self._worked = False  # in the last turn
        self._batch_s = 0.0  # how long the last such turn took
        self._in_flight, self._noticed = reached, 0
        self._minimal_time = reached

    def halt(self, order: Halt) -> Halted:
        return Halted(order.generation, self._minimal_time)

    def rewind(self, order: Rewind) -> None:
        """Forget what is at or above the checkpoint; a replaced worker gets what is below again from the senders."""
        assert self.links is not None
        self._start_ledger(order.generation)
        self._order, self._watched_to = order, order.checkpoint
        if self._index in order.replaced:
            self._reported_tombstones, self._snapshots, self._later_sends, self._unstored_snapshot = 0, [], {}, None
            self.links.reset(order.generation)
            self._begin(order.since)
            self._restore(order.since, order.snapshots)
        else:
            self._later_sends = self.machine.rewind(order.checkpoint)
            self.links.rewind(order.generation, order.checkpoint)
            self._begin(order.checkpoint)

    def _restore(self, since: bytes, snapshots: Sequence[bytes]) -> None:
        """Restore the state of the replaced process as of the committed checkpoint: part at once, the rest by
        lookup.
        """
        if not snapshots and self.base is None:
            self.machine = self._hired(None, rewinds=True)
            return
        assert self._shelf is not None
        snapshot, lookup = restored_from(self._shelf.get(snapshots), since, self.base)
        self.machine = self._hired(lookup, rewinds=True)
        self.machine.restore(snapshot, lookup)
        self._later_sends = self.machine.restore_later(snapshot.later)

    def go(self) -> list[Send]:
        """Send replaced processes the items below the checkpoint that this worker had sent, and its waiting ones above
        it.
        """
        order = self._order
        assert order is not None and self.links is not None
        sends: list[Send] = []
        sent: list[Entry] = []
        if self._index not in order.replaced:
            for receiver in order.replaced:
                for of_all in self.links.between(receiver, order.since, order.checkpoint):
                    for level, parts in by_level(self.levels, of_all):
                        batch = Batch(least_time(parts), self._ledger.checksum(), parts, level)
                        sent.append(tracked(batch))
                        sends.append(Send(receiver, batch))
            self._order = None
        for receiver, parts in self._later_sends.items():
            again, its_sent = self._sent([least_time(parts)] * self.levels.count, {receiver: parts}, 0.0)
            sends += again
            sent += its_sent
        self._later_sends = {}
        waiting = self._moved(())
        guard = self._sources + self._index, END_OF_TIME
        return [*sends, self._ack(ack_of((), sent, [guard], waiting))]

    @property
    def tombstones(self) -> int:  # type: ignore[override]
        return self.machine.tombstones

    @property
    def held(self) -> int:
        """How many items and tombstones are stored or wait."""
        waiting = [*self._at_once, *self._unmapped, *(batch for _, _, batch in self._waiting)]
        return self.machine.held + sum(_items_of(batch.parts) for batch in waiting)

    def turn(self, messages: Sequence[Message], now_s: float, took_s: float = 0.0) -> list[Send]:
        if self._worked:
            self._batch_s, self._worked = took_s, False
        if self._mapped:
            self._mapped_items, self._mapped_s = self._mapped_items + self._mapped, self._mapped_s + took_s
            self._mapped = 0
        sends: list[Send] = []
        at_once, self._at_once = self._at_once, []
        for message in messages:
            if isinstance(message, Batch):
                if self._may_wait(message.parts):
                    self._wait(message, now_s)
                elif message.parts[0][0] in self._groupings:
                    at_once.append(message)
                else:
                    self._unmapped.append(message)
            elif isinstance(message, MinimalTime):
                sends += self._notice(message)
            elif isinstance(message, Committed):
                self._commit(message)
        waiting_above = self._waiting_above
        while self._waiting and self._waiting[0][0] <= waiting_above:
            at_once.append(heappop(self._waiting)[2])
        while self._workers == 1 and self._may_map:
            at_once.append(self._next_input())
        at_once, self._at_once = self._parted(at_once)
        if at_once or self._may_fire:
            sends += self._work(at_once, now_s)
            self._waiting_since_s = now_s
        elif self._may_map:
            sends += self._map(self._next_input(), now_s)
        elif self._waiting and self._has_room and now_s >= self._patient_until_s():
            sends += self._work([heappop(self._waiting)[2]], now_s)
        if self._worked and self._relief is not None:
            self._relief.relieve(self.machine)
        is_oldest = bool(self._waiting) and self._waiting[0][0] <= self._waiting_above
        has_more = self._parted(self._at_once)[0] or self._may_fire or self._may_map or is_oldest
        is_patient = self._waiting and self._has_room  # without room it waits for a notice
        self.wake_s = now_s if has_more else self._patient_until_s() if is_patient else math.inf
        return sends

    def unsent(self, send: Send, error: Exception) -> list[Send]:
        return unsent_batch(send, error, self._ledger, self._plan.dataflow)

    @property
    def _waiting_above(self) -> bytes:
        """Batches with this granule or a lower one do not wait for messages in flight."""
        return self._in_flight

    def _notice(self, notice: MinimalTime) -> list[Send]:
        """Handle a notice: drop what is settled; later items become due."""
        if notice.number >= self._noticed:  # an older one may come later
            self._in_flight, self._noticed = notice.in_flight, notice.number
            items, tombstones = notice.mapped_items - self._judged[0], notice.tombstones - self._judged[1]
            if items >= _JUDGED_ITEMS:
                self._corrects_little = tombstones < _LITTLE * items
                self._judged = notice.mapped_items, notice.tombstones
        passed = (self._made, self._in_flight), (self._fired, max(self._minimal_time, notice.time))
        for made, bound in passed:
            while made and made[0][0] < bound:
                self._made_bytes -= heappop(made)[1]
        is_checkpoint = notice.checkpoint and notice.time >= self._minimal_time
        frontiers = notice.frontiers or [notice.time] * self.levels.count
        moves = notice.time > self._minimal_time or any(map(gt, frontiers, self.machine.frontiers))
        if moves or self.levels.cyclic:
            self._minimal_time = max(self._minimal_time, notice.time)
            self.machine.settle(self._minimal_time, frontiers=frontiers, in_flight=notice.in_flight)
        if self._order is not None and self._minimal_time >= self._order.checkpoint:
            self._order = None
        if self.watched and self._minimal_time > self._watched_to:
            self.watched = False
        if self.links is not None:
            self.log_bytes = self.links.logged_bytes
        if not notice.checkpoint:
            return []
        if is_checkpoint:
            self._take_snapshot(notice.time)
        reply = CheckpointReply(notice.checkpoint, self._index, notice.time, None, self._unstorable)
        if is_checkpoint and self._unstored_snapshot is None:
            reply.snapshots = self._snapshots
        elif is_checkpoint and self._no_room is not None:
            reply.no_room, reply.tried_s = str(self._no_room), self._no_room.tried_s
        return [Send(CALLER, reply)]

    def _take_snapshot(self, checkpoint: bytes) -> None:
        """Store the changes since the last checkpoint, until a checkpoint that contains them is committed."""
        if self._snapshots is None or self._shelf is None:
            return
        snapshot = self.machine.snapshot(checkpoint)
        if self._unstored_snapshot is not None:
            snapshot, self._unstored_snapshot = merged([self._unstored_snapshot, snapshot]), None
        try:
            self._snapshots = [*self._snapshots, SnapshotName(checkpoint, *self._shelf.put(snapshot))]
        except NoRoom as no_room:
            self._unstored_snapshot, self._no_room = snapshot, no_room
        except Exception as error:  # a state may raise anything where it is pickled
            self._snapshots, self._unstorable = None, safe_text(str, error, 500)

    def _commit(self, committed: Committed) -> None:
        """Drop what is only needed to restart a process below the checkpoint, or to restart any."""
        if self.links is not None:
            self.links.commit(committed.checkpoint)
        self._snapshots = self._snapshots and [
            each for each in self._snapshots if each.checkpoint > committed.checkpoint
        ]
        if not committed.restarts:
            self.links, self._snapshots, self.log_bytes = None, None, 0
            self.machine.stop_checkpoints()

    def _may_wait(self, parts: Sequence[Part]) -> bool:
        if self._workers == 1:
            return False
        patient = (part for part in parts if part[0] in self._patient and not self.machine.keeps(*part))
        return _items_of(parts) >= _PATIENT_ITEMS_MIN and any(patient)

    def _is_swift(self, own: Sequence[Part]) -> bool:
        """Whether a share of its own is processed at once: it is small, and little is corrected."""
        return self._corrects_little and not self._may_wait(own)

    def _patient_until_s(self) -> float:
        return self._waiting_since_s + max(self.patience_s, self.patience_batches * self._batch_s)

    def _wait(self, batch: Batch, now_s: float) -> None:
        if not self._waiting:
            self._waiting_since_s = now_s
        self._arrivals += 1
        heappush(self._waiting, (batch.granule, self._arrivals, batch))

    @property
    def _has_room(self) -> bool:
        """Whether little that was made is in flight; else only batches are taken that nothing in flight is below."""
        return self._made_bytes <= _AHEAD_BYTES_MAX

    @property
    def _may_fire(self) -> bool:
        """Whether later items are due, and little that was made is in flight, or nothing is below them."""
        least = self.machine.least_later if self.machine.is_due else None
        return least is not None and (self._has_room or least <= self._minimal_time)

    def _parted(self, batches: list[Batch]) -> tuple[list[Batch], list[Batch]]:
        """The batches to take now, and those that wait until what was made has arrived."""
        if self._has_room:
            return batches, []
        taken = [batch for batch in batches if batch.granule <= self._in_flight]
        return taken, [batch for batch in batches if batch.granule > self._in_flight]

    @property
    def _may_map(self) -> bool:
        """Whether to take a batch of input now: little that was made is in flight, or nothing older than the batch."""
        if self._has_room:
            return bool(self._unmapped)
        return any(batch.granule <= self._in_flight for batch in self._unmapped)

    def _next_input(self) -> Batch:
        """Take the next batch of input; if much that was made is in flight, one that is older than all of that."""
        at = 0
        if not self._has_room:
            at = next(at for at, batch in enumerate(self._unmapped) if batch.granule <= self._in_flight)
        batch = self._unmapped[at]
        del self._unmapped[at]
        return batch

    def _map(self, batch: Batch, now_s: float) -> list[Send]:
        """Run a batch of input, or the first of it, through its maps."""
        parts, rest = split(batch.parts, self._policy.items)
        too_much: list[Part] = []
        caused = self.machine.pass_maps(parts, rest=too_much)
        self._mapped = _items_of(parts) - _items_of(too_much)
        if self._index in caused and self._is_swift(caused[self._index]):
            for receiver, each in self.machine.turn(caused.pop(self._index)).items():
                caused.setdefault(receiver, []).extend(each)
        left = self._left([*too_much, *rest])
        self._unmapped.extendleft(reversed(left))
        return self._caused([batch], self._mapped, caused, now_s, left)

    def _work(self, batches: list[Batch], now_s: float) -> list[Send]:
        """Process batches, or the first of them."""
        parts, rest = split([part for batch in batches for part in batch.parts], self._policy.items)
        if rest:
            batches.sort(key=lambda batch: batch.granule)
            parts, rest = split([part for batch in batches for part in batch.parts], self._policy.items)
        too_much: list[Part] = []
        caused = self.machine.turn(parts, rest=too_much)
        left = self._left([*too_much, *rest])
        if self._workers == 1:
            self._unmapped.extendleft(reversed(left))
        else:
            self._at_once = left + self._at_once
        return self._caused(batches, _items_of(parts) - _items_of(too_much), caused, now_s, left)

    def _left(self, parts: list[Part]) -> list[Batch]:
        """What was not taken of batches, as messages to this worker, each with the granule of its own items.

        Together they would have the granule of the oldest, and so all be taken where only the oldest may be.
        """
        return [
            Batch(granule_of([part]), self._ledger.checksum(), [part], self.levels.level_of(part[0])) for part in parts
        ]

    def _caused(
        self, batches: list[Batch], items: int, caused: dict[int, list[Part]], now_s: float, left: Sequence[Batch]
    ) -> list[Send]:
        """Send the results of batches and of later items that were due, and acknowledge all in one ack.

        Args:
            items: how many were taken of the batches.
            left: what was not taken.
        """
        self._worked = True
        causes = [[hold.granule] if hold.granule is not None else [] for hold in self._holds]
        for batch in batches:
            causes[batch.level].append(batch.granule)
        granules = list(accumulate((min(each, default=ABOVE_ALL) for each in causes), min))
        least = granules[-1]
        sends, sent = self._sent(granules, caused, now_s)
        waiting = self._moved(sent)
        made = made_bytes(columns.payloads for parts in caused.values() for _, columns in parts)
        self._policy.learn(items, made)
        heappush(self._made if batches else self._fired, (least, made))
        self._made_bytes += made
        return [*sends, self._ack(ack_of(map(tracked, batches), [*sent, *map(tracked, left)], (), waiting))]

    def _moved(self, sent: Sequence[Entry]) -> list[Entry]:
        """The entries of an ack so that all that waits now is tracked, with these messages."""
        of_sent = {granule for granule, _, _ in sent}
        moved: list[Entry] = []
        greatest = BEGINNING  # of the granules at which levels behind begin to hold
        for hold, least in reversed([*zip(self._holds, self.machine.least_by_level)]):
            before = hold.granule
            moved += hold.moved(least, leant_on=before is not None and (before in of_sent or before <= greatest))
            if least is not None and least != before:
                greatest = max(greatest, least)
        return moved

    def _ack(self, ack: Ack) -> Send:
        made, self._reported_tombstones = self.tombstones - self._reported_tombstones, self.tombstones
        message = ack_message(ack, tombstones=made)
        message.mapped_items, message.mapped_s = self._mapped_items, self._mapped_s
        self._mapped_items, self._mapped_s = 0, 0.0
        return Send(ACKER, message)

    def _sent(
        self, granules: Sequence[bytes], parts_by_receiver: dict[int, list[Part]], now_s: float
    ) -> tuple[list[Send], list[Entry]]:
        """Send items as batches; those for this worker wait here. Returns also the entries for the ack.

        Args:
            granules: by level, at which messages to targets of the level are tracked.
        """
        sends: list[Send] = []
        sent: list[Entry] = []
        every = [(to, *each) for to, parts in parts_by_receiver.items() for each in by_level(self.levels, parts)]
        for receiver, level, parts in every:
            granule = granules[level]
            if receiver == self._index:
                batch = Batch(granule, self._ledger.checksum(), parts, level)
                if self._is_swift(parts):
                    self._at_once.append(batch)
                else:
                    self._wait(batch, now_s)
            else:
                logged = self.links.log(receiver, parts) if self.links is not None else None
                if self._order is not None:
                    parts, logged = self._without_received(receiver, parts, logged)
                    if not parts:
                        continue
                batch = Batch(granule, self._ledger.checksum(), parts, level)
                sends.append(Send(receiver, batch, logged))
            sent.append(tracked(batch))
        return sends, sent

    def _without_received(
        self, receiver: int, parts: list[Part], logged: LoggedBatch | None
    ) -> tuple[list[Part], LoggedBatch | None]:
        """The parts of a repeated batch that the receiver did not get from the process that this one replaces.

        The log entry stays complete; it is passed on only if nothing is left out.
        """
        order = self._order
        if order is None or receiver in order.replaced:
            return parts, logged
        rest = cut_parts(parts, order.checkpoint, ABOVE_ALL)
        return rest, logged if rest == parts else None


def _items_of(parts: Sequence[Part]) -> int:
    return sum(len(columns.metas) for _, columns in parts)
