"""Items from the future: what a map returns for a child that is to come at a later time.

Invariant: where a later child stands in the order hangs on its parent's meta, the map and the child's index alone.

Why: `placed` computes its meta from these, and from the moment that the function asked for. So a tombstone of the
parent becomes the tombstone of the child, and it changes nothing in the output when, or on which worker, the child is
processed.
"""

from __future__ import annotations

import operator
from typing import Any, Generic, TypeVar

from drift_graph.errors import StepError
from drift_graph.meta import PHASE_ITEMS, TIME_MAX, TIME_MIN, later_meta

T = TypeVar("T")


class Later(Generic[T]):
    """A child at a later moment; `at` and `next_round` make them.

    Attributes:
        time: where it comes; None for the parent's own time.
        payload: of the child.
        phase: of the moment; see `drift_graph.meta`.
        rounds: so many rounds after the parent's.
    """

    __slots__ = ("time", "payload", "phase", "rounds")

    #: How many were made: where this stands still while a function is called, it has returned none that is new.
    made = 0

    def __init__(self, time: int | None, payload: T, phase: int = PHASE_ITEMS, rounds: int = 0) -> None:
        self.time = time
        self.payload = payload
        self.phase = phase
        self.rounds = rounds
        Later.made += 1

    def __repr__(self) -> str:
        return f"drift.at({self.time}, {self.payload!r})" if not self.rounds else f"drift.next_round({self.payload!r})"


def at(time: int, payload: T) -> Later[T]:
    """A child that comes at `time`, after every input item of that time; for functions of steps with `later=True`.

    Args:
        time: in the unit of the source's time policy; `drift.END` comes after all input. Below its parent's time, or at
            that of a parent that is itself later, the child is an ordinary one and comes right after its parent.
        payload: of the child.

    Raises:
        TypeError, ValueError: `time` is not an int of 64 bits.
    """
    if type(time) is not int:
        if isinstance(time, bool):
            raise TypeError(f"drift.at({time!r}, ...): a time is an int, not a bool")
        time = operator.index(time)
    if not TIME_MIN <= time <= TIME_MAX:
        raise ValueError(f"drift.at({time}, ...): a time is an int of 64 bits")
    return Later(time, payload)


def next_round(payload: T) -> Later[T]:
    """A child at the same time, one round later: after all items of this round; for functions with `later=True`."""
    return Later(None, payload, PHASE_ITEMS, 1)


class Undeclared(StepError):
    """A function returned `drift.at(...)` and its step was not declared with `later=True`."""

    def __init__(self) -> None:
        super().__init__(
            "it returned drift.at(...), and its step does not say so; declare it with later=True, so that a picture of "
            "the graph shows where items go into the future"
        )


def placed(parent: bytes, ending: bytes, child: Any) -> tuple[bytes, Any]:
    """Meta and payload of a child of the item at `parent`, where `ending` is what an ordinary one appends."""
    if type(child) is not Later:
        return parent + ending, child
    time = int.from_bytes(parent[:8], "big") + TIME_MIN if child.time is None else child.time
    meta = later_meta(parent, ending, time, child.phase, child.rounds)
    return parent + ending if meta is None else meta, child.payload
