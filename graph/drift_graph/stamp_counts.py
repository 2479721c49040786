"""Counts the items of a source with the same time and tie, its stamp; items with equal stamps get ordinals.

Invariant: `alike` has the places of all items of a batch whose stamps do not differ from each other and from all stamps
before; `count_of` says how many items had a stamp, for each stamp that may come again.

Why: items with equal stamps are neighbours once a batch is sorted, which it has to be anyway. A stamp of an earlier
batch can come again only with a time that the source still accepts and that is not above the greatest time so far. So
the few accepted stamps of each batch are stored in a set, and the few stamps of a new batch up to the greatest time are
looked up in it; the payload that first had a stamp is searched for only when the stamp comes again. There are two sets,
so that stamps are dropped a set at a time: the older is dropped when time has passed all its stamps; until then the
younger grows as large as it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import repeat
from typing import Any

from drift_graph.meta import TIME_MIN, pack_time
from drift_graph.metas.event import EventMetas, listed_stamps, place_of

_RETAINED_MIN = 8192  # so many stamps may be retained before settled ones are searched for


class _Batches:
    """Batches in which every stamp was new.

    Attributes:
        stamps: those of the batches that may come again.
        greatest: no time in the batches is above it.
    """

    def __init__(self) -> None:
        self.stamps: set[bytes] = set()
        self.greatest = TIME_MIN
        #: Of each batch the sorted stamps; the places of their items, and the payloads, where these are stored.
        self._batches: list[tuple[bytes, Sequence[int], Sequence[Any] | None]] = []

    def add(self, metas: EventMetas, payloads: Sequence[Any] | None, least: int) -> None:
        """Add a batch; no later item will have a time below `least`."""
        order, ordered = metas.sorted()
        self.stamps.update(listed_stamps(ordered.stamps_from(pack_time(least))))
        self._batches.append((ordered.stamps, () if payloads is None else order, payloads))

    def merge(self, batches: _Batches) -> None:
        self.stamps |= batches.stamps
        self.greatest = max(self.greatest, batches.greatest)
        self._batches += batches._batches

    def first(self, stamp: bytes) -> Any:
        """The payload that first had a stamp, which is one of `stamps`; None if it was added without payloads."""
        for stamps, order, payloads in self._batches:
            if payloads is not None and (at := place_of(stamp, stamps)) is not None:
                return payloads[order[at]]
        return None

    def __iter__(self) -> Iterator[tuple[bytes, Any]]:
        for stamps, order, payloads in self._batches:
            each = repeat(None) if payloads is None else map(list(payloads).__getitem__, order)
            yield from zip(listed_stamps(stamps), each)


class StampCounts:
    """See the module; a stamp is one of `stamps_of`.

    Args:
        known: for each stamp the number of items that had it; and the first payload, if a tie function must distinguish
            payloads.
    """

    def __init__(self, known: dict[bytes, tuple[int, Any]] | None = None) -> None:
        self._known = known or {}  # of the stamps that came again
        self._retained_max = _RETAINED_MIN
        self._younger, self._older = _Batches(), _Batches()

    def alike(self, metas: EventMetas, greatest: int) -> dict[bytes, list[int]]:
        """The places of the items that have the stamp of another one, in this batch or before.

        Args:
            greatest: the greatest time before the batch; TIME_MIN if there was none.
        """
        candidates = listed_stamps(metas.sorted()[1].stamps_upto(pack_time(greatest)))
        seen: list[bytes] = []
        for known in (self._younger.stamps, self._older.stamps, self._known.keys()):
            if known and not known.isdisjoint(candidates):
                seen += filter(known.__contains__, candidates)
        return metas.alike(seen)

    def add(self, metas: EventMetas, payloads: Sequence[Any] | None, least: int) -> None:
        """Add the stamps of a batch; for those that are not new, `set_count` is called.

        Args:
            payloads: of the batch, if a tie function must distinguish payloads.
            least: no item after the batch will have a time below it.
        """
        self._younger.add(metas, payloads, least)

    def count_of(self, stamp: bytes) -> tuple[int, Any]:
        """How many items had a stamp; and the first payload, if a tie function must distinguish payloads."""
        known = self._known.get(stamp)
        if known is not None:
            return known
        for batches in (self._younger, self._older):
            if stamp in batches.stamps:
                return 1, batches.first(stamp)
        return 0, None

    def set_count(self, stamp: bytes, count: int, payload: Any) -> None:
        """Set the number of items that had a stamp, and the first payload."""
        self._known[stamp] = count, payload

    def listed(self) -> dict[bytes, tuple[int, Any]]:
        """The counts of all stamps, some of them settled, in no order."""
        firsts = {stamp: (1, payload) for batches in (self._older, self._younger) for stamp, payload in batches}
        return {**firsts, **self._known}

    def settle(self, least: int, greatest: int) -> None:
        """Drop settled stamps: no item will come below `least`, and none has come above `greatest`."""
        if len(self._known) > self._retained_max:
            bound = pack_time(least)
            self._known = {stamp: known for stamp, known in self._known.items() if stamp >= bound}
            self._retained_max = max(_RETAINED_MIN, 2 * len(self._known))
        younger = self._younger
        if len(younger.stamps) < max(_RETAINED_MIN, len(self._older.stamps)):
            return
        younger.greatest = greatest
        if self._older.greatest < least:
            self._older = younger
        else:
            self._older.merge(younger)
        self._younger = _Batches()
