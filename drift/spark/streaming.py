"""Structured Streaming: a graph over streaming DataFrames, in micro-batches that are cut at times.

Invariant: the output of the completed micro-batches is a prefix of the output of a run over the whole input, byte for
byte; whatever kills the query, and however often it is restarted from its checkpoint.

Why: a micro-batch processes the items below minimal time, which is the least heartbeat of the sources, and stores the
others for the next; so it covers an interval of time, and its output follows that of the one before. Spark gives a
micro-batch that did not complete the same rows again; everything that it is computed from is stored until it completes
(see `streaming_store`); and a micro-batch that has already completed is skipped.
"""

from __future__ import annotations

import pickle
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from functools import partial, reduce
from typing import Any, Literal

import pyarrow as pa

from drift.engines.shipping import packed
from drift.engines.surroundings import surroundings
from drift.records.changes import compare
from drift.records.fingerprint import fingerprint
from drift.sources.arguments import as_sources
from drift.sources.frames import FrameSource
from drift.spark.batches import DDL, LATER, ROWS, STATE
from drift.spark.begin import stored_rows_of
from drift.spark.blocks import joined_digest
from drift.spark.errors import as_drift_error, short_error
from drift.spark.frames import Reading, reading_of
from drift.spark.kernels import RangeEnd, Work, release_later
from drift.spark.levels import Levels, StateWriting
from drift.spark.output import PAYLOAD_DDL, POSITION_DDL, arrow_fields, check_sources, chosen_sink
from drift.spark.prepare import bounds_of, default_partitions, in_spark, through_levels
from drift.spark.schemas import arrow_schema
from drift.spark.sessions import use_this_python
from drift.spark.settings import SparkSettings
from drift.spark.streaming_kernels import (
    ARRIVED_DDL,
    END,
    STATE_COLUMNS,
    STATE_DDL,
    arrive_rows,
    late_rows,
    moved,
    number_items,
    release,
)
from drift.spark.streaming_store import LATE_DDL, PENDING_DDL, Commit, Store
from drift.spark.tasks import mapped, task
from drift.state.growth import refused_states
from drift.state.run_checkpoints import begin_elsewhere
from drift.state.settings import Checkpoints
from drift.urls import cleaned_of, secrets_of, without_secrets
from drift_barrier.digest import BLOCK_ITEMS, hash_block
from drift_graph.canonical import hash64
from drift_graph.errors import DriftError, LateItem, SettingsError
from drift_graph.functions import safe_text
from drift_graph.graph import Dataflow
from drift_graph.lateness import allow
from drift_graph.meta import END_OF_TIME, TIME_MIN, pack_time
from drift_graph.operators import Source
from drift_graph.policies import TimePolicy
from drift_graph.restore import restored

#: Raised whenever the stored state of a grouping changes its form, so that older checkpoints are refused.
_STATE_VERSION = 3
_STATE_PORTS = (STATE, LATER)  # ports of the rows from which the next micro-batch resumes
_FINISHED = (
    "was finished: its input has ended, and its output is complete; for more input start a new stream, with another "
    "checkpoint, and end the input later: start(availableNow=True) takes what there is, and finish() ends it"
)
_QUANTILES = [number / 100 for number in range(1, 100)]
_TARGET, _PORT, _POSITION, _BODY = STATE_COLUMNS[1], STATE_COLUMNS[3], STATE_COLUMNS[4], STATE_COLUMNS[5]


