"""Child processes: fresh interpreters, each with a title, that notice when their parent is gone. A `Channel` is one: it
gets framed messages, and answers with such (`drift.parent`).

Invariant: only the parent holds the writing end of a child's standard input; so the child's input ends when the parent
ends, for whatever reason.

Why: other children do not inherit that end of the pipe, and a fork closes its copy at once. Each child has its own
session, so Ctrl-C only reaches the parent, which ends the children.
"""

from __future__ import annotations

import contextlib
import os
import pickle
import select
import signal
import subprocess
import sys
from collections import deque
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Any
from weakref import WeakSet

from drift.parent import HEAD_BYTES, head_of
from drift_graph.errors import ProcessError
from drift_graph.functions import own_folders

#: -P keeps the current folder off the path until our modules are imported: a types.py of the user is not Python's.
#: Imported objects stay, so garbage collection is off meanwhile; it would take a sixth of the time.
_MAIN = (
    "import gc, signal, sys; signal.signal(signal.SIGINT, signal.SIG_IGN); gc.disable(); {}; "
    "from {} import main; gc.enable(); main()"
)


def main_of(module: str, *arguments: str) -> tuple[str, list[str]]:
    """A program that runs `main` of one of our modules with `arguments` as `sys.argv[1:]`; and its arguments."""
    return _MAIN.format(with_folders_of_ours(len(arguments) + 1), module), [*arguments, *folders_of_ours()]


def with_folders_of_ours(first: int) -> str:
    """A statement that adds these folders, `sys.argv[first:]`, to the path.

    They come before those of installed packages: another version may be installed than the one that runs here.
    """
    before = "next((n for n, folder in enumerate(sys.path) if folder.endswith('-packages')), len(sys.path))"
    return f"at = {before}; sys.path[at:at] = sys.argv[{first}:]"


def folders_of_ours() -> list[str]:
    """The folders from which a fresh interpreter imports our packages."""
    return list(dict.fromkeys(str(Path(folder).parent) for folder in own_folders))


