"""Observes a function while it is called: the clocks, random numbers and settings it reads.

Invariant: observation changes nothing; an observed function returns what it returns otherwise.

Why: Python reports every call to a profile function, C functions too. A call counts if the nearest frame outside the
standard library, installed packages and drift belongs to the user, and is reported with that frame's line.
"""

from __future__ import annotations

import builtins
import locale
import os
import random
import secrets
import sys
import sysconfig
import threading
import time
import uuid
from collections.abc import Callable, Mapping
from types import CodeType, FrameType
from typing import Any, Literal, NamedTuple

from drift_graph.functions import is_ours

_THREAD = "threading.current_thread()"
Kind = Literal[
    "clock", "random", "generator", "setting", "address", "hash", "process", "outside", "folder", "zone", "locale",
    "state", "kept", "set",
]  # fmt: skip

CLOCKS: tuple[str, ...] = tuple(name for name in (
    "time", "time_ns", "monotonic", "monotonic_ns", "perf_counter", "perf_counter_ns", "process_time",
    "process_time_ns", "thread_time", "thread_time_ns", "clock_gettime", "clock_gettime_ns", "localtime", "gmtime",
    "ctime", "strftime", "asctime",
) if hasattr(time, name))  # no clock_gettime on Windows  # fmt: skip
_c_kinds: dict[int, tuple[Kind, str]] = {id(getattr(time, name)): ("clock", f"time.{name}()") for name in CLOCKS}
_c_kinds |= {
    id(builtins.id): ("address", "id()"),
    id(builtins.hash): ("hash", "hash()"),
    id(builtins.open): ("outside", "open()"),
    id(builtins.input): ("outside", "input()"),
    id(os.urandom): ("random", "os.urandom()"),
    id(os.getpid): ("process", "os.getpid()"),
    id(os.getppid): ("process", "os.getppid()"),
    id(os.getcwd): ("folder", "os.getcwd()"),
    **{id(getattr(os, name)): ("folder", f"os.{name}()") for name in ("stat", "listdir", "scandir", "open")},
    id(time.mktime): ("zone", "time.mktime()"),
    id(threading.get_ident): ("process", "threading.get_ident()"),
    id(threading.get_native_id): ("process", "threading.get_native_id()"),
}
_python_kinds: dict[CodeType, tuple[Kind, str]] = {
    uuid.uuid1.__code__: ("random", "uuid.uuid1()"),
    uuid.uuid4.__code__: ("random", "uuid.uuid4()"),
    type(os.environ).__getitem__.__code__: ("setting", "os.environ"),
    threading.current_thread.__code__: ("process", _THREAD),
}
_of_locale = ("localeconv", "getlocale", "setlocale", "format_string", "currency", "str", "atof", "delocalize")
_python_kinds |= {getattr(locale, name).__code__: ("locale", f"locale.{name}()") for name in _of_locale}
#: Calls that libraries make for their own purposes: the repr of a dataclass asks for its id(), logging for the thread.
_BY_HAND = ("id()", "hash()", "threading.get_ident()", "threading.get_native_id()", _THREAD)
#: What makes numpy draw a seed from the system.
_SEEDED_BY_SYSTEM = ("default_rng", "SeedSequence", "RandomState")
#: What datetime gives in local time, unless a zone is named.
_LOCAL = ("fromtimestamp", "timestamp", "astimezone")
_global_random = random._inst
_not_users = tuple(
    folder for name in ("stdlib", "platstdlib", "purelib", "platlib") if (folder := sysconfig.get_path(name))
)
_files_that_draw = (random.__file__, secrets.__file__)
_files_that_read_settings = (os.getenv.__code__.co_filename, Mapping.get.__code__.co_filename)


class Use(NamedTuple):
    """One observed action of a function.

    Attributes:
        what: the call, as in source code; for a setting the name of the variable, for a state the place that has it.
        where: "file:line" in the user's code; "" if no line says it.
    """

    kind: Kind
    what: str
    where: str


class Observed:
    """Observes while it is entered.

    Attributes:
        uses: the observed actions, each once, in order.
        executed: the user's code that ran, and the globals of each.
    """

    def __init__(self) -> None:
        self.uses: dict[Use, None] = {}
        self.executed: dict[CodeType, dict[str, Any]] = {}
        self._before: Any = None

    def __enter__(self) -> Observed:
        self._before = sys.getprofile()
        sys.setprofile(self._profile)
        return self

    def __exit__(self, *_: object) -> None:
        sys.setprofile(self._before)

    def _profile(self, frame: FrameType, event: str, called: Any) -> None:
        if event == "c_call":
            found = _c_kinds.get(id(called)) or _kind_of_method(called)
            caller: FrameType | None = frame
        elif event == "call":
            code = frame.f_code
            if is_users(code.co_filename):
                self.executed.setdefault(code, frame.f_globals)
            found = _python_kinds.get(code)
            caller = frame.f_back
            if found is not None and found[0] == "setting":
                if not _read_by_user(frame.f_back):
                    return
                found = "setting", str(frame.f_locals.get("key"))
        else:
            return
        if found is None or (found[1] in _BY_HAND and not (caller and is_users(caller.f_code.co_filename))):
            return
        inside: FrameType | None = None
        while caller is not None and not is_users(caller.f_code.co_filename):
            inside, caller = caller, caller.f_back
        if inside is not None and caller is not None and inside.f_code.co_filename in _files_that_draw:
            found = found[0], _name_of_draw(found[1], inside, caller)
        if caller is not None:
            self.uses.setdefault(Use(*found, f"{caller.f_code.co_filename}:{caller.f_lineno}"))


def _name_of_draw(what: str, inside: FrameType, caller: FrameType) -> str:
    """The function that the user's line calls: randint and others are in Python, and draw by what was observed."""
    name = inside.f_code.co_name
    if inside.f_code.co_filename != random.__file__:
        return f"secrets.{name}()"
    if what != "os.urandom()":
        return f"{what.split('.')[0]}.{name}()"
    of_numpy = next((each for each in _SEEDED_BY_SYSTEM if each in caller.f_code.co_names), None)
    return f"SystemRandom.{name}()" if of_numpy is None else f"numpy.random.{of_numpy}()"


def is_users(filename: str) -> bool:
    """Whether code is the user's own."""
    if filename.startswith("<") and not filename.startswith(("<stdin", "<ipython")):
        return False
    return not is_ours(filename) and not filename.startswith(_not_users) and "/site-packages/" not in filename


def _kind_of_method(called: Callable[..., Any]) -> tuple[Kind, str] | None:
    owner = getattr(called, "__self__", None)
    if owner is None:
        return None
    name = called.__name__
    if isinstance(owner, random.Random):
        known = owner is _global_random
        return ("random" if known else "generator"), f"random.{name}()" if known else f"Random.{name}()"
    if isinstance(owner, type) and owner.__module__ == "datetime" and name in ("now", "utcnow", "today"):
        return "clock", f"{owner.__name__}.{name}()"
    if getattr(owner, "__module__", type(owner).__module__) == "datetime" and name in _LOCAL:
        return "zone", f"datetime.{name}()"
    if type(owner).__module__.startswith("numpy.random"):
        return "generator", f"numpy.random.{name}()"
    return None


def _read_by_user(frame: FrameType | None) -> bool:
    """Whether a setting is read by the user's line, not by a library for itself."""
    while frame is not None and frame.f_code.co_filename in _files_that_read_settings:
        frame = frame.f_back
    return frame is not None and is_users(frame.f_code.co_filename)
