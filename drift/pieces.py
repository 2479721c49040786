"""The pieces of a run for whichever thread takes them, and ways to end a run from outside.

Invariant: one thread at a time is inside the run; after `close` has returned, from whatever thread, none is and none
will be, and what the run had started is gone.

Why: each piece is taken under a lock, and `close` says that it waits before it takes the lock: so whoever has it gives
it up at the next piece, and takes no other. A thread that closes the run from inside, as a sink or the handler of a
signal may, cannot wait for itself: there the run ends with the piece that it is at. A fork has only a copy of the run:
ending that is nothing to its processes and files.
"""

from __future__ import annotations

import contextlib
import contextvars
import os
import signal
import threading
from collections.abc import AsyncIterator, Callable, Generator, Iterator
from types import FrameType
from typing import Any, TypeVar

from drift_barrier.barrier import Released
from drift_graph.errors import ProcessError, SettingsError

T = TypeVar("T")


class Pieces(Iterator[Released]):
    """See the module.

    Args:
        pieces: of the run; ended by its `close`.
        end: ends a run that has not begun; may be called twice.
    """

    def __init__(self, pieces: Generator[Released, None, None], end: Callable[[], None]) -> None:
        self._pieces = pieces
        self._end = end
        self._lock = threading.RLock()
        self._closing = self._inside = False
        self._process = os.getpid()

    @property
    def is_of_a_fork(self) -> bool:
        """This process has only a copy of the run."""
        return os.getpid() != self._process

    def __next__(self) -> Released:
        if self.is_of_a_fork:
            raise ProcessError(
                f"this run was made in process {self._process} and belongs to it; its fork {os.getpid()} cannot go on "
                f"with it: make a run of its own there"
            )
        with self._lock:
            if self._closing and not self._inside:
                self._close()
            self._inside = True
            try:
                return next(self._pieces)
            finally:
                self._inside = False

    def close(self) -> None:
        """End the run where it is, and wait until that is done."""
        if self.is_of_a_fork:
            return
        self._closing = True
        with self._lock:
            if not self._inside:  # else this very thread is inside, and ends it at the next piece
                self._close()

    def _close(self) -> None:
        self._pieces.close()
        self._end()


@contextlib.contextmanager
def called_on(numbers: tuple[int, ...], stop: Callable[[], None]) -> Iterator[None]:
    """Meanwhile the first of these signals calls `stop`; the next does what it did before.

    Raises:
        SettingsError: this is not the main thread, which alone hears signals.
    """
    if threading.current_thread() is not threading.main_thread():
        raise SettingsError("only the main thread hears signals; enter stopping_on there, or call stop() yourself")
    before: dict[int, Any] = {}

    def come(number: int, frame: FrameType | None) -> None:
        if not before:  # it came right behind the first
            signal.raise_signal(number)
        restore()
        stop()

    def restore() -> None:
        while before:
            signal.signal(*before.popitem())

    try:
        for number in numbers:
            before[number] = signal.signal(number, come)
        yield
    finally:
        restore()


async def taken_in_a_thread(pieces: Pieces, make: Callable[[Released], Iterator[T]]) -> AsyncIterator[T]:
    """What `make` makes of each piece, for a coroutine. The run has a thread of its own: no other task waits.

    However the iteration ends, the run has ended when it has. The thread sees the context of who iterates.
    """
    import asyncio  # takes as long to load as all of drift, and few need it
    from concurrent.futures import ThreadPoolExecutor

    loop, context = asyncio.get_running_loop(), contextvars.copy_context()
    thread = ThreadPoolExecutor(1, "drift run")

    def take() -> Released | None:
        return context.run(next, pieces, None)

    try:
        while (piece := await loop.run_in_executor(thread, take)) is not None:
            for each in make(piece):
                yield each
    finally:
        try:
            await asyncio.shield(loop.run_in_executor(thread, pieces.close))
        finally:
            thread.shutdown(wait=False)
