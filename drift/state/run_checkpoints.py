"""A run with state: when a checkpoint is taken, what it consists of, and how a run resumes from one.

Invariant: a checkpoint is committed when its snapshots are durable, every sink that takes part has the output below it,
the caller has taken the output below it, and the sources can be read again from there. A run that resumes gives the
rest of what the unbroken one would have given.

Why: a checkpoint is taken between two batches of the output, when the sinks have all of the first one, which is what
was released below minimal time. Below that everything is final. The loop over a run is a sink whose position is what it
has taken: it is asked for after the batch was given, and a checkpoint above it waits. A sink that came back older
decides from which checkpoint a run resumes: behind its end nothing would be computed again. Sources do not decide:
where one has lost what it gave, the items in the sinks are of an input that is gone.
"""

from __future__ import annotations

import logging
import os
import sys
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing, suppress
from dataclasses import replace
from functools import partial
from typing import Any, NamedTuple, Protocol, runtime_checkable

from drift.machines.plan import Plan
from drift.machines.worker import Snapshot, timed_steps
from drift.records.fingerprint import fingerprint
from drift.sinks.base import Committing, Sink, check_kind, kind_of, open_as_then, target_of
from drift.state.checkpoint import Checkpoint, Output, decoded, encoded
from drift.state.growth import Growth, grown
from drift.state.moving import moved
from drift.state.patience import Patience, PatientReader
from drift.state.restored import RestoredStates
from drift.state.segments import Begun, Divided, InState
from drift.state.settings import Checkpoints, backend_of, read_store, store_of
from drift.state.snapshots import Forms
from drift.state.store import Store, Written
from drift.urls import without_secrets
from drift_barrier.digest import Algorithm, Opened
from drift_graph.errors import SettingsError, SinkBehind, SinkError, StorageError
from drift_graph.graph import Dataflow
from drift_graph.meta import BEGINNING
from drift_graph.policies import TimePolicy
from drift_graph.segments import segments_of

_LOG = logging.getLogger("drift")

#: The name under which a run's history is stored; see `drift.web.life`.
HISTORY = b"last"


class Taken(NamedTuple):
    """The state of an engine as of a checkpoint.

    Attributes:
        snapshots: of its workers, by name.
        blocks: hashes of all full blocks of the output.
        opened: the items of its last block, which is not full.
    """

    at: bytes
    output: Output
    snapshots: Mapping[str, Snapshot]
    blocks: Sequence[bytes]
    opened: Opened
    tombstones: int


class StatesAt(NamedTuple):
    """The location of a checkpoint's states, for another process of the run, which looks up keys by itself.

    Attributes:
        classes: as in `Checkpoints`.
    """

    where: str
    checkpoint: bytes
    away_max_s: float
    classes: tuple[type, ...]

    @classmethod
    def of(cls, store: Checkpoints, checkpoint: Checkpoint) -> StatesAt:
        return cls(os.fspath(store.where), encoded(checkpoint), store.away_max_s, tuple(store.classes))


class HeldKeys(NamedTuple):
    """What a step holds: its keys with timers, such as those of open windows, and the number of these timers."""

    keys: int
    timers: int


class Held(NamedTuple):
    """What is open where a run has paused, or was stopped: the run that goes on begins with it.

    Attributes:
        sources: items of each source that were read and are not below minimal time; they are read again.
        steps: of each step with open windows or other timers.
        later_items: items of later times that are on their way to a step or sink.
    """

    sources: Mapping[str, int]
    steps: Mapping[str, HeldKeys]
    later_items: int

    def __str__(self) -> str:
        parts = [f"{_counted(items, 'item')} of source {name!r}" for name, items in self.sources.items()]
        parts += [
            f"{_counted(keys, 'key')} with {_counted(timers, 'timer')} of step {name!r}"
            for name, (keys, timers) in self.steps.items()
        ]
        parts += [_counted(self.later_items, "later item")] * bool(self.later_items)
        return ", ".join(parts) or "nothing"


