"""A graph as a Mermaid flowchart, which GitHub, notebooks and many editors draw.

Invariant: names of the user's never appear outside a quoted label, so no name can break the syntax.
"""

from __future__ import annotations

from drift.show.steps import rank_label, short_location, steps_of, what_it_does
from drift_graph.graph import Dataflow
from drift_graph.operators import Operator

_SHAPES = {"source": ("([", "])"), "sink": ("[/", "/]"), "group": ("[[", "]]"), "map": ("[", "]")}
_ENTITIES = {"&": "amp", '"': "quot", "<": "lt", ">": "gt", "#": "35", "`": "96", ";": "59", "\\": "92", "*": "42"}


def as_mermaid(dataflow: Dataflow) -> str:
    """A flowchart: a subgraph for each step of several operators, dotted arrows for feedback edges."""
    ids = {operator.name: f"n{index}" for index, operator in enumerate(dataflow.operators)}
    lines = ["flowchart TD"]
    for index, step in enumerate(steps_of(dataflow)):
        if not step.is_sugar:
            operator = step.operators[0]
            lines.append(f"    {_node(dataflow, ids, operator, step.name, short_location(step.where))}")
            continue
        lines.append(f'    subgraph s{index}["{escaped(f"{step.name} ({short_location(step.where)})")}"]')
        lines += [f"        {_node(dataflow, ids, each, step.short_name(each), '')}" for each in step.operators]
        lines.append("    end")
    for edge in dataflow.edges:
        arrow = "-. feedback .->" if edge.feedback else "-->"
        lines.append(f"    {ids[edge.origin]} {arrow} {ids[edge.target]}")
    return "\n".join(lines) + "\n"


def _node(dataflow: Dataflow, ids: dict[str, str], operator: Operator, title: str, location: str) -> str:
    before, after = _SHAPES[operator.kind]
    lines = [title, what_it_does(operator), ", ".join(filter(None, (rank_label(dataflow, operator), location)))]
    label = "<br>".join(escaped(line) for line in lines)
    return f'{ids[operator.name]}{before}"{label}"{after}'


def escaped(text: str) -> str:
    """Text for inside a quoted label: Mermaid's entities for what it or HTML would take as syntax."""
    return "".join(f"#{_ENTITIES[each]};" if each in _ENTITIES else " " if each.isspace() else each for each in text)
