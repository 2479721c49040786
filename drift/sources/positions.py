"""Positions of readers: what they look like, and the errors for those that do not fit."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from drift_graph.errors import InputError

_FORM = 1


def position_of(kind: str, **where: Any) -> dict[str, Any]:
    """A position of a kind of source, with the version of its format."""
    return {"v": _FORM, "kind": kind, **where}


def where_in(position: Any, kind: str, what: str, *names: str) -> list[Any]:
    """The entries of a position of the given kind.

    Args:
        what: the source, for errors.

    Raises:
        InputError: it is a position of another kind or version.
    """
    if (
        not isinstance(position, Mapping)
        or (position.get("v"), position.get("kind")) != (_FORM, kind)
        or not all(name in position for name in names)
    ):
        raise InputError(
            f"{what} cannot be read from {position!r:.200}: that is no position of this kind of source ({kind!r}) in a "
            f"form that this version knows; pass the source that was read, or continue with the version that wrote it"
        )
    return [position[name] for name in names]


def gone(what: str, was: str, now: str) -> InputError:
    """The error for data that a position refers to and that no longer exists."""
    return InputError(
        f"{what} was read up to {was} when the state was saved that the run goes on from, and now {now}; bring back "
        f"what was there, or begin anew with another state"
    )
