"""How many items leave each operator, and about how many bytes they are, counted batch by batch.

Invariant: what a count costs a batch is a few additions, however many items it has; where nobody asked for counts there
are none.

Why: `len` and `list.count` are all that is done with a batch. How large an item is, is looked at in a few items now and
then, and the rest are taken to be as large.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from drift_graph.sizes import about_bytes

#: After so many items of an operator some are looked at again for their size.
_LOOK_ITEMS = 1 << 16


class Count:
    """What has left one operator; each of its edges carried as much.

    Attributes:
        items: with the tombstones among them.
        bytes: about, in memory.
        tombstones: of the items.
    """

    __slots__ = ("bytes", "items", "tombstones", "_each_bytes", "_look_at")

    def __init__(self) -> None:
        self.items = self.bytes = self.tombstones = 0
        self._each_bytes = self._look_at = 0

    def add(self, payloads: Sequence[Any], diffs: list[int] | None) -> None:
        """A batch has left, and is not empty."""
        count = len(payloads)
        if self.items >= self._look_at:
            self._each_bytes = about_bytes(payloads) // count
            self._look_at = self.items + _LOOK_ITEMS
        self.items += count
        self.bytes += count * self._each_bytes
        if diffs is not None:
            self.tombstones += diffs.count(-1)

    def totals(self) -> tuple[int, int, int]:
        """Items, bytes and tombstones."""
        return self.items, self.bytes, self.tombstones


#: By the operator's name.
Counts = dict[str, Count]
