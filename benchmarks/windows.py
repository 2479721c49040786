"""Windows beside a plain loop with a dict of open windows: a count by event time, and sums of windows by number.

Invariant: a plain loop gives the windows that the graph gives (a test compares them); within one end they may come in
another order.

    python -m benchmarks --only windows
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Iterator
from operator import itemgetter
from typing import Any, NamedTuple

from rich.table import Table

import drift
from benchmarks.meters import own_peak_bytes, peak_memory_bytes
from benchmarks.rounds import Options, interleaved, median, rate
from benchmarks.tables import decimals, integer, medians, megabytes, table
from benchmarks.workloads import KEYS, POSITIONS_LATE_MAX

_EVENTS_A_MS = 10
_SIZE_MS = 1000
_LATENESS_MS = POSITIONS_LATE_MAX // _EVENTS_A_MS + 1
_NUMBER, _EVERY = 10, 5

Event = tuple[int, str, int]
Result = tuple[str, int, int, int]

time_of, key_of, number_of = itemgetter(0), itemgetter(1), itemgetter(2)


def events(count: int) -> list[Event]:
    """(milliseconds, key, number), each up to so many places late."""
    draw = random.Random(count)
    every = [(number // _EVENTS_A_MS, f"key {draw.randrange(KEYS)}", number) for number in range(count)]
    arrival = [number + draw.random() * POSITIONS_LATE_MAX for number in range(count)]
    return [every[number] for number in sorted(range(count), key=arrival.__getitem__)]


def by_event_time(stream: drift.Stream[Any]) -> drift.Stream[Any]:
    return stream.key_by(key_of).window(drift.windows.tumbling(_SIZE_MS)).count()


def plain_by_event_time(arriving: list[Event]) -> Iterator[Result]:
    counts: dict[tuple[int, str], int] = {}
    latest = closed = 0
    for event in arriving:
        now = time_of(event)
        window = now - now % _SIZE_MS, key_of(event)
        counts[window] = counts.get(window, 0) + 1
        if now > latest:
            latest = now
            upto = (now - _LATENESS_MS) // _SIZE_MS * _SIZE_MS
            if upto > closed:
                closed = upto
                for start, key in sorted(each for each in counts if each[0] < upto):
                    yield key, start, start + _SIZE_MS, counts.pop((start, key))
    for start, key in sorted(counts):
        yield key, start, start + _SIZE_MS, counts[start, key]


def by_number(stream: drift.Stream[Any]) -> drift.Stream[Any]:
    return stream.key_by(key_of).window(drift.windows.count(_NUMBER, _EVERY)).sum(number_of)


def plain_by_number(arriving: list[Event]) -> Iterator[Result]:
    windows: dict[str, tuple[int, list[int]]] = {}
    for event in arriving:
        key = key_of(event)
        count, last = windows.get(key, (0, []))
        last.append(number_of(event))
        count += 1
        if len(last) == _NUMBER:
            yield key, count - _NUMBER, count, sum(last)
            del last[:_EVERY]
        windows[key] = count, last


class Case(NamedTuple):
    """Windows as a graph and as a plain loop."""

    steps: Callable[[drift.Stream[Any]], drift.Stream[Any]]
    plain: Callable[[list[Event]], Iterator[Result]]
    policy: drift.ArrivalTime | drift.EventTime

    def graph(self) -> drift.Graph:
        graph = drift.Graph("windows")
        self.steps(graph.source("in", time=self.policy)).sink("out")
        return graph


CASES = {
    "count a second, event time, out of order": Case(
        by_event_time, plain_by_event_time, drift.EventTime(time_of, tie=number_of, lateness=_LATENESS_MS)
    ),
    f"sum of {_NUMBER} items, every {_EVERY}": Case(by_number, plain_by_number, drift.ArrivalTime()),
}


def measured(spec: dict[str, Any]) -> dict[str, Any]:
    """One measurement, in a process of its own."""
    case, arriving = CASES[spec["case"]], events(spec["items"])
    drift.run(case.graph(), {"in": []}).finish()
    before = peak_memory_bytes()
    started = time.perf_counter()
    if spec["plain"]:
        windows = sum(1 for _ in case.plain(arriving))
        peak = peak_memory_bytes()
    else:
        run = drift.run(case.graph(), {"in": arriving})
        windows = sum(len(batch.metas) for batch in run.batches())
        peak = run.report.peak_memory_bytes - own_peak_bytes() + peak_memory_bytes()
    seconds = time.perf_counter() - started
    return {"items": spec["items"], "windows": windows, "seconds": seconds, "memory_bytes": peak - before}


def windows(options: Options) -> tuple[list[Table], dict[str, Any]]:
    columns = ("", "windows", "plain loop, items/s", "local, items/s", "of plain", "MB more")
    caption = (
        f"{options.items:,} items of {KEYS:,} keys, {_EVENTS_A_MS} a millisecond, each up to {POSITIONS_LATE_MAX} "
        f"places late. {medians(options.rounds)}."
    )
    made, data = table("Windows", columns, caption), {}
    for name in CASES:
        specs = {
            which: {"kind": "windows", "case": name, "items": options.items, "plain": which == "plain loop"}
            for which in ("plain loop", "local")
        }
        rounds = interleaved(specs, options.rounds, name, options.report)
        ratio = median(rate(each["local"]) / rate(each["plain loop"]) for each in rounds)
        made.add_row(
            name,
            integer(rounds[0]["local"]["windows"]),
            integer(median(rate(each["plain loop"]) for each in rounds)),
            integer(median(rate(each["local"]) for each in rounds)),
            decimals(ratio),
            megabytes(median(each["local"]["memory_bytes"] for each in rounds)),
        )
        data[name] = {"ratio": ratio, "rounds": rounds}
    return [made], data
