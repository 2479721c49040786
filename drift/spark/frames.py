"""DataFrames as sources: each row is a payload, and its global time depends on the row alone, or on a stated order.

Invariant: rows get the global times that any engine would give their payloads, however they are partitioned.

Why: in event time the stamp of a row (a global time without the ordinal) is its time and its tie, both functions of the
row. Without a tie function rows with one stamp are equal, so they take the same paths through the graph and may be
counted at the end of these, in any order: rows are read in the partitions and the order that they have. With a tie
function rows with one stamp are brought to one task and counted there; two that differ are an error. A DataFrame has
no order of arrival, so no row is late; and arrival time needs a stated order, by which the rows are numbered.

Batches of rows overlap as little as their times do, and overlapping batches are in memory at once: so rows are read in
their own order only if a sample says that they are sorted, or after Spark has sorted them by a column of times.
"""

from __future__ import annotations

import pickle
import re
from array import array
from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from operator import ne
from typing import Any, Literal

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import xxhash

from drift.arrow import payloads_of, python_values
from drift.extras import need
from drift.sources.frames import FrameSource, Payload
from drift.sources.rows import resolved_payload
from drift.spark.batches import DDL
from drift.spark.jobs import answer
from drift.spark.kernels import Refused, Work, through_maps
from drift.spark.schemas import arrow_schema
from drift.spark.tasks import mapped, task
from drift_graph.canonical import form_of, same
from drift_graph.errors import DriftError, ImpureStep, InputError, ProcessError, SettingsError
from drift_graph.functions import safe_text
from drift_graph.item import Columns
from drift_graph.meta import BEGINNING, TIME_MIN, pack_time, varint, without_ordinal
from drift_graph.metas import Metas
from drift_graph.moments import Ambiguous
from drift_graph.operators import Source
from drift_graph.payloads import AsRows, Timed, are_rows
from drift_graph.policies import ArrivalTime, EventTime, TimePolicy
from drift_graph.schemas import as_rows
from drift_graph.stamps import check_payloads, numbers_of_hashes, ties_of_policy, timed_rows, times_of
from drift_graph.times import SourceMachine

#: The column of times, if there is one; after the columns of the payload.
TIME = "__drift_time"
_STAMP = "__drift_stamp"
_ERROR = "__drift_error"
_CHUNK_ITEMS, _CHUNK_ROWS = 1 << 14, 1 << 16  # of dicts; of rows that stay columns


class FrameMachine(SourceMachine):
    """Computes the stamps of rows: global times without the ordinal."""

    def stamps(
        self, payloads: list[Any], times: list[int] | None, forms: list[bytes] | None = None, ending: bytes = b""
    ) -> tuple[Metas, Exception | None]:
        """The stamps up to the first row that has none, and the error of that row.

        Args:
            forms: canonical bytes of the payloads, if they are known.
            ending: appended to each stamp.

        Returns:
            The stamps and the error; an ImpureStep if the time function or the tie function has changed a row.
        """
        try:
            return self._stamps(payloads, times, forms, ending)
        except ImpureStep as impure:
            return Metas(), impure

    def _stamps(
        self, payloads: list[Any], times: list[int] | None, forms: list[bytes] | None, ending: bytes
    ) -> tuple[Metas, Exception | None]:
        error: Exception | None = None
        policy = self.policy
        if self._rows is not None:
            payloads, error = as_rows(self._rows, payloads, self.name)
            times = None if times is None else times[: len(payloads)]
        samples = self._sampler.sample(payloads) if self._calls_users else ()
        if times is None:
            assert policy.reads_payloads
            times, untimed = times_of(payloads, policy, self.name)
            error = untimed or error
            check_payloads(samples, policy, "time", self.name)
            payloads = payloads[: len(times)]
        rank = varint(self._rank)
        if not policy.reads_payloads:
            rest = rank + varint(0) + ending
            return Metas([pack_time(time) + rest for time in times]), error
        if forms is not None and policy.tie is None:
            ties, tie_error = numbers_of_hashes(b"".join(map(xxhash.xxh64_digest, forms[: len(times)]))), None
        else:
            ties, tie_error = ties_of_policy(payloads, policy, self.name)
        if policy.tie is not None:
            check_payloads(samples, policy, "tie", self.name)
        return Metas.stamped(array("q", times[: len(ties)]), ties, rank, ending), tie_error or error


