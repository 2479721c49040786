"""What comes at the end: one value of all items, or of all of each key.

Invariant: a key with items gives its value once, at `drift.END`, after all input; one without gives nothing.

Why: its first item sets a timer at `drift.END`, and the state is not `EMPTY` until that has come.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from drift.flow.aggregates import Aggregate
from drift.flow.windows import EMPTY, Step, Stepped
from drift.operators import OpensWindows, _ByValue
from drift_graph.later import at
from drift_graph.meta import END


@dataclass(frozen=True, eq=False, slots=True)
class EndItem(_ByValue, OpensWindows):
    """An item; the state is the accumulator."""

    key: Callable[[Any], Any]
    aggregate: Aggregate[Any, Any]

    def until(self, time: int) -> int:
        return END

    @property
    def user_function(self) -> Callable[..., Any]:
        return getattr(self.aggregate, "user_function", self.key)

    def __call__(self, state: Any, payload: Any, time: int) -> Stepped:
        if state is EMPTY:
            return self.aggregate.begin(payload), (at(END, self.key(payload)),)
        return self.aggregate.add(state, payload), ()


@dataclass(frozen=True, eq=False, slots=True)
class EndTime(_ByValue):
    """The end has come, whose note is the key."""

    aggregate: Aggregate[Any, Any]
    keyed: bool

    def __call__(self, state: Any, key: Any, time: int) -> Stepped:
        value = self.aggregate.result(state)
        return EMPTY, ((key, value) if self.keyed else value,)


def at_end(key: Callable[[Any], Any], aggregate: Aggregate[Any, Any], *, keyed: bool) -> Step:
    """The process of an aggregate at the end; `keyed` says whether results are pairs (key, value)."""
    return Step(key, EndItem(key, aggregate), EndTime(aggregate, keyed))
