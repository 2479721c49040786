"""Metas chosen from others: each worker's share of a batch that is partitioned by key."""

from __future__ import annotations

from itertools import compress
from typing import Self

from drift_graph.metas.computed import ComputedMetas


class ChosenMetas(ComputedMetas):
    """A choice from computed metas.

    Args:
        every: the metas.
        chosen: a byte for each of them, 1 if it was chosen, else 0.
        length: how many were chosen, where that is known.
    """

    __slots__ = ("every", "chosen", "_length", "_indices")

    def __init__(self, every: ComputedMetas, chosen: bytes, length: int | None = None) -> None:
        self.every = every
        self.chosen = chosen
        self._length = chosen.count(1) if length is None else length
        self._indices: list[int] | None = None
        self._list = None

    def __reduce__(self) -> tuple[object, ...]:
        return type(self), (self.every, self.chosen)

    def made_of(self) -> tuple[object, ...]:
        return self.chosen, *self.every.made_of()

    def __len__(self) -> int:
        return self._length

    def _at(self, index: int) -> bytes:
        if index == 0:  # the first and the last are needed for every batch
            return self.every[self.chosen.index(1)]
        if index == self._length - 1:
            return self.every[self.chosen.rindex(1)]
        return self.every[self._listed_indices()[index]]

    def _listed_indices(self) -> list[int]:
        if self._indices is None:
            self._indices = list(compress(range(len(self.chosen)), self.chosen))
        return self._indices

    def _cut(self, start: int, stop: int) -> Self:
        if start == stop:
            return type(self)(self.every[:0], b"")
        first, end = self._listed_indices()[start], self._listed_indices()[stop - 1] + 1
        return type(self)(self.every[first:end], self.chosen[first:end])

    def _computed(self) -> list[bytes]:
        return list(compress(self.every, self.chosen))

    def times(self) -> list[int]:
        return list(compress(self.every.times(), self.chosen))

    def with_suffix(self, suffix: bytes) -> Self:
        return type(self)(self.every.with_suffix(suffix), self.chosen, self._length)

    def split_out_of(self) -> tuple[object, ...]:
        return self.every.made_of()

    def followed_by(self, later: ComputedMetas) -> Self | None:
        every = self.every.followed_by(later.every) if isinstance(later, ChosenMetas) else None
        return None if every is None else type(self)(every, self.chosen + later.chosen)  # type: ignore[attr-defined]

    def joined(self, head: bytes) -> bytes:
        if not self._length:
            return b""
        rows, length = self.every.joined(head), len(head) + len(self.every[0])  # all have one length
        return b"".join([rows[at : at + length] for at in compress(range(0, len(rows), length), self.chosen)])
