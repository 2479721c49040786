"""The checks a graph passes before any item flows; each has its own message, with the step and the user's line."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from drift_graph.errors import GraphError
from drift_graph.operators import Edge, Group, Operator, Sink, Source
from drift_graph.ranks import forward_order, late_siblings, reached, structural_ranks


def check(name: str, operators: Sequence[Operator], edges: Sequence[Edge]) -> None:
    """Raise a GraphError for the first problem found."""
    by_name = {operator.name: operator for operator in operators}
    _check_edges(name, by_name, edges)
    _check_windows(operators)
    if not any(isinstance(operator, Source) for operator in operators):
        raise GraphError(f"graph {name!r} has no source; begin with graph.source('name')")
    if not any(isinstance(operator, Sink) for operator in operators):
        raise GraphError(f"graph {name!r} has no sink, so nothing would come out; end a stream with .sink('name')")
    _check_cycles(by_name, edges)
    _check_reach(by_name, edges)
    check_loops(by_name, edges, structural_ranks(operators, edges))
    _check_durable(by_name, edges)


def _check_edges(name: str, by_name: dict[str, Operator], edges: Iterable[Edge]) -> None:
    seen: set[tuple[str, str]] = set()
    for edge in edges:
        for end, other in ((edge.origin, edge.target), (edge.target, edge.origin)):
            if end not in by_name:
                where = f" (at {by_name[other].where})" if other in by_name else ""
                raise GraphError(
                    f"step {other!r}{where} is connected to {end!r}, which graph {name!r} does not have; "
                    f"use streams of one graph only"
                )
        target = by_name[edge.target]
        if isinstance(target, Source):
            raise GraphError(f"source {target.name!r} (at {target.where}) has an input; a source takes none")
        if isinstance(by_name[edge.origin], Sink):
            raise GraphError(f"sink {edge.origin!r} (at {by_name[edge.origin].where}) has an output; a sink has none")
        if (edge.origin, edge.target) in seen:
            raise GraphError(
                f"step {edge.target!r} (at {target.where}) takes the stream {edge.origin!r} twice, so each item would "
                f"come twice to one place; merge a stream with itself only through a map"
            )
        seen.add((edge.origin, edge.target))


def _check_windows(operators: Iterable[Operator]) -> None:
    for operator in operators:
        if isinstance(operator, Group) and (type(operator.window) is not int or operator.window < 1):
            raise GraphError(
                f"step {operator.name!r} (at {operator.where}) has window {operator.window!r}; a window is a number of "
                f"items, 1 or more"
            )


def _check_cycles(by_name: dict[str, Operator], edges: Sequence[Edge]) -> None:
    operators = list(by_name.values())
    ordered = set(forward_order(operators, edges))
    if len(ordered) < len(operators):
        stuck = _on_a_cycle([name for name in by_name if name not in ordered], [e for e in edges if not e.feedback])
        raise GraphError(
            f"the steps {_chain(stuck)} form a cycle without a feedback edge (see {by_name[stuck[0]].where}); "
            f"return items through graph.feedback(...)"
        )
    plain = [name for name, operator in by_name.items() if not isinstance(operator, Group)]
    among_plain = [edge for edge in edges if edge.origin in plain and edge.target in plain]
    cycle = _on_a_cycle(plain, among_plain)
    if cycle:
        raise GraphError(
            f"the steps {_chain(cycle)} form a cycle without a grouping (see {by_name[cycle[0]].where}); only a "
            f"grouping can distinguish a returning item from the original, so put one into the cycle"
        )


def _on_a_cycle(names: Sequence[str], edges: Iterable[Edge]) -> list[str]:
    """The names along one cycle, in the order of its edges; empty if there is none."""
    targets: dict[str, list[str]] = {name: [] for name in names}
    for edge in edges:
        if edge.origin in targets and edge.target in targets:
            targets[edge.origin].append(edge.target)
    done: set[str] = set()
    for start in names:
        path: list[str] = []
        todo = [iter((start,))]
        while todo:
            name = next(todo[-1], None)
            if name is None:
                todo.pop()
                if path:
                    done.add(path.pop())
            elif name in path:
                return path[path.index(name) :]
            elif name not in done:
                path.append(name)
                todo.append(iter(targets[name]))
    return []


def _chain(names: Sequence[str]) -> str:
    return " -> ".join(map(repr, [*names, names[0]]))


def _check_reach(by_name: dict[str, Operator], edges: Sequence[Edge]) -> None:
    sources = [name for name, operator in by_name.items() if isinstance(operator, Source)]
    sourced = _closure(sources, ((edge.origin, edge.target) for edge in edges))
    for name, operator in by_name.items():
        if name not in sourced:
            raise GraphError(
                f"step {name!r} (at {operator.where}) is unreachable: no item of any source comes to it; connect it "
                f"or take it out"
            )
    sinks = [name for name, operator in by_name.items() if isinstance(operator, Sink)]
    useful = _closure(sinks, ((edge.target, edge.origin) for edge in edges))
    for name, operator in by_name.items():
        if name not in useful:
            raise GraphError(
                f"step {name!r} (at {operator.where}) leads to no sink, so its work would be lost; give it a sink or "
                f"take it out"
            )


def check_loops(by_name: Mapping[str, Operator], edges: Sequence[Edge], ranks: Mapping[str, int]) -> None:
    """Check that with these ranks each grouping that loops through one map has its state back in time.

    Raises:
        GraphError: for the first that does not.
    """
    for step, grouping in late_siblings(list(by_name.values()), edges):
        if ranks[step] < ranks[grouping]:
            raise GraphError(
                f"steps {by_name[grouping].step!r} (at {by_name[grouping].where}) and {by_name[step].step!r} (at "
                f"{by_name[step].where}) take the same stream, and the output of the second reaches the first "
                f"before the first has its own state back; put a map between the stream and {by_name[grouping].step!r}"
            )


def _check_durable(by_name: dict[str, Operator], edges: Sequence[Edge]) -> None:
    for name, operator in by_name.items():
        if not (operator.durable or operator.asks) or name not in _closure(
            (edge.target for edge in edges if edge.origin == name), ((edge.origin, edge.target) for edge in edges)
        ):
            continue
        if operator.asks:
            raise GraphError(
                f"step {operator.step!r} (at {operator.where}) is a call, and its output returns to it through a loop: "
                f"only settled items are asked about, and they wait for items that return. Call before or after the "
                f"loop"
            )
        raise GraphError(
            f"step {operator.step!r} (at {operator.where}) is durable, and its output returns to it through a loop: "
            f"only settled items are logged, and they wait for items that return. Make a step before or after the "
            f"loop durable"
        )


def _closure(start: Iterable[str], arrows: Iterable[tuple[str, str]]) -> dict[str, None]:
    following: dict[str, list[str]] = {}
    for origin, target in arrows:
        following.setdefault(origin, []).append(target)
    return reached(start, lambda name: following.get(name, ()))