class Stream:
    """A graph over streaming DataFrames; see `drift.spark.stream`."""

    def __init__(
        self,
        dataflow: Dataflow,
        sources: Mapping[str, Any],
        *,
        checkpoint: str,
        output: str,
        sink: str | None,
        columns: str | None,
        times: Mapping[str, TimePolicy],
        changed_code: Literal["refuse", "accept"],
        classes: tuple[type, ...],
        state: Checkpoints | None,
        settings: SparkSettings,
    ) -> None:
        check_sources(dataflow, sources, times)
        calls = [each.step for each in dataflow.operators if each.asks]
        if calls:
            raise SettingsError(
                f"graph {dataflow.name!r} has the call {calls[0]!r}, and a stream of micro-batches asks nothing; run "
                f"it with engine='zeromq' or 'local', or as a batch, drift.run(..., engine='spark')"
            )
        apart = [source.name for source in dataflow.sources if source.late_apart]
        if apart:
            raise SettingsError(
                f"source {apart[0]!r} sends late items to a sink (late=), and a stream of micro-batches stores them "
                f"beside its output: leave late= out, say EventTime(..., late='divert'), and read stream.late()"
            )
        self._levels = Levels(dataflow, fused=settings.fused)
        self._dataflow = dataflow
        self._sink = chosen_sink(dataflow, sink, columns)
        self._columns = columns
        self._folder, self._output = checkpoint.rstrip("/"), output.rstrip("/")
        opened = as_sources(sources)
        self._readings: dict[int, Reading] = {}
        self._frames: list[Any] = []
        for rank, source in enumerate(dataflow.sources):
            reading, frame = _streamed(source, rank, times.get(source.name, source.time), opened[source.name])
            self._readings[rank] = reading
            self._frames.append(frame)
        self._spark = self._frames[0].sparkSession
        if not hasattr(self._spark, "_jsparkSession"):
            raise SettingsError(
                "the streaming DataFrames are of Spark Connect, which runs micro-batches on its server, and a stream "
                "needs a session in this process; submit the program to the cluster instead"
            )
        use_this_python(self._spark)
        self._structure = _structure(dataflow, self._readings)
        policies = {reading.name: reading.policy for reading in self._readings.values()}
        self._graph = fingerprint(dataflow, policies)
        self._changed_code = changed_code
        self._classes = classes if state is None else (*classes, *state.classes)
        self._state, self._times = state, times
        self._settings = settings
        self._around = surroundings()  # of this thread; micro-batches start in another
        self._error: Exception | None = None
        self._is_over = False  # the input had ended before the query was started
        self._accepted: Any = None  # the graph's fingerprint, if it differs from the last one written
        self._last: Commit | None = None  # written by this process; another may have resumed since
        self._fields = self._spark.createDataFrame([], self._ddl).schema

    @property
    def _ddl(self) -> str:
        return f"{POSITION_DDL}, {self._columns or PAYLOAD_DDL}"

    # For people.

    def start(self, **trigger: Any) -> Any:
        """Start the query, or resume it from its checkpoint, whatever ended it.

        Args:
            trigger: as for Spark's `DataStreamWriter.trigger`: processingTime="10 seconds", availableNow=True, ...

        Returns:
            Spark's StreamingQuery.

        Raises:
            SettingsError: the checkpoint is of another graph, or of an input that has ended.
        """
        commits = self._commits()
        if commits and commits[-1].finished:
            self._check_graph(commits)
            raise SettingsError(f"the stream in {self._folder} {_FINISHED}")
        return self._started(commits, **trigger)

    def _started(self, commits: list[Commit], **trigger: Any) -> Any:
        if commits:
            self._check_graph(commits)
            if commits[-1].number >= 0 and not self._store(self._spark).knows_query():
                raise SettingsError(
                    f"Spark's own checkpoint of the stream in {self._folder}, its folder 'query', is missing, so Spark "
                    f"would read the input from the start, though {len(commits)} micro-batches are complete; restore "
                    f"the folder, or start a new stream, with another checkpoint"
                )
        self._error = None
        self._is_over = bool(commits) and commits[-1].finished
        work = self._work(1, ())
        arrived = [
            mapped(frame, partial(arrive_rows, work, self._readings[rank]), ARRIVED_DDL)
            for rank, frame in enumerate(self._frames)
        ]
        writer = reduce(lambda one, other: one.unionAll(other), arrived).writeStream.foreachBatch(self._micro_batch)
        if trigger:
            writer = writer.trigger(**trigger)
        return writer.option("checkpointLocation", f"{self._folder}/query").start()

    def wait(self, query: Any) -> None:
        """Wait until a query ends.

        Raises:
            DriftError: the error that ended the query, as a run would raise it.
        """
        try:
            query.awaitTermination()
        except Exception as error:
            raise as_drift_error(self._error or error) from error

    def finish(self) -> None:
        """Process the input that is available now, then end the input, which releases everything.

        No query of this stream may be running. It may be called again, also after a crash during the call; once the
        input has ended, it looks whether there is more by now, and takes nothing of it.

        Raises:
            SettingsError: the checkpoint is of another graph, or of an input that has ended and now has more.
        """
        self.wait(self._started(self._commits(), availableNow=True))
        commits = self._store(self._spark).commits()
        if commits and not commits[-1].finished:
            self._compute(commits[-1].number + 1, replace(commits[-1], late_items=0), None, END_OF_TIME)

    def items(self) -> Any:
        """The output so far as a DataFrame; its columns are those of `drift.spark.dataframe`."""
        return self._store(self._spark).items(self._ddl)

    def late(self) -> Any:
        """Items that came too late and were diverted: source, time, heartbeat, payload as canonical bytes."""
        return self._store(self._spark).late()

    def digest(self) -> str:
        """Digest of the output so far, with the items released before the checkpoint from which the stream resumed, if
        any.
        """
        store = self._store(self._spark)
        commits = store.commits()
        failed = store.failure(commits[-1].number + 1 if commits else 0)
        commits += [failed] if failed is not None else []
        blocks = [block for commit in commits for block in commit.blocks]
        edges = [edge for commit in commits for edge in commit.edges]
        algorithm = self._settings.digest
        return hash_block(algorithm, b"".join(joined_digest(algorithm, blocks, edges))).hex()

    # From a checkpoint of another engine.

    def _commits(self) -> list[Commit]:
        """The commits of completed micro-batches; if the stream resumed from a checkpoint, the first is that of the
        checkpoint.
        """
        commits = self._store(self._spark).commits()
        if self._state is None or (commits and commits[0].number < 0):
            return commits
        if commits:
            raise SettingsError(
                f"the stream in {self._folder} was started without state=, and has {len(commits)} micro-batches: it "
                f"resumes from these, not from a checkpoint; leave state= out, or start a new stream, with another "
                f"checkpoint"
            )
        return [self._begin_from(self._state)]

    def _begin_from(self, state: Checkpoints) -> Commit:
        """Copy the states and later items of a checkpoint to the stream's own folder, from where it resumes."""
        settings, store = self._settings, self._store(self._spark)
        if self._changed_code == "accept":
            state = replace(state, changed_code="accept")
        begin = begin_elsewhere(state, self._dataflow, self._times, fused=settings.fused, algorithm=settings.digest)
        try:
            if begin.checkpoint.is_last:
                where = without_secrets(begin.at.where)
                raise SettingsError(
                    f"the run whose state is in {where} has ended, and its output is complete, so a stream cannot "
                    f"resume from it; leave state= out, or name the state of a run that was stopped"
                )
            partitions = settings.partitions or default_partitions(self._spark)
            rows = in_spark(self._spark, stored_rows_of(begin, self._levels, self._work(partitions, ()))).persist()
            parts = list(begin.states.opened(begin.checkpoint))
        finally:
            begin.states.close()
        store.write_state(0, rows.toDF(*STATE_COLUMNS))
        store.write_pending(0, self._spark.createDataFrame([], PENDING_DDL))
        output, size = begin.checkpoint.output, rows.selectExpr("sum(length(body)) AS bytes").first().bytes or 0
        rows.unpersist()
        at = output.position // BLOCK_ITEMS * BLOCK_ITEMS
        opened = b"".join(part.metas for part in parts), b"".join(part.payloads for part in parts)
        commit = Commit(
            -1,
            self._structure,
            partitions,
            0,
            (0,),
            output.position,
            (None,) * len(self._readings),
            begin.checkpoint.at,
            begin.checkpoint.items_in,
            blocks=list(enumerate(begin.blocks)),
            edges=[(at, output.position - at, *opened)] if parts else [],
            complete_bytes=size,
            graph=self._graph,
            since=begin.checkpoint.at,
        )
        store.write_commit(commit)
        return commit

    # A micro-batch.

    def _micro_batch(self, arrived: Any, number: int) -> None:
        try:
            self._run(arrived, number)
        except Exception as error:  # Spark stores only its text
            self._error = cleaned_of(error, secrets_of(self._state))
            short = short_error(error)
            if short is error:
                raise
            raise short from None

    def _run(self, arrived: Any, number: int) -> None:
        if self._is_over:
            if not arrived.isEmpty():
                raise SettingsError(f"the stream in {self._folder} {_FINISHED}; its input has more by now")
            return
        before = self._before(arrived.sparkSession, number)
        if before is None:
            return  # already done: Spark was killed between our commit and its own
        arrived = arrived.persist()
        try:
            self._take(arrived, number, before)
        finally:
            arrived.unpersist()

    def _before(self, spark: Any, number: int) -> Commit | None:
        """The commit from which a micro-batch resumes; None if the micro-batch is already done."""
        if self._last is not None and self._last.number == number - 1:
            return self._last
        store = self._store(spark)
        done = store.commit(number)
        if done is not None and not done.finished:
            return None
        if number == 0 and done is None and (begun := store.commit(-1)) is not None:
            return begun
        if number == 0 and done is None:
            partitions = self._settings.partitions or default_partitions(spark)
            return Commit(-1, self._structure, partitions, -1, (), 0, (None,) * len(self._readings), graph=self._graph)
        before = store.commit(number - 1)
        if done is not None or before is None:
            raise SettingsError(
                f"Spark resumes with micro-batch {number} of the checkpoint {self._folder}, and the stream has no "
                f"state there from which to compute it: a folder was removed, or the stream was finished; restore "
                f"the folder, or start a new stream, with another checkpoint"
            )
        return before

    def _take(self, arrived: Any, number: int, before: Commit) -> None:
        """Determine the new minimal time from the arrived rows, and compute everything below it."""
        if before.since:
            arrived = arrived.where(_not_below(before.since))
        arrived = self._judged(arrived, before.heartbeats)
        found = _summary(arrived, self._readings).first()
        summaries = {rank: row for rank, row in zip(self._readings, found) if row["items"]}
        refused = _first_error(arrived) if any(row["errors"] for row in summaries.values()) else None
        refused = refused or self._late_error(arrived, before, summaries)
        late = self._divert(arrived, number, before, summaries) if refused is None else 0
        heartbeats = [self._heartbeat(rank, before.heartbeats[rank], summaries.get(rank)) for rank in self._readings]
        known = [heartbeat for heartbeat in heartbeats if heartbeat is not None]
        upto = pack_time(min(known)) if len(known) == len(heartbeats) else b""
        bounds = [
            (pack_time(time), 1) for row in summaries.values() for time in row["times"] or () if pack_time(time) < upto
        ]
        after = replace(
            before,
            heartbeats=tuple(heartbeats),
            items_in=before.items_in + sum(row["items"] - row["late"] - row["errors"] for row in summaries.values()),
            late_items=late,
        )
        items = arrived.where("error IS NULL AND NOT late")
        self._compute(number, after, items, upto, bounds_of(bounds, self._partitions(before)), refused)

    def _judged(self, arrived: Any, heartbeats: Sequence[int | None]) -> Any:
        """Which rows that have arrived are late; belated ones have the time and the stamp of their heartbeat."""
        from pyspark.sql import functions

        is_late, time, stamp = functions.lit(False), functions.col("time"), functions.col("stamp")
        moved_time, moved_stamp = time, stamp
        for rank, heartbeat in enumerate(heartbeats):
            policy = self._readings[rank].policy
            if heartbeat is None:
                continue
            assert policy.reads_payloads
            is_own = functions.col("rank") == rank
            is_late = is_late | (is_own & (time < heartbeat - policy.allowed))
            if policy.allowed:
                is_belated = is_own & (time < heartbeat) & (time >= heartbeat - policy.allowed)
                moved_time = functions.when(is_belated, functions.lit(heartbeat).cast("long")).otherwise(moved_time)
                rest = functions.substring(stamp, functions.lit(9), functions.length(stamp))
                at_heartbeat = functions.concat(functions.lit(bytearray(pack_time(heartbeat))), rest)
                moved_stamp = functions.when(is_belated, at_heartbeat).otherwise(moved_stamp)
        late = functions.coalesce(is_late, functions.lit(False))
        return arrived.withColumns({"late": late, "time": moved_time, "stamp": moved_stamp})

    def _compute(
        self,
        number: int,
        before: Commit,
        arrived: Any,
        upto: bytes,
        bounds: tuple[bytes, ...] = (),
        refused: DriftError | None = None,
    ) -> None:
        """Release the items below a time, store the others and the states, and write the commit.

        Args:
            refused: the error that then ends the stream, as a run ends whose last item is refused; there is no commit.
        """
        from pyspark.sql import functions

        spark = self._spark if arrived is None else arrived.sparkSession
        store = self._store(spark)
        waiting = [] if arrived is None else [arrived.select("rank", "time", "stamp", "payload")]
        waiting += [store.pending(before.slot)] if before.slots else []
        rows = reduce(lambda one, other: one.unionAll(other), waiting)
        slot = before.next_slot
        stored_by, before = before.partitions, replace(before, partitions=self._partitions(before))
        moves = stored_by != before.partitions
        writing = StateWriting(number, before.writes_everything or moves, before.heartbeat)
        heartbeat = max(upto, before.heartbeat)
        work = replace(self._work(before.partitions, bounds, writing), heartbeat=heartbeat, begin=before.heartbeat)
        ready = functions.col("stamp") < functions.lit(bytearray(upto))
        states = store.state(before.slots) if before.slots else None
        if states is not None and moves:
            states = states.mapInArrow(task(moved, work), DDL)
        result = self._result(rows.where(ready), states, before, work).persist()
        try:
            port = functions.col(_PORT)
            ends, state_bytes = _reported(result)
            items = result.where(port.isNull()).select(*self._fields.names)
            after = _released(before, number, ends)
            error = next((end.error for _, (_, end) in sorted(ends.items()) if end.error is not None), refused)
            if error is not None:
                store.write_failure(after, items.where(functions.col("position") < after.position))
                raise error
            store.write_items(number, items)
            store.write_state(slot, result.where(port.isin(*_STATE_PORTS)).select(*STATE_COLUMNS))
            store.write_pending(slot, rows.where(~ready))
        finally:
            result.unpersist()
        self._last = None
        everything = writing.everything
        commit = replace(
            after,
            slot=slot,
            slots=(slot,) if everything else (*before.slots, slot),
            complete_bytes=state_bytes if everything else before.complete_bytes,
            changed_bytes=0 if everything else before.changed_bytes + state_bytes,
            heartbeat=heartbeat,
            finished=upto == END_OF_TIME,
            graph=before.graph if number == 0 and not before.slots else self._accepted,
        )
        store.write_commit(commit)
        self._last, self._accepted = commit, None

    # The parts of a micro-batch.

    def _result(self, rows: Any, states: Any, before: Commit, work: Work) -> Any:
        """Rows of released items, of states and later items to store, and of what each range of the output reports."""
        fed = rows.select("stamp", "payload").repartition(before.partitions, "stamp")
        fed = fed.sortWithinPartitions("stamp").mapInArrow(partial(number_items, work, self._readings), DDL)
        if states is not None:
            fed = fed.unionAll(self._stored_rows(states, work))
        kernel = partial(
            release,
            start=before.position,
            schema=_result_schema(self._fields),
            sink=self._sink,
            columns=arrow_fields(self._fields) if self._columns else None,
        )
        return through_levels(fed, work, self._levels, kernel, f"{self._ddl}, {STATE_DDL}")

    def _stored_rows(self, rows: Any, work: Work) -> Any:
        """Rows of the stored states and later items; later items for sinks go to the ranges of this micro-batch."""
        if not self._levels.puts_later:
            return rows
        for_sinks = (rows["port"] == LATER) & (rows["level"] == self._levels.last)
        return rows.where(~for_sinks).unionAll(rows.where(for_sinks).mapInArrow(task(release_later, work), DDL))

    def _store(self, spark: Any) -> Store:
        return Store(spark, self._folder, self._output)

    def _check_graph(self, commits: list[Commit]) -> None:
        """Check that the stored states were computed by this graph.

        Raises:
            SettingsError: they were computed by another graph.
        """
        known = next(commit.graph for commit in reversed(commits) if commit.graph is not None)
        changes = "; ".join(change.text for change in compare(known, self._graph) if change.matters)
        if commits[-1].structure != self._structure:
            raise SettingsError(
                f"the checkpoint {self._folder} is of another graph, or of another version of drift, and this graph "
                f"cannot use its states: {changes or 'its steps may have other names'}; start a new stream, with "
                f"another checkpoint"
            )
        if refused := refused_states(known, self._graph):
            raise SettingsError(
                f"the stream in {self._folder} cannot resume with this graph: {refused}; start a new stream, with "
                f"another checkpoint"
            )
        self._accepted = self._graph if changes else None
        if changes and self._changed_code != "accept":
            raise SettingsError(
                f"functions of the stream in {self._folder} have changed since it ran: {changes}. Its states and its "
                f"output come from the old functions, so no run over all input would have the same output; start a new "
                f"stream, with another checkpoint, or, if a function was only corrected, pass changed_code='accept'"
            )

    def _partitions(self, before: Commit) -> int:
        """How many tasks share the keys in the next micro-batch."""
        return self._settings.partitions or before.partitions

    def _work(self, partitions: int, bounds: tuple[bytes, ...], writing: StateWriting | None = None) -> Work:
        return Work(
            dataflow=packed(self._dataflow),
            around=self._around,
            fused=self._settings.fused,
            targets=partitions,
            bounds=bounds,
            algorithm=self._settings.digest,
            writes_state=writing,
            classes=self._classes,
        )

    def _heartbeat(self, rank: int, before: int | None, summary: Any) -> int | None:
        """The heartbeat of a source after a micro-batch, as a time."""
        if summary is None or summary["latest"] is None:
            return before
        policy = self._readings[rank].policy
        assert policy.reads_payloads
        heartbeat = max(summary["latest"] - policy.lateness, TIME_MIN)
        return int(heartbeat if before is None else max(heartbeat, before))

    def _with_late_items(self, before: Commit, summaries: Mapping[int, Any]) -> dict[int, tuple[str, int]]:
        """The sources with late items: by rank the name and the heartbeat that the items lie below."""
        return {
            rank: (self._readings[rank].name, heartbeat)
            for rank, heartbeat in enumerate(before.heartbeats)
            if heartbeat is not None and rank in summaries and summaries[rank]["late"]
        }

    def _late_error(self, arrived: Any, before: Commit, summaries: Mapping[int, Any]) -> LateItem | None:
        """The error for the first late item whose source's policy does not allow it; None if there is none."""
        for rank, (name, heartbeat) in self._with_late_items(before, summaries).items():
            policy = self._readings[rank].policy
            assert policy.reads_payloads
            if policy.late == "error":
                first = arrived.where(f"late AND rank = {rank}").orderBy("stamp", "payload").first()
                return LateItem(
                    f"source {name!r} got an item at {first.time} after a micro-batch with the heartbeat "
                    f"{heartbeat}; payload {safe_text(repr, restored(first.payload), 200)}; set lateness to "
                    f"{policy.lateness + heartbeat - first.time} or more, {allow(policy, heartbeat - first.time)}or "
                    f"pass late='divert' to divert such items"
                )
        return None

    def _divert(self, arrived: Any, number: int, before: Commit, summaries: Mapping[int, Any]) -> int:
        """Write late items to the stream's late output; returns how many they are."""
        heartbeats = self._with_late_items(before, summaries)
        if heartbeats:
            kernel = partial(late_rows, self._work(1, ()), heartbeats)
            late = arrived.where("late").select("rank", "time", "payload").mapInArrow(kernel, LATE_DDL)
            self._store(arrived.sparkSession).write_late(number, late)
        return sum(summaries[rank]["late"] for rank in heartbeats)


