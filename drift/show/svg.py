"""A graph as a picture: a box for each step as it was written, dotted lines for feedback edges between steps.

Invariant: no text is wider than its box, and the picture depends on the graph alone.

Why: Graphviz's dot draws boxes and lines (through pygraphviz, whose wheels include it); it gets no text, so it needs no
fonts. Texts are written into its boxes: the font is monospaced, so a text's width is its length, and one that is too
long is cut with an ellipsis; the box's tooltip has the full text.
"""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple
from urllib.parse import quote
from xml.etree import ElementTree
from xml.etree.ElementTree import Element, SubElement

from drift.show.steps import DeclaredStep, columns_of, cut, short_location, steps_of, what_it_does, what_was_written
from drift_graph.errors import SettingsError
from drift_graph.graph import Dataflow
from drift_graph.operators import Edge

_SVG = "http://www.w3.org/2000/svg"
_FONT = "'DejaVu Sans Mono', Menlo, Consolas, 'Liberation Mono', monospace"
_CHARACTER = 0.61  # width of the font, of its size; Menlo and DejaVu have 0.602, the others less
_TITLE, _DETAIL = 13.0, 10.5  # font sizes
_PADDING, _HEIGHT = 12.0, 54.0  # of a box
_CHARACTERS_MAX = 40
_PNG_ZOOM = 2  # pixels for each point; before resvg-py 0.3.4 it takes no float
#: Beside an edge, room for its numbers: two lines.
_NUMBERS = (
    '<<table border="1" cellborder="0" cellpadding="0" cellspacing="0" fixedsize="true" width="128" height="30">'
    "<tr><td></td></tr></table>>"
)

_COLOURS = {
    "ink": "#1c2733", "grey": "#5a6775", "line": "#4a5866", "loop": "#b3402a",
    "source": "#e3f1e5", "source-edge": "#4e8d58", "sink": "#e2ecf8", "sink-edge": "#4a78ad",
    "group": "#fdf0d5", "group-edge": "#c08a2b", "map": "#ffffff", "map-edge": "#7b8794",
}  # fmt: skip

ElementTree.register_namespace("", _SVG)


def as_svg(dataflow: Dataflow, *, live: bool = False) -> str:
    """A picture, from sources at the top to sinks at the bottom.

    Args:
        live: whether it is for the page of a run: then its colours are the page's, and each edge has two empty lines
            of text for its numbers. Otherwise it is dark on white.

    Raises:
        SettingsError: where the extra `picture` is not installed.
    """
    steps = steps_of(dataflow)
    parts = [_part_of(step) for step in steps]
    step_of = {each.name: step.name for step in steps for each in step.operators}
    joined = {edge: (step_of[edge.origin], step_of[edge.target]) for edge in dataflow.edges}
    edges = {
        (edge.origin, target, edge.feedback): edge for edge, (origin, target) in joined.items() if origin != target
    }
    picture = ElementTree.fromstring(_drawn(parts, [(edge, *joined[edge]) for edge in edges.values()], live=live))
    sides = {side: (picture.get(side) or "").removesuffix("pt") for side in ("width", "height")}
    picture.attrib.update(**sides, **{"font-family": _FONT})
    (whole,) = picture.findall(f"{{{_SVG}}}g")
    pen = _Pen({name: f"var(--{name})" for name in _COLOURS} if live else _COLOURS, live)
    by_id = {group.get("id", ""): group for group in whole.findall(f"{{{_SVG}}}g")}
    for index, part in enumerate(parts):
        pen.write_into(by_id[f"box{index}"], part)
    for index, edge in enumerate(edges.values()):
        pen.name_ends(by_id[f"line{index}"], edge)
    title = Element(f"{{{_SVG}}}title")
    title.text = _printable(f"graph {dataflow.name}")
    picture.insert(0, title)
    if live:
        whole.remove(whole.findall(f"{{{_SVG}}}polygon")[0])  # the white ground
    return ElementTree.tostring(picture, encoding="unicode")


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


