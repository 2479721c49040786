"""Noir's car accidents, with flights: delayed ones by week, by carrier, and by airport and week with the mean share."""

from __future__ import annotations

import random
from typing import Any

import drift
from benchmarks.noir.case import Case, Published

#: (day of the year, carrier, airport, minutes late)
Flight = tuple[int, str, str, int]


def week(flight: Flight) -> int:
    return flight[0] // 7


def is_late(flight: Flight) -> bool:
    return flight[3] > 15


def number_late(flight: Flight) -> int:
    return int(is_late(flight))


def share(pair: tuple[Any, dict[str, int]]) -> tuple[str, float]:
    return pair[0][0], pair[1]["late"] / pair[1]["all"]


def graph() -> drift.Graph:
    written = drift.Graph("flights")
    flights = written.source("flights")
    flights.filter(is_late).key_by(week).at_end(drift.agg.count()).sink("by week")
    both = drift.agg.several(all=drift.agg.count(), late=drift.agg.sum(number_late))
    flights.key_by(lambda flight: flight[1]).at_end(both).map(flat).sink("by carrier")
    weekly = flights.key_by(lambda flight: (flight[2], week(flight))).at_end(both)
    weekly.map(flat).sink("by airport and week")
    means = weekly.map(share).key_by(lambda pair: pair[0]).at_end(drift.agg.mean(lambda pair: pair[1]))
    means.sink("by airport")
    return written


def flat(pair: tuple[Any, dict[str, int]]) -> tuple[Any, int, int]:
    return pair[0], pair[1]["all"], pair[1]["late"]


# The data, and plain Python.


def data(count: int) -> dict[str, list[Any]]:
    draw = random.Random(count)
    flights = [
        (day * 365 // count, f"C{draw.randrange(16)}", f"A{draw.randrange(105)}", int(draw.gauss(5, 30)))
        for day in range(count)
    ]
    return {"flights": flights}


def plain(inputs: dict[str, list[Any]]) -> list[Any]:
    weeks: dict[Any, int] = {}
    groups: dict[Any, list[int]] = {}
    for flight in inputs["flights"]:
        late = number_late(flight)
        if late:
            weeks[week(flight)] = weeks.get(week(flight), 0) + 1
        for key in (flight[1], (flight[2], week(flight))):
            known = groups.setdefault(key, [0, 0])
            known[0] += 1
            known[1] += late
    shares: dict[str, list[float]] = {}
    for key, (flights, late) in groups.items():
        if isinstance(key, tuple):
            shares.setdefault(key[0], []).append(late / flights)
    means = [(airport, sum(each) / len(each)) for airport, each in shares.items()]
    return [*weeks.items(), *[(key, *known) for key, known in groups.items()], *means]


CASES = [
    Case(
        "flights (car accidents)",
        100_000,
        data,
        graph,
        plain,
        Published((220, 159, 790), (8.5, 24.11, 10.69), "4.3 GB"),
    )
]
