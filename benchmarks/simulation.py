"""Simulated runs a minute of a core, by CPU time: input drawn, run under a schedule, compared with the reference."""

from __future__ import annotations

import time
from typing import Any

from hypothesis import strategies as st
from rich.table import Table

import drift
import drift.testing
from benchmarks.rounds import Options, Target, median
from benchmarks.tables import integer, table

#: What the harness promises for a graph of five steps and 30 items.
RUNS_A_MINUTE = 3000
_ITEMS = 30


def five_steps() -> drift.Graph:
    graph = drift.Graph("five steps")
    words = graph.source("lines").flat_map(str.split).filter(str.isalpha).map(str.lower)
    words.count(key=str).group(_first_letter, 2).sink("pairs")
    return graph


def _first_letter(pair: tuple[str, int]) -> str:
    return pair[0][:1]


def simulation(options: Options) -> tuple[list[Table], list[Target], dict[str, Any]]:
    runs = max(options.items // 2000, 20)
    lines = st.lists(st.text("abcdef gh", max_size=8), min_size=_ITEMS, max_size=_ITEMS)
    rates: list[float] = []
    for number in range(options.rounds):
        options.report(f"simulation, round {number + 1} of {options.rounds}")
        rates.append(_rate(drift.testing.Seeds(five_steps(), {"lines": lines}), runs))
    title = f"Simulated runs of a graph of five steps and {_ITEMS} items"
    caption = "Input, schedule, run and reference; by the CPU time of one process."
    made = table(title, ("", "runs", "runs a minute"), caption)
    made.add_row("drift.testing.Seeds", integer(runs), integer(median(rates)))
    target = Target("simulated runs a minute", median(rates), RUNS_A_MINUTE, at_least=True, unit="")
    return [made], [target], {"rounds": rates}


def _rate(seeds: drift.testing.Seeds, runs: int) -> float:
    seeds.run(0)
    started = time.process_time()
    for seed in range(runs):
        assert seeds.run(seed).failure is None
    return 60 * runs / (time.process_time() - started)
