"""A graph's fingerprint: what it computes, by structure and by the code of its functions, in storable form.

Invariant: equal `structure` means the same operators, windows, arities, time policies and edges, hence the same metas
for the same payloads. Equal `structure` and `code` mean the same output for the same input, if the functions are pure;
`drift.records.code` says what is hashed. What a call asks, and how, is in neither: the answers are input, and are taken
from where they were logged, whatever would be asked now. Hashes of two formats say nothing of each other.

Why: an item's meta depends on ranks and child indices, its payload on functions. Of the names of steps only those of
sources and sinks reach the output, so others are not hashed; lines and texts are there for people.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from drift.records.code import print_of, value_hash
from drift_graph.functions import user_function
from drift_graph.graph import Dataflow
from drift_graph.operators import Map, Operator, Sink, Source
from drift_graph.policies import TimePolicy
from drift_graph.segments import Segment

#: {"format", "name", "digest", "structure", "code", "operators": [...], "edges": [...]}: of dicts, lists, text, ints
#: and None only.
Fingerprint = dict[str, Any]

FORMAT = 2  # 1 had hashes of instructions


def fingerprint(dataflow: Dataflow, times: Mapping[str, TimePolicy] | None = None) -> Fingerprint:
    """The fingerprint of a graph. `times`: the policies that a run uses in place of the graph's own."""
    operators = [_operator(dataflow, each, times or {}) for each in dataflow.operators]
    index = {each.name: number for number, each in enumerate(dataflow.operators)}
    edges = [{"origin": edge.origin, "target": edge.target, "feedback": edge.feedback} for edge in dataflow.edges]
    shape = [
        [_shape(each) for each in operators],
        sorted((index[edge.origin], index[edge.target], edge.feedback) for edge in dataflow.edges),
    ]
    functions = [each["functions"][role] for each in operators for role in each["functions"]]
    structure = value_hash(shape)
    code = value_hash([each["code"] for each in functions])
    return {
        "format": FORMAT,
        "name": dataflow.name,
        "digest": value_hash([structure, code]),
        "structure": structure,
        "code": code,
        "operators": operators,
        "edges": edges,
    }


def _operator(dataflow: Dataflow, operator: Operator, times: Mapping[str, TimePolicy]) -> dict[str, Any]:
    if isinstance(dataflow, Segment) and isinstance(operator, Map):
        operator = dataflow.full_graph[operator.name]  # a segment passes on what is asked, the graph says who asks
    policy = times.get(operator.name, operator.time) if isinstance(operator, Source) else None
    prints = {role: print_of(function) for role, function in _functions(operator, policy).items()}
    rank = dataflow.sources.index(operator) if isinstance(operator, Source) else dataflow.ranks[operator.name]
    return {
        "name": operator.name,
        "step": operator.step or operator.name,
        "kind": operator.kind,
        "rank": rank,
        "where": operator.where,
        "parameters": operator.parameters if policy is None else policy.parameters,
        "functions": {} if operator.asks else prints,
        **({"asked": prints} if operator.asks else {}),
        **({"schema": _schema(operator)} if isinstance(operator, Source) else {}),
        **({} if operator.is_named else {"unnamed": True}),
    }


def _schema(source: Source) -> dict[str, str] | None:
    """The fields of a source's rows and their types; None for any payloads. It is in no hash: metas do not show it."""
    return None if source.rows is None else {name: str(kind) for name, kind in source.rows.fields}


def _functions(operator: Operator, policy: TimePolicy | None) -> dict[str, Callable[..., Any]]:
    """The functions of an operator by role; of a call, the one that is asked. Those of a scan, `key` and `step`, appear
    in each operator that uses them.
    """
    if operator.asks:
        return {role: user_function(function) for role, function in operator.functions.items()}
    return operator.functions if policy is None else policy.functions


def _shape(operator: dict[str, Any]) -> list[Any]:
    """The properties of an operator that affect metas or the names in the output."""
    named = operator["kind"] in (Source.__name__.lower(), Sink.__name__.lower())
    return [operator["kind"], operator["rank"], operator["parameters"], operator["name"] if named else ""]
