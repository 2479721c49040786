"""Throughput in arrival order: the plain loop, drift local, and drift on ZeroMQ with one and two workers.

Ratios compare like with like: the loop consumes one result after the other, and so does "items" (`for item in run`);
"columns" (`run.batches()`) takes the output as it is released. Digest and output barrier are part of both.
"""

from __future__ import annotations

from typing import Any

from rich.table import Table

from benchmarks.rounds import (
    Failed,
    Options,
    Round,
    check_digests,
    interleaved,
    median_of,
    rate,
    steady_rate,
)
from benchmarks.tables import decimals, integer, medians, megabytes, table
from benchmarks.workloads import WORKLOADS, text_used

_RUNS = {
    "local, columns": ("local", 1, "columns"),
    "local, items": ("local", 1, "items"),
    "zeromq 1 worker, columns": ("zeromq", 1, "columns"),
    "zeromq 2 workers, columns": ("zeromq", 2, "columns"),
    "zeromq 2 workers, items": ("zeromq", 2, "items"),
}
_CAPTION = (
    "{medians}, ratios within a round. columns: run.batches(), no item objects; items: for item in "
    "run; the plain loop is a generator whose results are consumed one by one. items/s: plain and local from start to "
    "end; zeromq from the first released batch to the last, and 'wall s' is its whole time with starting and stopping "
    "the processes. CPU time and peak memory are those of all processes of a run; other work on the machine changes "
    "CPU time the least. A process with Python and drift loaded has {bare} MB before it starts."
)


def throughput(options: Options) -> tuple[list[Table], dict[str, Any]]:
    data: dict[str, Any] = {"text": text_used(), "workloads": {}}
    rows: list[tuple[str, ...]] = []
    bare: list[float] = []
    for name in options.workloads:
        rounds = _rounds(name, options)
        bare += [each["plain loop"]["memory_before_bytes"] for each in rounds]
        summary = _summary(rounds)
        data["workloads"][name] = {"summary": summary, "digest": check_digests(rounds, name), "rounds": rounds}
        items = rounds[0]["plain loop"]["items"]
        text = f", {text_used()}" if name == "wordcount" else ""
        rows.append((f"{name}: {WORKLOADS[name].title}{text}, {items:,} {WORKLOADS[name].unit}",))
        rows += [_row(label, numbers) for label, numbers in summary.items()]
    columns = ("", "items/s", "of plain", "of local", "wall s", "cpu s", "peak MB")
    made = table(
        "Throughput, in order", columns, _CAPTION.format(medians=medians(options.rounds), bare=megabytes(min(bare)))
    )
    for row in rows:
        if len(row) == 1:
            made.add_section()
            made.add_row(f"[bold]{row[0]}[/]")
        else:
            made.add_row(*row)
    return [made], data


def _rounds(name: str, options: Options) -> list[Round]:
    specs: dict[str, dict[str, Any]] = {
        "plain loop": {"kind": "plain", "workload": name, "items": options.items},
    }
    for label, (engine, workers, consume) in _RUNS.items():
        specs[label] = {
            "kind": "drift",
            "workload": name,
            "items": options.items,
            "engine": engine,
            "workers": workers,
            "consume": consume,
        }
    rounds = interleaved(specs, options.rounds, name, options.report)
    counts = {label: result["items"] for each in rounds for label, result in each.items()}
    if len(set(counts.values())) != 1:
        raise Failed(f"{name}: not every run gave as many items: {counts}")
    return rounds


def _summary(rounds: list[Round]) -> dict[str, dict[str, float | None]]:
    return {label: _numbers(rounds, label) for label in rounds[0]}


def _numbers(rounds: list[Round], label: str) -> dict[str, float | None]:
    local = "local, items" if label.endswith("items") else "local, columns"

    def ratio(each: Round, other: str) -> float | None:
        numerator, denominator = _speed(each, label), _speed(each, other)
        return None if numerator is None or denominator is None else numerator / denominator

    return {
        "items_per_second": median_of(rounds, lambda each: _speed(each, label)),
        "ratio_to_plain": median_of(rounds, lambda each: ratio(each, "plain loop")),
        "ratio_to_local": median_of(rounds, lambda each: ratio(each, local)) if label.startswith("zeromq") else None,
        "wall_seconds": median_of(rounds, lambda each: each[label]["seconds"]),
        "cpu_seconds": median_of(rounds, lambda each: each[label]["cpu_seconds"]),
        "peak_memory_bytes": median_of(rounds, lambda each: each[label]["peak_memory_bytes"]),
    }


def _speed(each: Round, label: str) -> float | None:
    return steady_rate(each[label]) if label.startswith("zeromq") else rate(each[label])


def _row(label: str, numbers: dict[str, float | None]) -> tuple[str, ...]:
    return (
        f"  {label}",
        integer(numbers["items_per_second"]),
        decimals(numbers["ratio_to_plain"]),
        decimals(numbers["ratio_to_local"]),
        decimals(numbers["wall_seconds"]),
        decimals(numbers["cpu_seconds"]),
        megabytes(numbers["peak_memory_bytes"]),
    )
