"""Positions of readers: what they look like, and the errors for those that do not fit."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
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
    """What was read last, by which its place is known again, and all that was, if each batch was asked about; hashed
    when that is asked for.
    """

    def __init__(self) -> None:
        self._last: Sequence[Any] = ()
        self._is_hashed = True
        self._mark = ""
        self._hash, self._items = xxhash.xxh3_64(), 0  # of items that have canonical forms

    def note(self, payloads: Sequence[Any]) -> None:
        """The next batch."""
        self._last, self._is_hashed = payloads, False

    def seek(self, mark: str) -> None:
        """What has this mark was read last."""
        self._mark, self._is_hashed = mark, True

    @property
    def mark(self) -> str:
        if not self._is_hashed:
            self._mark, self._is_hashed = mark_of(self._last), True
            with suppress(NoCanonicalForm):
                self._hash.update(hash64_each(self._last))
                self._items += len(self._last)
        return self._mark

    def known(self, items: int) -> dict[str, str]:
        """What a position behind so many items has of them: `mark`, and a hash of all, whatever the batches, or ""."""
        return {"mark": self.mark, "content": self._hash.hexdigest() if items == self._items else ""}

    def check(self, position: Any, what: str, number: int) -> None:
        """Raises InputError: the items in front of a position are others than those that were read."""
        found, now = self.known(number), ""
        if position.get("mark") and position["mark"] != found["mark"]:
            now = f"is another one, {self._last[-1]!r:.120}" if len(self._last) else "is not there"
            now = f"that item {now}: items are found again by their number, so what is new comes behind what was read"
        elif position.get("content") and position["content"] != found["content"]:
            now = "items before that are others"
        if now:
            raise position_lost(what, f"item {number}", now)
