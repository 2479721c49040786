"""Finds the lineage of an item behind several groupings layer by layer, from the output back.

Invariant: the items are those of one trace of the whole input; of each scan `loops_max` states are shown, where that
trace counts the states of all scans on the way together.

Why: an item that leaves a grouping is made of what came to its bucket. That is computed by the fast machines: run
without the grouping, they give its input, settled and in order. So a layer takes two passes of the machines, one to
find the keys of the wanted items and one for the items with these keys; only these are traced. The items found, inputs
of the grouping, are wanted of the layers before. If a cycle leads through more than a scan's own states, items pass
several keys, and the whole input is traced.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from typing import Any

from drift.auditing.route import behind
from drift.auditing.trace import Input, Node, Tracer, cut_behind, nodes_of
from drift.machines.plan import Plan
from drift.machines.worker import BARRIER, Worker
from drift_barrier.barrier import Barrier
from drift_graph.canonical import forms_of
from drift_graph.functions import pass_interrupts
from drift_graph.graph import Dataflow
from drift_graph.item import Columns, Failure
from drift_graph.meta import BEGINNING, END_OF_TIME, global_time_of, read_varint
from drift_graph.operators import Map, Source
from drift_graph.ranks import reached

#: Finding one item of a record takes as long as reading some thousands.
_FOUND_ONE_BY_ONE_MAX = 20


class Layers:
    """Finds lineages in a graph whose only cycles through groupings are scans.

    Args:
        run_input: of the recorded run.
        loops_max: states of a scan to go back.
    """

    def __init__(self, dataflow: Dataflow, run_input: Input, loops_max: int) -> None:
        self._dataflow = dataflow
        self._run_input = run_input
        self._loops_max = loops_max
        self._plan = Plan(dataflow)
        self._of_input: list[Node] = []  # made of their own input item alone
        self._wanted: dict[str, list[Node]] = {}  # by the last grouping they passed: items whose parents are not known

    def fits(self, names: Collection[str]) -> bool:
        """Whether the groupings among these operators form no cycle but scans, and no item is put at a later time."""
        if any(self._dataflow[name].puts_later for name in names):
            return False
        return not any(
            self._plan.is_cyclic(component) for component in self._plan.components if set(component) & set(names)
        )

    def trace(self, meta: bytes) -> Node | None:
        """The item with a meta, with all it was made of; None if there is no such item."""
        passed = self._dataflow.passed(meta)
        node = Node(passed[-1].operator.name, meta, None, (), global_time_of(meta))
        self._want(node)
        for component in reversed(self._plan.components):
            wanted = self._wanted.pop(component[0], [])
            if wanted and not self._trace_back(component[0], wanted):
                return None
        self._trace_to_input()
        return _as_one(node)

    def _want(self, node: Node) -> None:
        """Note that an item's parents are wanted."""
        passed = [each.operator.name for each in self._dataflow.passed(node.meta)]
        groups = [name for name in passed if name in self._dataflow.groups]
        if groups:
            self._wanted.setdefault(groups[-1], []).append(node)
        else:
            self._of_input.append(node)

    def _trace_to_input(self) -> None:
        """The items that depend on their own input item only."""
        wanted = [node.meta for node in self._of_input]
        only = {each.operator.name for meta in wanted for each in self._dataflow.passed(meta)}
        tracer = Tracer(self._dataflow, only=only, wanted=wanted)
        for source, own, payload in self._inputs_at(set(map(global_time_of, wanted))):
            tracer.push(source, own, payload)
        _run(tracer, max(wanted, default=b""))
        for node in self._of_input:
            _graft(node, tracer.wanted[node.meta])

    def _inputs_at(self, times: set[bytes]) -> Iterator[tuple[str, bytes, Any]]:
        """Input items with these global times: looked up one by one, or, if there are many, in one pass."""
        if len(times) <= _FOUND_ONE_BY_ONE_MAX:
            for own in sorted(times):
                yield self._dataflow.sources[read_varint(own, 8)[0]].name, own, self._run_input.at(own)
            return
        for batch in self._run_input.batches():
            for meta, payload in zip(batch.metas, batch.payloads):
                if meta in times:
                    yield batch.source, meta, payload

    def _trace_back(self, group: str, wanted: list[Node]) -> bool:
        """Find what items were made of, back to the input of the last grouping they passed."""
        came = {self._arrival(group, node.meta) for node in wanted}
        keys = self._keys(group, came)
        only = {group} | self._cycle(group)
        for node in wanted:
            only.update(each.operator.name for each in self._dataflow.passed(node.meta))
        tracer = Tracer(self._dataflow, only=only, loops_max=self._loops_max, wanted=[node.meta for node in wanted])
        last = max(node.meta for node in wanted)
        for metas, payloads in self._arrivals(group, max(came)):
            forms = self._forms(group, payloads)
            for meta, payload, form in zip(metas, payloads, forms):
                if form in keys:
                    origin = self._dataflow.passed(meta)[-1].operator.name
                    tracer.push_to(group, Node(origin, meta, payload, (), global_time_of(meta)))
            if metas:
                _run(tracer, min(metas[-1], last))
        _run(tracer, last)
        for node in wanted:
            found = tracer.wanted[node.meta]
            if found is None:
                return False
            cut_behind(found, self._loops_max)
            _graft(node, found)
        leaves = {id(each): each for node in wanted for each in nodes_of(node) if self._is_open(each)}
        for leaf in leaves.values():
            self._want(leaf)
        return True

    def _is_open(self, node: Node) -> bool:
        return not node.parents and not node.cut and not isinstance(self._dataflow[node.operator], Source)

    def _arrival(self, group: str, meta: bytes) -> bytes:
        """The meta with which an item came to the grouping that it passed last."""
        return next(each.before for each in reversed(self._dataflow.passed(meta)) if each.operator.name == group)

    def _cycle(self, group: str) -> set[str]:
        """The maps of a scan through which its states return."""
        consumers = self._dataflow.consumers
        after = reached([group], lambda name: [each.name for each in consumers(name) if isinstance(each, Map)])
        back = [edge.origin for edge in self._dataflow.edges if edge.feedback and edge.target == group]
        return after.keys() & behind(self._dataflow, back) if back else set()

    def _keys(self, group: str, came: set[bytes]) -> set[bytes]:
        """Canonical bytes of the keys of the items that came with these metas."""
        keys: set[bytes] = set()
        for metas, payloads in self._arrivals(group, max(came)):
            wanted = [payload for meta, payload in zip(metas, payloads) if meta in came]
            keys.update(self._forms(group, wanted))
        return keys

    def _forms(self, group: str, payloads: list[Any]) -> list[bytes]:
        key = self._plan.key_of(group)
        try:
            return forms_of(list(map(key, payloads)))
        except BaseException as raised:
            pass_interrupts(raised)
            return [_form(key, payload) for payload in payloads]

    def _arrivals(self, group: str, last: bytes) -> Iterator[tuple[list[bytes], list[Any]]]:
        """The input of a grouping up to a meta, in order, from the machines."""
        upstream = behind(self._dataflow, [group]) - {group} - self._cycle(group)
        plan = Plan(self._dataflow, only=upstream & self._dataflow.groups.keys())
        worker, buffer = Worker(plan), Barrier()
        heartbeats = dict.fromkeys([source.name for source in self._dataflow.sources], BEGINNING)
        end = last + b"\x00"
        for source, metas, payloads, heartbeat in self._run_input.batches():
            heartbeats[source] = heartbeat
            minimal = min(heartbeats.values())
            if source in upstream:
                for name, columns in worker.turn([(source, Columns(metas, payloads, None))]).get(BARRIER, ()):
                    if name == group:
                        buffer.add(name, columns)
            worker.settle(minimal)
            yield from _settled(buffer, min(minimal, end))
            if minimal >= end:
                return
        yield from _settled(buffer, min(END_OF_TIME, end))


