"""A run on Spark: sources into rows, a shuffle and a kernel for each level of the graph, and the output in order.

Invariant: the output equals the reference's, whatever the partitions; the driver has only a few batches in memory.

Why: the rows of each task are merged in the order of metas and go through the machines of the other engines, so
nothing is ever taken back. The last level is cut into ranges of metas, one for each task. Every earlier task reports to
each range how many items it sent to the ranges below, so a range knows its position in the whole output before its
first item; the ranges release, number and hash their items in parallel.
"""

from __future__ import annotations

import pickle
from collections.abc import Iterator, Sequence
from functools import partial
from typing import Any

from drift.engines.base import OnAnswers, Progress
from drift.engines.feed import Feed
from drift.engines.observed import Observed, own_state
from drift.engines.packing import unpacked_output
from drift.sources.frames import FrameSource
from drift.spark.asking import answers_in
from drift.spark.blocks import joined_digest
from drift.spark.jobs import Job
from drift.spark.kernels import RELEASED_DDL, RangeEnd, run_release
from drift.spark.prepare import Prepared, check_finite
from drift.spark.sessions import active, start, stop
from drift.spark.settings import SparkSettings
from drift.spark.watch import JobPoller
from drift.spilled import Spilled
from drift.state.checkpoint import Output
from drift.state.run_checkpoints import Begin, Taken
from drift_barrier.barrier import Released
from drift_barrier.digest import Digest, Encoded, hash_block
from drift_graph.graph import Dataflow
from drift_graph.meta import END_OF_TIME, global_time_of
from drift_graph.metas import Metas
from drift_graph.payloads import NeedsRows


