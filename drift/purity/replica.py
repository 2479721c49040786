"""A process with another hash seed, folder and time zone that repeats calls of a graph's functions: `Replica` is the
caller's side, `main` the process.
"""

from __future__ import annotations

import subprocess
import sys
import traceback
from typing import Any

from drift.children import Channel
from drift.engines import shipping
from drift.engines.surroundings import Surroundings, surroundings
from drift.parent import Parent
from drift.purity import trials
from drift.purity.elsewhere import at_home, go_elsewhere
from drift.purity.watch import Subject
from drift_graph.errors import GraphError, ProcessError

#: Number of a function's first calls that are checked closely.
_CLOSE_CHECKS = 20
_ANSWER_MAX_S = 120.0


class Replica:
    """A process that repeats calls.

    Args:
        work: the functions, as `shipping.packed` gives a list of subjects.
        hash_seed: of the process, 0 to 4294967295.
    """

    def __init__(self, work: bytes, hash_seed: int) -> None:
        self._process = Channel(
            "drift purity check",
            "drift.purity.replica",
            environment={"PYTHONHASHSEED": str(hash_seed)},
            stderr=subprocess.DEVNULL,
        )
        self._process.send((surroundings(), work))
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
    around, work = caller.receive()
    subjects, error = _loaded(around, work)
    checked = [0] * len(subjects)
    while True:
        request = caller.receive()
        caller.send(error or _answer(subjects, checked, around, request))


def _loaded(around: Surroundings, work: bytes) -> tuple[list[Subject], Exception | None]:
    around.enter()
    try:
        subjects: list[Subject] = shipping.unpacked(work)
        around.enter()  # importing a module for them may have changed the process
        go_elsewhere(around)
        return subjects, None
    except BaseException as error:
        lines = traceback.format_exception_only(error)[-1].strip()
        failed = GraphError(
            f"the purity check calls functions again in another process, which could not load them: {lines}; put "
            f"what a module does besides definitions under if __name__ == '__main__':, or leave out check_purity"
        )
        failed.add_note(traceback.format_exc().rstrip())
        return [], failed


def _answer(subjects: list[Subject], checked: list[int], home: Surroundings, request: tuple[str, Any]) -> Any:
    kind, arguments = request
    if kind == "explain":
        index, packed = arguments
        facts = trials.explain(subjects[index], packed)
        for part in facts.at_home:
            with at_home(home, part):
                facts.at_home[part] = trials.outcome_of(subjects[index], trials.rebuilt(packed))
        return facts
    if kind == "last":
        index, before, packed = arguments
        return trials.last_of(subjects[index], before, packed)
    checks: list[trials.Check | None] = []
    for index, packed in arguments:
        checked[index] += 1
        try:
            checks.append(trials.check(subjects[index], packed, closely=checked[index] <= _CLOSE_CHECKS))
        except trials.CannotRebuild:
            checks.append(None)
    return checks
