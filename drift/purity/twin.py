"""A process with another hash seed that calls a graph's functions again: `Twin` here, `main` over there.

Invariant: it ends when it is closed and when the process that started it is gone, whatever it is doing then.

Why: its standard input is a pipe that only the starting process holds open; a thread waits for its end and ends the
process at once.
"""

from __future__ import annotations

import multiprocessing
import os
import pickle
import signal
import subprocess
import sys
import threading
import traceback
from multiprocessing.connection import Connection
from typing import Any

from drift.engines import shipping
from drift.purity import trials
from drift.purity.watch import Subject
from drift_graph.errors import GraphError, ProcessError

#: So often a function's first calls are looked at closely.
_CLOSE_LOOKS = 20
_ANSWER_MAX_S = 120.0


class Twin:
    """A process that calls functions again.

    Args:
        work: the functions, as `shipping.packed` gives a list of subjects.
        hash_seed: of the process, 0 to 4294967295.
    """

    def __init__(self, work: bytes, hash_seed: int) -> None:
        self.hash_seed = hash_seed
        self._connection, theirs = multiprocessing.Pipe()
        try:
            self._process = subprocess.Popen(
                shipping.command("drift.purity.twin", str(theirs.fileno())),
                stdin=subprocess.PIPE,
                stdout=subprocess.DEVNULL,  # what functions print has been printed by the run
                stderr=subprocess.DEVNULL,
                pass_fds=(theirs.fileno(),),
                start_new_session=True,  # Ctrl-C is for the calling process, which ends the others
                env={**os.environ, "PYTHONHASHSEED": str(hash_seed)},
            )
        except BaseException:
            self._connection.close()
            raise
        finally:
            theirs.close()
        self.ask((shipping.path(), work))

    def ask(self, request: Any) -> None:
        try:
            self._connection.send_bytes(pickle.dumps(request))
        except OSError:  # it has died: `answer` tells
            pass

    def answer(self) -> Any:
        """What it answers to the oldest request that has no answer yet.

        Raises:
            GraphError: it could not load the functions.
            ProcessError: it has died or hangs.
        """
        try:
            if not self._connection.poll(_ANSWER_MAX_S):
                raise ProcessError(
                    f"the purity check called a step again in another process (pid {self._process.pid}), and that call "
                    f"has not come back for {_ANSWER_MAX_S:.0f} s; look at what the step waits for, or leave out "
                    f"check_purity"
                )
            given = pickle.loads(self._connection.recv_bytes())
        except (EOFError, OSError):
            code = self._process.wait()
            raise ProcessError(
                f"the process in which the purity check calls steps again died with exit code {code}; look whether a "
                f"step ends its process, or run again without check_purity"
            ) from None
        if isinstance(given, Exception):
            raise given
        return given

    def close(self) -> None:
        """End it; may be called twice."""
        self._connection.close()
        self._process.kill()
        self._process.wait()
        if self._process.stdin is not None:
            self._process.stdin.close()


def main() -> None:
    """Load the functions, then answer until the pipe ends."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    threading.Thread(target=_end_with_the_caller, daemon=True).start()
    connection = Connection(int(sys.argv[1]))
    try:
        path, work = pickle.loads(connection.recv_bytes())
        sys.path[:] = path
        subjects, error = _loaded(work)
        looks = [0] * len(subjects)
        while True:
            request = pickle.loads(connection.recv_bytes())
            connection.send_bytes(pickle.dumps(error or _answer(subjects, looks, request)))
    except (EOFError, OSError):
        pass  # closed
    os._exit(0)


def _loaded(work: bytes) -> tuple[list[Subject], Exception | None]:
    try:
        return shipping.unpacked(work), None
    except BaseException as error:
        lines = traceback.format_exception_only(error)[-1].strip()
        told = GraphError(
            f"the purity check calls functions again in another process, which could not load them: {lines}; put "
            f"what a module does besides defining things under if __name__ == '__main__':, or leave out check_purity"
        )
        told.add_note(traceback.format_exc().rstrip())
        return [], told


def _answer(subjects: list[Subject], looks: list[int], request: tuple[str, Any]) -> Any:
    kind, given = request
    if kind == "explain":
        index, packed = given
        return trials.explain(subjects[index], packed)
    checks: list[trials.Check | None] = []
    for index, packed in given:
        looks[index] += 1
        try:
            checks.append(trials.check(subjects[index], packed, closely=looks[index] <= _CLOSE_LOOKS))
        except trials.CannotRebuild:
            checks.append(None)
    return checks


def _end_with_the_caller() -> None:
    sys.stdin.buffer.read()
    os._exit(0)
