"""What an engine waits for: a file descriptor, which is readable exactly while it is set."""

from __future__ import annotations

import os


class Wake:
    """A pipe with one byte in it, or none. Not thread-safe."""

    def __init__(self) -> None:
        self._read, self._write = os.pipe()
        self._ready = False
        self._open = True

    def fileno(self) -> int:
        return self._read

    def set(self, ready: bool = True) -> None:
        if ready == self._ready or not self._open:
            return
        self._ready = ready
        if ready:
            os.write(self._write, b"\0")
        else:
            os.read(self._read, 1)

    def close(self) -> None:
        if self._open:
            self._open = False
            os.close(self._read)
            os.close(self._write)
