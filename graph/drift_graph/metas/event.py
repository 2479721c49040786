"""The metas of a batch in event time: one array of stamps (time and tie, 16 bytes each), and the bytes all metas share.

Invariant: equal to the list [time + rank + varint(tie) + ending], where a time has the bytes of `pack_time`.

Why: as a list, the metas would cost a byte string for each item and operator. The array is cut, joined and sent as it
is; it becomes metas once, in the digest, column by column. `varint(tie)` has the same length for most ties, that of the
greatest: all are written with that length, and then the few shorter ones are replaced.
"""

from __future__ import annotations

import struct
import sys
from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Mapping, Sequence
from itertools import chain, compress, islice
from operator import eq, lt
from typing import Self

from drift_graph.meta import pack_time, time_of, varint
from drift_graph.metas.computed import ComputedMetas

_STAMP = 16  # bytes: time and tie
_AT_ONCE = 64
_several = struct.Struct(f"{_STAMP}s" * _AT_ONCE)  # taken apart at once, stamps cost half of one by one
_flipped_sign = bytes(value ^ 0x80 for value in range(0x100))
_BY_COLUMN_MIN = 64  # for fewer, columns are not faster


class EventMetas(ComputedMetas):
    """See the module.

    Args:
        stamps: one for each item; see `stamps_of`.
        rank: of the source, as bytes.
        ending: the ordinal and the path, the same for all items.
        increasing: whether the metas are known to be strictly increasing.
    """

    __slots__ = ("stamps", "_rank", "_ending", "increasing", "_sorted")
    one_length = False
    _size = _STAMP  # of a stamp

    def __init__(self, stamps: bytes, rank: bytes, ending: bytes, increasing: bool = False) -> None:
        self.stamps = stamps
        self._rank = rank
        self._ending = ending
        self.increasing = increasing
        self._list = None
        self._sorted: tuple[Sequence[int], EventMetas] | None = None

    def __reduce__(self) -> tuple[object, ...]:
        return type(self), (*self.made_of(), self.increasing)

    def made_of(self) -> tuple[object, ...]:
        return self.stamps, self._rank, self._ending

    def __len__(self) -> int:
        return len(self.stamps) // self._size

    def _at(self, index: int) -> bytes:
        return self._meta(self.stamps[self._size * index : self._size * (index + 1)])

    def _meta(self, stamp: bytes) -> bytes:
        return stamp[:8] + self._rank + varint(int.from_bytes(stamp[8:], "big")) + self._ending

    def _with(self, stamps: bytes, *, increasing: bool) -> Self:
        return type(self)(stamps, self._rank, self._ending, increasing)

    def _cut(self, start: int, stop: int) -> Self:
        return self._with(self.stamps[self._size * start : self._size * stop], increasing=self.increasing)

    def _computed(self) -> list[bytes]:
        made = self._rows(lambda length: b"")
        if made is None:
            return list(map(self._meta, listed_stamps(self.stamps, self._size)))
        rows, row_bytes, shorter = made
        metas = [meta for (meta,) in struct.iter_unpack(f"{row_bytes}s", rows)]
        for at in shorter:
            metas[at] = self._at(at)
        return metas

    def with_suffix(self, suffix: bytes) -> EventMetas:
        return type(self)(self.stamps, self._rank, self._ending + suffix, self.increasing)

    def times(self) -> Sequence[int]:
        return times_of_stamps(self.stamps)

    def least(self) -> bytes:
        return self[0] if self.increasing else self._meta(min(listed_stamps(self.stamps, self._size)))

    def greatest(self) -> bytes:
        return self[-1] if self.increasing else self._meta(max(listed_stamps(self.stamps, self._size)))

    def are_increasing(self) -> bool:
        each, later = (struct.iter_unpack(f"{_STAMP}s", self.stamps[start:]) for start in (0, _STAMP))
        return self.increasing or all(map(lt, each, later))

    def in_order(self, order: Sequence[int], *, increasing: bool) -> EventMetas:
        each = listed_stamps(self.stamps)
        return self._with(b"".join(map(each.__getitem__, order)), increasing=increasing)

    def sorted(self) -> tuple[Sequence[int], EventMetas]:
        """See `ComputedMetas`; the result is cached."""
        if self.increasing:
            return range(len(self)), self
        if self._sorted is None:
            each = listed_stamps(self.stamps)
            order = sorted(range(len(each)), key=each.__getitem__)
            ordered = self._with(b"".join(map(each.__getitem__, order)), increasing=False)
            ties = memoryview(ordered.stamps).cast("Q")[1::2].tolist()
            ordered.increasing = not any(map(eq, ties, islice(ties, 1, None))) or ordered.are_increasing()
            self._sorted = order, ordered
        return self._sorted

    def alike(self, seen: Sequence[bytes]) -> dict[bytes, list[int]]:
        """The places of items that have the stamp of another of them, or one of those `seen` before."""
        wanted = set(seen)
        ordered = self.sorted()[1]
        if not ordered.increasing:
            each = listed_stamps(ordered.stamps)
            wanted.update(compress(each, map(eq, each, islice(each, 1, None))))
        found: dict[bytes, list[int]] = {}
        if wanted:
            for at, stamp in enumerate(listed_stamps(self.stamps)):
                if stamp in wanted:
                    found.setdefault(stamp, []).append(at)
        return found

    def with_ordinals(self, ordinals: Mapping[int, int]) -> EventMetas | list[bytes]:
        """These metas, which end with an ordinal of 0, with others at these places."""
        metas = self.listed().copy()
        for at, ordinal in ordinals.items():
            metas[at] = metas[at][:-1] + varint(ordinal)
        return metas

    def stamps_from(self, time: bytes) -> bytes:
        """The stamps at or above a time; the metas must be sorted."""
        return self.stamps[_STAMP * self._count_below(time) :]

    def stamps_upto(self, time: bytes) -> bytes:
        """The stamps at or below a time; the metas must be sorted."""
        return self.stamps[: _STAMP * self._count_below(time + b"\xff" * _STAMP)]

    def _count_below(self, bound: bytes) -> int:
        return _count_below(bound, self.stamps)

    def from_on(self, bound: bytes) -> EventMetas:
        time = bound[:8]
        selected = [stamp for stamp in listed_stamps(self.stamps, self._size) if stamp >= time]
        if len(bound) > 8:
            selected = [stamp for stamp in selected if not stamp.startswith(time) or self._meta(stamp) >= bound]
        return self._with(b"".join(selected), increasing=self.increasing)

    def count_below(self, bound: bytes, start: int, stop: int) -> int:
        time, stamps, size = bound[:8], self.stamps, self._size

        def time_at(index: int) -> bytes:
            return stamps[size * index : size * index + 8]

        start = bisect_left(range(stop), time, start, stop, key=time_at)
        if len(bound) <= 8 or start == stop or time_at(start) != time:
            return start
        return bisect_left(self, bound, start, bisect_right(range(stop), time, start, stop, key=time_at))

    def followed_by(self, later: ComputedMetas) -> EventMetas | None:
        if not isinstance(later, EventMetas) or (later._rank, later._ending) != (self._rank, self._ending):
            return None
        increasing = self.increasing and later.increasing and (not self or not later or self[-1] < later[0])
        return self._with(self.stamps + later.stamps, increasing=increasing)

    def joined(self, head: bytes) -> bytes:
        return head + head.join(self.listed()) if self else b""

    def joined_behind(self, head_of: Callable[[int], bytes]) -> bytes:
        made = self._rows(head_of)
        if made is None:
            return b"".join([head_of(len(meta)) + meta for meta in self.listed()])
        rows, row_bytes, shorter = made
        parts: list[bytes | bytearray] = []
        start = 0
        for at in shorter:
            meta = self._at(at)
            parts += rows[start * row_bytes : at * row_bytes], head_of(len(meta)), meta
            start = at + 1
        return b"".join([*parts, rows[start * row_bytes :]])

    def _rows(self, head_of: Callable[[int], bytes]) -> tuple[bytearray, int, list[int]] | None:
        """All rows (head + meta) written as if every tie had the length of the greatest.

        Args:
            head_of: the head of a meta, from the meta's length.

        Returns:
            The rows, one after the other; the length of each; the indices whose ties are shorter, so that their rows
            have to be written again. None if writing row by row is as fast.
        """
        stamps, rank, ending, count = self.stamps, self._rank, self._ending, len(self)
        skipped = 8  # the time, and the leading bytes of ties that are zero throughout
        while skipped < _STAMP and stamps[skipped::_STAMP].count(0) == count:
            skipped += 1
        digits = _STAMP - skipped
        if digits < 2 or count < _BY_COLUMN_MIN:  # up to 247 a tie is one byte
            return None
        highest = stamps[skipped::_STAMP]
        if 2 * highest.count(0) > count:
            return None
        head = head_of(8 + len(rank) + 1 + digits + len(ending))
        row = head + bytes(8) + rank + varint(256**digits - 1)[:1] + bytes(digits) + ending
        row_bytes, at = len(row), len(head)
        rows = bytearray(row * count)
        for byte in range(8):
            rows[at + byte :: row_bytes] = stamps[byte::_STAMP]
        at += 8 + len(rank) + 1
        for byte in range(digits):
            rows[at + byte :: row_bytes] = stamps[skipped + byte :: _STAMP]
        shorter: list[int] = []
        found = highest.find(0)
        while found >= 0:
            shorter.append(found)
            found = highest.find(0, found + 1)
        return rows, row_bytes, shorter