def _drawn(parts: Sequence[_Part], lines: Sequence[tuple[Edge, str, str]], *, live: bool) -> bytes:
    """Boxes and lines without texts, as dot draws them.

    Args:
        lines: each with the steps at its ends; one that goes back is drawn past the boxes between.

    Raises:
        SettingsError: where pygraphviz is not installed.
    """
    try:
        from pygraphviz import AGraph
    except ImportError as error:
        raise SettingsError(
            f"to lay out a picture drift needs pygraphviz ({error}); pip install 'drifting-state[picture]', or show "
            f"the graph as text or Mermaid, which need nothing"
        ) from None
    graph = AGraph(directed=True, strict=False)
    graph.graph_attr.update(nodesep="0.45", ranksep="0.5", pad="0.25")
    graph.node_attr.update(shape="box", label="", fixedsize="true", height=_HEIGHT / 72)
    ids = {part.name: f"box{index}" for index, part in enumerate(parts)}
    for part in parts:
        style = "rounded,filled" if part.kind in ("source", "sink") else "filled"
        graph.add_node(ids[part.name], id=ids[part.name], style=style, width=_width(part.texts) / 72)
    for index, (edge, *ends) in enumerate(lines):
        more = {"label": _NUMBERS} if live else {}
        if edge.feedback:  # drawn from its target, so that it runs with the flow
            ends, more = ends[::-1], {**more, "dir": "back", "tailport": "e", "headport": "e", "style": "dotted"}
        graph.add_edge(*map(ids.__getitem__, ends), key=str(index), id=f"line{index}", **more)
    picture: bytes = graph.draw(format="svg", prog="dot")
    return picture


class _Pen:
    """Colours and writes what dot has drawn."""

    def __init__(self, colours: dict[str, str], live: bool) -> None:
        self._colours, self._live = colours, live

    def write_into(self, group: Element, part: _Part) -> None:
        """Write the texts of a step into its box."""
        tooltip, shape = group
        tooltip.text = _printable("\n".join(part.full))
        shape.attrib.update(fill=self._colours[part.kind], stroke=self._colours[f"{part.kind}-edge"])
        left, top, right, _ = _bounds(shape)
        if self._live:  # a bar of no width yet, for the share of time that the step is at work
            at = {"x": f"{left + 10:.1f}", "y": f"{top + _HEIGHT - 4:.1f}", "width": "0", "height": "2.5"}
            of = {"class": "busy", "data-name": _quoted(part.name), "data-width": f"{right - left - 20:.1f}"}
            SubElement(group, f"{{{_SVG}}}rect", {**at, **of})
        rows = zip(part.texts, (18, 33, 46), (_TITLE, _DETAIL, _DETAIL), ("ink", "ink", "grey"))
        for text, below, size, colour in rows:
            self._text(group, (left + right) / 2, top + below, text, size, colour)

    def name_ends(self, group: Element, edge: Edge) -> None:
        """Say at a line which edge it is, where the page of a run is to write numbers beside it."""
        title, path, arrow, *room = group
        group.remove(title)
        colour = self._colours["loop" if edge.feedback else "line"]
        path.attrib.update({"stroke": colour, "stroke-width": "1.6"})
        arrow.attrib.update(fill=colour, stroke=colour)
        if self._live:
            path.attrib.update({"data-origin": _quoted(edge.origin), "data-target": _quoted(edge.target)})
            for each in room:
                left, top, right, bottom = _bounds(next(each.iter(f"{{{_SVG}}}polygon")))
                group.remove(each)
                for below, size, colour in ((-3, _DETAIL, "ink"), (9, 9.5, "grey")):
                    self._text(group, (left + right) / 2, (top + bottom) / 2 + below, "", size, colour)

    def _text(self, group: Element, x: float, y: float, text: str, size: float, colour: str) -> None:
        at = {"x": f"{x:.1f}", "y": f"{y:.1f}", "font-size": f"{size}", "fill": self._colours[colour]}
        SubElement(group, f"{{{_SVG}}}text", {**at, "text-anchor": "middle"}).text = _printable(text)


def _bounds(shape: Element) -> tuple[float, float, float, float]:
    """Left, top, right and bottom of a path or a polygon."""
    points = re.findall(r"(-?[\d.]+),(-?[\d.]+)", shape.get("points") or shape.get("d") or "")
    across, down = zip(*((float(x), float(y)) for x, y in points))
    return min(across), min(down), max(across), max(down)


def _printable(text: str) -> str:
    """XML cannot hold most characters that are not printable."""
    return "".join(each if each == "\n" or each.isprintable() else "\N{REPLACEMENT CHARACTER}" for each in text)


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
    does = what_it_does(step.operators[0])
    if step.is_sugar:
        does = what_was_written(step) or f"{len(inside)} operators"
    texts = [cut(text, _CHARACTERS_MAX) for text in (step.name, does, short_location(step.where))]
    return _Part(step.name, kind, texts, [step.name, *inside, short_location(step.where, full=True)])
