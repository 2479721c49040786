"""The output of a graph as a DataFrame.

Invariant: its rows are the items that every engine releases, each with its position; over all partitions, in turn, the
rows are in the order of metas.
"""

from __future__ import annotations

import weakref
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any

import pyarrow as pa

from drift.engines.source_feed import SourceFeed
from drift.flow.corrected import check_own_times
from drift.sinks.typed import payload_arrays
from drift.sources.arguments import as_sources
from drift.sources.frames import FrameSource
from drift.spark.kernels import Work, released_batches
from drift.spark.kind import SPARK
from drift.spark.prepare import Prepared, check_finite
from drift.spark.schemas import arrow_schema
from drift.spark.sessions import active
from drift_barrier.barrier import Released
from drift_graph.canonical import canonical_each
from drift_graph.errors import SettingsError
from drift_graph.graph import Dataflow
from drift_graph.lateness import Late
from drift_graph.meta import END_OF_TIME, global_time_of, time_of
from drift_graph.policies import TimePolicy

POSITION_DDL = "position long, time long, global_time binary, meta binary"
PAYLOAD_DDL = "sink string, payload binary"


def output_frame(
    graph: Any,
    sources: Mapping[str, Any],
    spark: Any,
    sink: str | None,
    columns: str | None,
    settings: Mapping[str, Any],
) -> Any:
    dataflow = graph if isinstance(graph, Dataflow) else graph.build()
    sink = chosen_sink(dataflow, sink, columns)
    check_sources(dataflow, sources, {})
    of_engine = SPARK.settings_of(settings)
    opened = as_sources(sources)
    spark = spark or _session(opened)
    feed = SourceFeed(dataflow, opened, {}, of_engine, on_late=_refuse_late)
    try:
        check_finite(feed)
        prepared = Prepared(spark, dataflow, feed, of_engine, lambda: None)
        feed.report_late(END_OF_TIME)
    finally:
        feed.close()
    weakref.finalize(spark, prepared.close)  # derived DataFrames may need it as long as the session lives
    if prepared.error is not None:
        raise prepared.error
    fields = spark.createDataFrame([], f"{POSITION_DDL}, {columns or PAYLOAD_DDL}").schema
    return prepared.output(partial(run_output, sink=sink, columns=arrow_fields(fields) if columns else None), fields)


def chosen_sink(dataflow: Dataflow, sink: str | None, columns: str | None) -> str | None:
    """The sink whose items are selected; None for all sinks.

    Raises:
        SettingsError: there is no such sink, or `columns` was passed for several sinks.
    """
    sinks = [each.name for each in dataflow.sinks]
    if sink is not None and sink not in sinks:
        raise SettingsError(f"graph {dataflow.name!r} has no sink {sink!r}; it has {', '.join(map(repr, sinks))}")
    if columns is not None and sink is None:
        if len(sinks) > 1:
            raise SettingsError(f"columns= are those of one sink; pass sink= too, one of {', '.join(map(repr, sinks))}")
        return sinks[0]
    return sink


def check_sources(dataflow: Dataflow, sources: Mapping[str, Any], times: Mapping[str, TimePolicy]) -> None:
    """Check that `sources` names all sources of the graph, and that neither argument names another.

    Raises:
        SettingsError: naming the first source that is missing or unknown, or has a time that its windows do not know.
    """
    for by_name in (sources, times):
        for name in by_name:
            if name not in [each.name for each in dataflow.sources]:
                raise SettingsError(f"graph {dataflow.name!r} has no source {name!r}")
    for each in dataflow.sources:
        if each.name not in sources:
            raise SettingsError(f"no input for source {each.name!r} of graph {dataflow.name!r}; pass it in sources=")
    check_own_times(dataflow, times)


def _session(sources: Mapping[str, Any]) -> Any:
    for source in sources.values():
        if isinstance(source, FrameSource) and not callable(source.frame):
            return source.frame.sparkSession
    found = active()
    if found is None:
        raise SettingsError("there is no Spark session: pass spark=, or make one with drift.spark.session()")
    return found


def _refuse_late(late: Late) -> None:
    raise SettingsError(
        f"an item of source {late.source!r} is late ({late.reason}) and is to be diverted, which a DataFrame cannot; "
        f"run it with drift.run(..., engine='spark', on_late=)"
    )


def arrow_fields(schema: Any) -> list[pa.Field]:
    """The columns after those of an item's position and meta."""
    return list(arrow_schema(schema))[4:]


def run_output(
    work: Work, batches: Iterable[pa.RecordBatch], *, sink: str | None, columns: list[pa.Field] | None
) -> Iterator[pa.RecordBatch]:
    """The items of one range as rows."""
    for batch in released_batches(work, batches):
        yield from output_rows(batch, sink, columns)
        if batch.error is not None:
            raise batch.error


def output_rows(batch: Released, sink: str | None, columns: list[pa.Field] | None) -> Iterator[pa.RecordBatch]:
    positions: Sequence[int] = range(batch.position, batch.position + len(batch.metas))
    metas, payloads, sinks = batch.metas, batch.payloads, batch.sinks
    if sink is not None:
        (positions, metas, payloads), sinks = batch.of(sink), sink
    if metas:
        names = [sinks] * len(metas) if isinstance(sinks, str) else sinks
        yield _rows(positions, list(metas), names, payloads, columns)


def _rows(
    positions: Sequence[int],
    metas: list[bytes],
    sinks: Sequence[str],
    payloads: list[Any],
    columns: list[pa.Field] | None,
) -> pa.RecordBatch:
    arrays = [
        pa.array(positions, pa.int64()),
        pa.array([time_of(meta) for meta in metas], pa.int64()),
        pa.array([global_time_of(meta) for meta in metas], pa.binary()),
        pa.array(metas, pa.binary()),
    ]
    names = ["position", "time", "global_time", "meta"]
    if columns is None:
        arrays += [pa.array(sinks, pa.string()), pa.array(canonical_each(payloads), pa.binary())]
        return pa.RecordBatch.from_arrays(arrays, names=[*names, "sink", "payload"])
    arrays += payload_arrays(payloads, columns, sinks[0])
    return pa.RecordBatch.from_arrays(arrays, names=[*names, *(field.name for field in columns)])
