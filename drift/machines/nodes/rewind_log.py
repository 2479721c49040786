"""What the calling process stores so that a run can rewind to a checkpoint: the batches fed, and the output received.

Invariant: together with the states below a checkpoint, a run can resume from any minimal time that was reached and is
not below the last committed checkpoint, and a barrier from the last item that was received.

Why: unsettled batches may have to be fed again; batches above the committed checkpoint, to a replaced worker. The
barrier's items are in its senders' link logs; its position, its last meta and the digest's open block follow from the
output received here.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable, Collection, Iterable, Iterator
from itertools import chain
from typing import NamedTuple

from drift.machines.nodes.checkpointing import INTERVAL_S, LOG_BYTES_FULL, PRICE, TRIES_MAX, CheckpointPace
from drift.machines.nodes.intake import Fed
from drift.machines.nodes.links import ABOVE_ALL, LinkLogs, cut_columns
from drift.machines.nodes.messages import (
    Batch,
    CheckpointReply,
    Message,
    ReleasedMessage,
    Restart,
    Rewind,
    TakeCheckpoint,
)
from drift.machines.nodes.snapshots import Shelf, SnapshotName, SnapshotNames, merged
from drift.machines.worker import BARRIER, Snapshot
from drift_barrier.digest import BLOCK_ITEMS, Encoded, ListedParts, NewParts, OpenBlock
from drift_graph.errors import DriftBug, PayloadError, ProcessError
from drift_graph.functions import safe_text
from drift_graph.item import Columns
from drift_graph.meta import BEGINNING, END_OF_TIME, MetaParts


class Complete(NamedTuple):
    """A checkpoint with all its snapshots, and the position of the received output.

    Attributes:
        snapshots: the changes since the previous checkpoint taken, by worker.
    """

    checkpoint: bytes
    output: Restart
    snapshots: dict[int, Snapshot]


class Merge(NamedTuple):
    """Consecutive snapshots of a worker that become one."""

    worker: int
    snapshots: list[SnapshotName]

    @property
    def size(self) -> int:
        return sum(snapshot.size for snapshot in self.snapshots)


class RewindLog:
    """
    Args:
        decode: turns the bytes that a message was carried as into the message.
        workers: their number.
        shelf: stores snapshots of checkpoints.
        pace: decides when checkpoints are taken.

    Attributes:
        since: the last committed checkpoint, from which replaced processes start.
        links: the items fed since the committed checkpoint, by receiver.
        unstorable: why there will never be a checkpoint, if a state cannot be stored; else empty.
        no_room: why there is no checkpoint now, if there is no room for it; else empty.
        other_log_bytes: the greatest size of another process's link logs, as last reported.
        position: of the next item to come from the barrier.
        last: the meta of the last item from the barrier.
    """

    def __init__(
        self,
        decode: Callable[[bytes], Message],
        workers: int,
        shelf: Shelf,
        pace: CheckpointPace,
        new_parts: NewParts = ListedParts,
    ) -> None:
        self.since = BEGINNING
        self._workers = workers
        self._shelf = shelf
        self._pace = pace
        self.other_log_bytes = 0
        self._number = 0  # of the last checkpoint that was ordered
        self._taking: int | None = None
        self._replies: dict[int, CheckpointReply] = {}
        self._snapshots = [SnapshotNames() for _ in range(workers)]
        self._initial: Snapshot | None = None  # if the run resumes from a checkpoint
        self._replaces = True  # whether processes that die are replaced, from snapshots
        self._unneeded: list[bytes] = []  # snapshots that no process will read any more
        self.unstorable = self.no_room = ""
        self._tried_s = -math.inf
        self._tries = 0  # to take a checkpoint, since feeding stopped for lack of room
        self.links = LinkLogs(parts_decoder(decode))
        self.position = 0
        self.last = BEGINNING
        self._fed: deque[tuple[bytes, Fed]] = deque()  # each with a time that is above all its items
        self._blocks: list[bytes] = []
        self._new_parts = new_parts
        self._open_block = OpenBlock(new_parts)  # the items of the output's last block, which is not full
        # If a store requests checkpoints:
        self._not_handed_over: list[list[SnapshotName]] | None = None  # snapshots committed since the last handover
        self._handed_over = BEGINNING
        self._is_requested = self._is_for_store = False  # a checkpoint; the one being taken
        self._output: Restart | None = None  # as of the checkpoint being taken
        self._is_complete = False

    def begin_at(self, checkpoint: bytes, output: Restart, snapshot: Snapshot) -> None:
        """Resume from a checkpoint that another run committed, before anything is fed; `snapshot` is all of its state.

        Each worker takes the keys that are its own; the first sends the later items again.
        """
        self.since, self.position, self.last = checkpoint, output.position, output.last
        self._blocks = list(output.blocks)
        self._open(output.opened)
        self._handed_over = checkpoint
        if checkpoint == END_OF_TIME:
            return
        self._initial = snapshot

    def prepare_handover(self, *, replaces: bool) -> None:
        """Prepare for checkpoints requested by a store, before anything is fed.

        Args:
            replaces: whether processes that die are replaced; otherwise snapshots are dropped after the handover.
        """
        self._not_handed_over, self._replaces = [[] for _ in self._snapshots], replaces

    @property
    def holds(self) -> bool:
        """Whether the output has reached a checkpoint for the store: output above it waits until the checkpoint is
        handed over.
        """
        return self._output is not None

    @property
    def is_complete(self) -> bool:
        return self._is_complete

    def hand_over(self) -> Complete | None:
        """The requested checkpoint, if it is complete, else None; requests the next one in either case."""
        output = self._output
        if not self._is_complete or output is None or self._not_handed_over is None:
            self._is_requested = True
            return None
        snapshots = {
            worker: merged(self._shelf.snapshot(each.name) for each in untaken)
            for worker, untaken in enumerate(self._not_handed_over)
        }
        self._handed_over = self.since
        self._is_requested = False
        self.drop_handover()
        taken, self._not_handed_over = self._not_handed_over, [[] for _ in self._snapshots]
        self._drop_unneeded([snapshot.name for untaken in taken for snapshot in untaken])
        return Complete(self.since, output, snapshots)

    def awaits_checkpoint(self, minimal_time: bytes) -> bool:
        """Whether a checkpoint was requested, and there is state that was not handed over."""
        return self._is_requested and minimal_time > self._handed_over

    def hand_over_end(self) -> Complete | None:
        """The checkpoint at the end, if all output has been received and this checkpoint was not handed over."""
        if self._handed_over == END_OF_TIME:
            return None
        self._handed_over = END_OF_TIME
        return Complete(END_OF_TIME, self.restart(), {})

    def drop_handover(self) -> None:
        """Drop the checkpoint for the store, which has not taken it: output above it no longer waits."""
        self._output, self._is_complete = None, False

    def note_fed(self, fed: Fed, above: bytes) -> None:
        """Note a fed batch, all of which is below `above`."""
        metas = fed.arrived.metas
        if metas and above <= fed.arrived.heartbeat:  # at the greatest time there is no meta above
            above = metas.greatest() + b"\0"
        self._fed.append((max(above, fed.arrived.heartbeat), fed))

    def settle(self, minimal_time: bytes) -> None:
        """Drop batches below minimal time, which will not be fed again."""
        while self._fed and self._fed[0][0] <= minimal_time:
            self._fed.popleft()

    def note_released(self, message: ReleasedMessage) -> None:
        """Note a batch of the output. Raises DriftBug: it is not the next batch."""
        released = message.released
        if released.position != self.position:
            raise DriftBug(f"item {released.position} of the output came, and {self.position} is the next")
        if not released.metas:
            return
        self._blocks[message.first_block :] = message.blocks
        self.position += len(released.metas)
        self.last = released.metas[-1]
        if message.blocks:  # some of it is in full blocks; no part goes beyond one
            left, start = self.position % BLOCK_ITEMS, len(message.encoded)
            while left:
                start -= 1
                left -= message.encoded[start].items
            self._open(message.encoded[start:])
        else:
            self._open(message.encoded, self._open_block)

    def _open(self, parts: Iterable[Encoded], behind: OpenBlock | None = None) -> None:
        """Take these as the last items of the open block, of a new one if it is not given."""
        self._open_block = behind or OpenBlock(self._new_parts)
        for part in parts:
            self._open_block.add(part)

    def rewind(self, order: Rewind, unfed: Iterable[Fed]) -> deque[Fed]:
        """The batches to feed again from a checkpoint on; `unfed`: batches that still wait to be fed again."""
        self.links.rewind(order.generation, order.checkpoint)
        self._taking, self._replies = None, {}
        if not self._is_complete:
            self._output = None
        again: deque[Fed] = deque()
        for name, rank, arrived in chain([fed for _, fed in self._fed], unfed):
            columns = Columns(arrived.metas, arrived.payloads, None)
            metas, payloads, _ = cut_columns(columns, order.checkpoint, ABOVE_ALL)
            heartbeat = max(arrived.heartbeat, order.checkpoint)
            again.append(Fed(name, rank, arrived._replace(metas=metas, payloads=payloads, heartbeat=heartbeat)))
        self._fed.clear()
        return again

    def described(self, checkpoint: bytes, unfed: Iterable[Fed]) -> str:
        """The position of a checkpoint in the input, in words: by the first unsettled item."""
        first: tuple[bytes, str, object] | None = None
        for name, _, arrived in chain([fed for _, fed in self._fed], unfed):
            for meta, payload in zip(arrived.metas, arrived.payloads):
                if meta >= checkpoint and (first is None or meta < first[0]):
                    first = meta, name, payload
        if first is None:
            return "while nothing of the input was in flight"
        meta, name, payload = first
        return f"at item {safe_text(repr, payload, 200)} of source {name!r} ({MetaParts(meta)})"

    def take(self, now_s: float, minimal_time: bytes, price: float = PRICE) -> TakeCheckpoint | None:
        """The next checkpoint, if it is time for one; `price`: see `CheckpointPace.is_due`."""
        if self._taking is not None or self.holds:
            return None
        is_requested = self.awaits_checkpoint(minimal_time)
        fed_bytes = self.links.logged_bytes
        is_due = minimal_time > self.since and self._pace.is_due(now_s, self._log_bytes, fed_bytes, price)
        if not is_requested and not is_due and not self.is_full(minimal_time):
            return None
        if self.no_room and now_s < self._tried_s + INTERVAL_S:  # even if a checkpoint is requested again and again
            return None
        self._is_for_store = is_requested
        self._pace.begun(now_s, fed_bytes)
        self._number += 1
        self._taking = self._number
        self._replies = {}
        return TakeCheckpoint(self._number)

    def is_full(self, minimal_time: bytes) -> bool:
        """Whether there is no room for a checkpoint, and link logs are so long that feeding waits for room."""
        return bool(self.no_room) and minimal_time > self.since and self._log_bytes > LOG_BYTES_FULL

    @property
    def _log_bytes(self) -> int:
        return max(self.links.logged_bytes, self.other_log_bytes)

    def note_reply(self, reply: CheckpointReply, now_s: float) -> bytes | None:
        """Note a reply to the order; returns the checkpoint if this was the last reply, so that the checkpoint is
        committed.
        """
        if reply.number != self._taking:
            return None
        self._replies[reply.sender] = reply
        self._note_output(reply)
        if len(self._replies) <= self._workers:
            return None
        self._taking = None
        if any(each.snapshots is None for each in self._replies.values()):
            self._pace.taken(now_s, max(each.tried_s for each in self._replies.values()), self._log_bytes)
            self._output = None
            self._note_no_room(reply.checkpoint, now_s)
            return None
        self.since = reply.checkpoint
        self.no_room, self._tries = "", 0
        for sender, each in self._replies.items():
            if sender >= 0:
                if self._replaces:
                    self._snapshots[sender].add(each.snapshots or ())
                if self._not_handed_over is not None:
                    last = max(
                        [self._handed_over, *(newest.checkpoint for newest in self._not_handed_over[sender][-1:])]
                    )
                    self._not_handed_over[sender] += [new for new in each.snapshots or () if new.checkpoint > last]
        self._is_complete = self.holds
        cost_s = max(new.cost_s for each in self._replies.values() for new in (each.snapshots or [])[-1:])
        self._replies = {}
        self.links.commit(self.since)
        self.other_log_bytes = 0
        self._pace.taken(now_s, cost_s, self._log_bytes)
        return self.since

    def _note_no_room(self, checkpoint: bytes, now_s: float) -> None:
        """Raises ProcessError: there has been no room for too long."""
        self.no_room = next((each.no_room for each in self._replies.values() if each.no_room), "")
        self._tried_s = now_s
        self._tries = self._tries + 1 if self.is_full(checkpoint) else 0
        if self._tries >= TRIES_MAX:
            raise ProcessError(
                f"no checkpoint of the run could be stored: {self.no_room}; so its processes log what they sent since "
                f"the last one, {self._log_bytes >> 20} MiB in one of them by now, and there was no room {TRIES_MAX} "
                f"times; everything released before stands. Make room, or let TMPDIR name another folder, and run "
                f"again; with recover=False nothing is logged, and a process that dies ends the run"
            )

    def _note_output(self, reply: CheckpointReply) -> None:
        """Note the output received when the barrier had sent all items below the checkpoint.

        Raises:
            PayloadError: there will never be a checkpoint.
        """
        if self._not_handed_over is None:
            self.unstorable = self.unstorable or reply.error
            return
        if reply.error:
            raise PayloadError(f"a state cannot be stored: {reply.error}; let states be values that can be pickled")
        if reply.sender == BARRIER and self._is_for_store:
            self._output = self.restart()

    def snapshots_of(self, worker: int) -> list[bytes]:
        """Names on the shelf of the snapshots that a replaced worker starts with."""
        if self._initial is not None:
            snapshot, self._initial = self._initial, None
            for_others, its = self._shelf.put(snapshot._replace(later=[])), self._shelf.put(snapshot)
            for of, names in enumerate(self._snapshots):
                names.add([SnapshotName(snapshot.checkpoint, *(its if of == 0 else for_others))])
        return [snapshot.name for snapshot in self._snapshots[worker].all()]

    def due_to_merge(self, merging: Collection[Merge] = ()) -> Iterator[Merge]:
        """The merges that are due, beside those that are being done."""
        for worker, names in enumerate(self._snapshots):
            taken = [snapshot for merge in merging if merge.worker == worker for snapshot in merge.snapshots]
            for several in names.due(taken):
                yield Merge(worker, several)

    def merged(self, merge: Merge, name: bytes, size: int) -> None:
        """Note that snapshots have been merged into one."""
        worker, several = merge
        self._snapshots[worker].replace(several, SnapshotName(several[-1].checkpoint, name, size, merged=True))
        self._drop_unneeded([snapshot.name for snapshot in several])

    def _drop_unneeded(self, names: Iterable[bytes]) -> None:
        needed = {snapshot.name for names in self._snapshots for snapshot in names.all()}
        needed |= {snapshot.name for untaken in self._not_handed_over or () for snapshot in untaken}
        self._unneeded += [name for name in names if name not in needed]

    def take_unneeded(self) -> list[bytes]:
        """Take the names of snapshots that are needed at most by a process that was just ordered to start with them."""
        unneeded, self._unneeded = self._unneeded, []
        return unneeded

    def restart(self) -> Restart:
        """The state that a replaced barrier resumes from."""
        return Restart(self.position, self.last, list(self._blocks), self._open_block.opened())


def parts_decoder(decode: Callable[[bytes], Message]) -> Callable[[bytes], list[tuple[str, Columns]]]:
    """The function that gives the parts of a batch from the bytes it was carried as."""

    def parts(carried: bytes) -> list[tuple[str, Columns]]:
        batch = decode(carried)
        assert isinstance(batch, Batch)
        return batch.parts

    return parts