@dataclass(frozen=True)
class Reading:
    """How tasks read a DataFrame.

    Attributes:
        columns: names of the payload's columns, in the order of the rows' columns.
        timed: whether a column holds the times; else the policy's function is called.
        rows: checks payloads against the schema of the source, if it has one.
    """

    name: str
    rank: int
    policy: TimePolicy
    payload: Payload
    columns: tuple[str, ...]
    timed: bool
    rows: AsRows | None = None

    def machine(self) -> FrameMachine:
        return FrameMachine(self.name, self.rank, self.policy, rows=self.rows)

    def chunks(self, batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
        """The rows that are read at once."""
        size = _CHUNK_ROWS if self.payload == "rows" else _CHUNK_ITEMS
        return (batch.slice(start, size) for start in range(0, batch.num_rows, size))

    def payloads(self, batch: pa.RecordBatch) -> Any:
        """The payloads of rows: in columns only if they are of the schema."""
        found = self._payloads(batch)
        if self.rows is None:
            return found
        try:
            return self.rows(found)
        except InputError:  # `FrameMachine` finds it again, and says of which row
            return list(found)

    def _payloads(self, batch: pa.RecordBatch) -> Any:
        columns = [batch.column(index) for index in range(len(self.columns))]
        if self.payload == "rows":
            from drift.columns.rows import frame_of_batch

            return frame_of_batch(self.columns, pa.RecordBatch.from_arrays(columns, self.columns))
        return payloads_of(columns, self.columns, self.payload, batch.num_rows)

    def stamped(self, batch: pa.RecordBatch, ending: bytes = b"") -> tuple[list[Any], Metas, Exception | None]:
        """The payloads of rows, and their stamps as of `FrameMachine.stamps`: in arrays, where they are found so."""
        payloads = self.payloads(batch)
        metas = self.stamps_at_once(batch, payloads, ending)
        if metas is not None:
            return payloads, metas, None
        return payloads, *stamped(self.machine(), payloads, self.times(batch), self.forms(batch, payloads), ending)

    def stamps_at_once(self, batch: pa.RecordBatch, payloads: Any, ending: bytes) -> Metas | None:
        """The stamps of rows in columns; None where these are no such, or where a row may have none."""
        if not are_rows(payloads) or not payloads:
            return None
        policy, rank = self.policy, varint(self.rank)
        if not self.timed:
            assert policy.reads_payloads
            timed = timed_rows(payloads, policy)
            return _stamped(timed, rank, ending)
        times = self.times_at_once(batch, payloads)
        if times is None:
            return None
        if not policy.reads_payloads:
            is_gapless = bool((np.diff(times) == 1).all())
            return Metas.numbered(int(times[0]), len(times), rank + varint(0) + ending) if is_gapless else None
        tie = getattr(policy.tie, "path", "") if policy.tie is not None else None
        timed = payloads.timed_at(times, tie)  # type: ignore[attr-defined]
        return _stamped(timed, rank, ending)

    def times_at_once(self, batch: pa.RecordBatch, payloads: Any) -> Any:
        """The times of rows in columns, as an array; None where one may have none."""
        from drift.columns.times import times_of_column  # imports Polars

        if not self.timed:
            assert isinstance(self.policy, EventTime)
            column = payloads.frame[self.policy.time.path]  # type: ignore[attr-defined]
            return times_of_column(column, self.policy)
        column = batch.column(len(self.columns))
        return None if column.null_count else column.to_numpy(zero_copy_only=False)

    def forms(self, batch: pa.RecordBatch, payloads: list[Any]) -> list[bytes] | None:
        """The canonical bytes of the payloads of rows, if the columns' types allow to make them directly; else None."""
        if self.payload not in ("tuple", "value") or not all(map(_is_plain, batch.columns[: len(self.columns)])):
            return None
        return list(map(_encode, payloads))

    def times(self, batch: pa.RecordBatch) -> list[int] | None:
        return python_values(batch.column(len(self.columns))) if self.timed else None


def _stamped(timed: Timed | None, rank: bytes, ending: bytes) -> Metas | None:
    """The metas of rows with their times; None if one may have no tie."""
    ties = None if timed is None else timed.ties(None)
    return None if timed is None or ties is None else Metas.stamped(timed.times, ties, rank, ending)


_encode = msgspec.msgpack.Encoder().encode
_kinds = pa.types
_PLAIN = (_kinds.is_integer, _kinds.is_boolean, _kinds.is_string, _kinds.is_binary)


def _is_plain(column: pa.Array) -> bool:
    """Whether MessagePack of any value in the column is its canonical form."""
    return any(is_kind(column.type) for is_kind in _PLAIN) or (
        _kinds.is_float64(column.type) and not pc.any(pc.is_nan(column)).as_py()
    )


def stamp_rows(work: Work, reading: Reading, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Rows with their stamps, and at the end the least of the rows without a stamp, with its error."""
    work.opened()
    worst: tuple[bytes, bytes, pa.RecordBatch] | None = None
    for batch in batches:
        payloads, stamps, error = reading.stamped(batch)
        if error is None:
            yield _with_stamps(batch, reading, list(stamps), [None] * len(stamps))
            continue
        for index, key, reason in refusals(reading.machine(), payloads, reading.times(batch), error):
            if worst is None or key < worst[0]:
                worst = key, pickle.dumps(reason, 5), batch.slice(index, 1)
    if worst is not None:
        yield _with_stamps(worst[2], reading, [b""], [worst[0] + b"\0" + worst[1]], key_bytes=len(worst[0]))


def stamped(
    machine: FrameMachine,
    payloads: list[Any],
    times: list[int] | None,
    forms: list[bytes] | None = None,
    ending: bytes = b"",
) -> tuple[Metas, Exception | None]:
    if times is not None and None in times:
        at = times.index(None)  # type: ignore[arg-type]
        return Metas(), InputError(
            f"the time column of source {machine.name!r} {_no_time(machine.policy)} for payload "
            f"{safe_text(repr, payloads[at], 200)}; filter such rows out, or give them a time with coalesce(...)"
        )
    return machine.stamps(payloads, times, forms, ending)


def _no_time(policy: TimePolicy) -> str:
    """What a time column has that is no time."""
    zone = policy.zone if isinstance(policy, EventTime) else None
    if zone is None or str(zone) == "UTC":
        return "is null"
    return (
        f"is null, or what clocks in {zone} never show or show twice (EventTime(..., ambiguous='earliest') or 'latest' "
        f"says which of two is meant)"
    )


def refusals(
    machine: FrameMachine, payloads: list[Any], times: list[int] | None, error: Exception
) -> Iterator[tuple[int, bytes, DriftError]]:
    """The rows without a stamp: index, sort key, error.

    Args:
        error: of all of them together.
    """
    if isinstance(error, ImpureStep):  # they are not what they were
        yield 0, b"", error
        return
    for index, payload in enumerate(payloads):
        _, reason = stamped(machine, [payload], None if times is None else [times[index]])
        if reason is not None:
            assert isinstance(reason, DriftError)
            yield index, form_of(payload), reason


def read_rows(work: Work, reading: Reading, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Read rows in their own order; gives rows of batches, whose items are counted where they meet (`Work.repeats`)."""
    parts = ((reading.name, columns, BEGINNING) for columns in _in_own_order(reading, batches))
    yield from through_maps(work, parts, counts_read=True)


def _in_own_order(reading: Reading, batches: Iterable[pa.RecordBatch]) -> Iterator[Columns]:
    """Items, each with the global time of the first row with its stamp.

    Raises:
        Refused: the least of the rows without a stamp; after all items were yielded.
    """
    worst: Refused | None = None
    for rows in batches:
        for batch in reading.chunks(rows):
            payloads, metas, error = reading.stamped(batch, varint(0))
            if error is not None:
                for _, key, reason in refusals(reading.machine(), payloads, reading.times(batch), error):
                    if worst is None or key < worst.key:
                        worst = Refused(key, reason)
            elif worst is None:
                yield Columns(metas, payloads, None)
    if worst is not None:
        raise worst


def _with_stamps(
    batch: pa.RecordBatch, reading: Reading, stamps: list[bytes], errors: list[bytes | None], key_bytes: int = 0
) -> pa.RecordBatch:
    if errors[:1] not in ([], [None]):
        assert errors[0] is not None
        errors = [key_bytes.to_bytes(4, "big") + errors[0]]
    columns = batch.columns[: len(reading.columns)]
    names = [f"c{index}" for index in range(len(columns))]
    arrays = [*columns, pa.array(stamps, pa.binary()), pa.array(errors, pa.binary())]
    return pa.RecordBatch.from_arrays(arrays, names=[*names, _STAMP, _ERROR])


def number_rows(work: Work, reading: Reading, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Count the rows of each stamp in rows sorted by stamp, and run the maps after the source; yields batches."""
    every = numbered(reading, batches)
    new = (columns.slice(bisect_left(columns.metas, work.begin), len(columns.metas)) for columns in every)
    parts = ((reading.name, columns, columns.metas[0]) for columns in new if columns.metas)
    yield from through_maps(work, parts, counts_read=True)


def numbered(reading: Reading, batches: Iterable[pa.RecordBatch]) -> Iterator[Columns]:
    """Items with their global times, from rows sorted by stamp.

    Raises:
        Refused: a row has no stamp.
        InputError: the tie function gives one value for two payloads.
    """
    counter = Counter(reading)
    for rows in batches:
        for batch in reading.chunks(rows):
            errors = batch.column(len(reading.columns) + 1)
            if errors.null_count < batch.num_rows:  # rows with errors come first: their stamp is empty
                for found in errors.drop_null().to_pylist():
                    length = int.from_bytes(found[:4], "big")
                    raise Refused(found[4 : 4 + length], pickle.loads(found[5 + length :]))
            payloads = reading.payloads(batch)
            at_once = None if reading.timed else reading.stamps_at_once(batch, payloads, varint(0))
            if at_once is None or not counter.are_new(at_once, payloads):
                at_once = counter.metas(python_values(batch.column(len(reading.columns))), payloads)
            yield Columns(at_once, payloads, None)


class Counter:
    """Makes global times of sorted stamps."""

    def __init__(self, reading: Reading) -> None:
        self._reading = reading
        self._tied = reading.policy.tie is not None
        self._numbered = not reading.policy.reads_payloads
        self._stamp = b""
        self._ordinal = 0
        self._payload: Any = None

    def are_new(self, metas: Metas, payloads: list[Any]) -> bool:
        """Whether each of these metas of first rows of a stamp is of another stamp, and of none before."""
        if not metas.is_increasing() or without_ordinal(metas[0]) == self._stamp:
            return False
        self._stamp, self._ordinal, self._payload = without_ordinal(metas[-1]), 0, payloads[-1]
        return True

    def metas(self, stamps: list[bytes], payloads: list[Any]) -> Metas:
        """The metas of payloads with these stamps; payloads of one stamp are counted."""
        if stamps[0] != self._stamp and all(map(ne, stamps, islice(stamps, 1, None))):
            self._stamp, self._ordinal, self._payload = stamps[-1], 0, payloads[-1]
            return Metas(stamps).with_suffix(b"\0")
        metas: list[bytes] = []
        for stamp, payload in zip(stamps, payloads):
            if stamp == self._stamp:
                self._ordinal += 1
                if self._tied and not same(self._payload, payload):
                    raise self._not_unique(stamp, payload)
            else:
                self._stamp, self._ordinal, self._payload = stamp, 0, payload
            metas.append(stamp + varint(self._ordinal))
        return Metas(metas)

    def _not_unique(self, stamp: bytes, payload: Any) -> InputError:
        time = int.from_bytes(stamp[:8], "big") + TIME_MIN
        return InputError(
            f"the tie function of source {self._reading.name!r} gave one value for two different payloads at time "
            f"{time}: {safe_text(repr, self._payload, 200)} and {safe_text(repr, payload, 200)}; make it unique, or "
            f"leave tie out"
        )


def reading_of(read: Source, rank: int, policy: TimePolicy, source: FrameSource, frame: Any) -> tuple[Reading, Any]:
    """The reading of a DataFrame for a source of the graph, and the DataFrame with the column of times, if the reading
    needs one.
    """
    name, rows = read.name, read.rows
    columns = tuple(frame.columns)
    if source.payload not in ("dict", "tuple", "value", "rows"):
        raise SettingsError(f"payload={source.payload!r} is neither 'dict', 'tuple', 'value' nor 'rows'")
    if source.payload == "rows":
        need("columns", "drift.spark.source with payload='rows'")
    if not columns:
        raise SettingsError(f"source {name!r}: the DataFrame has no columns, and Spark sends no such rows to tasks")
    if TIME in map(str.lower, columns):
        raise SettingsError(f"source {name!r}: a column is called {TIME}, which is drift's own; rename it")
    if source.payload == "value" and len(columns) != 1:
        raise SettingsError(
            f"source {name!r}: payload='value' takes a DataFrame of one column, and this has {', '.join(columns)}; "
            f"select the one that is the payload"
        )
    if source.payload in ("dict", "rows") and len(set(columns)) < len(columns):
        raise SettingsError(f"source {name!r}: two columns of the DataFrame have one name: {', '.join(columns)}")
    _check_types(name, frame)
    payload = resolved_payload(source.payload, None, arrow_schema(frame.schema))
    if source.time is not None and source.order_by:
        raise SettingsError(f"source {name!r}: time= puts rows in event time, order_by= in arrival time; give one")
    if source.order_by:
        return Reading(name, rank, ArrivalTime(), payload, columns, True, rows), frame
    if source.time is not None:
        event = policy if policy.reads_payloads else EventTime(_never)
        return Reading(name, rank, event, payload, columns, True, rows), frame.withColumn(
            TIME, _millis(name, frame, source.time, event)
        )
    if not policy.reads_payloads:
        raise SettingsError(
            f"source {name!r} is in arrival time, and a DataFrame has no order of arrival; say in which order its rows "
            f"came, drift.spark.source(frame, order_by=...), or give them a time: drift.spark.source(frame, time=...), "
            f"or times={{{name!r}: drift.EventTime(...)}}"
        )
    return Reading(name, rank, policy, payload, columns, False, rows), frame


def _check_types(name: str, frame: Any) -> None:
    """
    Raises:
        SettingsError: a column has a type whose values do not come to tasks.
    """
    from pyspark.errors import PySparkException
    from pyspark.sql.types import StructType

    for field in frame.schema:
        try:
            arrow_schema(StructType([field]))
        except PySparkException:
            raise SettingsError(
                f"source {name!r}: column {field.name!r} is of type {field.dataType.simpleString()}, of which Spark "
                f"sends no values to Python: cast it, for instance to a number of months or to text, or drop it"
            ) from None


def _never(payload: Any) -> int:
    raise AssertionError("the times are in a column")


def _millis(name: str, frame: Any, time: Any, policy: TimePolicy) -> Any:
    """The column of times as a long: integers as they are, moments in milliseconds since 1970; null where none is.

    Args:
        policy: has the zone of moments without one, UTC if that is None; never that of the session.
    """
    from pyspark.errors import PySparkException
    from pyspark.sql import functions, types

    try:
        column = functions.expr(time) if isinstance(time, str) else time
        kind = frame.select(column.alias(TIME)).schema[0].dataType
    except PySparkException as error:
        reason = str(error).strip().splitlines()[0]
        raise SettingsError(f"source {name!r}: time={time!r} is no column or expression here: {reason}") from error
    if isinstance(kind, types.IntegralType):
        return column.cast("long")
    if isinstance(kind, types.TimestampType):
        return functions.unix_millis(column)
    if isinstance(kind, types.TimestampNTZType):
        date = functions.year(column), functions.month(column), functions.dayofmonth(column)
        clock = functions.hour(column), functions.minute(column), functions.date_part(functions.lit("SECOND"), column)
        shown = functions.unix_millis(functions.make_timestamp_ltz(*date, *clock, functions.lit("UTC")))
        assert isinstance(policy, EventTime)
        return shown if policy.zone is None else _of_clocks(shown, str(policy.zone), policy.ambiguous)
    raise SettingsError(
        f"source {name!r}: the time of a row is of type {kind.simpleString()}; it is a whole number or a timestamp: "
        f'cast it, for instance time="cast(ts as timestamp)"'
    )


def _of_clocks(shown: Any, zone: str, ambiguous: Ambiguous) -> Any:
    """When clocks in a zone show a time, in milliseconds since 1970; null if never, or twice where that is an error.

    Each of two readings, by the offset of the day before and by that of the day after, is one if the clocks show the
    time then. Clocks are changed once in two days at most.

    Args:
        shown: the time, in milliseconds since 1970 as if it were in UTC.
    """
    from pyspark.sql import functions

    def local(moment: Any) -> Any:
        return functions.unix_millis(functions.from_utc_timestamp(functions.timestamp_millis(moment), zone))

    readings = []
    for near in (shown - _DAY_MS, shown + _DAY_MS):
        reading = shown - (local(near) - near)
        readings.append(functions.when(local(reading) == shown, reading))
    first, second = readings
    if ambiguous == "error":
        return functions.when(first != second, None).otherwise(functions.coalesce(first, second))
    return functions.coalesce(second, first) if ambiguous == "latest" else functions.coalesce(first, second)


_DAY_MS = 86_400_000
_PART_BITS = 33  # of monotonically_increasing_id: the upper bits number the partition, the lower its rows


def _count_parts(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    for batch in batches:
        if batch.num_rows:
            part = batch.column(0)[0].as_py() >> _PART_BITS
            yield pa.RecordBatch.from_pydict({"part": [part], "items": [batch.num_rows]})


_NULL = "a row is null in order_by column"


def _without_nulls(frame: Any, column: Any) -> Any:
    """The column with a check that fails at a null; unchanged if it is a sort order, which may say where nulls go."""
    from pyspark.errors import PySparkException
    from pyspark.sql import functions

    named = functions.col(column) if isinstance(column, str) else column
    message = (
        f"{_NULL} {column!r}, so its place in the order is not stated; filter such rows out, or say where they go: "
        f"order_by=functions.col(...).asc_nulls_last()"
    )
    checked = functions.coalesce(named, functions.raise_error(functions.lit(message)))
    try:
        frame.sortWithinPartitions(checked).schema  # noqa: B018
    except PySparkException:
        return column
    return checked


class Numbered:
    """A DataFrame whose rows are numbered in a stated order; the rows are persisted on disk until `close`."""

    def __init__(self, frame: Any, order_by: Sequence[Any], targets: int) -> None:
        from pyspark import StorageLevel
        from pyspark.errors import PySparkException
        from pyspark.sql import functions

        try:
            names = [name.replace("`", "``") for name in frame.columns]
            every = functions.xxhash64(functions.struct(*(frame[f"`{name}`"] for name in names)))
            order = (*(_without_nulls(frame, column) for column in order_by), every)
            ordered = frame.repartitionByRange(targets, *order).sortWithinPartitions(*order)
        except PySparkException as error:
            reason = str(error).strip().splitlines()[0]
            raise SettingsError(
                f"a DataFrame cannot be sorted by order_by={list(order_by)!r}: {reason}; name columns that it "
                f"has, and cast or drop those that Spark does not hash (maps, variants, intervals)"
            ) from error
        self._persisted = ordered.withColumn(TIME, functions.monotonically_increasing_id()).persist(
            StorageLevel.DISK_ONLY
        )
        counts: dict[int, int] = {}
        parts = self._persisted.select(TIME).mapInArrow(_count_parts, "part long, items long")
        try:
            found = answer(frame.sparkSession, parts.collect)
        except ProcessError as error:
            if (null := re.search(rf"({_NULL} .*?; .*?\(\))", str(error.__cause__))) is not None:
                raise InputError(null[1]) from None
            raise
        for row in found:
            counts[row.part] = counts.get(row.part, 0) + row.items
        starts: list[Any] = []
        before = 0
        for part in sorted(counts):
            starts += [functions.lit(part), functions.lit(before)]
            before += counts[part]
        mask = functions.lit(2**_PART_BITS - 1)
        number = functions.col(TIME).bitwiseAND(mask)
        if starts:
            upper = functions.shiftright(TIME, _PART_BITS)
            number = number + functions.element_at(functions.create_map(*starts), upper)
        self.frame = self._persisted.withColumn(TIME, number.cast("long"))

    def close(self) -> None:
        self._persisted.unpersist()


#: How the rows of a DataFrame come to the first level: in their own order; sorted by their column of times, in their
#: own partitions or repartitioned; or sorted by their stamps.
RowOrder = Literal["own", "time", "spread by time", "stamp"]


def level_0(
    frame: Any, work: Work, reading: Reading, order: RowOrder, read: Callable[..., Iterator[pa.RecordBatch]] = read_rows
) -> Any:
    """From rows of a DataFrame to rows of batches.

    Args:
        read: what tasks do with rows in an order other than that of stamps.
    """
    if order == "stamp":
        return sorted_by_stamp(frame, work, reading).mapInArrow(task(number_rows, work, reading), DDL)
    if order == "spread by time":
        frame = frame.repartition(work.targets, TIME)
    if order != "own":
        frame = frame.sortWithinPartitions(TIME)
    return mapped(frame, task(read, work, reading), DDL)


def sorted_by_stamp(frame: Any, work: Work, reading: Reading) -> Any:
    """The rows of a DataFrame with their stamps, those with one stamp in one task, sorted there."""
    from pyspark.sql import types

    fields = [types.StructField(f"c{index}", frame.schema[index].dataType) for index in range(len(reading.columns))]
    stamped_type = types.StructType(
        [*fields, types.StructField(_STAMP, types.BinaryType()), types.StructField(_ERROR, types.BinaryType())]
    )
    stamped = mapped(frame, task(stamp_rows, work, reading), stamped_type)
    return stamped.repartition(work.targets, _STAMP).sortWithinPartitions(_STAMP)


__all__ = ["FrameSource", "Numbered", "Reading", "level_0", "reading_of"]
