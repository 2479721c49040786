"""k-means: fifteen rounds over the same points; the state is the centres."""

from __future__ import annotations

import random
from typing import Any

import drift
from benchmarks.noir.case import Case, Published

_CENTRES, _ROUNDS = 8, 15

Point = tuple[float, float]
Centres = tuple[Point, ...]


def nearest(pair: tuple[Centres, Point]) -> tuple[int, float, float]:
    centres, (x, y) = pair
    distances = [(x - a) * (x - a) + (y - b) * (y - b) for a, b in centres]
    return distances.index(min(distances)), x, y


def added(sums: dict[int, tuple[int, float, float]], found: tuple[int, float, float]) -> dict[int, Any]:
    at, x, y = found
    count, a, b = sums.get(at, (0, 0.0, 0.0))
    return {**sums, at: (count + 1, a + x, b + y)}


def both(left: dict[int, Any], right: dict[int, Any]) -> dict[int, Any]:
    merged = dict(left)
    for at, (count, x, y) in right.items():
        known = merged.get(at, (0, 0.0, 0.0))
        merged[at] = (known[0] + count, known[1] + x, known[2] + y)
    return merged


def moved(centres: Centres, sums: dict[int, tuple[int, float, float]]) -> Centres:
    return tuple(
        (sums[at][1] / sums[at][0], sums[at][2] / sums[at][0]) if at in sums else old for at, old in enumerate(centres)
    )


def graph() -> drift.Graph:
    written = drift.Graph("k-means")
    sums = drift.agg.fold({}, added, both)
    points = written.source("points")
    points.replay(_ROUNDS, START, lambda pairs: pairs.map(nearest), moved, aggregate=sums).flatten().sink("centres")
    return written


# The data, and plain Python.

START: Centres = tuple((float(at), float(at * at % 7)) for at in range(_CENTRES))


def data(count: int) -> dict[str, list[Any]]:
    draw = random.Random(count)
    around = [(draw.uniform(0, 10), draw.uniform(0, 10)) for _ in range(_CENTRES)]
    return {"points": [(draw.gauss(a, 1), draw.gauss(b, 1)) for a, b in (draw.choice(around) for _ in range(count))]}


def plain(inputs: dict[str, list[Any]]) -> list[Any]:
    centres = START
    for _ in range(_ROUNDS):
        sums: dict[int, tuple[int, float, float]] = {}
        for point in inputs["points"]:
            at, x, y = nearest((centres, point))
            count, a, b = sums.get(at, (0, 0.0, 0.0))
            sums[at] = count + 1, a + x, b + y
        centres = moved(centres, sums)
    return list(centres)


CASES = [
    Case(
        "k-means", 5_000, data, graph, plain, Published((167, 200, 419), (1.79, 53.41, 1.14), "10,002,000 points, k=30")
    )
]
