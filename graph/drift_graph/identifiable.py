"""Refuses payloads without canonical form between two groupings, where items may be taken back.

Invariant: on every engine and for any order of arrival, every item from one grouping to another has a canonical form;
if a step made a payload without one, a failure of that step takes its place.

Why: only output of a grouping is ever taken back, and the grouping after it has to know which item is cancelled. In
order nothing is taken back, so without this check such a payload would pass or not depending on the order of arrival.
States and timers of scans and processes are exempt: they never leave their bucket.
"""

from __future__ import annotations

from typing import Any

from drift_graph.canonical import NoCanonicalForm, canonical, encode_many
from drift_graph.failures import without_form
from drift_graph.functions import field_of
from drift_graph.graph import Dataflow
from drift_graph.item import Failure
from drift_graph.operators import Operator
from drift_graph.payloads import are_rows
from drift_graph.ranks import reached


class Identifiable:
    """Checks the items that one operator sends to groupings. `operator`: made the payloads."""

    def __init__(self, operator: Operator) -> None:
        self._operator = operator

    def are(self, payloads: list[Any]) -> bool:
        """Whether all have a canonical form."""
        try:
            are_rows(payloads) or encode_many(payloads)
        except NoCanonicalForm:
            return False
        return True

    def failure(self, payload: Any) -> Failure | None:
        """The failure that replaces a payload without canonical form."""
        try:
            canonical(payload)
        except NoCanonicalForm as none:
            return without_form(self._operator, none, payload)
        return None


def checked_operators(dataflow: Dataflow) -> dict[str, Identifiable]:
    """The operators, by name, whose items are checked on their way to groupings."""
    behind = reached(dataflow.groups, lambda name: [each.name for each in dataflow.consumers(name)])
    return {
        name: Identifiable(dataflow[name])
        for name in behind
        if not field_of(getattr(dataflow[name], "function", None), "carries_state", False)
    }
