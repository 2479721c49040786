"""The metas of a batch.

Invariant: `Metas` is one class, the kernel's, or without the kernel the list of bytes that says what it means; every
question has one answer.

Why: most metas are never needed one by one: the digest takes their bytes, partitioning chooses some, and machines need
the first and the last. So the kernel has them in one array, and makes a meta when somebody asks for it. The list beside
it is too simple to be wrong; the same tests run for both.
"""

from __future__ import annotations

import copyreg
import struct
from array import array
from bisect import bisect_left
from collections.abc import Iterable, Iterator, Sequence
from itertools import accumulate, chain, compress, islice
from operator import lt
from typing import TYPE_CHECKING, Any, overload

from drift_graph.meta import (
    LATER_MARK,
    LATER_MARK_AT,
    TIME_MAX,
    TIME_MIN,
    later_meta,
    pack_time,
    skip_varint,
    time_of,
    varint,
)
from drift_kernel import kernel

#: Integers of 64 bits in one buffer: an array, or one of numpy.
Integers = Any

_head = struct.Struct(">QQQQ")  # how many metas, the sizes of what is in front of and behind all, the size of the rest
_FEW_BYTES = 0x100
_TIE_VARINTS = 3  # source rank, tie, ordinal


class ListedMetas(Sequence[bytes]):
    """Metas, which are never changed: an operation gives others.

    Equal to another one, or to a list, with the same metas.
    """

    __slots__ = ("_metas",)

    def __init__(self, metas: Iterable[bytes] = ()) -> None:
        self._metas = list(metas)
        for meta in self._metas:
            if not isinstance(meta, bytes):
                raise TypeError(f"a meta is bytes, not {type(meta).__name__}")

    @staticmethod
    def numbered(first_time: int, count: int, ending: bytes) -> Metas:
        """The metas of items with consecutive times, with the same bytes behind them.

        Raises:
            ValueError: not all are times, TIME_MIN to TIME_MAX.
        """
        if count < 0 or not TIME_MIN <= first_time <= TIME_MAX - max(count - 1, 0):
            raise ValueError(f"{count} times from {first_time} on are no times of 64 bits")
        return _of([pack_time(time) + ending for time in range(first_time, first_time + count)])

    @staticmethod
    def stamped(
        times: Integers,
        ties: Integers,
        rank: bytes,
        ending: bytes,
        ordinals: Integers | None = None,
        order: Integers | None = None,
    ) -> Metas:
        """The metas of items with these times and ties.

        Args:
            times: of 64 bits, signed.
            ties: of 64 bits, unsigned.
            rank: of the source, as bytes.
            ending: what is behind the tie, or behind the ordinal if there are any.
            ordinals: of 64 bits, signed; 0 or more.
            order: what `sorted` will say first, if it is known and these are not in order, no two of them equal.

        Raises:
            ValueError: there are not as many of each.
        """
        count = len(times)
        if len(ties) != count or (ordinals is not None and len(ordinals) != count):
            raise ValueError(f"there are {count} times, and as many ties and ordinals are needed")
        each = zip(map(int, times), map(int, ties), [None] * count if ordinals is None else map(int, ordinals))
        return _of(
            [
                pack_time(time) + rank + varint(tie) + (b"" if ordinal is None else varint(ordinal)) + ending
                for time, tie, ordinal in each
            ]
        )

    def __len__(self) -> int:
        return len(self._metas)

    def __iter__(self) -> Iterator[bytes]:
        return iter(self._metas)

    @overload
    def __getitem__(self, place: int) -> bytes: ...
    @overload
    def __getitem__(self, place: slice) -> Metas: ...
    def __getitem__(self, place: int | slice) -> bytes | Metas:
        if not isinstance(place, slice):
            if not -len(self._metas) <= place < len(self._metas):
                raise IndexError(f"there are {len(self._metas)} metas, and none at {place}")
            return self._metas[place]
        start, stop, step = place.indices(len(self._metas))
        if step != 1:
            raise ValueError(f"a slice of metas has a step of 1, not {step}")
        return self if (start, stop) == (0, len(self._metas)) else _of(self._metas[place])

    def __eq__(self, other: object) -> bool:
        if isinstance(other, ListedMetas):
            return self._metas == other._metas
        return self._metas == other if isinstance(other, list) else NotImplemented

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        return f"Metas({self._metas!r})"

    # Order.

    def is_increasing(self) -> bool:
        """Whether every meta is above the one before it."""
        return all(map(lt, self._metas, islice(self._metas, 1, None)))

    def sorted(self) -> tuple[Sequence[int], Metas]:
        """The indices of the metas in sorted order, in an array, equal ones in their present order; and these metas."""
        order = array("q", sorted(range(len(self._metas)), key=self._metas.__getitem__))
        return order, self.take(order)

    def count_below(self, bound: bytes, start: int = 0, stop: int | None = None) -> int:
        """How many of increasing metas are below a bound, if those before `start` are, and none from `stop` on."""
        end = len(self._metas) if stop is None else stop
        if not 0 <= start <= end <= len(self._metas):
            raise IndexError(f"there are {len(self._metas)} metas, and none from {start} up to {end}")
        return bisect_left(self._metas, bound, start, end)

    def from_on(self, bound: bytes) -> Metas:
        """The metas at or above a bound, sorted."""
        return _of(sorted(filter(bound.__le__, self._metas)))

    def least(self) -> bytes:
        """The least of one meta or more."""
        if not self._metas:
            raise ValueError("of no metas there is none")
        return min(self._metas)

    def greatest(self) -> bytes:
        """The greatest of one meta or more."""
        if not self._metas:
            raise ValueError("of no metas there is none")
        return max(self._metas)

    # Some of them, or others made of them.

    def take(self, order: Integers) -> Metas:
        """The metas at these indices, 0 or more, in this order; a list, or of 64 bits in a buffer."""
        for at in order:
            if not 0 <= at < len(self._metas):
                raise IndexError(f"there are {len(self._metas)} metas, and none at {at}")
        return _of(list(map(self._metas.__getitem__, order)))

    def chosen(self, wanted: Sequence[int]) -> Metas:
        """The metas for which `wanted`, bytes, has no 0."""
        if len(wanted) != len(self._metas):
            raise ValueError(f"there are {len(self._metas)} metas, and {len(wanted)} were asked about")
        return _of(list(compress(self._metas, wanted)))

    def with_suffix(self, suffix: bytes) -> Metas:
        """Every meta with the same bytes behind it."""
        return _of([meta + suffix for meta in self._metas])

    def children(self, counts: Sequence[int], endings: Sequence[bytes]) -> Metas:
        """The metas of each one's children, of which `counts` says how many; children with one index have one ending.

        Raises:
            ValueError: there are not as many counts, or there are too few endings.
        """
        if len(counts) != len(self._metas):
            raise ValueError(f"there are {len(self._metas)} metas, and {len(counts)} counts of children")
        for count in counts:
            if not 0 <= count <= len(endings):
                raise ValueError(f"there are {len(endings)} endings, for {count} children")
        return _of([meta + ending for meta, count in zip(self._metas, counts) for ending in endings[:count]])

    @staticmethod
    def joined(several: Iterable[Metas]) -> Metas:
        """Metas one after the other."""
        return _of(list(chain.from_iterable(several)))

    @staticmethod
    def merged(several: Iterable[Metas]) -> tuple[bytes, Metas]:
        """The metas of parts, at most 256, in sorted order, those of each part increasing; and before them for each the
        number of its part. Of equal ones that of the first part is first.

        Raises:
            ValueError: there are more parts, or one does not increase.
        """
        parts = [list(each) for each in several]
        if len(parts) > _FEW_BYTES:
            raise ValueError(f"{len(parts)} parts have no numbers of a byte")
        if not all(_of(each).is_increasing() for each in parts):
            raise ValueError("only increasing metas are merged")
        both = sorted((meta, number) for number, each in enumerate(parts) for meta in each)
        return bytes([number for _, number in both]), _of([meta for meta, _ in both])

    def later(self, ending: bytes, time: int | Integers | None, phase: int, rounds: int = 0, inward: int = 0) -> Metas:
        """The metas of children that a map puts at a later moment, or of ordinary ones where the moment is not later.

        Args:
            ending: what the map appends.
            time: of all children, or of each in a buffer; None for those of these metas.

        Raises:
            ValueError: there are not as many times; or one of these is no meta.
        """
        times: Iterable[int | None] = [time] * len(self._metas) if time is None or isinstance(time, int) else time
        found: list[bytes] = []
        for meta, its in zip(self._metas, times, strict=True):
            try:
                its = time_of(meta) if its is None else int(its)
                child = later_meta(meta, ending, its, phase, rounds, inward)
            except IndexError:
                raise ValueError(f"{meta!r} is no meta") from None
            found.append(meta + ending if child is None else child)
        return _of(found)

    # What is in them.

    def times(self) -> Sequence[int]:
        for meta in self._metas:
            if len(meta) < LATER_MARK_AT:
                raise ValueError(f"{meta!r} is no meta")
        return array("q", map(time_of, self._metas))

    def some_later(self) -> bool:
        """Whether some belong to later items."""
        return any(meta[LATER_MARK_AT : LATER_MARK_AT + 1] == bytes((LATER_MARK,)) for meta in self._metas)

    def numbers(self) -> tuple[int, bytes] | None:
        """The first time and what is behind each, if the times are consecutive and what is behind is the same."""
        if not self._metas or len(self._metas[0]) < LATER_MARK_AT:
            return None
        first, ending = time_of(self._metas[0]), self._metas[0][LATER_MARK_AT:]
        if first > TIME_MAX - (len(self._metas) - 1):
            return None
        is_so = all(meta == pack_time(time) + ending for time, meta in enumerate(self._metas, first))
        return (first, ending) if is_so else None

    # As bytes.

    def encoded(self, start: int = 0, stop: int | None = None) -> bytes:
        """The metas from `start` up to `stop` in MessagePack, one behind the other: their canonical bytes."""
        return b"".join([_header(len(meta)) + meta for meta in self._metas[start:stop]])

    @staticmethod
    def decoded(count: int, data: bytes) -> Metas:
        """So many metas of what `encoded` gave. Raises ValueError: they are none."""
        if not 0 <= count <= len(data) // 2:
            raise ValueError(f"{len(data)} bytes are not those of {count} metas")
        found: list[bytes] = []
        at = 0
        for number in range(count):
            size = -1
            if at < len(data) and 0xC4 <= data[at] <= 0xC6:
                start = at + 1 + (1 << (data[at] - 0xC4))
                if start <= len(data):
                    size = int.from_bytes(data[at + 1 : start], "big")
            if size < 0 or size > len(data) - start:
                raise ValueError(f"{len(data)} bytes are not those of {count} metas: meta {number} is none")
            found.append(bytes(data[start : start + size]))
            at = start + size
        if at != len(data):
            raise ValueError(f"{len(data)} bytes are not those of {count} metas: {len(data) - at} are left")
        return _of(found)

    def split(self) -> tuple[array[int], bytes, array[int], bytes]:
        """What is behind the times, three varints and the rest of each: where each of them ends, from 0 on, and the
        bytes of all; the same of the rests.

        Raises:
            ValueError: a meta ends within the three.
        """
        ends = [_behind_tie(meta) for meta in self._metas]
        ties = [meta[LATER_MARK_AT:end] for meta, end in zip(self._metas, ends)]
        rests = [meta[end:] for meta, end in zip(self._metas, ends)]
        return *_joined(ties), *_joined(rests)

    def packed(self) -> bytes:
        """The metas for another process: what is the same in front of all of them is there once.

        The bytes are those of `_head`, what is in front, what is behind, a size for each unless all have one, and the
        rests. Sizes are of one byte or, if the last number of the head is 1, of four; if it is more, it is the size of
        each rest, and 1.
        """
        metas = self._metas
        sizes = set(map(len, metas))
        shared = len(_prefix_of(min(metas), max(metas))) if metas else 0
        is_fixed = len(sizes) == 1 and sizes != {0}
        if is_fixed:
            shared = min(shared, len(metas[0]) - 1)
        rests = [meta[shared:] for meta in metas]
        is_small = max(map(len, rests), default=0) < _FEW_BYTES
        kind = len(rests[0]) + 1 if is_fixed else int(not is_small)
        each = b"" if is_fixed else struct.pack(f">{len(rests)}{'B' if is_small else 'I'}", *map(len, rests))
        front = metas[0][:shared] if metas else b""
        return b"".join([_head.pack(len(metas), shared, 0, kind), front, each, *rests])

    @staticmethod
    def unpacked(data: bytes) -> Metas:
        """The inverse of `packed`. Raises ValueError: these are no such bytes."""
        length = len(data)
        if length < _head.size:
            raise ValueError(f"{length} bytes are no metas: they have {_head.size} bytes at least")
        count, shared, more, kind = _head.unpack_from(data)
        left, at = length - _head.size, _head.size
        if shared + more > left:
            raise ValueError(f"{length} bytes are no metas: {shared} and {more} bytes of each are not there")
        front, behind = data[at : at + shared], data[at + shared : at + shared + more]
        left, at = left - shared - more, at + shared + more
        if kind < 2:
            each = 4 if kind else 1
            if count > left // each:
                raise ValueError(f"{length} bytes are no metas: the sizes of {count} are not there")
            sizes: Sequence[int] = struct.unpack_from(f">{count}{'I' if kind else 'B'}", data, at)
            left, at = left - count * each, at + count * each
            if sum(sizes) != left:
                raise ValueError(f"{length} bytes are no metas: {left} bytes are those of sizes that make {sum(sizes)}")
        elif left % (kind - 1) or left // (kind - 1) != count:
            raise ValueError(f"{length} bytes are no metas: {left} bytes are not {count} of {kind - 1}")
        else:
            sizes = [kind - 1] * count
        found = []
        for size in sizes:
            found.append(front + data[at : at + size] + behind)
            at += size
        return _of(found)


