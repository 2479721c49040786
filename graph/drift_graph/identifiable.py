"""Which items may be taken back on their way, and so have to be told from others where a grouping takes them.

Invariant: on every engine, whatever came in which order, what comes to a grouping from behind another one has a
canonical form; where a step made something else, a failure of that step is there in its place.

Why: only what a grouping gave is ever taken back, and a grouping behind it has to know which item goes. What came in
order is never taken back, so without this a payload that nobody can tell from others would pass or not by the order of
arrival. States of scans and processes, and their notes, are left out: they stay where they are kept.
"""

from __future__ import annotations

from typing import Any

from drift_graph.canonical import NoCanonicalForm, canonical, have_forms
from drift_graph.failures import without_form
from drift_graph.graph import Dataflow
from drift_graph.item import Failure
from drift_graph.operators import Group, Operator


class Identifiable:
    """Looks at what one operator sends to groupings.

    Args:
        operator: what made the payloads.
    """

    def __init__(self, operator: Operator) -> None:
        self._operator = operator

    def are(self, payloads: list[Any]) -> bool:
        """Whether all have a canonical form, as far as their types tell at a look."""
        return have_forms(payloads)

    def failure(self, payload: Any) -> Failure | None:
        """What takes the place of a payload without canonical form."""
        try:
            canonical(payload)
        except NoCanonicalForm as none:
            return without_form(self._operator, none, payload)
        return None


def looked_at(dataflow: Dataflow) -> dict[str, Identifiable]:
    """By name, the operators whose items are looked at where they go to groupings."""
    behind: dict[str, None] = {}
    todo = [operator.name for operator in dataflow.operators if isinstance(operator, Group)]
    while todo:
        name = todo.pop()
        if name not in behind:
            behind[name] = None
            todo += [consumer.name for consumer in dataflow.consumers(name)]
    return {
        name: Identifiable(dataflow[name])
        for name in behind
        if not getattr(getattr(dataflow[name], "function", None), "carries_state", False)
    }
