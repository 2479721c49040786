"""The picture of a graph as data: the layout of `drift show`, for a page that draws it in its own colours."""

from __future__ import annotations

from typing import Any

from drift.show.boxes import place
from drift.show.layout import Point, Rectangle
from drift_graph.graph import Dataflow

#: Room beside an edge for its numbers: two lines.
_LABEL = (128.0, 30.0)


def as_data(dataflow: Dataflow) -> dict[str, Any]:
    """Boxes, frames and lines, in points of 1/72 inch, y downwards."""
    placed = place(dataflow, label=_LABEL)
    layout = placed.layout
    rights = [frame.at.left + frame.at.width for frame in placed.frames]
    rights += [point.x for line in placed.lines for point in line.points]
    return {
        "name": dataflow.name,
        "width": round(max([layout.width, *rights]), 1),
        "height": round(layout.height, 1),
        "boxes": [
            {
                "name": box.operator.name,
                "shape": box.operator.kind,
                "at": _numbers(box.at),
                "texts": list(box.texts),
                "tooltip": box.tooltip,
            }
            for box in placed.boxes
        ],
        "frames": [{"at": _numbers(frame.at), "texts": list(frame.texts)} for frame in placed.frames],
        "lines": [
            {
                "origin": line.edge.origin,
                "target": line.edge.target,
                "back": line.edge.feedback,
                "points": [_numbers(point) for point in line.points],
                "tip": _numbers(line.tip),
                "label": _numbers(line.label) if line.label is not None else None,
            }
            for line in placed.lines
        ],
    }


def _numbers(place: Point | Rectangle) -> list[float]:
    return [round(number, 1) for number in place]
