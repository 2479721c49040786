"""Metas of rows: what numpy does with them at once.

Invariant: that of `drift_graph.metas`.

Why: the core has no numpy; where payloads are rows, it is there, and metas come from the rows' own kinds.
"""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import xxhash

from drift_graph.meta import LATER_MARK, TIME_MIN, read_varint, varint
from drift_graph.metas import (
    CHOSEN_OF_MAX,
    ChosenMetas,
    ComputedMetas,
    EventMetas,
    Metas,
    chosen_metas,
    numbers_of,
)

Words = npt.NDArray[Any]
Bytes = npt.NDArray[np.uint8]

_STAMP = 16  # bytes: time and tie
#: The least ties of one byte behind the mark, of two and so on.
_TIES = np.array([248, *(1 << 8 * size for size in range(1, 8))], np.uint64)

_SIGN = np.uint64(1 << 63)


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
        """A row for each item: the time, as its bytes are in metas, and the tie."""
        return np.frombuffer(self.stamps, ">u8").reshape(-1, 2)

    def time_array(self) -> npt.NDArray[np.int64]:
        """`times` in an array."""
        return (self._words[:, 0].astype(np.uint64) ^ _SIGN).view(np.int64)

    def times(self) -> Sequence[int]:
        found: list[int] = self.time_array().tolist()
        return found

    def chosen(self, wanted: bytes) -> StampMetas:
        """The metas for which `wanted` has a 1."""
        return self._with(self._words[np.frombuffer(wanted, np.bool_)].tobytes(), increasing=self.increasing)

    def are_increasing(self) -> bool:
        return self.increasing or bool(_above(self._words[1:], self._words[:-1]).all())

    def are_different(self) -> bool:
        words = self._words
        return not (words[1:] == words[:-1]).all(axis=1).any()

    def later(self, suffix: bytes, ending: bytes, untils: npt.NDArray[np.int64], phase: int) -> Metas:
        """The metas of later children: those of `drift_graph.meta.later_metas` for parents with a suffix behind these.

        Args:
            ending: what the map appends.
            untils: the time of each child.
        """
        ties = self._words[:, 1].astype(np.uint64)
        sizes = np.searchsorted(_TIES, ties, side="right")  # bytes of ties behind the mark
        different = np.unique(sizes).tolist()
        if len(different) == 1:
            return WrittenMetas(self._later(suffix, ending, untils, phase, different[0]), b"")
        made = np.empty(len(self), object)
        for size in different:
            found = np.flatnonzero(sizes == size)
            some = self._with(self._words[found].tobytes(), increasing=True)
            made[found] = WrittenMetas(some._later(suffix, ending, untils[found], phase, size), b"").listed()
        return made.tolist()

    def _later(self, suffix: bytes, ending: bytes, untils: npt.NDArray[np.int64], phase: int, size: int) -> Bytes:
        """See `later`; all ties have so many bytes behind the mark, or are one byte."""
        stamps = self._words.view(np.uint8).reshape(-1, _STAMP)
        mark = _bytes_of(varint((1 << 8 * size) - 1)[: 1 if size else 0])
        tie = stamps[:, _STAMP - max(size, 1) :]
        root_end = read_varint(self._ending, 0)[1]
        rank, ordinal, path = map(_bytes_of, (self._rank, self._ending[:root_end], self._ending[root_end:] + suffix))
        root = [stamps[:, :8], rank, mark, tie, ordinal]
        parents = _beside(len(self), [*root, path, _bytes_of(ending)])
        digests = b"".join(map(xxhash.xxh3_128_digest, _listed(parents)))
        hashes = np.frombuffer(digests, np.uint8).reshape(-1, 16)
        times = (untils.view(np.uint64) ^ _SIGN).astype(">u8").view(np.uint8).reshape(-1, 8)
        moment = _bytes_of(bytes((LATER_MARK,)) + varint(0) + bytes((phase,)))
        return _beside(len(self), [times, moment, *root, _bytes_of(varint(1)), hashes, _bytes_of(ending)])

    def in_order(self, order: Sequence[int], *, increasing: bool) -> StampMetas:
        return self._with(self._words[np.asarray(order, np.int64)].tobytes(), increasing=increasing)

    def sorted(self) -> tuple[Sequence[int], EventMetas]:
        if self.increasing:
            return range(len(self)), self
        if self._sorted is None:
            words = self._words
            found = np.lexsort((words[:, 1].astype(np.uint64), words[:, 0].astype(np.uint64)))
            order = array("q", found.astype(np.int64).tobytes())  # its numbers are Python's, for whoever reads them
            self._sorted = order, self._with(words[found].tobytes(), increasing=True)
        return self._sorted


def _above(one: Words, other: Words) -> npt.NDArray[np.bool_]:
    """For each row of words whether it is above that of another."""
    above: npt.NDArray[np.bool_] = (one[:, 0] > other[:, 0]) | ((one[:, 0] == other[:, 0]) & (one[:, 1] > other[:, 1]))
    return above


class WrittenMetas(ComputedMetas):
    """Increasing metas of later items that have one length.

    Args:
        rows: what they begin with, a row for each.
        suffix: what all end with.
    """

    __slots__ = ("_rows", "_suffix")
    some_later = True

    def __init__(self, rows: Bytes, suffix: bytes) -> None:
        self._rows, self._suffix = rows, suffix
        self._list = None

    def __reduce__(self) -> tuple[object, ...]:
        return type(self), (self._rows, self._suffix)

    def made_of(self) -> tuple[object, ...]:
        return self._rows.tobytes(), self._suffix

    def __len__(self) -> int:
        return len(self._rows)

    def _at(self, index: int) -> bytes:
        found: bytes = self._rows[index].tobytes() + self._suffix
        return found

    def _cut(self, start: int, stop: int) -> WrittenMetas:
        return WrittenMetas(self._rows[start:stop], self._suffix)

    def _computed(self) -> list[bytes]:
        return _listed(_beside(len(self), [self._rows, _bytes_of(self._suffix)]))

    def with_suffix(self, suffix: bytes) -> WrittenMetas:
        return WrittenMetas(self._rows, self._suffix + suffix)

    def joined(self, head: bytes) -> bytes:
        return _beside(len(self), [_bytes_of(head), self._rows, _bytes_of(self._suffix)]).tobytes()


def _bytes_of(part: bytes) -> Bytes:
    return np.frombuffer(part, np.uint8).reshape(1, -1)


def _beside(count: int, parts: Sequence[Bytes]) -> Bytes:
    """So many rows of bytes, each made of a row of each part; a part of one row is in all."""
    made = np.empty((count, sum(part.shape[1] for part in parts)), np.uint8)
    at = 0
    for part in parts:
        made[:, at : at + part.shape[1]] = part
        at += part.shape[1]
    return made


def _listed(rows: Bytes) -> list[bytes]:
    found: list[bytes] = rows.view(f"V{rows.shape[1]}").ravel().tolist()
    return found


def stamp_metas(times: npt.NDArray[np.int64], ties: Words, rank: bytes, ending: bytes) -> StampMetas:
    """The metas of items with these times and ties; see `EventMetas`."""
    words = np.empty((len(times), 2), ">u8")
    words[:, 0] = times.view(np.uint64) ^ _SIGN
    words[:, 1] = ties
    return StampMetas(words.tobytes(), rank, ending, bool((times[1:] > times[:-1]).all()))
