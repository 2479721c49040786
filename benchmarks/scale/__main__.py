"""Measures, plans from it and prints it as Markdown: the middle of docs/scale.md.

    python -m benchmarks.scale [--items N] [--rows N] [--into docs/scale.md]

The first line of what is printed has the measured numbers; everything else follows from them, without a clock.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from dataclasses import asdict, fields
from pathlib import Path

import drift
from benchmarks.scale import measured
from benchmarks.scale.measured import Measured
from benchmarks.scale.queues import LAYOUTS, Case, Planned, alone, simulated
from benchmarks.scale.shuffles import cost

BEGIN, END = "<!-- measured: ", "<!-- end of what was measured -->\n"
CASES = [Case(workers, levels, step) for step in (0.0, 100e-6) for workers in (10, 100, 1000) for levels in (1, 4)]
_UNITS = {"message": "µs", "item": "µs", "ack": "µs", "frame": "µs", "row": "µs", "byte": "ns", "bytes": "bytes"}
_SCALES = {"µs": 1e6, "ns": 1e9, "bytes": 1.0}


def planned(costs: Measured, batches: int) -> str:
    """The tables that follow from measured numbers, behind these."""
    lines = [BEGIN + json.dumps(asdict(costs)) + " -->", *_costs(costs), *_alone(costs)]
    found = {case: [simulated(costs, case, layout, batches) for layout in LAYOUTS] for case in CASES}
    return "\n".join([*lines, *_queues(found), *_busy(found), *_spark(costs), END])


def _table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    return [f"| {' | '.join(row)} |" for row in (head, ["---", *["---:"] * (len(head) - 1)], *rows)] + [""]


def _costs(costs: Measured) -> list[str]:
    rows = []
    for field in fields(costs):
        unit = _UNITS[field.name.rpartition("_")[2]]
        rows.append([f"`{field.name}`", f"{getattr(costs, field.name) * _SCALES[unit]:.3g} {unit}"])
    return _table(["measured", "each"], rows)


def _alone(costs: Measured) -> list[str]:
    return _table(["what one process bears", "a second"], [[name, f"{each:,.0f}"] for name, each in alone(costs)])


def _named(case: Case) -> list[str]:
    return [f"{case.workers:,} workers, {case.levels} levels, steps of {case.step * 1e6:.0f} µs"]


def _queues(found: dict[Case, list[Planned]]) -> list[str]:
    head = ["1,000 items a second, and what is busiest", *(layout.name for layout in LAYOUTS)]
    rows = [
        _named(case) + [f"{each.items_per_s / 1000:,.0f} {each.bound}" for each in plans]
        for case, plans in found.items()
    ]
    return _table(head, rows)


def _busy(found: dict[Case, list[Planned]]) -> list[str]:
    head = ["busy, where each is a process", "feed", "acker", "barrier", "workers"]
    return _table(
        head, [_named(case) + [f"{plans[1].busy[name]:.0%}" for name in head[1:]] for case, plans in found.items()]
    )


def _spark(costs: Measured) -> list[str]:
    head = ["Spark", "machines", "hours", "core-hours of rows", "shuffled, TB", "hashes on the driver, GB", "longest"]
    rows = []
    for power, machines in ((9, 4), (10, 4), (11, 40), (12, 40), (12, 400)):
        for levels in (1, 4):
            each = cost(costs, 10.0**power, levels, machines)
            numbers = f"{each.hours:,.2f}", f"{each.core_hours:,.0f}", f"{each.shuffled / 1e12:,.2f}"
            name = f"10^{power} rows, {levels} levels"
            rows.append([name, str(machines), *numbers, f"{each.driver / 1e9:,.2f}", each.bound])
    return _table(head, rows)


def arguments() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.scale", description="Measure parts, and plan from them."
    )
    parser.add_argument("--items", type=int, default=400_000, help="items of a run of nodes (400,000)")
    parser.add_argument("--rows", type=int, default=1_000_000, help="rows of the longest run on Spark (1,000,000)")
    parser.add_argument("--batches", type=int, default=80, help="batches of a simulated run (80)")
    parser.add_argument("--into", type=Path, help="the document whose middle is replaced")
    return parser


def replaced(document: str, text: str) -> str:
    """A document with another middle."""
    before, _, rest = document.partition(BEGIN)
    return before + text + rest.partition(END)[2]


def main(argv: Sequence[str] | None = None) -> int:
    given = arguments().parse_args(argv)
    found = measured.nodes_measured(given.items) | measured.frames_measured(max(given.items // 40, 100))
    found |= measured.caller_measured(given.items)
    with drift.spark.session("local[2]") as spark:
        found |= measured.spark_measured(spark, given.rows)
    text = planned(Measured(**found), given.batches)
    print(text, end="")
    if given.into is not None:
        given.into.write_text(replaced(given.into.read_text(), text))
    return 0


if __name__ == "__main__":
    sys.exit(main())