def _not_below(since: bytes) -> Any:
    """Condition: an error, a row at or above a checkpoint, or a row with the checkpoint's stamp, with items on both
    sides.
    """
    from pyspark.sql import functions

    stamp, checkpoint = functions.col("stamp"), functions.lit(bytearray(since))
    has_its_stamp = functions.substring(checkpoint, functions.lit(1), functions.length(stamp)) == stamp
    return functions.col("error").isNotNull() | (stamp >= checkpoint) | has_its_stamp


def _reported(result: Any) -> tuple[dict[int, tuple[int, RangeEnd]], int]:
    """By range of the output the position that it has reached, and its end; and the bytes of the states to store."""
    from pyspark.sql import functions

    port = functions.col(_PORT)
    body = functions.when(port == END, functions.col(_BODY)).alias("body")
    size = functions.length(functions.col(_BODY)).alias("size")
    rows = result.where(port.isNotNull()).select(_PORT, _TARGET, _POSITION, body, size).collect()
    ends = {row[_TARGET]: (row[_POSITION], pickle.loads(row["body"])) for row in rows if row[_PORT] == END}
    return ends, sum(row["size"] for row in rows if row[_PORT] in _STATE_PORTS)


def _released(before: Commit, number: int, ends: Mapping[int, tuple[int, RangeEnd]]) -> Commit:
    """The commit before, plus the items released since: up to the first range that ends with an error."""
    position, blocks, edges = before.position, [], []
    for _, (reached, end) in sorted(ends.items()):
        position = max(position, reached)
        blocks += end.blocks
        edges += end.edges
        if end.error is not None:
            break
    return replace(before, number=number, position=position, blocks=blocks, edges=edges, graph=None)


