"""The optimistic machines in one process, without sockets: the default engine.

Invariant: when `released` reads the sources again, all their items below their least heartbeat have been processed; so
minimal time is the least heartbeat, and only items at or above it wait.

Why the items above wait: see `Ordering`.
"""

from __future__ import annotations

import select
import time
from collections.abc import Callable, Iterator, Sequence

from drift.engines.base import Progress
from drift.engines.feed import Feed
from drift.engines.memory import rare_collections
from drift.engines.observed import Observed, Timeline, own_state
from drift.engines.overflow import Overflow
from drift.engines.settings import StatefulSettings
from drift.machines.checkpoints import Lookup
from drift.machines.nodes.intake import Fed
from drift.machines.nodes.ordering import Ordering
from drift.machines.plan import Plan, feeding_step
from drift.machines.worker import BARRIER, Part, Worker
from drift.spilled import Spilled
from drift.state.checkpoint import Output
from drift.state.run_checkpoints import Begin, Taken
from drift_acker.ledger import Hold, Ledger, ack_of
from drift_acker.table import AckTable
from drift_barrier.barrier import Barrier, Released
from drift_barrier.digest import BLOCK_ITEMS, Digest, Encoded
from drift_graph.graph import Dataflow
from drift_graph.meta import BEGINNING, END_OF_TIME, global_time_of
from drift_graph.metas import Metas
from drift_graph.segments import has_borders
from drift_graph.sizes import made_bytes

#: How long to wait for live items before the clock moves the heartbeats of sources that have none.
_TICK_S = 0.001


