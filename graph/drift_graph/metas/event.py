"""The metas of items in event time: a time and a tie for each, and a common ending.

Invariant: equal to the list [pack_time(time) + rank + varint(tie) + ending for time, tie in zip(times, ties)].

Why: as byte strings, an item in event time would cost one for each operator that it passes, and a comparison of two for
each step of a sort. As columns of numbers they are sorted by 24 bits of the time and 32 of the tie in one float, which
almost always differ, and become bytes once, in the digest, column by column. Most ties have the length of the greatest:
all are written with that length, and the others again.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Sequence
from itertools import islice
from operator import lt

from drift_graph.meta import TIME_MIN, pack_time, varint
from drift_graph.metas.computed import ComputedMetas

_other_sign = bytes(value ^ 0x80 for value in range(0x100))
_BY_COLUMN_MIN = 64  # fewer are as fast one by one


class EventMetas(ComputedMetas):
    """See the module.

    Attributes:
        ties: tie of each.

    Args:
        times, ties: of each item, the same number; never changed.
        rank: of the source, as bytes.
        ending: the ordinal, which all have in common, and their path.
        increasing: whether each is known to be above the one before it.
    """

    __slots__ = ("_times", "ties", "_rank", "_ending", "increasing")
    one_length = False

    def __init__(
        self, times: Sequence[int], ties: Sequence[int], rank: bytes, ending: bytes, increasing: bool = False
    ) -> None:
        self._times = times
        self.ties = ties
        self._rank = rank
        self._ending = ending
        self.increasing = increasing
        self._list = None

    def __reduce__(self) -> tuple[object, ...]:
        return EventMetas, (*self.made_of(), self.increasing)

    def made_of(self) -> tuple[object, ...]:
        return self._times, self.ties, self._rank, self._ending

    def __len__(self) -> int:
        return len(self._times)

    def _at(self, index: int) -> bytes:
        return pack_time(self._times[index]) + self._rank + varint(self.ties[index]) + self._ending

    def _cut(self, start: int, stop: int) -> EventMetas:
        return EventMetas(self._times[start:stop], self.ties[start:stop], self._rank, self._ending, self.increasing)

    def _computed(self) -> list[bytes]:
        rows = self._rows(b"")
        if rows is None:
            rank, ending = self._rank, self._ending
            return [pack_time(time) + rank + varint(tie) + ending for time, tie in zip(self._times, self.ties)]
        whole, each, others = rows
        metas = [meta for (meta,) in struct.iter_unpack(f"{each}s", whole)]
        for at in others:
            metas[at] = self._at(at)
        return metas

    def with_suffix(self, suffix: bytes) -> EventMetas:
        return EventMetas(self._times, self.ties, self._rank, self._ending + suffix, self.increasing)

    def times(self) -> Sequence[int]:
        return self._times

    def least(self) -> bytes:
        if self.increasing:
            return self[0]
        times, ties = self._times, self.ties
        time = min(times)
        tie, at = 2**64, -1
        for _ in range(times.count(time)):
            at = times.index(time, at + 1)
            tie = min(tie, ties[at])
        return pack_time(time) + self._rank + varint(tie) + self._ending

    def are_increasing(self) -> bool:
        pairs = zip(self._times, self.ties)
        return self.increasing or all(map(lt, pairs, islice(zip(self._times, self.ties), 1, None)))

    def order(self) -> Sequence[int]:
        keys = self._keys()
        if keys is not None:
            order = sorted(range(len(keys)), key=keys.__getitem__)
            ordered = list(map(keys.__getitem__, order))
            if all(map(lt, ordered, islice(ordered, 1, None))):
                return order
        pairs = list(zip(self._times, self.ties))
        return sorted(range(len(pairs)), key=pairs.__getitem__)

    def in_order(self, order: Sequence[int], *, increasing: bool) -> EventMetas:
        times, ties = (list(map(column.__getitem__, order)) for column in (self._times, self.ties))
        return EventMetas(times, ties, self._rank, self._ending, increasing)

    def from_on(self, bound: bytes) -> EventMetas:
        time = int.from_bytes(bound[:8].ljust(8, b"\0"), "big") + TIME_MIN
        kept = [at for at, each in enumerate(self._times) if each >= time]
        if len(bound) > 8:
            kept = [at for at in kept if self._times[at] > time or self._at(at) >= bound]
        return self.in_order(kept, increasing=self.increasing)

    def followed_by(self, later: ComputedMetas) -> EventMetas | None:
        if type(later) is not EventMetas or (later._rank, later._ending) != (self._rank, self._ending):
            return None
        times, ties = [*self._times, *later._times], [*self.ties, *later.ties]
        increasing = self.increasing and later.increasing and (not self or not later or self[-1] < later[0])
        return EventMetas(times, ties, self._rank, self._ending, increasing)

    def joined(self, head: bytes) -> bytes:
        return head + head.join(self.listed()) if self else b""

    def joined_behind(self, head_of: Callable[[int], bytes]) -> bytes:
        length = 8 + len(self._rank) + len(varint(max(self.ties, default=0))) + len(self._ending)
        rows = self._rows(head_of(length))
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

    def _rows(self, head: bytes) -> tuple[bytearray, int, list[int]] | None:
        """head + meta of each as if all ties had the length of the greatest, the length of each, and the indices of the
        others.

        None if making them one by one is as fast.
        """
        times, ties, rank, ending, count = self._times, self.ties, self._rank, self._ending, len(self._times)
        greatest = varint(max(ties, default=0))
        digits = len(greatest) - 1  # bytes of a tie behind its length byte
        if digits < 1 or count < _BY_COLUMN_MIN:
            return None
        packed_times, packed_ties = struct.pack(f">{count}q", *times), struct.pack(f">{count}Q", *ties)
        highest = packed_ties[8 - digits :: 8]
        if 2 * highest.count(0) > count:
            return None
        row = head + bytes(8) + rank + greatest[:1] + bytes(digits) + ending
        each, at = len(row), len(head)
        whole = bytearray(row * count)
        whole[at::each] = packed_times[0::8].translate(_other_sign)
        for byte in range(1, 8):
            whole[at + byte :: each] = packed_times[byte::8]
        at += 8 + len(rank) + 1
        for byte in range(digits):
            whole[at + byte :: each] = packed_ties[8 - digits + byte :: 8]
        others: list[int] = []
        found = highest.find(0)
        while found >= 0:
            others.append(found)
            found = highest.find(0, found + 1)
        if digits == 1:  # shorter by one has no length byte: up to 247 a tie is one byte
            others = [index for index, tie in enumerate(ties) if len(varint(tie)) != 2]
        return whole, each, others

    def _keys(self) -> tuple[float, ...] | None:
        """A float for each item, whose order agrees with that of the items as far as it goes; None if times are too far
        apart.

        Positive floats are ordered as their bytes are: one byte for the exponent, three of the time, four of the tie.
        """
        times, ties, count = self._times, self.ties, len(self._times)
        packed_times, packed_ties = struct.pack(f">{count}q", *times), struct.pack(f">{count}Q", *ties)
        if any(packed_times[byte::8].count(packed_times[byte]) < count for byte in range(5)):
            return None
        first = 0 if packed_ties[0::8].count(0) < count else 4
        keys = bytearray(b"\x40" + bytes(7)) * count
        for byte in range(3):
            keys[1 + byte :: 8] = packed_times[5 + byte :: 8]
        for byte in range(4):
            keys[4 + byte :: 8] = packed_ties[first + byte :: 8]
        return struct.unpack(f">{count}d", keys)
