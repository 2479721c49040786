"""The form that every edge and every step of a graph has on `local`, known before anything runs.

Invariant: an edge said to carry rows carries rows in columns, and one said to carry objects carries objects, as long as
nothing comes late, no call fails and values fit their columns. What an edge carries changes no output.

Why: a source gives rows if its input is a table, or a file read as rows. What a map or a logic makes of them is said by
the thing itself (`gives_rows`, `objects_because`), from its key and its aggregates; a function of Python takes objects,
so rows become dicts in front of it, once.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Literal, NamedTuple

from drift.flow.fields import names_of
from drift.flow.opened import FlatRow
from drift.machines.plan import Plan
from drift.operators import MapsEach
from drift_graph.graph import Dataflow
from drift_graph.operators import Map, Operator, Sink, Source

#: What a step is: `settled` waits until nothing comes below its items any more, `optimistic` corrects itself.
Kind = Literal["source", "map", "call", "settled", "optimistic", "sink"]
Carries = Literal["rows", "objects"]

_OF_PYTHON = "functions of Python take objects"


class Form(NamedTuple):
    """The form of an operator, or of a loop that runs as one.

    Attributes:
        name: of the operator; of a loop, of its grouping.
        takes: by the name of what is before it, in order, what comes from there.
        gives: what it gives; of a sink what it is given.
        level: of what it gives, on engines with frontiers by level; see `drift.machines.levels`.
        runs: what runs it: "Polars", the "kernel", "arrays" of numpy, or "Python".
        why: why it gives objects where it could be rows, as a clause; "" if there is nothing to be said.
    """

    name: str
    kind: Kind
    takes: tuple[tuple[str, Carries], ...]
    gives: Carries
    level: int
    runs: str
    why: str


def forms_of(dataflow: Dataflow, rows: Collection[str] | None = None) -> dict[str, Form]:
    """The forms of a graph's operators by their names, in the order of the flow; those inside a loop have none.

    Args:
        rows: names of the sources that give rows in columns: whose inputs are tables, or files read as rows. None:
            those with a schema.
    """
    plan, found = Plan(dataflow), dict[str, Form]()
    outputs = {plan.output_of(name): name for name in dataflow.groups}
    inside = {*plan.inside_loops(), *outputs} - {*dataflow.groups}
    of_rows = [each.name for each in dataflow.sources if each.rows is not None] if rows is None else rows
    in_cycles = {name for component in plan.components if plan.is_cyclic(component) for name in component}
    of_ends: set[str] = set()  # what gives items with the times of ends
    left = [each for each in dataflow.operators if each.name not in inside]
    while left:
        waits = {each.name for each in left}
        ready = [each for each in left if waits.isdisjoint(_before(dataflow, outputs, inside, each, forward=True))]
        for operator in ready:
            before = _before(dataflow, outputs, inside, operator)
            takes = tuple((name, found[name].gives if name in found else "objects") for name in before)
            level = max((found[name].level for name in before if name in found), default=0)
            level, at_ends = plan.levels.behind.get(operator.name, level), not of_ends.isdisjoint(before)
            found[operator.name] = _form(plan, operator, takes, level, operator.name in in_cycles, at_ends, of_rows)
            if at_ends or (operator.name in plan.dataflow.groups and plan.stage_of(operator.name).only_at_ends):
                of_ends.add(operator.name)
        left = [each for each in left if each.name not in found]
    return found


def _before(
    dataflow: Dataflow, outputs: dict[str, str], inside: Collection[str], operator: Operator, *, forward: bool = False
) -> list[str]:
    """The names of what is before an operator, each once; with `forward` without feedback edges."""
    edges = [edge for edge in dataflow.edges if edge.target == operator.name and not (forward and edge.feedback)]
    origins = dict.fromkeys(outputs.get(edge.origin, edge.origin) for edge in edges)
    return [name for name in origins if name not in inside and name != operator.name]


def _form(
    plan: Plan,
    operator: Operator,
    takes: tuple[tuple[str, Carries], ...],
    level: int,
    in_cycle: bool,
    at_ends: bool,
    rows: Collection[str],
) -> Form:
    name, carried = operator.name, {each for _, each in takes}
    given: Carries = "rows" if carried == {"rows"} else "objects"
    if isinstance(operator, Source):
        why = "" if name in rows else "it has no schema" if operator.rows is None else "its input is no table"
        return Form(name, "source", (), "objects" if why else "rows", 0, "", why)
    if isinstance(operator, Sink):
        return Form(name, "sink", takes, given, level, "", "a part of it comes as objects" if len(carried) > 1 else "")
    if isinstance(operator, Map):
        keys = max((len(names_of(plan.key_of(each)) or ()) for each in _keyed(plan, takes)), default=0)
        return _form_of_map(operator, takes, given, level, keys)
    stage, why = plan.stage_of(name), ""
    settled = not in_cycle and (stage.only_at_ends or (stage.has_columns and given == "rows" and not plan.puts_later))
    if in_cycle:
        why = "it is in a cycle, which runs item by item"
    elif given == "objects":
        why = _of_objects(takes)
    elif stage.in_order.in_kernel and at_ends and not stage.in_order.takes_later:
        why = "its items have the times of ends, not of sources"
    else:
        why = stage.objects_because
    runs = "kernel" if stage.in_order.in_kernel else "Python" if why else "arrays"
    kind: Kind = "settled" if settled else "optimistic"
    return Form(name, kind, takes, "objects" if why else "rows", level, runs, why)


def _form_of_map(operator: Map, takes: tuple[tuple[str, Carries], ...], given: Carries, level: int, keys: int) -> Form:
    function, kind = operator.function, "call" if operator.asks else "map"
    runs = "Python"
    if isinstance(function, MapsEach) and (function.chained is not None or function.gives_rows(False)):
        runs = "Polars"
    if operator.arity == "keep":
        gives, why = given, _of_objects(takes) if given == "objects" else ""
    elif isinstance(function, FlatRow) and keys > 1:
        gives, why = "objects", "a key of several fields is a tuple"
    elif isinstance(function, MapsEach) and function.gives_rows(given == "rows"):
        gives, why = "rows", ""
        runs = "arrays" if runs == "Python" else runs
    elif given == "rows":
        gives, why = "objects", _OF_PYTHON
    else:
        gives, why = "objects", _of_objects(takes)
    return Form(operator.name, kind, takes, gives, level, runs, why)  # type: ignore[arg-type]


def _keyed(plan: Plan, takes: tuple[tuple[str, Carries], ...]) -> list[str]:
    """The groupings right before an operator, and the slices that they merge."""
    names = [name for name, _ in takes if name in plan.dataflow.groups]
    merged = [f"{name}.slices" for name in names if f"{name}.slices" in plan.dataflow.groups]
    return names + merged


def _of_objects(takes: tuple[tuple[str, Carries], ...]) -> str:
    return " and ".join(dict.fromkeys(f"{name} gives objects" for name, each in takes if each == "objects"))
