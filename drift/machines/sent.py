"""The later items that a worker has sent, until they are settled: sent again where a rewind drops their effect.

Invariant: `due(cut)` gives the net of all later items that were sent for what lay below the cut, and that come at or
above it.

Why: an ordinary child stands in the order right behind what it was made of, so both are below a cut, or neither is. A
later one is far behind, and nothing in its meta says what made it. So that is kept with it, its origin: the item that
the program of maps was given, from which all maps to the next grouping run at once. A tombstone of the origin gives the
tombstone of the child, with the same origin; and what is below minimal time has come for good.

On a cycle a program may be given, in one batch, an item and what came back of a later item that it has made of it. What
is made of the second has the second as its origin, and what stands right behind it has none. The two differ in the
rank of the grouping between them, which no meta has that is made within a program.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, NamedTuple

from drift.machines.maps import Origins, Ports
from drift_graph.item import Columns, sorted_by_meta
from drift_graph.meta import global_time_of, is_later
from drift_graph.metas import Metas

_KEPT_MIN = 1024  # items that are kept until those that have come are looked for


class LaterSent(NamedTuple):
    """A later item or its tombstone, for a grouping, a sink or FAILURES; and the meta of what it was made of."""

    origin: bytes
    target: str
    meta: bytes
    payload: Any
    diff: int


class SentLater:
    """Those of one worker."""

    def __init__(self) -> None:
        self._sent: list[LaterSent] = []
        self._kept_max = _KEPT_MIN

    def note(self, ports: Ports, origins: Origins, given: Metas, suffix: bytes) -> None:
        """What a program has made, and which later items its maps have; `given` are the metas it got, less a suffix."""
        if not origins:
            return
        come_back = _come_back(given, suffix, origins)
        for target, batches in ports.items():
            for metas, payloads, diffs in batches:
                for meta, payload, diff in zip(metas, payloads, diffs or [1] * len(metas)):
                    if is_later(meta) and (origin := _origin(meta, origins, come_back)) is not None:
                        self._sent.append(LaterSent(origin, target, meta, payload, diff))

    def take_over(self, later: Iterable[LaterSent]) -> None:
        """What a worker has sent in whose place this one goes on."""
        self._sent += later

    def settle(self, minimal_time: bytes) -> None:
        """What is below minimal time has come."""
        if len(self._sent) > self._kept_max:
            self._sent = [each for each in self._sent if each.meta >= minimal_time]
            self._kept_max = max(_KEPT_MIN, 2 * len(self._sent))

    def since(self, cut_before: bytes, cut: bytes) -> list[LaterSent]:
        """Of what lay between two cuts, and comes at or above the second."""
        return [each for each in self._sent if cut_before <= each.origin < cut <= each.meta]

    def rewind(self, cut: bytes) -> list[LaterSent]:
        """Forget what was sent for what lies at or above a cut; what of the rest comes at or above it."""
        self._sent = [each for each in self._sent if each.origin < cut <= each.meta]
        return self._sent


def as_ports(later: Iterable[LaterSent]) -> Ports:
    """Later items as batches, sorted by meta, for a router."""
    by_target: dict[str, list[LaterSent]] = {}
    for each in later:
        by_target.setdefault(each.target, []).append(each)
    ports: Ports = {}
    for target, several in by_target.items():
        diffs = [each.diff for each in several]
        columns = Columns(
            [each.meta for each in several], [each.payload for each in several], diffs if -1 in diffs else None
        )
        ports[target] = [sorted_by_meta(columns)]
    return ports


#: What a program was given of later items that it made as well, by their global times.
_ComeBack = dict[bytes, tuple[bytes, ...]]


def _come_back(given: Metas, suffix: bytes, origins: Origins) -> _ComeBack:
    found: _ComeBack = {}
    for meta in given:
        if is_later(meta) and (moment := global_time_of(meta)) in origins:
            found[moment] = (*found.get(moment, ()), meta + suffix)
    return found


def _origin(meta: bytes, origins: Origins, come_back: _ComeBack) -> bytes | None:
    """What the first of the maps was given that led to a later item; None where no map of the program put it there."""
    origin: bytes | None = None
    while is_later(meta):
        moment = global_time_of(meta)
        if moment not in origins or meta.startswith(come_back.get(moment, ())):
            break
        origin = meta = origins[moment]
    return origin
