"""What the calling process stores so that a run can go back to a cut: the batches fed, and the output received.

Invariant: together with the states below a cut, a run can resume from any minimal time that was reached and is not
below the last committed cut, and a barrier from the last item that was received.

Why: unsettled batches may have to be fed again; batches above the committed cut, to a replaced worker. The barrier's
items are in its senders' link logs; its position, its last meta and the digest's open block follow from the output
received here.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from itertools import chain
from typing import NamedTuple

from drift.machines.nodes.cutting import INTERVAL_S, LOG_BYTES_FULL, TRIES_MAX, CutPace
from drift.machines.nodes.intake import Fed
from drift.machines.nodes.links import ABOVE_ALL, LinkLogs, cut_columns
from drift.machines.nodes.messages import Batch, CutPiece, Message, ReleasedMessage, Restart, Rewind, TakeCut
from drift.machines.nodes.pieces import PieceName, PiecesKept, Shelf, merged
from drift.machines.worker import BARRIER, Piece
from drift_barrier.barrier import Released
from drift_barrier.digest import BLOCK_ITEMS, Encoded
from drift_graph.errors import DriftBug, PayloadError, ProcessError
from drift_graph.functions import safe_text
from drift_graph.item import Columns
from drift_graph.meta import BEGINNING, END_OF_TIME, MetaParts
from drift_graph.metas import greatest_meta


class Complete(NamedTuple):
    """A cut with all its pieces, and the position of the received output.

    Attributes:
        pieces: the changes since the previous cut taken, by worker.
    """

    cut: bytes
    output: Restart
    pieces: dict[int, Piece]


class Keeping:
    """See the module.

    Args:
        opened: a message, from what it was carried as.
        workers: how many there are.
        shelf: stores pieces of cuts.
        pace: decides when cuts are taken.

    Attributes:
        since: the last committed cut, from which replaced processes start.
        links: the items fed since the committed cut, by receiver.
        unkept: why there will never be a cut, if a state cannot be stored; else empty.
        no_room: why there is no cut now, if there is no room for it; else empty.
        others_log_bytes: the greatest size of another process's link logs, as last reported.
        position: of the next item to come from the barrier.
        last: the meta of the last item from the barrier.
    """

    def __init__(self, opened: Callable[[bytes], Message], workers: int, shelf: Shelf, pace: CutPace) -> None:
        self.since = BEGINNING
        self._workers = workers
        self._shelf = shelf
        self._pace = pace
        self.others_log_bytes = 0
        self._number = 0  # of the last cut that was to be taken
        self._taking: int | None = None
        self._given: dict[int, CutPiece] = {}
        self._pieces = [PiecesKept() for _ in range(workers)]
        self._begun_with: Piece | None = None  # by a run that goes on
        self._replaces = True  # processes that die: others begin anew with pieces
        self._unneeded: list[bytes] = []  # pieces that nobody asks for any more
        self.unkept = self.no_room = ""
        self._tried_s = -math.inf
        self._tries = 0  # while nothing more is fed
        self.links = LinkLogs(parts_by(opened))
        self.position = 0
        self.last = BEGINNING
        self._opened = opened
        self._fed: deque[tuple[bytes, Fed]] = deque()  # with a time that all of it is below
        self._blocks: list[bytes] = []
        self._released: deque[ReleasedMessage] = deque()  # what the open block is in
        self._went_on = 0  # position that the run began with, and of its block what was released before
        self._opened_before: list[Encoded] = []
        # Where the state of the run is kept by somebody else, who asks for cuts:
        self._untaken: list[list[PieceName]] | None = None  # what was committed since one was handed over
        self._handed_over = BEGINNING
        self._is_asked_for = self._is_for_others = False  # a cut; the one that is being taken
        self._output: Restart | None = None  # as that one has it
        self._is_complete = False

    def begin_at(self, cut: bytes, output: Restart, piece: Piece) -> None:
        """Resume from a cut that another run committed, before anything is fed; `piece` is all of its state.

        Each worker takes the keys that are its own; the first sends the later items again.
        """
        self.since, self.position, self.last = cut, output.position, output.last
        self._went_on, self._opened_before, self._blocks = output.position, output.opened, list(output.blocks)
        self._handed_over = cut
        if cut == END_OF_TIME:
            return
        self._begun_with = piece

    def keep_for_others(self, *, replaces: bool) -> None:
        """Prepare for cuts requested by others, before anything is fed.

        Args:
            replaces: whether processes that die are replaced; else pieces are dropped when they were handed over.
        """
        self._untaken, self._replaces = [[] for _ in self._pieces], replaces

    @property
    def holds(self) -> bool:
        """Whether the output has reached a cut for others: output above the cut waits until they have it."""
        return self._output is not None

    @property
    def is_complete(self) -> bool:
        """Whether the requested cut is complete."""
        return self._is_complete

    def hand_over(self) -> Complete | None:
        """The requested cut, if it is complete, else None; requests the next one in either case."""
        output = self._output
        if not self._is_complete or output is None or self._untaken is None:
            self._is_asked_for = True
            return None
        pieces = {
            worker: merged(layer.whole() for layer in self._shelf.get([piece.name for piece in untaken]))
            for worker, untaken in enumerate(self._untaken)
        }
        self._handed_over = self.since
        self._is_asked_for = False
        self.let_go()
        taken, self._untaken = self._untaken, [[] for _ in self._pieces]
        self._let_go_of([piece.name for untaken in taken for piece in untaken])
        return Complete(self.since, output, pieces)

    def awaits_cut(self, minimal_time: bytes) -> bool:
        """Whether a cut was requested, and others lack some of the state."""
        return self._is_asked_for and minimal_time > self._handed_over

    def hand_over_end(self) -> Complete | None:
        """The cut at the end, if all output has been received and nobody has this cut yet."""
        if self._handed_over == END_OF_TIME:
            return None
        self._handed_over = END_OF_TIME
        return Complete(END_OF_TIME, self.restart(), {})

    def let_go(self) -> None:
        """Give up the cut for others, which nobody has taken: output above it goes on."""
        self._output, self._is_complete = None, False

    def note_fed(self, fed: Fed, above: bytes) -> None:
        """Note a fed batch, all of which is below `above`."""
        metas = fed.arrived.metas
        if metas and above <= fed.arrived.heartbeat:  # of the last time there is none above
            above = greatest_meta(metas) + b"\0"
        self._fed.append((max(above, fed.arrived.heartbeat), fed))

    def settle(self, minimal_time: bytes) -> None:
        """Drop batches below minimal time, which will not be fed again."""
        while self._fed and self._fed[0][0] <= minimal_time:
            self._fed.popleft()

    def note_released(self, piece: ReleasedMessage) -> None:
        """Note a piece of the output.

        Raises:
            DriftBug: it is not the next one.
        """
        released = piece.released
        if released.position != self.position:
            raise DriftBug(f"item {released.position} of the output came, and {self.position} is the next")
        self._blocks[piece.first_block :] = piece.blocks
        if not released.metas:
            return
        self.position += len(released.metas)
        self.last = released.metas[-1]
        self._released.append(piece)
        open_from = self.position // BLOCK_ITEMS * BLOCK_ITEMS
        while self._released and _end_of(self._released[0].released) <= open_from:
            self._released.popleft()

    def go_back(self, order: Rewind, unfed: Iterable[Fed]) -> deque[Fed]:
        """The batches to feed again from a cut on; `unfed` are those that were already to be fed again."""
        self.links.go_back(order.generation, order.cut)
        self._taking, self._given = None, {}
        if not self._is_complete:
            self._output = None
        again: deque[Fed] = deque()
        for name, rank, arrived in chain([fed for _, fed in self._fed], unfed):
            columns = Columns(arrived.metas, arrived.payloads, None)
            metas, payloads, _ = cut_columns(columns, order.cut, ABOVE_ALL)
            heartbeat = max(arrived.heartbeat, order.cut)
            again.append(Fed(name, rank, arrived._replace(metas=metas, payloads=payloads, heartbeat=heartbeat)))
        self._fed.clear()
        return again

    def place_of(self, cut: bytes, unfed: Iterable[Fed]) -> str:
        """The position of a cut in the input, in words: by the first unsettled item."""
        first: tuple[bytes, str, object] | None = None
        for name, _, arrived in chain([fed for _, fed in self._fed], unfed):
            for meta, payload in zip(arrived.metas, arrived.payloads):
                if meta >= cut and (first is None or meta < first[0]):
                    first = meta, name, payload
        if first is None:
            return "while nothing of the input was in flight"
        meta, name, payload = first
        return f"at item {safe_text(repr, payload, 200)} of source {name!r} ({MetaParts(meta)})"

    def take(self, now_s: float, minimal_time: bytes) -> TakeCut | None:
        """The next cut, if it is time for one."""
        if self._taking is not None or self.holds:
            return None
        is_asked_for = self.awaits_cut(minimal_time)
        fed_bytes = self.links.kept_bytes
        is_due = minimal_time > self.since and self._pace.is_due(now_s, self._log_bytes, fed_bytes)
        if not is_asked_for and not is_due and not self.is_full(minimal_time):
            return None
        if self.no_room and now_s < self._tried_s + INTERVAL_S:  # also where others ask again and again
            return None
        self._is_for_others = is_asked_for
        self._pace.begun(now_s, fed_bytes)
        self._number += 1
        self._taking = self._number
        self._given = {}
        return TakeCut(self._number)

    def is_full(self, minimal_time: bytes) -> bool:
        """Whether there is no room for a cut, and link logs are so long that feeding waits for room."""
        return bool(self.no_room) and minimal_time > self.since and self._log_bytes > LOG_BYTES_FULL

    @property
    def _log_bytes(self) -> int:
        return max(self.links.kept_bytes, self.others_log_bytes)

    def note_piece(self, piece: CutPiece, now_s: float) -> bytes | None:
        """Note a piece; returns the cut if this was its last piece, so that it is committed."""
        if piece.number != self._taking:
            return None
        self._given[piece.sender] = piece
        self._note_output(piece)
        if len(self._given) <= self._workers:
            return None
        self._taking = None
        if any(each.pieces is None for each in self._given.values()):
            self._pace.taken(now_s, max(each.tried_s for each in self._given.values()), self._log_bytes)
            self._output = None
            self._note_no_room(piece.cut, now_s)
            return None
        self.since = piece.cut
        self.no_room, self._tries = "", 0
        for sender, each in self._given.items():
            if sender >= 0:
                if self._replaces:
                    self._pieces[sender].add(each.pieces or ())
                if self._untaken is not None:
                    last = max([self._handed_over, *(known.cut for known in self._untaken[sender][-1:])])
                    self._untaken[sender] += [new for new in each.pieces or () if new.cut > last]
        self._is_complete = self.holds
        cost_s = max(new.cost_s for each in self._given.values() for new in (each.pieces or [])[-1:])
        self._given = {}
        self.links.commit(self.since)
        self.others_log_bytes = 0
        self._pace.taken(now_s, cost_s, self._log_bytes)
        return self.since

    def _note_no_room(self, cut: bytes, now_s: float) -> None:
        """
        Raises:
            ProcessError: there has been no room for too long.
        """
        self.no_room = next((each.no_room for each in self._given.values() if each.no_room), "")
        self._tried_s = now_s
        self._tries = self._tries + 1 if self.is_full(cut) else 0
        if self._tries >= TRIES_MAX:
            raise ProcessError(
                f"no cut of the run could be kept: {self.no_room}; so its processes keep what they have sent since the "
                f"last one, {self._log_bytes >> 20} MiB in one of them by now, and there was no room again {TRIES_MAX} "
                f"times; everything released before stands. Make room, or let TMPDIR name another folder, and run "
                f"again; with recover=False nothing is kept, and a process that dies ends the run"
            )

    def _note_output(self, piece: CutPiece) -> None:
        """Note the output received when the barrier had sent all items below the cut.

        Raises:
            PayloadError: there will never be a cut.
        """
        if self._untaken is None:
            self.unkept = self.unkept or piece.error
            return
        if piece.error:
            raise PayloadError(f"a state cannot be stored: {piece.error}; let states be values that can be pickled")
        if piece.sender == BARRIER and self._is_for_others:
            self._output = self.restart()

    def pieces_of(self, worker: int) -> list[bytes]:
        """Names on the shelf of the pieces that a replaced worker starts with."""
        if self._begun_with is not None:
            piece, self._begun_with = self._begun_with, None
            for_others, its = self._shelf.put(piece._replace(later=[])), self._shelf.put(piece)
            for of, kept in enumerate(self._pieces):
                kept.add([PieceName(piece.cut, *(its if of == 0 else for_others))])
        return [piece.name for piece in self._pieces[worker].all()]

    def due_to_merge(self) -> tuple[int, list[PieceName]] | None:
        """A worker and its pieces that are to be merged, if there are any."""
        return next(((worker, several) for worker, kept in enumerate(self._pieces) if (several := kept.due())), None)

    def merged(self, worker: int, several: Sequence[PieceName], name: bytes, size: int) -> None:
        """Note that pieces have been merged into one."""
        self._pieces[worker].replace(several, PieceName(several[-1].cut, name, size, merged=True))
        self._let_go_of([piece.name for piece in several])

    def _let_go_of(self, names: Iterable[bytes]) -> None:
        kept = {piece.name for pieces in self._pieces for piece in pieces.all()}
        kept |= {piece.name for untaken in self._untaken or () for piece in untaken}
        self._unneeded += [name for name in names if name not in kept]

    def take_unneeded(self) -> list[bytes]:
        """Take the pieces that nobody needs any more, except a process that was just ordered to start with them."""
        unneeded, self._unneeded = self._unneeded, []
        return unneeded

    @property
    def kept_bytes(self) -> int:
        """Bytes in link logs and pieces."""
        return self.links.kept_bytes + sum(each.kept_bytes for each in self._pieces)

    def restart(self) -> Restart:
        """The state that a replaced barrier resumes from."""
        block = self.position // BLOCK_ITEMS
        metas: list[bytes] = []
        payloads: list[object] = []
        for piece in self._released:
            position, its_metas, its_payloads, _, _ = self._as_it_came(piece)
            start = max(block * BLOCK_ITEMS - position, 0)
            metas += its_metas[start:]
            payloads += its_payloads[start:]
        opened = self._opened_before if block == self._went_on // BLOCK_ITEMS else []
        return Restart(self.position, self.last, self._blocks[:block], opened, metas, payloads)

    def _as_it_came(self, piece: ReleasedMessage) -> Released:
        """The piece decoded again, since users may have changed the payloads."""
        if not piece.carried:
            return piece.released
        message = self._opened(piece.carried)
        assert isinstance(message, ReleasedMessage)
        return message.released


def _end_of(released: Released) -> int:
    return released.position + len(released.metas)


def parts_by(opened: Callable[[bytes], Message]) -> Callable[[bytes], list[tuple[str, Columns]]]:
    """The parts of a batch, from what it was carried as."""

    def parts(carried: bytes) -> list[tuple[str, Columns]]:
        batch = opened(carried)
        assert isinstance(batch, Batch)
        return batch.parts

    return parts
