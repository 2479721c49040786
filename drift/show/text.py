"""A graph as lines of text: a row for each operator, sugar as a heading over what it lowers to."""

from __future__ import annotations

from drift.show.steps import DeclaredStep, columns_of, short_location, steps_of, what_it_does, what_was_written
from drift_graph.graph import Dataflow
from drift_graph.operators import Operator

_HEADINGS = ("step", "what it does", "rank", "declared", "takes")


def as_text(dataflow: Dataflow) -> str:
    """Steps in the order of the flow, the operators of each, and the origins of their items."""
    rows: list[tuple[str, ...]] = []
    steps = steps_of(dataflow)
    for step in steps:
        location = short_location(step.where, full=True)
        if step.is_sugar:
            rows.append((step.name, what_was_written(step) or f"{len(step.operators)} operators:", "", location, ""))
            rows += [(f"  {step.short_name(each)}", *_cells(dataflow, step, each, "")) for each in step.operators]
        else:
            rows.append((step.name, *_cells(dataflow, step, step.operators[0], location)))
    counts = [
        _count(len(dataflow.sources), "source"),
        _count(len(steps) - len(dataflow.sources) - len(dataflow.sinks), "step"),
        _count(len(dataflow.sinks), "sink"),
    ]
    back = sum(edge.feedback for edge in dataflow.edges)
    if back:
        counts.append(_count(back, "feedback edge"))
    schemas = dataflow.schemas.items()
    lines = ["", *as_table([("rows of", "fields"), *schemas])] if schemas else []
    return "\n".join([f"graph {dataflow.name!r}: {', '.join(counts)}", "", *as_table([_HEADINGS, *rows]), *lines])


def _cells(dataflow: Dataflow, step: DeclaredStep, operator: Operator, location: str) -> tuple[str, str, str, str]:
    rank = dataflow.ranks.get(operator.name)
    return what_it_does(operator), "" if rank is None else str(rank), location, _origins(dataflow, step, operator)


def _origins(dataflow: Dataflow, step: DeclaredStep, operator: Operator) -> str:
    """The origins of an operator's items; feedback edges are marked."""
    inside = {each.name: step.short_name(each) for each in step.operators} if step.is_sugar else {}
    edges = [edge for edge in dataflow.edges if edge.target == operator.name]
    forward = [inside.get(edge.origin, edge.origin) for edge in edges if not edge.feedback]
    back = [f"back from {inside.get(edge.origin, edge.origin)}" for edge in edges if edge.feedback]
    return ", ".join(forward + back)


def as_table(rows: list[tuple[str, ...]]) -> list[str]:
    """Rows with aligned columns; the last column may have any length."""
    widths = [max(columns_of(row[column]) for row in rows) for column in range(len(rows[0]))]
    padded = [[cell + " " * (width - columns_of(cell)) for cell, width in zip(row, widths)] for row in rows]
    return ["  ".join(row).rstrip() for row in padded]


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"
