"""Word count: counted one by one, counted in shares first, and in count windows of 10 words every 5."""

from __future__ import annotations

import gzip
import string
from collections import Counter
from pathlib import Path
from typing import Any

import drift
from benchmarks.noir.case import Case, Published

_LETTERS = str.maketrans("", "", string.punctuation)


def words(line: str) -> list[str]:
    return line.lower().translate(_LETTERS).split()


def counted() -> drift.Graph:
    graph = drift.Graph("word count")
    graph.source("lines").flat_map(words).key_by(str).at_end(drift.agg.count()).sink("counts")
    return graph


def counted_in_shares() -> drift.Graph:
    """Each line is counted by itself before words meet by their keys."""
    graph = drift.Graph("word count in shares")
    pairs = graph.source("lines").flat_map(lambda line: list(Counter(words(line)).items()))
    pairs.key_by(lambda pair: pair[0]).at_end(drift.agg.sum(lambda pair: pair[1])).sink("counts")
    return graph


def windowed() -> drift.Graph:
    graph = drift.Graph("windowed word count")
    keyed = graph.source("lines").flat_map(words).key_by(str)
    windows = keyed.window(drift.windows.count(10, 5, partial=True)).count()
    windows.map(lambda window: (window.key, window.start, window.value)).sink("windows")
    return graph


# The data, and plain Python.

_HAMLET = Path(__file__).parents[2] / "examples" / "data" / "hamlet.txt.gz"


def lines(count: int) -> dict[str, list[Any]]:
    with gzip.open(_HAMLET, "rt", encoding="utf-8") as file:
        hamlet = file.read().splitlines()
    return {"lines": [hamlet[number % len(hamlet)] for number in range(count)]}


def plain_counts(inputs: dict[str, list[Any]]) -> list[Any]:
    counts: dict[str, int] = {}
    for line in inputs["lines"]:
        for word in words(line):
            counts[word] = counts.get(word, 0) + 1
    return sorted(counts.items())


def plain_windows(inputs: dict[str, list[Any]]) -> list[Any]:
    found = []
    for word, count in plain_counts(inputs):
        full = [start for start in range(0, count, 5) if start + 10 <= count]
        found += [(word, start, 10) for start in full]
        start = full[-1] + 5 if full else 0
        if start < count:
            found.append((word, start, count - start))
    return sorted(found)


CASES = [
    Case("word count", 20_000, lines, counted, plain_counts, Published((50, None, None), (39.73, None, None), "4 GB")),
    Case(
        "word count, in shares",
        20_000,
        lines,
        counted_in_shares,
        plain_counts,
        Published((49, 41, 280), (13.14, 60.01, 3.63), "4 GB"),
    ),
    Case(
        "word count, windows 10, 5",
        10_000,
        lines,
        windowed,
        plain_windows,
        Published((48, 59, 218), (44.91, 101.76, 15.36), "4 GB"),
    ),
]
