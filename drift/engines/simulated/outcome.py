"""The outcome of a simulated run.

Invariant: `handed` is all that a replay needs, and `released` is all released output, as it was released.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, NamedTuple

from drift.engines.simulated.schedule import Scheduled
from drift_barrier.barrier import Released
from drift_graph.lateness import Late
from drift_graph.times import Arrived


class Handed(NamedTuple):
    """A batch that a source passed to the dataflow, with its metas."""

    name: str
    arrived: Arrived


@dataclass
class SimulatedOutput:
    """The released output of a simulated run, and the error that ended it, if any."""

    released: list[Released]
    digest: str
    error: Exception | None
    late: list[Late]
    tombstones: int
    handed: list[Handed] = field(default_factory=list)
    log: list[Scheduled] = field(default_factory=list)

    def items(self) -> list[tuple[int, bytes, Any, str]]:
        """(position, meta, payload, sink) of each item."""
        rows: list[tuple[int, bytes, Any, str]] = []
        for position, metas, payloads, sinks, _ in self.released:
            names = [sinks] * len(metas) if isinstance(sinks, str) else sinks
            rows += zip(range(position, position + len(metas)), metas, payloads, names)
        return rows
