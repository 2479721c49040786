"""A graph as a picture: boxes for operators, frames around the operators of one step, dotted lines for feedback edges.

Invariant: no text is wider than its box. Why: the font is monospaced, so a text's width is its length, and a text that
is too long is cut with an ellipsis; the box's tooltip has the full text.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from html import escape
from pathlib import Path
from typing import NamedTuple
from urllib.parse import quote

from drift.show.layout import Box, Frame, Layout, Line, Point, Rectangle, lay_out
from drift.show.steps import columns_of, cut, rank_label, short_location, steps_of, what_it_does
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
    "ink": "#1c2733", "grey": "#5a6775", "line": "#4a5866", "loop": "#b3402a", "frame": "#f4f6f8", "rule": "#b9c2cc",
    "source": "#e3f1e5", "source-edge": "#4e8d58", "sink": "#e2ecf8", "sink-edge": "#4a78ad",
    "group": "#fdf0d5", "group-edge": "#c08a2b", "map": "#ffffff", "map-edge": "#7b8794",
}  # fmt: skip


def as_svg(dataflow: Dataflow, *, live: bool = False, steps: bool = False) -> str:
    """A picture, from sources at the top to sinks at the bottom.

    Args:
        live: whether it is for the page of a run: then its colours are the page's, and each edge has two empty lines
            of text for its numbers. Otherwise it is dark on white, with a title.
        steps: whether each step is one box, as it was written; otherwise the operators of a step are in a frame.

    Raises:
        SettingsError: where the extra `picture` is not installed.
    """
    colours = {name: f"var(--{name})" for name in _COLOURS} if live else _COLOURS
    return _Picture(dataflow, colours, live, steps).svg()


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
    """What a box stands for: an operator, or a step.

    Attributes:
        kind: "source", "sink", "group" or "map".
        texts: three lines: the name, what it does, and where it is.
        full: the text of the tooltip.
        frame: the frame around it, if any.
    """

    name: str
    kind: str
    texts: Sequence[str]
    full: Sequence[str]
    frame: str = ""


class _Picture:
    def __init__(self, dataflow: Dataflow, colours: Mapping[str, str], live: bool, steps: bool) -> None:
        self._dataflow = dataflow
        self._colours = colours
        self._live = live
        self._steps = steps_of(dataflow)
        self._parts = list(self._of_steps() if steps else self._of_operators())
        self._titles = {
            step.name: [cut(text, _CHARACTERS_MAX) for text in (step.name, short_location(step.where))]
            for step in self._steps
            if step.is_sugar and not steps
        }
        sized = [(each, _width(each.texts) + 2 * _end_width(each.kind)) for each in self._parts]
        boxes = [Box(each.name, width, 54.0, each.frame) for each, width in sized]
        frames = [Frame(name, _width(title) - 2 * _PADDING, 28.0) for name, title in self._titles.items()]
        part_of = {each.name: step.name if steps else each.name for step in self._steps for each in step.operators}
        ends = {edge: (part_of[edge.origin], part_of[edge.target]) for edge in dataflow.edges}
        drawn = {
            (edge.origin, target, edge.feedback): edge
            for edge, (origin, target) in ends.items()
            if not steps or origin != target
        }
        self._edges = list(drawn.values())
        numbers = _NUMBERS if live else None
        lines = [Line(*ends[edge], edge.feedback, numbers) for edge in self._edges]
        self._layout = lay_out(boxes, frames, lines)
        self._frames = {name: _around_loops(name, self._layout, boxes, lines) for name in self._titles}

    def svg(self) -> str:
        layout = self._layout
        edges = zip(self._edges, layout.curves, layout.labels)
        parts = [self._live_head() if self._live else self._head()]
        parts += [self._rect(at, "frame", "rule", 8) for at in self._frames.values()]
        parts += [self._line(edge, *curve, numbers) for edge, curve, numbers in edges]
        parts += [self._title(at, self._titles[name]) for name, at in self._frames.items()]
        parts += [self._box(each) for each in self._parts]
        return "\n".join([*parts, "</g>", "</svg>", ""])

    def _of_operators(self) -> Iterator[_Part]:
        for step in self._steps:
            for each in step.operators:
                rank, does = rank_label(self._dataflow, each), what_it_does(each)
                lines = [step.name, does, f"{rank}, {short_location(step.where)}"]
                if step.is_sugar:
                    lines = [step.short_name(each), does, rank]
                full = [each.name, does, short_location(each.where, full=True)]
                yield _part(each.name, each.kind, lines, full, step.name * step.is_sugar)

    def _of_steps(self) -> Iterator[_Part]:
        for step in self._steps:
            kinds = {each.kind for each in step.operators}
            kind = next(each for each in ("source", "sink", "group", "map") if each in kinds)
            inside = [f"{step.short_name(each)}: {what_it_does(each)}" for each in step.operators]
            does = f"{len(inside)} operators" if step.is_sugar else what_it_does(step.operators[0])
            lines = [step.name, does, short_location(step.where)]
            yield _part(step.name, kind, lines, [step.name, *inside, short_location(step.where, full=True)])

    def _head(self) -> str:
        title = cut(f"graph {self._dataflow.name}", 100)
        width = max(self._layout.width, columns_of(title) * _TITLE * _CHARACTER) + 2 * _MARGIN
        height = self._layout.height + 2 * _MARGIN + 26
        shift = (width - self._layout.width) / 2
        return (
            f'<svg xmlns="http://www.w3.org/2000/svg" width="{width:.0f}" height="{height:.0f}" '
            f'viewBox="0 0 {width:.0f} {height:.0f}" font-family="{_FONT}">\n'
            f"<title>{_escaped(self._dataflow.name)}</title>\n"
            f'<rect width="100%" height="100%" fill="#ffffff"/>\n'
            f"{self._text(_MARGIN, _MARGIN + 6, title, _TITLE, 'grey')}\n"
            f'<g transform="translate({shift:.1f} {_MARGIN + 26:.1f})">'
        )

    def _live_head(self) -> str:
        rights = [at.left + at.width for at in self._frames.values()]
        rights += [point.x for points, _ in self._layout.curves for point in points]
        width = max([self._layout.width, *rights]) + 2 * _LIVE_MARGIN
        height = self._layout.height + 2 * _LIVE_MARGIN
        return (
            f'<svg xmlns="http://www.w3.org/2000/svg" width="{width:.1f}" height="{height:.1f}" role="img" '
            f'viewBox="{-_LIVE_MARGIN} {-_LIVE_MARGIN} {width:.1f} {height:.1f}" preserveAspectRatio="xMidYMin meet">\n'
            f"<title>graph {_escaped(self._dataflow.name)}</title>\n<g>"
        )

    def _title(self, at: Rectangle, title: Sequence[str]) -> str:
        """A frame's title; a line that happens to pass behind it stops short of the letters."""
        halo = f'stroke="{self._colours["frame"]}" stroke-width="6" stroke-linejoin="round" paint-order="stroke"'
        name, location = title
        return "\n".join(
            [
                f"<g {halo}>",
                self._text(at.left + _PADDING, at.top + 20, name, _TITLE, "ink"),
                self._text(at.left + _PADDING, at.top + 34, location, _DETAIL, "grey"),
                "</g>",
            ]
        )

    def _box(self, part: _Part) -> str:
        at, shape = self._layout.boxes[part.name], part.kind
        radius = at.height / 2 if shape in ("source", "sink") else 5.0
        middle = at.left + at.width / 2
        title, does, rank = part.texts
        busy = at._replace(left=at.left + radius / 2, top=at.top + at.height - 4, height=2.5)
        return "\n".join(
            [
                f"<g><title>{_escaped(chr(10).join(part.full))}</title>",
                self._rect(at, shape, f"{shape}-edge", radius),
                *([self._busy(part.name, busy, at.width - radius)] if self._live else []),
                self._text(middle, at.top + 18, title, _TITLE, "ink", "middle"),
                self._text(middle, at.top + 33, does, _DETAIL, "ink", "middle"),
                self._text(middle, at.top + 46, rank, _DETAIL, "grey", "middle"),
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
    sizes = (_TITLE, _DETAIL, _DETAIL)
    widest = max(columns_of(text) * size for text, size in zip(texts, sizes))
    return max(90.0, math.ceil(widest * _CHARACTER + 2 * _PADDING))


def _end_width(kind: str) -> float:
    """Room that the round ends of sources and sinks take."""
    return 10.0 if kind in ("source", "sink") else 0.0


def _part(name: str, kind: str, lines: Sequence[str], full: Sequence[str], frame: str = "") -> _Part:
    return _Part(name, kind, [cut(line, _CHARACTERS_MAX) for line in lines], full, frame)


def _arrow(end: Point, tip: Point, colour: str) -> str:
    """A head from the end of a line to its tip."""
    length = math.hypot(tip.x - end.x, tip.y - end.y) or 1.0
    across = Point(-(tip.y - end.y) / length * 4, (tip.x - end.x) / length * 4)
    corners = (tip, Point(end.x + across.x, end.y + across.y), Point(end.x - across.x, end.y - across.y))
    return f'<polygon points="{" ".join(f"{x:.1f},{y:.1f}" for x, y in corners)}" fill="{colour}"/>'
