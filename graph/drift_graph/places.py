"""Counts the items of a source with the same time and tie, which get ordinals.

Invariant: `are_new` is true only if no item of a batch shares time and tie with another, of this batch or of an earlier
one that is not settled; `listed` gives every unsettled pair of time and tie with its count.

Why: two items with one time and tie have one tie. So as long as all ties differ, all pairs differ, and a set of ties is
the only state; the pairs are listed only when two ties were equal or somebody asks.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from itertools import repeat
from typing import Any

from drift_graph.meta import pack_time
from drift_graph.metas.event import EventMetas

_KEPT_MIN = 4096  # entries before settled ones are removed
_TIES_KEPT_MIN = 32768  # the same for ties, which cost more to remove than they take


class Places:
    """See the module.

    Args:
        known: by the first global time of a pair, its count, and the payload that a tie function assigned it to.
    """

    def __init__(self, known: dict[bytes, tuple[int, Any]] | None = None) -> None:
        self._known = known or {}
        self._kept = _KEPT_MIN
        self._unlisted: deque[tuple[EventMetas, Sequence[Any] | None]] = deque()
        self._ties: set[int] | None = set() if not known else None  # ties so far; None once two were equal
        self._unlisted_kept = _TIES_KEPT_MIN

    def are_new(self, metas: EventMetas, payloads: Sequence[Any] | None) -> bool:
        """Whether no item of a batch shares its time and tie with another; `metas` are those of first items.

        If so they are added; with their payloads, if the policy has a tie function.
        """
        if self._ties is None or self._known:
            return self._note(metas, payloads)
        before = len(self._ties)
        self._ties.update(metas.ties)
        if len(self._ties) == before + len(metas):
            self._unlisted.append((metas, payloads))
            return True
        self._ties = None
        return self._note(metas, payloads)

    def _note(self, metas: EventMetas, payloads: Sequence[Any] | None) -> bool:
        known = self.listed()
        new = dict(zip(metas.listed(), zip(repeat(1), repeat(None) if payloads is None else payloads)))
        if len(new) != len(metas) or not known.keys().isdisjoint(new.keys()):
            return False
        known.update(new)
        return True

    def listed(self) -> dict[bytes, tuple[int, Any]]:
        """By the first global time of a pair of time and tie, the next ordinal, and the payload if there is a tie
        function.
        """
        for metas, payloads in self._unlisted:
            self._known.update(zip(metas.listed(), zip(repeat(1), repeat(None) if payloads is None else payloads)))
        if self._unlisted:
            self._unlisted.clear()
            self._ties = None
        return self._known

    def settle(self, time: int) -> None:
        """No item below this time will come."""
        if len(self._known) > self._kept:
            least = pack_time(time)
            self._known = {first: known for first, known in self._known.items() if first >= least}
            self._kept = max(_KEPT_MIN, 2 * len(self._known))
        if self._ties is not None and len(self._ties) > self._unlisted_kept:
            self._unlisted = deque(each for each in self._unlisted if max(each[0].times()) >= time)
            self._ties = {tie for metas, _ in self._unlisted for tie in metas.ties}
            self._unlisted_kept = max(_TIES_KEPT_MIN, 2 * len(self._ties))