def _counted(number: int, noun: str) -> str:
    return f"{number:,} {noun}{'s' * (number != 1)}"


class Begin(NamedTuple):
    """The checkpoint that an engine resumes from, and its states."""

    checkpoint: Checkpoint
    blocks: Sequence[bytes]
    states: RestoredStates
    at: StatesAt


def states_at(at: StatesAt, dataflow: Dataflow) -> RestoredStates:
    """The states of a checkpoint, read while another process has the store open, and may fold snapshots.

    Raises:
        StateDamaged: they were changed since they were written.
    """
    where = without_secrets(at.where)
    patience = Patience(where, at.away_max_s)
    reader = PatientReader(patience.call(backend_of(at.where).reader), patience)
    return RestoredStates(
        reader, decoded(at.checkpoint, f"of a checkpoint in {where}"), Forms(dataflow, (), at.classes), where
    )


@runtime_checkable
class TakesCheckpoints(Protocol):
    """An engine that takes checkpoints."""

    def prepare_checkpoints(self, begin: Begin | None) -> None:
        """Called before any item: checkpoints will be taken; the run resumes from a checkpoint, as its feed has, or
        begins.
        """

    def checkpoint(self) -> Taken | None:
        """The state of everything as of minimal time; None if there is nothing new, or if it `awaits_checkpoint`."""

    @property
    def awaits_checkpoint(self) -> bool:
        """Whether a requested checkpoint is not complete yet: `checkpoint` is to be called again after the next
        snapshot.
        """


class Watches(Protocol):
    """Watches a run, for those that look at its state."""

    @property
    def released(self) -> Mapping[str, int]:
        """Items to each sink so far."""

    def told(self) -> Mapping[bytes, bytes] | None:
        """What is to be stored of the run now; None for what was stored last."""


class SourcePositions(Protocol):
    """A feed that knows the positions from which its sources can be read again."""

    @property
    def items_in(self) -> int: ...
    def late_items_at(self, checkpoint: bytes) -> int: ...
    def report_late(self, below: bytes) -> None: ...
    def positions_at(self, checkpoint: bytes) -> dict[str, Any]: ...
    def committed(self, positions: Mapping[str, Any]) -> None: ...
    def resume(self, positions: Mapping[str, Any], checkpoint: bytes) -> None: ...
    def refuse_more(self, positions: Mapping[str, Any], where: str) -> None:
        """The run has ended with its sources at these positions: refuse what they have more; before `resume`."""


def steps_with_state(plan: Plan) -> dict[str, str]:
    """The groupings of a graph that have state, and the form in which each is stored."""
    return {name: stage.form for name, stage in plan.stages().items()}


def known(named: str | os.PathLike[str] | Checkpoints) -> list[Checkpoint]:
    """The checkpoints that a store retains, without opening it to write; none if it is not there."""
    with closing(store_of(named)) as store:
        try:
            store.open_to_read()
        except SettingsError:
            return []
        return store.checkpoints()


def growth_of(
    store: Store, checkpoints: Checkpoints, dataflow: Dataflow, times: Mapping[str, TimePolicy], *, fused: bool
) -> Divided | None:
    """The graph, and its segments, as it resumes from the checkpoint that the user wants; None to begin.

    Args:
        store: that of the last segment.

    Raises:
        SettingsError: the wanted checkpoint does not exist.
    """
    wanted, retained = checkpoints.from_checkpoint, store.checkpoints()
    found = [checkpoint for checkpoint in retained if wanted in (None, checkpoint.number)]
    if wanted is not None and not found:
        numbers = ", ".join(str(checkpoint.number) for checkpoint in retained) or "none"
        raise SettingsError(f"from_checkpoint={wanted}, and {store.where} has {numbers}")
    if not found:
        return None

    def forms(whole: Dataflow) -> dict[str, str]:
        return {name: form for each in segments_of(whole) for name, form in forms_of(each, fused=fused).items()}

    before = InState.behind(found[-1], checkpoints, known)
    joined, is_cut_so = before.joined(dataflow, times), before.is_cut_as(dataflow)
    growth = grown(joined, dataflow, times, forms, checkpoints.allowed, is_cut_so=is_cut_so)
    return Divided(growth, before, segments_of(growth.dataflow)).checked()


