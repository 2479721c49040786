"""What a stage that corrects nothing needs to go back: of each step what its keys had before it, and its rows.

Invariant: the records of the steps above a place, the newest first, give the states and timers from before the first of
these steps; its rows below the place, processed again, those as of the place. Steps that minimal time has passed are
forgotten.

Why: items come in order, so steps follow each other in the order of metas, and none but the first that ends above a
place has anything below it. A step knows its keys; what they had is in arrays where the states are, and becomes objects
only if somebody goes back.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Sequence
from itertools import chain
from typing import Any, Generic, NamedTuple, TypeVar

from drift.machines.checkpoints import DELETED
from drift_graph.item import Columns

T = TypeVar("T")


class Before(NamedTuple):
    """What the keys that a step may have changed had before it.

    Attributes:
        keys: some keys may be there twice.
        entries: gives those of the keys that had anything, see `KeyedState.put`.
    """

    keys: Iterable[Any]
    entries: Callable[[], Iterable[tuple[Any, Any]]]


class Whole(NamedTuple):
    """All that the form in order of the stage had before a step, when nothing was in the stage itself.

    Attributes:
        kept: for `InOrder.put_back`.
    """

    kept: Any


class Read(NamedTuple):
    """Keys whose states were looked up in a store: a form in order that was kept before has none of them."""

    keys: Sequence[Any]


class Step(NamedTuple):
    """A batch of rows, or timers that fired.

    Attributes:
        until: all that it changed comes below it.
        rows: None of timers alone.
        ended: whether all input had ended.
        records: in the order in which they were made.
    """

    until: bytes
    rows: Columns | None
    ended: bool
    records: Sequence[Before | Whole | Read]


def taken_back(steps: Sequence[Step]) -> tuple[Whole | None, dict[Any, Any], list[Any]]:
    """What there was before steps: all of a form in order, if it was kept, and then what keys had, or DELETED; and the
    keys that have to be looked up again.

    A key has what the first record says that knows it; what comes behind all of a form says nothing more, but which
    keys were looked up since.
    """
    found: dict[Any, Any] = {}
    records = chain.from_iterable(step.records for step in steps)
    for record in records:
        if isinstance(record, Whole):
            return record, found, [key for each in records if isinstance(each, Read) for key in each.keys]
        if isinstance(record, Read):
            continue
        entries = dict(record.entries())
        for key in record.keys:
            found.setdefault(key, entries.get(key, DELETED))
    return None, found, []


class Undo(Generic[T]):
    """The steps of a stage that may have to go back.

    Attributes:
        make: makes a stage like this one, without items; None: it never goes back, and nothing is noted.
    """

    def __init__(self) -> None:
        self.make: Callable[[], T] | None = None
        self._steps: deque[Step] = deque()
        self._records: list[Before | Whole | Read] = []  # of the present step

    def __bool__(self) -> bool:
        return self.make is not None

    def note(self, before: Before | Read) -> None:
        """Add to the present step, before any of the keys changes again."""
        self._records.append(before)

    def note_whole(self, keep: Callable[[], Any]) -> None:
        """Add what a form has to the present step, before it changes; only the first of a step counts."""
        if self and not any(isinstance(record, Whole) for record in self._records):
            self._records.append(Whole(keep()))

    def end_step(self, until: bytes, rows: Columns | None, *, ended: bool) -> None:
        """The present step is over; without records there is nothing to go back from."""
        if self._records:
            self._steps.append(Step(until, rows, ended, self._records))
            self._records = []

    def above(self, place: bytes) -> list[Step]:
        return [step for step in self._steps if step.until > place]

    def forget_above(self, place: bytes) -> None:
        self._steps = deque(step for step in self._steps if step.until <= place)

    def settle(self, minimal_time: bytes) -> None:
        """Forget what minimal time has passed."""
        while self._steps and self._steps[0].until <= minimal_time:
            self._steps.popleft()

    def stop(self) -> None:
        """Nobody goes back any more."""
        self.make = None
        self._steps.clear()
