"""Positions of readers: what they look like, and the errors for those that do not fit."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from drift_graph.errors import InputError

_FORM = 1


def position_of(kind: str, **where: Any) -> dict[str, Any]:
    """A position of a kind of source, with the version of its format."""
    return {"v": _FORM, "kind": kind, **where}


def position_fields(position: Any, kind: str, what: str, *names: str) -> list[Any]:
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
            f"form that this version reads; pass the source that was read, or continue with the version that wrote it"
        )
    return [position[name] for name in names]


def position_lost(what: str, reached: str, found: str) -> InputError:
    """The error for data that a position refers to and that no longer exists."""
    return InputError(
        f"{what} was read up to {reached} when the state of this run was saved, and now {found}; bring back the data "
        f"that was there, or start anew with another state"
    )