def forms_of(segment: Dataflow, *, fused: bool) -> dict[str, str]:
    """The form of each grouping with state of a graph in one piece."""
    return steps_with_state(Plan(segment, fused=fused))


class Found(NamedTuple):
    """
    Attributes:
        dataflow: the graph with the ranks of the one that the state is of.
        is_over: whether the run of the state is over.
        since: see `drift.state.segments.checkpoints_of`.
    """

    dataflow: Dataflow
    is_over: bool
    since: int = 0


def found_before(
    dataflow: Dataflow, checkpoints: Checkpoints, times: Mapping[str, TimePolicy], *, fused: bool
) -> Found:
    """What is known of a run before it is made, and before its sources are opened.

    Whether it may resume is checked later, when the store is open; so what cannot be read now is left for then.
    """
    found = Found(dataflow, is_over=False)
    with closing(store_of(replace(checkpoints, away_max_s=0.0))) as store, suppress(SettingsError, StorageError):
        store.open_to_read()
        found = Found(dataflow, _is_over(store) and checkpoints.from_checkpoint is None)
        divided = growth_of(store, checkpoints, dataflow, times, fused=fused)
        if divided is not None:
            found = Found(divided.whole.dataflow, found.is_over, divided.since)
    return found


def _is_over(store: Store) -> bool:
    """Whether the run has ended with all of its input, also if it is to resume from before the end."""
    retained = store.checkpoints()
    return bool(retained) and retained[-1].is_last


def chosen(
    store: Store,
    checkpoints: Checkpoints,
    dataflow: Dataflow,
    times: Mapping[str, TimePolicy],
    *,
    fused: bool,
    algorithm: Algorithm,
) -> Divided | None:
    """The graph as it resumes, in its segments; None to begin.

    Raises:
        GraphError, SettingsError: it cannot resume; see `Growth.check`.
        StorageError: it has not the ranks of the checkpoint, since this could not be read before.
    """
    divided = growth_of(store, checkpoints, dataflow, times, fused=fused)
    if divided is not None:
        divided.whole.check(algorithm, store.where)
        if divided.whole.dataflow.ranks != dataflow.ranks:
            raise StorageError(changed_meanwhile(store.where))
    return divided


def changed_meanwhile(where: str) -> str:
    return f"{where} could not be read, or was changed, while the run was made; run it again"


def begin_elsewhere(
    checkpoints: Checkpoints, dataflow: Dataflow, times: Mapping[str, TimePolicy], *, fused: bool, algorithm: Algorithm
) -> Begin:
    """The checkpoint for a run that resumes from it and stores its own state elsewhere; the backend is only read.

    Raises:
        SettingsError: there is no checkpoint, or not the requested one.
        GraphError: the checkpoint is of another graph.
    """
    with read_store(checkpoints) as store:
        divided = growth_of(store, checkpoints, dataflow, times, fused=fused)
        if divided is None:
            raise SettingsError(
                f"{store.where} has no checkpoint to resume from; the run that stored its state there took none"
            )
        growth = divided.whole
        growth.check(algorithm, store.where)
        if growth.dataflow.ranks != dataflow.ranks or growth.moves:
            raise SettingsError(
                f"{store.where} is the state of a graph that was changed since it began, which a stream on Spark "
                f"cannot resume; use drift.run, with any engine"
            )
        if growth.is_filled:
            raise SettingsError(
                "a stream on Spark fills no new steps, which backfill= asks for; resume with drift.run first, which "
                "takes a checkpoint with their states"
            )
        checkpoint = growth.begins_at
        at = StatesAt.of(checkpoints, checkpoint)
        return Begin(checkpoint, store.blocks(checkpoint), states_at(at, dataflow), at)


