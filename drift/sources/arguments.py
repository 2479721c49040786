"""The source that a user's argument stands for."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from typing import Any

from drift.sources.base import Source
from drift.sources.frames import FrameSource
from drift.sources.iterables import IterableSource
from drift_graph.errors import SettingsError


def as_source(name: str, given: Any) -> Source:
    """A source from the user's argument for a name."""
    if hasattr(type(given), "mapInArrow"):  # a Spark DataFrame; over Connect it seems to have any attribute
        return FrameSource(given)
    if isinstance(given, Source):
        return given
    if isinstance(given, (str, bytes)):
        raise SettingsError(
            f"source {name!r} is given the text {given!r:.80}; to read a file use drift.sources.text(path), and to "
            f"stream its characters list(...)"
        )
    if isinstance(given, os.PathLike):
        raise SettingsError(
            f"source {name!r} is given the path {given!r:.80}; say what is in the file: drift.sources.text, jsonl or "
            f"csv(path)"
        )
    if isinstance(given, Mapping):
        raise SettingsError(f"source {name!r} is given a dict, which would be its keys only; use .items() or .values()")
    if isinstance(given, (set, frozenset)):
        raise SettingsError(f"source {name!r} is given a set, whose order changes from run to run; use sorted(...)")
    if any(hasattr(type(given), of_tables) for of_tables in ("itertuples", "iter_rows", "__arrow_c_stream__")):
        from drift.sources.tables import is_table, table

        if is_table(given):
            return table(given)
    if isinstance(given, (list, tuple)) and given and all(isinstance(each, Source) for each in given):
        raise SettingsError(
            f"source {name!r} is given a {type(given).__name__} of {len(given)} sources; give each of them a source of "
            f"the graph, and merge the streams: graph.source('a').merge(graph.source('b'))"
        )
    if isinstance(given, Iterable):
        return IterableSource(given)
    raise SettingsError(f"source {name!r} is given {given!r:.80}, which is neither an iterable nor a drift source")
