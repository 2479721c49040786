"""A run: a graph, its inputs and an engine, and the output as an iterator.

Invariant: items come out in the order of their positions, each sink gets an item before the caller does, and when the
iteration ends, for whatever reason, everything the run had started or opened is closed.
"""

from __future__ import annotations

import os
import signal
import time
import warnings
import weakref
from collections.abc import AsyncIterator, Generator, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack
from dataclasses import replace
from types import TracebackType
from typing import TYPE_CHECKING, Any

from drift.batches import EVERYTHING, Batches, called_on, iterated_in_a_thread
from drift.engines.base import Progress
from drift.engines.memory import peak_memory_bytes
from drift.engines.metrics import Reading, reported
from drift.engines.observed import CheckpointState, Observed, SourceState
from drift.engines.recorded import RecordedFeed, RecordEnds
from drift.running.exports import Exports
from drift.running.observers import Acknowledging, Checkpointing, Limit, Observer, Recording, Units
from drift.running.plan import Opened, RunPlan
from drift.running.report import Report
from drift.running.sinks import check_unchanged
from drift.running.watching import Watching
from drift.spilled import Spilled
from drift.state.checkpoint import Checkpoint, StateDamaged
from drift.state.run_checkpoints import Held, RunCheckpoints
from drift.undisturbed import undisturbed
from drift.urls import cleaned_of
from drift.web.life import History, Life, decoded_history
from drift_barrier.barrier import Released
from drift_barrier.digest import Digest
from drift_graph.called import called
from drift_graph.errors import SettingsError, StorageError
from drift_graph.functions import caller, warn
from drift_graph.item import Item

if TYPE_CHECKING:
    from drift.records.recorder import Recorder


