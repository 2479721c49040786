"""Transitive closure: paths grow by an edge in each round, and each goes on once."""

from __future__ import annotations

import random
from typing import Any

import drift
from benchmarks.noir.case import Case, Published

Edge = tuple[int, int]


def graph() -> drift.Graph:
    written = drift.Graph("closure")
    edges = written.source("edges")

    def longer(pairs: drift.Stream[tuple[None, Edge]]) -> drift.Stream[Edge]:
        paths = pairs.map(lambda pair: pair[1])
        joined = paths.join_table(edges, lambda path: path[1], lambda edge: edge[0], how="inner")
        new = paths.merge(joined.map(lambda pair: (pair[0][0], pair[1][1]))).dedup()
        new.sink("paths")
        return new

    edges.iterate(10_000, None, longer, lambda state, path: None)
    return written


# The data, and plain Python.


def data(count: int) -> dict[str, list[Any]]:
    draw = random.Random(count)
    nodes = max(count * 2 // 3, 2)
    return {"edges": sorted({(draw.randrange(nodes), draw.randrange(nodes)) for _ in range(count)})}


def plain(inputs: dict[str, list[Any]]) -> list[Any]:
    after: dict[int, list[int]] = {}
    for one, other in inputs["edges"]:
        after.setdefault(one, []).append(other)
    known = set(inputs["edges"])
    new = list(known)
    while new:
        found = {(start, far) for start, end in new for far in after.get(end, ())}
        new = list(found - known)
        known.update(new)
    return list(known)


CASES = [
    Case("transitive closure", 150, data, graph, plain, Published((59, 141, None), (5.26, 36.7, None), "3,000 edges"))
]
