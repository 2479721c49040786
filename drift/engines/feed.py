"""The shell around the source machines: reads, asks the clock, minds credits and idleness.

Invariant: no source has more than `in_flight_max` unsettled items, and the source furthest behind is read first. What
ends the input and which late items are told is decided by `Inputs`, whatever is read when.
"""

from __future__ import annotations

import contextlib
import select
import time
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple

from drift.sources.base import Reader, Source
from drift_graph.errors import DriftError, InputError, SettingsError
from drift_graph.graph import Dataflow
from drift_graph.inputs import Inputs
from drift_graph.item import Columns, joined
from drift_graph.meta import BEGINNING, END_OF_TIME
from drift_graph.times import Arrived, EventTime, Late, SourceMachine, TimePolicy

if TYPE_CHECKING:
    from drift.records.messages import Stored

_TICK_S = 0.001


class Fed(NamedTuple):
    """What one source has for the dataflow: items, or only a promise."""

    name: str
    rank: int
    arrived: Arrived


class _Inlet:
    """One source: its reader, its machine, and when it last gave something."""

    def __init__(self, name: str, source: Source, machine: SourceMachine, rank: int) -> None:
        self.name = name
        self.live = source.live
        self.machine = machine
        self.rank = rank
        self.reader: Reader = source.open()
        self.last_item_s = time.monotonic()
        self.starved = False  # has input but no credit
        self.promised = BEGINNING  # its heartbeat while it had not ended


