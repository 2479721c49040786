"""What a graph and its store cost here: two runs over a part of the input, and one of a graph that is mostly state.

Invariant: the loads of all operators together are the time of a run without durable steps, and with what passes between
segments that of a run in which every step is durable. So what is predicted for none and for all was measured.

Why: where every step is durable each segment is timed as it runs, so no function is wrapped, and batches stay batches.
Steps beside each other are in one segment, whose time they share by their input.
"""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from math import exp, inf
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from drift.planning.model import Load, Model, Prices, Store
from drift.running import made_run
from drift.state.run_checkpoints import known
from drift.state.segments import checkpoints_of
from drift.state.settings import Checkpoints
from drift.streams import Graph
from drift_graph.errors import SettingsError
from drift_graph.graph import Dataflow
from drift_graph.operators import Group
from drift_graph.policies import TimePolicy
from drift_graph.segments import Segment, segments_of

_STORE_KEYS = 20_000
_STORE_CHECKPOINTS = 30
_NEVER_S = 1e9

Clock = Callable[[], float]
#: New sources for each run.
MakeSources = Callable[[], Mapping[str, Any]]


@dataclass(frozen=True)
class Sampling:
    """How a graph is measured.

    Args:
        items: input items of each run; fewer if there are not as many.
        where: a folder beside the one for the state, on the same disk.
        clock: of what is measured: seconds by the clock, or of the processor.
    """

    sources: MakeSources
    times: Mapping[str, TimePolicy]
    items: int
    where: Path | None = None
    clock: Clock = time.perf_counter
    start_s: float = 0.0


def start_of(target: str) -> float:
    """Seconds until a new process has imported drift and the graph."""
    code = "import sys; from drift.load import load_dataflow; import drift; load_dataflow(sys.argv[1])"
    began_s = time.perf_counter()
    ended = subprocess.run([sys.executable, "-c", code, target], capture_output=True, text=True, check=False)
    if ended.returncode:
        raise SettingsError(f"{target} could not be loaded in another process: {ended.stderr.strip()[-500:]}")
    return time.perf_counter() - began_s


def measured_model(
    dataflow: Dataflow, sampling: Sampling, *, rate: float | None, prices: Prices, at_once: bool = False
) -> Model:
    """The model of a graph, from a sample run.

    Args:
        rate: input items in a second; None for as many as one process can.

    Raises:
        SettingsError: the source has too few items.
    """
    bare = Model(dataflow, 1.0, {}, Store())
    with TemporaryDirectory(prefix="drift-plan-", dir=sampling.where) as folder:
        store = _store(Path(folder) / "store", sampling)
        alone = _Ran(bare.marked(()), sampling, None)
        every = _Ran(bare.marked(tuple(bare.exits)), sampling, Path(folder) / "every")
        if not alone.items or alone.seconds <= 0:
            raise SettingsError("the sample had no items; give sources with some thousands")
        store, loads = _loads(alone, every, store)
    rate = rate if rate is not None else 1 / sum(load.seconds for load in loads.values())
    return Model(dataflow, rate, loads, store, prices, at_once)


class _Ran:
    """A run over the sample.

    Attributes:
        items, seconds: of input, until the last was read.
        segments_s: of these, by segment.
    """

    def __init__(self, dataflow: Dataflow, sampling: Sampling, folder: Path | None) -> None:
        self.segments = segments_of(dataflow, durable=folder is not None)
        self.folder = folder
        self._checkpoints = Checkpoints(folder, every_s=_NEVER_S, complete_logs=True) if folder is not None else None
        run = made_run(
            dataflow, sampling.sources(), {"counted": True}, times=sampling.times, state=self._checkpoints, calls="stub"
        )  # fmt: skip
        self.items, self.seconds = 0, 0.0
        cumulated: list[float] = []
        began_s = sampling.clock()
        with run:
            for _ in run.batches():
                done = run.progress.items_in - run.progress.unsettled
                if not self.items and done >= sampling.items:
                    self.items, self.seconds = done, sampling.clock() - began_s
                    cumulated = list(run.observed().segments_s)
                    if folder is None:
                        break
                    run.stop()
            if not self.items:
                self.items, self.seconds = run.progress.items_in, sampling.clock() - began_s
                cumulated = list(run.observed().segments_s)
            self.counts = {name: counts[0] for name, counts in run.observed().counts.items()}
            self.read = max(run.progress.items_in, 1)
        cumulated = [0.0, *cumulated, max([self.seconds, *cumulated])]
        self.segments_s = [after - before for before, after in pairwise(cumulated)]

    def log_bytes(self, number: int) -> int:
        """Of the log behind a segment, counted from 1."""
        assert self.folder is not None
        return sum(path.stat().st_size for path in self.folder.glob(f"**/segment+{number}/*.log"))

    def states(self, number: int) -> tuple[int, int]:
        """States and bytes in the last checkpoint of a segment, counted from 1."""
        assert self._checkpoints is not None
        last = number == len(self.segments)
        checkpoints = self._checkpoints if last else checkpoints_of(self._checkpoints, number)
        size = sum(path.stat().st_size for path in Path(checkpoints.where).glob("snapshots/*"))
        return known(checkpoints)[-1].keys, size