def _of(metas: list[bytes]) -> Metas:
    """Metas of a list that nobody else has."""
    made = ListedMetas.__new__(ListedMetas)
    made._metas = metas
    return made


def _behind_tie(meta: bytes) -> int:
    end = LATER_MARK_AT
    for _ in range(_TIE_VARINTS):
        end = skip_varint(meta, end) if end < len(meta) else len(meta) + 1
    if end > len(meta):
        raise ValueError("a meta ends within its global time")
    return end


def _joined(parts: list[bytes]) -> tuple[array[int], bytes]:
    return array("q", accumulate(map(len, parts), initial=0)), b"".join(parts)


def _header(size: int) -> bytes:
    """What MessagePack has in front of so many bytes."""
    if size < 1 << 8:
        return b"\xc4" + size.to_bytes(1, "big")
    return b"\xc5" + size.to_bytes(2, "big") if size < 1 << 16 else b"\xc6" + size.to_bytes(4, "big")


def _prefix_of(one: bytes, other: bytes) -> bytes:
    """What both begin with."""
    at = next((at for at, (left, right) in enumerate(zip(one, other)) if left != right), min(len(one), len(other)))
    return one[:at]


if TYPE_CHECKING:
    Metas = ListedMetas
else:
    Metas = ListedMetas if kernel is None else kernel.Metas
    Sequence.register(Metas)


def unpacked_metas(packed: bytes) -> Metas:
    """The metas that another process has packed."""
    return Metas.unpacked(packed)


copyreg.pickle(Metas, lambda metas: (unpacked_metas, (metas.packed(),)))
if not TYPE_CHECKING and Metas is not ListedMetas:
    copyreg.pickle(ListedMetas, lambda metas: (unpacked_metas, (metas.packed(),)))
