"""The input of a segment: the output of the segment before, which is run step by step on demand, or the answers about
it.

Invariant: all input was in the log before, except failed calls; it comes in the order of metas, with the minimal time
of the segment before as the heartbeat of every source, and nothing below the checkpoint that was resumed from.

Why no thread: an engine asks its feed for more when it has room. So the segment before does as much as there is room
for, and its output is in the log before anybody else has it.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from itertools import groupby
from typing import TYPE_CHECKING, Any

from drift.engines.base import Engine
from drift.engines.feed import Feed
from drift.machines.nodes.intake import Fed
from drift.segments.log import BorderLog, Passed
from drift.state.run_checkpoints import Begin, RunCheckpoints, Taken, TakesCheckpoints
from drift.state.segments import Begun, position_of
from drift.state.settings import Checkpoints
from drift_barrier.barrier import Released
from drift_graph.errors import DriftError
from drift_graph.item import FAILURES, Failure
from drift_graph.meta import BEGINNING, END_OF_TIME, global_time_of
from drift_graph.metas import Metas
from drift_graph.segments import Segment
from drift_graph.times import Arrived, SourceMachine

if TYPE_CHECKING:
    from drift.segments.answering import Answering
    from drift.segments.answers import AnswerLog

#: How often a segment is polled before the next one does something else.
_TURNS_MAX = 32


class BorderFeed(Feed):
    """
    Args:
        befores: the segments before; the output of the last of them is this.
        batch_items: larger batches are split.
        answering: asks about items at calls; None if there are none at this border.
        since: see `drift.state.segments.checkpoints_of`.
    """

    def __init__(
        self,
        dataflow: Segment,
        befores: Sequence[Before],
        *,
        batch_items: int,
        answering: Answering | None = None,
        since: int = 0,
    ) -> None:
        self.answering = answering
        self._since = since
        machines = [SourceMachine.of(source, rank) for rank, source in enumerate(dataflow.sources)]
        super().__init__(machines, batch_items=batch_items, on_late=lambda _: None)
        self._befores = befores
        self._before = befores[-1]
        self._ranks = {source.name: rank for rank, source in enumerate(dataflow.sources)}
        self._logged: Iterator[Passed] = iter(())
        self._checkpoint = BEGINNING
        self._waiting: Passed | None = None
        self._fed_items = 0  # items of the waiting batch that were read
        self._is_quiet = False

    @property
    def live(self) -> bool:
        """Whether the segment before had nothing when it was last polled: then its next output must be waited for."""
        return self._is_quiet and not self.finished

    def poll(self, minimal_time: bytes) -> list[Fed]:
        """A part of the next batch; empty if the segment before has none yet."""
        if self.error is not None or self.finished:
            return []
        if self._waiting is None:
            self._waiting, self._fed_items = self._next(), 0
        self._is_quiet = self._waiting is None
        if self._waiting is None:
            if self.answering is None:
                self.error = self._before.error
            elif self.answering.is_empty:
                self.error = self.answering.ends_with or self._before.error
            return []
        return self._part(self._waiting)

    def _next(self) -> Passed | None:
        answering = self.answering
        if answering is None:
            return self._arrived()
        while answering.has_room:
            arrived = self._arrived()
            if arrived is None:
                answering.complete()
                break
            answering.put(arrived)
            if arrived.below == END_OF_TIME:
                answering.complete()
        return answering.take()

    def _arrived(self) -> Passed | None:
        """What the segment before has, from its log or computed now."""
        logged = next(self._logged, None)
        if logged is not None:
            return logged
        passed = self._before.step()
        if passed is None or passed.below < self._checkpoint:
            return None
        return passed.from_on(self._checkpoint)

    def _part(self, passed: Passed) -> list[Fed]:
        """As much as may be read at once; the heartbeat comes with the last part of a batch."""
        metas, payloads, borders, below = passed
        start = self._fed_items
        self._fed_items = end = min(start + self.intake.policy.items, len(metas))
        if end == len(metas):
            self._waiting = None
        arrived: dict[int, tuple[list[bytes], list[Any]]] = {}
        stretches = [(borders, range(start, end))] if isinstance(borders, str) else _stretches(borders, start, end)
        for border, at in stretches if end > start else ():
            rank = self._ranks[self._before.source_of[border]]
            its_metas, its_payloads = arrived.setdefault(rank, ([], []))
            its_metas += metas[at.start : at.stop]
            its_payloads += payloads[at.start : at.stop]
        fed: list[Fed] = []
        for rank, machine in enumerate(self.intake.machines):
            heartbeat = max(below, machine.heartbeat) if end == len(metas) else machine.heartbeat
            if rank in arrived or heartbeat != machine.heartbeat:
                its_metas, its_payloads = arrived.get(rank, ([], []))
                fed.append(self.intake.repeat(rank, Arrived(Metas(its_metas), its_payloads, heartbeat, [], None)))
        return fed

    def fraction(self) -> float | None:
        """The share of the first segment's input that was read."""
        return self._before.fraction()

    def filenos(self) -> Sequence[int]:
        """Descriptors of answers only: the segment before is polled."""
        return self.answering.filenos() if self.answering is not None and not self.answering.is_empty else ()

    # State.

    def positions_at(self, checkpoint: bytes) -> dict[str, Any]:
        self._before.taken(checkpoint)
        begun = {number: found for number, each in enumerate(self._befores, 1) if (found := each.begun) is not None}
        return position_of(checkpoint, self.items_in, self._since, begun)

    def committed(self, positions: Mapping[str, Any]) -> None:
        """A checkpoint has been committed; `positions` are those of the oldest retained checkpoint."""
        self._before.committed(bytes.fromhex(positions["from"]))

    def resume(self, positions: Mapping[str, Any], checkpoint: bytes) -> None:
        """Called before anything is read: resume at a checkpoint."""
        self._checkpoint = checkpoint
        self.intake.resume(checkpoint)
        self.intake.machines[0].items_in = positions.get("items_in", 0)
        self._waiting = _nothing(checkpoint)
        self._logged = self._before.log.read(checkpoint)


