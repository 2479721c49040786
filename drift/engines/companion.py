"""A helper process that answers requests: `Companion` is the caller's side, `ToCaller` that of the process.

Invariant: the process ends when it is closed, and when the process that started it has ended, whatever it is doing.

Why: its standard input ends with the starting process (`drift.children`); a thread of the helper waits for that and
ends it at once.
"""

from __future__ import annotations

import multiprocessing
import os
import pickle
import signal
import subprocess
import sys
import threading
from collections.abc import Mapping
from multiprocessing.connection import Connection
from typing import Any

from drift.children import Child, main_of
from drift_graph.errors import ProcessError


class Companion:
    """A process that runs `main` of a module of ours, and prints nothing.

    Args:
        module: its full name.
        environment: environment variables to set in it.
        title: its purpose, as `ps` shows it.
    """

    def __init__(self, module: str, environment: Mapping[str, str], title: str) -> None:
        self.connection, theirs = multiprocessing.Pipe()
        try:
            program, arguments = main_of(module, str(theirs.fileno()))
            self._process = Child(
                f"drift {title}",
                program,
                arguments,
                environment=environment,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                hand_on=(theirs.fileno(),),
            )
        except BaseException:
            self.connection.close()
            raise
        finally:
            theirs.close()

    @property
    def pid(self) -> int:
        return self._process.pid

    def send(self, value: Any) -> None:
        try:
            self.connection.send_bytes(pickle.dumps(value))
        except OSError:  # it has died: `receive` raises
            pass

    def receive(self) -> Any:
        """The next value it sends; if that is an exception, it is raised.

        Raises:
            ProcessError: the process has died.
        """
        try:
            received = pickle.loads(self.connection.recv_bytes())
        except (EOFError, OSError):
            raise ProcessError(f"process {self.pid} {self._process.how_it_ended()}") from None
        if isinstance(received, BaseException):
            raise received
        return received

    def close(self) -> None:
        """End the process; may be called twice."""
        self.connection.close()
        self._process.end()


class ToCaller:
    """The other end, in the process."""

    def __init__(self) -> None:
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        threading.Thread(target=_end_with_the_caller, daemon=True).start()
        self._connection = Connection(int(sys.argv[1]))

    def send(self, value: Any) -> None:
        self._connection.send_bytes(pickle.dumps(value))

    def receive(self) -> Any:
        """The next value the caller sends; when the connection is closed, the process ends."""
        try:
            return pickle.loads(self._connection.recv_bytes())
        except (EOFError, OSError):
            os._exit(0)


def _end_with_the_caller() -> None:
    sys.stdin.buffer.read()
    os._exit(0)