class LocalEngine:
    """One worker, the acker and the barrier, called in turn."""

    needs_items = True

    def __init__(self, dataflow: Dataflow, feed: Feed, settings: StatefulSettings) -> None:
        self._plan = Plan(dataflow, fused=settings.fused, counted=time.perf_counter if settings.counted else None)
        self._checkpoint_at = BEGINNING
        self._timeline = Timeline() if settings.counted else None
        self.progress = Progress()
        self._feed = feed
        self._policy = feed.intake.policy
        self._policy.begin()
        self._memory_max = settings.memory_of_worker
        self._overflow: Overflow | None = None
        self._worker = self._hired()
        self._acker = AckTable(range(len(dataflow.sources)))
        self._ledger = Ledger(0)
        self._hold = Hold(self._ledger)
        self._waiting = Ordering(self._policy)
        self._heartbeats = dict.fromkeys(range(len(dataflow.sources)), BEGINNING)
        self._heartbeat = BEGINNING  # the least of them
        steps, passes = lambda sink: feeding_step(dataflow, sink), has_borders(dataflow)
        self._barrier = Barrier(settings.digest, steps, passes_failures=passes, new_parts=Spilled)
        self._barrier.keeps_encoded = False

    def _hired(self, below: Callable[[str], Lookup] | None = None, *, tracks: bool = False) -> Worker:
        """A worker, with states that may overflow if there is a limit.

        Args:
            below: the lookup for states from before the run.
        """
        worker = Worker(self._plan, tracks=tracks)
        if self._memory_max is not None:
            self._overflow = Overflow(self._memory_max, below)
            worker.page(self._overflow.lookup)
        return worker

    def prepare_checkpoints(self, begin: Begin | None) -> None:
        """Called before any item: checkpoints will be taken; the run resumes from a checkpoint, or begins."""
        if begin is None:
            self._worker = self._hired(tracks=True)
            return
        checkpoint, blocks, states, _ = begin
        at_once = states.at_once(checkpoint)
        self._worker = self._hired(states.lookup, tracks=True)
        self._worker.restore(at_once, states.lookup)
        sends = self._worker.restore_later(at_once.later)
        self._worker.tombstones = checkpoint.tombstones
        self._acker = AckTable(range(len(self._plan.dataflow.sources)), checkpoint.at)
        self._heartbeats = dict.fromkeys(self._heartbeats, checkpoint.at)
        digest = Digest(checkpoint.output.algorithm, new_parts=Spilled)
        digest.resume(blocks, states.opened(checkpoint))
        self._barrier.resume(checkpoint.output.position, checkpoint.output.last, digest)
        self._checkpoint_at = checkpoint.at
        for name, columns in sends.get(BARRIER, ()):
            self._barrier.add(name, columns)
        self._acker.handle(ack_of((), (), (), self._hold.moved(self._worker.least_later)))
        self.progress.resume(checkpoint, self._feed.items_in, self._feed.late_items)

    @property
    def awaits_checkpoint(self) -> bool:
        return False

    def checkpoint(self) -> Taken | None:
        """The state of everything as of minimal time; None if minimal time has not moved since the last checkpoint."""
        at, barrier = self._acker.minimal_time, self._barrier
        if at == self._checkpoint_at:
            return None
        self._checkpoint_at = at
        digest = barrier.digest
        output = Output(barrier.position, barrier.last, len(digest.blocks), digest.algorithm)
        snapshots = {"local": self._worker.snapshot(at)}
        return Taken(at, output, snapshots, digest.blocks, digest.opened(), self._worker.tombstones)

    def released(self) -> Iterator[Released]:
        with rare_collections():
            yield from self._released()

    def _released(self) -> Iterator[Released]:
        feed, barrier, waiting = self._feed, self._barrier, self._waiting
        while True:
            fed = feed.poll(self._acker.minimal_time)
            waiting.add(fed)
            if fed:
                yield from self._processed(self._beats(fed))
            elif feed.is_at_rest(self._acker.minimal_time):
                yield Released(barrier.position, Metas(), [], "")
                time.sleep(_TICK_S)  # until the caller has taken its items
            elif waiting and feed.error is None:  # nothing else to do: process items above the heartbeat
                yield from self._processed(self._beats(fed), ahead=True)
            elif feed.error is None and (feed.live or feed.filenos()):
                yield Released(barrier.position, Metas(), [], "")
                select.select(feed.filenos(), (), (), _TICK_S)
            while self._worker.is_due or waiting.least < self._heartbeat:
                yield from self._processed([])
            if feed.error is not None:
                raise feed.error
            if self._acker.minimal_time == END_OF_TIME:
                return
            if not fed and (error := feed.out_of_credit(self._acker.minimal_time)) is not None:
                raise error

    def _beats(self, fed: list[Fed]) -> list[tuple[int, bytes]]:
        """The new heartbeats, each with the rank of its source."""
        beats = [(each.rank, each.arrived.heartbeat) for each in fed]
        self._heartbeats.update(beats)
        self._heartbeat = min(self._heartbeats.values(), default=END_OF_TIME)
        return beats

    def _processed(self, beats: list[tuple[int, bytes]], *, ahead: bool = False) -> Iterator[Released]:
        self._process(beats, ahead)
        released = self._barrier.release(self._acker.minimal_time)
        self._update_progress()
        yield released or Released(self._barrier.position, Metas(), [], "")
        if released is not None and released.error is not None:
            raise released.error

    def _process(self, beats: list[tuple[int, bytes]], ahead: bool) -> None:
        """Take heartbeats and process the items that they let go: output to the barrier, acks, settling."""
        began_s, before = (time.monotonic(), self._worker.tombstones) if self._timeline is not None else (0.0, 0)
        parts: list[Part] = self._waiting.take(END_OF_TIME if ahead else self._heartbeat)
        message = []
        if parts:
            least = min(columns.metas[0] for _, columns in parts)
            message = [(global_time_of(least), self._ledger.checksum(), 0)]
        acker = self._acker
        acker.handle(ack_of((), message, beats, self._hold.moved(self._least_later)))
        rest: list[Part] = []
        made = self._worker.turn(parts, acker.minimal_time, self._complete_below, rest).get(BARRIER, [])
        self._waiting.put_back(rest)
        self._feed.intake.waiting = len(self._waiting)
        for name, columns in made:
            self._barrier.add(name, columns)
        self._learn(_items_of(parts) - _items_of(rest), made)
        if rest:
            self._policy.begin()
        acker.handle(ack_of(message, (), (), self._hold.moved(self._least_later)))
        self._worker.settle(acker.minimal_time, self._complete_below)
        if self._overflow is not None:
            self._overflow.relieve(self._worker)
        if self._timeline is not None and (parts or made):
            self._timeline.add(began_s, time.monotonic(), _items_of(parts), self._worker.tombstones - before)

    @property
    def _complete_below(self) -> bytes:
        """All items below it have come and do not wait, and nothing of its time is below it: of a global time some may
        have come before a call and others behind it, and a checkpoint is as of a global time.
        """
        least = self._waiting.least
        return self._heartbeat if least >= self._heartbeat else global_time_of(least)

    @property
    def _least_later(self) -> bytes | None:
        """The least global time of later items, and of items below the heartbeat that wait to be processed."""
        later, least = self._worker.least_later, self._waiting.least
        if least >= self._heartbeat:
            return later
        return global_time_of(least) if later is None else min(later, global_time_of(least))

    def _learn(self, items: int, made: Sequence[Part]) -> None:
        """Judge the next batch by the output of this one: as many items as stay in the processor's cache."""
        items_out = _items_of(made)
        items_max = self._policy.items_max * 2 * items // (items + max(items, items_out)) if items else 0
        if items == items_out and not self._waiting:  # the end of a digest block is encoded at once
            items_max -= (self._barrier.position + items_out) % min(self._policy.items_max, BLOCK_ITEMS)
        self._policy.learn(items, made_bytes(columns.payloads for _, columns in made), items_max=items_max)

    def _update_progress(self) -> None:
        progress, feed = self.progress, self._feed
        progress.items_in = feed.items_in
        progress.late_items = feed.late_found
        progress.fraction = feed.fraction()
        progress.tombstones = self._worker.tombstones
        progress.minimal_bytes = progress.released_below = self._acker.minimal_time
        holder = self._acker.held_by()
        progress.held_by = f"source {feed.name_of(holder)}" if holder is not None else ""
        progress.silent_since_s = feed.intake.silent_since_s(holder) if holder is not None else None
        progress.items_out = self._barrier.position
        progress.unsettled = feed.unsettled(progress.minimal_bytes)

    def hexdigest(self) -> str:
        return self._barrier.digest.hexdigest()

    def blocks(self) -> list[bytes]:
        return self._barrier.digest.blocks

    def encoded(self) -> Sequence[Encoded]:
        """The bytes of the last batch's items, for a record: so they are encoded only once. None before the first call,
        from which on they are kept.
        """
        self._barrier.keeps_encoded = True
        return self._barrier.encoded

    def observed(self) -> Observed:
        bars = {"run": self._timeline.take()} if self._timeline is not None else {}
        return Observed(self._plan.totals(), self._plan.inside_loops(), [own_state("run")], bars)

    def close(self) -> None:
        if self._overflow is not None:
            self._overflow.close()
        self._feed.close()


def _items_of(parts: Sequence[Part]) -> int:
    return sum(len(columns.metas) for _, columns in parts)
