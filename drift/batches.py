"""The output of a run for those who take it: by item or by batch, in any number of loops and threads.

Invariant: at most one thread at a time is inside the run; each item is given once; what a loop was given counts as
taken when the loop asks for more, and not before. After `close` has returned, in any thread, no thread is inside the
run and none will be, and everything that the run had started is gone.

Why: each batch is taken under a lock, and `close` sets a flag before it takes the lock: so the holder of the lock
releases it at the next batch, and takes no other. A thread that closes the run from inside, as a sink or a signal
handler may, cannot wait for itself: then the run ends with the present batch. A fork has only a copy of the run, so
closing that copy does not touch processes and files.

A run that is left without a close, as by Ctrl-C in the body of its loop, is closed when the interpreter exits, while
everything still works that the closing needs; not if a thread is inside it, which may never come back.

All loops share the items of the current batch, an iterator written in C: so a loop costs nothing for an item, and gets
one that no other has. Each thread has its own loop, since itertools.chain must not be advanced by two at a time.
"""

from __future__ import annotations

import atexit
import contextlib
import contextvars
import os
import signal
import sys
import threading
from collections import deque
from collections.abc import AsyncIterator, Callable, Generator, Iterator
from itertools import chain, count
from operator import length_hint
from types import FrameType
from typing import Any, NoReturn
from weakref import WeakValueDictionary

from drift_barrier.barrier import Released
from drift_graph.errors import ProcessError, SettingsError
from drift_graph.item import Item, items
from drift_graph.metas import Metas
from drift_graph.unchanged import Sample, Sampler

#: Where the output is complete, it is above all positions.
EVERYTHING = sys.maxsize
FROM_INSIDE = (
    "a function, source or sink of a run asked the run for its output, which waits for that function; take the output "
    "outside of the run"
)


#: The runs of this process that were not closed, by the order in which they were made.
_open: WeakValueDictionary[int, Batches] = WeakValueDictionary()
_numbers = count()


def _close_at_exit() -> None:
    """The newest first: it may read from another."""
    with contextlib.ExitStack() as closing:
        for _, each in sorted(_open.items()):
            closing.callback(each.close_if_idle)


class _Current:
    """The batch that loops take items of.

    Attributes:
        left: the positions of the items that nobody has, which `items` takes from.
    """

    def __init__(self, batch: Released) -> None:
        position, metas, payloads, sinks, _ = self.batch = batch
        positions = range(position, position + len(payloads))
        self.left = iter(positions)
        self.items = items(payloads, positions, sinks, metas, self.left)

    @property
    def next_position(self) -> int:
        """Of the first item that nobody has."""
        return self.batch.position + len(self.batch.payloads) - length_hint(self.left)

    def take_rest(self) -> Released:
        """The items that nobody has, as a batch."""
        first = next(self.left, EVERYTHING)
        deque(self.left, maxlen=0)
        return self.batch.since(first)


def _nothing() -> _Current:
    return _Current(Released(0, Metas(), [], ""))


