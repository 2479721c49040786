"""How far the approximate aggregates are off, for a million values: a table of Markdown.

    python -m benchmarks.sketches [--items 1000000]

The values are drawn, or made to be hard: sorted, of many magnitudes, with half of them equal. What is shown does not
depend on their order or on how they are cut, which `tests/flow/test_sketches.py` holds as a law.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from typing import Any

import click

import drift

SHARES = (0.01, 0.5, 0.99, 0.9999)


def _spread(drawn: random.Random, count: int) -> list[float]:
    return [drawn.choice((-1, 1)) * 10 ** drawn.uniform(-9, 9) for _ in range(count)]


NUMBERS: dict[str, Callable[[random.Random, int], list[float]]] = {
    "uniform": lambda drawn, count: [drawn.random() for _ in range(count)],
    "normal, around 0": lambda drawn, count: [drawn.gauss() for _ in range(count)],
    "Pareto, a long tail": lambda drawn, count: [drawn.paretovariate(1.1) for _ in range(count)],
    "whole numbers, sorted down": lambda drawn, count: [float(number) for number in range(count, 0, -1)],
    "of 18 magnitudes, both signs": _spread,
    "half of them 0": lambda drawn, count: [drawn.choice((0.0, drawn.expovariate(1))) for _ in range(count)],
}


def added(aggregate: Any, values: Sequence[Any]) -> Any:
    accumulator = aggregate.begin(values[0])
    for value in values[1:]:
        accumulator = aggregate.add(accumulator, value)
    return accumulator


def off(value: float, true: float) -> str:
    return "0" if value == true else f"{abs(value - true) / abs(true):.2%}" if true else "inf"


def table(items: int) -> str:
    """The table for so many values."""
    lines = [["values", *(f"quantile {share}" for share in SHARES)], ["---"] * (len(SHARES) + 1)]
    for name, make in NUMBERS.items():
        values = make(random.Random(1), items)
        ordered = sorted(values)
        true = [ordered[int(share * (items - 1))] for share in SHARES]
        every = [drift.agg.approximate_quantile(share) for share in SHARES]
        accumulator = added(every[0], values)  # which is the same for all shares
        lines.append([name, *(off(each.result(accumulator), at) for each, at in zip(every, true))])
    lines += [[], ["distinct values", "whole numbers", "texts", "floats"], ["---"] * 4]
    for distinct in (items // 1000, items // 100, items // 10, items):
        kinds: list[Callable[[int], object]] = [int, str, lambda number: number / 7]
        counted = [[kind(at % distinct) for at in range(items)] for kind in kinds]
        count = drift.agg.approximate_distinct_count()
        errors = [off(count.result(added(count, values)), distinct) for values in counted]
        lines.append([f"{distinct:,}", *errors])
    return "\n".join(f"| {' | '.join(line)} |" if line else "" for line in lines)


@click.command()
@click.option("--items", default=1_000_000, show_default=True)
def main(items: int) -> None:
    click.echo(table(items))


if __name__ == "__main__":
    main()
