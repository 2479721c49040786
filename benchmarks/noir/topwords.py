"""Rolling top words: the four most used of 50 hashtags in each second, every half a second."""

from __future__ import annotations

import random
from typing import Any

import drift
from benchmarks.noir.case import Case, Published

_SIZE, _EVERY, _TOP = 1000, 500, 4


def graph() -> drift.Graph:
    written = drift.Graph("top words")
    tags = written.source("tags", time=drift.EventTime(lambda tag: tag[0]))
    counts = tags.key_by(lambda tag: tag[1]).window(drift.windows.sliding(_SIZE, _EVERY)).count()
    ends = counts.key_by(lambda window: window.end).window(drift.windows.tumbling(1))
    best = ends.aggregate(drift.agg.top(_TOP, by=lambda window: (window.value, window.key)))
    best.map(lambda window: (window.key, tuple((each.key, each.value) for each in window.value))).sink("top")
    return written


# The data, and plain Python.


def data(count: int) -> dict[str, list[Any]]:
    draw = random.Random(count)
    tags = []
    for now in range(count):
        rank = 0
        while draw.random() > 0.1 and rank < 49:
            rank += 1
        tags.append((now, f"#{rank}"))
    return {"tags": tags}


def plain(inputs: dict[str, list[Any]]) -> list[Any]:
    counts: dict[int, dict[str, int]] = {}
    for now, tag in inputs["tags"]:
        end = now - now % _EVERY + _EVERY
        while end - _SIZE <= now:
            known = counts.setdefault(end, {})
            known[tag] = known.get(tag, 0) + 1
            end += _EVERY
    return [
        (end, tuple(sorted(known.items(), key=lambda pair: (pair[1], pair[0]), reverse=True)[:_TOP]))
        for end, known in counts.items()
    ]


CASES = [
    Case("rolling top words", 100_000, data, graph, plain, Published((193, 226, None), (None, None, None), "1 a ms"))
]
