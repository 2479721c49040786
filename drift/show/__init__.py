"""Graphs for people to look at: as text, as a Mermaid flowchart, as a picture.

>>> print(drift.show.as_text(graph.build()))            # or print(graph)
>>> drift.show.write_picture(graph.build(), "graph.png")
"""

from __future__ import annotations

from drift.show.mermaid import as_mermaid
from drift.show.picture import write_picture
from drift.show.svg import as_svg
from drift.show.text import as_text

__all__ = ["as_mermaid", "as_svg", "as_text", "write_picture"]
