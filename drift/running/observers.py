"""What sees the output of a run on its way to the callers.

Invariant: each observer gets every batch, in the order of the list, before the callers do; and hears in that order that
the callers have asked for more. What one takes from a batch, those behind it and the callers do not get.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from drift.batches import EVERYTHING
from drift.engines.base import Engine
from drift.engines.feed import Feed
from drift.state.run_checkpoints import Held, RunCheckpoints
from drift.undisturbed import undisturbed
from drift_barrier.barrier import Released
from drift_barrier.digest import Digest
from drift_graph.functions import warn
from drift_graph.meta import BEGINNING, END_OF_TIME, global_time_of, time_of

if TYPE_CHECKING:
    from drift.records.recorder import Recorder


#: In seconds 2001 to 2286, in milliseconds the first months of 1970.
_SECONDS_FROM, _SECONDS_TO = 10**9, 10**10


class Observer:
    def take(self, batch: Released) -> Released:
        """Take a batch; returns what of it goes on."""
        return batch

    def taken(self, batch: Released, below: int) -> bool:
        """Hear that the callers have asked for more, and have taken everything below a position.

        Returns:
            Whether the run ends here.
        """
        return False


class Units(Observer):
    """Warns if windows are of "10s" and the like, which are milliseconds, and times look like seconds since 1970."""

    def __init__(self, spans: Sequence[str]) -> None:
        self._spans = spans

    def take(self, batch: Released) -> Released:
        if self._spans and batch.metas:
            if _SECONDS_FROM <= (time := time_of(batch.metas[0])) < _SECONDS_TO:
                read, meant = (datetime.fromtimestamp(each, UTC).date() for each in (time / 1000, time))
                warn(
                    f"the length of a window is {self._spans[0]!r}, in milliseconds, and the first output has time "
                    f"{time}: that is {read} in milliseconds, and {meant} in seconds; say which it is, "
                    f"EventTime(..., unit='s') or unit='ms', or write lengths as numbers",
                )
            self._spans = ()
        return batch


class Limit(Observer):
    """Counts and hashes the output that is given, and ends it before a position.

    Attributes:
        items: given so far.
        digest: of these.
    """

    def __init__(self, until: int | None, digest: Digest) -> None:
        self._until = until
        self.digest = digest
        self.items = 0

    def take(self, batch: Released) -> Released:
        if self._until is not None:
            batch = batch.before(self._until)
        self.digest.add(batch.metas, batch.payloads)
        self.items += len(batch.metas)
        return batch

    def taken(self, batch: Released, below: int) -> bool:
        return self._until is not None and batch.position + len(batch.metas) >= self._until


class Recording(Observer):
    """Records the output, up to the first item that a record cannot have; behind it the run fails."""

    def __init__(self, recorder: Recorder, engine: Engine) -> None:
        self._recorder = recorder
        self._encoded = getattr(engine, "encoded", tuple)  # as bytes, if the digest was made in this process
        self._error: Exception | None = None

    @undisturbed
    def take(self, batch: Released) -> Released:
        if batch.metas:
            batch, self._error = self._recorder.released(batch, self._encoded())
        return batch

    def taken(self, batch: Released, below: int) -> bool:
        if self._error is not None:
            raise self._error
        return False


class Acknowledging(Observer):
    """Tells sources what was released below which time, if the callers have taken the output up to there; and callers
    which late items lie before what was released, if checkpoints do not.
    """

    def __init__(self, engine: Engine, feed: Feed) -> None:
        self._engine = engine
        self._feed = feed
        self._waiting = 0, BEGINNING  # a time, and the position that the output had there

    def taken(self, batch: Released, below: int) -> bool:
        end = batch.position + len(batch.metas)
        now = end, self._engine.progress.released_below if batch.error is None else self._failed_at(batch.error)
        self._report_late(now[1])
        position, time = now if below >= end else self._waiting
        if below >= position:
            self._feed.released(time)
            self._waiting = now
        return False

    def _failed_at(self, error: Exception) -> bytes:
        """The position of the item that an error is about: minimal time may be past it."""
        meta = getattr(error, "meta", b"")
        return global_time_of(meta) if meta else self._waiting[1]

    def _report_late(self, below: bytes, *, last: bool = False) -> None:
        if not self._feed.has_positions:
            self._feed.report_late(below)
        if last:
            self._feed.drop_late()
            self._engine.progress.late_items = self._feed.late_items

    def failed(self, error: BaseException) -> None:
        """The run ends with an error: late items before that are reported, and others never were."""
        self._report_late(END_OF_TIME if error is self._feed.error else getattr(error, "meta", BEGINNING), last=True)

    def complete(self, below: int) -> None:
        self._report_late(END_OF_TIME, last=True)
        if below == EVERYTHING:
            self._feed.released(END_OF_TIME, last=True)


class Checkpointing(Observer):
    """Takes the checkpoints of a run.

    Attributes:
        is_to_pause: whether the run is to end at a checkpoint.
    """

    def __init__(self, run_checkpoints: RunCheckpoints, engine: Engine, feed: Feed) -> None:
        self._run_checkpoints = run_checkpoints
        self._engine = engine
        self._feed = feed
        self.is_to_pause = False

    def taken(self, batch: Released, below: int) -> bool:
        if batch.error is not None:  # minimal time may be past what failed
            return False
        self._run_checkpoints.advance(self._engine.progress.items_in, below)
        reached, least = self._engine.progress.minimal_bytes, self._feed.heartbeat
        if reached >= least and self._feed.is_at_rest(reached):
            return self._run_checkpoints.pause(below, at_least=least)
        return self.is_to_pause and self._run_checkpoints.pause(below)

    def held(self) -> Held:
        """What the run holds, which has ended at a checkpoint."""
        reached = self._run_checkpoints.reached
        machines = self._feed.intake.machines
        unsettled = {machine.name: machine.unsettled(reached) + machine.items_held for machine in machines}
        return self._run_checkpoints.held()._replace(
            sources={name: items for name, items in unsettled.items() if items}
        )