def _streamed(read: Source, rank: int, policy: TimePolicy, source: Any) -> tuple[Reading, Any]:
    """How a streaming DataFrame is read."""
    name = read.name
    if not isinstance(source, FrameSource) or not getattr(source.frame, "isStreaming", False):
        raise SettingsError(
            f"source {name!r} of a stream is {safe_text(repr, source, 80)}, which is no streaming DataFrame; pass one "
            f"of spark.readStream, or call drift.run(..., engine='spark') for input that ends"
        )
    if source.order_by or (source.time is None and not policy.reads_payloads):
        raise SettingsError(
            f"source {name!r} is in arrival time, and rows of a stream have no order of arrival; name their time: "
            f"drift.spark.source(frame, time=...), or times={{{name!r}: drift.EventTime(...)}}"
        )
    if policy.reads_payloads and policy.future_max is not None:
        raise SettingsError(
            f"source {name!r} has future_max={policy.future_max}, and a stream, which has its rows micro-batch by "
            f"micro-batch, cannot say which of them are too far ahead; leave it out, times={{{name!r}: "
            f"drift.EventTime(...)}}, and filter such rows of the DataFrame"
        )
    if policy.is_whole:
        raise SettingsError(
            f"source {name!r} has lateness='all', and a stream does not end; name how far its rows may be out of "
            f"order, times={{{name!r}: drift.EventTime(..., lateness='10s')}}"
        )
    return reading_of(read, rank, policy, source, source.frame)


