"""Aggregates whose parts are merged by a function of the user's: do windows have what they have without merging?

Invariant: `unmerged` gives a graph with the same steps, windows and metas, in which each of these aggregates adds its
payloads one by one.

Why: its accumulators are the payloads themselves, so merging them is putting them together. What its output is shows
what the user's function means; only the rounding of floats may depend on how they are grouped, see `are_close`.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import fields, is_dataclass, replace
from functools import reduce
from itertools import chain
from operator import is_
from typing import Any

import msgspec

from drift.flow.accumulators import Aggregate, ReduceSteps
from drift.operators import _ByValue
from drift_graph.canonical import canonical_each
from drift_graph.graph import Dataflow

_FLOATS_DIFFER_BY = 1e-6


class _Unmerged(_ByValue, Aggregate[Any, Any], frozen=True):
    """Another aggregate, whose accumulators are the payloads."""

    of: Aggregate[Any, Any]

    def begin(self, payload: Any) -> Any:
        return ((payload,),)

    def add(self, accumulator: Any, payload: Any) -> Any:
        return (*accumulator, (payload,))

    def merge(self, left: Any, right: Any) -> Any:
        return left + right

    def result(self, accumulator: Any) -> Any:
        first, *rest = chain.from_iterable(accumulator)
        return self.of.result(reduce(self.of.add, rest, self.of.begin(first)))


def unmerged(dataflow: Dataflow) -> Dataflow | None:
    """The graph without the user's merges; None if it has none."""
    operators = tuple(_replaced(each) for each in dataflow.operators)
    return None if all(map(is_, operators, dataflow.operators)) else replace(dataflow, operators=operators)


def _replaced(value: Any) -> Any:
    """A value whose parts are not merged by functions of the user's; itself where none is."""
    if isinstance(value, Aggregate) and _merges_by_user(value):
        return _Unmerged(value)
    if type(value) is tuple and value and isinstance(value[0], Aggregate):
        members = tuple(map(_replaced, value))
        return value if all(map(is_, members, value)) else members
    if not type(value).__module__.startswith("drift"):
        return value  # what the library made holds all aggregates
    if isinstance(value, msgspec.Struct):
        changed = _changed(value, value.__struct_fields__)
        return msgspec.structs.replace(value, **changed) if changed else value
    if is_dataclass(value) and not isinstance(value, type):
        changed = _changed(value, [each.name for each in fields(value) if each.init])
        return replace(value, **changed) if changed else value
    return value


def _changed(value: Any, names: Sequence[str]) -> dict[str, Any]:
    pairs = [(name, getattr(value, name)) for name in names]
    return {name: new for name, old in pairs if (new := _replaced(old)) is not old}


def _merges_by_user(aggregate: Aggregate[Any, Any]) -> bool:
    if isinstance(aggregate, ReduceSteps):
        return aggregate.merged is not None
    return not type(aggregate).__module__.startswith("drift.")


def are_close(left: Any, right: Any) -> bool:
    """Whether two payloads are equal, but for the rounding of floats anywhere in them."""
    if isinstance(left, float) and isinstance(right, float):
        return left == right or math.isclose(left, right, rel_tol=_FLOATS_DIFFER_BY, abs_tol=_FLOATS_DIFFER_BY)
    if type(left) is not type(right):
        return False
    if isinstance(left, dict):
        return list(left) == list(right) and all(map(are_close, left.values(), right.values()))
    if isinstance(left, (list, tuple)):
        return len(left) == len(right) and all(map(are_close, left, right))
    if isinstance(left, msgspec.Struct):
        return all(are_close(getattr(left, name), getattr(right, name)) for name in left.__struct_fields__)
    return canonical_each([left]) == canonical_each([right])
