"""The segments of a graph as one engine: each is a run of its own, in a run with state with its own checkpoints and a
log of its output.

Invariant: the output of the last segment is that of the whole graph. After everything died, each segment resumes from a
checkpoint of its own; the first alone reads sources, and each other one reads the log of the one before, and the
answers about it.

Why it suffices to choose checkpoints from the last segment to the first: the checkpoint of a segment says from where it
needs the log before it; so the segment before resumes from its newest checkpoint with which that log is complete, at
worst from one at or below that position. There is one, since a segment takes no checkpoint that would drop the last
such.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

from drift.engines.base import Progress
from drift.engines.feed import Feed
from drift.engines.kinds import EngineKind
from drift.engines.observed import Observed, ProcessState
from drift.engines.settings import Settings
from drift.segments.answers import AnswerLog, AnswersAtBorder, AnswersOfRun
from drift.segments.feed import Before, BorderFeed
from drift.segments.log import BorderLog, Unlogged
from drift.sinks.base import Sink
from drift.state.checkpoint import Checkpoint
from drift.state.growth import Growth, grown
from drift.state.run_checkpoints import (
    Held,
    RunCheckpoints,
    TakesCheckpoints,
    changed_meanwhile,
    chosen,
    forms_of,
    known,
)
from drift.state.segments import Divided, checkpoints_of
from drift.state.settings import Checkpoints, log_folder_of
from drift.state.store import Store
from drift.urls import without_secrets
from drift_barrier.barrier import Released
from drift_graph.errors import SettingsError, StorageError
from drift_graph.functions import warn
from drift_graph.graph import Dataflow
from drift_graph.meta import BEGINNING
from drift_graph.policies import TimePolicy
from drift_graph.segments import Segment, segments_of

if TYPE_CHECKING:
    from drift.calling.asker import Loop
    from drift.segments.answering import Answering

#: A call that has taken so long is named as what the run waits for.
_SLOW_S = 1.0


class Chain:
    """An `Engine`; see the module.

    Args:
        dataflow: a graph with durable steps or calls.
        state: where the run keeps its state; None in a run without state.
        answers: that were recorded, and where answers are recorded; see `AnswersOfRun`.
        since: see `drift.state.segments.checkpoints_of`.

    Attributes:
        befores: all segments but the last.
        last_feed: of the last segment.
        answerings: what asks at the borders that are calls.
    """

    def __init__(
        self,
        kind: EngineKind,
        dataflow: Dataflow,
        feed: Feed,
        settings: Settings,
        state: Checkpoints | None,
        answers: AnswersOfRun,
        since: int = 0,
    ) -> None:
        self._feed = feed
        self._since = since
        self.befores: list[Before] = []
        self._checkpoints = state
        every = segments_of(dataflow, durable=state is not None)
        self._segments = [each for each in every if isinstance(each, Segment)]
        self._of_segments = state.of_segments(len(every)) if state is not None else []
        self._loop = _loop() if any(each.calls for each in self._segments) else None
        logs = log_folder_of(state) if state is not None else None
        if state is not None and logs is None:
            raise SettingsError(
                f"graph {dataflow.name!r} has durable steps or calls, whose logs are files, and the state is on a "
                f"server: name a folder too, logs= of drift.Checkpoints, or --state-logs"
            )
        in_flight_max, batch_items = settings.in_flight_max, settings.items_at_once
        version = f"-{since}" if since else ""
        try:
            for number, segment in enumerate(self._segments[:-1], 1):
                engine = kind.make(segment, feed, settings)
                log: BorderLog = Unlogged()
                stored: AnswerLog | None = None
                if state is not None and logs is not None:
                    log = BorderLog(logs / f"segment{version}+{number}", _steps_of(segment), on_disk=state.logs_on_disk)
                    if segment.calls:
                        folder = logs / f"answers{version}+{number}"
                        stored = AnswerLog(folder, _steps_of(segment), on_disk=state.logs_on_disk)
                checkpoints = (
                    checkpoints_of(self._of_segments[number - 1], number, since) if state is not None else None
                )
                self.befores.append(Before(segment, engine, feed, log, checkpoints, stored))
                answering = None
                if self._loop is not None and segment.calls:
                    answering = _answering(segment, self._loop, in_flight_max, AnswersAtBorder(answers, stored))
                feed = BorderFeed(
                    self._segments[number], self.befores[:], batch_items=batch_items, answering=answering, since=since
                )
            self._last = kind.make(self._segments[-1], feed, settings)
        except BaseException:
            self.close_all([*self.befores, feed, *self._loops])
            raise
        self.last_feed = feed
        feeds = [*(each.feed for each in self.befores[1:]), feed]
        self.answerings = [each.answering for each in feeds if isinstance(each, BorderFeed) and each.answering]

    @property
    def _loops(self) -> list[Loop]:
        return [self._loop] if self._loop is not None else []

    @staticmethod
    def close_all(these: Sequence[Any]) -> None:
        for each in these:
            each.close()

    def run_checkpoints(
        self, dataflow: Dataflow, times: Mapping[str, TimePolicy], sinks: Mapping[str, Sink], settings: Settings
    ) -> ChainCheckpoints:
        """The object that takes checkpoints; each segment resumes from its last checkpoint, or the last with which its
        log is complete.

        Args:
            dataflow: the graph, as the user wrote it.
        """
        assert self._checkpoints is not None
        segments = segments_of(dataflow)
        *of_befores, of_last = self._of_segments
        stores = [checkpoints_of(each, number, self._since) for number, each in enumerate(of_befores, 1)] + [of_last]
        forms = partial(forms_of, fused=settings.fused)
        make = partial(RunCheckpoints, fused=settings.fused, algorithm=settings.digest)
        resumed: list[Divided] = []

        def of_segment(number: int, checkpoint: Checkpoint | None) -> Growth | None:
            own_times = {} if number else times
            if resumed and (checkpoint is not None or resumed[0].whole.is_changed):
                return resumed[0].of_segment(number, own_times, forms, checkpoint)
            if checkpoint is None:
                return None
            growth = grown(checkpoint, segments[number], own_times, forms, of_last.allowed)
            growth.check_begun(settings.digest, _shown(stores[number]))
            return growth

        def of_the_last(store: Store) -> Growth | None:
            found = chosen(store, of_last, dataflow, times, fused=settings.fused, algorithm=settings.digest)
            if found is None:
                return None
            if found.since != self._since:
                raise StorageError(changed_meanwhile(store.where))
            resumed.append(found)
            return of_segment(len(segments) - 1, found.before.checkpoints[-1])

        last = ChainCheckpoints(
            of_last, segments[-1], {}, fused=settings.fused, algorithm=settings.digest, grown=of_the_last
        )
        of_others: list[RunCheckpoints] = []
        try:
            if (retained := known(stores[0])) and retained[-1].is_last:
                self._feed.refuse_more(retained[-1].sources, last.where)
            last.open_sinks(sinks)
            is_changed = bool(resumed) and resumed[0].whole.is_changed
            if is_changed:
                last.check_sinks(sinks)
                self._begin_logs(resumed[0], [of_segment(at, None) for at in range(len(segments))])
            begin_at = [None] * len(self.befores) if is_changed else self._chosen(stores[:-1], last.checkpoint)
            for number, (segment, checkpoints, checkpoint) in enumerate(zip(segments, stores, begin_at)):
                growth = of_segment(number, checkpoint)
                of_others.append(make(checkpoints, segment, {} if number else times, grown=partial(_given, growth)))
            for before, run_checkpoints in zip(self.befores, of_others):
                before.run_checkpoints = run_checkpoints
                run_checkpoints.begin(before, before.feed, {})
            assert isinstance(self._last, TakesCheckpoints)
            last.begin(self._last, self.last_feed, sinks)
        except BaseException:
            self.close_all([*of_others, last])
            raise
        last.join(self, of_others)
        return last

    def _begin_logs(self, divided: Divided, segments: Sequence[Growth | None]) -> None:
        """Of a graph that has changed: nothing is logged, and answers are those of then, found by what was asked."""
        begin = [each.checkpoint.at for each in segments if each is not None]
        logs = log_folder_of(self._checkpoints) if self._checkpoints is not None else None
        assert logs is not None
        version = f"-{divided.before.since}" if divided.before.since else ""
        then = []
        for number in range(1, len(divided.before.checkpoints)):
            then.append(AnswerLog(logs / f"answers{version}+{number}", "the calls of the graph before"))
            then[-1].open_to_read(begin[0])
        for before, at in zip(self.befores, begin):
            before.log.begin_at(at)
            if before.answers is not None:
                before.answers.begin_with(then)

    def _chosen(self, stores: Sequence[Checkpoints], last: Checkpoint | None) -> list[Checkpoint | None]:
        """The checkpoint that each segment but the last resumes from; None to start from the beginning."""
        found: list[Checkpoint | None] = []
        for before, checkpoints in zip(self.befores[::-1], stores[::-1]):
            retained, next_one = known(checkpoints), found[0] if found else last
            after = next_one.at if next_one is not None else BEGINNING
            before.log.open_to_read()
            if before.answers is not None:
                before.answers.open_to_read(after)
            if not retained and next_one is None:
                before.log.clear()
            fitting = [checkpoint for checkpoint in retained if before.log.joins(checkpoint.at, after)]
            if retained and not fitting:
                raise SettingsError(
                    f"{_lost(before)}, and the segment after it resumes from before the oldest checkpoint in "
                    f"{_shown(checkpoints)}; bring the log back, or remove {_shown(checkpoints)}, so that all before "
                    f"the log is computed again"
                )
            checkpoint = fitting[-1] if fitting else None
            if checkpoint is not None and checkpoint is not retained[-1]:
                warn(
                    f"{_lost(before)}: the segments before it resume from checkpoint {checkpoint.number} at "
                    f"{checkpoint.reached}, and compute what was lost again; the output is the same",
                )
            before.log.resume(checkpoint.at if checkpoint is not None else BEGINNING, after)
            found.insert(0, checkpoint)
        return found

    # As an engine.

    @property
    def needs_items(self) -> bool:
        return self._last.needs_items

    @needs_items.setter
    def needs_items(self, needed: bool) -> None:
        self._last.needs_items = needed

    @property
    def progress(self) -> Progress:
        """The progress of the run: what the first segment has read, and the last one released."""
        last, others = self._last.progress, [before.engine.progress for before in self.befores]
        peaks = {
            f"{name} of segment {number}": peak
            for number, each in enumerate([*others, last], 1)
            for name, peak in each.peak_memory_bytes.items()
        }
        every = [*others, last]
        slow = next((found for each in self.answerings if (found := each.slow(_SLOW_S)) is not None), None)
        held = next((each for each in every if each.held_by), last)
        held_by, silent_since_s = held.held_by, held.silent_since_s
        if slow is not None:
            held_by, silent_since_s = f"call {slow.step!r} about {slow.payload}", slow.since_s
        return replace(
            last,
            items_in=self._feed.items_in,
            late_items=self._feed.late_found,
            unsettled=self._feed.unsettled(last.minimal_bytes) or sum(each.waiting for each in self.answerings),
            fraction=others[0].fraction,
            held_by=held_by,
            silent_since_s=silent_since_s,
            tombstones=sum(each.tombstones for each in every),
            refused_frames=sum(each.refused_frames for each in every),
            died=[f"{name} of segment {number}" for number, each in enumerate(every, 1) for name in each.died],
            recoveries=sum(each.recoveries for each in every),
            fed_again=sum(each.fed_again for each in every),
            recovering_s=sum(each.recovering_s for each in every),
            peak_memory_bytes=peaks,
        )

    def released(self) -> Iterator[Released]:
        return self._last.released()

    def hexdigest(self) -> str:
        return self._last.hexdigest()

    def blocks(self) -> list[bytes]:
        return self._last.blocks()

    def observed(self) -> Observed:
        every = [each.observed() for each in (*(before.engine for before in self.befores), self._last)]
        processes: dict[int, ProcessState] = {}  # one may have several segments
        for number, each in enumerate(every, 1):
            for state in each.processes:
                first = state.name == "run" and number == 1
                named = state if first else state._replace(name=f"{state.name} of segment {number}")
                processes.setdefault(state.pid, named)
        return Observed(
            {name: counts for each in every[::-1] for name, counts in each.counts.items()},
            [name for each in every for name in each.inside_loops],
            list(processes.values()),
            {f"{name} of segment {at}": bars for at, each in enumerate(every, 1) for name, bars in each.bars.items()},
            [before.seconds for before in self.befores],
        )

    def close(self) -> None:
        self.close_all([*self._loops, self._last, *self.befores[::-1]])


class ChainCheckpoints(RunCheckpoints):
    """The checkpoints of the last segment, presented to a run as its own; all other segments take theirs by themselves.

    Attributes:
        of_segments: for each segment, the object that takes its checkpoints.
    """

    of_segments: Sequence[RunCheckpoints] = ()

    def join(self, chain: Chain, of_others: Sequence[RunCheckpoints]) -> None:
        """All segments have been set to their checkpoints."""
        self.of_segments = [*of_others, self]
        self._chain = chain
        self._has_paused = False

    def advance(self, items_in: int, taken: int) -> None:
        """The checkpoint is counted by the input items of the last segment."""
        super().advance(self._chain.last_feed.items_in, taken)

    def end(self, taken: int) -> None:
        """The output has ended: take the last checkpoint of the last segment; of all, if the input has ended, too."""
        if self._chain.last_feed.finished:
            for before in self._chain.befores:  # first: where the last segment is over, so are they, and read no more
                before.take(last=True)
            for each in self.of_segments[:-1]:
                each.wait()
        super().end(taken)

    def pause(self, taken: int = sys.maxsize, *, at_least: bytes = BEGINNING) -> bool:
        """Take the checkpoints at which the run stops, once calls in flight have ended; returns whether they exist."""
        settled = [each.settle() for each in self._chain.answerings]  # a list, so that each begins no further call
        if not all(settled):
            return False
        paused = [before.pause() for before in self._chain.befores]  # a list, so that each takes one
        self._has_paused = self._has_paused or super().pause(taken, at_least=at_least)
        return self._has_paused and all(paused)

    def held(self) -> Held:
        """The states of all segments."""
        found = [*(each.held() for each in self.of_segments[:-1]), super().held()]
        steps = {name: keys for held in found for name, keys in held.steps.items()}
        return Held({}, steps, sum(held.later_items for held in found))

    def give_up(self) -> None:
        for each in self.of_segments[:-1]:
            each.give_up()
        super().give_up()

    def wait(self) -> None:
        for each in self.of_segments[:-1]:
            each.wait()
        super().wait()

    def close(self) -> None:
        """Wait for the last checkpoints to be written."""
        for each in self.of_segments[:-1]:
            each.close()
        super().close()


def _given(growth: Growth | None, _: Store) -> Growth | None:
    return growth


def _loop() -> Loop:
    from drift.calling.asker import Loop  # imports asyncio, which takes as long to load as all of drift

    return Loop()


def _answering(segment: Segment, loop: Loop, in_flight_max: int, log: AnswersAtBorder) -> Answering:
    from drift.segments.answering import Answering

    return Answering(segment.name, segment.calls, loop, in_flight_max, log)


def _steps_of(segment: Segment) -> str:
    """The durable steps and calls at the end of a segment."""
    durable = [repr(each.step) for each in segment.operators if each.durable]
    calls = [repr(each.step) for each in segment.calls.values()]
    of_each = [f"{kind} {', '.join(steps)}" for kind, steps in (("durable step", durable), ("call", calls)) if steps]
    return " and ".join(of_each)


def _lost(before: Before) -> str:
    return before.log.broken or f"{before.log.what} no longer has all that is needed"


def _shown(checkpoints: Checkpoints) -> str:
    return without_secrets(os.fspath(checkpoints.where))
