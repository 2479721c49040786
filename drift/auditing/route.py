"""The route of one item, read from its meta, and which inputs can have had a part in it.

Invariant: leaving out inputs for which `matters` says no changes nothing in the item and its lineage.

Why: a meta names every operator that its item has passed. If it passed no grouping, its own input made it. If it passed
one, and no other grouping leads there, the items of its bucket made it: those that reach the grouping with the same
key, through maps, which see one item at a time. A scan's states have the key of their items. In all other cases every
input may matter, since the output of a grouping may have any key in the next.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from drift.machines.maps import Ports, Program
from drift.machines.plan import Plan
from drift_barrier.barrier import FAILURES
from drift_graph.canonical import canonical, forms_of
from drift_graph.errors import InputError
from drift_graph.graph import Dataflow, Passed
from drift_graph.item import Columns
from drift_graph.meta import MetaParts, is_later, root_of
from drift_graph.metas import Metas
from drift_graph.ranks import reached


def route_of(dataflow: Dataflow, meta: bytes) -> list[Passed]:
    """The operators that an item has passed, as `Dataflow.passed`.

    Raises:
        InputError: the meta is not from this graph.
    """
    try:
        return dataflow.passed(meta)
    except LookupError:
        raise InputError(
            f"no item of graph {dataflow.name!r} has the meta {meta[:40].hex()} ({MetaParts(meta)}): it names "
            f"operators that the graph does not have; look at it with the graph that made it"
        ) from None


def behind(dataflow: Dataflow, names: Iterable[str]) -> set[str]:
    """The operators of these names, and those from which items can reach them."""
    origins: dict[str, list[str]] = {each.name: [] for each in dataflow.operators}
    for edge in dataflow.edges:
        origins[edge.target].append(edge.origin)
    return set(reached(names, origins.__getitem__))


class Relevant:
    """Which inputs can have had a part in an item.

    Args:
        payload: of the input item it comes from.

    Attributes:
        only: names of the operators that can have had a part.
    """

    def __init__(self, dataflow: Dataflow, meta: bytes, payload: Any) -> None:
        route = route_of(dataflow, meta)
        names = [stop.operator.name for stop in route]
        passed = [name for name in names if name in dataflow.groups]
        self.only = {*names} | behind(dataflow, passed)
        if is_later(meta):  # its meta does not name the operators in front of the one that put it there
            self.only |= behind(dataflow, names[1:2])
            passed = [name for name in dataflow.groups if name in self.only]
        self._own = root_of(meta)
        self._below = meta
        self._group: str | None = None
        self._wanted: set[bytes] | None = None
        groups = [name for name in dataflow.groups if name in self.only]
        if not passed:
            self._wanted = set()
        elif len(groups) == 1 and passed == groups and not any(dataflow[name].asks for name in self.only):
            plan = Plan(dataflow)
            if not plan.is_cyclic((groups[0],)):  # a scan is no cycle of stages: it is one stage
                self._group = groups[0]
                self._key = plan.key_of(groups[0])
                self._programs = {source.name: Program(dataflow, source.name) for source in dataflow.sources}
                ports = self._run(route[0].operator.name, Metas([self._own]), [payload])
                self._wanted = {form for batch in ports.get(self._group, ()) for form in self._forms(batch)}

    @property
    def all(self) -> bool:
        """Whether every input up to the item may matter."""
        return self._wanted is None

    def matters(self, source: str, metas: Metas, payloads: list[Any]) -> list[int]:
        """Indices of the items of a batch that may matter."""
        if self._wanted is None:
            return [index for index, meta in enumerate(metas) if meta < self._below]
        if self._group is None:
            return [index for index, meta in enumerate(metas) if meta == self._own]
        if source not in self.only:
            return []
        ports = self._run(source, metas, payloads)
        times = {
            root_of(meta)
            for batch in ports.get(self._group, ())
            for meta, form in zip(batch.metas, self._forms(batch))
            if form in self._wanted
        }
        for batch in ports.get(FAILURES, ()):
            times.update(map(root_of, batch.metas))
        return [index for index, meta in enumerate(metas) if meta in times and meta < self._below]

    def _run(self, source: str, metas: Metas, payloads: list[Any]) -> Ports:
        ports: Ports = {}
        self._programs[source].run(Columns(metas, payloads, None), ports)
        return ports

    def _forms(self, batch: Columns) -> list[bytes]:
        """Canonical bytes of the keys; None for a key that cannot be computed."""
        try:
            return forms_of(list(map(self._key, batch.payloads)))
        except Exception:  # some payload's key fails: compute them one by one
            return [self._form(payload) for payload in batch.payloads]

    def _form(self, payload: Any) -> bytes:
        try:
            return canonical(self._key(payload))
        except Exception:  # the run fails there, and the tracer shows it
            return next(iter(self._wanted or {b""}))