class Before:
    """A segment with a successor: its engine, its checkpoints and the log of its output.

    Args:
        checkpoints: of this segment, of which 2 or more are retained; None in a run without state.
        answers: the log of the answers about its output.

    Attributes:
        error: that it has ended with.
        source_of: for each border, the source of the next segment that reads it.
        seconds: that its steps took in the calling process, with those of the segments before it.
    """

    def __init__(
        self,
        dataflow: Segment,
        engine: Engine,
        feed: Feed,
        log: BorderLog,
        checkpoints: Checkpoints | None,
        answers: AnswerLog | None = None,
    ) -> None:
        self.answers = answers
        self.source_of = dataflow.source_of
        self.error: Exception | None = None
        self.seconds = 0.0
        self.engine = engine
        self.feed = feed
        self.log = log
        self.run_checkpoints: RunCheckpoints | None = None
        self._retained_checkpoints = checkpoints.keep if checkpoints is not None else 0
        self._complete_log = checkpoints is not None and checkpoints.complete_logs
        self._output = engine.released()
        self._complete_below = END_OF_TIME  # the time of the first failed call: nothing is logged from there on
        self._ended = self._is_to_pause = self._has_paused = False
        self._pieces: list[Passed] = []  # of what is being released, which is not complete below any later time yet
        self._in_commit: deque[bytes] = deque()  # checkpoints of the next segment that are being committed
        self._committed = BEGINNING
        self._checkpoints: deque[bytes] = deque()

    def fraction(self) -> float | None:
        """Of the input of the run."""
        return self.feed.fraction()

    def step(self) -> Passed | None:
        """The next output; None if there is none now, or the segment has ended with an error."""
        began_s = time.perf_counter()
        try:
            return self._step()
        finally:
            self.seconds += time.perf_counter() - began_s

    def _step(self) -> Passed | None:
        for _ in range(_TURNS_MAX):
            if self._ended:
                return None
            passed = self._turn()
            if passed is not None:
                return passed
            if self.feed.live:
                return None
        return None

    def _turn(self) -> Passed | None:
        try:
            batch = next(self._output, None)
        except DriftError as error:
            self._ended, self.error = True, error
            return None if self._has_failed else self._logged(_nothing(self.engine.progress.released_below))
        if batch is None:
            self._ended = True
            return self._logged(_nothing(END_OF_TIME))
        passed = self._logged(self._passed(batch))
        if self._is_to_pause:
            self.pause()
        elif self.run_checkpoints is not None and self.run_checkpoints.is_due(self.feed.items_in):
            self.take()
        return passed

    def _passed(self, batch: Released) -> Passed:
        """A batch of output; the log is complete only below the first failed call in it."""
        _, metas, payloads, borders, error = batch
        below = self.engine.progress.released_below
        if error is not None:  # before the end of a time, and nothing follows
            last = global_time_of(metas[-1]) if metas else self.log.end
            self._fail(last)
            below = last + b"\xff" if metas else last
        elif FAILURES in ((borders,) if isinstance(borders, str) else borders):
            failed = next((at for at, payload in enumerate(payloads) if type(payload) is Failure), None)
            if failed is not None:
                self._fail(global_time_of(metas[failed]))
        return Passed(list(metas), payloads, borders, below)

    def _fail(self, time: bytes) -> None:
        self._complete_below = min(self._complete_below, time)

    @property
    def _has_failed(self) -> bool:
        return self._complete_below != END_OF_TIME

    def _logged(self, passed: Passed) -> Passed | None:
        """Log a batch; returns the part of it that is new."""
        new = passed.from_on(self.log.end)
        if passed.below <= self.log.end:  # logged before, or a piece of what is being released
            if new.metas:
                self._pieces.append(new)
            return None
        if self._pieces:
            new = _joined([*self._pieces, new])
            self._pieces.clear()
        complete = new.up_to(self._complete_below)
        if complete.below > self.log.end:
            error = self.log.write(complete)
            if error is not None:
                raise error
        return new

    # Checkpoints.

    @property
    def begun(self) -> Begun | None:
        """What is known of the segment as long as it has no checkpoint; None once it has one."""
        return self.run_checkpoints.begun if self.run_checkpoints is not None else None

    def take(self, *, last: bool = False) -> None:
        """Take a checkpoint, unless it would drop the last one at or below what the next segment has committed.

        So there is always one from which all output that the next segment needs can be produced again, with or without
        the log.

        Args:
            last: whether the run ends here, and the next segment with it.
        """
        assert self.run_checkpoints is not None
        while last and not self._ended:  # all of its output has come, and maybe not yet that it has ended
            self.step()
        oldest = self._checkpoints[1] if len(self._checkpoints) >= self._retained_checkpoints else BEGINNING
        if oldest > self._committed and not last:
            return
        before = self.run_checkpoints.checkpoint
        self.run_checkpoints.take()
        if self.run_checkpoints.checkpoint is not before and self.run_checkpoints.checkpoint is not None:
            self._checkpoints.append(self.run_checkpoints.checkpoint.at)
            while len(self._checkpoints) > self._retained_checkpoints:
                self._checkpoints.popleft()

    def pause(self) -> bool:
        """Take the checkpoint at which the run stops, now or once it is complete; returns whether it exists."""
        assert self.run_checkpoints is not None
        if not self._has_paused:
            self._has_paused = self.run_checkpoints.pause()
            self._is_to_pause = not self._has_paused
        return self._has_paused

    def taken(self, checkpoint: bytes) -> None:
        self._in_commit.append(checkpoint)

    def committed(self, oldest: bytes) -> None:
        """The oldest checkpoint being committed is committed now; called by the thread that writes checkpoints."""
        self._committed = self._in_commit.popleft()
        if not self._complete_log:
            self.log.drop_below(oldest)
            if self.answers is not None:
                self.answers.drop_below(oldest)

    # As an engine that takes checkpoints, and as the sink.

    def prepare_checkpoints(self, begin: Begin | None) -> None:
        assert isinstance(self.engine, TakesCheckpoints)
        if begin is not None:
            self._checkpoints.append(begin.checkpoint.at)
        self.engine.prepare_checkpoints(begin)

    @property
    def awaits_checkpoint(self) -> bool:
        assert isinstance(self.engine, TakesCheckpoints)
        return self.engine.awaits_checkpoint and not self._has_failed

    def checkpoint(self) -> Taken | None:
        """The log is complete below it, on the disk."""
        assert isinstance(self.engine, TakesCheckpoints)
        taken = self.engine.checkpoint() if not self._has_failed else None
        if taken is not None:
            self.log.reach(taken.at)
            self.log.commit()
        return taken

    def close(self) -> None:
        try:
            self._output.close()  # type: ignore[attr-defined]
        finally:
            self.log.close()
            if self.answers is not None:
                self.answers.close()
            self.engine.close()


def _nothing(below: bytes) -> Passed:
    return Passed([], [], "", below)


def _joined(pieces: Sequence[Passed]) -> Passed:
    metas = [meta for piece in pieces for meta in piece.metas]
    payloads = [payload for piece in pieces for payload in piece.payloads]
    names = {piece.borders for piece in pieces if isinstance(piece.borders, str)}
    if len(names) == 1 and all(isinstance(piece.borders, str) for piece in pieces):
        return Passed(metas, payloads, names.pop(), pieces[-1].below)
    each = [[piece.borders] * len(piece.metas) if isinstance(piece.borders, str) else piece.borders for piece in pieces]
    return Passed(metas, payloads, [border for borders in each for border in borders], pieces[-1].below)


def _stretches(borders: Sequence[str], start: int, end: int) -> Iterator[tuple[str, range]]:
    """The contiguous ranges of items that left by one border."""
    for border, several in groupby(range(start, end), borders.__getitem__):
        indices = list(several)
        yield border, range(indices[0], indices[-1] + 1)
