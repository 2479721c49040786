"""A graph as a picture: a box for each step as it was written, dotted lines for feedback edges between steps.

Invariant: no text is wider than its box. Why: the font is monospaced, so a text's width is its length, and a text that
is too long is cut with an ellipsis; the box's tooltip has the full text.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from html import escape
from pathlib import Path
from typing import NamedTuple
from urllib.parse import quote

from drift.show.layout import Box, Line, Point, Rectangle, lay_out
from drift.show.steps import DeclaredStep, columns_of, cut, short_location, steps_of, what_it_does
from drift_graph.errors import SettingsError
from drift_graph.graph import Dataflow
from drift_graph.operators import Edge

_FONT = "'DejaVu Sans Mono', Menlo, Consolas, 'Liberation Mono', monospace"
_CHARACTER = 0.61  # width of the font, of its size; Menlo and DejaVu have 0.602, the others less
_TITLE, _DETAIL = 13.0, 10.5  # font sizes
_PADDING = 12.0
_MARGIN, _LIVE_MARGIN = 20.0, 16.0
_CHARACTERS_MAX = 40
_PNG_ZOOM = 2.0  # pixels for each point
#: Room beside an edge for its numbers: two lines.
_NUMBERS = (128.0, 30.0)

_COLOURS = {
    "ink": "#1c2733", "grey": "#5a6775", "line": "#4a5866", "loop": "#b3402a",
    "source": "#e3f1e5", "source-edge": "#4e8d58", "sink": "#e2ecf8", "sink-edge": "#4a78ad",
    "group": "#fdf0d5", "group-edge": "#c08a2b", "map": "#ffffff", "map-edge": "#7b8794",
}  # fmt: skip


def as_svg(dataflow: Dataflow, *, live: bool = False) -> str:
    """A picture, from sources at the top to sinks at the bottom.

    Args:
        live: whether it is for the page of a run: then its colours are the page's, and each edge has two empty lines
            of text for its numbers. Otherwise it is dark on white, with a title.

    Raises:
        SettingsError: where the extra `picture` is not installed.
    """
    colours = {name: f"var(--{name})" for name in _COLOURS} if live else _COLOURS
    return _Picture(dataflow, colours, live).svg()


def write_picture(dataflow: Dataflow, path: str | Path) -> None:
    """Write a .svg or .png file.

    Raises:
        SettingsError: for another ending, or where the extra `picture` is not installed.
    """
    path = Path(path)
    ending = path.suffix.lower()
    if ending == ".svg":
        path.write_text(as_svg(dataflow), encoding="utf-8")
    elif ending == ".png":
        path.write_bytes(_as_png(as_svg(dataflow)))
    else:
        raise SettingsError(f"a picture's name ends in .svg or .png; {str(path)!r} does not")


def _as_png(svg: str) -> bytes:
    try:
        from resvg_py import svg_to_bytes
    except ImportError as error:
        raise SettingsError(
            f"to write a PNG drift needs resvg-py ({error}); pip install 'drifting-state[picture]', or write a .svg"
        ) from None
    return bytes(svg_to_bytes(svg_string=svg, zoom=_PNG_ZOOM))


class _Part(NamedTuple):
    """What a box shows of a step.

    Attributes:
        kind: "source", "sink", "group" or "map".
        texts: three lines: the name, what it does, and where it is.
        full: the text of the tooltip.
    """

    name: str
    kind: str
    texts: Sequence[str]
    full: Sequence[str]


class _Picture:
    def __init__(self, dataflow: Dataflow, colours: Mapping[str, str], live: bool) -> None:
        self._name = dataflow.name
        self._colours = colours
        self._live = live
        steps = steps_of(dataflow)
        self._parts = [_part_of(step) for step in steps]
        ends = {"source": 20.0, "sink": 20.0}  # room that their round ends take
        boxes = [Box(each.name, _width(each.texts) + ends.get(each.kind, 0.0), 54.0) for each in self._parts]
        step_of = {each.name: step.name for step in steps for each in step.operators}
        joined = {edge: (step_of[edge.origin], step_of[edge.target]) for edge in dataflow.edges}
        drawn = {
            (edge.origin, target, edge.feedback): edge for edge, (origin, target) in joined.items() if origin != target
        }
        self._edges = list(drawn.values())
        numbers = _NUMBERS if live else None
        self._layout = lay_out(boxes, [Line(*joined[edge], edge.feedback, numbers) for edge in self._edges])

    def svg(self) -> str:
        layout = self._layout
        edges = zip(self._edges, layout.curves, layout.labels)
        parts = [self._live_head() if self._live else self._head()]
        parts += [self._line(edge, *curve, numbers) for edge, curve, numbers in edges]
        parts += [self._box(each) for each in self._parts]
        return "\n".join([*parts, "</g>", "</svg>", ""])

    def _head(self) -> str:
        title = cut(f"graph {self._name}", 100)
        width = max(self._layout.width, columns_of(title) * _TITLE * _CHARACTER) + 2 * _MARGIN
        height = self._layout.height + 2 * _MARGIN + 26
        shift = (width - self._layout.width) / 2
        return (
            f'<svg xmlns="http://www.w3.org/2000/svg" width="{width:.0f}" height="{height:.0f}" '
            f'viewBox="0 0 {width:.0f} {height:.0f}" font-family="{_FONT}">\n'
            f"<title>{_escaped(self._name)}</title>\n"
            f'<rect width="100%" height="100%" fill="#ffffff"/>\n'
            f"{self._text(_MARGIN, _MARGIN + 6, title, _TITLE, 'grey')}\n"
            f'<g transform="translate({shift:.1f} {_MARGIN + 26:.1f})">'
        )

    def _live_head(self) -> str:
        rights = [point.x for points, _ in self._layout.curves for point in points]
        width = max([self._layout.width, *rights]) + 2 * _LIVE_MARGIN
        height = self._layout.height + 2 * _LIVE_MARGIN
        return (
            f'<svg xmlns="http://www.w3.org/2000/svg" width="{width:.1f}" height="{height:.1f}" role="img" '
            f'viewBox="{-_LIVE_MARGIN} {-_LIVE_MARGIN} {width:.1f} {height:.1f}" preserveAspectRatio="xMidYMin meet">\n'
            f"<title>graph {_escaped(self._name)}</title>\n<g>"
        )

    def _box(self, part: _Part) -> str:
        at, shape = self._layout.boxes[part.name], part.kind
        radius = at.height / 2 if shape in ("source", "sink") else 5.0
        middle = at.left + at.width / 2
        title, does, where = part.texts
        busy = at._replace(left=at.left + radius / 2, top=at.top + at.height - 4, height=2.5)
        return "\n".join(
            [
                f"<g><title>{_escaped(chr(10).join(part.full))}</title>",
                self._rect(at, shape, f"{shape}-edge", radius),
                *([self._busy(part.name, busy, at.width - radius)] if self._live else []),
                self._text(middle, at.top + 18, title, _TITLE, "ink", "middle"),
                self._text(middle, at.top + 33, does, _DETAIL, "ink", "middle"),
                self._text(middle, at.top + 46, where, _DETAIL, "grey", "middle"),
                "</g>",
            ]
        )

    def _line(self, edge: Edge, points: Sequence[Point], tip: Point, numbers: Point | None) -> str:
        colour = self._colours["loop" if edge.feedback else "line"]
        shown = [f"{point.x:.1f} {point.y:.1f}" for point in points]
        path = f"M {shown[0]} C {', '.join(shown[1:])}"
        more = ' stroke-dasharray="2 4" stroke-linecap="round"' if edge.feedback else ""
        if numbers is not None:
            more += f' data-origin="{_quoted(edge.origin)}" data-target="{_quoted(edge.target)}"'
        drawn = f'<path d="{path}" fill="none" stroke="{colour}" stroke-width="1.6"{more}/>'
        drawn += f"\n{_arrow(points[-1], tip, colour)}"
        if numbers is not None:
            drawn += f"\n{self._text(numbers.x, numbers.y - 3, '', _DETAIL, 'ink', 'middle')}"
            drawn += f"\n{self._text(numbers.x, numbers.y + 9, '', 9.5, 'grey', 'middle')}"
        return drawn

    def _rect(self, at: Rectangle, fill: str, border: str, radius: float) -> str:
        return (
            f'<rect x="{at.left:.1f}" y="{at.top:.1f}" width="{at.width:.1f}" height="{at.height:.1f}" '
            f'rx="{radius:.1f}" fill="{self._colours[fill]}" stroke="{self._colours[border]}" stroke-width="1.2"/>'
        )

    def _busy(self, name: str, at: Rectangle, width: float) -> str:
        """A bar of no width yet, for the share of time that a box is at work."""
        return (
            f'<rect class="busy" x="{at.left:.1f}" y="{at.top:.1f}" width="0" height="{at.height:.1f}" '
            f'data-name="{_quoted(name)}" data-width="{width:.1f}"/>'
        )

    def _text(self, x: float, y: float, text: str, size: float, colour: str, anchor: str = "start") -> str:
        return (
            f'<text x="{x:.1f}" y="{y:.1f}" font-size="{size}" fill="{self._colours[colour]}" text-anchor="{anchor}" '
            f'xml:space="preserve">{_escaped(text)}</text>'
        )


def _escaped(text: str) -> str:
    """Text between tags; XML cannot hold most characters that are not printable."""
    return escape(
        "".join(each if each == "\n" or each.isprintable() else "\N{REPLACEMENT CHARACTER}" for each in text),
        quote=False,
    )


def _quoted(name: str) -> str:
    """A name for an attribute, as in a URL: XML would make spaces of its line ends."""
    return quote(name, errors="replace")


def _width(texts: Sequence[str]) -> float:
    """The width of a box around lines of text, of which the first is a title."""
    sizes = (_TITLE, _DETAIL, _DETAIL)
    widest = max(columns_of(text) * size for text, size in zip(texts, sizes))
    return max(90.0, math.ceil(widest * _CHARACTER + 2 * _PADDING))


def _part_of(step: DeclaredStep) -> _Part:
    kinds = {each.kind for each in step.operators}
    kind = next(each for each in ("source", "sink", "group", "map") if each in kinds)
    inside = [f"{step.short_name(each)}: {what_it_does(each)}" for each in step.operators]
    does = f"{len(inside)} operators" if step.is_sugar else what_it_does(step.operators[0])
    texts = [cut(text, _CHARACTERS_MAX) for text in (step.name, does, short_location(step.where))]
    return _Part(step.name, kind, texts, [step.name, *inside, short_location(step.where, full=True)])


def _arrow(end: Point, tip: Point, colour: str) -> str:
    """A head from the end of a line to its tip."""
    length = math.hypot(tip.x - end.x, tip.y - end.y) or 1.0
    across = Point(-(tip.y - end.y) / length * 4, (tip.x - end.x) / length * 4)
    corners = (tip, Point(end.x + across.x, end.y + across.y), Point(end.x - across.x, end.y - across.y))
    return f'<polygon points="{" ".join(f"{x:.1f},{y:.1f}" for x, y in corners)}" fill="{colour}"/>'
