"""From a graph and its sources to a DataFrame of its output.

Invariant: only two things happen at once: the bounds of the output's ranges are computed, and the sources that Spark
cannot read itself are read. Everything else is lazy.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterable, Sequence
from contextlib import ExitStack, suppress
from dataclasses import replace
from functools import partial, reduce
from pathlib import Path
from typing import Any

import pyarrow as pa

from drift.engines.feed import Feed
from drift.engines.recorded import RecordedFeed
from drift.engines.shipping import packed
from drift.engines.surroundings import surroundings
from drift.sources.frames import FrameSource
from drift.spark import frames, partitions, scans
from drift.spark.added_up import adds_up, read_parts
from drift.spark.asking import Asking, run_asking
from drift.spark.batches import DDL, ROWS, BatchRow, record_batch, shuffled
from drift.spark.begin import rows_of
from drift.spark.folders import make_folder, remove_folder
from drift.spark.kernels import Work, run_level
from drift.spark.levels import Levels
from drift.spark.recorded import RecordedInput
from drift.spark.recording import StoredRows
from drift.spark.sampling import row_order, sampled
from drift.spark.schemas import arrow_schema
from drift.spark.sessions import use_this_python
from drift.spark.settings import SparkSettings
from drift.spark.spool import Spool
from drift.spark.tasks import task
from drift.state.run_checkpoints import Begin
from drift_graph.errors import SettingsError
from drift_graph.graph import Dataflow
from drift_graph.meta import BEGINNING
from drift_graph.operators import Source
from drift_graph.segments import Segment, segments_of

_PARTITION_BATCHES = 16  # of a megabyte

#: How a DataFrame is read, and the DataFrame.
_ReadFrame = tuple[frames.Reading, Any]


class Prepared:
    """A graph whose sources are in Spark.

    Args:
        watch: called while sources are read here.
        begin: the cut from which the run resumes.
        adds_up: whether tasks may add up rows before they send them; if they raise `NeedsRows`, the run begins again.

    Attributes:
        error: the error that reading the sources here ended with; None if there was none.
    """

    def __init__(
        self,
        spark: Any,
        dataflow: Dataflow,
        feed: Feed,
        settings: SparkSettings,
        watch: Callable[[], None],
        begin: Begin | None = None,
        *,
        adds_up: bool = False,
    ) -> None:
        use_this_python(spark)
        self._spark = spark
        self._settings = settings
        dataflow, *self._further = segments_of(dataflow, durable=False)
        self._levels = Levels(dataflow, fused=settings.fused)
        self.answers: Path | None = None  # where tasks log answers
        self._begin = begin
        self._adds_up = adds_up and settings.fused and not self._further
        self._closing = ExitStack()
        self.error: Exception | None = None
        self.items_in = 0
        try:
            self._prepare(dataflow, feed, settings, watch)
        except BaseException:
            self.close()
            raise

    def _prepare(self, dataflow: Dataflow, feed: Feed, settings: SparkSettings, watch: Callable[[], None]) -> None:
        targets = settings.partitions or default_partitions(self._spark)
        readings = [
            self._reading(rank, source, feed, frame_source, targets)
            for rank, source in enumerate(dataflow.sources)
            if isinstance(frame_source := feed.sources.get(source.name), FrameSource)
        ]
        work = Work(
            dataflow=packed(dataflow),
            around=surroundings(),
            fused=settings.fused,
            targets=targets,
            bounds=(),
            algorithm=settings.digest,
            begin=self._begin.checkpoint.at if self._begin is not None else BEGINNING,
            classes=self._begin.at.classes if self._begin is not None else (),
        )
        recorded = _recorded(feed)
        if recorded is not None:
            self.work, inputs = self._from_record(work, recorded)
        else:
            self.work, inputs = self._from_sources(work, readings, feed, Spool(feed, settings.in_flight_max), watch)
        if not inputs:
            inputs.append(self._spark.createDataFrame([], DDL))
        self._rows = reduce(lambda one, other: one.unionAll(other), inputs)

    def _from_record(self, work: Work, recorded: RecordedInput) -> tuple[Work, list[Any]]:
        """The work of the tasks, and the rows of a replay."""
        self.error = recorded.error
        self.items_in = recorded.items_in
        work = replace(work, bounds=bounds_of(recorded.firsts, work.targets), end=recorded.end)
        return work, [recorded.level_0(self._spark, work)] if recorded.items_in else []

    def _from_sources(
        self, work: Work, readings: list[_ReadFrame], feed: Feed, spool: Spool, watch: Callable[[], None]
    ) -> tuple[Work, list[Any]]:
        """The work of the tasks, and the rows of DataFrames and of sources that are read here."""
        samples = [sampled(frame, work, reading) for reading, frame in readings]
        firsts = [first for sample in samples for first in sample.firsts]
        stores = bool(readings) and feed.on_stored is not None
        orders = [row_order(reading, sample, work.targets) for (reading, _), sample in zip(readings, samples)]
        if (self._levels.puts_later or self._begin) and not stores:  # items are counted first
            orders = ["stamp" for _ in orders]
        counted = all(order == "stamp" for order in orders)
        work = replace(work, bounds=bounds_of(firsts, work.targets), repeats="bug" if counted else "count")
        read = [(reading, frame, order) for (reading, frame), order in zip(readings, orders)]
        stored = self._stored(read, work, feed) if stores else None
        spooled = self._spooled(spool, work.targets, watch)
        self.error = spool.error
        work = replace(work, end=spool.end, bounds=bounds_of([*spool.firsts, *firsts], work.targets))
        if stored is not None:
            work = replace(work, repeats="bug")
            inputs = [stored.level_0(work)]
        else:
            inputs = [self._level_0(work, *each) for each in read]
        if spooled is not None and spool.firsts:
            inputs.append(spooled(work))
        if self._begin is not None:
            inputs.append(in_spark(self._spark, rows_of(self._begin, self._levels, work)))
        return work, inputs

    def _level_0(self, work: Work, reading: frames.Reading, frame: Any, order: frames.RowOrder) -> Any:
        """From the rows of a DataFrame to rows of batches."""
        kernel = self._kernel(reading, frame, order)
        scan = scans.scan_of(frame) if order == "own" else None
        if scan is not None:
            return scans.level_0(self._spark, scan, work, reading, kernel)
        return frames.level_0(frame, work, reading, order, kernel)

    def _kernel(self, reading: frames.Reading, frame: Any, order: frames.RowOrder) -> Callable[..., Any]:
        """What tasks do with the rows of a DataFrame."""
        if not self._adds_up or order == "stamp" or reading.payload != "rows":
            return frames.read_rows
        try:
            schema = pa.schema(list(arrow_schema(frame.schema))[: len(reading.columns)])
        except Exception:  # a type that Arrow does not have: raised again by Spark
            return frames.read_rows
        return read_parts if adds_up(self._levels.dataflow, reading, schema) else frames.read_rows

    def _reading(self, rank: int, read: Source, feed: Feed, source: FrameSource, targets: int) -> _ReadFrame:
        source.in_spark = True
        frame = source.frame(self._spark) if callable(source.frame) else source.frame
        if feed.has_positions:  # before they are read: rows that come meanwhile are found by a later call
            source.rows = frame.count()
        reading, frame = frames.reading_of(read, rank, feed.policy_of(read.name), source, frame)
        if source.order_by:
            numbered = frames.Numbered(frame, source.order_by, targets)
            self._closing.callback(numbered.close)
            frame = numbered.frame
        return reading, frame

    def _stored(
        self, read: Sequence[tuple[frames.Reading, Any, frames.RowOrder]], work: Work, feed: Feed
    ) -> StoredRows:
        """The rows of DataFrames, persisted and recorded."""
        stored = StoredRows(self._spark, read, work)
        self._closing.callback(stored.close)
        stored.record(feed)
        self.items_in = stored.items
        return stored

    def _spooled(self, spool: Spool, targets: int, watch: Callable[[], None]) -> Callable[[Work], Any] | None:
        """A function that makes level 0 of the items of sources that are read here; None if there are none."""
        spark, batches = self._spark, spool.batches(watch)
        if shares_disk(spark):
            folder = make_folder("drift-spool-")
            self._closing.callback(remove_folder, folder)
            path = folder / "rows.arrow"
            count = partitions.write_batches(path, batches)
            cut = partitions.in_partitions(count, targets, _PARTITION_BATCHES)
            return partial(partitions.level_0, spark, path=path, partitions=cut) if count else None
        rows = spark.createDataFrame(pa.Table.from_batches(batches, schema=ROWS), schema=DDL)
        return lambda work: rows.mapInArrow(task(run_level, work, 0), DDL)

    def output(self, kernel: Callable[..., Any], schema: Any) -> Any:
        """The DataFrame of a kernel's results over the rows of each range of the output; behind calls, that of what was
        asked.
        """
        rows, work, levels = self._rows, self.work, self._levels
        for number, segment in enumerate(self._further):
            before = levels.dataflow
            assert isinstance(before, Segment)
            following = replace(work, dataflow=packed(segment), repeats="bug", begin=BEGINNING)
            folder, most = str(self._answers_folder() / str(number)), self._settings.in_flight_max
            asking = Asking(packed(before, before.calls), folder, most, following)
            rows = through_levels(rows, work, levels, partial(run_asking, asking), DDL)
            work, levels = following, Levels(segment, fused=self._settings.fused)
        return through_levels(rows, work, levels, kernel, schema)

    def _answers_folder(self) -> Path:
        """Where tasks log answers.

        Raises:
            SettingsError: no folder is known that all tasks can reach.
        """
        if self.answers is None and self._settings.answers is not None:
            self.answers = Path(self._settings.answers, uuid.uuid4().hex)
        elif self.answers is None and shares_disk(self._spark):
            self.answers = make_folder("drift-answers-")
            self._closing.callback(remove_folder, self.answers)
        elif self.answers is None:
            raise SettingsError(
                "the graph has calls, and tasks on several machines log answers where another attempt finds them: name "
                "a folder that all of them can reach, answers=FOLDER"
            )
        return self.answers

    def close(self) -> None:
        """Remove temporary files and persisted rows."""
        with suppress(Exception):  # the JVM may be gone
            self._closing.close()


def in_spark(spark: Any, rows: Iterable[BatchRow]) -> Any:
    """Rows of this process as a DataFrame."""
    return spark.createDataFrame(pa.Table.from_batches([record_batch(list(rows))], schema=ROWS), schema=DDL)


def _recorded(feed: Feed) -> RecordedInput | None:
    """The input of a replay, if Spark is to read it itself; else None."""
    if isinstance(feed, RecordedFeed) and feed.record is not None:
        return RecordedInput(feed, feed.record)
    return None


def check_finite(feed: Feed) -> None:
    """Refuse live sources.

    Raises:
        SettingsError: there is a live source.
    """
    for machine in feed.intake.machines:
        if machine.live:
            raise SettingsError(
                f"source {machine.name!r} is live, and engine='spark' reads only input that ends; use "
                f"engine='zeromq', or record the run and replay the record on Spark"
            )


def shares_disk(spark: Any) -> bool:
    """Whether the tasks run on this machine, and can read files that are written here."""
    return str(spark.conf.get("spark.master", "")).startswith("local")


def default_partitions(spark: Any) -> int:
    """How many tasks share the keys by default: as many as run at once."""
    if hasattr(spark, "_jsparkSession"):
        return int(spark.sparkContext.defaultParallelism)
    return slots_of(spark) or int(spark.conf.get("spark.sql.shuffle.partitions"))


def slots_of(spark: Any) -> int | None:
    """How many tasks can run at once; None if that cannot be known beforehand (Connect with a set parallelism)."""
    if hasattr(spark, "_jsparkSession"):
        context = spark.sparkContext._jsc.sc()  # as Spark's own check does
        profile = context.resourceProfileManager().defaultResourceProfile()
        return int(context.maxNumConcurrentTasks(profile))
    if any(_setting(spark, name) for name in ("spark.default.parallelism", "spark.sql.leafNodeDefaultParallelism")):
        return None
    return int(spark.range(1 << 16).selectExpr("spark_partition_id() AS part").distinct().count())


def _setting(spark: Any, name: str) -> str:
    return str(spark.conf.get(name, None) or "")


def bounds_of(firsts: Sequence[tuple[bytes, int]], targets: int) -> tuple[bytes, ...]:
    """Metas that cut the input, and so roughly the output, into `targets` ranges with equally many items.

    Args:
        firsts: metas of the input, and how many items each stands for.
    """
    every = sum(items for _, items in firsts)
    bounds: list[bytes] = []
    before = 0
    for meta, items in sorted(firsts):
        if before * targets >= (len(bounds) + 1) * every and meta != (bounds[-1] if bounds else b""):
            bounds.append(meta)
        before += items
    return tuple(bounds[: targets - 1])


def through_levels(rows: Any, work: Work, levels: Levels, kernel: Callable[..., Any], schema: Any) -> Any:
    """Run all levels, from the rows of level 1 on; then a kernel over the rows of each range of the output."""
    for level in range(1, levels.last):
        rows = shuffled(rows, work.targets).mapInArrow(task(run_level, work, level), DDL)
    return shuffled(rows, work.targets).mapInArrow(task(kernel, work), schema)
