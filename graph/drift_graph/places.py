"""How many items of a source came at each place, that is with one time and tie: so equal ones are told apart.

Invariant: `are_new` is true only where no item of a batch has the place of another, of this batch or of one before it
that is not settled; `listed` has every such place, and how many came there.

Why: two items of one place have one tie. So while all ties have been different, all places have, and a set of the ties
is all that is kept up; which places there were is written down only where two ties have been equal, or somebody asks.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from itertools import repeat
from typing import Any

from drift_graph.meta import pack_time
from drift_graph.metas.event import EventMetas

_KEPT_MIN = 4096  # places that are kept until settled ones are looked for
_TIES_KEPT_MIN = 32768  # the same of ties: to look costs more than they take


class Places:
    """See the module.

    Args:
        known: by the first global time of a place, how many came there, and what a tie function told apart.
    """

    def __init__(self, known: dict[bytes, tuple[int, Any]] | None = None) -> None:
        self._known = known or {}
        self._kept = _KEPT_MIN
        self._unlisted: deque[tuple[EventMetas, Sequence[Any] | None]] = deque()
        self._ties: set[int] | None = set() if not known else None  # of these; None where some have been equal
        self._unlisted_kept = _TIES_KEPT_MIN

    def are_new(self, metas: EventMetas, payloads: Sequence[Any] | None) -> bool:
        """Whether nothing came before at the places of a batch, each of which is the first of its place.

        They are noted then, with the payloads, where a tie function is to tell others from them.
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
        """By the first global time of a place, the next ordinal, and what a tie function told apart."""
        for metas, payloads in self._unlisted:
            self._known.update(zip(metas.listed(), zip(repeat(1), repeat(None) if payloads is None else payloads)))
        if self._unlisted:
            self._unlisted.clear()
            self._ties = None
        return self._known

    def settle(self, time: int) -> None:
        """Nothing comes any more below this time."""
        if len(self._known) > self._kept:
            least = pack_time(time)
            self._known = {first: known for first, known in self._known.items() if first >= least}
            self._kept = max(_KEPT_MIN, 2 * len(self._known))
        if self._ties is not None and len(self._ties) > self._unlisted_kept:
            self._unlisted = deque(each for each in self._unlisted if max(each[0].times()) >= time)
            self._ties = {tie for metas, _ in self._unlisted for tie in metas.ties}
            self._unlisted_kept = max(_TIES_KEPT_MIN, 2 * len(self._ties))
