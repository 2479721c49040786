"""The sources of a run with their readers: a shell that reads what `Intake` says, and asks the clocks.

Invariant: a reader is read when the intake says so, for as many items as it says, and by nobody else.
"""

from __future__ import annotations

import contextlib
import select
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from drift.engines.logged import ArrivalLog, Entry, why_logged
from drift.engines.observed import SourceState
from drift.machines.nodes.intake import Fed, Intake
from drift.sources.base import Acknowledging, Positioned, Reader, SetsApart, Source
from drift.undisturbed import undisturbed
from drift_graph.errors import DriftError, InputError, SettingsError
from drift_graph.graph import Dataflow
from drift_graph.lateness import Late
from drift_graph.policies import TimePolicy
from drift_graph.rereading import Position, as_plain, from_plain
from drift_graph.times import Arrived, SourceMachine

if TYPE_CHECKING:
    from drift.records.messages import Stored

_TICK_S = 0.001
_ACKNOWLEDGE_S = 1.0


class Feed:
    """All sources of a run.

    Args:
        dataflow: the graph.
        sources: for each source of the graph, where its items come from.
        times: time policies that replace the graph's.
        batch_items: most items read from a source at once.
        in_flight_max: most unsettled items of a source.
        on_late: takes the items that a policy diverts.
        on_read: is given what a source has read, and gives back what is to be taken, and the error that comes after it.
        on_fed: called with what a source hands over, before the engine gets it.
        on_stored: called with what an engine itself reads of a source, before it computes with it.
        keeps_positions: `positions_at` will be asked.
        log_folder: for logs of the sources that cannot be read again to the same effect, where positions are kept.
        logs_on_disk: these wait for the disk.

    Attributes:
        intake: decides which source is read, and how much of it; an engine may set how much at once.
        error: what the input ends with, once all sources have come to its place in the order.
        late_items: number of late items diverted and reported.
    """

    _acknowledging: Sequence[int] = ()  # sources that get acknowledgements of released items
    _acknowledged_s = 0.0

    def __init__(
        self,
        dataflow: Dataflow,
        sources: Mapping[str, Source],
        times: Mapping[str, TimePolicy],
        *,
        batch_items: int,
        in_flight_max: int,
        on_late: Callable[[Late], None],
        on_read: Callable[[str, list[Any]], tuple[list[Any], Exception | None]] | None = None,
        on_fed: Callable[[str, int, Arrived], None] | None = None,
        on_stored: Callable[[Stored], None] | None = None,
        keeps_positions: bool = False,
        log_folder: Path | None = None,
        logs_on_disk: bool = False,
    ) -> None:
        self._keeps_positions = keeps_positions
        self._logs: dict[int, ArrivalLog] = {}
        self._repeats: dict[int, Iterator[Entry]] = {}  # logs that are repeated before their sources are read
        self._sought: dict[int, Any] = {}  # where a reader is to begin, behind those
        self._on_read = on_read
        self._on_fed = on_fed
        self.on_stored = on_stored
        self._on_late = on_late
        self.sources = sources
        self.stopped = False
        self.late_items = 0
        self._readers: list[Reader] = []
        machines: list[SourceMachine] = []
        try:
            for rank, source in enumerate(dataflow.sources):
                given = sources[source.name]
                if source.sets_apart:
                    given = given.setting_apart(source.name) if isinstance(given, SetsApart) else given
                policy = times.get(source.name, source.time)
                machines.append(SourceMachine(source.name, rank, policy, live=given.live, sets_apart=source.sets_apart))
                self._readers.append(given.open())
                if keeps_positions and (why := why_logged(given, policy, self._readers[-1])):
                    folder = _folder_of_logs(log_folder, source.name, why)
                    self._logs[rank] = ArrivalLog(folder, source.name, on_disk=logs_on_disk)
        except BaseException:
            self.close()
            raise
        readers = enumerate(self._readers)
        self._acknowledging = [at for at, each in readers if isinstance(each, Acknowledging) and each.acknowledges]
        self.intake = Intake(machines, batch_items=batch_items, in_flight_max=in_flight_max, now_s=time.monotonic())

    @property
    def error(self) -> Exception | None:
        return self.intake.error

    @error.setter
    def error(self, error: Exception | None) -> None:
        self.intake.error = error

    @property
    def batch_items(self) -> int:
        return self.intake.batch_items

    @property
    def finished(self) -> bool:
        """Nothing more will come."""
        return self.intake.finished

    @property
    def live(self) -> bool:
        """Some source that may be read is live."""
        return self.intake.live

    @property
    def items_in(self) -> int:
        return self.intake.items_in

    def unsettled(self, minimal_time: bytes) -> int:
        """Items of all sources at or above minimal time."""
        return self.intake.unsettled(minimal_time)

    def fraction(self) -> float | None:
        """How much of the input has been read, 0 to 1, as far as the sources know."""
        known = [reader.fraction() for reader in self._readers if hasattr(reader, "fraction")]
        parts = [part for part in known if part is not None]
        return min(parts) if parts and len(parts) == len(self._readers) else None

    def name_of(self, rank: int) -> str:
        return self.intake.machines[rank].name

    def states(self) -> list[SourceState]:
        """Where each source stands; from any thread."""
        intake = self.intake
        return [
            SourceState(
                machine.name,
                machine.items_in,
                machine.late_items,
                machine.heartbeat,
                None if machine.finished else intake.silent_since_s(rank),
            )
            for rank, machine in enumerate(intake.machines)
        ]

    def policy_of(self, name: str) -> TimePolicy:
        """The time policy of a source in this run."""
        return next(machine.policy for machine in self.intake.machines if machine.name == name)

    @property
    def heartbeat(self) -> bytes:
        """The least of all sources."""
        return self.intake.heartbeat

    def positions_at(self, cut: bytes) -> dict[str, Any]:
        """Where each source is to be read from again for everything at or above a cut; for JSON.

        Cuts may not go back from call to call. Only where `keeps_positions` was asked for.
        """
        assert self._keeps_positions
        found = [self.intake.rereadings[rank].at(cut, self._here(rank)) for rank in range(len(self._readers))]
        for rank in self._acknowledging:
            self._acknowledge(rank, found[rank])
        return {self.name_of(rank): as_plain(position) for rank, position in enumerate(found)}

    def released(self, below: bytes, *, last: bool = False) -> None:
        """The sinks got all output below this, which never decreases; acknowledging sources get it from time to time.

        Args:
            last: whether this is the last call.
        """
        if not self._acknowledging or (not last and time.monotonic() - self._acknowledged_s < _ACKNOWLEDGE_S):
            return
        self._acknowledged_s = time.monotonic()
        if not self._keeps_positions:  # else by cuts, which may be below that
            for rank in self._acknowledging:
                self._acknowledge(rank, self.intake.rereadings[rank].at(below, self._here(rank)))

    def _acknowledge(self, rank: int, position: Position) -> None:
        reader = self._readers[rank]
        if position.reader is not None and isinstance(reader, Acknowledging):
            reader.released(position.reader)

    def committed(self, positions: Mapping[str, Any]) -> None:
        """The run can go on from these, so what only an earlier cut would need is dropped from the logs."""
        for rank, log in self._logs.items():
            position = from_plain(self.name_of(rank), positions[self.name_of(rank)])
            log.drop_below(position.entry or 0)

    def go_on(self, positions: Mapping[str, Any], cut: bytes) -> None:
        """Before anything is read: give what is at or above a cut, as a run did that said where that is.

        Args:
            positions: what `positions_at` gave; a source that is not in it begins anew, but for its log.

        Raises:
            InputError: a source has not any more what it had.
        """
        for rank, machine in enumerate(self.intake.machines):
            entry, reader = 0, None
            if machine.name in positions:
                position = from_plain(machine.name, positions[machine.name])
                machine.go_on(position.judging, position.place)
                entry, reader = position.entry or 0, position.reader
            self._sought[rank] = reader
            if rank in self._logs:
                self._logs[rank].next_number = entry
                self._repeats[rank] = self._logs[rank].repeat(entry)
            else:
                self._seek(rank)
        self.intake.go_on(cut)
        self.late_items = sum(machine.late_items for machine in self.intake.machines)

    def _seek(self, rank: int) -> None:
        position, reader = self._sought.pop(rank, None), self._readers[rank]
        if position is not None and isinstance(reader, Positioned):
            reader.seek(position)

    def _here(self, rank: int) -> Position:
        reader, log = self._readers[rank], self._logs.get(rank)
        if rank in self._sought:
            position = self._sought[rank]
        else:
            position = reader.position() if isinstance(reader, Positioned) else None
        return self.intake.rereadings[rank].here(position, None if log is None else log.next_number)

    def wait(self) -> None:
        """Wait a moment for what live sources and pipes bring."""
        select.select(self.filenos(), (), (), _TICK_S)

    def filenos(self) -> Sequence[int]:
        """What to wait on for live items: that of sources which may be read."""
        ready = [self._readers[rank] for rank in self.intake.readable() if not self.intake.starved(rank)]
        return [number for reader in ready for number in reader.filenos()]

    def poll(self, minimal_time: bytes) -> list[Fed]:
        """What the sources have now: blocks only where every source that could be read is finite.

        A source that fails gives nothing more, and the others go on until they are past its place. Then `error` is set,
        and nothing more comes.
        """
        if self.error is not None:
            return []
        if self.stopped:
            return self._ended()
        fed: list[Fed] = []
        for rank, items_max in self.intake.turns(minimal_time):
            given = self._read(rank, items_max)
            if given is not None:
                self._announce(given)
                fed.append(given)
        self._report_late()
        self.error = self.intake.inputs.error
        return fed

    def stop(self) -> None:
        """From any thread: the sources end where they have been read to."""
        self.stopped = True

    def _ended(self) -> list[Fed]:
        """The end of every source that has not ended."""
        fed = [self.intake.give(rank, None, 0, 0.0) for rank in self.intake.readable()]
        ends = [given for given in fed if given is not None]
        for given in ends:
            self._announce(given)
        self._report_late()
        self.error = self.intake.inputs.error
        return ends

    def _report_late(self) -> None:
        self.late_items += self.intake.late_below
        self.intake.late_below = 0
        for late in self.intake.inputs.take_late():
            self.late_items += 1
            self._on_late(late)

    def _read(self, rank: int, items_max: int) -> Fed | None:
        machine = self.intake.machines[rank]
        keeps = self._keeps_positions or rank in self._acknowledging
        before = self._here(rank) if keeps else None
        try:
            if rank in self._repeats:
                entry = next(self._repeats[rank], None)
                if entry is not None:
                    return self._repeat(rank, entry, before)
                del self._repeats[rank]
                self._seek(rank)
                before = self._here(rank) if keeps else None
            payloads = self._readers[rank].read(items_max)
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
        if payloads and self._on_read is not None:
            payloads, refused = self._on_read(machine.name, payloads)
        now_ms = time.time_ns() // 1_000_000 if machine.live else 0
        log = self._logs.get(rank)
        if log is not None and payloads:
            now_ms = machine.stamp_at(now_ms) if machine.live else 0
            reader = self._readers[rank]
            behind = reader.position() if isinstance(reader, Positioned) else None
            payloads, unlogged = log.items(payloads, now_ms, behind)
            refused = unlogged or refused
        elif log is not None and payloads is None and refused is None:
            log.end()
        given = None
        if payloads or refused is None:
            least = machine.least_time
            given = self.intake.give(rank, payloads, now_ms, time.monotonic(), before)
            if log is not None and not payloads and machine.least_time > least:  # the idle policy has decided
                log.heartbeat(machine.least_time)
        if refused is not None and (given is None or given.arrived.error is None):
            self.intake.inputs.fail(rank, refused)
        return given

    def _repeat(self, rank: int, entry: Entry, before: Position | None) -> Fed | None:
        """What the source gave before, with what clocks decided then."""
        machine = self.intake.machines[rank]
        if before is not None:
            before = before._replace(entry=entry.number)
        if entry.heartbeat is not None:
            return self.intake.beat(rank, machine.advance(entry.heartbeat))
        if entry.payloads is not None:
            self._sought[rank] = entry.reader
        return self.intake.give(rank, entry.payloads, entry.at_ms, time.monotonic(), before)

    @undisturbed
    def _announce(self, given: Fed) -> None:
        if self._on_fed is not None:
            self._on_fed(*given)

    def out_of_credit(self, minimal_time: bytes) -> SettingsError | None:
        """The error to end with where nothing is being processed and no source may be read."""
        return self.intake.out_of_credit(minimal_time)

    def close(self) -> None:
        with contextlib.ExitStack() as stack:
            for reader in self._readers:
                stack.callback(reader.close)
            for log in self._logs.values():
                stack.callback(log.close)


def _folder_of_logs(folder: Path | None, source: str, why: str) -> Path:
    """
    Raises:
        SettingsError: there is none.
    """
    if folder is None:
        raise SettingsError(
            f"source {source!r} cannot be read again to the same effect ({why}), so what it gives is logged in a "
            f"folder, and the state is stored on a server: name a folder too, logs= of drift.Cuts, or --state-logs"
        )
    return folder


def taker_of_late(on_late: Callable[[Late], None] | None, otherwise: Callable[[Late], None]) -> Callable[[Late], None]:
    """Who takes diverted items: whom the caller named, or `otherwise` where it named nobody.

    Raises:
        SettingsError: what it named cannot be called.
    """
    if on_late is not None and not callable(on_late):
        raise SettingsError(f"on_late={on_late!r:.80} is not a function that takes a drift.Late")
    return otherwise if on_late is None else on_late
