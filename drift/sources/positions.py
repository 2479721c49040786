"""Positions of readers: what they look like, and the errors for those that do not fit."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import xxhash

from drift_graph.canonical import NoCanonicalForm, hash64_each, stored
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


def in_one_file(position: Any) -> Any:
    """Of a position of a source that followed one file that in the file; {} if nothing was read of it."""
    if not isinstance(position, Mapping) or position.get("kind") != "files":
        return position
    within = position.get("within") if position.get("file") else {}
    return position.get("end") if within is None else within


def position_lost(what: str, reached: str, found: str) -> InputError:
    """The error for data that a position refers to and that no longer exists."""
    return InputError(
        f"{what} was read up to {reached} when the state of this run was saved, and now {found}; bring back the data "
        f"that was there, or start anew with another state"
    )


def mark_of(payloads: Sequence[Any]) -> str:
    """A hash of the last of what was read, by which that is known where nothing else says whether the items before a
    position are those of then; "" if there is none, or if it has no canonical form.
    """
    try:
        return xxhash.xxh3_64_hexdigest(stored(payloads[-1])) if len(payloads) else ""
    except NoCanonicalForm:
        return ""


class LastRead:
    """What was read last, by which its place is known again; hashed when that is asked for."""

    def __init__(self) -> None:
        self._mark = ""
        self._unmarked: list[Any] = []

    def note(self, item: Any) -> None:
        self._unmarked = [item]

    def seek(self, mark: str) -> None:
        """What has this mark was read last."""
        self._mark, self._unmarked = mark, []

    @property
    def mark(self) -> str:
        """As of `mark_of`."""
        if self._unmarked:
            self.seek(mark_of(self._unmarked))
        return self._mark


def check_mark(position: Any, payloads: Sequence[Any], what: str, number: int) -> None:
    """
    Args:
        payloads: those that end with the item in front of the position.

    Raises:
        InputError: it is another than the one that was read.
    """
    if position.get("mark") and position["mark"] != mark_of(payloads):
        now = f"is another one, {payloads[-1]!r:.120}" if payloads else "is not there"
        why = "items are found again by their number, so what is new comes behind what was read"
        raise position_lost(what, f"item {number}", f"that item {now}: {why}")


class ContentOfItems:
    """A hash of all items that were added, whatever the batches; none once there are items without a canonical form, or
    that were not added.
    """

    def __init__(self) -> None:
        self._hash = xxhash.xxh3_64()
        self._items = 0

    def add(self, payloads: Sequence[Any]) -> None:
        try:
            self._hash.update(hash64_each(payloads))
        except NoCanonicalForm:
            return
        self._items += len(payloads)

    def hash(self, items: int) -> str:
        """Of all items, if they are so many; "" otherwise."""
        return self._hash.hexdigest() if items == self._items else ""

    def check(self, position: Any, what: str, items: int) -> None:
        """Raises InputError: the items in front of the position are others than those that were read."""
        if position.get("content") and position["content"] != self.hash(items):
            raise position_lost(what, f"item {items}", "items before that are others")
