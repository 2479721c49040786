"""Five hops: each item is keyed anew five times, with a running count at each."""

from __future__ import annotations

from typing import Any

import drift
from benchmarks.noir.case import Case, Published

_HOPS = 5


def counted(count: int, number: int) -> tuple[int, int]:
    return count + 1, number


def graph() -> drift.Graph:
    written = drift.Graph("five hops")
    stream: drift.Stream[int] = written.source("numbers")
    for hop in range(_HOPS):
        stream = stream.key_by(lambda number, by=hop + 2: number % by).scan(0, counted, name=f"hop {hop}")
    stream.sink("out")
    return written


# The data, and plain Python.


def data(count: int) -> dict[str, list[Any]]:
    return {"numbers": list(range(count))}


def plain(inputs: dict[str, list[Any]]) -> list[Any]:
    counts: dict[tuple[int, int], int] = {}
    for number in inputs["numbers"]:
        for hop in range(_HOPS):
            key = hop, number % (hop + 2)
            counts[key] = counts.get(key, 0) + 1
    return list(inputs["numbers"])


CASES = [
    Case("five hops", 50_000, data, graph, plain, Published((None, None, None), (None, None, None), "1,000 a second"))
]
