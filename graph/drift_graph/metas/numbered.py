"""The metas of numbered items: what arrival time gives."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import cache

from drift_graph.meta import pack_time
from drift_graph.metas.children import ChildMetas
from drift_graph.metas.computed import ComputedMetas

_low_bytes = bytes(range(0x100)) * 0x100  # of all numbers of two bytes
_high_bytes = b"".join(bytes((value,)) * 0x100 for value in range(0x100))


@cache
def _low_halves() -> list[bytes]:
    """All numbers of two bytes, made on first use: most processes never need them."""
    return [number.to_bytes(2, "big") for number in range(0x10000)]


class NumberedMetas(ComputedMetas):
    """The metas of consecutive numbered items that have all passed the same operators, computed on access.

    Equal to the list [pack_time(first_time + i) + ending for i in range(length)], which takes 80 bytes and 80 ns an
    item.

    Args:
        first_time: time of the first item, TIME_MIN <= first_time <= TIME_MAX - length.
        length: number of items.
        ending: the rest of their global times, and their path.
    """

    __slots__ = ("first_time", "length", "ending")

    def __init__(self, first_time: int, length: int, ending: bytes) -> None:
        self.first_time = first_time
        self.length = length
        self.ending = ending
        self._list = None

    def __reduce__(self) -> tuple[object, ...]:
        return NumberedMetas, self.made_of()

    def made_of(self) -> tuple[int, int, bytes]:
        return self.first_time, self.length, self.ending

    def __len__(self) -> int:
        return self.length

    def _at(self, index: int) -> bytes:
        return pack_time(self.first_time + index) + self.ending

    def _cut(self, start: int, stop: int) -> NumberedMetas:
        return NumberedMetas(self.first_time + start, stop - start, self.ending)

    def _computed(self) -> list[bytes]:
        ending = self.ending
        return [high + low + ending for high, lows in self._halves() for low in lows]

    def with_suffix(self, suffix: bytes) -> NumberedMetas:
        return NumberedMetas(self.first_time, self.length, self.ending + suffix)

    def times(self) -> range:
        return range(self.first_time, self.first_time + self.length)

    def numbers(self) -> tuple[int, bytes]:
        return self.first_time, self.ending

    def with_children(self, counts: Sequence[int], endings: Sequence[bytes]) -> ChildMetas:
        return ChildMetas(self, counts, endings)

    def followed_by(self, later: ComputedMetas) -> NumberedMetas | None:
        if type(later) is not NumberedMetas or later.made_of()[::2] != (self.first_time + self.length, self.ending):
            return None
        return NumberedMetas(self.first_time, self.length + later.length, self.ending)

    def joined(self, head: bytes) -> bytes:
        at, end = self.first_time + 2**63, self.first_time + 2**63 + self.length
        each, low_at = len(head) + 8 + len(self.ending), len(head) + 6
        parts: list[bytearray] = []
        while at < end:  # items whose times agree in the first six bytes
            low = at & 0xFFFF
            upto = min(low + end - at, 0x10000)
            part = bytearray((head + at.to_bytes(8, "big") + self.ending) * (upto - low))
            part[low_at::each] = _high_bytes[low:upto]
            part[low_at + 1 :: each] = _low_bytes[low:upto]
            parts.append(part)
            at += upto - low
        return b"".join(parts)

    def _halves(self) -> Iterator[tuple[bytes, list[bytes]]]:
        """The packed times: six bytes that runs of items share, and two of their own."""
        all_lows = _low_halves()
        at, end = self.first_time + 2**63, self.first_time + 2**63 + self.length
        while at < end:
            low = at & 0xFFFF
            upto = min(low + end - at, 0x10000)
            yield (at >> 16).to_bytes(6, "big"), all_lows[low:upto]
            at += upto - low
