"""An interval join of two streams, beside a plain loop with a deque for each key and side.

Invariant: the plain loop gives as many pairs, of the same items; a run in event time and one whose items come out of
order have one digest.

    python -m benchmarks --only joins
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Iterator
from typing import Any

from rich.table import Table

import drift
from benchmarks.meters import cpu_seconds, peak_memory_bytes
from benchmarks.rounds import Failed, Options, Round, interleaved, median_of, rate
from benchmarks.tables import decimals, integer, medians, megabytes, table
from benchmarks.workloads import KEYS, LATENESS, moved

#: A left item at t meets right ones in [t - 1000, t + 1000]; each side has one item of a key in 1,000.
WITHIN = (1000, 1000)

Row = tuple[int, int]

_RUNS: dict[str, dict[str, Any]] = {
    "plain loop": {"kind": "join plain"},
    "local, arrival time": {"kind": "join", "engine": "local", "event_time": False, "moved": 0.0},
    "local, event time": {"kind": "join", "engine": "local", "event_time": True, "moved": 0.0},
    "local, 10 % out of order": {"kind": "join", "engine": "local", "event_time": True, "moved": 0.1},
}
_CAPTION = (
    f"Two streams of so many items each, {KEYS:,} keys, within={WITHIN}: as many pairs as items of both. The plain "
    "loop takes both sides in order of time, and consumes one pair after the other; local by run.batches(). {medians}, "
    "ratios within a round."
)


def joins(options: Options) -> tuple[list[Table], dict[str, Any]]:
    items = max(1, options.items // 2)
    rounds = interleaved({name: {**spec, "items": items} for name, spec in _RUNS.items()}, options.rounds, "joins",
                         options.report)  # fmt: skip
    _check(rounds)
    columns = ("interval join", "items/s", "of plain", "s", "peak MB")
    made = table(f"Joins: {items:,} and {items:,} items", columns, _CAPTION.format(medians=medians(options.rounds)))
    ratios: dict[str, float] = {}
    for name in _RUNS:
        ratio = median_of(rounds, lambda each, name=name: rate(each[name]) / rate(each["plain loop"]))  # type: ignore[misc]
        assert ratio is not None
        ratios[name] = ratio
        made.add_row(
            name,
            integer(median_of(rounds, lambda each, name=name: rate(each[name]))),  # type: ignore[misc]
            decimals(ratio),
            decimals(median_of(rounds, lambda each, name=name: each[name]["seconds"])),  # type: ignore[misc]
            megabytes(median_of(rounds, lambda each, name=name: each[name]["peak_memory_bytes"])),  # type: ignore[misc]
        )
    return [made], {"ratios": ratios, "rounds": rounds}


def _check(rounds: list[Round]) -> None:
    for each in rounds:
        pairs = {name: result["pairs"] for name, result in each.items()}
        digests = {result["digest"] for name, result in each.items() if "local, event" in name or "out of" in name}
        if len(set(pairs.values())) != 1 or len(digests) != 1:
            raise Failed(f"joins: the runs gave different pairs: {pairs}, digests {digests}")


# In the process of a measurement.


def time_of(row: Row) -> int:
    return row[0]


def key_of(row: Row) -> int:
    return row[1]


def sides(items: int) -> tuple[list[Row], list[Row]]:
    """(time, key) of both sides, in order."""
    return [(number, number * 7919 % KEYS) for number in range(items)], [
        (number, number * 6007 % KEYS) for number in range(items)
    ]


def pairs(left: list[Row], right: list[Row]) -> Iterator[tuple[Row, Row]]:
    """The join as one would write it without drift."""
    before, after = WITHIN
    lefts: dict[int, deque[tuple[int, Row]]] = {}
    rights: dict[int, deque[tuple[int, Row]]] = {}
    at_left = at_right = 0
    while at_left < len(left) or at_right < len(right):
        is_left = at_right == len(right) or (at_left < len(left) and time_of(left[at_left]) <= time_of(right[at_right]))
        row = left[at_left] if is_left else right[at_right]
        key, now = key_of(row), time_of(row)
        if key not in lefts:
            lefts[key], rights[key] = deque(), deque()
        of_left, of_right = lefts[key], rights[key]
        while of_left and of_left[0][0] < now - after:
            of_left.popleft()
        while of_right and of_right[0][0] < now - before:
            of_right.popleft()
        if is_left:
            at_left += 1
            of_left.append((now, row))
            for _, other in of_right:
                yield row, other
        else:
            at_right += 1
            of_right.append((now, row))
            for _, other in of_left:
                yield other, row


def join_graph(*, event_time: bool) -> drift.Graph:
    graph = drift.Graph("join")
    policy = drift.EventTime(time=time_of, lateness=LATENESS) if event_time else None
    left, right = graph.source("left", time=policy), graph.source("right", time=policy)
    left.join(right, key_of, within=WITHIN).sink("pairs")
    return graph


def plain_join(spec: dict[str, Any]) -> dict[str, Any]:
    left, right = sides(spec["items"])
    cpu, started = cpu_seconds(), time.perf_counter()
    count = sum(1 for _ in pairs(left, right))
    seconds = time.perf_counter() - started
    return {
        "items": 2 * spec["items"],
        "pairs": count,
        "seconds": seconds,
        "cpu_seconds": cpu_seconds() - cpu,
        "peak_memory_bytes": peak_memory_bytes(),
    }


def join(spec: dict[str, Any]) -> dict[str, Any]:
    left, right = (moved(side, spec["moved"]) for side in sides(spec["items"]))
    graph = join_graph(event_time=spec["event_time"])
    drift.run(graph, {"left": [], "right": []}, engine=spec["engine"]).finish()
    cpu, started = cpu_seconds(), time.perf_counter()
    run = drift.run(graph, {"left": left, "right": right}, engine=spec["engine"])
    count = sum(len(batch.metas) for batch in run.batches())
    seconds = time.perf_counter() - started
    return {
        "items": 2 * spec["items"],
        "pairs": count,
        "seconds": seconds,
        "cpu_seconds": cpu_seconds() - cpu,
        "digest": run.digest,
        "tombstones": run.report.tombstones,
        "peak_memory_bytes": peak_memory_bytes(),
    }
