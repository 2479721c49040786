"""The reference interpreter, observed: every item is linked to those it was made of.

Invariant: items, metas and their order are those of `drift_graph.reference`; an item in memory is linked to its
ancestors over at most twice `loops_max` rounds of a feedback edge, and nothing else is in memory.

Why: an item is linked to its parents, and only buckets and the heap hold items, so an item that no bucket can reach is
freed. Only in a cycle is the chain of ancestors endless (the state of a scan is made from the state before). There, an
item that may have more than twice as many rounds behind it is cut off from all but `loops_max`; so a cut is needed only
once in as many rounds. The counts of rounds and items survive a cut.

A process forgets a state that is back at the initial one, so what made that state has no part in what comes after it.
Where a process can tell how many of its last items a state is made of (`kept`), earlier ones have no part in it either.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from typing import Any, NamedTuple, Protocol

from drift.operators import ProcessState, ProcessTimers, State, Timer
from drift_graph.canonical import same
from drift_graph.graph import Dataflow
from drift_graph.meta import global_time_of
from drift_graph.metas import Metas
from drift_graph.operators import Map
from drift_graph.reference import Answers, Reference


class InputBatch(NamedTuple):
    """A batch of a source, and the heartbeat after it: no later item has a lower global time."""

    source: str
    metas: Metas
    payloads: list[Any]
    heartbeat: bytes


class Input(Protocol):
    """An input that can be read repeatedly; with `answer(call, meta, payload)`, for graphs with calls."""

    def batches(self) -> Iterator[InputBatch]:
        """From its start, in the order of arrival."""

    def at(self, global_time: bytes) -> Any:
        """The payload of one input item.

        Raises:
            InputError: there is none at that global time.
        """


class Node:
    """An item, and those it was made of.

    Attributes:
        operator: name of the operator it left: the source of an input item, the sink of an output item.
        meta: as it left that operator.
        payload: a `Failure` if the operator's function raised.
        parents: the items it was made of: one for a map, those of the window for a grouping, none for an input item.
        is_fed_back: whether it went over a feedback edge.
        rounds: of feedback edges behind it, at most.
        items: for a scan's state, how many items of its key went into it.
        linked: of its rounds, those that it may still be linked back over.
        first: for a scan's state, global time of the first item of its key; else the least among its ancestors.
        cut: whether its ancestors were dropped.
        recent: for the state of a process that can tell, the items it is made of.
        anew: whether it is a window without the state in front of its item, since the process had forgotten it.
    """

    __slots__ = (
        "operator", "meta", "payload", "parents", "is_fed_back", "rounds", "linked", "items", "first", "cut", "recent",
        "anew",
    )  # fmt: skip

    def __init__(self, operator: str, meta: bytes, payload: Any, parents: tuple[Node, ...], first: bytes) -> None:
        self.operator = operator
        self.meta = meta
        self.payload = payload
        self.parents = parents
        self.is_fed_back = False
        self.rounds = 0
        self.linked = 0
        self.items = 0
        self.first = first
        self.cut = False
        self.recent: tuple[Node, ...] = ()
        self.anew = False


class Tracer:
    """Runs a dataflow in order; `push` input items, then `pop` what is certain.

    Args:
        only: names of the operators to run; None for all.
        loops_max: rounds of feedback edges that an item is linked back over, 1 or more.
        wanted: metas of items to return.

    Attributes:
        wanted: by meta the wanted items, None for those that have not come.
    """

    def __init__(
        self,
        dataflow: Dataflow,
        *,
        only: Collection[str] | None = None,
        loops_max: int = 3,
        wanted: Collection[bytes] = (),
        answers: Answers | None = None,
    ) -> None:
        self._links = _Links(dataflow, loops_max, wanted)
        self._reference = Reference(dataflow, self._links, only, answers)
        self.wanted = self._links.wanted

    def push(self, source: str, meta: bytes, payload: Any) -> None:
        """An input item; its meta is its global time."""
        self._reference.push(source, meta, payload)

    def push_to(self, target: str, node: Node) -> None:
        """An item arrives at one operator, from one that is not run here."""
        self._reference.push_to(target, node.meta, node.payload, node)

    def pop(self, below: bytes) -> Iterator[Node]:
        """Process everything below a bound on metas; yields output items and failures in the order of their metas.

        Items after a failure are those that would have come without it.
        """
        return self._reference.marks(below)


class _Links:
    """The observer of the reference: a node for each item, linked to those of its parents."""

    def __init__(self, dataflow: Dataflow, loops_max: int, wanted: Collection[bytes]) -> None:
        self.wanted: dict[bytes, Node | None] = dict.fromkeys(wanted)
        self._loops_max = loops_max
        states = [each for each in dataflow.operators if isinstance(each, Map)]
        processes = {each.name: each.function.process for each in states if isinstance(each.function, ProcessState)}
        self._initials = {
            edge.origin: processes[edge.target].initial for edge in dataflow.edges if edge.target in processes
        }
        self._kept = {
            name: process.on_item.kept for name, process in processes.items() if hasattr(process.on_item, "kept")
        }
        self._sets_by_item = {
            each.name
            for each in states
            if isinstance(each.function, ProcessTimers) and hasattr(each.function.process.on_item, "kept")
        }

    def made(self, operator: str, meta: bytes, payload: Any, parents: tuple[Node, ...]) -> Node:
        anew = operator in self._initials and self._is_forgotten(operator, parents)
        if anew:
            parents, payload = parents[1:], payload[1:]
        first = min([parent.first for parent in parents]) if parents else meta
        node = Node(operator, meta, payload, parents, first)
        if parents:
            node.rounds = max([parent.rounds for parent in parents])
            node.linked = max([parent.linked for parent in parents])
        if operator in self._sets_by_item and len(window := parents[0].parents) > 1:
            node.parents = (self._beginning(parents[0], window[-1:]),)
        if type(payload) is State:
            window = parents[0].parents
            node.items = 1 + (window[0].items if len(window) > 1 else 0)
            if len(window) > 1 or type(window[-1].payload) is Timer:
                node.first = window[0].first
            else:
                node.first = global_time_of(window[-1].meta)
            if operator in self._kept:
                self._shorten(node, window, self._kept[operator](payload.value))
        node.anew = anew
        if meta in self.wanted:
            self.wanted[meta] = node
        return node

    def _shorten(self, state: Node, window: tuple[Node, ...], kept: int) -> None:
        """Link a state that is made of the last `kept` items only to these, after a timer has dropped the others."""
        items = window[0].recent if len(window) > 1 else ()
        if type(window[-1].payload) is not Timer:
            items = (*items, window[-1])
        state.recent = items[len(items) - kept :]
        if 0 < kept < len(items):
            state.parents = (self._beginning(state.parents[0], state.recent),)
            state.items, state.first = kept, state.parents[0].first

    @staticmethod
    def _beginning(window: Node, items: tuple[Node, ...]) -> Node:
        """In place of a window: that of these items alone."""
        node = Node(window.operator, window.meta, window.payload, items, min([item.first for item in items]))
        node.anew = True
        return node

    def _is_forgotten(self, group: str, window: tuple[Node, ...]) -> bool:
        """Whether a process's window, of which the last is an item or a timer, begins with the initial state."""
        if len(window) < 2 or type(window[0].payload) is not State or type(window[-1].payload) is State:
            return False
        return same(window[0].payload.value, self._initials[group])

    def passed_back(self, node: Node) -> None:
        if node.is_fed_back:
            return
        node.is_fed_back = True
        node.rounds += 1
        node.linked += 1
        if node.linked > 2 * self._loops_max:
            cut_behind(node, self._loops_max)


def cut_behind(node: Node, loops_max: int) -> None:
    """Cut the links more than `loops_max` rounds behind an item."""
    left_of: dict[int, int] = {}
    todo = [(node, loops_max)]
    for each, left in todo:
        for parent in each.parents:
            remaining = left - parent.is_fed_back
            if remaining <= 0:
                if parent.parents:
                    parent.parents, parent.cut, parent.linked = (), True, 0
            elif left_of.get(id(parent), 0) < remaining:
                left_of[id(parent)] = remaining
                todo.append((parent, remaining))
    node.linked = loops_max


def nodes_of(node: Node) -> list[Node]:
    """An item and all its linked ancestors, each once, after its parents."""
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
