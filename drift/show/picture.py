"""A graph's picture as a file."""

from __future__ import annotations

from pathlib import Path

from drift.show.svg import as_svg
from drift_graph.errors import SettingsError
from drift_graph.graph import Dataflow

_PNG_ZOOM = 2.0  # pixels for each point


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