def _structure(dataflow: Dataflow, readings: Mapping[int, Reading]) -> str:
    """A fingerprint of all that must stay unchanged for stored states to be usable: all but the code of functions."""
    operators = tuple(
        (each.kind, each.name, getattr(each, "window", 0), getattr(each, "arity", "")) for each in dataflow.operators
    )
    edges = tuple((edge.origin, edge.target, edge.feedback) for edge in dataflow.edges)
    policies = tuple(reading.policy.label for reading in readings.values())
    return f"{hash64((_STATE_VERSION, operators, edges, policies)):016x}"


def _summary(arrived: Any, ranks: Iterable[int]) -> Any:
    """For each source: how many items, errors and late items have arrived, their latest time, and quantiles of times.

    All in one row: after a `groupBy` a micro-batch would have 200 tasks, which Spark coalesces only outside streams.
    """
    from pyspark.sql import functions

    def of(rank: int) -> Any:
        is_own = functions.col("rank") == rank
        time = functions.when(is_own, functions.col("time"))
        return functions.struct(
            functions.count_if(is_own).alias("items"),
            functions.count(functions.when(is_own, functions.col("error"))).alias("errors"),
            functions.count_if(is_own & functions.col("late")).alias("late"),
            functions.max(time).alias("latest"),
            functions.percentile_approx(time, _QUANTILES).alias("times"),
        )

    return arrived.agg(*map(of, ranks))


def _first_error(arrived: Any) -> DriftError:
    """The error with the least key among the rows that are no items: it does not depend on the order of rows."""
    _, error = pickle.loads(arrived.where("error IS NOT NULL").orderBy("error").first().error)
    return error  # type: ignore[no-any-return]


def _result_schema(fields: Any) -> pa.Schema:
    states = [pa.field(name, field.type) for name, field in zip(STATE_COLUMNS, ROWS)]
    return pa.schema([*arrow_schema(fields), *states])
