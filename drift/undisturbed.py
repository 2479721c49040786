"""Marks calls that a handler of signals lets return first: the writing of output, and the closing of a run.

Invariant: while a function that is `undisturbed` runs in a thread, `may_be_interrupted` is False in that thread.

Why: handlers of signals run in the main thread, between its own lines, so a count of calls in that thread is enough.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from functools import wraps
from typing import ParamSpec, TypeVar

P = ParamSpec("P")
R = TypeVar("R")


class _Depth(threading.local):
    calls = 0


_depth = _Depth()


def undisturbed(function: Callable[P, R]) -> Callable[P, R]:
    """The function, marked: a handler of signals waits until it has returned."""

    @wraps(function)
    def called(*args: P.args, **kwargs: P.kwargs) -> R:
        _depth.calls += 1
        try:
            return function(*args, **kwargs)
        finally:
            _depth.calls -= 1

    return called


def may_be_interrupted() -> bool:
    """Whether this thread is in no function that is `undisturbed`."""
    return not _depth.calls
