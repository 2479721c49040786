"""A worker: takes messages, runs stages and programs until nothing is left for itself, says what to send.

Invariant: what a worker sends for a set of messages is the difference between what its keys gave before and give
now; nothing it sends is at a lower meta than the least it was given.

Why: a component of the graph runs once, on everything that has come for it. Only where items come back to it does
it run item by item, least meta first, as the reference does, so that an item finds the states before it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from heapq import heappop, heappush
from itertools import compress, pairwise
from typing import Any

from drift.machines.grouping import keyed
from drift.machines.keys import Partitioner
from drift.machines.maps import Ports
from drift.machines.plan import Plan
from drift_barrier.barrier import FAILURES
from drift_graph.item import Columns, joined, sorted_by_meta
from drift_graph.meta import BEGINNING, ComputedMetas, chosen_metas, varint
from drift_graph.operators import Group

#: A batch of items and where it goes: a source's program, a grouping, a sink, or FAILURES.
Part = tuple[str, Columns]

#: In place of a worker's index: the output barrier.
BARRIER = -1

#: For each byte the translation that makes it 1, and every other 0.
_ones = [bytes(each == byte for each in range(0x100)) for byte in range(0x100)]


class Router:
    """Splits what goes to a grouping by the workers that own its keys.

    Args:
        plan: tells sinks from groupings.
        workers: how many share the keys.
    """

    def __init__(self, plan: Plan, workers: int) -> None:
        self._plan = plan
        self._partitioner = Partitioner(workers)
        inside = {name for component in plan.components for name in component}
        self._groups = {
            name: (Group(name, operator.step, operator.where, plan.key_of(name), operator.window), varint(rank))
            for name, rank in plan.dataflow.ranks.items()
            if name in inside and isinstance(operator := plan.dataflow[name], Group)
        }

    def route(self, ports: Ports) -> dict[int, list[Part]]:
        """Parts by worker, and for the barrier."""
        sends: dict[int, list[Part]] = {}
        groups = [name for name in ports if name in self._groups]
        for name in groups:
            group, rank = self._groups[name]
            for columns in ports[name]:
                if self._partitioner.workers == 1:
                    sends.setdefault(0, []).append((name, columns))
                    continue
                columns, keys = keyed(group, rank, columns, ports)
                for worker, share in _shares(columns, self._partitioner.owners(keys)):
                    sends.setdefault(worker, []).append((name, share))
        for name, batches in ports.items():  # after the groupings: a key that raises adds to FAILURES
            if name not in self._groups:
                sends.setdefault(BARRIER, []).extend((name, columns) for columns in batches)
        return sends


def _gathered(parts: list[Part]) -> list[Part]:
    """One part for each name, but for those whose metas would be listed for it."""
    if len(parts) == 1:
        return parts
    batches: Ports = {}
    apart: list[Part] = []
    for name, columns in parts:
        if isinstance(columns.metas, ComputedMetas):
            apart.append((name, columns))
        else:
            batches.setdefault(name, []).append(columns)
    return apart + [(name, joined(each)) for name, each in batches.items()]


def _shares(columns: Columns, owners: list[int]) -> Iterator[tuple[int, Columns]]:
    """Each worker and what it owns of a batch."""
    metas, payloads, diffs = columns
    workers = sorted(set(owners))
    if len(workers) == 1:
        yield workers[0], columns
        return
    in_bytes = bytes(owners) if max(workers, default=0) <= 0xFF else None
    for worker in workers:
        chosen = in_bytes.translate(_ones[worker]) if in_bytes is not None else bytes(map(worker.__eq__, owners))
        share = Columns(
            chosen_metas(metas, chosen),
            list(compress(payloads, chosen)),
            None if diffs is None else list(compress(diffs, chosen)),
        )
        yield worker, share


def _in_order(batches: list[Columns]) -> list[Columns]:
    """The batches themselves, where their metas are computed and they follow each other; else one, sorted by meta."""
    if len(batches) > 1 and all(isinstance(columns.metas, ComputedMetas) for columns in batches):
        ordered = sorted(batches, key=lambda columns: columns.metas[0])
        if all(before.metas[-1] < after.metas[0] for before, after in pairwise(ordered)):
            return ordered
    return [sorted_by_meta(joined(batches))]


class Worker:
    """The machine of one worker.

    Args:
        plan: what to run; shared, never changed.
        index: which of the workers this is.
        workers: how many there are.
    """

    def __init__(self, plan: Plan, index: int = 0, workers: int = 1) -> None:
        self._plan = plan
        self._index = index
        self._router = Router(plan, workers)
        self._stages = plan.stages()
        self._cyclic = {component: plan.is_cyclic(component) for component in plan.components}
        self.tombstones = 0

    def handle(self, parts: Sequence[Part]) -> dict[int, list[Part]]:
        """Process batches for this worker; what to send, by worker and for the barrier."""
        waiting: Ports = {}
        sends: dict[int, list[Part]] = {}
        ports: Ports = {}
        for name, columns in parts:
            if name in self._stages:
                waiting.setdefault(name, []).append(columns)
            else:
                self._run_program(name, columns, ports)
        self._send(ports, waiting, sends)
        for component in self._plan.components:
            if self._cyclic[component]:
                self._run_cycle(component, waiting, sends)
            elif component[0] in waiting:
                self._run_stage(component[0], waiting.pop(component[0]), waiting, sends)
        return {receiver: _gathered(parts) for receiver, parts in sends.items()}

    def pass_maps(self, parts: Sequence[Part]) -> dict[int, list[Part]]:
        """Only run sources' batches through their maps, and find whose the items for groupings are.

        Returns what to send, this worker's own share included.

        An engine that calls this first and `handle` later can let older items of other workers go before.
        """
        ports: Ports = {}
        for name, columns in parts:
            if name in self._stages:
                ports.setdefault(name, []).append(columns)
            else:
                self._run_program(name, columns, ports)
        return {receiver: _gathered(each) for receiver, each in self._router.route(ports).items()}

    def _run_program(self, source: str, columns: Columns, ports: Ports) -> None:
        if source == FAILURES:  # what could not be sent here goes on to the barrier
            ports.setdefault(FAILURES, []).append(columns)
        else:
            self._plan.programs[source].run(columns, ports)

    def settle(self, minimal_time: bytes, heartbeat: bytes = BEGINNING) -> dict[int, list[Part]]:
        """Nothing below minimal time is in flight: forget what only a change there would need.

        Args:
            heartbeat: the least of all sources: no item of the input comes below it any more.

        Returns:
            What to send for it, as `handle` does.
        """
        for stage in self._stages.values():
            stage.settle(minimal_time)
        return {}

    def remembered(self) -> list[tuple[str, list[tuple[Any, Any]]]]:
        """For each grouping, by key, what items above all that came so far need, once everything is settled."""
        return [(name, stage.remembered()) for name, stage in self._stages.items()]

    def recall(self, name: str, remembered: Iterable[tuple[Any, Any]]) -> None:
        """Go on, before any item, where a worker ended that remembered this of a grouping; it may come in pieces."""
        self._stages[name].recall(remembered)

    @property
    def held(self) -> int:
        """Items and tombstones kept for changes that may still come."""
        return sum(stage.held for stage in self._stages.values())

    def _run_stage(self, name: str, batches: list[Columns], waiting: Ports, sends: dict[int, list[Part]]) -> None:
        ports: Ports = {}
        stage = self._stages[name]
        for columns in _in_order(batches):
            out = stage.process(columns, ports)
            if out.diffs is not None:
                self.tombstones += out.diffs.count(-1)
            self._plan.programs[name].run(out, ports, stage.suffix)
        self._send(ports, waiting, sends)

    def _run_cycle(self, component: tuple[str, ...], waiting: Ports, sends: dict[int, list[Part]]) -> None:
        """Run the stages of a cycle meta by meta, the least first, until nothing comes back to this worker.

        What comes to a stage with one meta, a tombstone and the item that replaces it, is one batch: one after the
        other, each would change the windows behind it, and so twice as many changes would go round each time.
        """
        heap: list[tuple[bytes, str, int, Any, int]] = []
        pushed = 0
        while True:
            for name in component:
                for columns in waiting.pop(name, ()):
                    ones = columns.diffs or [1] * len(columns.metas)
                    for meta, payload, diff in zip(columns.metas, columns.payloads, ones):
                        pushed += 1
                        heappush(heap, (meta, name, pushed, payload, diff))
            if not heap:
                return
            least, name = heap[0][:2]
            metas, payloads, diffs = [], [], []
            while heap and heap[0][0] == least and heap[0][1] == name:
                meta, _, _, payload, diff = heappop(heap)
                metas.append(meta)
                payloads.append(payload)
                diffs.append(diff)
            self._run_stage(name, [Columns(metas, payloads, diffs if -1 in diffs else None)], waiting, sends)

    def _send(self, ports: Ports, waiting: Ports, sends: dict[int, list[Part]]) -> None:
        """Sort out what is for this worker itself, and add the rest to what it sends."""
        if not ports:
            return
        for worker, parts in self._router.route(ports).items():
            if worker != self._index:
                sends.setdefault(worker, []).extend(parts)
                continue
            for name, columns in parts:
                waiting.setdefault(name, []).append(columns)
