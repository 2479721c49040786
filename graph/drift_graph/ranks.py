"""Ranks: the number of an operator in the order.

Invariant: along every edge that is not a feedback edge the rank falls, and equal structure gives equal ranks.

Why: ranks are sorted by height, the longest way down to an operator that feeds no other, and along an edge the
height falls. An operator that ends in a feedback edge has height 0. So what is fed back to a grouping sorts before
siblings that were derived upstream from the same input, and before what else the same window gives.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from drift_graph.operators import Operator, Source

if TYPE_CHECKING:
    from drift_graph.graph import Edge


def forward_order(operators: Sequence[Operator], edges: Iterable[Edge]) -> list[str]:
    """Names in topological order over the edges that are not feedback edges; shorter where these form a cycle."""
    waits = {operator.name: 0 for operator in operators}
    targets: dict[str, list[str]] = {operator.name: [] for operator in operators}
    for edge in edges:
        if not edge.feedback:
            waits[edge.target] += 1
            targets[edge.origin].append(edge.target)
    order = [name for name, count in waits.items() if count == 0]
    for name in order:
        for target in targets[name]:
            waits[target] -= 1
            if waits[target] == 0:
                order.append(target)
    return order


def structural_ranks(operators: Sequence[Operator], edges: Sequence[Edge]) -> dict[str, int]:
    """Rank of each operator but the sources, from 0 for the most downstream."""
    heights = {operator.name: 0 for operator in operators}
    feeds: dict[str, list[str]] = {operator.name: [] for operator in operators}
    for edge in edges:
        if not edge.feedback:
            feeds[edge.origin].append(edge.target)
    for name in reversed(forward_order(operators, edges)):
        heights[name] = max((heights[target] + 1 for target in feeds[name]), default=0)
    ranked = [operator.name for operator in operators if not isinstance(operator, Source)]
    ranked.sort(key=lambda name: heights[name])  # stable: equal heights keep the order of declaration
    return {name: rank for rank, name in enumerate(ranked)}
