"""The states that the new steps of a changed graph would have had, from the input below the checkpoint of the change.

Invariant: the snapshot has of the new steps, and of nothing else, what a run of the graph from the beginning of its
sources would have had as of the checkpoint.

Why: such a run is made, on `local`, with the ranks that the resumed run has; the heartbeat of each source ends at the
checkpoint, so all below is processed, and nothing at or above. Which items a source gives, and at which times, is what
the first run had: a record says it, or the source is read from its beginning under the same time policy, where no clock
decides.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Generator, Iterator, Mapping
from contextlib import suppress
from dataclasses import replace
from typing import Any

from drift.engines.local import LocalEngine
from drift.engines.recorded import RecordedBatch, RecordedFeed, RecordEnds, batches_of, check_sources, classes_for
from drift.engines.settings import Settings, StatefulSettings
from drift.engines.source_feed import SourceFeed
from drift.machines.worker import Snapshot
from drift.records.reader import Record
from drift.running.checks import check_names
from drift.sources.arguments import as_source
from drift.sources.base import Source as DriftSource
from drift.state.checkpoint import Checkpoint
from drift.state.growth import Growth
from drift_graph.errors import DriftError, InputError, SettingsError
from drift_graph.graph import Dataflow
from drift_graph.lateness import Late
from drift_graph.meta import TIME_MIN
from drift_graph.operators import Sink, Source
from drift_graph.policies import TimePolicy
from drift_graph.ranks import reached
from drift_graph.rereading import from_plain


def filled(
    growth: Growth, checkpoint: Checkpoint, backfill: Any, times: Mapping[str, TimePolicy], settings: Settings
) -> Snapshot:
    """The states of the new steps as of a checkpoint, and the later items that wait for them.

    Args:
        backfill: sources by name, or the folder of a record.
        times: as for `drift.run`.
        settings: of the resumed run.

    Raises:
        SettingsError: a source is missing, or a clock decided about it; or the record has another input.
        InputError: the input ends before the checkpoint.
        StepError: a function failed for an item below the checkpoint.
    """
    new = frozenset(growth.new_operators)
    dataflow = _leading_to(growth.dataflow, new)
    if isinstance(backfill, Mapping):
        batches = _of_sources(dataflow, checkpoint, backfill, times, settings)
    else:
        batches = _of_record(dataflow, backfill)
    feed = RecordedFeed(
        dataflow,
        _below(batches, dataflow, checkpoint),
        batch_items=settings.items_at_once,
        on_late=_leave_out,
        paced=False,
    )
    memory_max = settings.memory_max if isinstance(settings, StatefulSettings) else None
    engine = LocalEngine(dataflow, feed, StatefulSettings(fused=settings.fused, memory_max=memory_max))
    try:
        engine.prepare_checkpoints(None)
        with suppress(RecordEnds):  # of the feed, once all is processed
            for _ in engine.released():
                pass
        taken = engine.checkpoint()
    except DriftError as error:
        error.add_note("new steps were being filled, from the input below the checkpoint; the state is unchanged")
        raise
    finally:
        engine.close()
        batches.close()
    assert taken is not None and taken.at == checkpoint.at
    snapshot = taken.snapshots["local"]
    states = {name: entries for name, entries in snapshot.states.items() if name in new}
    return Snapshot(checkpoint.at, states, [each for each in snapshot.later if each.target in new])


def _leading_to(dataflow: Dataflow, new: Collection[str]) -> Dataflow:
    """The part of a graph that new operators are in, with the ranks of the whole; all sources, which metas count."""
    sinks = [
        name
        for name in reached(new, lambda name: [each.name for each in dataflow.consumers(name)])
        if isinstance(dataflow[name], Sink)
    ]
    origins: dict[str, list[str]] = {}
    for edge in dataflow.edges:
        origins.setdefault(edge.target, []).append(edge.origin)
    kept = reached(sinks, lambda name: origins.get(name, ()))
    operators = [each for each in dataflow.operators if each.name in kept or isinstance(each, Source)]
    return replace(
        dataflow,
        operators=tuple(operators),
        edges=tuple(edge for edge in dataflow.edges if edge.target in kept),
        fixed_ranks=tuple((name, rank) for name, rank in dataflow.ranks.items() if name in kept),
    )


def _of_sources(
    dataflow: Dataflow,
    checkpoint: Checkpoint,
    given: Mapping[str, Any],
    times: Mapping[str, TimePolicy],
    settings: Settings,
) -> Generator[RecordedBatch]:
    """The batches of sources; those that lead to no new step are not read."""
    check_names("source", {source.name for source in dataflow.sources}, given, dataflow)
    opened: dict[str, DriftSource] = {}
    for source in dataflow.sources:
        name, policy = source.name, times.get(source.name, source.time)
        if not dataflow.consumers(name):
            opened[name] = as_source(name, ())
            continue
        if name not in given:
            raise SettingsError(f"backfill= has no source {name!r}, whose items come to new steps; add it")
        opened[name] = as_source(name, given[name])
        then = from_plain(name, checkpoint.sources[name]).judging
        why = policy.clock_decides if opened[name].live else ""
        if not policy.reads_payloads and then.stamp_time != TIME_MIN:
            why = "the clock stamped its items"
        if why:
            raise SettingsError(
                f"new steps cannot be filled from source {name!r}: {why}, and would do so otherwise now; leave out "
                f"backfill=, so that they begin empty, or take event time and no idle policy from the beginning"
            )
    feed = SourceFeed(dataflow, opened, times, settings, on_late=_leave_out)
    try:
        while not feed.finished:
            fed = feed.poll(feed.heartbeat)
            yield from (RecordedBatch(each.rank, each.arrived, 0) for each in fed)
            if feed.error is not None:
                raise feed.error
            if not fed:
                feed.wait()
    finally:
        feed.close()


def _of_record(dataflow: Dataflow, path: Any) -> Generator[RecordedBatch]:
    record = Record(path)
    check_sources(record, dataflow)
    yield from batches_of(record, classes_for(record, dataflow))


def _below(batches: Iterator[RecordedBatch], dataflow: Dataflow, checkpoint: Checkpoint) -> Iterator[RecordedBatch]:
    """The batches until all sources are at the checkpoint, where their heartbeats end.

    Raises:
        InputError: a source gave fewer items than the run has read below the checkpoint.
    """
    items: Counter[int] = Counter()
    awaited = dict.fromkeys(range(len(dataflow.sources)))
    for rank, arrived, at_ns in batches:
        if rank in awaited:
            items[rank] += len(arrived.metas)
            if arrived.heartbeat >= checkpoint.at:
                del awaited[rank]
            yield RecordedBatch(rank, arrived._replace(heartbeat=min(arrived.heartbeat, checkpoint.at)), at_ns)
        if not awaited:
            break
    for rank, source in enumerate(dataflow.sources):
        if not dataflow.consumers(source.name):
            continue
        least = from_plain(source.name, checkpoint.sources[source.name]).judging.items_in
        if items[rank] < least or rank in awaited:
            raise InputError(
                f"backfill= has {items[rank]} items of source {source.name!r} up to the checkpoint at "
                f"{checkpoint.reached}, and the run has read {least} or more: it is not the whole input from the "
                f"beginning"
            )


def _leave_out(late: Late) -> None:
    """A late item, which the run has left out, too."""
