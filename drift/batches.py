"""The batches of a run, for any thread, and ways to end a run from outside.

Invariant: at most one thread at a time is inside the run; after `close` has returned, in any thread, none is and none
will be, and everything that the run had started is gone.

Why: each batch is taken under a lock, and `close` sets a flag before it takes the lock: so the holder of the lock
releases it at the next batch, and takes no other. A thread that closes the run from inside, as a sink or a signal
handler may, cannot wait for itself: then the run ends with the present batch. A fork has only a copy of the run, so
closing that copy does not touch processes and files.
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


class Batches(Iterator[Released]):
    """See the module.

    Args:
        batches: of the run; ended by its `close`.
        end: cleans up, also if the run has not begun; may be called twice.
    """

    def __init__(self, batches: Generator[Released, None, None], end: Callable[[], None]) -> None:
        self._batches = batches
        self._end = end
        self._lock = threading.RLock()
        self._closing = self._inside = False
        #: Whether there are no more batches.
        self.ended = False
        self._process = os.getpid()

    @property
    def is_of_a_fork(self) -> bool:
        """Whether this process has only a copy of the run."""
        return os.getpid() != self._process

    def __next__(self) -> Released:
        if self.is_of_a_fork:
            raise ProcessError(
                f"this run belongs to process {self._process}, which made it; its fork {os.getpid()} has only a copy: "
                f"call drift.run in the fork"
            )
        with self._lock:
            if self._closing and not self._inside:
                self._close()
            self._inside = True
            try:
                return next(self._batches)
            except BaseException:
                self.ended = True
                raise
            finally:
                self._inside = False

    def close(self) -> None:
        """End the run at the present batch, and wait for that."""
        if self.is_of_a_fork:
            return
        self._closing = True
        with self._lock:
            if not self._inside:  # otherwise this thread is inside, and ends it at the next batch
                self._close()

    def _close(self) -> None:
        self.ended = True
        self._batches.close()
        self._end()


@contextlib.contextmanager
def called_on(numbers: tuple[int, ...], stop: Callable[[], None]) -> Iterator[None]:
    """Within the context, the first of these signals calls `stop`; a second one has its former effect.

    Raises:
        SettingsError: this is not the main thread, which alone gets signals.
    """
    if threading.current_thread() is not threading.main_thread():
        raise SettingsError("only the main thread hears signals; enter stopping_on there, or call stop() yourself")
    before: dict[int, Any] = {}

    def come(number: int, frame: FrameType | None) -> None:
        if not before:  # a second signal, right after the first
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


async def iterated_in_a_thread(batches: Batches, make: Callable[[Released], Iterator[T]]) -> AsyncIterator[T]:
    """The results of `make` for each batch, for a coroutine. The run has its own thread, so no other task waits.

    When the iteration has ended, for whatever reason, so has the run. The thread has the context of the caller.
    """
    import asyncio  # takes as long to load as all of drift, and few users need it
    from concurrent.futures import ThreadPoolExecutor

    loop, context = asyncio.get_running_loop(), contextvars.copy_context()
    thread = ThreadPoolExecutor(1, "drift run")

    def take() -> Released | None:
        return context.run(next, batches, None)

    try:
        while (batch := await loop.run_in_executor(thread, take)) is not None:
            for each in make(batch):
                yield each
    finally:
        try:
            await asyncio.shield(loop.run_in_executor(thread, batches.close))
        finally:
            thread.shutdown(wait=False)
