"""Turns a checkpoint of another engine into rows: states for the tasks of their keys, and later items for their
targets.

Invariant: with these rows, and the items at or above the checkpoint, tasks compute the same as in an uninterrupted run.

Why: a checkpoint holds states and later items by key, so they fit any number of tasks. A later item and its tombstone
cancel out beforehand, since tasks on Spark take nothing back.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice

from drift.machines.plan import Plan
from drift.machines.sent import LaterSent, as_ports
from drift.machines.worker import Router
from drift.spark.batches import COUNT, BatchRow, RowOutbox, all_rows
from drift.spark.kernels import Work
from drift.spark.levels import Levels, LevelWorker, StateWriting
from drift.spark.states import by_owner, state_row
from drift.state.run_checkpoints import Begin
from drift.state.snapshots import StoredSnapshot
from drift_graph.canonical import form_of
from drift_graph.meta import BEGINNING, END_OF_TIME

_KEYS = 4096  # of one task, about, in a row


def rows_of(begin: Begin, levels: Levels, work: Work) -> Iterator[BatchRow]:
    """The rows of a bounded run: for each level, and a count of the items released before."""
    for row in _states(begin, levels, work.targets):
        yield row._replace(level=row.items)
    yield from _later(begin, levels, work, None, END_OF_TIME)
    for target in range(work.targets):
        yield BatchRow(levels.last, target, BEGINNING, COUNT, begin.checkpoint.output.position, b"")


def stored_rows_of(begin: Begin, levels: Levels, work: Work) -> Iterator[BatchRow]:
    """Rows as a micro-batch of a stream would have stored them."""
    yield from _states(begin, levels, work.targets)
    yield from _later(begin, levels, work, StateWriting(-1, everything=True), begin.checkpoint.at)


def _states(begin: Begin, levels: Levels, targets: int) -> Iterator[BatchRow]:
    router = Router(Plan(levels.dataflow, fused=levels.fused), targets)
    for step in begin.checkpoint.live_steps:
        entries, timed = begin.states.all_of(step)
        while some := list(islice(entries, _KEYS * targets)):
            for target, states in by_owner(step, some, timed, router, levels.alone):
                yield state_row(levels.last, levels.of[step], target, StoredSnapshot({step: states}, ()))


def _later(
    begin: Begin, levels: Levels, work: Work, writing: StateWriting | None, due_below: bytes
) -> Iterator[BatchRow]:
    worker = LevelWorker(levels, 0, work.targets, work.bounds, due_below, writing)
    outbox = RowOutbox(levels.last, work.targets)
    ports = as_ports(_net(begin.states.at_once(begin.checkpoint).later))
    worker.leave([(port, columns) for port, batches in ports.items() for columns in batches], outbox)
    yield from worker.waiting(0)
    yield from all_rows(outbox.rest())


def _net(later: list[LaterSent]) -> list[LaterSent]:
    """The later items that were not taken back."""
    found: dict[tuple[str, bytes, bytes], list[LaterSent]] = {}
    for each in later:
        found.setdefault((each.target, each.meta, form_of(each.payload)), []).append(each)
    return [several[0]._replace(diff=1) for several in found.values() if sum(each.diff for each in several) == 1]
