"""The functions that sugar puts into maps and groupings. No operator is defined here: there are none but the core's.

Invariant: a scan's bucket alternates: item, the state after it, item, the state after it. So the window that ends in
an item starts with the state before it, and the window that ends in a state gives nothing.

Why: a state's meta extends its item's, and the map that makes it has a rank of height 0, so it sorts before whatever
else the item causes and before the next item.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, fields
from typing import Any

from drift_graph.functions import brief, same_function


@dataclass(frozen=True, slots=True)
class State:
    """A state on its way back to the grouping of its scan."""

    key: Any
    value: Any


class _ByValue:
    """Equal to another one of its class over the same functions and values: graphs built twice are equal."""

    __slots__ = ()

    def __eq__(self, other: object) -> bool:
        return type(self) is type(other) and all(
            same_function(getattr(self, each.name), getattr(other, each.name))
            for each in fields(self)  # type: ignore[arg-type]
        )

    def __hash__(self) -> int:
        return hash(type(self).__name__)


class StepResult(TypeError):
    """A scan's step gave back something else than a pair."""

    def __init__(self, result: object) -> None:
        super().__init__(f"the step of a scan returned {result!r:.200}; it must return (next state, output)")


def pair_of(result: Any) -> tuple[Any, Any]:
    """The (state, output) that a step returned: a sequence of two, which no set, dict or text is."""
    match result:
        case state, output:
            return state, output
    raise StepResult(result)


@dataclass(frozen=True, eq=False, slots=True)
class ScanKey(_ByValue):
    """The key of an item, or of a state that comes back."""

    key: Callable[[Any], Any]

    @property
    def user_function(self) -> Callable[[Any], Any]:
        return self.key

    def __call__(self, payload: Any) -> Any:
        return payload.key if type(payload) is State else self.key(payload)


@dataclass(frozen=True, eq=False, slots=True)
class ScanOutput(_ByValue):
    """A window of a scan -> the output for its last payload, where that is an item and the state before it is known."""

    initial: Any
    step: Callable[[Any, Any], tuple[Any, Any]]
    user_function: Callable[..., Any]

    def __call__(self, window: tuple[Any, ...]) -> tuple[Any, ...]:
        pair = _stepped(window, self.initial, self.step)
        return (pair[1],) if pair else ()


@dataclass(frozen=True, eq=False, slots=True)
class ScanState(_ByValue):
    """A window of a scan -> the next state, to be fed back."""

    key: Callable[[Any], Any]
    initial: Any
    step: Callable[[Any, Any], tuple[Any, Any]]
    user_function: Callable[..., Any]

    def __call__(self, window: tuple[Any, ...]) -> tuple[State, ...]:
        pair = _stepped(window, self.initial, self.step)
        return (State(self.key(window[-1]), pair[0]),) if pair else ()

    def shown(self, window: tuple[Any, ...]) -> str:
        """A window as an error message shows it."""
        state = window[-2].value if len(window) > 1 and type(window[-2]) is State else self.initial
        return f"{brief(window[-1])}, with state {brief(state)}"


def _stepped(
    window: tuple[Any, ...], initial: Any, step: Callable[[Any, Any], tuple[Any, Any]]
) -> tuple[Any, Any] | None:
    """What the step gives for a window; None for one that ends in a state, or whose state is still on its way."""
    payload = window[-1]
    if type(payload) is State:
        return None
    if len(window) == 1:
        return pair_of(step(initial, payload))
    before = window[-2]
    return pair_of(step(before.value, payload)) if type(before) is State else None


@dataclass(frozen=True, eq=False, slots=True)
class CountStep(_ByValue):
    """The step of `count`."""

    key: Callable[[Any], Any]

    def __call__(self, count: int, payload: Any) -> tuple[int, tuple[Any, int]]:
        return count + 1, (self.key(payload), count + 1)


@dataclass(frozen=True, eq=False, slots=True)
class ReduceStep(_ByValue):
    """The step of `reduce`; its state is () before a key's first item and (value,) after it."""

    key: Callable[[Any], Any]
    function: Callable[[Any, Any], Any]

    def __call__(self, state: tuple[Any, ...], payload: Any) -> tuple[tuple[Any], tuple[Any, Any]]:
        value = self.function(state[0], payload) if state else payload
        return (value,), (self.key(payload), value)
