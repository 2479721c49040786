"""The reference interpreter once more, with a link from every item to those it was made of.

Invariant: items, metas and their order are those of `drift_graph.reference`; what is held is linked to its ancestors
over at most twice `loops_kept` rounds of a feedback edge, and nothing else is held.

Why: an item is linked to the items that made it, and only buckets and the heap hold items. So what no bucket can reach
is gone. Only a cycle reaches back without end (the state of a scan is made of the state before it). There, an item that
may have more than twice as many rounds behind it is cut off from all but `loops_kept`; so this is due once in as many
rounds. What was cut still knows how many rounds and items led to it.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Collection, Iterator
from heapq import heappop, heappush
from typing import Any

from drift.operators import State
from drift_graph.canonical import canonical
from drift_graph.failures import META_BYTES_MAX, endless_cycle, failed_step
from drift_graph.functions import pass_interrupts
from drift_graph.graph import Dataflow
from drift_graph.item import Failure
from drift_graph.later import placed
from drift_graph.meta import global_time_of, time_of, varint
from drift_graph.operators import Group, Map, Operator, Sink


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
        self.wanted: dict[bytes, Node | None] = dict.fromkeys(wanted)
        self._loops_kept = loops_kept
        self._ranks = dataflow.ranks
        self._operators = {rank: dataflow[name] for name, rank in dataflow.ranks.items()}
        back = {(edge.origin, edge.target) for edge in dataflow.edges if edge.feedback}
        self._targets: dict[str, list[tuple[Operator, int, bool]]] = {
            each.name: [
                (target, dataflow.ranks[target.name], (each.name, target.name) in back)
                for target in dataflow.consumers(each.name)
                if only is None or target.name in only
            ]
            for each in dataflow.operators
        }
        self._heap: list[tuple[bytes, int, int, Node]] = []
        self._pushed = 0
        self._buckets: dict[tuple[int, bytes], deque[Node]] = {}

    def push(self, source: str, meta: bytes, payload: Any) -> None:
        """An input item; its meta is its global time."""
        self._send(Node(source, meta, payload, (), meta))

    def push_to(self, target: str, node: Node) -> None:
        """An item that comes to one operator, from one that is not run here."""
        self._pushed += 1
        heappush(self._heap, (node.meta, self._ranks[target], self._pushed, node))

    def pop(self, below: bytes) -> Iterator[Node]:
        """Process everything below a bound on metas; yields output items and failures in the order of their metas.

        What follows a failure is what would have come without it.
        """
        heap = self._heap
        while heap and heap[0][0] < below:
            meta, rank, _, node = heappop(heap)
            operator = self._operators[rank]
            if isinstance(operator, Sink):
                out = Node(operator.name, meta, node.payload, (node,), node.first)
                if meta in self.wanted:
                    self.wanted[meta] = out
                yield out
                continue
            made = self._made(operator, rank, node)
            for each in made:
                if isinstance(each.payload, Failure):
                    yield each
                else:
                    self._send(each)

    def _send(self, node: Node) -> None:
        for target, rank, feedback in self._targets[node.operator]:
            if feedback and not node.came_back:
                node.came_back = True
                node.rounds += 1
                node.linked += 1
                if node.linked > 2 * self._loops_kept:
                    cut_behind(node, self._loops_kept)
            at = node.meta + varint(rank) if isinstance(target, Sink) else node.meta
            self._pushed += 1
            heappush(self._heap, (at, rank, self._pushed, node))

    def _made(self, operator: Operator, rank: int, node: Node) -> list[Node]:
        """What an operator makes of an item that comes to it."""
        meta = node.meta + varint(rank)
        try:
            if isinstance(operator, Map):
                ending = varint(rank)
                return [
                    self._child(operator, *placed(node.meta, ending + varint(index), child), (node,))
                    for index, child in enumerate(operator.children(node.payload, time_of(node.meta)))
                ]
            assert isinstance(operator, Group)
            if len(node.meta) > META_BYTES_MAX:
                raise endless_cycle(operator)
            place = rank, canonical(operator.key(node.payload))
        except BaseException as error:
            pass_interrupts(error)
            return [self._child(operator, meta, failed_step(operator, error, node.payload), (node,))]
        bucket = self._buckets.get(place)
        if bucket is None:
            bucket = self._buckets[place] = deque(maxlen=operator.window)
        bucket.append(node)
        window = tuple(bucket)
        return [self._child(operator, meta, tuple(each.payload for each in window), window)]

    def _child(self, operator: Operator, meta: bytes, payload: Any, parents: tuple[Node, ...]) -> Node:
        if len(parents) == 1:
            child = Node(operator.name, meta, payload, parents, parents[0].first)
            child.rounds, child.linked = parents[0].rounds, parents[0].linked
        else:
            child = Node(operator.name, meta, payload, parents, min([parent.first for parent in parents]))
            child.rounds = max([parent.rounds for parent in parents])
            child.linked = max([parent.linked for parent in parents])
        if type(payload) is State:
            window = parents[0].parents
            child.items = 1 + (window[0].items if len(window) > 1 else 0)
            child.first = window[0].first if len(window) > 1 else global_time_of(window[-1].meta)
        if meta in self.wanted:
            self.wanted[meta] = child
        return child


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