def stamps_of(times: Sequence[int], ties: bytes) -> bytes:
    """The stamps of items in one array, 16 bytes each; they compare like the metas.

    Args:
        ties: 8 bytes each, big-endian, in one array.
    """
    packed = struct.pack(f">{len(times)}q", *times)
    stamps = bytearray(2 * len(packed))
    words = memoryview(stamps).cast("Q")
    words[0::2], words[1::2] = memoryview(packed).cast("Q"), memoryview(ties).cast("Q")
    return _with_flipped_signs(words.tobytes())


def packed_stamp(time: int, tie: int) -> bytes:
    """The stamp of one item."""
    return pack_time(time) + tie.to_bytes(8, "big")


def time_and_tie(stamp: bytes) -> tuple[int, int]:
    """The inverse of `packed_stamp`."""
    return time_of(stamp), int.from_bytes(stamp[8:], "big")


def packed_ties(ties: Sequence[int]) -> bytes:
    """Ties in the form that `stamps_of` takes."""
    return struct.pack(f">{len(ties)}Q", *ties)


def listed_stamps(stamps: bytes, size: int = _STAMP) -> list[bytes]:
    """The stamps as a list."""
    if size != _STAMP:
        return [stamps[at : at + size] for at in range(0, len(stamps), size)]
    end = len(stamps) - len(stamps) % (_STAMP * _AT_ONCE)
    each = list(chain.from_iterable(_several.iter_unpack(memoryview(stamps)[:end])))
    each += [stamps[at : at + _STAMP] for at in range(end, len(stamps), _STAMP)]
    return each


def place_of(stamp: bytes, stamps: bytes) -> int | None:
    """The index of the first stamp among sorted ones that is equal to this one."""
    at = _count_below(stamp, stamps)
    return at if stamps[_STAMP * at : _STAMP * (at + 1)] == stamp else None


def _count_below(bound: bytes, stamps: bytes) -> int:
    count = len(stamps) // _STAMP
    return bisect_left(range(count), bound, key=lambda at: stamps[_STAMP * at : _STAMP * (at + 1)])


def times_of_stamps(stamps: bytes) -> list[int]:
    """The time of each stamp."""
    numbers = array("q", _with_flipped_signs(stamps))
    if sys.byteorder == "little":
        numbers.byteswap()
    return numbers[0::2].tolist()


def _with_flipped_signs(stamps: bytes) -> bytes:
    """Stamps with the sign bit of each time flipped: metas have it flipped, integers do not."""
    changed = bytearray(stamps)
    changed[0::_STAMP] = changed[0::_STAMP].translate(_flipped_sign)
    return bytes(changed)
