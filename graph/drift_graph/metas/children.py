"""The metas of what maps made from numbered items."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from itertools import accumulate

from drift_graph.metas.computed import ComputedMetas

_BY_COLUMN_MIN = 64  # fewer parents are as fast one by one
_RUN_MIN = 16  # shorter runs of parents with a common byte are not taken together
_AT_ONCE_MAX = 1 << 14  # rows that are written column by column; more do not stay in the processor's cache meanwhile
_one_byte = [bytes((value,)) for value in range(0x100)]


class ChildMetas(ComputedMetas):
    """The metas of a map's children of numbered items, any number for each.

    Args:
        parents: metas of the numbered items.
        counts: number of children of each parent.
        endings: the suffix of a child, by its index; all have one length.
        skipped: number of leading children that are left out.
        ends: cumulative counts, if known.
    """

    __slots__ = ("parents", "counts", "endings", "skipped", "_ends")

    def __init__(
        self,
        parents: ComputedMetas,
        counts: Sequence[int],
        endings: Sequence[bytes],
        skipped: int = 0,
        ends: list[int] | None = None,
    ) -> None:
        self.parents = parents
        self.counts = counts
        self.endings = endings
        self.skipped = skipped
        self._ends = list(accumulate(counts)) if ends is None else ends
        self._list = None

    def __reduce__(self) -> tuple[object, ...]:
        return ChildMetas, (self.parents, self.counts, self.endings, self.skipped)

    def made_of(self) -> tuple[object, ...]:
        return *self.parents.made_of(), self.counts, self.endings, self.skipped

    def __len__(self) -> int:
        return self._ends[-1] - self.skipped if self._ends else 0

    def _at(self, index: int) -> bytes:
        family, child = self._family_and_child(index)
        return self.parents[family] + self.endings[child]

    def _family_and_child(self, index: int) -> tuple[int, int]:
        """For the item at an index, the index of its parent and its index among the parent's children."""
        index += self.skipped
        family = bisect_right(self._ends, index)
        return family, index - self._ends[family] + self.counts[family]

    def _cut(self, start: int, stop: int) -> ChildMetas:
        if start == stop:
            return ChildMetas(self.parents[:0], [], self.endings)
        first, skipped = self._family_and_child(start)
        last, child = self._family_and_child(stop - 1)
        counts = [*self.counts[first:last], child + 1]
        return ChildMetas(self.parents[first : last + 1], counts, self.endings, skipped)

    def _computed(self) -> list[bytes]:
        families = [self.endings[:count] for count in range(max(self.counts, default=0) + 1)]
        every = [parent + ending for parent, count in zip(self.parents, self.counts) for ending in families[count]]
        return every[self.skipped :]

    def with_suffix(self, suffix: bytes) -> ChildMetas:
        endings = [ending + suffix for ending in self.endings]
        return ChildMetas(self.parents, self.counts, endings, self.skipped, self._ends)

    def joined(self, head: bytes) -> bytes:
        if len(self) > _AT_ONCE_MAX:
            pieces = (self[at : at + _AT_ONCE_MAX] for at in range(0, len(self), _AT_ONCE_MAX))
            return b"".join([piece.joined(head) for piece in pieces])
        parents, counts, endings = self.parents, self.counts, self.endings
        if not self or len(parents) < _BY_COLUMN_MIN:
            return head + head.join(self.listed()) if self else b""
        rows = parents.joined(b"")
        length = len(rows) // len(parents)
        row = head + rows[:length] + endings[0]
        each, at = len(row), len(head)
        result = bytearray(row * self._ends[-1])
        for column in (rows[byte::length] for byte in range(length)):
            if column.count(column[0]) < len(column):
                result[at::each] = self._repeated(column)
            at += 1
        for column in map(bytes, zip(*endings)):
            if column.count(column[0]) < len(column):
                families = [column[:count] for count in range(len(column) + 1)]
                result[at::each] = b"".join(map(families.__getitem__, counts))
            at += 1
        del result[: self.skipped * each]
        return bytes(result)

    def _repeated(self, column: bytes) -> bytes:
        """A byte for each parent, repeated for each of its children."""
        if len(set(column)) * _RUN_MIN > len(column):
            return b"".join([_one_byte[byte] * count for byte, count in zip(column, self.counts)])
        parts: list[bytes] = []
        start = done = 0
        while start < len(column):  # parents are sorted, so the high bytes of their times repeat
            one = column[start : start + 1]
            start = len(column) - len(column[start:].lstrip(one))
            parts.append(one * (self._ends[start - 1] - done))
            done = self._ends[start - 1]
        return b"".join(parts)