class Channel:
    """A process that this process has started, and the messages to it and from it.

    Args:
        title: the text that `ps` shows first.
        module: of ours, whose `main` it runs.
        arguments: its `sys.argv[2:]`; the first one is the descriptor that it answers on.
        program: Python source that it runs instead of the module.
        environment: environment variables to set in it.
        hand_on: descriptors that it inherits, under the same numbers.
        as_here: whether it gets the flags of this interpreter.

    Attributes:
        number: a descriptor that is readable if the child has answered, or closed its end.
        numbers: the same, and one that is readable once the process has ended, on systems that have such.
        closed: whether the child's end is closed.
    """

    def __init__(
        self,
        title: str,
        module: str = "",
        arguments: Sequence[str] = (),
        *,
        program: str = "",
        environment: Mapping[str, str] = MappingProxyType({}),
        stdout: int = subprocess.DEVNULL,
        stderr: int | None = None,
        hand_on: Sequence[int] = (),
        as_here: bool = True,
    ) -> None:
        self.number, up = os.pipe()
        arguments = [str(up), *arguments]
        if module:
            program, arguments = main_of(module, *arguments)
        flags: list[str] = subprocess._args_from_interpreter_flags() if as_here else []  # type: ignore[attr-defined]
        try:
            self._process = subprocess.Popen(
                [sys.executable, *flags, "-P", "-c", f"{title!a}\n{program}", *arguments],
                bufsize=0,
                stdin=subprocess.PIPE,
                stdout=stdout,
                stderr=stderr,
                pass_fds=(up, *hand_on),
                start_new_session=True,
                env={**os.environ, **environment},
            )
        except BaseException:
            os.close(self.number)
            raise
        finally:
            os.close(up)
        assert self._process.stdin is not None
        self.stdin = self._process.stdin
        _started.add(self)
        os.set_blocking(self.number, False)
        self.numbers = [self.number]
        with contextlib.suppress(AttributeError, OSError):  # older systems, and others than Linux
            self.numbers.append(os.pidfd_open(self.pid))
        self.closed = False
        self._torn = False
        self._buffer = b""
        self._frames: deque[bytes] = deque()

    @property
    def pid(self) -> int:
        return self._process.pid

    # To the process.

    def write(self, body: bytes) -> None:
        """Write a message.

        A torn message, of a caller that was interrupted, cannot be continued, so nothing follows it.

        Raises:
            BrokenPipeError: the process has ended.
        """
        if self._torn:
            return
        self._torn = True
        left = [memoryview(head_of(body)), memoryview(body)]
        while left:
            written = os.writev(self.stdin.fileno(), left)
            while left and written >= len(left[0]):
                written -= len(left.pop(0))
            if left:
                left[0] = left[0][written:]
        self._torn = False

    def send(self, value: Any) -> None:
        """Write a value; that the process has ended is found where its answer does not come."""
        with contextlib.suppress(BrokenPipeError):
            self.write(pickle.dumps(value))

    def close_input(self) -> None:
        """Let its input end, although this process lives on."""
        self.stdin.close()

    # From the process.

    def read(self) -> list[bytes]:
        """The messages that have arrived; does not wait."""
        while not self.closed:
            try:
                data = os.read(self.number, 1 << 16)
            except BlockingIOError:
                break
            self.closed = not data
            self._buffer += data
        while len(self._buffer) >= HEAD_BYTES:
            end = HEAD_BYTES + int.from_bytes(self._buffer[:HEAD_BYTES], "big")
            if len(self._buffer) < end:
                break
            self._frames.append(self._buffer[HEAD_BYTES:end])
            self._buffer = self._buffer[end:]
        frames = list(self._frames)
        self._frames.clear()
        return frames

    def wait_for(self, timeout_s: float | None = None) -> bytes | None:
        """The next message; None if the process has ended without one, or after the timeout."""
        poller = select.poll()
        for number in self.numbers:
            poller.register(number, select.POLLIN)
        while not self._frames:
            has_ended = self.has_ended  # before the messages are read, which came before the end
            self._frames.extend(self.read())
            if self._frames or has_ended or not (self.closed or poller.poll(timeout_s and timeout_s * 1000)):
                break
        return self._frames.popleft() if self._frames else None

    def receive(self, timeout_s: float | None = None) -> Any:
        """The next value that the process sends; if that is an exception, it is raised.

        Raises:
            ProcessError: the process has died.
            TimeoutError: nothing came in time.
        """
        frame = self.wait_for(timeout_s)
        if frame is None and not self.has_ended:
            raise TimeoutError(f"process {self.pid} has not answered within {timeout_s} s")
        if frame is None:
            raise ProcessError(f"process {self.pid} {self.how_it_ended()}")
        return value_of(frame)

    # Its end.

    def how_it_ended(self) -> str:
        """In words; waits for the end."""
        code = self._process.wait()
        return f"was killed by {signal.Signals(-code).name}" if code < 0 else f"ended with exit code {code}"

    def wait(self, timeout_s: float | None = None) -> int:
        return self._process.wait(timeout_s)

    def poll(self) -> int | None:
        """The exit code of the process; None while it runs."""
        return self._process.poll()

    def kill(self) -> None:
        self._process.kill()

    @property
    def has_ended(self) -> bool:
        """Whether it has ended; the pipe shows it first, unless a function has forked, and the fork holds the pipe."""
        return self.closed or self.poll() is not None

    def end(self) -> None:
        """Kill it, and close its pipes; may be called twice."""
        self._process.kill()
        self._process.wait()
        self.stdin.close()
        self.closed = self._torn = True
        while self.numbers:
            os.close(self.numbers.pop())


def value_of(frame: bytes) -> Any:
    """The value of a message; if it is an exception, it is raised."""
    value = pickle.loads(frame)
    if isinstance(value, BaseException):
        raise value
    return value


_started: WeakSet[Channel] = WeakSet()


def _let_go(*_: Any) -> None:
    """In a fork: close its copies of the pipes to the parent's children."""
    for child in list(_started):
        child.stdin.close()


os.register_at_fork(after_in_child=_let_go)
