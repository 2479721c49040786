"""Latency of live items: from when a line is due at its sender to when the caller has its output."""

from __future__ import annotations

from typing import Any

from rich.table import Table

from benchmarks.rounds import Options, interleaved, median
from benchmarks.tables import decimals, integer, medians, table
from benchmarks.workloads import KEYS

_ENGINES = {"local": ("local", 1), "zeromq 2 workers": ("zeromq", 2)}
_NUMBERS = ("p50_ms", "p95_ms", "p99_ms", "max_ms")


def latency(options: Options) -> tuple[list[Table], dict[str, Any]]:
    specs: dict[str, dict[str, Any]] = {
        label: {
            "kind": "latency",
            "engine": engine,
            "workers": workers,
            "items": options.latency_items,
            "items_per_second": options.latency_rate,
        }
        for label, (engine, workers) in _ENGINES.items()
    }
    rounds = interleaved(specs, options.rounds, "latency", options.report)
    caption = (
        f"Running count of each of {KEYS:,} keys over lines that another process sends over TCP, in arrival time. From "
        f"when the line is due there to when run.batches() yields its output; the first second is left out. "
        f"{medians(options.rounds)}, but 'worst' is the greatest of all."
    )
    title = f"Latency at {options.latency_rate:,} items/s"
    made = table(title, ("", "items counted", "p50 ms", "p95 ms", "p99 ms", "max ms", "worst ms"), caption)
    data: dict[str, Any] = {"rounds": rounds, "summary": {}}
    for label in _ENGINES:
        numbers = {name: median(each[label][name] for each in rounds) for name in _NUMBERS}
        numbers["worst_ms"] = max(each[label]["max_ms"] for each in rounds)
        data["summary"][label] = numbers
        counted = sum(each[label]["counted"] for each in rounds)
        made.add_row(label, integer(counted), *[decimals(value) for value in numbers.values()])
    return [made], data
