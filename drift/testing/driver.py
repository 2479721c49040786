"""Drives a simulated run by hand: one item, one heartbeat, one message at a time, with all state visible in between.

Invariant: only events that the test requests happen; the released items are the reference's output so far.

Why: the driver is the simulator, with the test as its schedule. After each call that could release an item, the output
is compared with the reference's for the same input.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from drift.engines.simulated.schedule import Scheduled
from drift.engines.simulated.simulation import Simulation
from drift.streams import Graph
from drift.testing.check import Case, ComparedItem, NotDeterministic, Output, equal_rows, reference
from drift.testing.schedule import Schedule
from drift_graph.errors import SettingsError
from drift_graph.graph import Dataflow
from drift_graph.item import Item
from drift_graph.lateness import Late
from drift_graph.meta import END_OF_TIME, MetaParts
from drift_graph.times import SourceMachine


class Driver:
    """One run of a dataflow, step by step.

    Args:
        graph: the dataflow.
        workers, fused, in_flight_max: as in `drift.run`.
        live: sources that have a clock: see `advance`, `tick` and `idle`.

    >>> import drift
    >>> graph = drift.Graph("pairs")
    >>> trips = graph.source("trips", time=drift.EventTime(lambda trip: trip[0], lateness=10))
    >>> trips.group(lambda trip: trip[1], 2).sink("pairs")
    >>> driver = drift.testing.Driver(graph, workers=1)
    >>> driver.feed("trips", (20, "a"))
    >>> driver.feed("trips", (15, "a"))
    >>> [message.key.link for message in driver.in_flight()]
    ['trips > worker 0', 'trips > worker 0']
    >>> driver.settle()
    >>> driver.released, driver.unsettled, driver.tombstones
    ([], 2, 1)
    >>> driver.finish()
    >>> [item.payload for item in driver.released]
    [((15, 'a'),), ((15, 'a'), (20, 'a'))]
    """

    def __init__(
        self,
        graph: Graph | Dataflow,
        *,
        workers: int = 2,
        fused: bool = True,
        in_flight_max: int = 1_000_000,
        live: Sequence[str] = (),
    ) -> None:
        self.dataflow = graph.build() if isinstance(graph, Graph) else graph
        names = [source.name for source in self.dataflow.sources]
        self._ranks = {name: rank for rank, name in enumerate(names)}
        for name in live:
            self._rank(name)
        self.simulation = Simulation(
            self.dataflow,
            {name: [] for name in names},
            live=live,
            workers=workers,
            fused=fused,
            in_flight_max=in_flight_max,
            batch_items=1_000_000_000,
            fed_by_hand=True,
        )
        self._delayed: set[str] = set()
        self._fed: dict[str, list[Any]] = {name: [] for name in names}
        self._checked = 0

    # What comes in.

    def feed(self, source: str, *payloads: Any) -> None:
        """Feed items to a source, as one batch; it sends them on, with its heartbeat.

        Raises:
            SettingsError: there is no such source, it has ended, or it has no credit for so many.
        """
        rank = self._rank(source)
        if not payloads:
            raise SettingsError(f"source {source!r} is fed nothing; for a heartbeat alone call heartbeat, tick or idle")
        if self.simulation.room(rank) < len(payloads):
            raise SettingsError(
                f"source {source!r} has credit for {self.simulation.room(rank)} items and is fed {len(payloads)}; "
                f"deliver news of minimal time first"
            )
        self.simulation.feed(rank, payloads)
        self._fed[source] += payloads
        self.simulation.read(rank)

    def heartbeat(self, source: str, time: int) -> None:
        """The heartbeat of a source in event time: nothing below `time` will come."""
        machine = self._machine(source)
        if not machine.policy.reads_payloads:
            raise SettingsError(f"source {source!r} is in arrival time: its heartbeats are of its clock; see tick")
        self.simulation.heartbeat(self._rank(source), machine.advance(time))

    def tick(self, source: str) -> None:
        """A live source in arrival time has no items now: its heartbeat is the time on its clock."""
        self.simulation.heartbeat(self._rank(source), self._machine(source).tick(self.simulation.now_ms))

    def idle(self, source: str) -> None:
        """Apply a source's idle policy: its heartbeat rises past all items so far, and not below the others'."""
        rank = self._rank(source)
        self.simulation.heartbeat(rank, self.simulation.intake.idle(rank))

    def end(self, source: str) -> None:
        """End the input of a source."""
        rank = self._rank(source)
        if self.simulation.intake.inputs.may_read(rank):
            self.simulation.end_of(rank)

    def advance(self, milliseconds: int) -> None:
        """Move the clock of live sources."""
        self.simulation.now_ms += milliseconds

    # Messages in flight.

    def in_flight(self, link: str = "") -> list[Scheduled]:
        """Batches in flight, oldest first; with `link` only those on one link, for example "worker 0 > worker 1"."""
        return [event for event in self._in_flight("batch") if link in ("", event.key.link)]

    def control(self) -> list[Scheduled]:
        """Acks, heartbeats, and notices of minimal time and of the pace, in flight."""
        return self._in_flight("ack", "heartbeat", "news", "pace", "break off")

    def deliver(self, event: Scheduled | None = None) -> Scheduled | None:
        """Deliver a message, by default the oldest that is not delayed, and return it; None if there is none.

        If nothing is in flight, a node that waits for its alarm wakes: the acker sends notices at intervals.
        """
        events = [*self.simulation.in_flight, *self.simulation.wakes]
        ready = [each for each in events if each.key.link not in self._delayed]
        if event is None:
            if not ready:
                return None
            event = ready[0]
        elif event not in events:
            raise SettingsError(f"{event!r} is not in flight: it was delivered or lost; choose one of in_flight()")
        self.simulation.fire(event)
        if self.simulation.error is not None:
            raise self.simulation.error
        self._check(complete=False)
        return event

    def settle(self) -> None:
        """Deliver all messages that are not delayed, oldest first, until none is in flight."""
        while self.deliver() is not None:
            pass

    def delay(self, link: str) -> None:
        """Hold all messages that are in flight on a link, or are sent on it, until `resume`.

        Args:
            link: "worker 0 > worker 1", "lines > worker 0", "worker 1 > barrier"; or "worker 0" or "barrier" for its
                acks and notices, a source for its acks, and "caller" for the notices that give it credit.
        """
        self._delayed.add(link)

    def resume(self, link: str) -> None:
        """End a delay."""
        self._delayed.discard(link)

    def drop(self, link: str) -> list[Scheduled]:
        """End a connection: the messages in flight on it are lost, since ZeroMQ sends nothing again. Returns them.

        The run cannot complete any more: minimal time waits for the lost messages, no wrong item is released, and
        `finish` raises the ProcessError that a real run ends with.
        """
        return self.simulation.drop(link)

    def finish(self) -> None:
        """End all sources, deliver everything, and compare the whole output with the reference's.

        Raises:
            NotDeterministic: they differ.
            ProcessError: a message was lost.
        """
        self._delayed.clear()
        for name in self._ranks:
            self.end(name)
        self.settle()
        outcome = self.simulation.end()
        if outcome.error is not None:
            raise outcome.error
        self._check(complete=True)

    # The visible state.

    @property
    def released(self) -> list[Item[Any]]:
        """The output so far."""
        return Output(self._rows(), "", None).items()

    @property
    def minimal_time(self) -> str:
        """The bound below which everything is settled, as text: its time and the rest, "the beginning" or "the end"."""
        time = self.simulation.acker.minimal_time
        if time == END_OF_TIME:
            return "the end"
        if len(time) < 8:
            return "the beginning"
        return str(MetaParts(time)) if len(time) > 8 else f"time {int.from_bytes(time, 'big') - 2**63}"

    @property
    def unsettled(self) -> int:
        """Items fed that are at or above minimal time."""
        minimal_time = self.simulation.acker.minimal_time
        return sum(machine.unsettled(minimal_time) for machine in self.simulation.sources)

    @property
    def held(self) -> dict[str, int]:
        """How many items each worker, and the barrier, holds because changes may still come."""
        held = {f"worker {index}": worker.held for index, worker in enumerate(self.simulation.workers)}
        return {**held, "barrier": len(self.simulation.barrier)}

    @property
    def tombstones(self) -> int:
        """How many items were taken back."""
        return sum(worker.tombstones for worker in self.simulation.workers)

    @property
    def late(self) -> list[Late]:
        """Items that a time policy diverted."""
        return self.simulation.late

    # Internal.

    def _rank(self, source: str) -> int:
        if source not in self._ranks:
            raise SettingsError(
                f"graph {self.dataflow.name!r} has no source {source!r}; it has {', '.join(map(repr, self._ranks))}"
            )
        return self._ranks[source]

    def _machine(self, source: str) -> SourceMachine:
        return self.simulation.sources[self._rank(source)]

    def _in_flight(self, *kinds: str) -> list[Scheduled]:
        return [event for event in self.simulation.in_flight if event.key.kind in kinds]

    def _rows(self) -> list[ComparedItem]:
        return [
            ComparedItem(meta, payload, sinks if isinstance(sinks, str) else sinks[at])
            for _, metas, payloads, sinks, _ in self.simulation.released
            for at, (meta, payload) in enumerate(zip(metas, payloads))
        ]

    def _check(self, *, complete: bool) -> None:
        """Compare the released output with the reference's for the items that the sources gave."""
        rows = self._rows()
        if not complete and len(rows) == self._checked:
            return
        case = Case(self.dataflow, self._fed, Schedule(workers=len(self.simulation.workers)))
        handed = [(each.name, each.arrived._replace(error=None)) for each in self.simulation.handed]
        expected = reference(case, handed).rows
        self._checked = len(rows)
        if not equal_rows(rows, expected if complete else expected[: len(rows)]):
            at = next(
                (at for at, pair in enumerate(zip(rows, expected)) if not equal_rows([pair[0]], [pair[1]])),
                min(len(rows), len(expected)),
            )
            shown = [repr(each[at].payload) if at < len(each) else "no item" for each in (expected, rows)]
            raise NotDeterministic(f"item {at} of the output is {shown[1]}, and the reference gives {shown[0]}", None)
