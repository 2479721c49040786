"""The lineage of one output item: the items it was made of, with the step and the line that made each, back to input.

Invariant: every item of a lineage appears in it once, after those it was made of; its payload is what the step
returned.

Why: `Tracer` runs the graph over the input again, in order, up to the item. Input that cannot have contributed is
skipped (`Relevant`); so are, behind several groupings, items with other keys (`Layers`). Memory follows what buckets
hold, not the input.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any, Literal

from drift.auditing.layers import Layers
from drift.auditing.route import Relevant
from drift.auditing.trace import Input, Node, Tracer, cut_behind
from drift.engines.memory import rare_collections
from drift.operators import LoopFunction, ScanKey, State, Timer
from drift_graph.errors import InputError
from drift_graph.functions import safe_text
from drift_graph.graph import Dataflow
from drift_graph.item import Failure, Item
from drift_graph.meta import BEGINNING, MetaParts, root_of, time_of
from drift_graph.operators import Map, Operator, location_of

Kind = Literal["input", "item", "window", "state", "timer", "output", "failure"]


@dataclass(frozen=True, eq=False)
class Made:
    """One item of a lineage.

    Attributes:
        number: in the lineage, from 1.
        kind: an input item, a map's output, a window of a grouping, a state of a scan, the output item; or a "failure":
            the error that a function raised.
        step: the user's step that made it; a source's or a sink's name.
        does: what the step does, in a few words.
        where: "file:line" of the function that made it; of the declaration if there is none.
        payload: for a state its value.
        key: of a state or a timer.
        child: index among the payloads that a map returned.
        before: items that went into a state; for another item that is cut, the number of rounds of its loop behind it,
            at most.
        first: for a state, or an item that is cut: global time of the first input item behind it.
        cut: whether its parents are not shown.
        starts: whether its state before was the initial one: it is the first of its key in a scan, or
        anew: it is the first since a process forgot the key.
        made_of: numbers of its parents, oldest first.
    """

    number: int
    kind: Kind
    step: str
    does: str
    where: str
    meta: bytes
    payload: Any
    key: Any = None
    child: int | None = None
    before: int = 0
    first: bytes = b""
    cut: bool = False
    starts: bool = False
    anew: bool = False
    made_of: tuple[Made, ...] = field(default=(), repr=False)

    @property
    def time(self) -> int:
        return time_of(self.meta)


@dataclass(frozen=True, eq=False)
class Lineage:
    """How an output item came about.

    Attributes:
        item: the output item, or the failure.
        position: of it in the output; None if unknown.
        items: all of it, each after those it was made of; the last is `item`.
        sources: names, by rank.
        recorded: the item that a record has at this position, if it is another one.
    """

    item: Made
    position: int | None
    items: tuple[Made, ...]
    sources: tuple[str, ...]
    recorded: Item[Any] | None = None

    def __str__(self) -> str:
        """What `drift explain` prints: each item, and below it those it was made of."""
        from drift.auditing.show import as_text

        return as_text(self)

    def inputs(self) -> list[Made]:
        """The input items it goes back to, unless it is cut."""
        return [made for made in self.items if made.kind == "input"]

    @property
    def complete(self) -> bool:
        """Whether it goes back to the input everywhere."""
        return not any(made.cut for made in self.items)

    def as_dict(self) -> dict[str, Any]:
        """For JSON: items refer to their parents by number."""
        return {
            "position": self.position,
            "sink": self.item.step,
            "time": self.item.time,
            "meta": self.item.meta.hex(),
            "payload": _shown(self.item.payload),
            "recorded": _shown(self.recorded.payload) if self.recorded is not None else None,
            "complete": self.complete,
            "items": [self._item_as_dict(made) for made in self.items],
        }

    def _item_as_dict(self, made: Made) -> dict[str, Any]:
        return {
            "number": made.number,
            "kind": made.kind,
            "step": made.step,
            "does": made.does,
            "where": made.where,
            "time": made.time,
            "meta": made.meta.hex(),
            "payload": _shown(made.payload),
            "key": _shown(made.key) if made.kind in ("state", "timer") else None,
            "child": made.child,
            "before": made.before,
            "first": self.input_name(made.first) if made.first else None,
            "cut": made.cut,
            "made_of": [each.number for each in made.made_of],
        }

    def input_name(self, global_time: bytes) -> str:
        """A global time in words: "flights at 22634"."""
        parts = MetaParts(global_time)
        ordinal = f", number {parts.ordinal}" if parts.ordinal else ""
        return f"{self.sources[parts.source_rank]} at {parts.time}{ordinal}"


def _shown(payload: Any) -> str:
    return safe_text(repr, payload, 500)


def lineage_of(
    dataflow: Dataflow, run_input: Input, meta: bytes, *, position: int | None = None, loops_max: int = 3
) -> Lineage:
    """The lineage of the output item, or of the failure, with this meta.

    Args:
        position: of the item, if known.
        loops_max: how many states of a scan to go back.

    Raises:
        InputError: the graph does not make such an item from this input.
    """
    node = trace_to(dataflow, run_input, meta, loops_max=loops_max)
    if node is None:
        raise InputError(
            f"graph {dataflow.name!r} does not make the item {MetaParts(meta)} (meta {meta[:40].hex()}) of this "
            f"input; it belongs to another graph, another input, or a function that returns something else now"
        )
    return lineage_from(dataflow, node, position)


def lineage_from(dataflow: Dataflow, node: Node, position: int | None) -> Lineage:
    """The lineage of an item that was traced."""
    return _Numbering(dataflow).lineage(node, position)


def trace_to(dataflow: Dataflow, run_input: Input, meta: bytes, *, loops_max: int = 3) -> Node | None:
    """Run up to the output item or failure with this meta; None if there is none."""
    relevant = Relevant(dataflow, meta, run_input.at(root_of(meta)))
    layers = Layers(dataflow, run_input, loops_max)
    asks = any(each.asks for each in dataflow.operators)  # a worker does not
    if relevant.all and not asks and layers.fits(relevant.only):
        with rare_collections():
            return layers.trace(meta)
    last: Node | None = None
    for node in traced(dataflow, run_input, meta, loops_max=loops_max, relevant=relevant):
        last = node
    if last is None or last.meta != meta:
        return None
    cut_behind(last, loops_max)
    return last


def traced(
    dataflow: Dataflow,
    run_input: Input,
    meta: bytes,
    *,
    loops_max: int = 3,
    relevant: Relevant | None = None,
    after_batch: Callable[[], None] = lambda: None,
) -> Iterator[Node]:
    """Output items and failures up to this meta, in order; some of the earlier ones may be left out.

    Args:
        relevant: which inputs matter, if known.
        after_batch: called when a batch of the input has been processed.
    """
    if relevant is None:
        relevant = Relevant(dataflow, meta, run_input.at(root_of(meta)))
    tracer = Tracer(dataflow, only=relevant.only, loops_max=loops_max, answers=getattr(run_input, "answer", None))
    heartbeats = dict.fromkeys([source.name for source in dataflow.sources], BEGINNING)
    end = meta + b"\x00"  # the next byte string after it
    with rare_collections():
        for batch in run_input.batches():
            heartbeats[batch.source] = batch.heartbeat
            for index in relevant.matters(batch.source, batch.metas, batch.payloads):
                tracer.push(batch.source, batch.metas[index], batch.payloads[index])
            minimal = min(heartbeats.values())
            yield from tracer.pop(min(minimal, end))
            after_batch()
            if minimal >= end:
                return
        yield from tracer.pop(end)


def traced_at(dataflow: Dataflow, run_input: Input, meta: bytes) -> Node | None:
    """The item with this meta anywhere in the graph, with what it was made of; None if there is none."""
    tracer = Tracer(dataflow, wanted=[meta], answers=getattr(run_input, "answer", None))
    end = meta + b"\x00"  # the next byte string after it
    for batch in run_input.batches():
        for own, payload in zip(batch.metas, batch.payloads):
            if own <= meta:
                tracer.push(batch.source, own, payload)
    with rare_collections():
        for _ in tracer.pop(end):
            pass
    return tracer.wanted[meta]


class _Numbering:
    """Turns linked nodes into a lineage in the user's terms: scans as one step."""

    def __init__(self, dataflow: Dataflow) -> None:
        self._dataflow = dataflow
        self._made: dict[int, Made] = {}
        self._order: list[Made] = []

    def lineage(self, node: Node, position: int | None) -> Lineage:
        """Every item after those it was made of; without recursion, since a lineage may be long."""
        todo: list[tuple[Node, bool]] = [(node, False)]
        while todo:
            each, ready = todo.pop()
            if id(each) in self._made:
                continue
            parents = self._parents(each)
            if ready or not parents:
                self._add(each, parents)
            else:
                todo.append((each, True))
                todo += [(parent, False) for parent in reversed(parents) if id(parent) not in self._made]
        names = tuple(source.name for source in self._dataflow.sources)
        return Lineage(self._made[id(node)], position, tuple(self._order), names)

    def _parents(self, node: Node) -> tuple[Node, ...]:
        """The parents of an item; for a scan's output and state: the state before, and the item."""
        if len(node.parents) == 1 and self._is_of_scan(node):
            return node.parents[0].parents
        return node.parents

    def _is_of_scan(self, node: Node) -> bool:
        function = getattr(self._dataflow[node.operator], "function", None)
        return isinstance(function, LoopFunction)

    def _add(self, node: Node, parents: tuple[Node, ...]) -> None:
        operator = self._dataflow[node.operator]
        function = getattr(operator, "function", None)
        gives = function.gives if isinstance(function, LoopFunction) else ""
        is_state = gives == "state" and isinstance(node.payload, State)
        is_timer = isinstance(node.payload, Timer)
        made = Made(
            number=len(self._order) + 1,
            kind="timer" if is_timer else _kind(operator, node, is_state),
            step=operator.step or operator.name,
            does=_does(operator),
            where=location_of(operator),
            meta=node.meta,
            payload=node.payload.value if is_state else node.payload.note if is_timer else node.payload,
            key=node.payload.key if is_state or is_timer else None,
            child=_child(operator, node),
            before=node.items if is_state else node.rounds if node.cut else 0,
            first=node.first if is_state or node.cut else b"",
            cut=node.cut or any(parent.cut and not parent.parents for parent in node.parents if parent not in parents),
            starts=self._is_of_scan(node) and len(parents) == 1,
            anew=any(parent.anew for parent in node.parents),
            made_of=tuple(self._made[id(parent)] for parent in parents),
        )
        self._made[id(node)] = made
        self._order.append(made)


def _kind(operator: Operator, node: Node, is_state: bool) -> Kind:
    if isinstance(node.payload, Failure):
        return "failure"
    return "state" if is_state and operator.gives != "input" else operator.gives


def _does(operator: Operator) -> str:
    """A loop is described as one step, not as the core's operators it consists of."""
    function = next(iter(operator.functions.values()), None)
    if isinstance(function, (LoopFunction, ScanKey)):
        return operator.label.replace("map many", function.loop).replace("group window 2", function.loop)
    return operator.label.strip()


def _child(operator: Operator, node: Node) -> int | None:
    """The index of an item among a map's payloads for one payload; None if there is at most one."""
    if (
        not isinstance(operator, Map)
        or operator.arity != "many"
        or (isinstance(operator.function, LoopFunction) and operator.function.most == "one")
    ):
        return None
    if isinstance(node.payload, Failure):
        return None
    return MetaParts(node.meta).path[-1]
