"""Measures runs whose states do not fit in memory: `python -m benchmarks.overflow [--keys N] [--memory SIZE]`.

First each key comes once. Then one item in ten is of any of all keys, and the others are of ten thousand keys. The time
is that of the processor, and the memory that of the process without what is mapped from files (Linux).
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Iterator
from pathlib import Path
from random import Random
from typing import Any

import drift

_HOT_KEYS = 10_000
_SEED = 19


def add(state: tuple[int, int], number: int) -> tuple[tuple[int, int], int]:
    """Count and add up."""
    count, total = state
    return (count + 1, total + number), total


def anonymous_mb() -> float:
    """Resident memory that is mapped from no file."""
    fields = dict(line.split(":", 1) for line in Path("/proc/self/status").read_text().splitlines())
    return int(fields["RssAnon"].split()[0]) / 1000


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--keys", type=int, default=2_000_000)
    parser.add_argument("--items", type=int, default=1_000_000, help="of the second part")
    parser.add_argument("--memory", default="100 MB", help="memory_max=; 'all' for no limit")
    arguments = parser.parse_args()
    random = Random(_SEED)
    hot = [random.randrange(arguments.keys) for _ in range(_HOT_KEYS)]
    marks: list[tuple[float, float]] = []
    most_mb = 0.0

    def numbers() -> Iterator[int]:
        nonlocal most_mb
        marks.append((time.process_time(), time.monotonic()))
        for number in range(arguments.keys):
            if not number % 100_000:
                most_mb = max(most_mb, anonymous_mb())
            yield number
        marks.append((time.process_time(), time.monotonic()))
        for nth in range(arguments.items):
            if not nth % 100_000:
                most_mb = max(most_mb, anonymous_mb())
            yield random.randrange(arguments.keys) if nth % 10 == 0 else hot[nth % _HOT_KEYS]
        marks.append((time.process_time(), time.monotonic()))

    graph = drift.Graph("overflow")
    graph.source("numbers").scan(lambda number: number, (0, 0), add, name="totals").sink("out")
    options: dict[str, Any] = {} if arguments.memory == "all" else {"memory_max": arguments.memory}
    report = drift.run(graph, {"numbers": numbers()}, **options).finish()
    parts = (("each key once", arguments.keys), ("one in ten misses", arguments.items))
    for (name, items), before, after in zip(parts, marks, marks[1:]):
        cpu_s, wall_s = (end - begin for begin, end in zip(before, after))
        print(f"{name}: {cpu_s / items * 1e6:.2f} us of a processor an item, {wall_s:.1f} s")
    print(f"at most {most_mb:.0f} MB; digest {report.digest}")


if __name__ == "__main__":
    main()
