"""The types of the compiled module; its functions are described where they are, in the .pyx files."""

from typing import Any

#: The checksum of the sources that it was built from.
SOURCE: int

#: Its methods are those of `drift_graph.metas.ListedMetas`.
Metas: Any
#: Its methods are those of `drift_graph.stamp_counts.ListedStamps`.
Stamps: Any

def late_of(times: Any, greatest: int, least: int, lateness: int) -> list[tuple[int, int, int]]: ...