class Feed:
    """All sources of a run.

    Args:
        dataflow: the graph.
        sources: for each source of the graph, where its items come from.
        times: time policies that replace the graph's.
        batch_items: most items read from a source at once.
        in_flight_max: most unsettled items of a source.
        on_late: takes the items that a policy diverts.
        on_fed: is told what a source hands over, before the engine has it, and gives what the engine is to have.
        on_stored: is told what an engine reads of a source by itself, before it computes with it.

    Attributes:
        batch_items: as given, until an engine asks for less at once.
        error: what the input ends with, once all sources have come to its place in the order.
        late_items: diverted and told.
    """

    def __init__(
        self,
        dataflow: Dataflow,
        sources: Mapping[str, Source],
        times: Mapping[str, TimePolicy],
        *,
        batch_items: int,
        in_flight_max: int,
        on_late: Callable[[Late], None],
        on_fed: Callable[[str, int, Arrived], Arrived] | None = None,
        on_stored: Callable[[Stored], None] | None = None,
    ) -> None:
        self._on_fed = on_fed
        self.on_stored = on_stored
        self.batch_items = batch_items
        self._in_flight_max = in_flight_max
        self._on_late = on_late
        self.sources = sources
        self._inlets: list[_Inlet] = []
        self.error: Exception | None = None
        self.late_items = 0
        try:
            for rank, source in enumerate(dataflow.sources):
                given = sources[source.name]
                policy = times.get(source.name, source.time)
                machine = SourceMachine(source.name, rank, policy, live=given.live)
                self._inlets.append(_Inlet(source.name, given, machine, rank))
        except BaseException:
            self.close()
            raise
        self._inputs = Inputs([inlet.machine for inlet in self._inlets])

    @property
    def finished(self) -> bool:
        """Nothing more will come."""
        return all(inlet.machine.finished for inlet in self._inlets)

    @property
    def live(self) -> bool:
        """Some source that may be read is live."""
        return any(inlet.live for inlet in self._readable())

    @property
    def items_in(self) -> int:
        return sum(inlet.machine.items_in for inlet in self._inlets)

    def unsettled(self, minimal_time: bytes) -> int:
        """Items of all sources at or above minimal time."""
        return sum(inlet.machine.unsettled(minimal_time) for inlet in self._inlets)

    def fraction(self) -> float | None:
        """How much of the input has been read, 0 to 1, as far as the sources know."""
        known = [inlet.reader.fraction() for inlet in self._inlets if hasattr(inlet.reader, "fraction")]
        parts = [part for part in known if part is not None]
        return min(parts) if parts and len(parts) == len(self._inlets) else None

    def name_of(self, rank: int) -> str:
        return self._inlets[rank].name

    def policy_of(self, name: str) -> TimePolicy:
        """The time policy of a source in this run."""
        return next(inlet.machine.policy for inlet in self._inlets if inlet.name == name)

    @property
    def promise(self) -> bytes:
        """The least promise of all sources."""
        return min((inlet.machine.heartbeat for inlet in self._inlets), default=END_OF_TIME)

    def wait(self) -> None:
        """Wait a moment for what live sources and pipes bring."""
        select.select(self.filenos(), (), (), _TICK_S)

    def filenos(self) -> Sequence[int]:
        """What to wait on for live items: that of sources which may be read."""
        ready = [inlet for inlet in self._readable() if not inlet.starved]
        return [number for inlet in ready for number in inlet.reader.filenos()]

    def poll(self, minimal_time: bytes) -> list[Fed]:
        """What the sources have now: blocks only where every source that could be read is finite.

        A source that fails gives nothing more, and the others go on until they are past its place. Then `error` is set,
        and nothing more comes.
        """
        if self.error is not None:
            return []
        fed: list[Fed] = []
        readable = self._readable()
        least = min((inlet.machine.heartbeat for inlet in readable), default=END_OF_TIME)
        for inlet in sorted(readable, key=lambda inlet: (not inlet.live, inlet.machine.heartbeat != least)):
            if not self._inputs.may_read(inlet.rank):
                continue  # another has failed below meanwhile
            if not inlet.live and inlet.machine.heartbeat != least and (fed or self._finite_behind(least)):
                continue  # a finite source waits for those behind it, so that their times stay together
            given = self._read(inlet, minimal_time)
            if given is not None:
                fed.append(given if self._on_fed is None else self._told(given, self._on_fed))
        self._tell_late()
        self.error = self._inputs.error
        return fed

    def _readable(self) -> list[_Inlet]:
        return [inlet for inlet in self._inlets if self._inputs.may_read(inlet.rank)]

    def _tell_late(self) -> None:
        for late in self._inputs.told():
            self.late_items += 1
            self._on_late(late)

    def _finite_behind(self, least: bytes) -> bool:
        return any(
            not inlet.live and inlet.machine.heartbeat == least and not inlet.starved for inlet in self._readable()
        )

    def _read(self, inlet: _Inlet, minimal_time: bytes) -> Fed | None:
        machine = inlet.machine
        before = machine.heartbeat
        room = self._in_flight_max - machine.unsettled(minimal_time) - self._inputs.held(inlet.rank)
        inlet.starved = room <= 0
        try:
            payloads = inlet.reader.read(min(room, self.batch_items)) if room > 0 else []
        except DriftError as error:
            self._inputs.fail(inlet.rank, error)
            return None
        except Exception as error:
            failed = InputError(
                f"source {inlet.name!r} raised {type(error).__name__} after {machine.items_in} items: {error}"
            )
            failed.__cause__ = error
            self._inputs.fail(inlet.rank, failed)
            return None
        if payloads is None:
            inlet.promised = machine.above_all_seen()
            return Fed(inlet.name, inlet.rank, Arrived([], [], machine.finish(), [], None))
        now_ms = time.time_ns() // 1_000_000 if inlet.live else 0
        if payloads:
            inlet.last_item_s = time.monotonic()
            arrived = machine.take(payloads, now_ms)
            self._inputs.divert(inlet.rank, arrived.late)
            if arrived.error is not None:
                self._inputs.fail(inlet.rank, arrived.error)
            inlet.promised = machine.heartbeat
            return Fed(inlet.name, inlet.rank, arrived)
        if inlet.starved:
            return None
        heartbeat = machine.tick(now_ms)
        idle_after_ms = machine.policy.idle_after_ms if isinstance(machine.policy, EventTime) else None
        if idle_after_ms is not None and (time.monotonic() - inlet.last_item_s) * 1000 >= idle_after_ms:
            heartbeat = machine.idle(self._others(inlet))
        inlet.promised = heartbeat
        return Fed(inlet.name, inlet.rank, Arrived([], [], heartbeat, [], None)) if heartbeat > before else None

    def _told(self, given: Fed, on_fed: Callable[[str, int, Arrived], Arrived]) -> Fed:
        arrived = on_fed(*given)
        if arrived is given.arrived:
            return given
        if arrived.error is not None:
            self._inputs.fail(given.rank, arrived.error)
        return given._replace(arrived=arrived)

    def _others(self, inlet: _Inlet) -> bytes:
        """The least promise of the other sources; one that has ended counts with the last it made before."""
        return min((each.promised for each in self._inlets if each is not inlet), default=BEGINNING)

    def out_of_credit(self) -> SettingsError | None:
        """The error to end with where nothing is being processed and no source may be read."""
        readable = self._readable()
        stuck = [inlet for inlet in readable if inlet.starved]
        if not stuck or len(stuck) < len(readable):
            return None
        holder = min(stuck, key=lambda inlet: inlet.machine.heartbeat)
        return SettingsError(
            f"source {holder.name!r} has {self._in_flight_max} items that its own promise holds back, and may read no "
            f"more: its time policy ({holder.machine.policy.label}) keeps more items unsettled than in_flight_max "
            f"allows; raise in_flight_max or lower the lateness"
        )

    def close(self) -> None:
        with contextlib.ExitStack() as stack:
            for inlet in self._inlets:
                stack.callback(inlet.reader.close)


