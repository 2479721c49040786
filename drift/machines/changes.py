"""The items that enter or leave a grouping, and the net difference of its output.

Invariant: a `Difference` never holds a tombstone and an item that cancel each other.

Why: for each position in a bucket it gets the output sent before and the output now, and drops both if they are equal,
dicts also in the order of their entries: a function downstream may depend on that order.
"""

from __future__ import annotations

from typing import Any

from drift_graph.canonical import NoCanonicalForm, form_of, same, stored
from drift_graph.errors import PayloadError
from drift_graph.item import Columns

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
        return Columns(self.metas, self.payloads, self.diffs if -1 in self.diffs else None)


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

    def rewind(self, cut: bytes) -> None:
        """Forget the tombstones at or above a cut; none waits below it."""
        self._counts = {identity: count for identity, count in self._counts.items() if identity[0] < cut}

    def settles(self, meta: bytes, payload: Any) -> bool:
        """Whether a tombstone was waiting for this item; if so, both are dropped."""
        if not self._counts:
            return False
        identity = meta, form_of(payload)
        count = self._counts.pop(identity, 0)
        if count > 1:
            self._counts[identity] = count - 1
        return count > 0
