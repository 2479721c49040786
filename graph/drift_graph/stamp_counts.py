"""Counts the items of a source with the same time and tie, its stamp; items with equal stamps get ordinals.

Invariant: an item's ordinal is the number of items before it with its stamp, in this batch and before.

Why: all stamps that may come again are counted, and a stamp may come again while its time is one that the source still
accepts; what is below is forgotten when room is needed. An item is known by its number, so the payload that first had a
stamp is found among the batches; they are stored only if a tie function has to distinguish payloads.
"""

from __future__ import annotations

from array import array
from bisect import bisect_right
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import xxhash

from drift_graph.canonical import NoCanonicalForm, canonical, same
from drift_graph.meta import TIME_MIN
from drift_graph.metas import Integers
from drift_graph.payloads import in_order
from drift_kernel import kernel

_FORGOTTEN_FROM = 64  # so many stamps may be counted before settled ones are searched for


class ListedStamps:
    """Counts stamps, times with ties, and numbers all items from 0."""

    def __init__(self) -> None:
        self._counts: dict[tuple[int, int], tuple[int, int]] = {}
        self._least, self._added, self._counted_max = TIME_MIN, 0, _FORGOTTEN_FROM

    def add(self, times: Integers, ties: Integers) -> tuple[Integers | None, Integers | None]:
        """Count items.

        Returns:
            The ordinal of each in a buffer, None if all are 0; and the indices of the items in the order of their times
            and ties, None if they are in order, or if nobody has sorted them.
        """
        ordinals = array("q")
        for number, stamp in enumerate(zip(map(int, times), map(int, ties)), self._added):
            items, first = self._counts.get(stamp, (0, number))
            self._counts[stamp] = items + 1, first
            ordinals.append(items)
        self._added += len(ordinals)
        if len(self._counts) > self._counted_max:
            self._counts = {stamp: known for stamp, known in self._counts.items() if stamp[0] >= self._least}
            self._counted_max = max(_FORGOTTEN_FROM, 2 * len(self._counts))
        return ordinals if any(ordinals) else None, None

    def take_back(self, times: Integers, ties: Integers) -> None:
        """Undo the last `add`, which was of these."""
        for stamp in zip(map(int, times), map(int, ties)):
            if stamp in self._counts:
                items, first = self._counts.pop(stamp)
                if items > 1:
                    self._counts[stamp] = items - 1, first
        self._added -= len(times)

    def of(self, time: int, tie: int) -> tuple[int, int]:
        """How many items had a stamp, and the number of the first of them; of the next item, if there are none."""
        return self._counts.get((time, tie), (0, self._added))

    def set(self, time: int, tie: int, items: int, first: int) -> None:
        """Set what `of` gives."""
        self._counts[time, tie] = items, first

    def settle(self, least: int) -> None:
        """No item will have a time below this one, so what is counted there may be forgotten."""
        self._least = max(self._least, least)

    def listed(self) -> list[tuple[int, int, int, int]]:
        """Time, tie, and what `of` gives, of all stamps that may come again, in their order."""
        every = sorted(self._counts.items())
        return [(*stamp, *known) for stamp, known in every if stamp[0] >= self._least]


if TYPE_CHECKING:
    Stamps = ListedStamps
else:
    Stamps = ListedStamps if kernel is None else kernel.Stamps


class Hashed(NamedTuple):
    """The hash of a payload that an earlier machine took, in place of the payload; empty if unknown."""

    payload: bytes

    def is_of(self, payload: Any) -> bool:
        return not self.payload or self.payload == hash_of(payload)


def hash_of(payload: Any) -> bytes:
    """The hash of a payload's canonical bytes; empty if it has none."""
    try:
        return xxhash.xxh3_128_digest(canonical(payload))
    except NoCanonicalForm:
        return b""


class StampCounts:
    """
    Args:
        known: times and ties, how many items had them, and the first payload, if a tie function must distinguish
            payloads.
    """

    def __init__(self, known: Iterable[tuple[int, int, int, Any]] = ()) -> None:
        self._stamps = Stamps()
        self._added, self._stores = 0, False
        #: Of each batch whose payloads are stored: the number of its first item, the payloads, the greatest time.
        self._batches: list[tuple[int, Sequence[Any], int]] = []
        self._earlier: list[Any] = []
        for time, tie, items, payload in known:
            self._earlier.append(payload)
            self._stamps.set(time, tie, items, -len(self._earlier))

    def add(
        self, times: Integers, ties: Integers, payloads: Any, greatest: int
    ) -> tuple[Integers | None, Integers | None, tuple[int, Any, Any] | None]:
        """Count the items of a batch.

        Args:
            payloads: of the batch, if a tie function must distinguish payloads; else None.
            greatest: at or above all of the times.

        Returns:
            Their ordinals and their order, see `ListedStamps.add`; and if two different payloads have one stamp, the
            index of the second and both: then nothing has changed.
        """
        ordinals, order = self._stamps.add(times, ties)
        if payloads is not None and len(times):
            other = None if ordinals is None else self._other(times, ties, payloads, ordinals)
            if other is not None:
                self._stamps.take_back(times, ties)
                return None, None, other
            self._batches.append((self._added, payloads, greatest))
            self._stores = True
        self._added += len(times)
        return ordinals, order, None

    def _other(self, times: Integers, ties: Integers, payloads: Any, ordinals: Integers) -> tuple[int, Any, Any] | None:
        """The first item whose payload is another one than that of the first item with its stamp; and both."""
        again = [at for at, ordinal in enumerate(ordinals) if ordinal]
        numbers = {at: self._stamps.of(times[at], ties[at])[1] for at in again}
        places = sorted({*again, *(number - self._added for number in numbers.values() if number >= self._added)})
        found = dict(zip(places, in_order(payloads, places)))
        for at in again:
            number = numbers[at]
            first = found[number - self._added] if number >= self._added else self._first(number)
            if not (first.is_of(found[at]) if type(first) is Hashed else same(first, found[at])):
                return at, first, found[at]
            if type(first) is Hashed:
                self._earlier[-1 - number] = found[at]
        return None

    def _first(self, number: int) -> Any:
        """The payload of an item by its number, which is that of a stamp."""
        if number < 0:
            return self._earlier[-1 - number]
        before = bisect_right(self._batches, number, key=lambda batch: batch[0]) - 1
        start, payloads, _ = self._batches[before] if before >= 0 else (0, (), 0)
        return payloads[number - start] if number - start < len(payloads) else Hashed(b"")

    def of(self, time: int, tie: int) -> tuple[int, Any]:
        """How many items had a stamp; and the first payload, if a tie function must distinguish payloads."""
        items, number = self._stamps.of(time, tie)
        return items, self._first(number) if items and (number < 0 or self._stores) else None

    def listed(self) -> list[tuple[int, int, int, Any]]:
        """Time, tie, and what `of` gives, of all stamps that may come again, in their order."""
        return [(time, tie, *self.of(time, tie)) for time, tie, _, _ in self._stamps.listed()]

    def settle(self, least: int) -> None:
        """No item will come below this time."""
        self._stamps.settle(least)
        if self._batches and self._batches[0][2] < least:
            self._batches = [batch for batch in self._batches if batch[2] >= least]
