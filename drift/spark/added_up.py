"""Rows of DataFrames that go into windows: tasks add them up before they send them.

Invariant: the output is that of the rows; where it could differ, a task raises `NeedsRows`, which ends the job before
anything is released, and the run begins again with the rows.

Why: `drift.columns.added_up` says why windows stay the same. Whether it can be done is decided by the graph and by the
types of columns; values that are not added up exactly (integers beyond 62 bits) are found by the tasks.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np
import pyarrow as pa

from drift.machines.maps import Ports
from drift.machines.plan import Plan
from drift.machines.worker import Router
from drift.spark.batches import READ, BatchRow, RowOutbox, error_row
from drift.spark.frames import Reading
from drift.spark.kernels import Work
from drift.spark.levels import Levels
from drift_graph.errors import DriftBug, DriftError
from drift_graph.graph import Dataflow
from drift_graph.item import Columns
from drift_graph.meta import BEGINNING, varint
from drift_graph.metas import Metas
from drift_graph.moments import Field
from drift_graph.operators import Group, Map
from drift_graph.payloads import NeedsRows, have_fields
from drift_graph.policies import EventTime

_CHUNK_ROWS, _CHUNK_BYTES = 1 << 17, 16 << 20  # that are added up at once


def adds_up(dataflow: Dataflow, reading: Reading, schema: pa.Schema) -> bool:
    """Whether tasks add up the rows of a DataFrame: all of them go into windows, through expressions at most.

    Args:
        schema: of the payloads' columns.
    """
    policy = reading.policy
    if reading.payload != "rows" or not isinstance(policy, EventTime) or policy.tie is not None:
        return False
    if not reading.timed and not (type(policy.time) is Field and policy.time.path in reading.columns):
        return False
    found = _windows_of(dataflow, reading.name)
    opens = None if found is None else Plan(dataflow).opens(found[0])
    if found is None or opens is None:
        return False
    from drift.columns.added_up import can_add  # imports Polars
    from drift.columns.rows import frame_of_batch

    try:
        none = frame_of_batch(reading.columns, pa.RecordBatch.from_pylist([], schema))
    except Exception:  # raised again by a task, with the column
        return False
    return can_add(opens, none, found[1])


def _windows_of(dataflow: Dataflow, name: str) -> tuple[str, list[Any]] | None:
    """The only grouping that a source's items go to, which gets no others, and the functions of the maps before it."""
    functions: list[Any] = []
    while True:
        consumers = dataflow.consumers(name)
        if len(consumers) != 1:
            return None
        (consumer,) = consumers
        origins = [edge.origin for edge in dataflow.edges if edge.target == consumer.name and not edge.feedback]
        if origins != [name]:
            return None
        if isinstance(consumer, Group):
            return consumer.name, functions
        if not isinstance(consumer, Map):
            return None
        functions.append(consumer.function)
        name = consumer.name


def read_parts(work: Work, reading: Reading, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Read rows, add them up, and give rows of batches of parts."""
    levels = work.opened()
    outbox = RowOutbox(levels.last, work.targets)
    adding = _Adding(work, levels, reading)
    read = 0
    try:
        for batch in _together(batches):
            read += batch.num_rows
            adding.add(batch, outbox)
            yield from outbox.ready()
    except DriftBug:
        raise
    except DriftError as error:  # if it is another one, the rows have it too
        outbox.add_row(error_row(levels.last, NeedsRows(str(error))))
    outbox.add_row(BatchRow(levels.last, 0, BEGINNING, READ, read, b""))
    yield from outbox.rest()


def _together(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Rows in greater batches."""
    some: list[pa.RecordBatch] = []
    count = size = 0
    for batch in batches:
        some.append(batch)
        count += batch.num_rows
        size += batch.nbytes
        if count >= _CHUNK_ROWS or size >= _CHUNK_BYTES:
            yield pa.concat_batches(some)
            some, count, size = [], 0, 0
    if count:
        yield pa.concat_batches(some)


class _Adding:
    """Runs the expressions before windows, and adds up what comes to these."""

    def __init__(self, work: Work, levels: Levels, reading: Reading) -> None:
        from drift.columns.added_up import Adding

        found = _windows_of(levels.dataflow, reading.name)
        plan = Plan(levels.dataflow)
        opens = None if found is None else plan.opens(found[0])
        assert found is not None and opens is not None
        self._reading, self._level, self._name = reading, levels.of[found[0]], found[0]
        self._program = plan.programs[reading.name]
        self._router = Router(plan, work.targets)
        self._adding = Adding(opens, varint(reading.rank))

    def add(self, batch: pa.RecordBatch, outbox: RowOutbox) -> None:
        """Send the parts of some rows.

        Raises:
            NeedsRows: they cannot be added up.
        """
        reading = self._reading
        source = reading.payloads(batch)
        if type(source) is list:
            raise NeedsRows("a row may be none of the schema")
        times = reading.times_at_once(batch, source)
        if times is None:
            raise NeedsRows("a row may have no time")
        ports: Ports = {}
        self._program.run(Columns(Metas.numbered(0, len(source), b""), source, None), ports)
        for rows in ports.pop(self._name, ()):
            if not len(rows.metas):
                continue
            if not have_fields(rows.payloads):
                raise NeedsRows("rows are no columns")
            places = np.fromiter(rows.metas.times(), np.int64, len(rows.metas))
            ending = varint(0) + rows.metas[0][8:]
            parts, keys, codes = self._adding.parts(rows.payloads, times[places], source, places, ending)  # type: ignore[arg-type]
            for target, share in self._router.shares(parts, keys, codes):
                outbox.add(self._level, target, self._name, share)
        if any(len(each.metas) for several in ports.values() for each in several):
            raise NeedsRows("a map has failed")
