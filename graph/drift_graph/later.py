"""Items from the future: what a map returns for a child that is to come at a later time.

Invariant: where a later child stands in the order hangs on its parent's meta, the map and the child's index alone.

Why: `placed` computes its meta from these, and from the moment that the function asked for. So a tombstone of the
parent becomes the tombstone of the child, and it changes nothing in the output when, or on which worker, the child is
processed.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Generic, TypeVar

from drift_graph.errors import CallError, StepError
from drift_graph.meta import (
    BEGINNING,
    END,
    END_OF_TIME,
    PHASE_ITEMS,
    TIME_MIN,
    hops_of,
    later_meta,
    pack_time,
    varint,
)
from drift_graph.metas import Metas
from drift_graph.moments import Moment, time_from

T = TypeVar("T")


class Later(Generic[T]):
    """A child at a later moment; `at` and `next_round` make them.

    Attributes:
        time: where it comes; None for the parent's own time.
        payload: of the child.
        phase: of the moment; see `drift_graph.meta`.
        rounds: so many rounds after the parent's.
        inward: 1 for the first round of a loop, -1 for what comes after the loop; see `drift_graph.meta.later_meta`.
    """

    __slots__ = ("time", "payload", "phase", "rounds", "inward")

    #: How many were made: where this stands still while a function is called, it has returned none that is new.
    made = 0

    def __init__(
        self, time: int | None, payload: T, phase: int = PHASE_ITEMS, rounds: int = 0, inward: int = 0
    ) -> None:
        self.time = time
        self.payload = payload
        self.phase = phase
        self.rounds = rounds
        self.inward = inward
        Later.made += 1

    def __repr__(self) -> str:
        return f"drift.at({self.time}, {self.payload!r})" if not self.rounds else f"drift.next_round({self.payload!r})"


def at(time: Moment, payload: T) -> Later[T]:
    """A child that comes at `time`, after every input item of that time; for functions of steps with `later=True`.

    >>> import drift
    >>> graph = drift.Graph("reminders")
    >>> orders = graph.source("orders", time=drift.EventTime(lambda order: order, lateness=0))
    >>> orders.flat_map(lambda order: [order, drift.at(order + 15, -order)], later=True).sink("out")
    >>> [item.payload for item in drift.run(graph, {"orders": [10, 20, 30]})]
    [10, 20, -10, 30, -20, -30]

    Args:
        time: in the unit of the source's time policy, or where that is milliseconds since 1970 a datetime with a zone,
            or ISO text with one; `drift.END`, and what is beyond it, comes after all input. Below
            its parent's time, or at that of a parent that is itself later, the child is an ordinary one and comes right
            after its parent.
        payload: of the child.

    Raises:
        SettingsError: `time` is no time; to Python it is a TypeError too.
    """
    if type(time) is not int:
        found = time_from(time)
        if found is None:
            raise CallError(f"drift.at({time!r}, ...): a time is an int, or a datetime or ISO text with a zone")
        time = found
    return Later(max(TIME_MIN, min(time, END)), payload)


def next_round(payload: T) -> Later[T]:
    """A child at the same time, one round later: after all items of this round; for functions with `later=True`.

    >>> import drift
    >>> graph = drift.Graph("halves")
    >>> halved = lambda number: [number, drift.next_round(number // 2)]
    >>> graph.source("numbers").flat_map(halved, later=True).sink("out")
    >>> [item.payload for item in drift.run(graph, {"numbers": [8, 6]})]
    [8, 4, 6, 3]
    """
    return Later(None, payload, PHASE_ITEMS, 1)


class Moves:
    """What a map's function has as `moves` that puts every payload as it is at one moment: so a batch goes at once."""

    __slots__ = ("time", "phase", "rounds", "inward")

    def __init__(self, time: int | None, phase: int, rounds: int, inward: int) -> None:
        self.time = time
        self.phase = phase
        self.rounds = rounds
        self.inward = inward

    def child(self, payload: T) -> Later[T]:
        """What the function returns."""
        return Later(self.time, payload, self.phase, self.rounds, self.inward)

    @property
    def rounds_from(self) -> bytes:
        """What this puts into a round, of what was in none, is not below it."""
        if self.time is None or self.rounds:
            return BEGINNING
        return pack_time(self.time) + b"\xff" + varint(0) + bytes((self.phase,)) if self.inward > 0 else END_OF_TIME

    def metas(self, parents: Metas, ending: bytes) -> Metas:
        """The metas of the children; see `placed`.

        Raises:
            EndlessRounds: the children are put a round later once too often.
        """
        found = parents.later(ending, self.time, self.phase, self.rounds, self.inward)
        if self.rounds and found and hops_of(found[0]) >= _HOPS_FEW and max(map(hops_of, found)) > HOPS_MAX:
            raise EndlessRounds
        return found


class Undeclared(StepError):
    """A function returned `drift.at(...)` and its step was not declared with `later=True`."""

    def __init__(self) -> None:
        super().__init__(
            "it returned drift.at(...), and its step does not say so; declare it with later=True, so that a picture of "
            "the graph shows where items go into the future"
        )


#: So many timers may set one the other after all input has ended.
HOPS_MAX = 1_000_000
_HOPS_FEW = 30  # nothing below it is searched


class EndlessTimers(StepError):
    """A step sets timers for ever: each sets the next, and nothing else comes."""

    def __init__(self) -> None:
        super().__init__(
            f"all input has ended, and of its timers each has set the next for {HOPS_MAX:,} times; let on_time stop at "
            f"some point, for example where there is nothing left to do, or set the last one at drift.END"
        )


class EndlessRounds(EndlessTimers):
    """A step puts items a round later for ever: each comes of the one before, and nothing else can come."""

    def __init__(self) -> None:
        StepError.__init__(
            self,
            f"of an item each round has put the next one a round later, for {HOPS_MAX:,} times, and what is later than "
            f"all rounds waits; let it stop at some point, or write stream.iterate(max_rounds, ...)",
        )


def placed(parent: bytes, ending: bytes, child: Any, ended: bool = False) -> tuple[bytes, Any]:
    """Meta and payload of a child of the item at `parent`.

    Args:
        ending: what the map appends for an ordinary child.
        ended: whether all input has ended.

    Raises:
        EndlessTimers: the child is one of too many, each put at a later time or round by the one before.
    """
    if type(child) is not Later:
        return parent + ending, child
    time = int.from_bytes(parent[:8], "big") + TIME_MIN if child.time is None else child.time
    meta = later_meta(parent, ending, time, child.phase, child.rounds, child.inward)
    if meta is None:
        return parent + ending, child.payload
    if child.rounds and hops_of(meta) > HOPS_MAX:
        raise EndlessRounds
    if ended and time != END and hops_of(meta) > HOPS_MAX:
        raise EndlessTimers
    return meta, child.payload


def placed_all(parent: bytes, rank: bytes, family: Sequence[Any], ended: bool) -> list[tuple[bytes, Any]]:
    """`placed` for all children that a map of this rank gave an item."""
    return [placed(parent, rank + varint(index), child, ended) for index, child in enumerate(family)]
