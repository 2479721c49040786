"""Sends kernels to the tasks of Spark.

Invariant: before a task unpickles anything of the user's, it has the driver's environment, and the driver's module path
as far as its folders exist on the task's machine.

Why: a worker can import this library, but the user's script may come from a folder that only the driver's path has.
So the arguments of a kernel travel pickled, together with that path. A worker process runs tasks of several runs.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterable, Iterator
from functools import lru_cache, partial
from typing import Any

import cloudpickle

from drift.engines.surroundings import Surroundings, surroundings


def task(
    kernel: Callable[..., Iterator[Any]], *arguments: Any, **more: Any
) -> Callable[[Iterable[Any]], Iterator[Any]]:
    """A function for mapInArrow: `kernel` with these arguments, and the batches after them."""
    return partial(_run, surroundings(), cloudpickle.dumps(partial(kernel, *arguments, **more)))


def mapped(frame: Any, kernel: Callable[[Iterable[Any]], Iterator[Any]], schema: Any) -> Any:
    """`mapInArrow` of a DataFrame whose columns may have any names, which tasks do not get.

    Spark looks the columns up by their names, and finds none that has a dot or a backtick in it.
    """
    return frame.toDF(*(f"c{at}" for at in range(len(frame.columns)))).mapInArrow(kernel, schema)


def _run(around: Surroundings, packed: bytes, batches: Iterable[Any]) -> Iterator[Any]:
    around.enter(same_machine=False)
    try:
        yield from _unpacked(packed)(batches)
    except GeneratorExit:  # as after limit(): Spark closed the pipe, and its worker ends with this task
        sys.stderr = open(os.devnull, "w")  # noqa: PTH123, SIM115 - it would print a trace about the closed pipe
        raise


@lru_cache(maxsize=8)
def _unpacked(packed: bytes) -> Callable[[Iterable[Any]], Iterator[Any]]:
    kernel: Callable[[Iterable[Any]], Iterator[Any]] = cloudpickle.loads(packed)
    return kernel
