"""Ranks: the numbers of operators in the order of metas.

Invariant: along every edge that is not a feedback edge the rank falls, and equal structure gives equal ranks.

Why: ranks are sorted by height, the length of the longest path down to an operator without consumers, and along an edge
the height falls. An operator that feeds a feedback edge has height 0. So an item that returns to a grouping sorts
before siblings that were derived upstream from the same input, and before other output of the same window.

Small loops turn before large ones: if a grouping loops through one map (a scan and its state), and another step
consumes the same stream and leads round to the grouping, that step ranks above the grouping. Otherwise its items would
reach the grouping before the state does, and the next item would miss the state. Items that return in a later round of
an iteration come long after it, and are exempt.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from drift_graph.operators import Edge, Operator, Source

#: For each operator, the names of its successors.
_Arrows = dict[str, list[str]]


def forward_order(operators: Sequence[Operator], edges: Iterable[Edge]) -> list[str]:
    """Names in topological order over the edges that are not feedback edges; shorter if these form a cycle."""
    return _topological(_arrows(operators, (edge for edge in edges if not edge.feedback)))


def structural_ranks(operators: Sequence[Operator], edges: Sequence[Edge]) -> dict[str, int]:
    """Rank of each operator but the sources, from 0 for the most downstream."""
    heights = {operator.name: 0 for operator in operators}
    feeds = _arrows(operators, (edge for edge in edges if not edge.feedback))
    for step, grouping in late_siblings(operators, edges):
        if step not in reached([grouping], feeds.__getitem__):
            feeds[step].append(grouping)
    for name in reversed(_topological(feeds)):
        heights[name] = max((heights[target] + 1 for target in feeds[name]), default=0)
    ranked = [operator.name for operator in operators if not isinstance(operator, Source)]
    ranked.sort(key=lambda name: heights[name])  # stable: equal heights keep the order of declaration
    return {name: rank for rank, name in enumerate(ranked)}


def late_siblings(operators: Sequence[Operator], edges: Sequence[Edge]) -> list[tuple[str, str]]:
    """(step, grouping) that consume one stream, where the grouping loops through one map and the step leads back to
    it.
    """
    turning = {each.name for each in operators if each.turns_round}
    every = _arrows(operators, (edge for edge in edges if edge.origin not in turning))
    looped = dict.fromkeys(edge.target for edge in edges if edge.feedback and edge.origin in every[edge.target])
    return [
        (step, grouping)
        for grouping in looped
        for targets in every.values()
        if grouping in targets
        for step in targets
        if step != grouping and grouping in reached([step], every.__getitem__)
    ]


def _arrows(operators: Iterable[Operator], edges: Iterable[Edge]) -> _Arrows:
    arrows: _Arrows = {operator.name: [] for operator in operators}
    for edge in edges:
        arrows[edge.origin].append(edge.target)
    return arrows


def reached(start: Iterable[str], following: Callable[[str], Iterable[str]]) -> dict[str, None]:
    """These names, and all that follow one of them or of those; in the order in which they are found."""
    found = dict.fromkeys(start)
    todo = list(found)
    for name in todo:
        new = [each for each in dict.fromkeys(following(name)) if each not in found]
        found.update(dict.fromkeys(new))
        todo += new
    return found


def _topological(arrows: _Arrows) -> list[str]:
    """Names so that every arrow points forward; names on a cycle or after one are left out."""
    waits = dict.fromkeys(arrows, 0)
    for targets in arrows.values():
        for target in targets:
            waits[target] += 1
    order = [name for name, count in waits.items() if count == 0]
    for name in order:
        for target in arrows[name]:
            waits[target] -= 1
            if waits[target] == 0:
                order.append(target)
    return order
