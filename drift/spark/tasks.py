"""Kernels on their way to the tasks of Spark.

Invariant: a task finds what the driver found of its process, and its modules where they are on its machine, before
anything of the user's is unpacked.

Why: a worker knows this library, but the user's script may have come from a folder that is only on the driver's path.
So what a kernel is given travels packed, with that path beside it. A process runs tasks of one run after another.
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


def _run(around: Surroundings, packed: bytes, batches: Iterable[Any]) -> Iterator[Any]:
    around.enter(same_machine=False)
    try:
        yield from _unpacked(packed)(batches)
    except GeneratorExit:  # nobody wants more, as after limit(): Spark has hung up, and its worker ends with this task
        sys.stderr = open(os.devnull, "w")  # noqa: PTH123, SIM115 - where it prints a trace of the pipe that is gone
        raise


@lru_cache(maxsize=8)
def _unpacked(packed: bytes) -> Callable[[Iterable[Any]], Iterator[Any]]:
    kernel: Callable[[Iterable[Any]], Iterator[Any]] = cloudpickle.loads(packed)
    return kernel
