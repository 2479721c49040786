"""Metas of rows: what numpy does with them at once.

Invariant: that of `drift_graph.metas`.

Why: the core has no numpy; where payloads are rows, it is there, and metas come from the rows' own kinds.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import xxhash

from drift_graph.meta import LATER_MARK, TIME_MIN, is_later, later_meta, later_metas, moment_of, read_varint, varint
from drift_graph.metas import (
    CHOSEN_OF_MAX,
    ChosenMetas,
    ComputedMetas,
    EventMetas,
    Metas,
    chosen_metas,
    numbers_of,
    with_suffix,
)
from drift_graph.metas.event import place_of

Words = npt.NDArray[Any]
Bytes = npt.NDArray[np.uint8]

_STAMP = 16  # bytes: time and tie
#: The least ties of one byte behind the mark, of two and so on.
_TIES = np.array([248, *(1 << 8 * size for size in range(1, 8))], np.uint64)

#: Times and places of so many bits, at most, are packed into one number with as much of the ties as it has room for.
_PACKED_BITS = 48

_SIGN = np.uint64(1 << 63)
_FIRST_ROUND = bytes((LATER_MARK,)) + varint(0)  # what is in a moment between time and phase, outside of loops
_TIME_BYTES, _ONE_BYTE_MAX = 8, 0xF7  # the greatest number that is a varint of one byte


class MaskedMetas(ChosenMetas):
    """A choice from metas, joined by numpy."""

    __slots__ = ()

    def joined(self, head: bytes) -> bytes:
        if not len(self):
            return b""
        mask, numbers = np.frombuffer(self.chosen, np.bool_), numbers_of(self.every)
        if numbers is None:
            rows = np.frombuffer(self.every.joined(head), f"V{len(head) + len(self.every[0])}")  # all have one length
            return rows[mask].tobytes()
        first, ending = numbers
        template = head + bytes(8) + ending
        made = np.empty(len(self), f"V{len(template)}")
        made[:] = np.frombuffer(template, made.dtype)
        kind = np.dtype({"names": ["time"], "formats": [">u8"], "offsets": [len(head)], "itemsize": len(template)})
        made.view(kind)["time"] = np.flatnonzero(mask).view(np.uint64) + np.uint64(first - TIME_MIN)
        return made.tobytes()

    def _computed(self) -> list[bytes]:
        joined, length = self.joined(b""), len(self.every[0]) if len(self) else 1
        return [joined[at : at + length] for at in range(0, len(joined), length)]


def chosen_metas_of_rows(metas: Metas, wanted: bytes) -> Metas:
    """The metas for which `wanted` has a 1."""
    if isinstance(metas, MaskedMetas):
        mask = np.zeros(len(metas.chosen), np.uint8)
        mask[np.flatnonzero(np.frombuffer(metas.chosen, np.bool_))] = np.frombuffer(wanted, np.uint8)
        return MaskedMetas(metas.every, mask.tobytes(), _ones(wanted))
    if numbers_of(metas) is None:
        found = chosen_metas(metas, wanted)
        return MaskedMetas(found.every, found.chosen, len(found)) if type(found) is ChosenMetas else found
    made = MaskedMetas(metas, wanted, _ones(wanted))  # type: ignore[arg-type]
    return made.listed() if len(made) * CHOSEN_OF_MAX < len(wanted) else made


def _ones(flags: bytes) -> int:
    return int(np.count_nonzero(np.frombuffer(flags, np.bool_)))


class StampMetas(EventMetas):
    """Metas in event time, compared and sorted by numpy."""

    __slots__ = ()

    @property
    def _words(self) -> Words:
        """A row for each item: the time, as its bytes are in metas, the tie, and the ordinal if the stamps have it."""
        return np.frombuffer(self.stamps, ">u8").reshape(-1, self._size // 8)

    def _stamps_at(self, places: Any) -> bytes:
        """The stamps at these places; twice as fast as rows of words are chosen."""
        found: bytes = np.frombuffer(self.stamps, f"V{self._size}")[places].tobytes()
        return found

    def time_array(self) -> npt.NDArray[np.int64]:
        """`times` in an array."""
        return (self._words[:, 0].astype(np.uint64) ^ _SIGN).view(np.int64)

    def times(self) -> Sequence[int]:
        found: list[int] = self.time_array().tolist()
        return found

    def least(self) -> bytes:
        return self[0] if self.increasing else self._extreme(np.min)

    def greatest(self) -> bytes:
        return self[-1] if self.increasing else self._extreme(np.max)

    def _extreme(self, of: Callable[[Words], Any]) -> bytes:
        """The least or the greatest of them, found word by word."""
        words = self._words
        places = np.arange(len(words))
        for column in words.T:
            some = column[places].astype(np.uint64)
            places = places[some == of(some)]
        return self._at(int(places[0]))

    def chosen(self, wanted: bytes) -> StampMetas:
        """The metas for which `wanted` has a 1."""
        return self._with(self._stamps_at(np.frombuffer(wanted, np.bool_)), increasing=self.increasing)

    def are_increasing(self) -> bool:
        return self.increasing or bool(_above(self._words[1:], self._words[:-1]).all())

    def alike(self, seen: Sequence[bytes]) -> dict[bytes, list[int]]:
        order, ordered = self.sorted()
        found: dict[bytes, list[int]] = {}
        if not ordered.increasing:
            edges = np.flatnonzero(_changes(ordered)) + 1
            starts, ends = np.concatenate([[0], edges]), np.concatenate([edges, [len(ordered)]])
            several = ends > starts + 1
            for start, end in zip(starts[several].tolist(), ends[several].tolist()):
                found[ordered.stamps[_STAMP * start : _STAMP * (start + 1)]] = sorted(order[start:end])
        for stamp in seen:
            at = place_of(stamp, ordered.stamps)
            assert at is not None
            found.setdefault(stamp, [order[at]])
        return found

    def with_ordinals(self, ordinals: Mapping[int, int]) -> CountedMetas:
        every = np.zeros(len(self), ">u8")
        every[list(ordinals)] = list(ordinals.values())
        return self._widened(every)

    @property
    def shared(self) -> tuple[bytes, bytes]:
        """What is in all of them: rank and path."""
        return self._rank, self._ending[1:]

    def roots(self, ordinals: Words | int = 0) -> Words:
        """What is in the global times besides, a row for each: time, as its bytes are in metas, tie and ordinal."""
        words = np.empty((len(self), 3), ">u8")
        words[:, :2], words[:, 2] = self._words, ordinals
        return words

    def _widened(self, ordinals: Words | int = 0) -> CountedMetas:
        return CountedMetas(self.roots(ordinals).tobytes(), *self.shared, self.increasing)

    def followed_by(self, later: ComputedMetas) -> EventMetas | None:
        if type(later) is not type(self) and isinstance(later, StampMetas):
            return self._widened().followed_by(later._widened())
        return super().followed_by(later)

    def later(self, suffix: bytes, ending: bytes, untils: npt.NDArray[np.int64], phase: int) -> Metas:
        """The metas of later children: those of `drift_graph.meta.later_metas` for parents with a suffix behind these.

        Args:
            ending: what the map appends.
            untils: the time of each child.
        """
        different = self._by_lengths()
        if len(different) == 1:
            return WrittenMetas(self._later(suffix, ending, untils, phase, *different[0][1]), b"")
        made = np.empty(len(self), object)
        for found, sizes in different:
            some = self._with(self._stamps_at(found), increasing=True)
            made[found] = WrittenMetas(some._later(suffix, ending, untils[found], phase, *sizes), b"").listed()
        return made.tolist()

    def _by_lengths(self) -> list[tuple[Words, tuple[int, ...]]]:
        """The places of the metas of each length, and how many bytes their ties have behind the mark."""
        sizes = _sizes(self._words[:, 1])
        return [(np.flatnonzero(sizes == size), (size,)) for size in np.unique(sizes).tolist()]

    def _root(self, *sizes: int) -> tuple[list[Bytes], bytes]:
        """The global times in parts, see `_beside`, and the path; all have ties of so many bytes behind the mark."""
        stamps = self._words.view(np.uint8).reshape(-1, self._size)
        end = read_varint(self._ending, 0)[1]
        tie = _varints(stamps[:, 8:16], sizes[0])
        return [stamps[:, :8], _bytes_of(self._rank), *tie, _bytes_of(self._ending[:end])], self._ending[end:]

    def _later(self, suffix: bytes, ending: bytes, untils: npt.NDArray[np.int64], phase: int, *sizes: int) -> Bytes:
        """See `later` and `_root`."""
        root, path = self._root(*sizes)
        parents = _beside(len(self), [*root, _bytes_of(path + suffix), _bytes_of(ending)])
        times = _time_bytes(untils)
        moment = _bytes_of(bytes((LATER_MARK,)) + varint(0) + bytes((phase,)))
        return _beside(len(self), [times, moment, *root, _bytes_of(varint(1)), _hashed(parents), _bytes_of(ending)])

    def in_order(self, order: Sequence[int], *, increasing: bool) -> StampMetas:
        return self._with(self._stamps_at(np.asarray(order, np.int64)), increasing=increasing)

    def sorted(self) -> tuple[Sequence[int], EventMetas]:
        if self.increasing:
            return range(len(self)), self
        if self._sorted is None:
            words = self._words
            found = order_of([words[:, at].astype(np.uint64) for at in range(words.shape[1])])
            order = array("q", found.astype(np.int64).tobytes())  # its numbers are Python's, for whoever reads them
            ordered = self._with(self._stamps_at(found), increasing=False)
            ordered.increasing = bool(_changes(ordered).all())  # equal ones may be among them
            self._sorted = order, ordered
        return self._sorted


class CountedMetas(StampMetas):
    """The same with an ordinal for each item: some have the time and tie of another one.

    Args:
        stamps: with the ordinal in 8 more bytes.
        ending: the path.
    """

    __slots__ = ()
    _size = _STAMP + 8

    def _meta(self, stamp: bytes) -> bytes:
        tie, ordinal = (varint(int.from_bytes(stamp[at : at + 8], "big")) for at in (8, _STAMP))
        return stamp[:8] + self._rank + tie + ordinal + self._ending

    @property
    def shared(self) -> tuple[bytes, bytes]:
        return self._rank, self._ending

    def roots(self, ordinals: Words | int = 0) -> Words:
        return self._words

    def _widened(self, ordinals: Words | int = 0) -> CountedMetas:
        return self

    def _by_lengths(self) -> list[tuple[Words, tuple[int, ...]]]:
        sizes = 16 * _sizes(self._words[:, 1]) + _sizes(self._words[:, 2])
        return [(np.flatnonzero(sizes == size), divmod(size, 16)) for size in np.unique(sizes).tolist()]

    def _root(self, *sizes: int) -> tuple[list[Bytes], bytes]:
        return _roots(self._words, self._rank, *sizes), self._ending

    def _computed(self) -> list[bytes]:
        made = np.empty(len(self), object)
        for found, sizes in self._by_lengths():
            root, path = self._with(self._stamps_at(found), increasing=True)._root(*sizes)
            made[found] = _listed(_beside(len(found), [*root, _bytes_of(path)]))
        return made.tolist()

    def _rows(self, head_of: Callable[[int], bytes]) -> None:
        return None


def _changes(metas: EventMetas) -> npt.NDArray[np.bool_]:
    """For each of some metas but the first whether it is another one than the one before it."""
    words = np.frombuffer(metas.stamps, ">u8").reshape(len(metas), -1)
    changed: npt.NDArray[np.bool_] = words[1:, 0] != words[:-1, 0]  # by column: a tenth of what rows take
    for at in range(1, words.shape[1]):
        changed |= words[1:, at] != words[:-1, at]
    return changed


def _roots(roots: Words, rank: bytes, *sizes: int) -> list[Bytes]:
    """Global times in parts, see `_beside`, whose ties and ordinals have so many bytes behind the mark."""
    stamps = np.ascontiguousarray(roots, ">u8").view(np.uint8).reshape(-1, 24)
    tie, ordinal = _varints(stamps[:, 8:16], sizes[0]), _varints(stamps[:, 16:], sizes[1])
    return [stamps[:, :8], _bytes_of(rank), *tie, *ordinal]


def _hashed(rows: Bytes) -> Bytes:
    """The hash of each row of bytes."""
    digests = b"".join(map(xxhash.xxh3_128_digest, _listed(rows)))
    return np.frombuffer(digests, np.uint8).reshape(-1, 16)


def _sizes(numbers: Words) -> Words:
    """How many bytes each has behind the mark, as a varint."""
    return np.searchsorted(_TIES, numbers.astype(np.uint64), side="right")


def _varints(numbers: Bytes, size: int) -> list[Bytes]:
    """Numbers of 8 bytes as varints, in parts; see `_sizes`."""
    return [_bytes_of(varint((1 << 8 * size) - 1)[: 1 if size else 0]), numbers[:, 8 - max(size, 1) :]]


def order_of(keys: Sequence[Words]) -> Words:
    """The places of rows of keys, one or more, in sorted order, equal ones as they are."""
    above = [(key - key.min()).astype(np.uint64) for key in keys]
    bits, own = [int(key.max()).bit_length() for key in above], int(len(keys[0]) - 1).bit_length()
    packed_bits = sum(bits[:-1]) + own
    if packed_bits <= _PACKED_BITS:
        left_out = max(packed_bits + bits[-1] - 64, 0)
        packed = above[-1] >> np.uint64(left_out)
        end = bits[-1] - left_out
        for key, size in zip(above[-2::-1], bits[-2::-1]):
            packed |= key << np.uint64(end)
            end += size
        packed = packed << np.uint64(own) | np.arange(len(packed), dtype=np.uint64)
        packed.sort()  # no two are equal, so that it need not be a stable sort, which takes three times as long
        order: Words = (packed & np.uint64((1 << own) - 1)).astype(np.int64)
        if not left_out or not _falls([key[order] for key in above]):
            return order
    order = np.lexsort(keys[::-1])
    return order


def _falls(keys: Sequence[Words]) -> bool:
    """Whether the last key of a row is below that of the row before it, and all others are the same."""
    falls: npt.NDArray[np.bool_] = keys[-1][1:] < keys[-1][:-1]
    for key in keys[:-1]:
        falls &= key[1:] == key[:-1]
    return bool(falls.any())


def _above(one: Words, other: Words) -> npt.NDArray[np.bool_]:
    """For each row of words whether it is above that of another."""
    above: npt.NDArray[np.bool_] = one[:, -1] > other[:, -1]
    for at in range(one.shape[1] - 2, -1, -1):
        above = (one[:, at] > other[:, at]) | ((one[:, at] == other[:, at]) & above)
    return above


class WrittenMetas(ComputedMetas):
    """Metas of later items that have one length.

    Args:
        rows: what they begin with, a row for each.
        suffix: what all end with.
        increasing: whether each is known to be above the one before it.
    """

    __slots__ = ("_rows", "_suffix", "increasing")
    some_later = True

    def __init__(self, rows: Bytes, suffix: bytes, increasing: bool = True) -> None:
        self._rows, self._suffix, self.increasing = rows, suffix, increasing
        self._list = None

    def __reduce__(self) -> tuple[object, ...]:
        return type(self), (self._rows, self._suffix, self.increasing)

    def made_of(self) -> tuple[object, ...]:
        return self._rows.tobytes(), self._suffix

    def __len__(self) -> int:
        return len(self._rows)

    def _at(self, index: int) -> bytes:
        found: bytes = self._rows[index].tobytes() + self._suffix
        return found

    def _cut(self, start: int, stop: int) -> WrittenMetas:
        return WrittenMetas(self._rows[start:stop], self._suffix, self.increasing)

    def _computed(self) -> list[bytes]:
        return _listed(_beside(len(self), [self._rows, _bytes_of(self._suffix)]))

    def with_suffix(self, suffix: bytes) -> WrittenMetas:
        return WrittenMetas(self._rows, self._suffix + suffix, self.increasing)

    def followed_by(self, later: ComputedMetas) -> WrittenMetas | None:
        if not isinstance(later, WrittenMetas) or later._suffix != self._suffix:
            return None
        if later._rows.shape[1] != self._rows.shape[1]:
            return None
        increasing = self.increasing and later.increasing and (not len(self) or not len(later) or self[-1] < later[0])
        return WrittenMetas(np.concatenate([self._rows, later._rows]), self._suffix, increasing)

    @property
    def _strings(self) -> Words:
        """What they begin with as strings, which numpy compares as bytes."""
        return np.ascontiguousarray(self._rows).view(f"S{self._rows.shape[1]}").ravel()

    def are_increasing(self) -> bool:
        return self.increasing or bool((self._strings[1:] > self._strings[:-1]).all())

    def sorted(self) -> tuple[Sequence[int], WrittenMetas]:
        if self.increasing:
            return range(len(self)), self
        order = np.argsort(self._strings, kind="stable")
        ordered = WrittenMetas(self._rows[order], self._suffix, increasing=False)
        ordered.increasing = ordered.are_increasing()  # equal ones may be among them
        return order.tolist(), ordered

    def in_order(self, order: Sequence[int], *, increasing: bool) -> WrittenMetas:
        return WrittenMetas(self._rows[np.asarray(order, np.int64)], self._suffix, increasing)

    def joined(self, head: bytes) -> bytes:
        return _beside(len(self), [_bytes_of(head), self._rows, _bytes_of(self._suffix)]).tobytes()


def _bytes_of(part: bytes) -> Bytes:
    return np.frombuffer(part, np.uint8).reshape(1, -1)


def _beside(count: int, parts: Sequence[Bytes]) -> Bytes:
    """So many rows of bytes, each made of a row of each part; a part of one row is in all."""
    row = b"".join(part.tobytes() if len(part) == 1 else bytes(part.shape[1]) for part in parts)
    if not row:
        return np.empty((count, 0), np.uint8)
    made = np.empty(count, f"V{len(row)}")
    made[:] = np.frombuffer(row, made.dtype)
    at = 0
    for part in parts:
        size = part.shape[1]
        if size and len(part) != 1:  # numpy copies numbers faster than rows of bytes, which have a loop each
            kind = f"u{size}" if size in (1, 2, 4, 8) else f"V{size}"
            np.ndarray(count, kind, made, at, (len(row),))[:] = part.view(kind)[:, 0]
        at += size
    return made.view(np.uint8).reshape(count, len(row))


def _listed(rows: Bytes) -> list[bytes]:
    found: list[bytes] = rows.view(f"V{rows.shape[1]}").ravel().tolist()
    return found


def next_later_metas(
    parents: Metas, suffix: bytes, ending: bytes, times: npt.NDArray[np.int64], phase: int
) -> list[bytes]:
    """`drift_graph.meta.later_meta` of parents with a suffix behind these, mostly later items of one moment.

    Args:
        ending: what the map appends.
        times: of each child.
    """
    listed = parents if isinstance(parents, list) else list(parents)
    lengths = np.fromiter(map(len, listed), np.int64, len(listed))
    sizes = np.flatnonzero(np.bincount(lengths)).tolist()
    if len(sizes) == 1:
        return _next_of_length(listed, sizes[0], suffix, ending, times, phase)
    made = np.empty(len(listed), object)
    for size in sizes:
        places = np.flatnonzero(lengths == size)
        some = list(map(listed.__getitem__, places.tolist()))
        made[places] = _next_of_length(some, size, suffix, ending, times[places], phase)
    later: list[bytes] = made.tolist()
    return later


def _next_of_length(
    parents: list[bytes], size: int, suffix: bytes, ending: bytes, times: npt.NDArray[np.int64], phase: int
) -> list[bytes]:
    """The same for parents of one length."""
    found = _next_later(np.frombuffer(b"".join(parents), np.uint8).reshape(-1, size), suffix, ending, times, phase)
    if found is not None:
        return found
    every = zip(with_suffix(parents, suffix), times.tolist())
    return [later_metas([parent], ending, time, phase)[0] for parent, time in every]


def _next_later(
    rows: Bytes, suffix: bytes, ending: bytes, times: npt.NDArray[np.int64], phase: int
) -> list[bytes] | None:
    """The same for parents of one length; None if their parts have not the same places in all."""
    first = rows[0].tobytes()
    child = later_meta(first + suffix, ending, int(times.min()), phase)
    if child is None or not is_later(first) or moment_of(first)[_TIME_BYTES:-1] != _FIRST_ROUND:
        return None
    start = at = len(moment_of(first))
    if (rows[:, :start] != rows[0, :start]).any():
        return None
    at += _TIME_BYTES
    for _ in ("rank", "tie", "ordinal"):
        sizes = np.maximum(rows[:, at], _ONE_BYTE_MAX)
        if (sizes != sizes[0]).any():
            return None
        at += 1 + int(sizes[0]) - _ONE_BYTE_MAX
    hops = rows[:, at : at + 1]
    if hops.max() >= _ONE_BYTE_MAX:
        return None
    hashes = _hashed(_beside(len(rows), [rows, _bytes_of(suffix + ending)]))
    moment = _bytes_of(moment_of(child)[_TIME_BYTES:])
    chain = rows[:, start:at], hops + np.uint8(1)
    return _listed(_beside(len(rows), [_time_bytes(times), moment, *chain, hashes, _bytes_of(ending)]))


def _time_bytes(times: npt.NDArray[np.int64]) -> Bytes:
    """The bytes of each time, as they are in metas."""
    return (times.view(np.uint64) ^ _SIGN).astype(">u8").view(np.uint8).reshape(-1, 8)


def stamp_metas(times: npt.NDArray[np.int64], ties: Words, rank: bytes, ending: bytes) -> StampMetas:
    """The metas of items with these times and ties; see `EventMetas`."""
    words = np.empty((len(times), 2), ">u8")
    words[:, 0] = times.view(np.uint64) ^ _SIGN
    words[:, 1] = ties
    return StampMetas(words.tobytes(), rank, ending, bool((times[1:] > times[:-1]).all()))
