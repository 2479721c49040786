"""The picture of a graph as data: the layout of `drift show`, for a page that draws it in its own colours."""

from __future__ import annotations

from typing import Any

from drift.show.boxes import drawing_of
from drift.show.layout import Point, Rectangle
from drift_graph.graph import Dataflow

#: Room beside an edge for its numbers: two lines.
_LABEL = (128.0, 30.0)


def as_data(dataflow: Dataflow) -> dict[str, Any]:
    """Boxes, frames and lines, in points of 1/72 inch, y downwards."""
    drawing = drawing_of(dataflow, label=_LABEL)
    layout = drawing.layout
    rights = [frame.at.left + frame.at.width for frame in drawing.frames]
    rights += [point.x for line in drawing.lines for point in line.points]
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
            for box in drawing.boxes
        ],
        "frames": [{"at": _numbers(frame.at), "texts": list(frame.texts)} for frame in drawing.frames],
        "lines": [
            {
                "origin": line.edge.origin,
                "target": line.edge.target,
                "back": line.edge.feedback,
                "points": [_numbers(point) for point in line.points],
                "tip": _numbers(line.tip),
                "label": _numbers(line.label) if line.label is not None else None,
            }
            for line in drawing.lines
        ],
    }


def _numbers(shape: Point | Rectangle) -> list[float]:
    return [round(number, 1) for number in shape]
