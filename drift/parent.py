"""The process that started this one, as a child process sees it: a thread reads its messages from standard input.

Invariant: when the input ends, `at_end` is called, whatever this process is doing.

Why: only the parent holds the other end of the pipe (`drift.children`), and the thread reads on. It also reads while
the process still starts: this module imports nothing slow.
"""

from __future__ import annotations

import math
import os
import threading
from collections import deque
from collections.abc import Callable
from io import FileIO
from typing import Any, Protocol

#: Before each message: its length in bytes.
HEAD_BYTES = 8


def head_of(body: bytes | memoryview) -> bytes:
    """What comes before a message."""
    return len(body).to_bytes(HEAD_BYTES, "big")


class Input(Protocol):
    """What messages are read from."""

    def readinto(self, buffer: Any, /) -> int | None:
        """Fill the buffer, as far as there are bytes; 0 at the end."""


class Parent:
    """Messages from the process that started this one, in order, and to it.

    Args:
        number: the descriptor to answer on.
        at_end: called, in the reading thread, when the input has ended; None if what was read is still to be taken.
        urgent: called, in the reading thread, with each message; whether nobody else is to take it.
        waiting_bytes_max: while so much waits to be taken, nothing more is read, so the end is not noticed either.
        stream: the input; standard input, if None.
    """

    def __init__(
        self,
        number: int,
        at_end: Callable[[], None] | None = lambda: os._exit(0),
        *,
        urgent: Callable[[bytearray], bool] = lambda _: False,
        waiting_bytes_max: float = math.inf,
        stream: Input | None = None,
    ) -> None:
        self._number = number
        self._stream = FileIO(0, closefd=False) if stream is None else stream
        self._at_end = at_end
        self._urgent = urgent
        self._bytes_max = waiting_bytes_max
        self._frames: deque[bytearray] = deque()
        self._bytes = 0
        self._ended = False
        self._changed = threading.Condition()
        self._writing = threading.Lock()
        threading.Thread(target=self._read, daemon=True).start()

    def _read(self) -> None:
        while (frame := self._next()) is not None:
            if self._urgent(frame):
                continue
            with self._changed:
                self._frames.append(frame)
                self._bytes += len(frame)
                self._changed.notify_all()
                self._changed.wait_for(lambda: self._bytes < self._bytes_max)
        with self._changed:
            self._ended = True
            self._changed.notify_all()
        if self._at_end is not None:
            self._at_end()

    def _next(self) -> bytearray | None:
        head = self._exactly(HEAD_BYTES)
        return self._exactly(int.from_bytes(head, "big")) if head is not None else None

    def _exactly(self, length: int) -> bytearray | None:
        """Read exactly `length` bytes; None if the pipe ends before."""
        data = bytearray(length)
        view = memoryview(data)
        while view:
            count = self._stream.readinto(view)
            if not count:
                return None
            view = view[count:]
        return data

    def take(self, timeout_s: float | None = None) -> bytearray | None:
        """The next message; None after the last one, or after a timeout."""
        with self._changed:
            self._changed.wait_for(lambda: bool(self._frames) or self._ended, timeout_s)
            if not self._frames:
                return None
            frame = self._frames.popleft()
            self._bytes -= len(frame)
            self._changed.notify_all()
            return frame

    @property
    def ended(self) -> bool:
        """Whether nothing is left and nothing will come."""
        with self._changed:
            return self._ended and not self._frames

    def write(self, body: bytes) -> None:
        """Write a message; several threads may write, one message after the other.

        If nobody reads the pipe, the parent has ended, and the end of the input ends this process.
        """
        left = memoryview(head_of(body) + body)
        with self._writing:
            try:
                while left:
                    left = left[os.write(self._number, left) :]
            except BrokenPipeError:
                return

    def receive(self) -> Any:
        """The next value that the parent sends; if none will come, this process ends."""
        import pickle  # here, since the writer of a record needs it not, and reads before it loads anything slow

        frame = self.take()
        if frame is None:
            threading.Event().wait()  # the reading thread ends the process
        assert frame is not None
        return pickle.loads(frame)

    def send(self, value: Any) -> None:
        import pickle  # see `receive`

        self.write(pickle.dumps(value))
