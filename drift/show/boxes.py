"""The positions and the texts of the parts of a graph's picture; the code that draws it chooses the colours.

Invariant: no text is wider than its box. Why: the font is monospaced, so a text's width is its length, and a text that
is too long is cut with an ellipsis; the box's tooltip has the full text.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from drift.show.layout import Box, Frame, Layout, Line, Point, Rectangle, lay_out
from drift.show.steps import Step, columns_of, rank_label, short_location, steps_of, what_it_does
from drift_graph.graph import Dataflow
from drift_graph.operators import Edge, Operator, Sink, Source

CHARACTER = 0.61  # width of the font, of its size; Menlo and DejaVu have 0.602, the others less
TITLE, DETAIL = 13.0, 10.5  # font sizes
PADDING = 12.0
_CHARACTERS_MAX = 40


class PlacedBox(NamedTuple):
    """An operator; three lines of text."""

    operator: Operator
    at: Rectangle
    texts: Sequence[str]
    tooltip: str


class PlacedFrame(NamedTuple):
    """Around the operators of one step; two lines of text."""

    at: Rectangle
    texts: Sequence[str]


class PlacedLine(NamedTuple):
    """An edge: a cubic Bezier curve, the tip of its arrow, and the middle of its label."""

    edge: Edge
    points: list[Point]
    tip: Point
    label: Point | None


@dataclass(frozen=True)
class Drawing:
    """All of a picture."""

    layout: Layout
    boxes: list[PlacedBox]
    frames: list[PlacedFrame]
    lines: list[PlacedLine]


def drawing_of(dataflow: Dataflow, *, label: tuple[float, float] | None = None) -> Drawing:
    """The positions of all parts, from sources at the top to sinks at the bottom.

    Args:
        dataflow: the graph.
        label: width and height of the space to reserve beside each edge.

    Raises:
        SettingsError: the extra `picture` is not installed.
    """
    steps = steps_of(dataflow)
    texts = {each.name: _texts(dataflow, step, each) for step in steps for each in step.operators}
    titles = {step.name: _frame_title(step) for step in steps if step.is_sugar}
    boxes = [
        Box(each.name, _width(texts[each.name]) + 2 * _end_width(each), 54.0, step.name if step.is_sugar else "")
        for step in steps
        for each in step.operators
    ]
    frames = [Frame(name, _width(title) - 2 * PADDING, 28.0) for name, title in titles.items()]
    lines = [Line(edge.origin, edge.target, edge.feedback, label) for edge in dataflow.edges]
    layout = lay_out(boxes, frames, lines)
    return Drawing(
        layout,
        [
            PlacedBox(each, layout.boxes[each.name], texts[each.name], _tooltip(each))
            for step in steps
            for each in step.operators
        ],
        [PlacedFrame(_around_loops(name, layout, boxes, lines), title) for name, title in titles.items()],
        [PlacedLine(edge, *curve, at) for edge, curve, at in zip(dataflow.edges, layout.curves, layout.labels)],
    )


def _texts(dataflow: Dataflow, step: Step, operator: Operator) -> list[str]:
    """Three lines: name, what it does, rank and location."""
    rank = rank_label(dataflow, operator)
    if step.is_sugar:
        lines = [step.short_name(operator), what_it_does(operator), rank]
    else:
        lines = [step.name, what_it_does(operator), f"{rank}, {short_location(step.where)}"]
    return [cut(line, _CHARACTERS_MAX) for line in lines]


def _tooltip(operator: Operator) -> str:
    return "\n".join([operator.name, what_it_does(operator), short_location(operator.where, full=True)])


def _frame_title(step: Step) -> list[str]:
    return [cut(step.name, _CHARACTERS_MAX), cut(short_location(step.where), _CHARACTERS_MAX)]


def _around_loops(name: str, layout: Layout, boxes: Sequence[Box], lines: Sequence[Line]) -> Rectangle:
    """A frame, wide enough for the lines that go back inside it."""
    at = layout.frames[name]
    inside = {box.name for box in boxes if box.frame == name}
    right = at.left + at.width
    for (points, _), line in zip(layout.curves, lines):
        if line.back and line.origin in inside and line.target in inside:
            right = max(right, *(point.x + 4 for point in points))
    return at._replace(width=right - at.left)


def _width(texts: Sequence[str]) -> float:
    """The width of a box around lines of text, of which the first is a title."""
    sizes = (TITLE, DETAIL, DETAIL)
    widest = max(columns_of(text) * size for text, size in zip(texts, sizes))
    return max(90.0, math.ceil(widest * CHARACTER + 2 * PADDING))


def _end_width(operator: Operator) -> float:
    """Room that the round ends of sources and sinks take."""
    return 10.0 if isinstance(operator, (Source, Sink)) else 0.0


def cut(text: str, columns_max: int) -> str:
    """The text as printable characters, cut to at most `columns_max` columns."""
    text = "".join(each if each.isprintable() else "\N{REPLACEMENT CHARACTER}" for each in text)
    if columns_of(text) <= columns_max:
        return text
    while columns_of(text) > columns_max - 1:
        text = text[:-1]
    return f"{text}\N{HORIZONTAL ELLIPSIS}"
