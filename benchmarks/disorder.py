"""Event time, in order and out of it: what late corrections cost, on the same engine and the same input.

Invariant: every run of a workload, in whatever order its input came, has the same digest; else the command fails.
"""

from __future__ import annotations

from typing import Any

from rich.table import Table

from benchmarks.rounds import Options, Round, check_digests, interleaved, median_of, rate, steady_rate
from benchmarks.tables import decimals, integer, medians, table
from benchmarks.workloads import LATENESS, POSITIONS_LATE_MAX, WORKLOADS

_ENGINES: dict[str, dict[str, Any]] = {
    "local": {"engine": "local", "workers": 1},
    "local, small batches": {"engine": "local", "workers": 1, "batch_items": 100},
    "zeromq 2 workers": {"engine": "zeromq", "workers": 2},
}
_CAPTION = (
    f"A share of the inputs comes up to {POSITIONS_LATE_MAX} places later, lateness {LATENESS}; payloads are (index, "
    "payload), and a map takes the index off; the numbers are shuffled, so that neighbours may have one key. A batch "
    "is sorted before it is processed (local 4,096 inputs, zeromq 1,024, small batches 100, as a live source gives "
    "them): only moves from one into another cost tombstones. Output by run.batches(). items/s: local from start to "
    "end, zeromq from the first released batch to the last. 'of in order' is within a round, of the same engine in "
    "event time in order; 'of plain', for reference, of the plain loop without indices. Tombstones are those sent "
    "before release, for each input (wordcount: line, with {words} words). {medians}."
)


def disorder(options: Options) -> tuple[list[Table], dict[str, Any]]:
    data: dict[str, Any] = {}
    repeats = max(1, options.rounds - 1)
    columns = ("", "out of order", "items/s", "of in order", "of plain", "tombstones/input")
    rows: list[tuple[str, ...]] = []
    words = "several"
    for name in options.workloads:
        rounds = interleaved(_specs(name, options), repeats, f"{name} in event time", options.report)
        summary = _summary(rounds, options)
        data[name] = {"summary": summary, "digest": check_digests(rounds, f"{name} in event time"), "rounds": rounds}
        plain = rounds[0]["plain loop"]
        if name == "wordcount":
            words = f"{plain['items'] / plain['inputs']:.1f}"
        rows.append((f"{name}: {plain['items']:,} {WORKLOADS[name].unit}",))
        for label, numbers in summary.items():
            engine, share = label.rsplit(" ", 1)
            rows.append(
                (
                    f"  {engine}",
                    share,
                    integer(numbers["items_per_second"]),
                    decimals(numbers["ratio_to_in_order"]),
                    decimals(numbers["ratio_to_plain"]),
                    decimals(numbers["tombstones_per_input"]),
                )
            )
    made = table(
        "Throughput, out of order (event time)", columns, _CAPTION.format(words=words, medians=medians(repeats))
    )
    for row in rows:
        if len(row) == 1:
            made.add_section()
        made.add_row(f"[bold]{row[0]}[/]" if len(row) == 1 else row[0], *row[1:])
    return [made], data


def _specs(name: str, options: Options) -> dict[str, dict[str, Any]]:
    specs: dict[str, dict[str, Any]] = {
        "plain loop": {"kind": "plain", "workload": name, "items": options.disorder_items, "mixed": True}
    }
    for label, settings in _ENGINES.items():
        for share in options.disorder:
            specs[f"{label} {share:.0%}"] = {
                "kind": "drift",
                "workload": name,
                "items": options.disorder_items,
                "consume": "columns",
                **settings,
                "moved": share,
            }
    return specs


def _summary(rounds: list[Round], options: Options) -> dict[str, dict[str, float | None]]:
    return {
        f"{engine} {share:.0%}": _numbers(rounds, engine, share) for engine in _ENGINES for share in options.disorder
    }


def _numbers(rounds: list[Round], engine: str, share: float) -> dict[str, float | None]:
    label, ordered = f"{engine} {share:.0%}", f"{engine} 0%"

    def ratio(each: Round, other: str) -> float | None:
        numerator, denominator = _speed(each, label), _speed(each, other)
        return None if numerator is None or denominator is None else numerator / denominator

    return {
        "items_per_second": median_of(rounds, lambda each: _speed(each, label)),
        "ratio_to_in_order": median_of(rounds, lambda each: ratio(each, ordered)),
        "ratio_to_plain": median_of(rounds, lambda each: ratio(each, "plain loop")),
        "tombstones_per_input": median_of(rounds, lambda each: each[label]["tombstones"] / each[label]["inputs"]),
    }


def _speed(each: Round, label: str) -> float | None:
    return steady_rate(each[label]) if label.startswith("zeromq") else rate(each[label])
