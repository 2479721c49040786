"""Triangles of an undirected graph, whose edges are given once each, the lesser node first."""

from __future__ import annotations

import random
from typing import Any

import drift
from benchmarks.noir.case import Case, Published

Edge = tuple[int, int]


def graph() -> drift.Graph:
    """Two edges from one node on, and the edge between their ends."""
    written = drift.Graph("triangles")
    edges = written.source("edges")
    paths = edges.join(edges.map(lambda edge: edge), lambda edge: edge[1], lambda edge: edge[0])
    ends = paths.map(lambda pair: (pair[0][0], pair[1][1]))
    ends.join(edges, lambda path: path, lambda edge: edge).at_end(drift.agg.count()).sink("triangles")
    return written


# The data, and plain Python.


def data(count: int) -> dict[str, list[Any]]:
    draw = random.Random(count)
    nodes = max(int(count**0.6), 3)
    edges = {tuple(sorted(draw.sample(range(nodes), 2))) for _ in range(count)}
    return {"edges": sorted(edges)}


def plain(inputs: dict[str, list[Any]]) -> list[Any]:
    after: dict[int, set[int]] = {}
    for one, other in inputs["edges"]:
        after.setdefault(one, set()).add(other)
    found = 0
    for one, other in inputs["edges"]:
        found += len(after[one] & after.get(other, set()))
    return [found]


CASES = [Case("triangles", 3_000, data, graph, plain, Published((57, 212, 309), (10.98, 70.38, 2.68), "900,000 edges"))]
