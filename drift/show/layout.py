"""The layout of boxes and lines in a graph's picture; sizes and positions are in points.

Graphviz's dot computes it, through pygraphviz, whose wheels include Graphviz. It gets sizes and no text, so it needs no
fonts, and the layout depends on the graph alone.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from drift_graph.errors import SettingsError


class Point(NamedTuple):
    """Points of 1/72 inch, y downwards."""

    x: float
    y: float


class Rectangle(NamedTuple):
    left: float
    top: float
    width: float
    height: float


@dataclass(frozen=True)
class Box:
    """Something to place."""

    name: str
    width: float
    height: float


@dataclass(frozen=True)
class Line:
    """A line between boxes; a line that goes back is routed past the boxes between, and does not affect the layers.

    Attributes:
        label: width and height of the space to reserve beside it for a label, if any.
    """

    origin: str
    target: str
    back: bool
    label: tuple[float, float] | None = None


@dataclass
class Layout:
    """The positions of all parts.

    Attributes:
        curves: for each line the points of a cubic Bezier curve (1 + 3n of them), then the tip of its arrow.
        labels: for each line the middle of its label, if it has one.
    """

    width: float = 0.0
    height: float = 0.0
    boxes: dict[str, Rectangle] = field(default_factory=dict)
    curves: list[tuple[list[Point], Point]] = field(default_factory=list)
    labels: list[Point | None] = field(default_factory=list)


def lay_out(boxes: Sequence[Box], lines: Sequence[Line]) -> Layout:
    """Place boxes from top to bottom along the lines. Raises SettingsError: where pygraphviz is not installed."""
    drawn = _graphviz(boxes, lines)
    left, bottom, right, top = map(float, drawn["bb"].split(","))
    layout = Layout(right - left, top - bottom)
    placed = {each["name"]: each["pos"] for each in drawn["objects"]}
    for index, box in enumerate(boxes):
        x, y = map(float, placed[f"n{index}"].split(","))
        layout.boxes[box.name] = Rectangle(x - box.width / 2, top - y - box.height / 2, box.width, box.height)
    edges = {int(each["id"]): each for each in drawn.get("edges", ())}
    layout.curves = [_curve(edges[index]["pos"], top) for index in range(len(lines))]
    for index in range(len(lines)):
        at = edges[index].get("lp")
        x, y = map(float, at.split(",")) if at else (0.0, 0.0)
        layout.labels.append(Point(x, top - y) if at else None)
    return layout


def _graphviz(boxes: Sequence[Box], lines: Sequence[Line]) -> dict[str, Any]:
    """The layout by dot, as its JSON."""
    try:
        from pygraphviz import AGraph
    except ImportError as error:
        raise SettingsError(
            f"to lay out a picture drift needs pygraphviz ({error}); pip install 'drifting-state[picture]', or show "
            f"the graph as text or Mermaid, which need nothing"
        ) from None
    graph = AGraph(directed=True, strict=False)
    graph.graph_attr.update(nodesep="0.45", ranksep="0.5", pad="0")
    ids = {box.name: f"n{index}" for index, box in enumerate(boxes)}
    for box in boxes:
        graph.add_node(
            ids[box.name], shape="box", label="", fixedsize="true", width=box.width / 72, height=box.height / 72
        )
    for index, line in enumerate(lines):
        if line.back and line.origin != line.target:  # drawn from its target, so that it runs with the flow
            ends, more = (line.target, line.origin), {"dir": "back", "tailport": "e", "headport": "e"}
        else:
            ends, more = (line.origin, line.target), {}
        if line.label is not None:
            more["label"] = _room(*line.label)
        graph.add_edge(ids[ends[0]], ids[ends[1]], key=str(index), id=str(index), **more)
    answer: dict[str, Any] = json.loads(graph.draw(format="json", prog="dot"))
    return answer


def _room(width: float, height: float) -> str:
    """A label without text that takes so much room."""
    size = f'fixedsize="true" width="{width:.0f}" height="{height:.0f}"'
    return f'<<table border="0" cellborder="0" cellpadding="0" cellspacing="0" {size}><tr><td></td></tr></table>>'


def _curve(position: str, top: float) -> tuple[list[Point], Point]:
    """A line's points from its origin to its target, of "s,x,y e,x,y x,y x,y ..."."""
    tip: Point | None = None
    points: list[Point] = []
    for part in position.split():
        numbers = part.split(",")
        point = Point(float(numbers[-2]), top - float(numbers[-1]))
        if len(numbers) == 3:
            tip = point
        else:
            points.append(point)
    if position.startswith("s"):
        points.reverse()
    assert tip is not None, f"dot gave a line without an arrow: {position}"
    return points, tip
