"""Counts of the items that leave each operator, estimates of their bytes, and the time that it was at work, batch by
batch.

Invariant: counting costs a few additions and two looks at a clock a batch, however many items it has; without a request
for counts there are none.

Why: only `len` and `list.count` are applied to a batch. Sizes are measured on a few items now and then, and
extrapolated. The clock is the caller's: a machine has none.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from drift_graph.sizes import about_bytes

#: The size of items is measured again after so many items of an operator.
_MEASURED_EVERY_ITEMS = 1 << 16


class Left(NamedTuple):
    """The items that have left an operator.

    Attributes:
        size_bytes: estimated size in memory.
        tombstones: how many of the items are tombstones.
        busy_s: for how long the operator was at work; of a fused loop all of it is with the operator that items leave.
    """

    items: int
    size_bytes: int
    tombstones: int
    busy_s: float


class Count:
    """The items that have left one operator; each of its output edges carried as many."""

    __slots__ = ("busy_s", "bytes", "items", "tombstones", "_each_bytes", "_measure_at")

    def __init__(self) -> None:
        self.items = self.bytes = self.tombstones = 0
        self.busy_s = 0.0
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

    def totals(self) -> Left:
        """Everything so far."""
        return Left(self.items, self.bytes, self.tombstones, self.busy_s)


class Counts(dict[str, Count]):
    """By the operator's name. `clock`: gives seconds."""

    def __init__(self, clock: Callable[[], float]) -> None:
        super().__init__()
        self.clock = clock

    def of(self, name: str) -> Count:
        """The count of an operator, a new one if it has none."""
        return self.setdefault(name, Count())
