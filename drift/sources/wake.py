"""What an engine waits for: a file descriptor, and a thread that fills a buffer.

Invariant: the descriptor is readable exactly while it is set, and that of a buffer while there is something to read:
an entry, or the end.
"""

from __future__ import annotations

import os
import threading
from collections import deque
from collections.abc import Sequence
from typing import Any


class Wake:
    """A pipe with one byte in it, or none. Not thread-safe."""

    def __init__(self) -> None:
        self._read, self._write = os.pipe()
        self._ready = False
        self._open = True

    def fileno(self) -> int:
        return self._read

    def set(self, ready: bool = True) -> None:
        """Make it readable, or not."""
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


class Buffered:
    """The engine's end of a buffer, and the thread that fills it; readers are subclasses.

    Args:
        thread: its name.
    """

    def __init__(self, thread: str) -> None:
        self._buffer: deque[Any] = deque()
        self._changed = threading.Condition()
        self._ended = False
        self._closed = False
        self._error: BaseException | None = None
        self._wake = Wake()
        self._thread = threading.Thread(target=self._run, name=thread, daemon=True)

    def _fill(self) -> None:
        """Put what comes into the buffer, in the thread, until the end or `_put` refuses it."""
        raise NotImplementedError

    def _begin(self) -> None:
        """Start the thread, with the first `read`: a reader can be told where to begin, and one that is not read takes
        nothing.
        """
        if self._thread.ident is None and not self._closed:
            self._thread.start()

    def _joined(self, most_s: float | None = None) -> bool:
        """Wait for the thread, if it was started; returns whether it has ended."""
        if self._thread.ident is not None:
            self._thread.join(most_s)
        return not self._thread.is_alive()

    def _run(self) -> None:
        try:
            self._fill()
        except BaseException as error:  # SystemExit too: were it lost here, the run would wait for ever
            self._error = error
        finally:
            with self._changed:
                self._ended = True
                self._wake.set()

    def _put(self, entry: Any, most: int) -> bool:
        """Wait until the buffer has fewer than so many entries, and add one; False where no more is to be taken."""
        with self._changed:
            while len(self._buffer) >= most and not self._closed:
                self._changed.wait()
            self._buffer.append(entry)  # also behind the end: it was taken
            self._wake.set()
            return not self._closed

    def _after_taking(self) -> None:
        """With the lock held, after entries were taken or the reader was closed."""
        self._wake.set(bool(self._buffer) or self._ended)
        self._changed.notify()

    def _halted(self, most_s: float | None = None) -> None:
        """Have the thread take no more, and wait for its end."""
        with self._changed:
            self._closed = True
            self._ended = self._ended or self._thread.ident is None
            self._changed.notify()
        self._joined(most_s)

    def _buffered(self) -> list[Any]:
        """Take all entries."""
        with self._changed:
            entries = [*self._buffer]
            self._buffer.clear()
            self._after_taking()
        return entries

    def _raise_at_end(self) -> None:
        """The end has been read: there is nothing to wait for, and its error is raised."""
        self._wake.set(False)
        if self._error is not None:
            raise self._error

    def filenos(self) -> Sequence[int]:
        return (self._wake.fileno(),)

    def _close(self) -> None:
        with self._changed:
            self._closed = True
            self._wake.close()
            self._changed.notify()
