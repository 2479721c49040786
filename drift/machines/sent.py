"""The later items that a worker has sent, until they are settled: it sends them again when a rewind drops them.

Invariant: `rewind(checkpoint)` gives the net of all later items that are at or above the checkpoint and were made from
items below it.

Why: an ordinary child comes directly after its parent in the order, so both are below a checkpoint, or neither is. A
later item is far from its parent, and its meta does not contain the parent's. So its origin is stored with it: the
input item of the program of maps, from which all maps up to the next grouping run at once. A tombstone of the origin
makes the tombstone of the child, with the same origin. Later items below minimal time are final and need not be sent
again.

On a cycle, one batch for a program may hold both an item and another that came back from a later item made from it. A
later item made from the second has the second as its origin, and items directly after the second have none. The two
differ in the rank of the grouping between them, which no meta made within a program has.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, NamedTuple

from drift.machines.maps import Origins, Ports
from drift_graph.item import Columns, sorted_by_meta
from drift_graph.meta import global_time_of, is_later
from drift_graph.metas import Metas

_RETAINED_MIN = 1024  # items that may be stored before settled ones are searched for


class LaterSent(NamedTuple):
    """A later item or its tombstone, for a grouping, a sink or FAILURES; and the meta of its origin."""

    origin: bytes
    target: str
    meta: bytes
    payload: Any
    diff: int


class SentLater:
    """The later items that one worker has sent."""

    def __init__(self) -> None:
        self._sent: list[LaterSent] = []
        self._sent_max = _RETAINED_MIN

    def add(self, ports: Ports, origins: Origins, inputs: Metas, suffix: bytes) -> None:
        """Add the later items in a program's output; `inputs` are the metas of its input, without their suffix."""
        if not origins:
            return
        returned = _returned(inputs, suffix, origins)
        for target, batches in ports.items():
            for metas, payloads, diffs in batches:
                for meta, payload, diff in zip(metas, payloads, diffs or [1] * len(metas)):
                    if is_later(meta) and (origin := _origin(meta, origins, returned)) is not None:
                        self._sent.append(LaterSent(origin, target, meta, payload, diff))

    def take_over(self, later: Iterable[LaterSent]) -> None:
        """Add the later items of a worker that this one replaces."""
        self._sent += later

    def settle(self, minimal_time: bytes) -> None:
        """Drop items below minimal time, since they are final."""
        if len(self._sent) > self._sent_max:
            self._sent = [each for each in self._sent if each.meta >= minimal_time]
            self._sent_max = max(_RETAINED_MIN, 2 * len(self._sent))

    def since(self, checkpoint_before: bytes, checkpoint: bytes) -> list[LaterSent]:
        """The later items at or above the second checkpoint whose origins are between the two checkpoints."""
        return [each for each in self._sent if checkpoint_before <= each.origin < checkpoint <= each.meta]

    def rewind(self, checkpoint: bytes) -> list[LaterSent]:
        """Forget items whose origins are at or above a checkpoint; the remaining ones at or above it, to be sent
        again.
        """
        self._sent = [each for each in self._sent if each.origin < checkpoint <= each.meta]
        return self._sent


def as_ports(later: Iterable[LaterSent]) -> Ports:
    """Later items as batches, sorted by meta, for a router."""
    by_target: dict[str, list[LaterSent]] = {}
    for each in later:
        by_target.setdefault(each.target, []).append(each)
    ports: Ports = {}
    for target, those in by_target.items():
        diffs = [each.diff for each in those]
        columns = Columns(
            Metas([each.meta for each in those]), [each.payload for each in those], diffs if -1 in diffs else None
        )
        ports[target] = [sorted_by_meta(columns)]
    return ports


#: The metas of later items in a program's input that it also made itself, by global time.
_Returned = dict[bytes, tuple[bytes, ...]]


def _returned(inputs: Metas, suffix: bytes, origins: Origins) -> _Returned:
    found: _Returned = {}
    for meta in inputs:
        if is_later(meta) and (moment := global_time_of(meta)) in origins:
            found[moment] = (*found.get(moment, ()), meta + suffix)
    return found


def _origin(meta: bytes, origins: Origins, returned: _Returned) -> bytes | None:
    """The meta of the input item that a later item was made from; None if no map of the program moved it."""
    origin: bytes | None = None
    while is_later(meta):
        moment = global_time_of(meta)
        if moment not in origins or meta.startswith(returned.get(moment, ())):
            break
        origin = meta = origins[moment]
    return origin
