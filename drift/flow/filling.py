"""Windows without items, between two of a key that have some.

Invariant: of each key, windows follow one another without gaps from the first that has items to the last, in order.

Why: a window that has items comes after those before it, so the step behind the windows, which knows the last of each
key, gives the missing ones right before it. When a window is empty is known at its end, but not whether the key will
have another, and without one it is to have no end; so empty windows come with the next one.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from drift.flow.calendars import Calendar
from drift.flow.opened import EMPTY, Window
from drift.operators import _ByValue

#: In place of the value of windows without items, where these do not come.
NOT_FILLED: Any = type("NotFilled", (), {"__repr__": lambda self: "not filled"})()

_MISSING_MAX = 1_000_000
#: (start, end) of a window -> those of the next one.
Following = Callable[[int, int], tuple[int, int]]


def key_of_result(window: Window[Any, Any]) -> Any:
    """The key of a window's items."""
    return window.key


class Filling(_ByValue, frozen=True):
    """The step of a key's windows; its state is the bounds of the last one.

    Args:
        value: of windows without items.
    """

    following: Following
    value: Any

    def __call__(self, state: Any, window: Window[Any, Any]) -> tuple[Any, tuple[Window[Any, Any], ...]]:
        if window.early:
            return state, (window,)
        missing: list[Window[Any, Any]] = []
        start, end = (window.start, window.end) if state is EMPTY else self.following(*state)
        while start < window.start:
            if len(missing) == _MISSING_MAX:
                raise ValueError(
                    f"more than {_MISSING_MAX:,} windows are without items before the one at {window.start}, behind "
                    f"the one at {state[0]}; is one of these times wrong? Without fill= such windows do not come"
                )
            missing.append(Window(window.key, start, end, self.value))
            start, end = self.following(start, end)
        return (window.start, window.end), (*missing, window)


class Each(_ByValue, frozen=True):
    """Windows of which one starts at every so many units of time."""

    every: int

    def __call__(self, start: int, end: int) -> tuple[int, int]:
        return start + self.every, end + self.every


class NextOf(_ByValue, frozen=True):
    """Ranges of a calendar."""

    calendar: Calendar

    def __call__(self, start: int, end: int) -> tuple[int, int]:
        return self.calendar.bounds(end)
