"""Runs Spark jobs from another thread, so that the caller's thread never blocks in Spark.

Invariant: Ctrl-C takes effect at once and cancels the job that it interrupts; an exception of Spark becomes a
DriftError.

Why another thread: a signal that comes while a thread reads Spark's answer would leave the connection half read.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import suppress
from itertools import count
from queue import Empty, Full, Queue
from typing import Any, TypeVar

from drift.spark.errors import as_drift_error

T = TypeVar("T")
_TICK_S = 0.05
_ROWS_AHEAD_MAX = 8
_numbers = count()


def new_tag() -> str:
    """A tag for the jobs of one call, unique in this process."""
    return f"drift-{threading.get_ident():x}-{next(_numbers)}"


def answer(spark: Any, question: Callable[[], T]) -> T:
    """The result of a function that runs jobs.

    Raises:
        DriftError: the job failed.
    """
    tag = new_tag()
    found: list[T] = []
    errors: list[Exception] = []

    def ask() -> None:
        try:
            spark.addTag(tag)
            found.append(question())
        except Exception as error:
            errors.append(error)

    thread = threading.Thread(target=ask, name="drift-spark-question", daemon=True)
    thread.start()
    try:
        while thread.is_alive():
            thread.join(_TICK_S)
    except BaseException:
        with suppress(Exception):  # the JVM may be gone
            spark.interruptTag(tag)
        raise
    if errors:
        raise as_drift_error(errors[0]) from errors[0]
    return found[0]


class Job:
    """Pulls the rows of a DataFrame in another thread, so that the caller's thread is never blocked."""

    def __init__(self, spark: Any, frame: Any) -> None:
        self.tag = new_tag()
        self._spark = spark
        self._frame = frame
        self._rows: Queue[Any] = Queue(_ROWS_AHEAD_MAX)
        self._closed = threading.Event()
        self._thread = threading.Thread(target=self._pull, name="drift-spark", daemon=True)

    def rows(self) -> Iterator[Any]:
        """The rows in order; None when there is none for a while.

        Raises:
            DriftError: why the job ended.
        """
        self._thread.start()
        while True:
            try:
                kind, value = self._rows.get(timeout=_TICK_S)
            except Empty:
                yield None
                continue
            if kind == "error":
                raise as_drift_error(value) from value
            if kind == "end":
                return
            yield value

    def _pull(self) -> None:
        try:
            self._spark.addTag(self.tag)
            for row in self._frame.toLocalIterator(prefetchPartitions=True):
                if not self._give(("row", row)):
                    return
            self._give(("end", None))
        except Exception as error:
            self._give(("error", error))

    def _give(self, value: tuple[str, Any]) -> bool:
        while not self._closed.is_set():
            try:
                self._rows.put(value, timeout=_TICK_S)
                return True
            except Full:
                continue
        return False

    def close(self) -> None:
        """Cancel the job if it still runs."""
        self._closed.set()
        if self._thread.is_alive():
            with suppress(Exception):  # the JVM may be gone
                self._spark.interruptTag(self.tag)
            self._thread.join(10)
