"""The merging processes of a run: which merges they get, and that a large one holds up no small one."""

from __future__ import annotations

import pickle
from types import SimpleNamespace
from typing import Any, cast

from drift.engines.zeromq.child import EngineChild
from drift.engines.zeromq.control import Merged
from drift.engines.zeromq.merging import _LARGE_BYTES, Mergers
from drift.machines.nodes.checkpointing import CheckpointPace
from drift.machines.nodes.rewind_log import RewindLog
from drift.machines.nodes.snapshots import InMemory, SnapshotName

LARGE = _LARGE_BYTES // 4


class Process:
    """A process that does nothing by itself."""

    def __init__(self, name: str) -> None:
        self.name, self.numbers = name, [name]
        self.orders: list[list[bytes]] = []
        self.merged: list[Merged] = []
        self.process = SimpleNamespace(has_ended=False, how_it_ended=lambda: "was killed")

    def order(self, body: bytes) -> None:
        self.orders.append(pickle.loads(body))

    def listen(self) -> None: ...

    def failure(self) -> None:
        return None


class Run:
    """A log of snapshots of one worker, and the processes that merge them."""

    def __init__(self) -> None:
        def never(carried: bytes) -> Any:
            raise AssertionError(carried)

        self.log = RewindLog(never, 1, InMemory(()), CheckpointPace(None))
        self.processes: dict[str, Process] = {}
        self.mergers = Mergers(self._start, lambda child: None)
        self._taken = 0

    def _start(self, name: str) -> EngineChild:
        self.processes[name] = Process(name)
        return cast(EngineChild, self.processes[name])

    def take(self, size: int) -> None:
        """A checkpoint is taken."""
        self._taken += 1
        self.log.since = number = self._taken.to_bytes(2, "big")
        self.log._snapshots[0].add([SnapshotName(number, number, size)])
        self.mergers.order(self.log)

    def finish(self, name: str) -> list[bytes]:
        """A process has merged what it was ordered to; the names."""
        process = self.processes[name]
        (names,) = process.orders
        process.orders.clear()
        size = sum(each.size for each in self.log._snapshots[0].all() if each.name in names)
        process.merged = [Merged(b"+".join(names), size)]
        self.mergers.listen(self.log, [name])
        self.mergers.order(self.log)
        return names

    @property
    def unmerged(self) -> int:
        return sum(not each.merged for each in self.log._snapshots[0].all())


def test_small_snapshots_are_merged_while_large_ones_are() -> None:
    run = Run()
    for _ in range(8):
        run.take(LARGE)
        if "merger" in run.processes and run.processes["merger"].orders:
            run.finish("merger")
    large = run.processes["merger of large snapshots"].orders[0]
    for _ in range(100):
        run.take(100_000)
        assert not set(run.processes["merger"].orders[0]) & set(large)
        run.finish("merger")
        assert run.unmerged == 0
    assert run.processes["merger of large snapshots"].orders == [large]
    assert run.finish("merger of large snapshots") == large


def test_one_process_suffices_for_small_snapshots() -> None:
    run = Run()
    for _ in range(50):
        run.take(1000)
        while "merger" in run.processes and run.processes["merger"].orders:
            run.finish("merger")
    assert list(run.processes) == ["merger"]
    assert not run.mergers.is_behind(run.log)


def test_a_merge_of_a_process_that_died_is_done_again() -> None:
    run = Run()
    run.take(100_000)
    dead = run.processes["merger"]
    dead.process.has_ended = True
    run.mergers.listen(run.log, ["merger"])
    run.mergers.order(run.log)
    assert run.processes["merger"] is not dead
    assert run.processes["merger"].orders == dead.orders