class Batches(Iterator[Released]):
    """As an iterator it gives batches to the loop of the thread that asks.

    Args:
        batches: of the run; ended by its `close`. None for "nothing more comes until all is taken".
        end: cleans up, also if the run has not begun; may be called twice.

    Attributes:
        ended: whether there are no more batches.
        of_thread: the loop of each thread.
    """

    def __init__(self, batches: Generator[Released | None, None, None], end: Callable[[], None]) -> None:
        self._batches = batches
        self._end = end
        self._lock = threading.RLock()
        self._closing = self._inside = self._awaits_all = False
        self._current = _nothing()
        self._in_hand: dict[Loop, int] = {}  # the least position that a loop may not have taken
        self.of_thread = OfThread(self)
        self._sampler = Sampler()
        self._samples: list[Sample] = []  # of the items given one by one
        self._error: Exception | None = None  # that the run ended with
        self._got_error: set[Loop] = set()
        self.ended = False
        self._process = os.getpid()
        self._number = next(_numbers)
        if not _open:  # behind what was imported until now, so it is called before that ends
            atexit.unregister(_close_at_exit)
            atexit.register(_close_at_exit)
        _open[self._number] = self

    @property
    def is_of_a_fork(self) -> bool:
        """Whether this process has only a copy of the run."""
        return os.getpid() != self._process

    @property
    def loop(self) -> Loop:
        """The loop of this thread."""
        return self.of_thread.loop

    @property
    def taken(self) -> int:
        """The position below which everything that was given is taken."""
        return min(self._in_hand.values(), default=EVERYTHING)

    def take_samples(self) -> list[Sample]:
        """Samples of the items that were given one by one, since the last call."""
        samples, self._samples = self._samples, []
        return samples

    def __next__(self) -> Released:
        batch = self.loop.batch()
        if batch is None:
            raise StopIteration
        return batch

    def next_items(self, loop: Loop) -> Iterator[Item[Any]] | None:
        """The items of the current batch, or of the next one if nobody has any of that."""
        with self._lock:
            self._in_hand.pop(loop, None)
            current = self._current
            if not length_hint(current.left):
                batch = self._more(loop)
                if batch is None:
                    return None
                current = self._current = _Current(batch)
                self._samples = self._sampler.sample(batch.payloads)
            if current.batch.metas:
                self._in_hand[loop] = current.next_position
            return current.items

    def next_batch(self, loop: Loop, *, keeps: bool = False) -> Released | None:
        """What is left of the current batch, or the next one.

        Args:
            keeps: what the loop was given before is not taken yet.
        """
        with self._lock:
            if not keeps:
                self._in_hand.pop(loop, None)
            batch = self._current.take_rest()
            self._current = _nothing()
            if not batch.metas:
                more = self._more(loop)
                if more is None:
                    return None
                batch = more
            if batch.metas:
                self._in_hand.setdefault(loop, batch.position)
            return batch

    def _more(self, loop: Loop) -> Released | None:
        """The next batch; None at the end, and where the run waits until all is taken.

        Raises:
            DriftError: the run failed; each loop gets its error, once.
        """
        if self.is_of_a_fork:
            raise ProcessError(
                f"this run belongs to process {self._process}, which made it; its fork {os.getpid()} has only a copy: "
                f"call drift.run in the fork"
            )
        if self._inside:
            raise SettingsError(FROM_INSIDE)
        if self._closing:
            self._close()
        self._inside = True
        try:
            while not (self._awaits_all and self._in_hand):
                batch = next(self._batches)
                self._awaits_all = batch is None
                if batch is not None:
                    return batch
            return None
        except StopIteration:
            self.ended = True
            if self._error is not None and loop not in self._got_error:
                self._got_error.add(loop)
                raise self._error from None
            return None
        except BaseException as error:
            self.ended = True
            if isinstance(error, Exception):
                self._error = error
                self._got_error.add(loop)
            raise
        finally:
            self._inside = False

    def close(self) -> None:
        """End the run at the present batch, and wait for that; loops end, too."""
        if self.is_of_a_fork:
            return
        self._closing = True
        with self._lock:
            deque(self._current.left, maxlen=0)
            if not self._inside:  # otherwise this thread is inside, and ends it at the next batch
                self._close()

    def close_if_idle(self) -> None:
        """End the run, unless another thread is inside it."""
        if self._lock.acquire(blocking=False):
            try:
                self.close()
            finally:
                self._lock.release()

    def _close(self) -> None:
        self.ended = True
        _open.pop(self._number, None)
        self._batches.close()
        self._end()


class Loop(Iterator[Iterator[Item[Any]]]):
    """One loop over a run: each request says that it has taken what it was given before.

    As an iterator it gives the items batch by batch, for itertools.chain.
    """

    def __init__(self, batches: Batches) -> None:
        self._batches = batches
        self._asking = threading.Lock()
        self._thread = ""  # that asks
        self._misused = ""

    def __next__(self) -> Iterator[Item[Any]]:
        thread = threading.current_thread().name
        if not self._asking.acquire(blocking=False):
            self._misused = (
                f"threads {self._thread!r} and {thread!r} advanced one iterator of a run at the same time; let each "
                f"thread have its own: with 'for item in run' or next(run) in each, every item goes to one of them"
                if self._thread != thread
                else FROM_INSIDE
            )
            return iter(self._fail, None)  # raised here, chain would end the other one's loop without an error
        try:
            self._thread = thread
            if self._misused:
                self._fail()
            given = self._batches.next_items(self)
            if given is None:
                raise StopIteration
            return given
        finally:
            self._asking.release()

    def _fail(self) -> NoReturn:
        raise SettingsError(self._misused)

    def batch(self) -> Released | None:
        """The next batch; None at the end, or if the run waits for other loops."""
        return self._batches.next_batch(self)

    def batch_kept(self) -> Released | None:
        """The next batch, though what came before is not taken yet."""
        return self._batches.next_batch(self, keeps=True)


class OfThread(threading.local):
    """The loop of the thread that looks at this, and the items that it is given."""

    def __init__(self, batches: Batches) -> None:
        self.loop = Loop(batches)
        self.items = chain.from_iterable(self.loop)


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


async def iterated_in_a_thread(batches: Batches) -> AsyncIterator[Item[Any]]:
    """The items, for a coroutine. The run has its own thread, so no other task waits.

    When the iteration is broken off, the run ends. The thread has the context of the caller.
    """
    import asyncio  # takes as long to load as all of drift, and few users need it
    from concurrent.futures import ThreadPoolExecutor

    loop, context = asyncio.get_running_loop(), contextvars.copy_context()
    thread, its_loop = ThreadPoolExecutor(1, "drift run"), Loop(batches)

    def take() -> Iterator[Item[Any]] | None:
        return context.run(next, its_loop, None)

    ended = False
    try:
        while (given := await loop.run_in_executor(thread, take)) is not None:
            for each in given:
                yield each
        ended = True
    finally:
        try:
            if not ended:
                await asyncio.shield(loop.run_in_executor(thread, batches.close))
        finally:
            thread.shutdown(wait=False)
