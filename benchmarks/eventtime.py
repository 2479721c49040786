"""Event time: a count for each key and second of (time, key, value), beside the plain loop over the items in order.

Invariant: all runs with one kind of key have one digest, in whatever order their items came; else the command fails.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Iterable, Iterator
from operator import truediv
from typing import Any

from rich.table import Table

import drift
from benchmarks.meters import cpu_seconds
from benchmarks.rounds import Options, Round, check_digests, interleaved, median
from benchmarks.tables import decimals, medians, table
from benchmarks.workloads import POSITIONS_LATE_MAX

Event = tuple[int, str, int]

ITEMS_PER_MS = 10
_LATENESS_MS = 2 * POSITIONS_LATE_MAX // ITEMS_PER_MS
_EVENT_KEYS = 100
_CAPTION = (
    f"(time in ms, key, value), {ITEMS_PER_MS} a millisecond, in order or each up to {POSITIONS_LATE_MAX} places late, "
    f"lateness {_LATENESS_MS} ms; a scan counts for each key and second, which is a tuple or text. The loop calls "
    "the same two functions over the items in order. us an item and 'of plain' by CPU time, on local; ratios within a "
    "round. {medians}."
)


def eventtime(options: Options) -> tuple[list[Table], dict[str, Any]]:
    headings = ("", "us/item", "of plain", "over text keys")
    made = table("Event time", headings, _CAPTION.format(medians=medians(options.rounds)))
    data: dict[str, Any] = {}
    specs = {
        f"{key}, {kind}": {"kind": "event time", "key": key, "items": options.items, "run": kind}
        for key in KEYS
        for kind in ("plain loop", "in order", "out of order")
    }
    rounds = interleaved(specs, options.rounds, "event time", options.report)
    for key in KEYS:
        data[key] = {"digest": check_digests([_of_key(each, key) for each in rounds], f"event time, {key}")}
    for name, spec in specs.items():
        key, kind = spec["key"], spec["run"]
        own, plain, text = (
            _seconds(rounds, name),
            _seconds(rounds, f"{key}, plain loop"),
            _seconds(rounds, f"text, {kind}"),
        )
        numbers = {
            "us_per_item": 1e6 * median(own) / options.items,
            "ratio_to_plain": median(map(truediv, plain, own)),
            "ratio_to_text": median(map(truediv, own, text)),
        }
        data[key][str(kind)] = numbers
        made.add_row(name, *map(decimals, numbers.values()))
    return [made], {**data, "rounds": rounds}


def _of_key(each: Round, key: str) -> Round:
    return {name: result for name, result in each.items() if name.startswith(f"{key},")}


def _seconds(rounds: list[Round], name: str) -> list[float]:
    return [float(each[name]["cpu_seconds"]) for each in rounds]


# The functions of a user, and the input.


def time_of_event(event: Event) -> int:
    return event[0]


def key_and_second(event: Event) -> tuple[str, int]:
    return event[1], event[0] // 1000


def key_and_second_as_text(event: Event) -> str:
    return f"{event[1]} {event[0] // 1000}"


def count_event(count: int, event: Event) -> tuple[int, tuple[str, int]]:
    return count + 1, (event[1], count + 1)


KEYS: dict[str, Callable[[Event], Any]] = {"tuple": key_and_second, "text": key_and_second_as_text}


def in_order(items: int) -> list[Event]:
    """By time; in event time those of one time go by their hash, which no count needs to know."""
    draw = random.Random(items)
    return [(index // ITEMS_PER_MS, f"key {draw.randrange(_EVENT_KEYS)}", index) for index in range(items)]


def out_of_order(items: int) -> list[Event]:
    """The same, each up to `POSITIONS_LATE_MAX` places later."""
    draw = random.Random(items + 1)
    arrival = [index + draw.randint(0, POSITIONS_LATE_MAX) for index in range(items)]
    ordered = in_order(items)
    return [ordered[index] for index in sorted(range(items), key=arrival.__getitem__)]


def plain_counts(events: Iterable[Event], key_of: Callable[[Event], Any]) -> Iterator[tuple[str, int]]:
    counts: dict[Any, int] = {}
    for event in events:
        key = key_of(event)
        counts[key], output = count_event(counts.get(key, 0), event)
        yield output


def graph_of(key: str) -> drift.Graph:
    graph = drift.Graph("events")
    policy = drift.EventTime(time_of_event, lateness=_LATENESS_MS)
    graph.source("in", time=policy).scan(KEYS[key], 0, count_event).sink("out")
    return graph


def run_in_event_time(spec: dict[str, Any]) -> dict[str, Any]:
    """One measurement, in its process."""
    events = out_of_order(spec["items"]) if spec["run"] == "out of order" else in_order(spec["items"])
    drift.run(graph_of(spec["key"]), {"in": []}).finish()
    cpu, started = cpu_seconds(), time.perf_counter()
    if spec["run"] == "plain loop":
        for _ in plain_counts(events, KEYS[spec["key"]]):
            pass
        return {"items": len(events), "cpu_seconds": cpu_seconds() - cpu, "seconds": time.perf_counter() - started}
    run = drift.run(graph_of(spec["key"]), {"in": events})
    run.finish()
    return {
        "items": run.report.items_out,
        "cpu_seconds": cpu_seconds() - cpu,
        "seconds": time.perf_counter() - started,
        "digest": run.report.digest,
        "tombstones": run.report.tombstones,
    }
