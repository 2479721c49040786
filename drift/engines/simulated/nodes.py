"""The nodes of a simulated run, which are those of every engine; a process that has died gets new ones.

Invariant: two nodes made for one role are equal; a successor knows nothing but the messages that it was sent.

Why: they are made from values that are constant in a run.
"""

from __future__ import annotations

import pickle
from dataclasses import dataclass

from drift.machines.nodes.acker import AckerNode
from drift.machines.nodes.barrier import BarrierNode
from drift.machines.nodes.links import LinkLogs
from drift.machines.nodes.messages import Message
from drift.machines.nodes.node import ACKER, CALLER, Node
from drift.machines.nodes.pacing import pacing_of
from drift.machines.nodes.rewind_log import parts_decoder
from drift.machines.nodes.snapshots import InMemory
from drift.machines.nodes.worker import WorkerNode
from drift.machines.plan import Plan
from drift.machines.worker import BARRIER
from drift_barrier.digest import Algorithm


@dataclass(frozen=True)
class Nodes:
    """Makes nodes.

    Attributes:
        workers: number of workers.
        digest: hash of the output's digest.
        batch_items: most items of a source at once.
        shelf: storage of snapshots of checkpoints.
        deaths: whether there are link logs, for sending again.
    """

    plan: Plan
    workers: int
    digest: Algorithm
    batch_items: int
    shelf: InMemory
    deaths: bool

    @property
    def roles(self) -> list[int]:
        """All roles but that of the feed node."""
        return [*range(self.workers), BARRIER, ACKER]

    @property
    def names(self) -> dict[int, str]:
        """Names of all roles, including that of the feed node."""
        names = {to: f"worker {to}" for to in range(self.workers)}
        return names | {BARRIER: "barrier", ACKER: "acker", CALLER: "caller"}

    def new(self, to: int) -> Node:
        dataflow = self.plan.dataflow
        if to == BARRIER:
            return BarrierNode(dataflow, self.digest)
        if to == ACKER:
            pacing = pacing_of(self.plan, self.workers, self.batch_items)
            return AckerNode(
                len(dataflow.sources),
                [*range(self.workers), CALLER],
                [CALLER],
                pacing=pacing,
                levels=self.plan.levels.count,
            )
        links = LinkLogs(parts_decoder(opened)) if self.deaths else None
        return WorkerNode(self.plan, to, self.workers, links=links, shelf=self.shelf)


def opened(carried: bytes) -> Message:
    """A message as it was before it was pickled."""
    message: Message = pickle.loads(carried)
    return message
