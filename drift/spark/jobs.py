"""Asking Spark for something without waiting in its hands.

Invariant: Ctrl-C is acted on at once, the job it interrupts is cancelled, and what Spark says becomes a DriftError.

Why: another thread asks. A signal that comes while a thread reads Spark's answer would leave the connection half read.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from contextlib import suppress
from itertools import count
from typing import Any, TypeVar

from drift.spark.errors import as_drift_error

T = TypeVar("T")
_TICK_S = 0.05
_numbers = count()


def new_tag() -> str:
    """A name for the jobs of one question, of all runs in this process."""
    return f"drift-{threading.get_ident():x}-{next(_numbers)}"


def answer(spark: Any, question: Callable[[], T]) -> T:
    """What a function gives that runs jobs.

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
