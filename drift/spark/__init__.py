"""drift on Spark: the same graph where data outgrow one machine.

Nothing here imports pyspark before it is used.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from drift.extras import need
from drift.spark.sessions import session
from drift_graph.called import called_in as _called_in

if TYPE_CHECKING:
    from drift.spark.streaming import Stream

__all__ = ["dataframe", "session", "source", "stream"]


def source(
    frame: Any, *, payload: Literal["dict", "tuple", "value", "rows"] = "dict", time: Any = None, order_by: Any = ()
) -> Any:
    """A DataFrame as a source of engine='spark'; a DataFrame by itself is one with these defaults.

    >>> import drift
    >>> trips = drift.spark.source(lambda spark: spark.read.parquet("trips"), order_by="id")

    Args:
        frame: each row is a payload; or a function that makes the DataFrame from a session. The rows are read twice,
            the first time for a sample of one percent: persist a DataFrame that is expensive to compute.
        payload: "dict" of column names and values, in the order of columns (what `drift.sources.csv` gives of a file
            whose columns are all text), which stay columns until a function asks for one (extra `columns`); a "tuple"
            of the values, or the "value" of the only column. "rows": as "dict", or an error where a column has no such
            type, as a map has none.
        time: a column, or an expression as text, of whole numbers or timestamps (then in milliseconds since 1970): the
            time of each row, in place of the time function of the source's policy. Nothing is late in a DataFrame.
        order_by: columns by which the rows are numbered, for a source in arrival time. Rows that are equal in these
            columns come in an order that depends on the rows alone.
    """
    from drift.sources.frames import FrameSource

    by = tuple(order_by) if isinstance(order_by, (list, tuple)) else (order_by,)
    return FrameSource(frame, payload, time, by)


def dataframe(
    graph: Any,
    sources: Mapping[str, Any],
    *,
    spark: Any = None,
    sink: str | None = None,
    columns: str | None = None,
    partitions: int | None = None,
    **more: Any,
) -> Any:
    """The output of a graph as a DataFrame: the same items, for further processing in Spark.

    The DataFrame is lazy: only sources that Spark does not read itself are read at once. Its columns are
    `position` (in the whole output), `time`, `global_time`, `meta`, `sink` and `payload`, as canonical bytes
    (`drift.restored` reads them); with `columns` the fields of the payload replace `sink` and `payload`.
    A step that raises ends the job that reads the DataFrame; its message is in Spark's exception.

    Args:
        graph, sources, more: as for `drift.run`; an item that is late and would be diverted is an error.
        spark: the session, if no source is a DataFrame and no session is active.
        sink: only the items of this sink.
        columns: names and types of the fields of `sink`'s payloads, as SQL declares them: "word string, n long". A
            payload is a tuple, a dict, an object with such attributes, or the value of the only column.
        partitions: tasks that share the keys, and partitions of the result; None for as many as run at once.
    """
    need("spark", "drift.spark.dataframe")
    from drift.spark.output import output_frame

    return output_frame(graph, sources, spark, sink, columns, {"partitions": partitions, **more})


def stream(
    graph: Any,
    sources: Mapping[str, Any],
    *,
    checkpoint: str | Path,
    output: str | Path | None = None,
    sink: str | None = None,
    columns: str | None = None,
    times: Mapping[str, Any] | None = None,
    partitions: int | None = None,
    changed_code: Literal["refuse", "accept"] = "refuse",
    classes: Sequence[type] = (),
    state: Any = None,
    **more: Any,
) -> Stream:
    """A graph over streaming DataFrames: `start` it, `finish` it, read its `items`.

    Spark reads the streams in micro-batches; each releases the items below minimal time and stores the others for the
    next. The output equals that of `drift.run` over the whole input, whatever the micro-batches, and after any crash.
    An item is late if it lies below the heartbeat of its source after the previous micro-batch; if the sources keep to
    their lateness, no item is.

    Args:
        graph: its sources are in event time.
        sources: for each source a streaming DataFrame of `spark.readStream`, or `drift.spark.source` of it.
        checkpoint: a folder that driver and executors can write to, of this stream alone.
        output: a folder for the items, as Parquet; `checkpoint`/output if None.
        sink, columns: as for `dataframe`.
        times: time policies by source, instead of those of the graph.
        partitions: tasks that share the keys; None for as many as before, and at first as many as run at once.
        changed_code: what to do if functions have changed since the stream last ran: "refuse" to start, or "accept"
            the change, for example after a function that raised was fixed.
        classes: of states, if the modules of the graph's functions do not have them under their names.
        state: the state of a run on another engine, or `drift.Checkpoints(...)` of it: the stream resumes from its last
            checkpoint, or from `from_checkpoint`, and stores its own state in `checkpoint` from then on. The sources
            must give all items at or above the checkpoint; items below it are skipped.
        more: other settings of engine "spark".
    """
    need("spark", "drift.spark.stream")
    from drift.spark.kind import SPARK
    from drift.spark.streaming import Stream
    from drift.state.settings import as_checkpoints
    from drift_graph.graph import Dataflow

    return Stream(
        graph if isinstance(graph, Dataflow) else graph.build(),
        sources,
        checkpoint=str(checkpoint),
        output=str(output) if output is not None else f"{checkpoint}/output",
        sink=sink,
        columns=columns,
        times=times or {},
        changed_code=changed_code,
        classes=tuple(classes),
        state=None if state is None else as_checkpoints(state),
        settings=SPARK.settings_of({"partitions": partitions, **more}),
    )


_called_in(globals(), __all__)
