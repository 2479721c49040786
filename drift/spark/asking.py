"""Calls in tasks of Spark: between two segments, the tasks of the output's ranges ask about the items they release.

Invariant: a task logs answers before it uses them, where other attempts of it find them; so an answer is asked for
again only if the task died between the answer and its log, or another attempt is asking for it now. All attempts use
one answer.

Why: the items of a range are the same in each attempt, since they are settled and in order. Attempts of one range come
one after the other, unless Spark runs tasks speculatively: then both ask, with the same keys, and the first answer in
the log counts (`answer_log.py`).
"""

from __future__ import annotations

import select
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa

from drift.calling.asker import Loop
from drift.engines.shipping import rebuilt
from drift.segments.answering import Answering
from drift.segments.log import Passed
from drift.spark.answer_log import RangeLog, answers_of_range
from drift.spark.batches import READ, BatchRow, error_row, record_batch
from drift.spark.kernels import OutputRange, Work, through_maps
from drift_graph.graph import Dataflow
from drift_graph.item import Columns
from drift_graph.meta import BEGINNING, END_OF_TIME, global_time_of
from drift_graph.metas import Metas
from drift_graph.segments import Segment


@dataclass(frozen=True)
class Asking:
    """What the tasks between two segments get.

    Attributes:
        calls: pickled, by border.
        folder: for the answers of this segment, which every task can reach.
        in_flight_max: most items of a task that wait.
        next: the work of the tasks of the next segment.
    """

    calls: bytes
    folder: str
    in_flight_max: int
    next: Work


def run_asking(asking: Asking, work: Work, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Release a range of a segment's output, ask about it, and run the maps of the next segment."""
    output = OutputRange(work, batches)
    segment = work.opened().dataflow
    assert isinstance(segment, Segment)
    yield from through_maps(asking.next, _asked(asking, work, output, segment))
    last = asking.next.opened().last
    rows = [BatchRow(last, 0, BEGINNING, READ, output.items_read, b"")] if output.items_read else []
    if output.error is not None:
        rows.append(error_row(last, output.error))  # type: ignore[arg-type]
    if rows:
        yield record_batch(rows)


def _asked(asking: Asking, work: Work, output: OutputRange, segment: Segment) -> Iterator[tuple[str, Columns, bytes]]:
    """For each source of the next segment its items, and a time below which none follows."""
    released = output.released()
    first = next(released, None)
    if first is None:
        return
    calls = rebuilt(asking.calls, work.around, "a task of Spark", same_machine=False)
    loop, log = Loop(), RangeLog(Path(asking.folder) / f"range-{output.target:05}")
    try:
        answering = Answering(segment.name, calls, loop, asking.in_flight_max, log)
        batch, has_ended = first, False
        while not (has_ended and answering.is_empty):
            while not has_ended and answering.has_room:
                metas = list(batch.metas)
                if metas:
                    answering.put(Passed(metas, list(batch.payloads), batch.sinks, global_time_of(metas[-1])))
                following = next(released, None)
                if following is None:
                    has_ended = True
                    answering.put(Passed([], [], "", END_OF_TIME))
                    answering.complete()
                else:
                    batch = following
            passed = answering.take()
            if passed is not None:
                yield from _by_source(passed, segment)
            elif not answering.is_empty:
                select.select(answering.filenos(), (), (), 1.0)
    finally:
        loop.close()
        log.close()


def _by_source(passed: Passed, segment: Segment) -> Iterator[tuple[str, Columns, bytes]]:
    metas, payloads, borders, below = passed
    if not metas:
        return
    by_source: dict[str, tuple[list[bytes], list[Any]]] = {}
    for at, (meta, payload) in enumerate(zip(metas, payloads)):
        border = borders if isinstance(borders, str) else borders[at]
        its_metas, its_payloads = by_source.setdefault(segment.source_of[border], ([], []))
        its_metas.append(meta)
        its_payloads.append(payload)
    left = len(by_source)
    for source, (its_metas, its_payloads) in by_source.items():
        left -= 1
        yield source, Columns(Metas(its_metas), its_payloads, None), global_time_of(metas[0]) if left else below


def answers_in(folder: Path, dataflow: Dataflow) -> Iterator[tuple[str, Sequence[bytes], Sequence[Any], Sequence[Any]]]:
    """What tasks have logged: for each call metas, nothing in place of questions, and answers or failures."""
    by_call: dict[str, list[tuple[bytes, Any]]] = {}
    for of_range in sorted(folder.glob("*/*")):
        for meta, answer in answers_of_range(of_range):
            by_call.setdefault(dataflow.passed(meta)[-1].operator.name, []).append((meta, answer))
    for call, rows in by_call.items():
        metas, answers = zip(*sorted(rows, key=lambda row: row[0]))
        yield call, metas, [None] * len(metas), answers
