"""PageRank of a hundred rounds, also of pages that nobody links to."""

from __future__ import annotations

import random
from typing import Any

import drift
from benchmarks.noir.case import Case, Published

_ROUNDS, _DAMPING = 100, 0.85

#: (page, how many there are, its links, one or more)
Links = tuple[int, int, tuple[int, ...]]
#: (page, how many there are, its rank)
Ranked = tuple[int, int, float]


def contributions(pair: tuple[Ranked, Links]) -> list[Ranked]:
    (page, pages, rank), (_, _, links) = pair
    return [(page, pages, 0.0), *[(other, pages, rank / len(links)) for other in links]]


def damped(pair: tuple[tuple[int, int], float]) -> Ranked:
    (page, pages), rank = pair
    return page, pages, (1 - _DAMPING) / pages + _DAMPING * rank


def graph() -> drift.Graph:
    written = drift.Graph("page rank")
    table = written.source("links")

    def turned(pairs: drift.Stream[tuple[None, Ranked]]) -> drift.Stream[Ranked]:
        ranks = pairs.map(lambda pair: pair[1])
        shares = ranks.join_table(table, lambda rank: rank[0], lambda row: row[0], how="inner").flat_map(contributions)
        return shares.key_by(lambda it: it[:2]).at_end(drift.agg.sum(lambda it: it[2])).map(damped)

    first = table.map(lambda row: (row[0], row[1], 1 / row[1]))
    first.iterate(_ROUNDS, None, turned, lambda state, rank: None)[1].sink("ranks")
    return written


# The data, and plain Python.


def data(count: int) -> dict[str, list[Any]]:
    draw = random.Random(count)
    pages = max(count // 10, 2)
    linked = max(pages * 9 // 10, 1)  # nobody links to the rest
    return {"links": [(page, pages, tuple(draw.randrange(linked) for _ in range(10))) for page in range(pages)]}


def plain(inputs: dict[str, list[Any]]) -> list[Any]:
    pages = len(inputs["links"])
    ranks = {page: 1 / pages for page, _, _ in inputs["links"]}
    for _ in range(_ROUNDS):
        sums = dict.fromkeys(ranks, 0.0)
        for page, _, links in inputs["links"]:
            for other in links:
                sums[other] += ranks[page] / len(links)
        ranks = {page: (1 - _DAMPING) / pages + _DAMPING * rank for page, rank in sums.items()}
    return [(page, pages, rank) for page, rank in ranks.items()]


CASES = [
    Case("page rank", 5_000, data, graph, plain, Published((83, 203, 144), (5.27, 125.69, 2.39), "2,420,766 links"))
]