def _committed(sinks: Mapping[str, Sink]) -> dict[str, Any]:
    """What a checkpoint has of the sinks, which commit."""
    committing = {name: sink for name, sink in sinks.items() if isinstance(sink, Committing)}
    return {
        "sinks": {name: sink.commit() for name, sink in committing.items()},
        "kinds": {name: kind_of(sink) for name, sink in committing.items()},
        "targets": {name: target_of(sink) for name, sink in committing.items()},
        "taken_ms": time.time_ns() // 1_000_000,
    }


def _has_behind(sink: Sink, position: int) -> bool:
    """Whether an open sink has items from a position on."""
    last = getattr(sink, "committed_position", lambda: None)()
    return (last is not None and last >= position) or getattr(sink, "has_more_stored", False)


class RunCheckpoints:
    """The checkpoints of one run.

    Args:
        dataflow: the graph, as the user wrote it.
        fused: whether the engine fuses loops.
        grown: gives, for a segment, what becomes of it; None to begin.

    Attributes:
        checkpoint: the last checkpoint, which may wait for the caller; None before the first.
        resumed_from: the checkpoint that the run resumed from; None if it began.
    """

    def __init__(
        self,
        checkpoints: Checkpoints,
        dataflow: Dataflow,
        times: Mapping[str, TimePolicy],
        *,
        fused: bool,
        algorithm: Algorithm,
        grown: Callable[[Store], Growth | None] | None = None,
    ) -> None:
        (checkpoints,) = checkpoints.of_segments(1)
        assert isinstance(checkpoints.every_s, (int, float))
        self._checkpoints, self._every_s = checkpoints, checkpoints.every_s
        plan = Plan(dataflow, fused=fused)
        self._dataflow = dataflow
        self._forms = Forms(dataflow, timed_steps(plan), checkpoints.classes)
        self._store = store_of(checkpoints)
        self._store.open()
        try:
            if grown is not None:
                growth = grown(self._store)
            else:
                divided = chosen(self._store, checkpoints, dataflow, times, fused=fused, algorithm=algorithm)
                growth = divided.of_segment(0, times, partial(forms_of, fused=fused)) if divided is not None else None
        except BaseException:
            self._store.close()
            raise
        self._chosen = growth
        self._growth = growth if growth is not None and growth.is_changed else None
        self._graph = fingerprint(dataflow, times) if growth is None else growth.graph
        self._steps = steps_with_state(plan) if growth is None else growth.steps
        self.resumed_from = self.checkpoint = None if growth is None else growth.begins_at
        self._run: tuple[TakesCheckpoints, SourcePositions, Mapping[str, Sink]] | None = None
        self._retained_sources: deque[Mapping[str, Any]] = deque(
            maxlen=checkpoints.keep
        )  # positions of the retained checkpoints
        self._waiting: deque[tuple[Checkpoint, Callable[[], None]]] = (
            deque()
        )  # positions of checkpoints, and what commits them
        self.watched: Watches | None = None
        self._taken_s = 0.0
        self._taken_items = self.checkpoint.items_in if self.checkpoint is not None else 0

    @property
    def where(self) -> str:
        return self._store.where

    @property
    def begun(self) -> Begun | None:
        """The graph of a run that has no checkpoint yet; None once one is written, or if the run resumed."""
        has_one = self.resumed_from is not None or self._store.written[0] is not None
        return None if has_one else Begun(self._graph, self._steps)

    @property
    def history(self) -> bytes | None:
        """What was stored last of those that watch the run."""
        return self._store.told(HISTORY)[0]

    def tell(self) -> None:
        """Store what is told of the run, which has ended."""
        if self.watched is not None and (told := self.watched.told()) is not None:
            self._store.tell(told)

    @property
    def written(self) -> tuple[Written | None, int]:
        """The checkpoint that was written last, without those of earlier runs, and how many were."""
        return self._store.written

    def refuse_more(self, feed: SourcePositions) -> None:
        """Refuse what the sources of a run that has ended have more; called before anything is opened or read.

        With `from_checkpoint` it may go back to before its end, unless a sink has more; see `begin`.

        Raises:
            SettingsError, InputError: see `drift.engines.over`.
        """
        if _is_over(self._store) and not self._goes_back:
            feed.refuse_more(self._store.checkpoints()[-1].sources, self.where)

    @property
    def _goes_back(self) -> bool:
        """Whether the user has the run resume from before its end."""
        return self._checkpoints.from_checkpoint is not None and not (self.checkpoint and self.checkpoint.is_last)

    def open_sinks(self, sinks: Mapping[str, Sink]) -> None:
        """Open the sinks at the checkpoint, or where one has less than it had there, at the newest earlier one that all
        of them can continue; the run then resumes from that. Called before `begin`; nothing if the run begins.

        Raises:
            SinkBehind: a sink has less than it had at all of them.
            SinkError: a sink cannot be opened.
            StorageError: the checkpoints are not there any more.
        """
        if self._chosen is None:
            return
        first: SinkBehind | None = None
        for checkpoint in self._fitting(self._chosen):
            try:
                self._open_sinks_at(checkpoint, sinks)
            except SinkBehind as behind:
                for sink in sinks.values():
                    sink.close()
                first, last, earliest = first or behind, behind, checkpoint.number
                continue
            if first is not None:
                _LOG.warning("resumes from checkpoint %d at %s: %s", checkpoint.number, checkpoint.reached, first)
            self.resumed_from = self.checkpoint = checkpoint
            return
        if first is None:
            raise StorageError(changed_meanwhile(self._store.where))
        if first is last:
            raise first
        raise SinkBehind(f"{first}. Neither can the run resume from an earlier checkpoint, down to {earliest}: {last}")

    def _fitting(self, chosen: Growth) -> Iterator[Checkpoint]:
        """The checkpoints that the run could resume from in place of the chosen one, which comes first."""
        newest = chosen.checkpoint
        if chosen.is_changed and chosen.segments:  # where the others begin hangs on it
            yield chosen.begins_at
            return
        for each in self._store.checkpoints()[::-1]:
            if each.number <= newest.number and (each.graph, each.steps) == (newest.graph, newest.steps):
                yield replace(chosen, checkpoint=each).begins_at

    def _open_sinks_at(self, checkpoint: Checkpoint, sinks: Mapping[str, Sink]) -> None:
        new = self._growth.new_sinks if self._growth is not None else ()
        for name, sink in sinks.items():
            if isinstance(sink, Committing) and name not in new:
                check_kind(name, sink, checkpoint.kinds.get(name))
                sink.resume_at(checkpoint.output.position, checkpoint.sinks.get(name))
        for name, sink in sinks.items():
            open_as_then(name, sink, checkpoint.targets.get(name, ""))

    def begin(
        self,
        engine: TakesCheckpoints,
        feed: SourcePositions,
        sinks: Mapping[str, Sink],
        fill: Callable[[Growth, Checkpoint], Snapshot] | None = None,
    ) -> None:
        """Set engine and sources to the checkpoint; called before any item flows, with sinks open if the run resumes.

        Args:
            fill: gives the states of a graph's new steps as of the checkpoint; called if there is a backfill.

        Raises:
            SinkError: the graph has changed, and a sink has items that this one does not give at their positions.
        """
        checkpoint = self.checkpoint
        self._run = engine, feed, sinks
        self._taken_s = time.monotonic()
        if checkpoint is None:
            self._store.clear()
            engine.prepare_checkpoints(None)
            feed.resume({}, BEGINNING)  # logs may have input, though no checkpoint was committed
            return
        self._retained_sources.extend(
            each.sources
            for each in self._store.checkpoints()
            if each.number <= checkpoint.number and each.sources.keys() == checkpoint.sources.keys()
        )  # not those of a graph that read sources where this one reads another segment, or the other way round
        position = checkpoint.output.position
        goes_back = self._goes_back and _is_over(self._store)
        if goes_back and any(_has_behind(sink, position) for sink in sinks.values()):
            feed.refuse_more(self._store.checkpoints()[-1].sources, self.where)
        if self._growth is not None:
            checkpoint = self._change(self._growth, checkpoint, sinks, fill)
        feed.resume(checkpoint.sources, checkpoint.at)
        engine.prepare_checkpoints(self._begin(checkpoint))

    def _change(
        self,
        growth: Growth,
        checkpoint: Checkpoint,
        sinks: Mapping[str, Sink],
        fill: Callable[[Growth, Checkpoint], Snapshot] | None,
    ) -> Checkpoint:
        """Take a checkpoint of the changed graph, where it resumes from the old, with states that move or are filled.

        So whatever ends the run, the next one resumes with the new graph, what is behind the checkpoint in a sink is of
        one graph, and states are converted once.

        Raises:
            SinkError: see `begin`.
        """
        self.check_sinks(sinks)
        snapshots: dict[str, bytes] = {}
        if growth.is_filled:  # before later checkpoints are dropped: a function may fail
            assert fill is not None
            snapshots["filled"] = self._forms.encoded(fill(growth, checkpoint))
        committed = _committed(sinks)
        before: dict[int | None, RestoredStates] = {}
        if checkpoint.number:
            before[None] = self._store.states(checkpoint, self._forms)
        for origin in {*growth.later, *(move.origin for move in growth.moves)} - {None}:
            assert origin is not None
            where, found = growth.segments[origin]
            before[origin] = states_at(StatesAt.of(replace(self._checkpoints, where=where), found), self._dataflow)
        parts = moved(before, growth, checkpoint.at, self._forms)
        snapshots |= {f"moved-{number}": data for number, data in enumerate(parts)}
        changed = replace(
            checkpoint,
            number=checkpoint.number + 1,
            graph=self._graph,
            steps=self._steps,
            **committed,
            keys=0,
            converted=growth.converted,
        )
        self._retained_sources.append(checkpoint.sources)
        self._store.commit(changed, snapshots, self._store.blocks(checkpoint), None, lambda: None)
        self._store.wait()
        self.checkpoint = self._store.checkpoints()[-1]
        return self.checkpoint

    def check_sinks(self, sinks: Mapping[str, Sink]) -> None:
        """Check, if the graph has changed, that no sink has what it would not give.

        Raises:
            SinkError: see `begin`.
        """
        if self._growth is None or self.checkpoint is None:
            return
        for name, sink in sinks.items():
            if name in self._growth.new_sinks and _has_behind(sink, 0):
                raise SinkError(
                    f"sink {name!r} is new in this graph, and its target has items already, which another run wrote; "
                    f"take another target, or empty it"
                )
            if _has_behind(sink, self.checkpoint.output.position):
                raise SinkError(
                    f"sink {name!r} has items from behind the checkpoint, which the graph before wrote, and with "
                    f"another graph items have other positions; resume with the graph as it was, end that run with "
                    f"run.stop() (or SIGTERM), which takes a checkpoint behind all that was written, and then change "
                    f"the graph"
                )

    def _begin(self, checkpoint: Checkpoint) -> Begin:
        at = StatesAt.of(self._checkpoints, checkpoint)
        return Begin(checkpoint, self._store.blocks(checkpoint), self._store.states(checkpoint, self._forms), at)

    def advance(self, items_in: int, taken: int) -> None:
        """Commit a checkpoint that waits for the caller, and take one if it is time.

        Args:
            taken: the caller has taken all output below this position.
        """
        self.commit_taken(taken)
        if self.is_due(items_in):
            self.take(taken)

    def is_due(self, items_in: int) -> bool:
        if self._waiting or self._store.is_busy:
            return False
        every_items = self._checkpoints.every_items
        by_items = every_items is not None and items_in - self._taken_items >= every_items
        return by_items or time.monotonic() - self._taken_s >= self._every_s

    def take(self, taken: int = sys.maxsize) -> None:
        """Take a checkpoint; called when the sinks have all released output.

        Args:
            taken: as for `advance`; until it is at the checkpoint, the checkpoint waits, and no other is due.

        Raises:
            PayloadError: a state cannot be stored.
            StorageError: the checkpoint before could not be written.
        """
        assert self._run is not None
        engine, feed, sinks = self._run
        of_engine = engine.checkpoint()
        if of_engine is None:
            return
        self._taken_s, self._taken_items = time.monotonic(), feed.items_in
        positions = feed.positions_at(of_engine.at)
        committed = _committed(sinks)
        checkpoint = Checkpoint(
            number=1 if self.checkpoint is None else self.checkpoint.number + 1,
            at=of_engine.at,
            graph=self._graph,
            steps=self._steps,
            output=of_engine.output,
            sources=positions,
            **committed,
            items_in=feed.items_in,
            tombstones=of_engine.tombstones,
            late_items=feed.late_items_at(of_engine.at),
            keys=sum(len(entries) for snapshot in of_engine.snapshots.values() for entries in snapshot.states.values()),
            released=dict(self.watched.released) if self.watched is not None else {},
            converted={} if self.checkpoint is None else self.checkpoint.converted,
        )
        told = self.watched.told() if self.watched is not None else None
        snapshots = {name: self._forms.encoded(snapshot) for name, snapshot in of_engine.snapshots.items()}
        self._retained_sources.append(positions)
        oldest = self._retained_sources[0]
        waits = checkpoint.output.position > taken
        blocks = list(of_engine.blocks) if waits else of_engine.blocks  # the engine adds to its own
        on_commit = partial(feed.committed, oldest)
        commit = partial(self._store.commit, checkpoint, snapshots, blocks, of_engine.opened, on_commit, told)
        self._waiting.append((checkpoint, commit))
        self.checkpoint = checkpoint
        self.commit_taken(taken)

    def end(self, taken: int) -> None:
        """Take the last checkpoint: the output has ended."""
        self.take(taken)

    def commit_taken(self, taken: int = sys.maxsize) -> None:
        """Commit the checkpoints that wait for the caller and are not above what it has taken."""
        while self._waiting and self._waiting[0][0].output.position <= taken:
            checkpoint, commit = self._waiting.popleft()
            assert self._run is not None
            self._run[1].report_late(checkpoint.at)
            commit()

    def pause(self, taken: int = sys.maxsize, *, at_least: bytes = BEGINNING) -> bool:
        """Take the checkpoint at which the run stops; returns whether it exists.

        Args:
            at_least: minimal time, which the checkpoint has to have reached.
        """
        assert self._run is not None
        before = self.checkpoint
        self.take(taken)
        return self.reached >= at_least and (self.checkpoint is not before or not self._run[0].awaits_checkpoint)

    @property
    def reached(self) -> bytes:
        """Minimal time as of the last checkpoint."""
        return BEGINNING if self.checkpoint is None else self.checkpoint.at

    def held(self) -> Held:
        """What the run holds that stands at its last checkpoint: what one that resumes begins with."""
        assert self._run is not None
        self._store.wait()
        retained = self._store.checkpoints()
        if not retained:
            return Held({}, {}, 0)
        checkpoint = retained[-1]
        states = self._store.states(checkpoint, self._forms).at_once(checkpoint)
        found = {
            step: HeldKeys(len(entries), sum(len(timers) for _, (_, timers) in entries))
            for step, entries in states.states.items()
            if entries.identities
        }
        return Held({}, found, sum(each.diff for each in states.later))

    def give_up(self) -> None:
        self._store.give_up()

    def wait(self) -> None:
        self._store.wait()

    def close(self) -> None:
        """Wait for the last checkpoint to be written."""
        self._store.close()
