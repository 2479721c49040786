"""The input of the process that writes a record: a thread reads its pipe.

Invariant: the run never waits for the disk while less than `_WAITING_BYTES_MAX` wait to be written.

Why: the pipe is emptied while a file is written, and while the process still starts: this module imports nothing slow,
so the thread runs before numpy and PyArrow are loaded.
"""

from __future__ import annotations

import threading
from collections import deque
from io import FileIO

#: Before each frame: its length in bytes.
LENGTH_BYTES = 8
_WAITING_BYTES_MAX = 64 << 20


class Inbox:
    """Received frames, in order."""

    def __init__(self, stream: FileIO) -> None:
        self._stream = stream
        self._frames: deque[bytearray] = deque()
        self._bytes = 0
        self._ended = False
        self._changed = threading.Condition()
        threading.Thread(target=self._read, daemon=True).start()

    def _read(self) -> None:
        while (frame := self._next()) is not None:
            with self._changed:
                self._frames.append(frame)
                self._bytes += len(frame)
                self._changed.notify_all()
                self._changed.wait_for(lambda: self._bytes < _WAITING_BYTES_MAX)
        with self._changed:
            self._ended = True
            self._changed.notify_all()

    def _next(self) -> bytearray | None:
        head = self._exactly(LENGTH_BYTES)
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
        """The next frame; None after the last one, or after a timeout."""
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
