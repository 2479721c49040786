"""The input from sources with their readers: a shell that reads sources as `Intake` decides, and reads the clocks.

Invariant: a reader is only read when the intake says so, and for at most as many items as it says.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Protocol

from drift.engines.feed import Feed
from drift.engines.logged import ArrivalLog, Entry, why_logged
from drift.engines.observed import SourceState
from drift.engines.over import refuse_more
from drift.engines.settings import Settings
from drift.engines.whole import WholeSource
from drift.guarantees import gives_once
from drift.machines.nodes.intake import Fed
from drift.sources.base import Reader, Source, as_reader, as_rows, warn_of_loss
from drift.sources.ended import note_end
from drift.state.settings import Checkpoints, log_folder_of
from drift.undisturbed import undisturbed
from drift_graph.errors import DriftError, InputError, SettingsError
from drift_graph.graph import Dataflow
from drift_graph.lateness import Late
from drift_graph.meta import END_OF_TIME
from drift_graph.policies import TimePolicy
from drift_graph.rereading import Position, as_plain, from_plain
from drift_graph.times import Arrived, SourceMachine

if TYPE_CHECKING:
    from drift.records.messages import Stored

_ACKNOWLEDGE_S = 1.0


class InputRecorder(Protocol):
    """Records the input of a run."""

    def read(self, name: str, payloads: list[Any]) -> tuple[list[Any], Exception | None]:
        """Take what was read from a source; returns the payloads to use, and the error that follows them, if any."""

    def arrived(self, name: str, rank: int, arrived: Arrived) -> None:
        """Take a batch of a source, before the engine gets it."""

    def arrived_stored(self, batch: Stored) -> None:
        """Take a batch that the engine itself reads from a source, before it is processed."""


class SourceFeed(Feed):
    """All sources of a run.

    Args:
        sources: for each source of the graph, where its items come from.
        times: time policies that replace the graph's.
        settings: how much is read at once, and may be unsettled.
        on_late: called with each item that a policy diverts.
        recorder: hears of all that is read.
        complete: whether input that ends is complete; otherwise a source that ends pauses, and goes on in a later run.
        state: of the run, where sources are logged that cannot be read again to the same effect; None if `positions_at`
            will not be called.
    """

    _acknowledging: Sequence[int] = ()  # sources that get acknowledgements of released items
    _acknowledged_s = 0.0
    _wants_backlogs = False
    _backlogs: Mapping[str, tuple[int, str] | None] = MappingProxyType({})

    def __init__(
        self,
        dataflow: Dataflow,
        sources: Mapping[str, Source],
        times: Mapping[str, TimePolicy],
        settings: Settings,
        *,
        on_late: Callable[[Late], None],
        recorder: InputRecorder | None = None,
        state: Checkpoints | None = None,
        complete: bool = True,
    ) -> None:
        self._is_complete = complete
        self.has_positions = state is not None
        self._state = state
        self._logs: dict[int, ArrivalLog] = {}
        self._repeats: dict[int, Iterator[Entry]] = {}  # logs that are replayed before their sources are read
        self._sought: dict[int, Any] = {}  # the position from which a reader then continues
        self._recorder = recorder
        self.on_stored = recorder.arrived_stored if recorder is not None else None
        self._opened: list[Source] = []
        self._readers: list[Reader] = []
        self._is_over = False  # the run that is called again had ended
        self._unlogged: dict[int, list[Any]] = {}  # what was read behind an item that could not be logged
        machines: list[SourceMachine] = []
        try:
            for rank, source in enumerate(dataflow.sources):
                opened = as_rows(sources[source.name], source.rows)
                if source.diverting and hasattr(opened, "diverting"):
                    opened = opened.diverting(source.name)
                policy = times.get(source.name, source.time)
                if policy.is_whole:
                    sorter = SourceMachine.of(source, rank, policy)
                    opened = WholeSource(opened, sorter, policy, settings.memory_in_all, complete=complete)
                    policy = policy.in_order()
                machines.append(SourceMachine.of(source, rank, policy, live=opened.live))
                self._opened.append(opened)
                self._readers.append(as_reader(opened.open()))
                self._end_anew(rank)
                if state is not None and (why := why_logged(opened, policy, self._readers[-1])):
                    self._logs[rank] = _log_of(state, source.name, why)
        except BaseException:
            self.close()
            raise
        self._acknowledging = [rank for rank, reader in enumerate(self._readers) if reader.acknowledges]
        super().__init__(
            machines, batch_items=settings.items_at_once, in_flight_max=settings.in_flight_max, on_late=on_late
        )
        self.intake.policy.rows_for_item = settings.rows_for_item
        self.sources = sources

    def fraction(self) -> float | None:
        """The share of the input that has been read, 0 to 1; None if a source does not know."""
        known = [reader.fraction() for reader in self._readers]
        parts = [part for part in known if part is not None]
        return min(parts) if parts and len(parts) == len(self._readers) else None

    def states(self) -> list[SourceState]:
        """The state of each source; callable from any thread. Backlogs are those found at the poll after the call
        before: readers are asked where they are read.
        """
        self._wants_backlogs = True
        backlogs = self._backlogs
        return [each._replace(backlog=backlogs.get(each.name)) for each in super().states()]

    def _find_backlogs(self) -> None:
        self._wants_backlogs = False
        self._backlogs = {
            machine.name: reader.backlog()
            for rank, (machine, reader) in enumerate(zip(self.intake.machines, self._readers))
            if not machine.finished and rank not in self._sought
        }

    def positions_at(self, checkpoint: bytes) -> dict[str, Any]:
        """For each source the position from which everything at or above a checkpoint can be read again; JSON values.

        Checkpoints must not decrease from call to call. Only with `has_positions`.
        """
        assert self.has_positions
        found = [self.intake.rereadings[rank].at(checkpoint, self._here(rank)) for rank in range(len(self._readers))]
        for rank in self._acknowledging:
            self._acknowledge(rank, found[rank])
        return {self.name_of(rank): as_plain(position) for rank, position in enumerate(found)}

    def released(self, below: bytes, *, last: bool = False) -> None:
        """The sinks have all output below this, which never decreases; about once a second, acknowledge it to sources.

        Args:
            last: whether this is the last call.
        """
        if not self._acknowledging or (not last and time.monotonic() - self._acknowledged_s < _ACKNOWLEDGE_S):
            return
        self._acknowledged_s = time.monotonic()
        if not self.has_positions:  # otherwise checkpoints acknowledge, which may be lower
            for rank in self._acknowledging:
                self._acknowledge(rank, self.intake.rereadings[rank].at(below, self._here(rank)))

    def _acknowledge(self, rank: int, position: Position) -> None:
        if position.reader is not None:
            self._readers[rank].released(position.reader)

    def committed(self, positions: Mapping[str, Any]) -> None:
        """The run can resume from these positions, so drop what only earlier checkpoints need."""
        for rank, log in self._logs.items():
            position = from_plain(self.name_of(rank), positions[self.name_of(rank)])
            log.drop_below(position.entry or 0)
        for rank, reader in enumerate(self._readers):
            position = from_plain(self.name_of(rank), positions[self.name_of(rank)])
            if position.reader is not None:
                reader.drop_below(position.reader)

    def resume(self, positions: Mapping[str, Any], checkpoint: bytes) -> None:
        """Resume at a checkpoint: called before anything is read, so that the sources give everything at or above the
        checkpoint.

        Args:
            positions: from `positions_at`; a source that is not in it starts from the beginning, after its log.

        Raises:
            InputError: a source no longer has its data.
        """
        self._is_over = checkpoint == END_OF_TIME
        for rank, machine in enumerate(self.intake.machines):
            entry, reader = 0, None
            if machine.name in positions:
                position = from_plain(machine.name, positions[machine.name])
                machine.resume(position.judging, position.stamp_count)
                entry, reader = position.entry or 0, position.reader
                if position.entry is not None and rank not in self._logs and not self._is_over:
                    assert self._state is not None
                    self._logs[rank] = _log_of(self._state, machine.name, "it was live")
            self._sought[rank] = reader
            if self._is_over:
                continue
            if rank in self._logs:
                self._logs[rank].next_number = entry
                self._repeats[rank] = self._logs[rank].repeat(entry)
            else:
                self._seek(rank)
        self.intake.resume(checkpoint)
        self.late_items = sum(machine.late_items for machine in self.intake.machines)

    def refuse_more(self, positions: Mapping[str, Any], where: str) -> None:
        for rank, opened in enumerate(self._opened):
            name = self.name_of(rank)
            if name in positions:
                refuse_more(name, self._readers[rank], positions[name], where)
                self._readers[rank].close()
                self._readers[rank] = as_reader(opened.open())

    def _seek(self, rank: int) -> None:
        position = self._sought.pop(rank, None)
        if position is not None:
            self._readers[rank].seek(position)
            self._end_anew(rank)

    def _end_anew(self, rank: int) -> None:
        """Where its end is none of the input, that of the next call is another: no position has it."""
        if not self._is_complete:
            self._readers[rank].end_anew()
            self._readers[rank].pause_at_end()

    def _here(self, rank: int) -> Position:
        log = self._logs.get(rank)
        position = self._sought[rank] if rank in self._sought else self._readers[rank].position()
        return self.intake.rereadings[rank].here(position, None if log is None else log.next_number)

    def filenos(self) -> Sequence[int]:
        """Descriptors to wait on for live items, of the sources that may be read."""
        ready = [self._readers[rank] for rank in self.intake.readable() if not self.intake.starved(rank)]
        return [number for reader in ready for number in reader.filenos()]

    def poll(self, minimal_time: bytes) -> list[Fed]:
        """The batches that the sources have now; blocks only if every source that may be read is finite.

        A source that fails is no longer read; the others are read until they are past the time of the failure. Then
        `error` is set, and no more batches come.
        """
        if self.error is not None:
            return []
        if self._wants_backlogs:
            self._find_backlogs()
        if self.stopped or self._is_over:
            return [*self._last_taken(), *self._ended()]
        fed: list[Fed] = []
        for rank, items_max in self.intake.turns(minimal_time):
            batch = self._read(rank, items_max)
            if batch is not None:
                self._announce(batch)
                fed.append(batch)
        self._find_late()
        self.error = self.intake.inputs.error
        return fed

    @undisturbed
    def _announce(self, batch: Fed) -> None:
        super()._announce(batch)
        if self._recorder is not None:
            self._recorder.arrived(*batch)

    def _read(self, rank: int, items_max: int) -> Fed | None:
        machine = self.intake.machines[rank]
        has_position = self.has_positions or rank in self._acknowledging
        before = self._here(rank) if has_position else None
        try:
            if rank in self._repeats:
                entry = next(self._repeats[rank], None)
                if entry is not None:
                    return self._repeat(rank, entry, before)
                del self._repeats[rank]
                self._seek(rank)
                before = self._here(rank) if has_position else None
            payloads = self._readers[rank].read(items_max)
            if payloads is None and not self.stopped:
                note_end(getattr(self.sources[machine.name], "read_once", None))
        except DriftError as error:
            self.intake.inputs.fail(rank, error)
            return None
        except Exception as error:
            failed = InputError(
                f"source {machine.name!r} raised {type(error).__name__} after {machine.items_in} items: {error}"
            )
            failed.__cause__ = error
            self.intake.inputs.fail(rank, failed)
            return None
        refused = None
        if payloads and self._recorder is not None:
            payloads, refused = self._recorder.read(machine.name, payloads)
        now_ms = time.time_ns() // 1_000_000 if machine.live else 0
        log = self._logs.get(rank)
        if log is not None and payloads:
            now_ms = machine.stamp_at(now_ms) if machine.live else 0
            read = payloads
            payloads, unlogged = log.items(read, now_ms, self._readers[rank].position())
            if unlogged is not None:
                self._unlogged[rank], refused = read[len(payloads) + 1 :], unlogged
        elif payloads is None and refused is None and not self._is_complete:
            self.intake.paused.add(rank)
            return None
        elif log is not None and payloads is None and refused is None:
            log.end()
        batch = None
        if payloads or refused is None:
            least = machine.least_time
            batch = self.intake.give(rank, payloads, now_ms, time.monotonic(), before)
            if log is not None and not payloads and machine.least_time > least:  # the idle policy has decided
                log.heartbeat(machine.least_time)
        if refused is not None and (batch is None or batch.arrived.error is None):
            self.intake.inputs.fail(rank, refused)
        return batch

    def _halts(self, rank: int) -> bool:
        """Have a source take no more, if it gives once what it may have taken and was not read."""
        return gives_once(self._opened[rank]) and self._readers[rank].halt()

    def _last_taken(self) -> list[Fed]:
        """Of a run that is stopped: what its sources have taken, and give once."""
        fed = []
        for rank in self.intake.readable():
            machine = self.intake.machines[rank]
            if self._halts(rank):
                while not machine.finished and (batch := self._read(rank, self.intake.policy.items)) is not None:
                    self._announce(batch)
                    fed.append(batch)
        return fed

    def _log_left(self, rank: int) -> None:
        """Log what a source has taken, gives once, and was not read: the next run has it from there."""
        if rank in self._repeats:
            return
        machine, log, reader = self.intake.machines[rank], self._logs[rank], self._readers[rank]
        batches = [self._unlogged.pop(rank, [])]
        is_ahead = self._halts(rank)
        if is_ahead:
            batches += reader.left()
        position = reader.position()
        has_moved = is_ahead and position is not None
        if not has_moved and not any(map(len, batches)):
            return
        now_ms = machine.stamp_at(time.time_ns() // 1_000_000) if machine.live else 0
        if has_moved:
            log.items([], now_ms, position)
        for batch in batches:
            while len(batch):
                logged, refused = log.items(batch, now_ms, position)
                if refused is not None:
                    warn_of_loss(refused)
                batch = batch[len(logged) + 1 :]

    def _repeat(self, rank: int, entry: Entry, before: Position | None) -> Fed | None:
        """A batch from the log of a source, with the stamps and heartbeats that the clock decided then."""
        machine = self.intake.machines[rank]
        if before is not None:
            before = before._replace(entry=entry.number)
        if entry.heartbeat is not None:
            return self.intake.beat(rank, machine.advance(entry.heartbeat))
        if entry.payloads is not None:
            self._sought[rank] = entry.reader
        return self.intake.give(rank, entry.payloads, entry.at_ms, time.monotonic(), before)

    def close(self) -> None:
        with contextlib.ExitStack() as stack:
            for log in self._logs.values():
                stack.callback(log.close)
            for reader in self._readers:
                stack.callback(reader.close)
            for rank in self._logs:
                stack.callback(self._log_left, rank)


def _log_of(state: Checkpoints, source: str, why: str) -> ArrivalLog:
    """Raises SettingsError: there is no folder."""
    folder = log_folder_of(state)
    if folder is None:
        raise SettingsError(
            f"source {source!r} cannot be read again to the same effect ({why}), so what it gives is logged in a "
            f"folder, and the state is stored on a server: name a folder too, logs= of drift.Checkpoints, or "
            f"--state-logs"
        )
    return ArrivalLog(folder, source, on_disk=state.logs_on_disk)
