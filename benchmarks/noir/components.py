"""Connected components: each node takes the least number among its neighbours', until none changes."""

from __future__ import annotations

import random
from typing import Any

import drift
from benchmarks.noir.case import Case, Published

#: (node, the least that it has heard of)
Label = tuple[int, int]


def heard(least: int | None, label: Label) -> tuple[int, list[Label]]:
    """A node goes on with a label that is less than its own."""
    return (label[1], [label]) if least is None or label[1] < least else (least, [])


def graph() -> drift.Graph:
    written = drift.Graph("components")
    edges = written.source("edges").flat_map(lambda edge: [edge, (edge[1], edge[0])])
    labels = edges.flat_map(lambda edge: [(edge[0], edge[0])]).dedup()

    def offered(pairs: drift.Stream[tuple[Any, Label]]) -> drift.Stream[Label]:
        news = pairs.map(lambda pair: pair[1]).key_by(lambda label: label[0]).scan(None, heard).flatten()
        news.sink("labels")
        to = news.join_table(edges, lambda label: label[0], lambda edge: edge[0], how="inner")
        return to.map(lambda pair: (pair[1][1], pair[0][1]))

    labels.iterate(1000, None, offered, lambda state, label: None)[0].filter(lambda state: False).sink("rounds")
    return written


# The data, and plain Python.


def data(count: int) -> dict[str, list[Any]]:
    draw = random.Random(count)
    nodes = max(count // 25 * 10, 20)
    edges = set()
    for _ in range(count):
        group = draw.randrange(10)
        one, other = (draw.randrange(nodes // 10) * 10 + group for _ in range(2))
        if one != other:
            edges.add((one, other))
    return {"edges": sorted(edges)}


def plain(inputs: dict[str, list[Any]]) -> list[Any]:
    neighbours: dict[int, list[int]] = {}
    for one, other in inputs["edges"]:
        neighbours.setdefault(one, []).append(other)
        neighbours.setdefault(other, []).append(one)
    labels = {node: node for node in neighbours}
    changed = dict(labels)
    while changed:
        offers: dict[int, int] = {}
        for node, label in changed.items():
            for other in neighbours[node]:
                if label < labels[other]:
                    offers[other] = min(label, offers.get(other, label))
        labels.update(offers)
        changed = offers
    return sorted(labels.items())


def last_labels(found: list[Any]) -> list[Any]:
    """Of each node the least, which is the last it took."""
    least: dict[int, int] = {}
    for node, label in found:
        least[node] = min(label, least.get(node, label))
    return sorted(least.items())


CASES = [
    Case(
        "connected components",
        5_000,
        data,
        graph,
        plain,
        Published((94, 161, 152), (1.55, 10.33, 1.04), "5,000,000 edges"),
    )
]