class SparkEngine:
    """Reads the sources, runs the jobs, and hands out the output."""

    needs_items = True

    def __init__(self, dataflow: Dataflow, feed: Feed, settings: SparkSettings) -> None:
        check_finite(feed)
        self.progress = Progress()
        self._dataflow = dataflow
        self._feed = feed
        self._settings = settings
        self._digest = Digest(settings.digest, new_parts=Spilled)
        self._encoded: Sequence[Encoded] = ()
        self._blocks: list[bytes] | None = None
        self._job: Job | None = None
        self._prepared: Prepared | None = None
        self._spark = settings.spark or _session_of(feed) or (active() if settings.master is None else None)
        self._own = self._spark is None
        self._begin: Begin | None = None
        self._last = b""  # the meta of the last item
        self._ended = False
        self.on_answers: OnAnswers | None = None

    def prepare_checkpoints(self, begin: Begin | None) -> None:
        """Called before any item: the run resumes from a checkpoint of any engine, or begins; at its end it has a
        checkpoint.
        """
        self._begin = begin
        if begin is not None:
            output = begin.checkpoint.output
            self._digest.resume(begin.blocks, begin.states.opened(begin.checkpoint))
            self._last = output.last
            self.progress.resume(begin.checkpoint, self._feed.items_in, self._feed.late_items)

    @property
    def awaits_checkpoint(self) -> bool:
        return False

    def checkpoint(self) -> Taken | None:
        """The checkpoint at the end of the run, which has no states; None before: a Spark job has no moment for a
        checkpoint.
        """
        if not self._ended:
            return None
        self._ended = False
        blocks = self._digest.blocks
        output = Output(self.progress.items_out, self._last, len(blocks), self._settings.digest)
        return Taken(END_OF_TIME, output, {}, blocks, self._digest.opened(), self.progress.tombstones)

    def released(self) -> Iterator[Released]:
        """If nobody needs the items, all batches are empty."""
        if self._begin is not None and self._begin.checkpoint.is_last:
            return
        if self._own and (running := active()) is not None:  # that of another segment of this run
            self._spark, self._own = running, False
        if self._own:
            self._spark = start(self._settings.master or "local[*]")
        are_frames = all(isinstance(source, FrameSource) for source in self._feed.sources.values())
        try:
            yield from self._run(adds_up=are_frames)
        except NeedsRows:  # before anything was released
            self._close_job()
            yield from self._run(adds_up=False)
        self.progress.minimal_bytes = END_OF_TIME
        self.progress.fraction = 1.0
        assert self._prepared is not None
        if self._prepared.error is not None:
            raise self._prepared.error
        self._ended = True

    def _run(self, *, adds_up: bool) -> Iterator[Released]:
        self._prepared = Prepared(
            self._spark,
            self._dataflow,
            self._feed,
            self._settings,
            self._note_sources,
            self._begin,
            adds_up=adds_up,
        )
        self._note_sources()
        yield Released(self.progress.items_out, Metas(), [], "")
        rows = self._prepared.output(partial(run_release, with_items=self.needs_items), RELEASED_DDL)
        self._job = Job(self._spark, rows)
        with JobPoller(self._spark, self.progress):
            yield from self._released(self._job)

    def _note_sources(self) -> None:
        prepared = self._prepared
        self.progress.items_in = self._feed.items_in + (prepared.items_in if prepared is not None else 0)
        self.progress.late_items = self._feed.late_found

    def _released(self, job: Job) -> Iterator[Released]:
        ends: dict[int, RangeEnd] = {}
        for row in job.rows():
            if row is None:
                yield Released(self.progress.items_out, Metas(), [], "")
                continue
            self._announce_answers()
            if row.items >= 0:
                encoded, columns, sinks = pickle.loads(row.body)
                metas, payloads, _ = unpacked_output(encoded, columns)
                for part in encoded:
                    self._digest.add_encoded(part)
                self._encoded = encoded if columns is None else self._digest.add(metas, payloads, keeps=True)
                self.progress.items_out = row.position + row.items
                self._last = metas[-1]
                self.progress.released_below = global_time_of(self._last)  # the output is in the order of metas
                yield Released(row.position, metas, payloads, sinks)
                continue
            end: RangeEnd = pickle.loads(row.body)
            if isinstance(end.error, NeedsRows):
                raise end.error
            ends[row.target] = end
            self.progress.items_in += end.items_read
            if self.needs_items and end.error is not None:
                raise end.error
            if not self.needs_items:
                self.progress.items_out = max(self.progress.items_out, row.position)
        if not self.needs_items:
            self._join(ends)

    def _announce_answers(self) -> None:
        """Before the first output: all tasks that ask have ended, since what they gave was shuffled."""
        on_answers, self.on_answers = self.on_answers, None
        assert self._prepared is not None
        if on_answers is not None and self._prepared.answers is not None:
            for answers in answers_in(self._prepared.answers, self._dataflow):
                on_answers(*answers)

    def _join(self, ends: dict[int, RangeEnd]) -> None:
        """The digest of all ranges, up to the first error."""
        blocks: list[tuple[int, bytes]] = []
        edges: list[Any] = []
        error: Exception | None = None
        for target in sorted(ends):
            end = ends[target]
            blocks += end.blocks
            edges += end.edges
            if end.error is not None:
                error = end.error
                break
        self._blocks = joined_digest(self._settings.digest, blocks, edges)
        if error is not None:
            self.progress.items_out = sum(edge[1] for edge in edges) + 4096 * len(blocks)
            raise error

    def hexdigest(self) -> str:
        if self._blocks is not None:
            return hash_block(self._settings.digest, b"".join(self._blocks)).hex()
        return self._digest.hexdigest()

    def blocks(self) -> list[bytes]:
        if self._blocks is not None:
            return self._blocks[: self.progress.items_out // 4096]
        return self._digest.blocks

    def encoded(self) -> Sequence[Encoded]:
        """The items of the last batch as bytes, for a record, so that they are encoded only once."""
        return self._encoded

    def observed(self) -> Observed:
        return Observed(processes=[own_state("run")])

    def close(self) -> None:
        self._feed.close()
        self._close_job()
        if self._own and self._spark is not None:
            stop(self._spark)
            self._spark = None

    def _close_job(self) -> None:
        if self._job is not None:
            self._job.close()
            self._job = None
        if self._prepared is not None:
            self._prepared.close()
            self._prepared = None


def _session_of(feed: Feed) -> Any:
    """The session that a DataFrame among the sources belongs to."""
    frames = [source.frame for source in feed.sources.values() if isinstance(source, FrameSource)]
    return next((frame.sparkSession for frame in frames if not callable(frame)), None)
