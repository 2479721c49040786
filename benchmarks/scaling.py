"""Time per item and peak memory by length of the input: neither may grow with it.

The input is a generator, so all memory is the run's: bounded by keys and by items that are not settled.
"""

from __future__ import annotations

from typing import Any

from rich.table import Table

from benchmarks.rounds import Options, Round, Target, check_digests, interleaved, median_of
from benchmarks.tables import decimals, integer, medians, megabytes, table

_ENGINES = {"local": ("local", 1), "zeromq 2 workers": ("zeromq", 2)}
#: Times an item may cost as much in the longest input as in the shortest.
_GROWTH_MAX = 1.25
_MEMORY_GROWTH_MAX = 1.1
_CAPTION = (
    "Keyed running sum, output by run.batches(), input from a generator. Local: the whole run; zeromq: from the first "
    "released batch to the last, and with starting and stopping the processes under 'wall'. {medians}."
)


def scaling(options: Options) -> tuple[list[Table], list[Target], dict[str, Any]]:
    columns = ("", "items", "ns/item", "wall ns/item", "peak MB")
    made = table("Scaling", columns, _CAPTION.format(medians=medians(options.rounds)))
    data: dict[str, Any] = {}
    by_engine: dict[str, list[tuple[int, float | None, float | None]]] = {label: [] for label in _ENGINES}
    for items in options.scaling_items:
        rounds = interleaved(_specs(items), options.rounds, f"{items:,} items", options.report)
        check_digests(rounds, f"sum of {items:,} items")
        data[str(items)] = {"rounds": rounds}
        for label in _ENGINES:
            numbers = _numbers(rounds, label)
            data[str(items)][label] = numbers
            by_engine[label].append((items, numbers["ns_per_item"], numbers["peak_memory_bytes"]))
    for label, points in by_engine.items():
        made.add_section()
        for items, ns, peak in points:
            wall = data[str(items)][label]["wall_ns_per_item"]
            made.add_row(label, integer(items), decimals(ns, 0), decimals(wall, 0), megabytes(peak))
    return [made], _targets(by_engine), data


def _specs(items: int) -> dict[str, dict[str, Any]]:
    return {
        label: {
            "kind": "drift",
            "workload": "sum",
            "items": items,
            "engine": engine,
            "workers": workers,
            "consume": "columns",
            "generator": True,
        }
        for label, (engine, workers) in _ENGINES.items()
    }


def _numbers(rounds: list[Round], label: str) -> dict[str, float | None]:
    def ns_per_item(each: Round) -> float | None:
        result = each[label]
        if not label.startswith("zeromq"):
            return float(1e9 * result["seconds"] / result["items"])
        return float(1e9 * result["steady_seconds"] / result["steady_items"]) if result["steady_items"] else None

    return {
        "ns_per_item": median_of(rounds, ns_per_item),
        "wall_ns_per_item": median_of(rounds, lambda each: 1e9 * each[label]["seconds"] / each[label]["items"]),
        "peak_memory_bytes": median_of(rounds, lambda each: each[label]["peak_memory_bytes"]),
    }


def _targets(by_engine: dict[str, list[tuple[int, float | None, float | None]]]) -> list[Target]:
    targets: list[Target] = []
    for label, points in by_engine.items():
        known = [(items, ns) for items, ns, _ in points if ns is not None]
        if len(known) > 1:
            (fewest, first), (most, last) = known[0], known[-1]
            text = f"flat: {label}, time per item at {most:,} over that at {fewest:,}"
            targets.append(Target(text, last / first, _GROWTH_MAX, at_least=False))
        large = [(items, peak) for items, _, peak in points if items >= 1_000_000 and peak is not None]
        if len(large) > 1 and label == "local":
            (fewest, first), (most, last) = large[0], large[-1]
            text = f"bounded: {label}, peak memory at {most:,} items over that at {fewest:,}"
            targets.append(Target(text, last / first, _MEMORY_GROWTH_MAX, at_least=False))
    return targets
