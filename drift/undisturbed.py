"""What a signal does not interrupt: the writing of output, and the closing of a run.

Invariant: while a function that is `undisturbed` runs in a thread, `may_be_interrupted` says no in that thread.

Why: handlers of signals run in the main thread, in between its own lines, so they ask a count of that thread.
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
    """The function, which who handles a signal is to let come to its end."""

    @wraps(function)
    def called(*args: P.args, **kwargs: P.kwargs) -> R:
        _depth.calls += 1
        try:
            return function(*args, **kwargs)
        finally:
            _depth.calls -= 1

    return called


def may_be_interrupted() -> bool:
    """Whether this thread is in no such function."""
    return not _depth.calls
