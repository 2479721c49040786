"""The metas of what maps made of numbered items."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from itertools import accumulate

from drift_graph.metas.computed import ComputedMetas


class ChildMetas(ComputedMetas):
    """The metas of the children that a map gave numbered items, any number each.

    Args:
        parents: metas of the numbered items.
        counts: how many children each has.
        endings: what is appended for a child, by its index; all of one length.
        skipped: so many of the first children are left out.
    """

    __slots__ = ("parents", "counts", "endings", "skipped", "_ends")

    def __init__(
        self, parents: ComputedMetas, counts: Sequence[int], endings: Sequence[bytes], skipped: int = 0
    ) -> None:
        self.parents = parents
        self.counts = counts
        self.endings = endings
        self.skipped = skipped
        self._ends = list(accumulate(counts))
        self._list = None

    def __reduce__(self) -> tuple[object, ...]:
        return ChildMetas, (self.parents, self.counts, self.endings, self.skipped)

    def made_of(self) -> tuple[object, ...]:
        return *self.parents.made_of(), self.counts, self.endings, self.skipped

    def __len__(self) -> int:
        return self._ends[-1] - self.skipped if self._ends else 0

    def _at(self, index: int) -> bytes:
        family, child = self._place(index)
        return self.parents[family] + self.endings[child]

    def _place(self, index: int) -> tuple[int, int]:
        """Of the item at an index: which parent it has, and which child of that it is."""
        index += self.skipped
        family = bisect_right(self._ends, index)
        return family, index - self._ends[family] + self.counts[family]

    def _cut(self, start: int, stop: int) -> ChildMetas:
        if start == stop:
            return ChildMetas(self.parents[:0], [], self.endings)
        first, skipped = self._place(start)
        last, child = self._place(stop - 1)
        counts = [*self.counts[first:last], child + 1]
        return ChildMetas(self.parents[first : last + 1], counts, self.endings, skipped)

    def _computed(self) -> list[bytes]:
        families = [self.endings[:count] for count in range(max(self.counts, default=0) + 1)]
        every = [parent + ending for parent, count in zip(self.parents, self.counts) for ending in families[count]]
        return every[self.skipped :]

    def with_suffix(self, suffix: bytes) -> ChildMetas:
        return ChildMetas(self.parents, self.counts, [ending + suffix for ending in self.endings], self.skipped)

    def joined(self, head: bytes) -> bytes:
        families = [(b"", *self.endings[:count]) for count in range(max(self.counts, default=0) + 1)]
        pieces = [(head + parent).join(families[count]) for parent, count in zip(self.parents, self.counts)]
        return b"".join(pieces)[self.skipped * len(head + self[0]) :] if self else b""
