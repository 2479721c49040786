"""Child processes: fresh interpreters, each with a title, that notice when their parent is gone.

Invariant: only the parent holds the writing end of a child's standard input; so the child's input ends when the parent
ends, for whatever reason.

Why: other children do not inherit that end of the pipe, and a fork closes its copy at once. Each child has its own
session, so Ctrl-C only reaches the parent, which ends the children.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import IO, Any
from weakref import WeakSet

from drift_graph.functions import own_folders

#: -P keeps the current folder off the path until our modules are imported: a types.py of the user is not Python's.
#: Imported objects stay, so garbage collection is off meanwhile; it would take a sixth of the time.
_MAIN = "import gc, sys; sys.path += sys.argv[{}:]; gc.disable(); from {} import main; gc.enable(); main()"


def main_of(module: str, *arguments: str) -> tuple[str, list[str]]:
    """A program that runs `main` of one of our modules with `arguments` as `sys.argv[1:]`; and its arguments."""
    folders = dict.fromkeys(str(Path(folder).parent) for folder in own_folders)
    return _MAIN.format(len(arguments) + 1, module), [*arguments, *folders]


class Child:
    """A process that this process has started.

    Args:
        title: the text that `ps` shows first.
        program: its Python source.
        arguments: its `sys.argv[1:]`.
        environment: environment variables to set in it.
        hand_on: descriptors that it inherits, under the same numbers.
        as_here: whether it gets the flags of this interpreter.
    """

    def __init__(
        self,
        title: str,
        program: str,
        arguments: Sequence[str] = (),
        *,
        environment: Mapping[str, str],
        stdout: int | None,
        stderr: int | None = None,
        hand_on: Sequence[int] = (),
        as_here: bool = True,
    ) -> None:
        flags: list[str] = subprocess._args_from_interpreter_flags() if as_here else []  # type: ignore[attr-defined]
        self._process = subprocess.Popen(
            [sys.executable, *flags, "-P", "-c", f"{title!a}\n{program}", *arguments],
            bufsize=0,
            stdin=subprocess.PIPE,
            stdout=stdout,
            stderr=stderr,
            pass_fds=hand_on,
            start_new_session=True,
            env={**os.environ, **environment},
        )
        assert self._process.stdin is not None
        self.stdin = self._process.stdin
        _started.add(self)

    @property
    def pid(self) -> int:
        return self._process.pid

    def watched(self) -> int | None:
        """A descriptor that is readable once it has ended, for the caller to close; None if the system has none."""
        try:
            return os.pidfd_open(self.pid)
        except (AttributeError, OSError):  # older systems, and others than Linux
            return None

    @property
    def stdout(self) -> IO[bytes] | None:
        return self._process.stdout

    def write(self, data: bytes) -> None:
        """Write all of the data to its standard input; a dead child is ignored here, and found elsewhere."""
        left = memoryview(data)
        with contextlib.suppress(BrokenPipeError):
            while left:
                left = left[self.stdin.write(left) :]

    def stderr_text(self) -> str:
        """The piped standard error of a child that has ended."""
        pipe = self._process.stderr
        return pipe.read().decode(errors="replace") if pipe is not None else ""

    def how_it_ended(self) -> str:
        """In words; waits for the end."""
        code = self._process.wait()
        return f"was killed by {signal.Signals(-code).name}" if code < 0 else f"ended with exit code {code}"

    def wait(self, timeout_s: float | None = None) -> int:
        return self._process.wait(timeout_s)

    def poll(self) -> int | None:
        """Its exit code; None while it runs."""
        return self._process.poll()

    def kill(self) -> None:
        self._process.kill()

    def end(self) -> None:
        """Kill it, and close its pipes; may be called twice."""
        self._process.kill()
        self._process.wait()
        self.stdin.close()
        if self._process.stderr is not None:
            self._process.stderr.close()


_started: WeakSet[Child] = WeakSet()


def _let_go(*_: Any) -> None:
    """In a fork: close its copies of the pipes to the parent's children."""
    for child in list(_started):
        child.stdin.close()


os.register_at_fork(after_in_child=_let_go)
