"""Assigns the groupings of a graph to levels, which Spark runs one after the other, and routes items between them.

Invariant: a grouping is at a higher level than every grouping whose items it gets, except those on its own cycle.

Why: a level is the length of the longest path from a source, counted in strongly connected components of the graph;
between two levels is one shuffle. The groupings of a level do not feed each other, so they share that shuffle.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from drift.machines.plan import Plan
from drift.machines.worker import BARRIER, Part, Router, Worker, timed_steps
from drift.spark.batches import BatchRow, RowOutbox
from drift.spark.states import StateRows
from drift.state.snapshots import Forms
from drift_graph.graph import Dataflow
from drift_graph.item import Columns, joined, sorted_by_meta
from drift_graph.meta import BEGINNING, END_OF_TIME


@dataclass(frozen=True)
class StateWriting:
    """Which states a task writes.

    Attributes:
        number: of the micro-batch; of several versions of a state the one with the highest number counts.
        everything: write the states of all keys, not only the changed ones; and all pending later items, not only
            new ones.
        heartbeat: of all sources after the previous micro-batch: later items below it have been processed.
    """

    number: int
    everything: bool
    heartbeat: bytes = BEGINNING


class Levels:
    """The levels of a dataflow: 0 for the sources, then those of groupings, then `last`, where items are released.

    Attributes:
        of: level of each source, grouping and sink.
        alone: groupings on a cycle that changes keys, which run in one task.
        puts_later: whether maps put items at later times.

    Args:
        classes: of states, if the modules of the graph's functions do not have them under their names.
    """

    def __init__(self, dataflow: Dataflow, *, fused: bool = True, classes: tuple[type, ...] = ()) -> None:
        self.dataflow = dataflow
        self.classes = classes
        self.fused = fused
        plan = Plan(dataflow, fused=fused)
        self.puts_later = plan.puts_later
        self.of: dict[str, int] = {source.name: 0 for source in dataflow.sources}
        self.alone: dict[str, None] = {}
        feeds: dict[str, int] = {}  # least level of each grouping, by what feeds it
        for source in dataflow.sources:
            for target in plan.programs[source.name].targets:
                feeds[target] = 1
        for loop in plan.loops:
            level = max(feeds.get(name, 1) for name in loop)
            for name in loop:
                self.of[name] = level
                if plan.is_loop(loop):
                    self.alone[name] = None
                for target in plan.programs[name].targets:
                    if target not in loop:
                        feeds[target] = max(feeds.get(target, 1), level + 1)
        self.last = max(self.of.values(), default=0) + 1

    def forms(self) -> Forms:
        """The forms in which states are written and read."""
        return Forms(self.dataflow, timed_steps(Plan(self.dataflow, fused=self.fused)), self.classes)

    def groups(self, level: int) -> list[str]:
        return [name for name, at in self.of.items() if at == level and name in self.dataflow.groups]


class LevelWorker:
    """Runs the groupings of one level for the keys of one task, or the maps after the sources.

    Args:
        bounds: metas that cut the output into ranges, one range for each task of the last level.
        due_below: timers at or above it are still pending when all items have been processed.
        writing: if set, later items at or above `due_below` are not sent on but stored, for `waiting`.
        begin: no item lies below it: recalled states are as of it.

    Attributes:
        cuts_at_times: a part must hold all items that an input item causes. On a cycle that changes keys, items that
            it causes on one path may come after items that it causes on another, so a cut between them would break the
            order.
    """

    def __init__(
        self,
        levels: Levels,
        level: int,
        targets: int,
        bounds: Sequence[bytes],
        due_below: bytes = END_OF_TIME,
        writing: StateWriting | None = None,
        begin: bytes = BEGINNING,
    ) -> None:
        groups = levels.groups(level)
        self._level = level
        self._levels = levels
        self._bounds = bounds
        self._plan = Plan(levels.dataflow, fused=levels.fused)
        self._router = Router(self._plan, targets)
        self._worker = Worker(Plan(levels.dataflow, fused=levels.fused, only=groups))
        self._begin = self._settled = begin if writing is None else writing.heartbeat
        self._due_below = due_below
        self._states = StateRows(levels.last, level, levels.forms)
        if writing is not None:
            self._worker.track()
        self._writing = writing
        self._waiting: dict[tuple[int, int, str], list[Columns]] = {}
        self.cuts_at_times = any(name in levels.alone for name in groups)

    def handle(self, parts: Sequence[Part], outbox: RowOutbox, settled: bytes) -> None:
        """Process parts that are complete below `settled` and lie above everything processed before."""
        worker = self._worker
        self._states.restore(worker, self._begin)
        complete_below = min(settled, self._due_below)
        self.leave(worker.turn(parts, self._settled, complete_below).get(BARRIER, ()), outbox)
        while (least := worker.least_later) is not None and least < complete_below:
            # Nothing below it is in flight: its round is complete.
            self.leave(worker.turn((), least, complete_below).get(BARRIER, ()), outbox)
        self._settled = settled
        worker.settle(settled)

    def recall(self, row: BatchRow) -> None:
        """Restore a row of STATE; called before any item."""
        self._states.add(row)

    def state_rows(self, target: int, writing: StateWriting) -> Iterator[BatchRow]:
        """The states that a later worker for the same keys needs; called once everything is settled.

        Raises:
            PayloadError: a state cannot be stored.
        """
        changed = self._worker.changed(self._due_below)
        return self._states.rows(target, writing.number, changed, everything=writing.everything)

    def recall_later(self, row: BatchRow) -> tuple[str, Columns]:
        """The port of a row of LATER, and those of its items that are due in this micro-batch."""
        assert self._writing is not None
        name, columns = self._states.later_of(row)
        begin = bisect_left(columns.metas, self._writing.heartbeat)
        end = bisect_left(columns.metas, self._due_below, begin)
        if end < len(columns.metas) and self._writing.everything:
            self._wait(row.level, row.target, name, columns.slice(end, len(columns.metas)))
        return name, columns.slice(begin, end)

    def move_later(self, row: BatchRow, outbox: RowOutbox) -> None:
        """Keep the items of a row of LATER, which another number of tasks wrote, for `waiting`; older ones are sent."""
        self.leave([self._states.later_of(row)], outbox)

    def release_later(self, row: BatchRow, outbox: RowOutbox) -> None:
        """Send pending later items for sinks to the ranges of this micro-batch."""
        self._release(*self.recall_later(row), outbox)

    def waiting(self, target: int) -> Iterator[BatchRow]:
        """Later items that are due after this micro-batch; called when all items have been processed.

        Args:
            target: the task.
        """
        if self._writing is None:
            return
        for name, columns in self._worker.waiting():
            self._wait(self._level, target, name, columns)
        for (level, of_task, port), several in self._waiting.items():
            yield from self._states.later_rows(level, of_task, port, sorted_by_meta(joined(several)))

    def _wait(self, level: int, target: int, name: str, columns: Columns) -> None:
        self._waiting.setdefault((level, target, name), []).append(columns)

    def _due(self, level: int, target: int, name: str, columns: Columns) -> Columns:
        """The items that are due in this micro-batch; the others are stored for `waiting`."""
        if self._writing is None or not self._levels.puts_later:
            return columns
        columns = sorted_by_meta(columns)
        end = bisect_left(columns.metas, self._due_below)
        if end == len(columns.metas):
            return columns
        self._wait(level, target, name, columns.slice(end, len(columns.metas)))
        return columns.slice(0, end)

    def leave(self, leaving: Iterable[Part], outbox: RowOutbox) -> None:
        """Send on the items that go to no grouping of this level."""
        keyed: dict[str, list[Columns]] = {}
        for name, columns in leaving:
            if name not in self._levels.of:
                self._release(name, columns, outbox)
            elif name in self._levels.alone:
                self._send(self._levels.of[name], 0, name, columns, outbox)
            else:
                keyed.setdefault(name, []).append(columns)
        for target, sent in self._router.route(keyed).items():
            for name, columns in sent:
                if target == BARRIER:  # sinks, and failures of key functions
                    self._release(name, columns, outbox)
                else:
                    self._send(self._levels.of[name], target, name, columns, outbox)

    def _send(self, level: int, target: int, name: str, columns: Columns, outbox: RowOutbox) -> None:
        outbox.add(level, target, name, self._due(level, target, name, columns))

    def _release(self, port: str, columns: Columns, outbox: RowOutbox) -> None:
        columns = self._due(self._levels.last, 0, port, columns)
        for target, part in _in_ranges(columns, self._bounds):
            outbox.add(self._levels.last, target, port, part)


class RangeSender:
    """Replaces a `LevelWorker`: sends items as they were read to the ranges of their metas.

    Args:
        bounds: metas that cut these ranges.
    """

    def __init__(self, bounds: Sequence[bytes]) -> None:
        self._bounds = bounds

    def waiting(self, target: int) -> Iterator[BatchRow]:
        """Nothing is at a later time."""
        return iter(())

    def handle(self, parts: Sequence[Part], outbox: RowOutbox, settled: bytes) -> None:
        for name, columns in parts:
            for target, part in _in_ranges(columns, self._bounds):
                outbox.add(0, target, name, part)


def _in_ranges(columns: Columns, bounds: Sequence[bytes]) -> Iterator[tuple[int, Columns]]:
    """Items split by range: (number of the range, its items), in the order of metas."""
    columns = sorted_by_meta(columns)
    metas = columns.metas
    start = 0
    target = bisect_right(bounds, metas[0]) if metas else 0
    while start < len(metas):
        end = bisect_left(metas, bounds[target], start) if target < len(bounds) else len(metas)
        yield target, columns.slice(start, end)
        start, target = end, target + 1
