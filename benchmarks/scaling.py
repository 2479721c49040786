"""Time per item and peak memory by length of the input: neither may grow with it.

The input is a generator, so all memory is the run's: bounded by keys and by items that are not settled.
"""

from __future__ import annotations

from typing import Any

from rich.table import Table

from benchmarks.rounds import Options, Round, check_digests, interleaved, median_of
from benchmarks.tables import decimals, integer, medians, megabytes, table

_ENGINES = {"local": ("local", 1), "zeromq 2 workers": ("zeromq", 2)}
_CAPTION = (
    "Keyed running sum, output by run.batches(), input from a generator. Local: the whole run; zeromq: from the first "
    "released batch to the last, and with starting and stopping the processes under 'wall'. {medians}."
)


def scaling(options: Options) -> tuple[list[Table], dict[str, Any]]:
    columns = ("", "items", "ns/item", "wall ns/item", "peak MB")
    made = table("Scaling", columns, _CAPTION.format(medians=medians(options.rounds)))
    data: dict[str, Any] = {}
    for items in options.scaling_items:
        rounds = interleaved(_specs(items), options.rounds, f"{items:,} items", options.report)
        check_digests(rounds, f"sum of {items:,} items")
        data[str(items)] = {"rounds": rounds}
        for label in _ENGINES:
            data[str(items)][label] = _numbers(rounds, label)
    for label in _ENGINES:
        made.add_section()
        for items in options.scaling_items:
            ns, wall, peak = data[str(items)][label].values()
            made.add_row(label, integer(items), decimals(ns, 0), decimals(wall, 0), megabytes(peak))
    return [made], data


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
