"""A graph as SVG: boxes for operators, frames around the operators of one step, dotted lines for feedback edges.

Invariant: all positions are those of `drawing_of`; this module only adds colours.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from html import escape

from drift.show.boxes import CHARACTER, DETAIL, PADDING, TITLE, PlacedBox, cut, drawing_of
from drift.show.layout import Layout, Point, Rectangle
from drift.show.steps import columns_of
from drift_graph.graph import Dataflow

_FONT = "'DejaVu Sans Mono', Menlo, Consolas, 'Liberation Mono', monospace"
_MARGIN = 20.0

_INK, _GREY, _LINE, _BACK = "#1c2733", "#5a6775", "#4a5866", "#b3402a"
_FILLS = {  # fill and border
    "source": ("#e3f1e5", "#4e8d58"),
    "sink": ("#e2ecf8", "#4a78ad"),
    "group": ("#fdf0d5", "#c08a2b"),
    "map": ("#ffffff", "#7b8794"),
}


def as_svg(dataflow: Dataflow) -> str:
    """A picture, dark on white, from sources at the top to sinks at the bottom.

    Raises:
        SettingsError: where the extra `picture` is not installed.
    """
    drawing = drawing_of(dataflow)
    parts = [_head(dataflow, drawing.layout)]
    parts += [_rect(frame.at, "#f4f6f8", "#b9c2cc", 8) for frame in drawing.frames]
    parts += [_drawn_line(line.points, line.tip, line.edge.feedback) for line in drawing.lines]
    parts += [_drawn_title(frame.at, frame.texts) for frame in drawing.frames]
    parts += [_drawn_box(box) for box in drawing.boxes]
    return "\n".join([*parts, "</g>", "</svg>", ""])


def _head(dataflow: Dataflow, layout: Layout) -> str:
    title = cut(f"graph {dataflow.name}", 100)
    width = max(layout.width, columns_of(title) * TITLE * CHARACTER) + 2 * _MARGIN
    height = layout.height + 2 * _MARGIN + 26
    shift = (width - layout.width) / 2
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width:.0f}" height="{height:.0f}" '
        f'viewBox="0 0 {width:.0f} {height:.0f}" font-family="{_FONT}">\n'
        f"<title>{escape(dataflow.name, quote=False)}</title>\n"
        f'<rect width="100%" height="100%" fill="#ffffff"/>\n'
        f"{_text(_MARGIN, _MARGIN + 6, title, TITLE, _GREY)}\n"
        f'<g transform="translate({shift:.1f} {_MARGIN + 26:.1f})">'
    )


def _drawn_title(at: Rectangle, title: Sequence[str]) -> str:
    """A frame's title; a line that happens to pass behind it stops short of the letters."""
    halo = 'stroke="#f4f6f8" stroke-width="6" stroke-linejoin="round" paint-order="stroke"'
    name, location = title
    return "\n".join(
        [
            f"<g {halo}>",
            _text(at.left + PADDING, at.top + 20, name, TITLE, _INK),
            _text(at.left + PADDING, at.top + 34, location, DETAIL, _GREY),
            "</g>",
        ]
    )


def _drawn_box(box: PlacedBox) -> str:
    at, shape = box.at, box.operator.kind
    fill, border = _FILLS[shape]
    radius = at.height / 2 if shape in ("source", "sink") else 5.0
    middle = at.left + at.width / 2
    title, does, rank = box.texts
    return "\n".join(
        [
            f"<g><title>{escape(box.tooltip, quote=False)}</title>",
            _rect(at, fill, border, radius),
            _text(middle, at.top + 18, title, TITLE, _INK, "middle"),
            _text(middle, at.top + 33, does, DETAIL, _INK, "middle"),
            _text(middle, at.top + 46, rank, DETAIL, _GREY, "middle"),
            "</g>",
        ]
    )


def _drawn_line(points: Sequence[Point], tip: Point, back: bool) -> str:
    colour = _BACK if back else _LINE
    numbers = [f"{point.x:.1f} {point.y:.1f}" for point in points]
    path = f"M {numbers[0]} C {', '.join(numbers[1:])}"
    dots = ' stroke-dasharray="2 4" stroke-linecap="round"' if back else ""
    return (
        f'<path d="{path}" fill="none" stroke="{colour}" stroke-width="1.6"{dots}/>\n{_arrow(points[-1], tip, colour)}'
    )


def _arrow(end: Point, tip: Point, colour: str) -> str:
    """A head from the end of a line to its tip."""
    length = math.hypot(tip.x - end.x, tip.y - end.y) or 1.0
    across = Point(-(tip.y - end.y) / length * 4, (tip.x - end.x) / length * 4)
    corners = (tip, Point(end.x + across.x, end.y + across.y), Point(end.x - across.x, end.y - across.y))
    return f'<polygon points="{" ".join(f"{x:.1f},{y:.1f}" for x, y in corners)}" fill="{colour}"/>'


def _rect(at: Rectangle, fill: str, border: str, radius: float) -> str:
    return (
        f'<rect x="{at.left:.1f}" y="{at.top:.1f}" width="{at.width:.1f}" height="{at.height:.1f}" rx="{radius:.1f}" '
        f'fill="{fill}" stroke="{border}" stroke-width="1.2"/>'
    )


def _text(x: float, y: float, text: str, size: float, colour: str, anchor: str = "start") -> str:
    return (
        f'<text x="{x:.1f}" y="{y:.1f}" font-size="{size}" fill="{colour}" text-anchor="{anchor}" '
        f'xml:space="preserve">{escape(text, quote=False)}</text>'
    )
