"""Numbers that users give as settings.

Invariant: what has passed is an int or a float of Python that fits what takes it: an int 64 bits, seconds any wait.

Why: waits and arrays refuse larger ones with an OverflowError, in the middle of a run or at its end.
"""

from __future__ import annotations

from typing import Any

from drift_graph.errors import SettingsError
from drift_graph.functions import safe_text

_INT_MAX = (1 << 63) - 1
_WAIT_MAX_S = 1_000_000_000  # some thirty years


def why_no_int(value: Any, least: int = 1) -> str:
    """What is wrong with a value that is to be an int of `least` or more; "" if nothing is."""
    if type(value) is not int or value < least:
        return f"not an int of {least} or more"
    return "" if value <= _INT_MAX else f"more than {_INT_MAX}, the greatest int that is taken"


def why_no_seconds(value: Any, *, or_none: bool = False, is_wait: bool = True) -> str:
    """What is wrong with a value that is to be a number of seconds above 0; "" if nothing is.

    Args:
        or_none: whether it may be 0.
        is_wait: whether something waits so long at once; what only compares times takes more, and infinity.
    """
    if type(value) not in (int, float) or not (value >= 0 if or_none else value > 0):
        return f"not a number of seconds {'of 0 or more' if or_none else 'above 0'}"
    return "" if not is_wait or value <= _WAIT_MAX_S else f"more than {_WAIT_MAX_S}, the most seconds that are waited"


def check_int(name: str, value: Any, least: int = 1) -> None:
    """Raises SettingsError: see `why_no_int`."""
    _check(name, value, why_no_int(value, least))


def check_seconds(name: str, value: Any, *, or_none: bool = False, is_wait: bool = True) -> None:
    """Raises SettingsError: see `why_no_seconds`."""
    _check(name, value, why_no_seconds(value, or_none=or_none, is_wait=is_wait))


def _check(name: str, value: Any, why: str) -> None:
    if why:
        raise SettingsError(f"{name}={safe_text(repr, value, 80)} is {why}")
