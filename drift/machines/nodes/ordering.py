"""Items that wait until all sources are past them, so that nothing that is done with them has to be done again.

Invariant: `take` gives what is below a bound, of each source in the order of metas; what is given later lies above,
unless it comes later. Nothing that came is lost, and `least` is the least that waits.

Why: where one process does everything, nothing is released before the sources are past it. So what is done ahead of
them is worth nothing while there is more to read, and what it was done without comes later and corrects it. Where
there is nothing to read, time is free, and `take` is asked for everything.
"""

from __future__ import annotations

from bisect import bisect_left

from drift.machines.nodes.intake import Fed
from drift_graph.item import Columns, joined, sorted_by_meta
from drift_graph.meta import END_OF_TIME

#: A piece of what waits that a source gave: its name, and items in the order of their metas.
Taken = tuple[str, Columns]


class Ordering:
    """See the module.

    Args:
        items_max: of one source that are given at once, about.
    """

    def __init__(self, items_max: int) -> None:
        self._items_max = items_max
        self._new: dict[str, list[Columns]] = {}  # in the order in which they came
        self._sorted: dict[str, Columns] = {}

    def __bool__(self) -> bool:
        return bool(self._new or self._sorted)

    def add(self, fed: list[Fed]) -> None:
        """What the sources gave."""
        for name, _, arrived in fed:
            if arrived.metas:
                self._new.setdefault(name, []).append(Columns(arrived.metas, arrived.payloads, None))

    @property
    def least(self) -> bytes:
        """The least meta that waits; the end of time where none does."""
        self._sort()
        return min((columns.metas[0] for columns in self._sorted.values()), default=END_OF_TIME)

    def take(self, bound: bytes) -> list[Taken]:
        """What is below a bound, or the first of that where it is much."""
        self._sort()
        for metas, _, _ in self._sorted.values():
            if len(metas) > self._items_max and metas[self._items_max] < bound:
                bound = metas[self._items_max]
        taken: list[Taken] = []
        for name, columns in list(self._sorted.items()):
            metas = columns.metas
            end = len(metas) if metas[-1] < bound else bisect_left(metas, bound)
            if end == len(metas):
                taken.append((name, columns))
                del self._sorted[name]
            elif end:
                taken.append((name, columns.cut(0, end)))
                self._sorted[name] = columns.cut(end, len(metas))
        return taken

    def _sort(self) -> None:
        for name, batches in self._new.items():
            before = self._sorted.get(name)
            self._sorted[name] = sorted_by_meta(joined([before, *batches] if before is not None else batches))
        self._new.clear()