def _loads(alone: _Ran, every: _Ran, store: Store) -> tuple[Store, dict[str, Load]]:
    passed: list[float] = []  # for each input item, behind each segment
    item_bytes: dict[str, float] = {}
    for number, segment in enumerate(every.segments[:-1], 1):
        assert isinstance(segment, Segment)
        leaving = {border.step: every.counts.get(border.step, 0) for border in segment.borders}
        passed.append(sum(leaving.values()) / every.read)
        item_bytes.update(dict.fromkeys(leaving, every.log_bytes(number) / max(sum(leaving.values()), 1)))
    passed.append(0.0)
    alone_s, every_s = alone.seconds / alone.items, every.seconds / every.items
    store = store._replace(passing_s=max(every_s - alone_s, 0.0) / max(sum(passed), 1e-9) if sum(passed) else 0.0)
    own_s: list[float] = []
    for at, seconds in enumerate(every.segments_s):
        around = passed[at] + (passed[at - 1] if at else 0.0)
        own_s.append(max(seconds / every.items - store.passing_s * around / 2, 0.02 * alone_s))
    scale = alone_s / sum(own_s)
    loads: dict[str, Load] = {}
    for number, (segment, seconds) in enumerate(zip(every.segments, own_s), 1):
        keys, size = every.states(number)
        loads |= _of_segment(segment, number == 1, every, seconds * scale, keys, size, item_bytes)
    return store, loads


def _of_segment(
    segment: Dataflow, is_first: bool, every: _Ran, seconds: float, keys: int, size: int, item_bytes: dict[str, float]
) -> dict[str, Load]:
    """The loads of a segment's operators; those of a step are at the first operator of it."""
    arriving = set() if is_first else {source.name for source in segment.sources}
    by_step: dict[str, list[str]] = {}
    for each in segment.operators:
        if each.name not in arriving and each.kind != "border":
            by_step.setdefault(each.step, []).append(each.name)
    taken = dict.fromkeys(by_step, 0.0)
    step_of = {name: step for step, names in by_step.items() for name in names}
    for edge in segment.edges:
        if edge.target in step_of and step_of.get(edge.origin) != step_of[edge.target]:
            taken[step_of[edge.target]] += every.counts.get(edge.origin, 0) / every.read
    for source in segment.sources if is_first else ():
        taken[step_of[source.name]] += every.counts.get(source.name, 0) / every.read
    stateful = [step for step, names in by_step.items() if any(isinstance(segment[name], Group) for name in names)]
    of_all, updates_of_all = sum(taken.values()), sum(taken[step] for step in stateful)
    loads: dict[str, Load] = {}
    for step, names in by_step.items():
        for name in names:
            loads[name] = Load(0.0, every.counts.get(name, 0) / every.read, item_bytes.get(name, 0.0))
        load = loads[names[0]]._replace(seconds=seconds * (taken[step] / of_all if of_all else 1 / len(by_step)))
        if step in stateful and keys and taken[step]:
            share = keys * taken[step] / updates_of_all
            all_keys = keys_in_the_end(taken[step] * every.read, share)
            load = load._replace(updates=taken[step], keys=all_keys, state_bytes=size / keys)
        loads[names[0]] = load
    return loads


def keys_in_the_end(updates: float, found: float) -> float:
    """How many keys there are, of which so many were found by so many updates, each of any key; `inf` if nearly each
    update found a new one.
    """
    if found >= 0.9 * updates:
        return inf
    low, high = found, 100 * found
    for _ in range(60):
        middle = (low + high) / 2
        if middle * (1 - exp(-updates / middle)) < found:
            low = middle
        else:
            high = middle
    return high


def _store(folder: Path, sampling: Sampling) -> Store:
    """What checkpoints cost here: of next to nothing, of many keys, and read again."""
    clock, few, many = sampling.clock, _STORE_CHECKPOINTS, _STORE_KEYS
    made = partial(made_run, _counted().build())
    made({"numbers": range(2 * many)}).finish()  # warm
    began_s = clock()
    made({"numbers": range(few)}, {"batch_items": 1}).finish()
    without_s, began_s = clock() - began_s, clock()
    made({"numbers": range(few)}, {"batch_items": 1}, state=Checkpoints(folder / "few", every_items=1)).finish()
    few_s = clock() - began_s
    checkpoint_s = max(few_s - without_s, 0.0) / known(Checkpoints(folder / "few"))[-1].number
    manifest_bytes = max(path.stat().st_size for path in (folder / "few").glob("cuts/*"))
    began_s = clock()
    made({"numbers": range(2 * many)}).finish()
    half_s = (clock() - began_s) / 2
    state = Checkpoints(folder / "many", every_s=_NEVER_S)
    began_s = clock()
    with made({"numbers": range(2 * many)}, {"batch_items": many // 4}, state=state) as run:
        for _ in run.batches():
            if run.progress.items_in >= many:
                run.stop()
        read = run.progress.items_in
    first_s, began_s = clock() - began_s, clock()
    with made({"numbers": range(2 * many)}, state=state) as run:
        opening_s = clock() - began_s
        run.finish()
    second_s = clock() - began_s - opening_s
    key_s = max(first_s - half_s * read / many - checkpoint_s, 0.0) / many
    loading_s = max(second_s - half_s * (2 * many - read) / many - checkpoint_s - key_s * (2 * many - read), 0.0) / many
    return Store(0.0, checkpoint_s, manifest_bytes, key_s, loading_s, sampling.start_s + opening_s, opening_s)


def _counted() -> Graph:
    graph = Graph("counted")
    counted = graph.source("numbers").scan(lambda n: n % _STORE_KEYS, 0, lambda count, n: (count + 1, count))
    counted.sink("counts")
    return graph
