"""Segments: a graph cut after its durable steps and its calls into parts that run one after the other.

Invariant: running the segments in turn, each on the output of those before it, gives the output of the graph, metas
included. What is to be asked about leaves its segment at a border, with the meta that the answer has: so only settled
items are asked about.

Why: a segment consists of the operators with the same maximal number of durable steps and calls before them. So no edge
leads back to an earlier segment, and a cycle lies within one. An item for later segments leaves at a *border*, which
appends nothing to its meta and is a source of the next segment; later segments pass it on until one takes it. Failed
calls travel likewise. Ranks are those of the whole graph. All sinks are in the last segment, which releases in the
order of metas.
"""

from __future__ import annotations

from collections.abc import Container, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

from drift_graph.graph import Dataflow, Passed
from drift_graph.item import FAILURES
from drift_graph.operators import Border, Edge, Map, Operator, Sink, Source
from drift_graph.policies import ArrivalTime

#: The source of calls that failed in earlier segments.
_FAILED = "failures before"


@dataclass(frozen=True)
class Segment(Dataflow):
    """A part of a graph, run as a graph.

    Attributes:
        full_graph: the graph that it is a part of, which gives its operators their ranks.
    """

    full_graph: Dataflow

    def __getstate__(self) -> dict[str, object]:
        full = self.full_graph  # other processes do not ask, so what is asked need not be sent
        without = replace(full, operators=tuple(map(_as_question, full.operators)))
        return {**super().__getstate__(), "full_graph": without}

    @cached_property
    def ranks(self) -> dict[str, int]:
        """Ranks of the whole graph; borders rank above all."""
        borders, ranks = [FAILURES, *(border.name for border in self.borders)], self.full_graph.ranks
        above = 1 + max(ranks.values())  # those of a graph that has changed are no longer one after the other
        return {**ranks, **{name: above + at for at, name in enumerate(borders)}}

    @cached_property
    def borders(self) -> tuple[Border, ...]:
        """The borders by which items leave for later segments; each bears the step of the operator that sends to it."""
        return tuple(each for each in self.operators if isinstance(each, Border) and each.name != FAILURES)

    @cached_property
    def calls(self) -> dict[str, Map]:
        """For each border at which items leave to be asked about, the call."""
        own = {border.name: self[border.step] for border in self.borders}
        calls = {name: self.full_graph[each.name] for name, each in own.items() if not isinstance(each, Source)}
        return {name: call for name, call in calls.items() if isinstance(call, Map) and call.asks}

    @cached_property
    def source_of(self) -> dict[str, str]:
        """For each border, the source of the next segment that reads it."""
        steps = {border.name: border.step for border in self.borders}
        return {FAILURES: _unused_name(_FAILED, self.full_graph), **steps}

    def passed(self, meta: bytes) -> list[Passed]:
        """Metas hold the path through the whole graph."""
        return self.full_graph.passed(meta)


def has_borders(dataflow: Dataflow) -> bool:
    """Whether further segments follow."""
    return isinstance(dataflow, Segment) and bool(dataflow.borders)


def segments_of(dataflow: Dataflow, *, durable: bool = True) -> Sequence[Dataflow]:
    """The segments of a graph, in order; the graph itself if it is in one piece.

    Args:
        durable: whether durable steps cut it, and not only calls.
    """
    cutting = {operator.name for operator in dataflow.operators if operator.asks or (durable and operator.durable)}
    if not cutting:
        return (dataflow,)
    levels = _levels(dataflow, cutting)
    return [_segment(dataflow, levels, level) for level in range(max(levels.values()) + 1)]


def _levels(dataflow: Dataflow, cutting: Container[str]) -> dict[str, int]:
    """The maximal number of these steps before each operator; sinks are in the last segment.

    It terminates because the graph's checks allow none of them on a cycle.
    """
    levels = dict.fromkeys((operator.name for operator in dataflow.operators), 0)
    changed = True
    while changed:
        changed = False
        for origin, target, _ in ((edge.origin, edge.target, edge.feedback) for edge in dataflow.edges):
            least = levels[origin] + (origin in cutting)
            if levels[target] < least:
                levels[target], changed = least, True
    last = max(levels.values())
    return {name: last if isinstance(dataflow[name], Sink) else level for name, level in levels.items()}


def _segment(dataflow: Dataflow, levels: dict[str, int], level: int) -> Segment:
    reach = {name: max((levels[each.name] for each in dataflow.consumers(name)), default=0) for name in levels}
    arriving = [each for each in dataflow.operators if levels[each.name] < level <= reach[each.name]]
    own = [_as_question(each) for each in dataflow.operators if levels[each.name] == level]
    leaving = [each for each in (*arriving, *own) if reach[each.name] > level]
    sources = [Source(each.name, each.step, each.where, ArrivalTime()) for each in arriving]
    borders = [Border(_unused_name(f"{each.name} onward", dataflow), each.name, each.where) for each in leaving]
    if level:
        failed = _unused_name(_FAILED, dataflow)
        sources.append(Source(failed, failed, "", ArrivalTime()))
        borders.append(Border(FAILURES, failed, ""))
    operators: list[Operator] = [*sources, *own, *borders]
    here = {each.name for each in (*sources, *own)}
    edges = [edge for edge in dataflow.edges if edge.origin in here and levels[edge.target] == level]
    edges += [Edge(border.step, border.name) for border in borders]
    return Segment(dataflow.name, tuple(operators), tuple(edges), dataflow)


def _as_question(operator: Operator) -> Operator:
    """A call as a map that passes on what is to be asked; other operators as they are."""
    return replace(operator, function=_question) if isinstance(operator, Map) and operator.asks else operator


def _question(payload: Any) -> Any:
    return payload


def _unused_name(wanted: str, dataflow: Dataflow) -> str:
    names = {operator.name for operator in dataflow.operators}
    while wanted in names:
        wanted += "'"
    return wanted
