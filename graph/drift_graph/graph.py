"""A graph: a `Draft` while it is written, a `Dataflow` once it is complete.

Invariant: a `Dataflow` is complete and checked, never changes, and its ranks depend on its structure alone, unless it
has those of an earlier version of it.

Why: it is only made by `Draft.build`, which runs every check; ranks are computed from operators in the order of their
declaration. Those that differ from them pass the check that hangs on ranks again.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, NamedTuple, TypeVar

from drift_graph.checks import check, check_loops
from drift_graph.errors import GraphError
from drift_graph.functions import LoopVariable, brief, has_inside, line_of, loop_variables
from drift_graph.meta import global_time_of, read_varint, root_of
from drift_graph.operators import Edge, Group, Map, Operator, Sink, Source
from drift_graph.ranks import structural_ranks

OperatorT = TypeVar("OperatorT", bound=Operator)


class Passed(NamedTuple):
    """An operator on an item's path; for a map, with the index of the child.

    Attributes:
        before, after: the item's meta before the operator and after it.
    """

    operator: Operator
    child: int | None
    before: bytes
    after: bytes


@dataclass(frozen=True)
class Dataflow:
    """A checked graph. Equal to another one built the same way, picklable with cloudpickle.

    Attributes:
        name: the graph's.
        operators: in the order of their declaration.
        edges: in the order of their declaration.
        schemas: of operators that give rows: their fields and types, as a text; nothing depends on it.
        spans: of windows: what was written in seconds and the like, so that times are to be milliseconds; for warnings.
        fixed_ranks: ranks that operators had in an earlier version of the graph, and keep; see `with_ranks_of`.
    """

    name: str
    operators: tuple[Operator, ...]
    edges: tuple[Edge, ...]
    fixed_ranks: tuple[tuple[str, int], ...] = field(default=(), kw_only=True)
    schemas: dict[str, str] = field(default_factory=dict, compare=False, repr=False, kw_only=True)
    spans: tuple[str, ...] = field(default=(), compare=False, repr=False, kw_only=True)

    def __getitem__(self, name: str) -> Operator:
        return self._by_name[name]

    def __getstate__(self) -> dict[str, object]:
        names = ("name", "operators", "edges", "fixed_ranks")
        return {name: getattr(self, name) for name in names}

    def __setstate__(self, state: dict[str, object]) -> None:
        self.__dict__.update(state, schemas={})

    @cached_property
    def _by_name(self) -> dict[str, Operator]:
        return {operator.name: operator for operator in self.operators}

    @cached_property
    def ranks(self) -> dict[str, int]:
        """Rank of each operator except sources: what it appends to the metas that pass it."""
        return dict(self.fixed_ranks) or structural_ranks(self.operators, self.edges)

    def with_ranks_of(self, earlier: Mapping[str, int], above: int) -> Dataflow:
        """The graph with the ranks that some of its operators have in an earlier version of it, so that items that
        pass only these have the metas of then.

        Args:
            earlier: the ranks by name; operators without one rank above, in their structural order.
            above: greater than every rank of the earlier version.

        Raises:
            GraphError: a loop would not have its state back in time.
        """
        structural = structural_ranks(self.operators, self.edges)
        new = sorted((name for name in structural if name not in earlier), key=structural.__getitem__)
        ranks = {**earlier, **{name: above + at for at, name in enumerate(new)}}
        if ranks == structural:
            return replace(self, fixed_ranks=())
        check_loops(self._by_name, self.edges, ranks)
        return replace(self, fixed_ranks=tuple((name, ranks[name]) for name in structural))

    @cached_property
    def sources(self) -> tuple[Source, ...]:
        """In source rank order: a source's rank is its index here."""
        return tuple(operator for operator in self.operators if isinstance(operator, Source))

    @cached_property
    def sinks(self) -> tuple[Sink, ...]:
        return tuple(operator for operator in self.operators if isinstance(operator, Sink))

    @cached_property
    def groups(self) -> dict[str, Group]:
        """The groupings by name, in the order of declaration."""
        return {operator.name: operator for operator in self.operators if isinstance(operator, Group)}

    @cached_property
    def _consumers(self) -> dict[str, tuple[Operator, ...]]:
        consumers: dict[str, list[Operator]] = {operator.name: [] for operator in self.operators}
        for edge in self.edges:
            consumers[edge.origin].append(self[edge.target])
        return {name: tuple(sorted(found, key=lambda it: self.ranks[it.name])) for name, found in consumers.items()}

    def consumers(self, name: str) -> tuple[Operator, ...]:
        """The operators that an operator's items go to, over edges of both kinds, lowest rank first."""
        return self._consumers[name]

    @cached_property
    def _by_rank(self) -> dict[int, Operator]:
        return {rank: self[name] for name, rank in self.ranks.items()}

    def passed(self, meta: bytes) -> list[Passed]:
        """The operators on the path in a meta, its source first; for a later item, from where it was put at its time.

        A failure ends in a map, and is not one of its children.

        Raises:
            LookupError: the meta names operators that the graph does not have.
        """
        at = len(global_time_of(meta))
        path = [Passed(self.sources[read_varint(root_of(meta), 8)[0]], None, b"", meta[:at])]
        while at < len(meta):
            start = at
            rank, at = read_varint(meta, at)
            operator, child = self._by_rank[rank], None
            if isinstance(operator, Map) and at < len(meta):
                child, at = read_varint(meta, at)
            path.append(Passed(operator, child, meta[:start], meta[:at]))
        return path


