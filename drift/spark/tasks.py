"""Kernels on their way to the tasks of Spark.

Invariant: a task finds the modules that the driver found, where they are on its machine, before anything of the user's
is unpacked.

Why: a worker knows this library, but the user's script may have come from a folder that is only on the driver's path.
So what a kernel is given travels packed, with that path beside it.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Iterator
from functools import lru_cache, partial
from pathlib import Path
from typing import Any

import cloudpickle


def task(
    kernel: Callable[..., Iterator[Any]], *arguments: Any, **more: Any
) -> Callable[[Iterable[Any]], Iterator[Any]]:
    """A function for mapInArrow: `kernel` with these arguments, and the batches after them."""
    path = tuple(entry or str(Path.cwd()) for entry in sys.path)
    return partial(_run, path, cloudpickle.dumps(partial(kernel, *arguments, **more)))


def _run(path: tuple[str, ...], packed: bytes, batches: Iterable[Any]) -> Iterator[Any]:
    for folder in path:
        if folder not in sys.path:
            sys.path.append(folder)
    return _unpacked(packed)(batches)


@lru_cache(maxsize=8)
def _unpacked(packed: bytes) -> Callable[[Iterable[Any]], Iterator[Any]]:
    kernel: Callable[[Iterable[Any]], Iterator[Any]] = cloudpickle.loads(packed)
    return kernel
