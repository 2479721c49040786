"""A feed that replays recorded input and decisions, in place of reading sources and deciding.

Invariant: the engine gets the recorded items with their recorded global times and heartbeats, in the recorded order;
lateness is not judged again, and clocks only set the pace.

Why it gives the same output: an engine's output depends on global times, payloads and heartbeats alone.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, Any, NamedTuple

from drift.engines.feed import Feed
from drift.machines.nodes.intake import Fed
from drift_graph.errors import GraphError, InputError
from drift_graph.graph import Dataflow
from drift_graph.lateness import Late
from drift_graph.meta import BEGINNING, END_OF_TIME
from drift_graph.metas import Metas
from drift_graph.operators import Source, function_of
from drift_graph.policies import ArrivalTime
from drift_graph.restore import CannotRestore, Classes, classes_near
from drift_graph.times import Arrived, SourceMachine

if TYPE_CHECKING:
    from drift.records.reader import Record


class RecordedBatch(NamedTuple):
    """A batch of the source of a rank, `at_ns` nanoseconds after an arbitrary fixed moment."""

    rank: int
    arrived: Arrived
    at_ns: int


class RecordEnds(InputError):
    """A record ends before its input did: the recorded run did not get further."""


class RecordedFeed(Feed):
    """A feed of recorded batches.

    Args:
        batches: the recorded batches, in order.
        batch_items: larger batches are split.
        on_late: called with each diverted item.
        paced: whether batches come at their recorded pace; if not, at once.
        ends_with: the error that the recorded run had at the end of these batches, if they end before the input.
        record: the record of the batches, for an engine that reads it by itself.
        ends: whether the input ends with the batches; otherwise the run ends at their last heartbeats.
    """

    def __init__(
        self,
        dataflow: Dataflow,
        batches: Iterable[RecordedBatch],
        *,
        batch_items: int,
        on_late: Callable[[Late], None],
        paced: bool,
        ends_with: Exception | None = None,
        record: Any = None,
        ends: bool = True,
    ) -> None:
        machines = [SourceMachine.of(source, rank, live=paced) for rank, source in enumerate(dataflow.sources)]
        super().__init__(machines, batch_items=batch_items, on_late=on_late)
        self._batches = self._split(iter(batches))
        self._next: RecordedBatch | None = None
        self._paced = paced
        self.record = None if paced else record
        self.ends_with = ends_with
        self.ends = ends
        self._began_ns: int | None = None  # on the monotonic clock: when the first batch was due
        self._first_ns = 0

    def _split(self, batches: Iterator[RecordedBatch]) -> Iterator[RecordedBatch]:
        """Batches of at most `batch_items`; the heartbeat of a batch comes with its last part."""
        for batch in batches:
            rank, arrived, at_ns = batch
            count = len(arrived.metas)
            before = self.intake.machines[rank].heartbeat
            start = 0
            while start < count or not count:
                end = min(start + self.intake.policy.items, count)
                if end - start == count:
                    yield batch
                    break
                part = Arrived(
                    arrived.metas[start:end],
                    arrived.payloads[start:end],
                    arrived.heartbeat if end == count else before,
                    arrived.late if end == count else [],
                    None,
                )
                yield RecordedBatch(rank, part, at_ns)
                start = end

    def poll(self, minimal_time: bytes) -> list[Fed]:
        """The next batch; empty if it is not due yet, or there is none."""
        if self.error is not None or self.finished:
            return []
        if self.stopped:
            return self._ended()
        if self._next is None:
            try:
                self._next = next(self._batches, None)
            except InputError as error:  # the record is damaged from here on
                self.error = error
                return []
        if self._next is None:
            self.error = self.ends_with or RecordEnds("the record ends here")
            return []
        if self._paced and not self._is_due(self._next.at_ns):
            return []
        rank, arrived, _ = self._next
        self._next = None
        fed = self.intake.repeat(rank, arrived)
        self._find_late()
        return [fed]

    def _is_due(self, at_ns: int) -> bool:
        now_ns = time.monotonic_ns()
        if self._began_ns is None:
            self._began_ns, self._first_ns = now_ns, at_ns
        return now_ns - self._began_ns >= at_ns - self._first_ns


class RecordedMachine(SourceMachine):
    """The machine of one source that gives the recorded metas for any batch sizes; for the simulated engine.

    Args:
        batches: the recorded batches of the source, in order.

    Attributes:
        payloads: the arguments for `take`, in order.
    """

    def __init__(self, name: str, rank: int, batches: Iterable[Arrived]) -> None:
        super().__init__(name, rank, ArrivalTime())
        self.payloads: list[Any] = []
        self._metas: list[bytes] = []
        self._heartbeats: list[bytes] = []  # after each item
        self._late_after: dict[int, list[Late]] = {}
        heartbeat = BEGINNING
        for arrived in batches:
            self._metas += arrived.metas
            self.payloads += arrived.payloads
            self._heartbeats += [heartbeat] * len(arrived.metas)
            if arrived.heartbeat != END_OF_TIME:  # `finish` gives that one
                heartbeat = arrived.heartbeat
            if self._heartbeats:
                self._heartbeats[-1] = heartbeat
            if arrived.late:
                self._late_after.setdefault(max(len(self._metas) - 1, 0), []).extend(arrived.late)

    def take(self, payloads: list[Any], now_ms: int = 0) -> Arrived:
        start = self.items_in
        end = start + len(payloads)
        late = [late for at in range(start, end) for late in self._late_after.get(at, ())]
        arrived = Arrived(Metas(self._metas[start:end]), payloads, self._heartbeats[end - 1], late, None)
        self.repeat(arrived)
        return arrived


def batches_of(record: Record, classes: Classes) -> Iterator[RecordedBatch]:
    """The recorded batches, with their payloads restored."""
    reading = record.with_classes(classes)
    for batch in reading.arrivals():
        late = [Late(row.source, reading.restored(row.data), row.time, row.heartbeat, row.reason) for row in batch.late]
        arrived = Arrived(batch.metas, reading.restored(batch.data), batch.heartbeat, late, None)
        yield RecordedBatch(batch.rank, arrived, batch.at_ns)


def classes_for(record: Record, dataflow: Dataflow) -> Classes:
    """Classes of payloads: those passed with the record, those it names, and those near the graph's functions."""
    known = record.classes
    try:
        near = classes_near(_functions(dataflow), known.values())
    except CannotRestore:
        near = {}  # two classes have one name, and the record may need neither
    return {**near, **known}


def _functions(dataflow: Dataflow) -> Iterator[Callable[..., Any]]:
    for operator in dataflow.operators:
        function = operator.time.functions.get("time") if isinstance(operator, Source) else function_of(operator)
        if function is not None:
            yield function


def check_sources(record: Record, dataflow: Dataflow) -> None:
    recorded = [source.name for source in record.manifest.sources]
    here = [source.name for source in dataflow.sources]
    if recorded != here:
        raise GraphError(
            f"the record has items of the sources {', '.join(map(repr, recorded))}, and graph {dataflow.name!r} has "
            f"{', '.join(map(repr, here))}; a replay needs the same sources in the same order"
        )
