"""Graphs for people to look at: as text, as a Mermaid flowchart, as a picture.

A `drift.Graph` prints as its text, and a notebook shows its picture. For files:

    import drift.show
    drift.show.write_picture(graph.build(), "graph.png")
"""

from __future__ import annotations

from drift.show.mermaid import as_mermaid
from drift.show.svg import as_svg, write_picture
from drift.show.text import as_table, as_text

__all__ = ["as_mermaid", "as_svg", "as_table", "as_text", "write_picture"]
