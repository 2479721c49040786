"""The nodes of a simulated run: those that every engine drives, made anew for a process that has died.

Invariant: two nodes made for one role differ in nothing; what the second knows it has been sent.

Why: they are made of what does not change while a run goes on.
"""

from __future__ import annotations

import pickle
from dataclasses import dataclass

from drift.machines.nodes.acker import AckerNode
from drift.machines.nodes.barrier import BarrierNode
from drift.machines.nodes.keeping import parts_by
from drift.machines.nodes.links import LinkLogs
from drift.machines.nodes.messages import Message
from drift.machines.nodes.node import ACKER, CALLER, Node
from drift.machines.nodes.pacing import pacing_of
from drift.machines.nodes.pieces import InMemory
from drift.machines.nodes.worker import WorkerNode
from drift.machines.plan import Plan
from drift.machines.worker import BARRIER
from drift_barrier.digest import Algorithm


@dataclass(frozen=True)
class Nodes:
    """Makes them.

    Attributes:
        plan: what the workers run.
        workers: how many there are.
        digest: of the output.
        batch_items: what a source gives at once, at most.
        shelf: where pieces of cuts are.
        deaths: whether links keep what may have to be sent again.
    """

    plan: Plan
    workers: int
    digest: Algorithm
    batch_items: int
    shelf: InMemory
    deaths: bool

    @property
    def roles(self) -> list[int]:
        """All but who feeds."""
        return [*range(self.workers), BARRIER, ACKER]

    @property
    def names(self) -> dict[int, str]:
        """What the roles are called, that of who feeds too."""
        names = {to: f"worker {to}" for to in range(self.workers)}
        return names | {BARRIER: "barrier", ACKER: "acker", CALLER: "caller"}

    def new(self, to: int) -> Node:
        """One for a role."""
        dataflow = self.plan.dataflow
        if to == BARRIER:
            return BarrierNode(dataflow, self.digest)
        if to == ACKER:
            pacing = pacing_of(self.plan, self.workers, self.batch_items)
            return AckerNode(len(dataflow.sources), [*range(self.workers), CALLER], [CALLER], pacing=pacing)
        links = LinkLogs(parts_by(opened)) if self.deaths else None
        return WorkerNode(self.plan, to, self.workers, links=links, shelf=self.shelf)


def opened(carried: bytes) -> Message:
    """A message as it was before it was pickled."""
    message: Message = pickle.loads(carried)
    return message
