"""Counts the items of a source with the same time and tie, which get ordinals.

Invariant: `are_new` is true only where no item of a batch has the place of another, of this batch or of one before it;
`came` says how many came at a place where more may come.

Why: two of one batch stand side by side when it is sorted, which it has to be anyhow. At a place of a batch before,
one can come only where the time is neither below what the source still accepts nor above all that came. So a set of
the few places above is kept, and asked for the few below; what came first at each is looked for only where another
one comes. Sets are two, so that places go a set at a time: the older one goes when time has passed all that is in it,
and until then the younger grows as large as it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import repeat
from typing import Any

from drift_graph.meta import TIME_MIN, pack_time
from drift_graph.metas.event import EventMetas, listed_places

_KEPT_MIN = 8192  # places that are kept until settled ones are looked for


class _Batches:
    """Batches of which every place was new.

    Attributes:
        places: those of them where more may come.
        greatest: no time is above it.
    """

    def __init__(self) -> None:
        self.places: set[bytes] = set()
        self.greatest = TIME_MIN
        self._batches: list[tuple[bytes, Sequence[Any] | None]] = []
        self._firsts: dict[bytes, Any] | None = None  # by place the payload, once that was asked for

    def add(self, metas: EventMetas, payloads: Sequence[Any] | None, least: int) -> None:
        """A batch, and below which time nothing comes behind it."""
        ordered = metas.sorted()[1]
        self.places.update(listed_places(ordered.places_from(pack_time(least))))
        self._batches.append((metas.places, payloads))
        self._firsts = None

    def take_in(self, others: _Batches) -> None:
        self.places |= others.places
        self.greatest = max(self.greatest, others.greatest)
        self._batches += others._batches
        self._firsts = None

    def first(self, place: bytes) -> Any:
        """What came at a place; None where no payload was given with it."""
        if self._firsts is None:
            self._firsts = dict(self)
        return self._firsts[place]

    def __iter__(self) -> Iterator[tuple[bytes, Any]]:
        for places, payloads in self._batches:
            yield from zip(listed_places(places), repeat(None) if payloads is None else payloads)


class Places:
    """See the module; a place is one of `places_of`.

    Args:
        known: how many came at places, and what a tie function told apart.
    """

    def __init__(self, known: dict[bytes, tuple[int, Any]] | None = None) -> None:
        self._known = known or {}  # and those of batches that had some which were not new
        self._kept = _KEPT_MIN
        self._younger, self._older = _Batches(), _Batches()

    def are_new(self, metas: EventMetas, payloads: Sequence[Any] | None, greatest: int, least: int) -> bool:
        """Whether nothing came before at the places of a batch, and each is of one item.

        They are noted then, with the payloads, where a tie function is to tell others from them.

        Args:
            greatest: time that came before the batch; TIME_MIN before the first.
            least: nothing comes below it behind the batch.
        """
        ordered = metas.sorted()[1]
        if ordered is not metas and not ordered.are_different():  # else each came with a time above the one before
            return False
        met = listed_places(ordered.places_upto(pack_time(greatest)))
        for known in (self._younger.places, self._older.places, self._known.keys()):
            if known and not known.isdisjoint(met):
                return False
        self._younger.add(metas, payloads, least)
        return True

    def came(self, place: bytes) -> tuple[int, Any]:
        """How many came at a place, and what a tie function told apart; 0 where nothing did."""
        known = self._known.get(place)
        if known is not None:
            return known
        for batches in (self._younger, self._older):
            if place in batches.places:
                return 1, batches.first(place)
        return 0, None

    def come(self, place: bytes, count: int, payload: Any) -> None:
        """Note the number of items that have come at a place."""
        self._known[place] = count, payload

    def listed(self) -> dict[bytes, tuple[int, Any]]:
        """What came at each place, in no order; at some that are settled as well."""
        firsts = {place: (1, payload) for batches in (self._older, self._younger) for place, payload in batches}
        return {**firsts, **self._known}

    def settle(self, least: int, greatest: int) -> None:
        """Drop settled places: no item will come below `least`, and none has come above `greatest`."""
        if len(self._known) > self._kept:
            bound = pack_time(least)
            self._known = {place: known for place, known in self._known.items() if place >= bound}
            self._kept = max(_KEPT_MIN, 2 * len(self._known))
        younger = self._younger
        if len(younger.places) < max(_KEPT_MIN, len(self._older.places)):
            return
        younger.greatest = greatest
        if self._older.greatest < least:
            self._older = younger
        else:
            self._older.take_in(younger)
        self._younger = _Batches()
