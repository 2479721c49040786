"""The metas of items in event time: the place of each, its time and tie in 16 bytes, and what all have in common.

Invariant: equal to the list [time + rank + varint(tie) + ending], where a time has the bytes of `pack_time`.

Why: an item in event time costs a byte string for each operator that it passes, and a comparison of two for each step
of a sort. Places side by side are cut, joined and sent as the bytes they are, and become metas once, in the digest,
column by column. To be sorted they are text, which a list compares with one memcmp, and the number of each is behind
its place: so what they are sorted from need not be looked up again. Most ties take as many bytes as the greatest: so
all are written as if they did, and others anew.
"""

from __future__ import annotations

import struct
import sys
from array import array
from bisect import bisect_left
from collections.abc import Callable, Sequence
from functools import lru_cache
from itertools import islice
from operator import eq, lt

from drift_graph.meta import pack_time, time_of, varint
from drift_graph.metas.computed import ComputedMetas

_PLACE = 16  # bytes
_other_sign = bytes(value ^ 0x80 for value in range(0x100))
_BY_COLUMN_MIN = 64  # fewer are as fast one by one


class EventMetas(ComputedMetas):
    """See the module.

    Args:
        places: of each; see `places_of`.
        rank: of the source, as bytes.
        ending: the ordinal, which all have in common, and their path.
        increasing: whether each is known to be above the one before it.
    """

    __slots__ = ("places", "_rank", "_ending", "increasing", "_sorted")
    one_length = False

    def __init__(self, places: bytes, rank: bytes, ending: bytes, increasing: bool = False) -> None:
        self.places = places
        self._rank = rank
        self._ending = ending
        self.increasing = increasing
        self._list = None
        self._sorted: tuple[Sequence[int], EventMetas] | None = None

    def __reduce__(self) -> tuple[object, ...]:
        return EventMetas, (*self.made_of(), self.increasing)

    def made_of(self) -> tuple[object, ...]:
        return self.places, self._rank, self._ending

    def __len__(self) -> int:
        return len(self.places) // _PLACE

    def _at(self, index: int) -> bytes:
        return self._meta(self.places[_PLACE * index : _PLACE * (index + 1)])

    def _meta(self, place: bytes) -> bytes:
        return place[:8] + self._rank + varint(int.from_bytes(place[8:], "big")) + self._ending

    def _with(self, places: bytes, *, increasing: bool) -> EventMetas:
        return EventMetas(places, self._rank, self._ending, increasing)

    def _cut(self, start: int, stop: int) -> EventMetas:
        return self._with(self.places[_PLACE * start : _PLACE * stop], increasing=self.increasing)

    def _computed(self) -> list[bytes]:
        rows = self._rows(lambda length: b"")
        if rows is None:
            return list(map(self._meta, listed_places(self.places)))
        whole, each, others = rows
        metas = [meta for (meta,) in struct.iter_unpack(f"{each}s", whole)]
        for at in others:
            metas[at] = self._at(at)
        return metas

    def with_suffix(self, suffix: bytes) -> EventMetas:
        return EventMetas(self.places, self._rank, self._ending + suffix, self.increasing)

    def times(self) -> Sequence[int]:
        return times_of_places(self.places)

    def least(self) -> bytes:
        return self[0] if self.increasing else self._meta(min(listed_places(self.places)))

    def are_increasing(self) -> bool:
        each, later = (struct.iter_unpack(f"{_PLACE}s", self.places[start:]) for start in (0, _PLACE))
        return self.increasing or all(map(lt, each, later))

    def in_order(self, order: Sequence[int], *, increasing: bool) -> EventMetas:
        each = listed_places(self.places)
        return self._with(b"".join(map(each.__getitem__, order)), increasing=increasing)

    def sorted(self) -> tuple[Sequence[int], EventMetas]:
        """See `ComputedMetas`; it is kept."""
        if self.increasing:
            return range(len(self)), self
        if self._sorted is None:
            count = len(self)
            rows = bytearray(3 * 8 * count)
            words, places = memoryview(rows).cast("Q"), memoryview(self.places).cast("Q")
            words[0::3], words[1::3], words[2::3] = places[0::2], places[1::2], _numbers(count.bit_length())[:count]
            text = rows.decode("latin-1")
            each = [text[start : start + 24] for start in range(0, len(text), 24)]
            each.sort()
            words = memoryview("".join(each).encode("latin-1")).cast("Q")
            ordered = bytearray(len(self.places))
            places = memoryview(ordered).cast("Q")
            places[0::2], places[1::2] = words[0::3], words[1::3]
            self._sorted = words[2::3].tolist(), self._with(bytes(ordered), increasing=True)
        return self._sorted

    def are_different(self) -> bool:
        """Whether no two are equal of these, which are sorted."""
        ties = memoryview(self.places).cast("Q")[1::2].tolist()
        if not any(map(eq, ties, islice(ties, 1, None))):
            return True
        each = listed_places(self.places)
        return all(map(lt, each, islice(each, 1, None)))

    def places_from(self, time: bytes) -> bytes:
        """Those of these, which are sorted, that are not below a time."""
        return self.places[_PLACE * self._count_below(time) :]

    def places_upto(self, time: bytes) -> bytes:
        """Those of these, which are sorted, that are not above a time."""
        return self.places[: _PLACE * self._count_below(time + b"\xff" * _PLACE)]

    def _count_below(self, bound: bytes) -> int:
        places = self.places
        return bisect_left(range(len(self)), bound, key=lambda at: places[_PLACE * at : _PLACE * (at + 1)])

    def from_on(self, bound: bytes) -> EventMetas:
        time = bound[:8]
        kept = [place for place in listed_places(self.places) if place >= time]
        if len(bound) > 8:
            kept = [place for place in kept if not place.startswith(time) or self._meta(place) >= bound]
        return self._with(b"".join(kept), increasing=self.increasing)

    def followed_by(self, later: ComputedMetas) -> EventMetas | None:
        if type(later) is not EventMetas or (later._rank, later._ending) != (self._rank, self._ending):
            return None
        increasing = self.increasing and later.increasing and (not self or not later or self[-1] < later[0])
        return self._with(self.places + later.places, increasing=increasing)

    def joined(self, head: bytes) -> bytes:
        return head + head.join(self.listed()) if self else b""

    def joined_behind(self, head_of: Callable[[int], bytes]) -> bytes:
        rows = self._rows(head_of)
        if rows is None:
            return b"".join([head_of(len(meta)) + meta for meta in self.listed()])
        whole, each, others = rows
        pieces: list[bytes | bytearray] = []
        start = 0
        for at in others:
            meta = self._at(at)
            pieces += whole[start * each : at * each], head_of(len(meta)), meta
            start = at + 1
        return b"".join([*pieces, whole[start * each :]])

    def _rows(self, head_of: Callable[[int], bytes]) -> tuple[bytearray, int, list[int]] | None:
        """head + meta of each as if all ties had the length of the greatest, how long each is, and which are others.

        None if making them one by one is as fast.
        """
        places, rank, ending, count = self.places, self._rank, self._ending, len(self)
        skipped = 8  # bytes of a place that are no part of most ties, and in front of them the time
        while skipped < _PLACE and places[skipped::_PLACE].count(0) == count:
            skipped += 1
        digits = _PLACE - skipped
        if digits < 2 or count < _BY_COLUMN_MIN:  # up to 247 a tie is one byte
            return None
        highest = places[skipped::_PLACE]
        if 2 * highest.count(0) > count:
            return None
        head = head_of(8 + len(rank) + 1 + digits + len(ending))
        row = head + bytes(8) + rank + varint(256**digits - 1)[:1] + bytes(digits) + ending
        each, at = len(row), len(head)
        whole = bytearray(row * count)
        for byte in range(8):
            whole[at + byte :: each] = places[byte::_PLACE]
        at += 8 + len(rank) + 1
        for byte in range(digits):
            whole[at + byte :: each] = places[skipped + byte :: _PLACE]
        others: list[int] = []
        found = highest.find(0)
        while found >= 0:
            others.append(found)
            found = highest.find(0, found + 1)
        return whole, each, others


