"""A graph as SVG: boxes for operators, frames around the operators of one step, dotted lines for what goes back.

Invariant: no text is wider than its box. Why: the font is monospaced, so a text's width is its length, and what is
too long is cut with an ellipsis; the whole of it is in the box's tooltip.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from xml.sax.saxutils import escape, quoteattr

from drift.show.layout import Box, Frame, Layout, Line, Point, Rectangle, lay_out
from drift.show.steps import Step, columns_of, rank_label, shape_of, short_place, steps_of, what_it_does
from drift_graph.graph import Dataflow
from drift_graph.operators import Operator, Sink, Source

_FONT = "'DejaVu Sans Mono', Menlo, Consolas, 'Liberation Mono', monospace"
_CHARACTER = 0.61  # of the font size; Menlo and DejaVu have 0.602, the others less
_TITLE, _DETAIL = 13.0, 10.5  # font sizes
_PADDING = 12.0
_MARGIN = 20.0
_CHARACTERS_MAX = 40

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
    steps = steps_of(dataflow)
    texts = {each.name: _texts(dataflow, step, each) for step in steps for each in step.operators}
    titles = {step.name: _frame_title(step) for step in steps if step.is_sugar}
    boxes = [
        Box(each.name, _width(texts[each.name]) + 2 * _end_width(each), 54.0, step.name if step.is_sugar else "")
        for step in steps
        for each in step.operators
    ]
    frames = [Frame(name, _width(title) - 2 * _PADDING, 28.0) for name, title in titles.items()]
    lines = [Line(edge.origin, edge.target, edge.feedback) for edge in dataflow.edges]
    layout = lay_out(boxes, frames, lines)
    parts = [_head(dataflow, layout)]
    places = {name: _around_loops(name, layout, boxes, lines) for name in titles}
    parts += [_rect(at, "#f4f6f8", "#b9c2cc", 8) for at in places.values()]
    parts += [_drawn_line(*curve, line.back) for curve, line in zip(layout.curves, lines)]
    parts += [_drawn_title(places[name], title) for name, title in titles.items()]
    parts += [
        _drawn_box(layout.boxes[each.name], each, texts[each.name], short_place(each.where, full=True))
        for step in steps
        for each in step.operators
    ]
    return "\n".join([*parts, "</g>", "</svg>", ""])


def _texts(dataflow: Dataflow, step: Step, operator: Operator) -> list[str]:
    """Three lines: name, what it does, rank and place."""
    if step.is_sugar:
        return [step.short_name(operator), what_it_does(operator), rank_label(dataflow, operator)]
    return [step.name, what_it_does(operator), f"{rank_label(dataflow, operator)}, {short_place(step.where)}"]


def _frame_title(step: Step) -> list[str]:
    return [step.name, short_place(step.where)]


def _head(dataflow: Dataflow, layout: Layout) -> str:
    title = _cut(f"graph {dataflow.name}", 100)
    width = max(layout.width, columns_of(title) * _TITLE * _CHARACTER) + 2 * _MARGIN
    height = layout.height + 2 * _MARGIN + 26
    shift = (width - layout.width) / 2
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width:.0f}" height="{height:.0f}" '
        f'viewBox="0 0 {width:.0f} {height:.0f}" font-family="{_FONT}">\n'
        f"<title>{escape(dataflow.name)}</title>\n"
        f'<rect width="100%" height="100%" fill="#ffffff"/>\n'
        f"{_text(_MARGIN, _MARGIN + 6, title, _TITLE, _GREY)}\n"
        f'<g transform="translate({shift:.1f} {_MARGIN + 26:.1f})">'
    )


def _around_loops(name: str, layout: Layout, boxes: Sequence[Box], lines: Sequence[Line]) -> Rectangle:
    """A frame, wide enough for the lines that go back inside it."""
    at = layout.frames[name]
    inside = {box.name for box in boxes if box.frame == name}
    right = at.left + at.width
    for (points, _), line in zip(layout.curves, lines):
        if line.back and line.origin in inside and line.target in inside:
            right = max(right, *(point.x + 4 for point in points))
    return at._replace(width=right - at.left)


def _drawn_title(at: Rectangle, title: Sequence[str]) -> str:
    """A frame's title; a line that happens to pass behind it stops short of the letters."""
    halo = 'stroke="#f4f6f8" stroke-width="6" stroke-linejoin="round" paint-order="stroke"'
    name, place = (_cut(text, _CHARACTERS_MAX) for text in title)
    return "\n".join(
        [
            f"<g {halo}>",
            _text(at.left + _PADDING, at.top + 20, name, _TITLE, _INK),
            _text(at.left + _PADDING, at.top + 34, place, _DETAIL, _GREY),
            "</g>",
        ]
    )


def _drawn_box(at: Rectangle, operator: Operator, texts: Sequence[str], place: str) -> str:
    shape = shape_of(operator)
    fill, border = _FILLS[shape]
    radius = at.height / 2 if shape in ("source", "sink") else 5.0
    middle = at.left + at.width / 2
    title, does, rank = (_cut(text, _CHARACTERS_MAX) for text in texts)
    tooltip = escape("\n".join([operator.name, what_it_does(operator), place]))
    return "\n".join(
        [
            f"<g><title>{tooltip}</title>",
            _rect(at, fill, border, radius),
            _text(middle, at.top + 18, title, _TITLE, _INK, "middle"),
            _text(middle, at.top + 33, does, _DETAIL, _INK, "middle"),
            _text(middle, at.top + 46, rank, _DETAIL, _GREY, "middle"),
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
        f'<text x="{x:.1f}" y="{y:.1f}" font-size="{size}" fill="{colour}" text-anchor={quoteattr(anchor)} '
        f'xml:space="preserve">{escape(text)}</text>'
    )


def _width(texts: Sequence[str]) -> float:
    """Of a box around lines of text, the first of them a title."""
    sizes = (_TITLE, _DETAIL, _DETAIL)
    widest = max(columns_of(_cut(text, _CHARACTERS_MAX)) * size for text, size in zip(texts, sizes))
    return max(90.0, math.ceil(widest * _CHARACTER + 2 * _PADDING))


def _end_width(operator: Operator) -> float:
    """Room that the round ends of sources and sinks take."""
    return 10.0 if isinstance(operator, (Source, Sink)) else 0.0


def _cut(text: str, columns_max: int) -> str:
    text = "".join(each if each.isprintable() else "\N{REPLACEMENT CHARACTER}" for each in text)
    if columns_of(text) <= columns_max:
        return text
    while columns_of(text) > columns_max - 1:
        text = text[:-1]
    return f"{text}\N{HORIZONTAL ELLIPSIS}"