def taker_of_late(on_late: Callable[[Late], None] | None, otherwise: Callable[[Late], None]) -> Callable[[Late], None]:
    """Who takes diverted items: whom the caller named, or `otherwise` where it named nobody.

    Raises:
        SettingsError: what it named cannot be called.
    """
    if on_late is not None and not callable(on_late):
        raise SettingsError(f"on_late={on_late!r:.80} is not a function that takes a drift.Late")
    return otherwise if on_late is None else on_late


class Gathering:
    """Batches that wait to be processed together, where optimism has proved wasteful.

    Where most of what is processed is taken back, by items that come later with earlier times, every batch does most of
    the work again. Then the next ones are gathered until they are as many as what they may correct: so the work grows
    with the items times the logarithm of their number, not with its square. A live source is not waited for.
    """

    def __init__(self, feed: Feed) -> None:
        self._feed = feed
        self._waiting: list[Fed] = []
        self._items = 0
        self._wasteful = False

    def add(self, fed: list[Fed]) -> None:
        """What the feed gave."""
        self._waiting += fed
        self._items += sum(len(each.arrived.metas) for each in fed)

    def is_due(self, minimal_time: bytes, *, more: bool) -> bool:
        """Whether to go on with what has been gathered; `more` where the feed has just given something."""
        if not self._waiting:
            return False
        if not self._wasteful or not more or self._feed.finished or self._feed.error is not None:
            return True
        return 2 * self._items >= self._feed.unsettled(minimal_time)

    def take(self) -> list[Fed]:
        """What has been gathered: one batch and the last promise for each source."""
        by_rank: dict[int, list[Fed]] = {}
        for fed in self._waiting:
            by_rank.setdefault(fed.rank, []).append(fed)
        self._waiting, self._items = [], 0
        return [_as_one(several) for several in by_rank.values()]

    def learn(self, items: int, tombstones: int) -> None:
        """What was processed since the last time, and how much of what was sent before was taken back for it."""
        if items:
            self._wasteful = 2 * tombstones > items


def _as_one(several: list[Fed]) -> Fed:
    if len(several) == 1:
        return several[0]
    name, rank, last = several[-1]
    batches = [Columns(fed.arrived.metas, fed.arrived.payloads, None) for fed in several if fed.arrived.metas]
    metas, payloads, _ = joined(batches) if batches else Columns([], [], None)
    return Fed(name, rank, last._replace(metas=metas, payloads=payloads))
