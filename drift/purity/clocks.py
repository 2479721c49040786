"""The clock of a process, moved for all code of Python in it.

Invariant: whatever Python code reads of the time is moved as `move` says, in whichever module and under whatever name
it holds the clock, if it was imported after `make_movable`.

Why: the functions of `time` are replaced in their module, which dates ask too. `datetime.now` asks the system, so it is
replaced in its class; the class itself stays, since code compares types with it.
"""

from __future__ import annotations

import ctypes
import gc
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta, tzinfo
from functools import partial
from typing import Any

from drift.purity.observed import CLOCKS

#: Beyond a day, a month and a year, and no whole number of anything.
SHIFT_S = 400 * 86400 + 3723.25
_OF_A_MOMENT = {"localtime": 0, "gmtime": 0, "ctime": 0, "asctime": 0, "strftime": 1}  # arguments before the moment
_now, _fields = partial(time.time), partial(time.localtime)  # calls that no profile function sees
_shift_s = 0.0


def make_movable() -> None:
    """Replace the clocks of this process by those that `move` moves."""
    for name in CLOCKS:
        setattr(time, name, _movable(name, getattr(time, name)))
    members = gc.get_referents(vars(datetime))[0]  # the class is in C, and gives a view of them only
    now = members["now"]

    def moved_now(cls: type[datetime], tz: tzinfo | None = None) -> datetime:
        moment = now.__get__(None, cls)(UTC) + timedelta(seconds=_shift_s)
        there: datetime = partial(moment.astimezone, tz)()  # so that no profile function sees that zones are asked
        return there if tz is not None else there.replace(tzinfo=None)

    members["now"] = classmethod(moved_now)
    members["utcnow"] = classmethod(lambda cls: cls.now(UTC).replace(tzinfo=None))
    ctypes.pythonapi.PyType_Modified(ctypes.py_object(datetime))


def move(shift_s: float) -> None:
    """Let clocks show the time that it will be then."""
    global _shift_s
    _shift_s = shift_s


@contextmanager
def otherwise() -> Iterator[None]:
    """The clock is moved, or where it is, it is not."""
    before = _shift_s
    move(0.0 if before else SHIFT_S)
    try:
        yield
    finally:
        move(before)


def _movable(name: str, real: Callable[..., Any]) -> Callable[..., Any]:
    if (before := _OF_A_MOMENT.get(name)) is not None:
        form = _fields if name in ("asctime", "strftime") else float

        def of_moment(*args: Any) -> Any:
            is_now = args[before:] in ((), (None,))
            return real(*args[:before], form(_now() + _shift_s)) if is_now else real(*args)

        return of_moment
    if name.endswith("_ns"):
        return lambda *args: real(*args) + int(_shift_s * 1e9)
    return lambda *args: real(*args) + _shift_s
