"""What is computed: four workloads, each as a plain loop and as a graph over the same functions.

Invariant: `plain` yields the payloads that the graph releases, in their order (a test compares them).
"""

from __future__ import annotations

import gzip
import random
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from operator import itemgetter
from pathlib import Path
from typing import Any

import drift
from drift.streams import Stream

ROOT = Path(__file__).parents[1]
SHAKESPEARE = ROOT.parent / "shared" / "data" / "shakespeare.txt.gz"
HAMLET = ROOT / "examples" / "data" / "hamlet.txt.gz"

KEYS = 1000
WINDOW = 10
#: How far an item that comes out of order is moved at most, in places, and the lateness that allows for it.
POSITIONS_LATE_MAX = 500
LATENESS = 1000


# The functions of a user.


def itself(word: str) -> str:
    return word


def count_word(count: int, word: str) -> tuple[int, tuple[str, int]]:
    return count + 1, (word, count + 1)


def key_of(number: int) -> int:
    return number % KEYS


def add(total: int, number: int) -> tuple[int, tuple[int, int]]:
    return total + number, (number % KEYS, total + number)


def plus(number: int) -> int:
    return number + 1


def twice(number: int) -> int:
    return number * 2


def minus(number: int) -> int:
    return number - 3


def flip(number: int) -> int:
    return number ^ 5


# The same, as one would write it without drift.


def plain_wordcount(lines: Iterable[str]) -> Iterator[tuple[str, int]]:
    counts: dict[str, int] = {}
    for line in lines:
        for word in line.split():
            key = itself(word)
            counts[key], output = count_word(counts.get(key, 0), word)
            yield output


def plain_sum(numbers: Iterable[int]) -> Iterator[tuple[int, int]]:
    totals: dict[int, int] = {}
    for number in numbers:
        key = key_of(number)
        totals[key], output = add(totals.get(key, 0), number)
        yield output


def plain_window(numbers: Iterable[int]) -> Iterator[tuple[int, ...]]:
    buckets: dict[int, deque[int]] = {}
    for number in numbers:
        key = key_of(number)
        bucket = buckets.get(key)
        if bucket is None:
            bucket = buckets[key] = deque(maxlen=WINDOW)
        bucket.append(number)
        yield tuple(bucket)


def plain_chain(numbers: Iterable[int]) -> Iterator[int]:
    for number in numbers:
        yield flip(minus(twice(plus(number))))


# And as graphs.


def wordcount(lines: Stream[Any]) -> Stream[Any]:
    return lines.flat_map(str.split).scan(itself, 0, count_word)


def running_sum(numbers: Stream[Any]) -> Stream[Any]:
    return numbers.scan(key_of, 0, add)


def window(numbers: Stream[Any]) -> Stream[Any]:
    return numbers.group(key_of, WINDOW)


def chain(numbers: Stream[Any]) -> Stream[Any]:
    return numbers.map(plus).map(twice).map(minus).map(flip)


def lines_of_text(words_max: int) -> list[str]:
    """Lines with `words_max` words: all of Shakespeare where it lies beside the checkout, or less; else Hamlet anew."""
    shakespeare = SHAKESPEARE.exists()
    with gzip.open(SHAKESPEARE if shakespeare else HAMLET, "rt", encoding="utf-8") as file:
        text = file.read().splitlines()
    lines: list[str] = []
    words = 0
    while True:
        for line in text:
            words += len(line.split())
            lines.append(line)
            if words >= words_max:
                return lines
        if shakespeare:
            return lines


@dataclass(frozen=True)
class Workload:
    """Something to compute.

    Attributes:
        unit: what is counted as an item: what goes through the step that is measured.
        inputs: for a number of items, what goes in.
        plain: the plain loop.
        steps: adds the steps to a source.
    """

    name: str
    title: str
    unit: str
    inputs: Callable[[int], Sequence[Any]]
    plain: Callable[[Iterable[Any]], Iterator[Any]]
    steps: Callable[[Stream[Any]], Stream[Any]]

    def graph(self) -> drift.Graph:
        """Over payloads as they are, in arrival order."""
        graph = drift.Graph(self.name)
        self.steps(graph.source("in")).sink("out")
        return graph

    def event_time_graph(self) -> drift.Graph:
        """Over pairs (index, payload), in the order of the indices."""
        graph = drift.Graph(self.name)
        index = itemgetter(0)
        time = drift.EventTime(time=index, tie=index, lateness=LATENESS)
        self.steps(graph.source("in", time=time).map(itemgetter(1))).sink("out")
        return graph


WORKLOADS = {
    each.name: each
    for each in (
        Workload(
            "wordcount", "running count of each word of a text", "words", lines_of_text, plain_wordcount, wordcount
        ),
        Workload("sum", f"running sum of each of {KEYS:,} keys", "items", range, plain_sum, running_sum),
        Workload("window", f"last {WINDOW} items of each of {KEYS:,} keys", "items", range, plain_window, window),
        Workload("chain", "four maps in a row", "items", range, plain_chain, chain),
    )
}


def text_used() -> str:
    """Which text the word count counts."""
    return "Shakespeare" if SHAKESPEARE.exists() else "Hamlet, repeated"


def one_by_one(numbers: range) -> Iterator[int]:
    """A source that nobody has in memory."""
    yield from numbers


def mixed(payloads: Sequence[Any]) -> list[Any]:
    """Numbers in an order where neighbours may have one key, so that it matters which of them comes first."""
    ordered = list(payloads)
    if isinstance(payloads, range):
        random.Random(len(ordered)).shuffle(ordered)
    return ordered


def moved(pairs: list[Any], fraction: float) -> list[Any]:
    """The same pairs with a fraction of them up to `POSITIONS_LATE_MAX` places later; the same ones in every run."""
    if not fraction:
        return pairs
    draw = random.Random(f"{len(pairs)} {fraction}")
    arrival = [
        index + draw.randint(1, POSITIONS_LATE_MAX) if draw.random() < fraction else index
        for index in range(len(pairs))
    ]
    return [pairs[index] for index in sorted(range(len(pairs)), key=arrival.__getitem__)]


# Latency: lines "number due".


def key_of_line(line: str) -> int:
    return int(line.split()[0]) % KEYS


def count_line(count: int, line: str) -> tuple[int, tuple[str, int]]:
    return count + 1, (line, count + 1)


def line_graph() -> drift.Graph:
    """A running count for each key, over lines."""
    graph = drift.Graph("lines")
    graph.source("in").scan(key_of_line, 0, count_line).sink("out")
    return graph