def _settled(buffer: Barrier, below: bytes) -> Iterator[tuple[list[bytes], list[Any]]]:
    settled = buffer.settled(below)
    if settled is not None:
        metas, payloads, _ = settled
        if any(type(payload) is Failure for payload in payloads):
            valid = [index for index, payload in enumerate(payloads) if type(payload) is not Failure]
            metas, payloads = metas.take(valid), [payloads[index] for index in valid]
        yield list(metas), payloads


def _form(key: Any, payload: Any) -> bytes:
    """Canonical bytes of a payload's key; b"", which no key has, if the key function raises.

    An item for which it raises enters no bucket, so it had no part in another. The run ends there, and the tracer shows
    it.
    """
    try:
        return forms_of([key(payload)])[0]
    except BaseException as raised:
        pass_interrupts(raised)
        return b""


def _run(tracer: Tracer, upto: bytes) -> None:
    for _ in tracer.pop(upto + b"\x00"):
        pass


def _graft(node: Node, found: Node | None) -> None:
    """Attach to an item what it was made of."""
    if found is not None:
        for name in ("operator", "payload", "parents", "rounds", "linked", "items", "first", "cut"):
            setattr(node, name, getattr(found, name))


def _as_one(node: Node) -> Node:
    """A lineage with one node for each item, even if it was found several times."""
    found: dict[tuple[str, bytes], Node] = {}
    for each in nodes_of(node):
        each.parents = tuple(found[parent.operator, parent.meta] for parent in each.parents)
        known = found.setdefault((each.operator, each.meta), each)
        if known.cut and not each.cut:
            found[each.operator, each.meta] = each
    return found[node.operator, node.meta]
