"""Process-wide settings that functions depend on besides their arguments; every process of a run gets the caller's.

Invariant: after `Surroundings.enter` a function finds the same as in the calling process: the modules, the folder, the
decimal context, the locale, the time zone, the limits of ints and recursion, the filters of warnings.

Why: these are the settings that the standard library has once per process or thread, and on which arithmetic,
formatting and parsing depend. A process started by the caller inherits its environment variables; Spark's Python
processes have their own, except for the time zone. A missing locale is an error, since it would change results; a
missing folder is not one in the tasks of a cluster, which have a folder of their own.
"""

from __future__ import annotations

import decimal
import locale
import os
import sys
import tempfile
import time
import warnings
from pathlib import Path
from typing import Any, NamedTuple

from drift_graph.errors import SettingsError

_CATEGORIES = ("LC_COLLATE", "LC_CTYPE", "LC_MONETARY", "LC_NUMERIC", "LC_TIME", "LC_MESSAGES")
_TIME_ZONE = "TZ"


class Surroundings(NamedTuple):
    """It is pickled by itself, before any object of the user.

    Attributes:
        folder: the working directory; "" if it was removed.
        temporary_folder: for temporary files. Python finds it by creating a file in it, which would be left over by a
            process that ends at that moment, as the processes of a run do when their caller dies.
        context: a decimal context's precision, rounding, limits of exponents, capitals, clamp, and traps by name.
        locales: the value of `setlocale` for each category.
        time_zone: the variable TZ; None if it is not set.
        filters: of warnings, in order.
    """

    path: tuple[str, ...]
    folder: str
    temporary_folder: str
    context: tuple[int, str, int, int, int, int, tuple[str, ...]]
    locales: tuple[tuple[str, str], ...]
    time_zone: str | None
    int_digits_max: int
    recursion_max: int
    filters: tuple[tuple[str, str, str, str, str, int], ...]

    def enter(self, *, same_machine: bool = True) -> None:
        """Set them in this process.

        Args:
            same_machine: False if this process may be on another machine: then `path` is added to the path there, and
                a folder that does not exist is skipped.

        Raises:
            SettingsError: this machine lacks the locale.
        """
        if same_machine:
            sys.path[:] = self.path
        else:
            sys.path += [entry for entry in self.path if entry not in sys.path]
        if self.folder and (same_machine or Path(self.folder).is_dir()):
            os.chdir(self.folder)
        decimal.setcontext(_context(self.context))
        _enter_locales(self.locales)
        if os.environ.get(_TIME_ZONE) != self.time_zone:
            if self.time_zone is None:
                del os.environ[_TIME_ZONE]
            else:
                os.environ[_TIME_ZONE] = self.time_zone
            time.tzset()
        sys.set_int_max_str_digits(self.int_digits_max)
        sys.setrecursionlimit(self.recursion_max)
        _enter_filters(self.filters)


def surroundings() -> Surroundings:
    try:
        folder = str(Path.cwd())
    except OSError:
        folder = ""
    context = decimal.getcontext()
    return Surroundings(
        tuple(entry or folder for entry in sys.path),
        folder,
        tempfile.gettempdir(),
        (
            context.prec,
            context.rounding,
            context.Emin,
            context.Emax,
            context.capitals,
            context.clamp,
            tuple(sorted(signal.__name__ for signal, is_trapped in context.traps.items() if is_trapped)),
        ),
        tuple((name, locale.setlocale(getattr(locale, name))) for name in _CATEGORIES if hasattr(locale, name)),
        os.environ.get(_TIME_ZONE),
        sys.get_int_max_str_digits(),
        sys.getrecursionlimit(),
        tuple(_filter(*each) for each in warnings.filters),
    )


def _context(values: tuple[int, str, int, int, int, int, tuple[str, ...]]) -> decimal.Context:
    precision, rounding, least, most, capitals, clamp, names = values
    traps: Any = [getattr(decimal, name) for name in names]
    return decimal.Context(precision, rounding, least, most, capitals, clamp, [], traps)


def _enter_locales(locales: tuple[tuple[str, str], ...]) -> None:
    for name, wanted in locales:
        category = getattr(locale, name)
        if locale.setlocale(category) != wanted:
            try:
                locale.setlocale(category, wanted)
            except locale.Error as error:
                raise SettingsError(
                    f"the run was begun under {name}={wanted!r}, which a process of it cannot have ({error}): a "
                    f"function may give something else there; install that locale, or leave setlocale out"
                ) from None


def _filter(action: str, message: Any, category: Any, module: Any, line: int) -> tuple[Any, ...]:
    """A filter as text: the category by its name, the patterns uncompiled."""
    patterns = ["" if each is None else getattr(each, "pattern", each) for each in (message, module)]
    return action, patterns[0], category.__module__, category.__qualname__, patterns[1], line


def _enter_filters(filters: tuple[tuple[str, str, str, str, str, int], ...]) -> None:
    if filters == tuple(_filter(*each) for each in warnings.filters):
        return
    warnings.resetwarnings()
    for action, message, owner, name, module, line in filters:
        category = getattr(sys.modules.get(owner), name, None)
        if category is None:  # its module is not loaded here, so nothing can warn with it yet
            continue
        action_: Any = action
        warnings.filterwarnings(action_, message, category, module, line, append=True)