def _sink(name: str) -> str:
    """The key of a sink in a draft: sinks may have the names of steps."""
    return f"\0{name}"


@dataclass
class Draft:
    """A graph being written; every method checks what can be checked at once."""

    name: str
    schemas: dict[str, str] = field(default_factory=dict)
    spans: list[str] = field(default_factory=list)
    _operators: dict[str, Operator] = field(default_factory=dict)
    _edges: list[Edge] = field(default_factory=list)
    _loops: dict[str, str] = field(default_factory=dict)  # name of an open or closed loop -> where it was declared
    _closed: dict[str, tuple[str, ...]] = field(default_factory=dict)
    _optional: dict[str, None] = field(default_factory=dict)
    _reserved: dict[str, None] = field(default_factory=dict)  # names of steps that have no operator of their own name
    _unnamed: dict[str, None] = field(default_factory=dict)  # names of steps that were given none
    _read: dict[str, list[LoopVariable]] = field(default_factory=dict)  # by operator

    def add_optional(self, operator: OperatorT, origins: Sequence[str]) -> OperatorT:
        """As `add`, for an operator that is left out of the graph if nothing that stays in it consumes its items."""
        self._optional[operator.name] = None
        return self.add(operator, origins)

    def add(self, operator: OperatorT, origins: Sequence[str] = ()) -> OperatorT:
        """Add an operator that consumes the items of `origins`, which are operators or loops of this draft."""
        name = operator.name
        key, other_key = (_sink(name), name) if isinstance(operator, Sink) else (name, _sink(name))
        known, other = self._operators.get(key), self._operators.get(other_key)
        if known is None and other is not None and (isinstance(operator, Source) or isinstance(other, Source)):
            known = other
        if known is not None:
            raise GraphError(
                f"graph {self.name!r} has two steps named {name!r}: at {known.where} and at {operator.where}; no two "
                f"sources and steps have one name, nor two sinks, nor a source and a sink: give one of them another"
            )
        if any(has_inside(function, "only_in_maps") for function in operator.functions.values()):
            raise GraphError(
                f"step {operator.step!r} (at {operator.where}) takes no drift.recorded(...), which would not be "
                f"recorded here: only map does, without with_time and later; compute the value there, as a part of "
                f"the payload, and give step {operator.step!r} a function that reads it"
            )
        self._operators[key] = operator
        functions = operator.time.functions if isinstance(operator, Source) else operator.functions
        self._read[key] = [each for function in functions.values() for each in loop_variables(function)]
        self._edges += [Edge(origin, key) for origin in origins]
        return operator

    def sources_of(self, origins: Sequence[str]) -> list[Source]:
        """The sources that items of these operators may come from, but for feedback edges."""
        found, waiting = dict.fromkeys(origins), list(origins)
        while waiting:
            name = waiting.pop()
            before = [edge.origin for edge in self._edges if edge.target == name and edge.origin not in found]
            found |= dict.fromkeys(before)
            waiting += before
        operators = [self._operators[name] for name in found if name in self._operators]
        return [each for each in operators if isinstance(each, Source)]

    def givers_of(self, origins: Sequence[str]) -> list[Operator] | None:
        """The operators that give the payloads of these, in front of filters; None if one of them is a loop."""
        found: list[Operator] = []
        for name in origins:
            operator = self._operators.get(name)
            if isinstance(operator, Map) and operator.arity == "keep":
                before = self.givers_of([edge.origin for edge in self._edges if edge.target == name])
            else:
                before = None if operator is None else [operator]
            if before is None:
                return None
            found += before
        return found

    def replace_function(self, name: str, function: Callable[..., Any]) -> None:
        operator = self._operators[name]
        assert isinstance(operator, Map)
        self._operators[name] = replace(operator, function=function)

    def mark_durable(self, name: str) -> None:
        """Mark an operator as durable: a run with state logs its output."""
        self._operators[name] = replace(self._operators[name], durable=True)

    def connect(self, origin: str, target: str) -> None:
        """Add an edge to a sink, or a step, by name; the graph's checks run at `build`."""
        self._edges.append(Edge(origin, _sink(target) if _sink(target) in self._operators else target))

    def open_loop(self, name: str, where: str) -> str:
        """Declare a feedback edge, and return a name for its items; `close_loop` provides them."""
        if name in self._loops:
            raise GraphError(
                f"graph {self.name!r} has two feedback edges named {name!r}: at {self._loops[name]} and at {where}; "
                f"give one of them another name"
            )
        self._loops[name] = where
        return name

    def close_loop(self, name: str, origins: Sequence[str]) -> None:
        """Set the operators whose items the feedback edge carries."""
        if name in self._closed:
            raise GraphError(f"the feedback edge {name!r} from {self._loops[name]} is closed twice; merge its streams")
        self._closed[name] = tuple(origins)

    def name_of_unnamed(self, wanted: str) -> str:
        """The name of a step that was given none; see `fresh_name`."""
        name = self.fresh_name(wanted)
        self._unnamed[name] = None
        return name

    def fresh_name(self, wanted: str) -> str:
        """`wanted`, or `wanted-2`, `wanted-3`, ... if that name is taken."""
        name, count = wanted, 1
        while name in self._operators or name in self._reserved or _sink(name) in self._operators:
            count += 1
            name = f"{wanted}-{count}"
        return name

    def reserve(self, step: str) -> None:
        """Let `fresh_name` give the name of a step to no other, although no operator has it."""
        self._reserved[step] = None

    def build(self) -> Dataflow:
        """The finished graph.

        Raises:
            GraphError: for the first problem found; the message names the step and its line.
        """
        for loop, where in self._loops.items():
            if loop not in self._closed:
                raise GraphError(
                    f"the feedback edge {loop!r} at {where} is never closed; end it with stream.feed(loop)"
                )
        edges: list[Edge] = []
        for edge in self._edges:
            if edge.origin in self._loops:
                edges += [Edge(origin, edge.target, feedback=True) for origin in self._closed[edge.origin]]
            else:
                edges.append(edge)
        left_out: dict[str, None] = {}
        while True:  # what only such operators consume may be left out itself
            edges = [edge for edge in edges if edge.target not in left_out]
            taken = {edge.origin for edge in edges}
            more = [name for name in self._optional if name not in taken and name not in left_out]
            if not more:
                break
            left_out.update(dict.fromkeys(more))
        self._check_loop_variables()
        named = {key: self._named(each) for key, each in self._operators.items() if key not in left_out}
        names = {**{each.name: each.name for each in named.values()}, **{key: each.name for key, each in named.items()}}
        edges = [
            replace(edge, origin=names.get(edge.origin, edge.origin), target=names.get(edge.target, edge.target))
            for edge in edges
        ]
        operators = tuple(named.values())
        check(self.name, operators, tuple(edges))
        schemas = {each.name: self.schemas[key] for key, each in named.items() if key in self.schemas}
        return Dataflow(self.name, operators, tuple(edges), schemas=schemas, spans=tuple(self.spans))

    def _named(self, operator: Operator) -> Operator:
        """The operator with its name in the graph: a step that has the name of a sink gets another one."""
        name, step = operator.name, operator.step
        if isinstance(operator, Sink):
            return operator
        if any(step == each or step.startswith(f"{each}.") for each in self._unnamed):
            operator = replace(operator, is_named=False)
        if _sink(step) in self._operators and (name == step or name.startswith(f"{step}.")):
            other = self.fresh_name(f"{step} (step)")
            return replace(operator, name=other + name[len(step) :], step=other)
        return replace(operator, name=self.fresh_name(f"{name} (step)")) if _sink(name) in self._operators else operator

    def _check_loop_variables(self) -> None:
        """Raises GraphError: a function reads a variable that has changed since it was given to a step in a loop."""
        for key, variables in self._read.items():
            for each in variables:
                if each.is_changed:
                    operator, name = self._operators[key], each.name
                    raise GraphError(
                        f"{'source' if isinstance(operator, Source) else 'step'} {operator.step!r} (at "
                        f"{line_of(each.function)}) has a function that reads {name!r}, a variable of the loop in "
                        f"which it is written; that was {brief(each.value, 80)} there, and is {brief(each.now, 80)} "
                        f"now: all functions of the loop would read that. Give each its own: 'lambda payload, "
                        f"{name}={name}: ...', or functools.partial"
                    )
