"""The items that enter or leave a grouping, and the net difference of its output.

Invariant: a `Difference` never holds a tombstone and an item that cancel each other.

Why: for each position in a bucket it gets the output sent before and the output now, and drops both if they are equal,
dicts also in the order of their entries: a function downstream may depend on that order.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import zip_longest
from typing import Any

from drift_graph.canonical import NoCanonicalForm, form_of, same, stored
from drift_graph.errors import PayloadError
from drift_graph.item import Columns, Failure
from drift_graph.metas import Metas

#: Stands for "nothing is sent here", since None is a payload.
NOTHING: Any = type("Nothing", (), {"__repr__": lambda self: "nothing"})()


class Difference:
    """Tombstones and items to send."""

    __slots__ = ("metas", "payloads", "diffs")

    def __init__(self) -> None:
        self.metas: list[bytes] = []
        self.payloads: list[Any] = []
        self.diffs: list[int] = []

    def replace(self, meta: bytes, old: Any, new: Any) -> None:
        """The output sent at `meta` is `old` and should be `new`; either may be NOTHING."""
        if old is new or (old is not NOTHING and new is not NOTHING and same(old, new)):
            return
        if old is not NOTHING:
            self.metas.append(meta)
            self.payloads.append(old)
            self.diffs.append(-1)
        if new is not NOTHING:
            self.metas.append(meta)
            self.payloads.append(new)
            self.diffs.append(1)

    def columns(self) -> Columns:
        return Columns(Metas(self.metas), self.payloads, self.diffs if -1 in self.diffs else None)


class Debts:
    """Tombstones that came before their items: each cancels the next equal item with its meta."""

    def __init__(self, step: str) -> None:
        self._step = step
        self._counts: dict[tuple[bytes, bytes], int] = {}

    def __len__(self) -> int:
        return len(self._counts)

    def owe(self, meta: bytes, payload: Any) -> None:
        """Remember a tombstone.

        Raises:
            PayloadError: for a payload without canonical form: the item that it cancels could not be recognized.
        """
        try:
            identity = meta, stored(payload)
        except NoCanonicalForm as none:
            raise PayloadError(
                f"step {self._step!r} is to take back an item that cannot be distinguished from others: {none}",
                step=self._step,
            ) from None
        self._counts[identity] = self._counts.get(identity, 0) + 1

    def rewind(self, checkpoint: bytes) -> None:
        """Forget the tombstones at or above a checkpoint; none waits below it."""
        self._counts = {identity: count for identity, count in self._counts.items() if identity[0] < checkpoint}

    def settles(self, meta: bytes, payload: Any) -> bool:
        """Whether a tombstone was waiting for this item; if so, both are dropped."""
        if not self._counts:
            return False
        identity = meta, form_of(payload)
        count = self._counts.pop(identity, 0)
        if count > 1:
            self._counts[identity] = count - 1
        return count > 0


def difference(before: Iterable[tuple[bytes, Any]], current: Difference, into: Difference) -> None:
    """Send the difference between the outputs `before` and the outputs `current`.

    One meta may have several: an item and its replacement both have outputs there, until the tombstone between them
    arrives.
    """
    old: dict[bytes, list[Any]] = {}
    for meta, payload in before:
        old.setdefault(meta, []).append(payload)
    new: dict[bytes, list[Any]] = {}
    for meta, payload in zip(current.metas, current.payloads):
        new.setdefault(meta, []).append(payload)
    for meta, payloads in new.items():
        known = old.pop(meta, [])
        if len(known) > 1 or len(payloads) > 1:
            known, payloads = _unlike(known, payloads)
        for was, payload in zip_longest(known, payloads, fillvalue=NOTHING):
            if type(payload) is Failure and was is not NOTHING:  # failures with different messages are equal too
                if payload.message != was.message:
                    into.replace(meta, was, NOTHING)
                    into.replace(meta, NOTHING, payload)
            else:
                into.replace(meta, was, payload)
    for meta, payloads in old.items():
        for payload in payloads:
            into.replace(meta, payload, NOTHING)


def _unlike(left: Sequence[Any], right: Sequence[Any]) -> tuple[list[Any], list[Any]]:
    """The values of each side that have no equal one on the other side."""
    left_only: list[Any] = []
    right_only = list(right)
    for each in left:
        at = next((at for at, other in enumerate(right_only) if _is_like(each, other)), None)
        if at is None:
            left_only.append(each)
        else:
            del right_only[at]
    return left_only, right_only


def _is_like(left: Any, right: Any) -> bool:
    if type(left) is type(right) is Failure:
        return bool(left == right and left.message == right.message)
    return same(left, right)
