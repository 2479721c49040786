"""Holds items back until all sources are past them, so that no work on them has to be repeated.

Invariant: `take` gives the items below a bound, for each source in the order of metas; items taken later are above,
unless they arrived later. No item is lost, and `least` is the least meta that waits.

Why: if one process does everything, it releases no item before the sources are past it. So processing items early is
useless while there is more to read: older items come later, and the results have to be corrected. If there is nothing
to read, time is free, and everything is taken.

The waiting items of a source are sorted runs, each longer than the next of its kind: an item is sorted again only when
its run doubles, so a source that is ahead by n items costs log n for each. Rows and objects are runs of their own: what
is joined of both is objects, and so would all be that is joined with it later.
"""

from __future__ import annotations

from drift.machines.nodes.batching import BatchPolicy
from drift.machines.nodes.intake import Fed
from drift_graph.item import Columns, joined, sorted_by_meta
from drift_graph.meta import END_OF_TIME
from drift_graph.payloads import are_rows

#: What is above the most items by less than this part is taken with them: a batch costs more than some of its items.
_REST = 8

#: Items that wait, of one source: its name, and the items in the order of their metas.
Taken = tuple[str, Columns]


class _Run:
    """Items in the order of their metas, of which the first have been taken."""

    __slots__ = ("_columns", "_start")

    def __init__(self, columns: Columns) -> None:
        self._columns = columns
        self._start = 0

    def __len__(self) -> int:
        return len(self._columns.metas) - self._start

    def __getitem__(self, index: int) -> bytes:
        """The meta of a waiting item, by index."""
        return self._columns.metas[self._start + index]

    @property
    def has_rows(self) -> bool:
        return are_rows(self._columns.payloads)

    def take(self, bound: bytes) -> Columns:
        """Take the items below a bound."""
        metas, start = self._columns.metas, self._start
        takes_all = metas[-1] < bound
        self._start = end = len(metas) if takes_all else metas.count_below(bound, start)
        if takes_all and not start:
            return self._columns
        taken = self._columns.slice(start, end)
        if 2 * end > len(metas):
            self._columns, self._start = self._columns.slice(end, len(metas)), 0
        return taken

    def rest(self) -> Columns:
        return self._columns.slice(self._start, len(self._columns.metas))


def _last_of_kind(runs: list[_Run], rows: bool) -> int | None:
    """The index of the last run of rows, or of objects."""
    return next((at for at in range(len(runs) - 1, -1, -1) if runs[at].has_rows is rows), None)


class Ordering:
    """
    Args:
        policy: how many items of one source are taken at once.
    """

    def __init__(self, policy: BatchPolicy) -> None:
        self._policy = policy
        self._runs: dict[str, list[_Run]] = {}

    def __bool__(self) -> bool:
        return any(self._runs.values())

    def __len__(self) -> int:
        return sum(len(run) for runs in self._runs.values() for run in runs)

    def add(self, fed: list[Fed]) -> None:
        """Add what the sources gave."""
        for name, _, arrived in fed:
            if arrived.metas:
                runs = self._runs.setdefault(name, [])
                run = sorted_by_meta(Columns(arrived.metas, arrived.payloads, None))
                while (at := _last_of_kind(runs, are_rows(run.payloads))) is not None and len(runs[at]) <= len(
                    run.metas
                ):
                    run = sorted_by_meta(joined([runs.pop(at).rest(), run]))
                runs.append(_Run(run))

    def put_back(self, taken: list[Taken]) -> None:
        """Put items back that were taken last."""
        for name, columns in taken:
            self._runs[name].insert(0, _Run(columns))
            self._runs[name].sort(key=len, reverse=True)

    @property
    def least(self) -> bytes:
        """The least meta that waits; END_OF_TIME if none waits."""
        return min((run[0] for runs in self._runs.values() for run in runs), default=END_OF_TIME)

    def take(self, bound: bytes) -> list[Taken]:
        """Take the items below a bound, or the first of them if they are many; see `_REST`."""
        for runs in self._runs.values():
            bound = self._few_below(runs, bound)
        taken: list[Taken] = []
        for name, runs in self._runs.items():
            parts = [run.take(bound) for run in runs if run[0] < bound]
            runs[:] = [run for run in runs if len(run)]
            if parts:
                taken.append((name, parts[0] if len(parts) == 1 else sorted_by_meta(joined(parts))))
        return taken

    def _few_below(self, runs: list[_Run], bound: bytes) -> bytes:
        """The bound, or a lower one with so many items of a source below it that the rest is no small batch."""
        items_max = self._policy.items
        share = items_max // len(runs) if runs else 0
        if share:
            most = share + share // _REST
            return min([bound, *(run[share] for run in runs if len(run) > most and run[most] < bound)])
        firsts = sorted(run[at] for run in runs for at in range(min(len(run), items_max + 1)))
        return min(bound, firsts[items_max]) if len(firsts) > items_max else bound
