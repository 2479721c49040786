"""What a watched run reports of its processes: memory, load, and when they worked on batches.

Invariant: a bar of a timeline is never reported twice, and a process makes at most some fifty bars a second, however
many batches it has; a run that is not watched stores none.

Why: batches that follow each other closely share a bar, and a bar is handed over when it is closed.
"""

from __future__ import annotations

import os
import threading
import time
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from operator import add
from typing import NamedTuple

from drift.engines.memory import memory_bytes
from drift.machines.counts import Left

#: The longest bar that is extended by another batch; a pause of this length ends a bar, too.
_BAR_S = 0.02
#: Bars that are stored until somebody takes them; the oldest go first.
_BARS_MAX = 1000


class Bar(NamedTuple):
    """A period of work: one batch, or several that followed each other closely.

    Attributes:
        began_s, ended_s: on the clock `time.monotonic`, which the processes of one machine share.
        busy_s: the part of it spent on the batches.
        items: input of the batches.
        tombstones: that the batches produced.
    """

    began_s: float
    ended_s: float
    busy_s: float
    batches: int
    items: int
    tombstones: int


class Timeline:
    """The bars of one process; added to by one thread, taken by another."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._closed: deque[Bar] = deque(maxlen=_BARS_MAX)
        self._open: Bar | None = None

    def add(self, began_s: float, ended_s: float, items: int, tombstones: int) -> None:
        """Note a processed batch: its items, and the tombstones it produced."""
        busy_s = ended_s - began_s
        with self._lock:
            last = self._open
            if last is not None and began_s - last.ended_s < _BAR_S and ended_s - last.began_s < _BAR_S:
                _, _, before_s, batches, items_before, tombstones_before = last
                self._open = Bar(
                    last.began_s, ended_s, before_s + busy_s, batches + 1,
                    items_before + items, tombstones_before + tombstones,
                )  # fmt: skip
                return
            if last is not None:
                self._closed.append(last)
            self._open = Bar(began_s, ended_s, busy_s, 1, items, tombstones)

    def take(self) -> list[Bar]:
        """The bars that were closed since the last call."""
        with self._lock:
            last = self._open
            if last is not None and time.monotonic() - last.ended_s >= _BAR_S:
                self._closed.append(last)
                self._open = None
            taken = list(self._closed)
            self._closed.clear()
        return taken


class ProcessState(NamedTuple):
    """A process of a run.

    Attributes:
        cpu_s: processor time of its threads since it began.
        at_s: when these were measured, on `time.monotonic`.
    """

    name: str
    pid: int
    memory_bytes: int
    cpu_s: float
    at_s: float


class SourceState(NamedTuple):
    """The progress of a source of a run.

    Attributes:
        items, late_items: items read, and items diverted because they were late, also those for a sink of their own.
        heartbeat: no item below it will come; as bytes that compare with metas.
        silent_since_s: when it last had items, on `time.monotonic`; None if it has ended.
        backlog: what is left to read, and its unit, "{item}" or "By" (bytes); None if the source does not know.
    """

    name: str
    items: int
    late_items: int
    heartbeat: bytes
    silent_since_s: float | None
    backlog: tuple[int, str] | None = None


class CheckpointState(NamedTuple):
    """The checkpoints of a run.

    Attributes:
        written: number of those that this run has written.
        taken_ms: when the last one was taken, in milliseconds since 1970; of an earlier run, if this one has none yet.
        size_bytes, seconds: what the last one written took: states that had changed, and time; None if there is none.
    """

    written: int
    taken_ms: int
    size_bytes: int | None
    seconds: float | None


@dataclass
class Observed:
    """What an engine reports of a watched run.

    Attributes:
        counts: by operator what left it; only of counted operators.
        inside_loops: operators inside fused loops, between which no items travel.
        processes: of the run; the calling process is the first.
        bars: by the name of the process, since the last report.
        segments_s: seconds that each segment but the last, with those before it, took in the calling process.
    """

    counts: Mapping[str, Left] = field(default_factory=dict)
    inside_loops: Sequence[str] = ()
    processes: list[ProcessState] = field(default_factory=list)
    bars: dict[str, list[Bar]] = field(default_factory=dict)
    segments_s: Sequence[float] = ()


def own_state(name: str) -> ProcessState:
    return ProcessState(name, os.getpid(), memory_bytes(), time.process_time(), time.monotonic())


def added(counts: Sequence[Mapping[str, Left]]) -> dict[str, Left]:
    """The sums of the counts of several processes."""
    total: dict[str, Left] = {}
    for each in counts:
        for name, left in each.items():
            before = total.get(name)
            total[name] = left if before is None else Left(*map(add, before, left))
    return total
