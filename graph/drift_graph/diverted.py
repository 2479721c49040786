"""Items diverted to the sink of errors by a source or a step with `on_error="divert"`, and late items to a sink.

Invariant: a diverted item is a tuple that begins with `MARK`, or with `LATE`, from where it was diverted until the map
`ErrorsOnly` or `LateOnly` turns it into a report. The map `WithoutErrors` drops such tuples, so no step of the user
receives one.

Why a tuple: every engine, record and process can carry one already. So a diverted item has a meta, is counted,
cancelled, released in order, recorded and replayed like any item. No reader produces tuples with this mark.
"""

from __future__ import annotations

import re
from typing import Any

from drift_graph.errors import DriftError
from drift_graph.functions import safe_text

MARK = "\0drift diverted"
LATE = "\0drift late"

#: Not caused by the item: limits of depth and memory differ between engines.
NEVER_DIVERTED = (RecursionError, MemoryError)
_ADDRESS = re.compile(r"\b0x[0-9a-f]{6,}")
_RAISED = re.compile(r"\w+: ")


def diverted(location: str, error: str, payload: Any, mark: str = MARK) -> tuple[str, str, str, Any]:
    """The tuple that replaces an item which cannot be processed.

    Args:
        location: the name of the step or the source; for a source also the file and line, if known.
        error: the error in words that are the same in every run.
        payload: the item, or the text that was read.
        mark: `MARK`, or `LATE` for a late item.
    """
    return mark, location, error, payload


def is_diverted(payload: Any) -> bool:
    return type(payload) is tuple and len(payload) == 4 and type(payload[0]) is str and payload[0] in (MARK, LATE)


def is_late(payload: Any) -> bool:
    """Whether it is a late item that was diverted."""
    return is_diverted(payload) and payload[0] == LATE


def may_be_of_item(error: BaseException) -> bool:
    """Whether an item may have caused an error, so that it can be diverted."""
    return isinstance(error, Exception) and not isinstance(error, NEVER_DIVERTED)


def diverted_by(location: str, error: BaseException, payload: Any) -> tuple[str, str, str, Any]:
    """`diverted` for an exception that a function raised.

    Raises:
        BaseException: the error itself, if the item did not cause it.
    """
    if not may_be_of_item(error):
        raise error
    if isinstance(error, DriftError) and error.ends_the_run:
        raise error
    words = _ADDRESS.sub("0x...", safe_text(str, error, 500))
    return diverted(location, f"{type(error).__name__}: {words}", payload)


def was_raised(error: str) -> bool:
    """Whether the error of a report is an exception that a function raised, not what a source could not read."""
    return _RAISED.match(error) is not None


def report(payload: tuple[str, str, str, Any]) -> dict[str, Any]:
    """The payload that the sink of errors, or of late items, gets."""
    _, location, error, item = payload
    return {"location": location, "error": error, "payload": item}
