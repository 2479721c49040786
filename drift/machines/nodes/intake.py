"""The sources of a run without their readers: which may be read, how much, and the batch made from each read.

Invariant: no source has more than `in_flight_max` unsettled items, and the source with the least heartbeat is read
first. `Inputs` decides where the input ends and which late items are reported, in whatever order sources are read.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

from drift.machines.nodes.batching import BatchPolicy
from drift_graph.errors import SettingsError
from drift_graph.inputs import Inputs
from drift_graph.meta import BEGINNING, END_OF_TIME, pack_time
from drift_graph.metas import Metas
from drift_graph.payloads import are_rows
from drift_graph.rereading import Position, Rereading
from drift_graph.times import Arrived, SourceMachine


class Fed(NamedTuple):
    """The input of the dataflow from one source: items, or only a heartbeat."""

    name: str
    rank: int
    arrived: Arrived


class Intake:
    """
    Args:
        machines: of all sources, by rank.
        batch_items: most items of a source at once.
        in_flight_max: most unsettled items of a source.
        now_s: the clock at the start.

    Attributes:
        policy: how many items of a source are read at once: the argument, at first.
        error: with which the input ends, once all sources have reached its position in the order.
        waiting: items that wait until all sources are past them, so that nothing is known of what they make; as many
            may be read at once, whatever the policy has learned: that at most doubles what waits.
        rereadings: the position from which each source would be read again.
        late_below: late items that were skipped because they are below the checkpoint that the run resumes from.
        beat_interval_s: a silent source moves its heartbeat at most this often.
        paused: ranks of the sources that are at their present ends, and are to be read on in a later run: their
            heartbeats stay where they are.
    """

    def __init__(
        self, machines: Sequence[SourceMachine], *, batch_items: int, in_flight_max: int, now_s: float = 0.0
    ) -> None:
        self.machines = machines
        self.inputs = Inputs(machines)
        self.policy = BatchPolicy(batch_items)
        self.error: Exception | None = None
        self.waiting = 0
        self._in_flight_max = in_flight_max
        self._starved = [False] * len(machines)  # has input but no credit
        self._last_item_s = [now_s] * len(machines)
        self._last_batch_s = [now_s] * len(machines)
        self._idle: set[int] = set()  # ranks of the sources that have given nothing since they were found idle
        self._last_heartbeats = [BEGINNING] * len(machines)  # their last heartbeats before they ended
        self._checkpoints = [BEGINNING] * len(machines)  # items below were processed before the run resumed
        self.late_below = 0
        self.beat_interval_s = 0.0
        self.rereadings = [Rereading(machine) for machine in machines]
        self._batches_taken = 0
        self.paused: set[int] = set()

    def resume(self, checkpoint: bytes) -> None:
        """Resume from a checkpoint, before anything is read: items below it were processed before, and are skipped."""
        self._checkpoints = [checkpoint] * len(self.machines)
        self._last_heartbeats = [max(heartbeat, checkpoint) for heartbeat in self._last_heartbeats]

    def _above_checkpoint(self, rank: int, arrived: Arrived) -> Arrived:
        checkpoint = self._checkpoints[rank]
        if not checkpoint:
            return arrived
        metas, payloads, heartbeat, late, error = arrived
        if heartbeat >= checkpoint:  # no more items below the checkpoint
            self._checkpoints[rank] = BEGINNING
        if metas and metas.least() < checkpoint:
            new = [at for at, meta in enumerate(metas) if meta >= checkpoint]
            metas, payloads = metas.take(new), [payloads[at] for at in new]
        passed = [each for each in late if pack_time(each.heartbeat) < checkpoint]
        self.late_below += len(passed)
        return Arrived(metas, payloads, max(heartbeat, checkpoint), late[len(passed) :], error)

    @property
    def finished(self) -> bool:
        return all(machine.finished for machine in self.machines)

    @property
    def live(self) -> bool:
        """Whether any source that may be read is live."""
        return any(self.machines[rank].live for rank in self.readable())

    @property
    def _live_lateness_s(self) -> float | None:
        live = [self.machines[rank].policy.lateness for rank in self.readable() if self.machines[rank].live]
        return min(live) / 1000 if live else None

    @property
    def items_in(self) -> int:
        return sum(machine.items_in for machine in self.machines)

    @property
    def heartbeat(self) -> bytes:
        return min((machine.heartbeat for machine in self.machines), default=END_OF_TIME)

    def unsettled(self, minimal_time: bytes) -> int:
        """Items of all sources at or above minimal time."""
        return sum(machine.unsettled(minimal_time) for machine in self.machines)

    def readable(self) -> list[int]:
        """Ranks of the sources that have not ended, and whose items may still be in the output."""
        return [rank for rank in range(len(self.machines)) if rank not in self.paused and self.inputs.may_read(rank)]

    def is_at_rest(self, minimal_time: bytes) -> bool:
        """Whether sources have paused, and no other could give what is released before these go on."""
        return bool(self.paused) and all(
            self._waits_for_paused(rank) or self.room(rank, minimal_time) <= 0 for rank in self.readable()
        )

    def _waits_for_paused(self, rank: int) -> bool:
        """Whether a source is past one that has paused, so that nothing of it is released; one that is live is read."""
        machines = self.machines
        least = min((machines[each].heartbeat for each in self.paused), default=END_OF_TIME)
        return not machines[rank].live and machines[rank].heartbeat > least

    def starved(self, rank: int) -> bool:
        """Whether a source had no credit at the last attempt to read it."""
        return self._starved[rank]

    def silent_since_s(self, rank: int) -> float | None:
        """When a source that may be read last gave items or a greater heartbeat."""
        return self._last_batch_s[rank] if self.inputs.may_read(rank) else None

    def room(self, rank: int, minimal_time: bytes) -> int:
        """How many items a source may give now, by its credit."""
        return self._in_flight_max - self.machines[rank].unsettled(minimal_time) - self.inputs.held(rank)

    def turns(self, minimal_time: bytes) -> Iterator[tuple[int, int]]:
        """Sources to read, in order: the rank and the most items; each must be read before the next is asked for."""
        if self.error is not None:
            return
        machines, before = self.machines, self._batches_taken
        readable = self.readable()
        least = min((machines[rank].heartbeat for rank in readable), default=END_OF_TIME)
        for rank in sorted(readable, key=lambda rank: (not machines[rank].live, machines[rank].heartbeat != least)):
            if not self.inputs.may_read(rank):
                continue  # meanwhile another source has failed below it
            if self._waits_for_paused(rank):
                continue
            machine = machines[rank]
            if (
                not machine.live
                and machine.heartbeat != least
                and (self._batches_taken > before or self._finite_behind(least))
            ):
                continue  # a finite source waits for those behind, so that the sources' times stay close
            room = self.room(rank, minimal_time)
            self._starved[rank] = room <= 0
            if room > 0:
                yield rank, min(room, max(self.policy.items, min(self.waiting, self.policy.items_max)))

    def _finite_behind(self, least: bytes) -> bool:
        behind = (rank for rank in self.readable() if self.machines[rank].heartbeat == least)
        return any(not self.machines[rank].live and not self._starved[rank] for rank in behind)

    def give(
        self, rank: int, payloads: list[Any] | None, now_ms: int, now_s: float, before: Position | None = None
    ) -> Fed | None:
        """Make the batch of a source from the payloads read.

        Args:
            payloads: read from the source; None if its input has ended.
            now_ms: wall-clock time, for live sources.
            before: the position from which these payloads can be read again, if the source has positions.
        """
        machine = self.machines[rank]
        made = machine.heartbeat
        self.policy.note_read(rank, len(payloads or ()), now_s, self._live_lateness_s)
        if payloads is None:
            return self._ended(rank)
        if payloads:
            self._last_item_s[rank] = self._last_batch_s[rank] = now_s
            self._idle.discard(rank)
            arrived = machine.take(payloads, now_ms)
            if are_rows(arrived.payloads):
                self.policy.note_rows()
            if before is not None:
                self.rereadings[rank].add(before, arrived)
            arrived = self._arrived(rank, arrived)
            self._last_heartbeats[rank] = arrived.heartbeat
            return self._fed(rank, arrived)
        if now_s < self._last_batch_s[rank] + self.beat_interval_s:
            return None
        heartbeat = machine.tick(now_ms)
        idle_after_ms = machine.policy.idle_after_ms
        if idle_after_ms is not None and (now_s - self._last_item_s[rank]) * 1000 >= idle_after_ms:
            heartbeat = self.idle(rank)
        self._last_heartbeats[rank] = heartbeat
        if heartbeat == made:
            return None
        self._last_batch_s[rank] = now_s
        return self.beat(rank, heartbeat)

    def _ended(self, rank: int) -> Fed:
        """The last batch of a source whose input has ended."""
        machine = self.machines[rank]
        has_held = machine.has_held
        arrived = machine.settle()
        if has_held:
            self.rereadings[rank].end(arrived)
            arrived = self._arrived(rank, arrived)
        if arrived.error is not None:
            self._last_heartbeats[rank] = arrived.heartbeat
            return self._fed(rank, arrived)
        self._last_heartbeats[rank] = machine.above_all_items()
        return self._fed(rank, arrived._replace(heartbeat=machine.finish()))

    def _arrived(self, rank: int, arrived: Arrived) -> Arrived:
        """Note what a source gave, and leave out what is below the checkpoint that the run resumes from."""
        arrived = self._above_checkpoint(rank, arrived)
        self.inputs.divert(rank, arrived.late)
        if arrived.error is not None:
            self.inputs.fail(rank, arrived.error)
        return arrived

    def beat(self, rank: int, heartbeat: bytes) -> Fed:
        """Note a heartbeat without items."""
        heartbeat = max(heartbeat, self._checkpoints[rank])
        self._last_heartbeats[rank] = heartbeat
        return self._fed(rank, Arrived(Metas(), [], heartbeat, [], None))

    def repeat(self, rank: int, arrived: Arrived) -> Fed:
        """Give what the source gave in the recorded run, for a replay."""
        self.machines[rank].repeat(arrived)
        self._last_heartbeats[rank] = arrived.heartbeat
        self.inputs.divert(rank, arrived.late)
        return self._fed(rank, arrived)

    def _fed(self, rank: int, arrived: Arrived) -> Fed:
        self._batches_taken += 1
        return Fed(self.machines[rank].name, rank, arrived)

    def idle(self, rank: int) -> bytes:
        """A source is idle by its policy until it gives items again: move its heartbeat, and return it."""
        self._idle.add(rank)
        return self.machines[rank].idle(self.bound_by_others(rank))

    def bound_by_others(self, rank: int) -> bytes:
        """The heartbeat up to which a source moves that is idle: the least of those that are not.

        A source that is idle, or has ended, holds back no other; where all others are, it is the greatest of theirs,
        of one that has ended its last before the end. So sources that are idle at once do not wait for each other.
        """
        others = [other for other in range(len(self.machines)) if other != rank]
        holding = [other for other in others if other not in self._idle and not self.machines[other].finished]
        least_or_greatest = min if holding else max
        return least_or_greatest((self._last_heartbeats[other] for other in holding or others), default=BEGINNING)

    def out_of_credit(self, minimal_time: bytes) -> SettingsError | None:
        """The error to end with if no source may be read, and nothing in flight can change that; else None."""
        readable = self.readable()
        if not readable or self.paused or any(self.room(rank, minimal_time) > 0 for rank in readable):
            return None
        holder = min((self.machines[rank] for rank in readable), key=lambda machine: machine.heartbeat)
        return SettingsError(
            f"source {holder.name!r} has {self._in_flight_max} items that its own heartbeat holds back, and may read "
            f"no more: its time policy ({holder.policy.label}) keeps more items unsettled than in_flight_max "
            f"allows; raise in_flight_max or lower the lateness"
        )
