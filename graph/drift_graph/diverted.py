"""Items that a source or a step sets apart because they cannot be taken, where the graph asks for that.

Invariant: what was set apart is a tuple that begins with `MARK`, from where it was until the map `ErrorsOnly` makes it
a report; the map `WithoutErrors` lets everything else through. So a step of the user never meets one.

Why a tuple: every engine, record and process knows it already; and so what is set apart has a meta, is counted, taken
back, released in order, recorded and replayed like any item, at a sink of its own. Nothing that is read makes tuples.
"""

from __future__ import annotations

import re
from typing import Any

from drift_graph.errors import DriftError
from drift_graph.functions import safe_text

MARK = "\0drift set apart"

#: Not the item's fault: how deep and how much a process can go differs between engines.
_NEVER = (RecursionError, MemoryError)
_ADDRESS = re.compile(r"\b0x[0-9a-f]{6,}")


def diverted(place: str, error: str, payload: Any) -> tuple[str, str, str, Any]:
    """In place of an item that cannot be taken.

    Args:
        place: the name of the step or the source, and of the source more, if there is more.
        error: what is wrong with it, in words that are the same in every run.
        payload: the item, or what was read in place of one.
    """
    return MARK, place, error, payload


def is_diverted(payload: Any) -> bool:
    return type(payload) is tuple and len(payload) == 4 and type(payload[0]) is str and payload[0] == MARK


def diverted_by(place: str, error: BaseException, payload: Any) -> tuple[str, str, str, Any]:
    """The same where a function raised.

    Raises:
        BaseException: the error itself, where it is not the item's.
    """
    if isinstance(error, _NEVER) or not isinstance(error, Exception):
        raise error
    if isinstance(error, DriftError) and error.ends_the_run:
        raise error
    words = _ADDRESS.sub("0x...", safe_text(str, error, 500))
    return diverted(place, f"{type(error).__name__}: {words}", payload)


def report(payload: tuple[str, str, str, Any]) -> dict[str, Any]:
    """What the sink of errors gets."""
    _, place, error, item = payload
    return {"place": place, "error": error, "payload": item}