def places_of(times: Sequence[int], ties: bytes) -> bytes:
    """The places of items side by side, of 16 bytes each: compared, they are in the order of the metas.

    Args:
        ties: of each 8 bytes, the greatest first, one behind the other.
    """
    packed = struct.pack(f">{len(times)}q", *times)
    places = bytearray(2 * len(packed))
    words = memoryview(places).cast("Q")
    words[0::2], words[1::2] = memoryview(packed).cast("Q"), memoryview(ties).cast("Q")
    return _with_other_signs(words.tobytes())


def place_at(time: int, tie: int) -> bytes:
    """The place of one."""
    return pack_time(time) + tie.to_bytes(8, "big")


def time_and_tie(place: bytes) -> tuple[int, int]:
    """Of one place."""
    return time_of(place), int.from_bytes(place[8:], "big")


def packed_ties(ties: Sequence[int]) -> bytes:
    """Ties as `places_of` takes them."""
    return struct.pack(f">{len(ties)}Q", *ties)


def listed_places(places: bytes) -> list[bytes]:
    """Each by itself."""
    return [place for (place,) in struct.iter_unpack(f"{_PLACE}s", places)]


def times_of_places(places: bytes) -> list[int]:
    """The time of each."""
    numbers = array("q", _with_other_signs(places))
    if sys.byteorder == "little":
        numbers.byteswap()
    return numbers[0::2].tolist()


def _with_other_signs(places: bytes) -> bytes:
    """With the first bit of each time the other way round, as integers have it and metas do not."""
    changed = bytearray(places)
    changed[0::_PLACE] = changed[0::_PLACE].translate(_other_sign)
    return bytes(changed)


@lru_cache(maxsize=4)
def _numbers(bits: int) -> memoryview:
    """The numbers below 2**bits."""
    return memoryview(array("Q", range(1 << bits)))
