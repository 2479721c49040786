"""The source that a user's argument stands for."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from typing import Any

from drift.extras import need
from drift.sources.base import Source
from drift.sources.ended import has_ended
from drift.sources.frames import FrameSource
from drift.sources.iterables import IterableSource
from drift_graph.errors import SettingsError


def as_sources(values: Mapping[str, Any]) -> dict[str, Source]:
    """Sources from the user's arguments by name.

    Raises:
        SettingsError: as `as_source`; or two sources would share what can be read once, so each would miss what the
            other takes.
    """
    sources = {name: as_source(name, value) for name, value in values.items()}
    shared: list[tuple[str, Any]] = []
    for name, source in sources.items():
        once = getattr(source, "read_once", None)
        other = next((other for other, taken in shared if taken is once), None)
        if once is not None and other is not None:
            raise SettingsError(
                f"sources {other!r} and {name!r} are given one {type(once).__name__}, which can be read once: each "
                f"would miss the items that the other takes; read it into a list, or use the stream of one source twice"
            )
        if once is not None and has_ended(once):
            raise SettingsError(
                f"source {name!r} is given a {type(once).__name__} that has ended, or was closed: it can be read once, "
                f"and was; make a new one, or give a list, which any number of runs may read"
            )
        shared.append((name, once))
    return sources


def as_source(name: str, value: Any) -> Source:
    """A source from the user's argument for a name.

    >>> as_source("numbers", [1, 2]).open().read(10)
    [1, 2]

    Raises:
        SettingsError: it is no source, and cannot be iterated or would be in no certain order.
    """
    if hasattr(type(value), "mapInArrow"):  # a Spark DataFrame; over Connect it seems to have any attribute
        return FrameSource(value)
    if isinstance(value, Source):
        return value
    if isinstance(value, (str, bytes)):
        raise SettingsError(
            f"source {name!r} is given the text {value!r:.80}; to read a file use drift.sources.text(path), and to "
            f"stream its characters list(...)"
        )
    if isinstance(value, os.PathLike):
        raise SettingsError(
            f"source {name!r} is given the path {value!r:.80}; say what is in the file: drift.sources.text, jsonl or "
            f"csv(path)"
        )
    if isinstance(value, Mapping):
        raise SettingsError(f"source {name!r} is given a dict, which would be its keys only; use .items() or .values()")
    if isinstance(value, (set, frozenset)):
        raise SettingsError(f"source {name!r} is given a set, whose order changes from run to run; use sorted(...)")
    if any(hasattr(type(value), attribute) for attribute in ("itertuples", "iter_rows", "__arrow_c_stream__")):
        from drift.sources.tables import TableSource, is_table

        if is_table(value):
            need("tables", f"source {name!r}, a {type(value).__name__},")
            return TableSource(value, "dict", None)
    if isinstance(value, (list, tuple)) and value and all(isinstance(each, Source) for each in value):
        raise SettingsError(
            f"source {name!r} is given a {type(value).__name__} of {len(value)} sources; give each of them a source of "
            f"the graph, and merge the streams: graph.source('a').merge(graph.source('b'))"
        )
    if isinstance(value, Iterable):
        return IterableSource(value)
    raise SettingsError(f"source {name!r} is given {value!r:.80}, which is neither an iterable nor a drift source")