@called
class Run(Exports):
    """Iterates over the released items; `finish` runs to the end without making item objects.

    Attributes:
        late: late items that a time policy diverted, if no `on_late` was given: those before what was released; with
            state, before the checkpoint that was stored last, so that no other run with this state has them.
        guarantee: how often each item of the output is in the sinks, and which source or sink limits it; None for a
            replay.
    """

    def __init__(self, plan: RunPlan, opened: Opened) -> None:
        self.dataflow = plan.dataflow
        self.engine = plan.engine.name
        self.settings = plan.settings
        self.late = opened.late
        self.guarantee = opened.guarantee
        self._policies = plan.policies
        self._secrets = plan.secrets
        self._feed = opened.feed
        self._engine = opened.engine
        self._sinks = opened.sinks
        self._purity = opened.purity
        self._recorder = opened.recorder
        self._run_checkpoints = opened.run_checkpoints
        self._started = opened.began_s
        self._seconds: float | None = None
        self._limit: Limit | None = None  # if the engine may release more than is given
        if plan.until is not None or (isinstance(self._feed, RecordedFeed) and not self._feed.ends):
            self._limit = Limit(plan.until, Digest(self.settings.digest, new_parts=Spilled))
        self._life = Life(self, _history_before(self._run_checkpoints), self.resumed_from)
        self._watching = Watching(self, self._life)
        self._acknowledging = Acknowledging(self._engine, self._feed)
        self._checkpointing: Checkpointing | None = None
        if self._run_checkpoints is not None:
            self._run_checkpoints.watched = self._watching
            self._checkpointing = Checkpointing(self._run_checkpoints, self._engine, self._feed)
        observers = (
            Units(() if any(each.unit for each in self._policies.values()) else self.dataflow.spans),
            self._limit,
            Recording(self._recorder, self._engine) if self._recorder is not None else None,
            self._sinks,
            self._watching,
            self._acknowledging,
            self._checkpointing,
        )
        self._observers: list[Observer] = [each for each in observers if each is not None]
        self._items_before = self._engine.progress.items_in
        self._outcome: tuple[str, BaseException | None] = ("stopped", None)
        self._batches = Batches(self._run(), self._end)
        self._own = self._batches.of_thread
        self._digest = ""
        self._closing: ExitStack | None = None
        self._held: Held | None = None
        self._begun = False
        self._unused: weakref.finalize[..., Run] | None = None

    def _show(self, web: int | str | None, otel: bool) -> None:
        """Open the page and the telemetry of the run; it is made with this, and warns if it is dropped unused."""
        self._watching.open(web, otel)
        if self._sinks or self._recorder is not None:
            names = sorted(self._sinks.by_name)
            self._unused = weakref.finalize(self, _never_started, self.dataflow.name, names, caller(), os.getpid())

    def __iter__(self) -> Iterator[Item[Any]]:
        return self._own.items

    def __next__(self) -> Item[Any]:
        return next(self._own.items)

    def __aiter__(self) -> AsyncIterator[Item[Any]]:
        """The items, for a coroutine; functions, sources and sinks run in a separate thread."""
        return iterated_in_a_thread(self._batches)

    def batches(self) -> Iterator[Released]:
        """The output in batches of consecutive items, as columns; empty batches while there is nothing new."""
        return self._batches

    def finish(self) -> Report:
        """Run to the end; only the sinks get the output."""
        takers = self._sinks or self._recorder or self._limit or self._watching.page or self._run_checkpoints
        if not self._begun and not takers:
            self._engine.needs_items = False
        try:
            for _ in self._batches:
                pass
        except BaseException as error:  # Ctrl-C between two batches: the run itself does not see it
            self._close_after(error)
            raise
        return self.report

    @property
    def progress(self) -> Progress:
        """The progress of the run now; late items are also those in a sink of their own."""
        progress, apart = self._engine.progress, self._life.late_apart
        return replace(progress, late_items=progress.late_items + apart) if apart else progress

    @property
    def written(self) -> int:
        """The position of the output up to which the sinks have it."""
        return self._sinks.position

    def observed(self) -> Observed:
        """Items that left each operator, and the activity of each process; if the run is `counted` or has a page."""
        return self._engine.observed()

    def source_states(self) -> list[SourceState]:
        """The progress of each source."""
        return self._feed.states()

    def checkpoint_state(self) -> CheckpointState | None:
        """The checkpoints of the run; None if it takes none."""
        if self._run_checkpoints is None:
            return None
        last, written = self._run_checkpoints.written
        if last is not None:
            return CheckpointState(written, *last)
        before = self.resumed_from
        return CheckpointState(0, before.taken_ms if before is not None else 0, None, None)

    @property
    def web(self) -> str:
        """The address of the run's page, with its token; "" if it has no page."""
        return self._watching.page.url if self._watching.page is not None else ""

    @property
    def digest(self) -> str:
        """Digest of the output so far; over zeromq, only after the end of the run.

        Raises:
            SettingsError: nothing has run yet, and an empty digest would equal that of any other such run.
        """
        if not self._begun:
            raise SettingsError("the run has not begun, so there is no digest: iterate over it, or call finish()")
        if self._limit is not None:
            return self._limit.digest.hexdigest()
        return self._digest or self._engine.hexdigest()

    @property
    def report(self) -> Report:
        """The results and costs so far."""
        progress = self.progress
        if self._limit is not None:
            progress = replace(progress, items_out=self._limit.items)
        seconds = self._seconds if self._seconds is not None else time.perf_counter() - self._started
        memory_bytes = peak_memory_bytes() + sum(progress.peak_memory_bytes.values())
        reading = Reading(progress, self._outcome[0], seconds, memory_bytes=memory_bytes)
        return Report(
            graph=self.dataflow.name,
            engine=self.engine,
            workers=self.settings.workers_in_all,
            digest=self.digest if self._begun else "",
            guarantee="" if self.guarantee is None else str(self.guarantee),
            items_before=self._items_before,
            sinks=self._life.released,
            held=self._held,
            **reported(reading),
        )

    @property
    def _state(self) -> str:
        return "ended" if self._seconds is not None else "running" if self._begun else "not begun"

    def __repr__(self) -> str:
        out = self.progress.items_out
        return f"<drift.Run of {self.dataflow.name!r} on {self.engine}, {self._state}, {out} items out>"

    def _repr_html_(self) -> str:
        """The state and the report so far, which notebooks show; while a run runs, they show a bar."""
        from drift.running.notebook import run_html

        return run_html(self._state, self.report, {"page": self.web})

    def stop(self) -> None:
        """End the run early but properly, from any thread or signal handler: its sources end here.

        What was read is processed and released, the sinks are completed and closed, and the iteration ends; a record
        holds what was read, and a replay repeats it. The stop takes effect when the source being read returns items;
        live sources never delay it. On Spark it ends the sources that the driver reads; a job that has begun runs on.

        A run with state stops at a checkpoint instead: its input has not ended, and the next run resumes there.
        """
        if self._checkpointing is not None:
            self._checkpointing.is_to_pause = True
        else:
            self._feed.stop()

    def stopping_on(self, *signals: int) -> AbstractContextManager[None]:
        """For a with statement in the main thread: the first of these signals stops the run, as `stop` does.

        The second one has its former effect. Without arguments it is SIGTERM.
        """
        return called_on(signals or (signal.SIGTERM,), self.stop)

    def close(self) -> None:
        """Abort the run, from any thread; nothing it started is left. An iteration over it ends with a close, too.

        It waits for the present batch, or until a source that is not live returns items.
        """
        self._is_wanted()
        self._batches.close()

    def _is_wanted(self) -> None:
        """The run has begun, or is closed: nothing is to be said of it as it is dropped."""
        if self._unused is not None:
            self._unused.detach()

    def __enter__(self) -> Run:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._close_after(error)

    def _close_after(self, error: BaseException | None) -> None:
        """Close the run; `error` is by what its caller stops it, which was not raised in the run itself."""
        interrupted = self._seconds is None and error is not None and not isinstance(error, Exception)
        if self._outcome == ("stopped", None) or interrupted:
            self._outcome = "stopped", error
        self.close()

    @property
    def stores_state(self) -> bool:
        """Whether the run takes checkpoints."""
        return self._run_checkpoints is not None

    @property
    def resumed_from(self) -> Checkpoint | None:
        """The checkpoint from which the run resumed, if any."""
        return self._run_checkpoints.resumed_from if self._run_checkpoints is not None else None

    @undisturbed
    def _end(self) -> None:
        if self._seconds is None and not self._batches.is_of_a_fork:
            self._closing = self._closing or self._made_closing()
            try:
                self._closing.close()  # only what is left, where Ctrl-C has come while it was closed
            except BaseException as error:
                cleaned_of(error, self._secrets)
                raise
            self._seconds = time.perf_counter() - self._started
            if self._begun:
                self._watching.end(*self._outcome, self._engine.progress, self._seconds)

    def _made_closing(self) -> ExitStack:
        """What is done at the end, the last first: each even if another raises."""
        closing = ExitStack()
        self._sinks.close(closing)
        if self._purity is not None:
            closing.callback(self._purity.close)
        if self._run_checkpoints is not None:
            closing.callback(self._run_checkpoints.close)
            if self._begun and not isinstance(self._outcome[1], StorageError):  # else it cannot be stored
                closing.callback(self._run_checkpoints.tell)
            closing.push(self._settle)  # before that too: Ctrl-C may have come since the first time
        if self._recorder is not None:
            closing.callback(self._recorder.close)
        closing.callback(self._engine.close)
        if self._run_checkpoints is not None:  # sources let go of what nobody will read again, as they close
            closing.push(self._settle)
        closing.callback(self._watching.close)
        closing.callback(self._life.end, *self._outcome)
        if self._recorder is not None:  # it begins first and ends last
            closing.callback(self._end_record, self._recorder)
        closing.callback(self._keep_digest)
        return closing

    def _keep_digest(self) -> None:
        self._digest = self._engine.hexdigest()

    def _end_record(self, recorder: Recorder) -> None:
        state, error = self._outcome
        by_input = error is not None and error is self._feed.error
        digest = self._digest or self._engine.hexdigest()  # Ctrl-C may have come before it was kept
        recorder.end(state, error, by_input, digest if state == "finished" else "")

    def _settle(self, kind: type[BaseException] | None, error: BaseException | None, trace: object) -> None:
        """Wait until the last checkpoint is written, but after Ctrl-C for no store that is away.

        Args:
            error: raised since the run has ended.
        """
        checkpoints = self._run_checkpoints
        assert checkpoints is not None
        if any(each is not None and not isinstance(each, Exception) for each in (error, self._outcome[1])):
            checkpoints.give_up()
        checkpoints.wait()

    def _run(self) -> Generator[Released | None, None, None]:
        self._begun = True
        self._is_wanted()
        try:
            if self.resumed_from is None:
                self._sinks.open()
            if self._recorder is not None:
                self._recorder.start()
            self._watching.start()
            for batch in self._engine.released():
                for each in self._observers:
                    batch = each.take(batch)
                yield batch
                check_unchanged(self._batches.take_samples(), "the loop over the run")
                below = self._batches.taken
                ends = [each.taken(batch, below) for each in self._observers]
                if any(ends):
                    yield from self._until_taken()
                    if self._checkpointing is not None:
                        self._held = self._checkpointing.held()
                    return
            if self._run_checkpoints is not None:
                self._run_checkpoints.end(self._batches.taken)
            yield from self._until_taken()
            self._acknowledging.complete(self._batches.taken)
            self._sinks.complete(stopped=self._feed.stopped)
            self._outcome = "finished", None
        except GeneratorExit:
            raise
        except RecordEnds as ends:  # the recorded output is complete
            self._acknowledging.failed(ends)
        except BaseException as error:
            cleaned_of(error, self._secrets)
            self._outcome = "failed" if isinstance(error, Exception) else "stopped", error
            self._acknowledging.failed(error)
            raise
        finally:
            self._end()

    def _until_taken(self) -> Iterator[None]:
        """Give nothing until the callers have taken everything; then commit the last checkpoint. Nothing without
        checkpoints.
        """
        if self._run_checkpoints is not None:
            if self._batches.taken != EVERYTHING:
                yield None
            self._run_checkpoints.commit_taken()


def _never_started(graph: str, sinks: Sequence[str], where: str, process: int) -> None:
    """Warn of a run that is dropped, or is there at the end of the program, and was neither started nor closed.

    Args:
        where: the line of the user that made it.
        process: that made it; its forks have copies.
    """
    if os.getpid() == process:
        of = f"its sinks ({', '.join(sinks)}) have" if sinks else "its record has"
        file, _, line = where.rpartition(":")
        warnings.warn_explicit(
            f"the run of graph {graph!r} was never started, so {of} nothing: call finish(), or iterate over it",
            RuntimeWarning,
            file or "?",
            int(line) if line.isdigit() else 0,
        )


def _history_before(checkpoints: RunCheckpoints | None) -> History | None:
    """What the earlier processes of a run have counted; None if it begins."""
    if checkpoints is None or checkpoints.resumed_from is None or (stored := checkpoints.history) is None:
        return None
    try:
        return decoded_history(stored, checkpoints.where)
    except StateDamaged as error:
        warn(f"{error}; so this run counts deaths, recoveries and time from 0")
        return None
