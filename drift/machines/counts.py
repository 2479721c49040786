"""Counts of the items that leave each operator, and estimates of their bytes, batch by batch.

Invariant: counting costs a few additions a batch, however many items it has; without a request for counts there are
none.

Why: only `len` and `list.count` are applied to a batch. Sizes are measured on a few items now and then, and
extrapolated.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from drift_graph.sizes import about_bytes

#: The size of items is measured again after so many items of an operator.
_MEASURED_EVERY_ITEMS = 1 << 16


class Count:
    """The items that have left one operator; each of its output edges carried as many.

    Attributes:
        items: including tombstones.
        bytes: estimated size in memory.
        tombstones: how many of the items are tombstones.
    """

    __slots__ = ("bytes", "items", "tombstones", "_each_bytes", "_measure_at")

    def __init__(self) -> None:
        self.items = self.bytes = self.tombstones = 0
        self._each_bytes = self._measure_at = 0

    def add(self, payloads: Sequence[Any], diffs: list[int] | None) -> None:
        """Count a batch that left; it is not empty."""
        count = len(payloads)
        if self.items >= self._measure_at:
            self._each_bytes = about_bytes(payloads) // count
            self._measure_at = self.items + _MEASURED_EVERY_ITEMS
        self.items += count
        self.bytes += count * self._each_bytes
        if diffs is not None:
            self.tombstones += diffs.count(-1)

    def totals(self) -> tuple[int, int, int]:
        """Items, bytes and tombstones."""
        return self.items, self.bytes, self.tombstones


#: By the operator's name.
Counts = dict[str, Count]
