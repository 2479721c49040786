"""A process with another hash seed, clock, folder, time zone and locale that repeats calls of a graph's functions:
`Replica` is the caller's side, `main` the process.

Invariant: in the process, the working directory, the local time and, where the machine has another one, the locale
differ from the caller's, while modules are still found.

Why: a run passes the caller's folder, zone and locale to its processes, so a function that depends on them is
consistent within a run, but gives another output in a run from another folder, or with another zone or locale.
"""

from __future__ import annotations

import locale
import os
import subprocess
import sys
import threading
import time
import traceback
from contextlib import suppress
from pathlib import Path
from typing import Any

from drift.children import Channel
from drift.engines import shipping
from drift.engines.surroundings import Surroundings, surroundings
from drift.parent import Parent
from drift.purity import clocks, trials
from drift_graph.errors import GraphError, ProcessError

_ANSWER_MAX_S = 120.0
#: A name that no thread of a run has.
_THREAD = "drift purity check"
#: Locales that write numbers and dates in other ways, each where the caller has none of those before it.
_LOCALES = ("C", "de_DE.UTF-8", "fr_FR.UTF-8", "tr_TR.UTF-8", "en_US.UTF-8", "C.UTF-8")
#: An offset that no time zone has, in hours or minutes.
_ZONE = "ELSE-13:37"


class Replica:
    """A process that repeats calls.

    Args:
        work: the functions, as `shipping.packed` gives a list of subjects.
        hash_seed: of the process, 0 to 4294967295.
        is_later: whether its clock is moved by 400 days.
    """

    def __init__(self, work: bytes, hash_seed: int, *, is_later: bool = False) -> None:
        self._process = Channel(
            "drift purity check",
            "drift.purity.replica",
            environment={"PYTHONHASHSEED": str(hash_seed)},
            stderr=subprocess.DEVNULL,
        )
        self._process.send((surroundings(), work, is_later))
        self.close = self._process.end
        self.ask = self._process.send

    def answer(self) -> Any:
        """The answer to the oldest request without one.

        Raises:
            GraphError: the process could not load the functions.
            ProcessError: it has died or hangs.
        """
        try:
            return self._process.receive(_ANSWER_MAX_S)
        except TimeoutError:
            raise ProcessError(
                f"the purity check called a step again in another process (pid {self._process.pid}), and that call has "
                f"not come back for {_ANSWER_MAX_S:.0f} s; check what the step waits for, or leave out check_purity"
            ) from None
        except ProcessError as error:
            raise ProcessError(
                f"the purity check calls steps again in another process, and {error}; check whether a step ends its "
                f"process, or leave out check_purity"
            ) from None


def main() -> None:
    """Load the functions, then answer until the pipe ends."""
    caller = Parent(int(sys.argv[1]))
    around, work, is_later = caller.receive()
    clocks.make_movable()
    clocks.move(clocks.SHIFT_S if is_later else 0.0)
    functions, error = _loaded(around, work)
    while True:
        request = caller.receive()
        caller.send(error or _answer(functions, request))


def go_elsewhere(home: Surroundings) -> None:
    """Leave the caller's folder, zone and locale, and the name of its thread."""
    threading.current_thread().name = _THREAD
    sys.path[:] = map(os.path.abspath, sys.path)  # relative ones refer to the caller's folder
    folder = Path(home.temporary_folder).resolve()
    is_there = home.folder and Path(home.folder).resolve() == folder
    os.chdir(folder.anchor if is_there or not folder.is_dir() else folder)
    os.environ["TZ"] = _ZONE
    time.tzset()
    for name, here in home.locales:
        if name != "LC_CTYPE":  # by which names of files and outputs are encoded
            _set_other(getattr(locale, name), here)


def _set_other(category: int, here: str) -> None:
    for other in _LOCALES:
        if other != here:
            with suppress(locale.Error):  # the machine does not have it
                locale.setlocale(category, other)
                return


def _loaded(around: Surroundings, work: bytes) -> tuple[list[trials.Trials], Exception | None]:
    around.enter()
    try:
        subjects = shipping.unpacked(work)
        around.enter()  # importing a module for them may have changed the process
        go_elsewhere(around)
        return list(map(trials.Trials, subjects)), None
    except BaseException as error:
        lines = traceback.format_exception_only(error)[-1].strip()
        failed = GraphError(
            f"the purity check calls functions again in another process, which could not load them: {lines}; put "
            f"what a module does besides definitions under if __name__ == '__main__':, or leave out check_purity"
        )
        failed.add_note(traceback.format_exc().rstrip())
        return [], failed


def _answer(functions: list[trials.Trials], request: tuple[str, Any]) -> Any:
    kind, arguments = request
    if kind == "explain":
        index, packed = arguments
        return functions[index].explain(packed)
    checks: list[tuple[bytes | None, bytes | None] | None] = []
    for index, packed in arguments:
        try:
            checks.append(functions[index].check(packed))
        except trials.CannotRebuild:
            checks.append(None)
    return checks
