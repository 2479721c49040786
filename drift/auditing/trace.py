"""The reference interpreter, observed: a link from every item to those it was made of.

Invariant: items, metas and their order are those of `drift_graph.reference`, which makes them; what is held is linked
to its ancestors over at most twice `loops_kept` rounds of a feedback edge, and nothing else is held.

Why: an item is linked to the items that made it, and only buckets and the heap hold items. So what no bucket can reach
is gone. Only a cycle reaches back without end (the state of a scan is made of the state before it). There, an item that
may have more than twice as many rounds behind it is cut off from all but `loops_kept`; so this is due once in as many
rounds. What was cut still knows how many rounds and items led to it.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from typing import Any

from drift.operators import State
from drift_graph.graph import Dataflow
from drift_graph.meta import global_time_of
from drift_graph.reference import Reference


class Node:
    """An item, and what it was made of.

    Attributes:
        operator: name of the operator it left: the source of an input item, the sink of an output item.
        meta: as it left that operator.
        payload: a `Failure` where the operator's function raised.
        parents: the items it was made of: one for a map, those of the window for a grouping, none for an input item.
        came_back: it went over a feedback edge.
        rounds: of feedback edges behind it, at most.
        items: of a scan's state, how many items of its key went into it.
        linked: of its rounds, those that it may still be linked back over.
        first: of a scan's state, global time of the first item of its key; else the least among its ancestors.
        cut: its ancestors are not kept.
    """

    __slots__ = ("operator", "meta", "payload", "parents", "came_back", "rounds", "linked", "items", "first", "cut")

    def __init__(self, operator: str, meta: bytes, payload: Any, parents: tuple[Node, ...], first: bytes) -> None:
        self.operator = operator
        self.meta = meta
        self.payload = payload
        self.parents = parents
        self.came_back = False
        self.rounds = 0
        self.linked = 0
        self.items = 0
        self.first = first
        self.cut = False


class Tracer:
    """Runs a dataflow in order; `push` input items, then `pop` what is certain.

    Args:
        only: names of the operators to run; the others' items are left out. All, if None.
        loops_kept: rounds of feedback edges that an item is linked back over, 1 or more.
        wanted: metas of items to keep.

    Attributes:
        wanted: by meta the items that were to be kept, None for those that have not come.
    """

    def __init__(
        self,
        dataflow: Dataflow,
        *,
        only: Collection[str] | None = None,
        loops_kept: int = 3,
        wanted: Collection[bytes] = (),
    ) -> None:
        self._links = _Links(loops_kept, wanted)
        self._reference = Reference(dataflow, self._links, only)
        self.wanted = self._links.wanted

    def push(self, source: str, meta: bytes, payload: Any) -> None:
        """An input item; its meta is its global time."""
        self._reference.push(source, meta, payload)

    def push_to(self, target: str, node: Node) -> None:
        """An item that comes to one operator, from one that is not run here."""
        self._reference.push_to(target, node.meta, node.payload, node)

    def pop(self, below: bytes) -> Iterator[Node]:
        """Process everything below a bound on metas; yields output items and failures in the order of their metas.

        What follows a failure is what would have come without it.
        """
        return self._reference.marks(below)


class _Links:
    """What the reference is observed by: of each item a node, linked to those of the items it was made of."""

    def __init__(self, loops_kept: int, wanted: Collection[bytes]) -> None:
        self.wanted: dict[bytes, Node | None] = dict.fromkeys(wanted)
        self._loops_kept = loops_kept

    def made(self, operator: str, meta: bytes, payload: Any, parents: tuple[Node, ...]) -> Node:
        first = min([parent.first for parent in parents]) if parents else meta
        node = Node(operator, meta, payload, parents, first)
        if parents:
            node.rounds = max([parent.rounds for parent in parents])
            node.linked = max([parent.linked for parent in parents])
        if type(payload) is State:
            window = parents[0].parents
            node.items = 1 + (window[0].items if len(window) > 1 else 0)
            node.first = window[0].first if len(window) > 1 else global_time_of(window[-1].meta)
        if meta in self.wanted:
            self.wanted[meta] = node
        return node

    def goes_back(self, node: Node) -> None:
        if node.came_back:
            return
        node.came_back = True
        node.rounds += 1
        node.linked += 1
        if node.linked > 2 * self._loops_kept:
            cut_behind(node, self._loops_kept)


def cut_behind(node: Node, loops_kept: int) -> None:
    """Cut what is more than `loops_kept` rounds behind an item."""
    left_of: dict[int, int] = {}
    todo = [(node, loops_kept)]
    for each, left in todo:
        for parent in each.parents:
            remaining = left - parent.came_back
            if remaining <= 0:
                if parent.parents:
                    parent.parents, parent.cut, parent.linked = (), True, 0
            elif left_of.get(id(parent), 0) < remaining:
                left_of[id(parent)] = remaining
                todo.append((parent, remaining))
    node.linked = loops_kept


def nodes_of(node: Node) -> list[Node]:
    """An item and all it is linked to, each once, after those it was made of."""
    done: set[int] = set()
    order: list[Node] = []
    todo = [(node, False)]
    while todo:
        each, ready = todo.pop()
        if id(each) in done:
            continue
        if ready:
            done.add(id(each))
            order.append(each)
        else:
            todo.append((each, True))
            todo += [(parent, False) for parent in reversed(each.parents)]
    return order
