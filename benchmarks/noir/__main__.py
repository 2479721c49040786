"""`python -m benchmarks.noir`: Noir's benchmarks on the engines, each compared with plain Python."""

from __future__ import annotations

import argparse
import inspect
import sys
import time
from collections.abc import Callable, Sequence
from typing import Any

from rich.console import Console

import drift
from benchmarks.meters import cpu_seconds
from benchmarks.noir import (
    accidents,
    closure,
    components,
    kmeans,
    latency,
    pagerank,
    topwords,
    triangles,
    words,
)
from benchmarks.noir.case import Case
from benchmarks.tables import decimals, integer, table

MODULES = (words, accidents, topwords, kmeans, triangles, components, pagerank, closure, latency)
CASES: list[Case] = [case for module in MODULES for case in module.CASES]
ENGINES: dict[str, dict[str, Any]] = {
    "local": {"engine": "local"},
    "zeromq": {"engine": "zeromq", "workers": 2},
    "spark": {"engine": "spark"},
}
_CAPTION = (
    "Seconds from the inputs in memory to the last item, beside those of a plain Python loop for the same answer, on "
    "this machine; every answer is that of the loop, and every engine's digest that of the first. Lines of code "
    "are of the graph and its functions, without blank ones. Noir's numbers are as published: 4 hosts with 32 threads, "
    "over so much more data that seconds are not to be compared, only what they are beside those of Flink and MPI."
)


class Different(Exception):
    """An answer is not what it is compared with."""


def lines_of(case: Case) -> int:
    """Lines of a case's file before its data; where there are several in it, of all of them."""
    source = inspect.getsource(sys.modules[case.graph.__module__])
    code = source.split("# The data, and plain Python.")[0].splitlines()
    return sum(1 for line in code if line.strip())


def run_case(
    case: Case, inputs: dict[str, list[Any]], settings: dict[str, Any], clock: Callable[[], float] = time.perf_counter
) -> tuple[list[Any], str, float]:
    """The answer, the digest and the seconds of a case on an engine."""
    started = clock()
    run = drift.run(case.graph(), inputs, **settings)
    found = [payload for batch in run.batches() for payload in batch.payloads]
    return found, run.digest, clock() - started


def compare(case: Case, found: list[Any], expected: list[Any]) -> None:
    """Raise Different where two answers are not the same, floats to nine digits."""
    if case.graph is components.graph:
        found = components.last_labels(found)
    one, other = (sorted(map(repr, map(rounded, each))) for each in (found, expected))
    if one != other:
        missing = [each for each in other if each not in one][:1]
        more = [each for each in one if each not in other][:1]
        raise Different(f"{case.name}: {len(one):,} items instead of {len(other):,}; {more} in place of {missing}")


def rounded(value: Any) -> Any:
    if isinstance(value, tuple):
        return tuple(map(rounded, value))
    return float(f"{value:.9g}") if isinstance(value, float) else value


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.noir", description=__doc__)
    parser.add_argument("--scale", type=float, default=1.0, metavar="X", help="so many times the items (1)")
    parser.add_argument("--engine", action="append", choices=list(ENGINES), help="(local); may be given again")
    parser.add_argument("--only", metavar="NAME", help="cases whose name has this in it")
    parser.add_argument("--cpu", action="store_true", help="seconds of the processor, where others use the machine too")
    arguments = parser.parse_args(argv)
    clock = cpu_seconds if arguments.cpu else time.perf_counter
    engines = arguments.engine or ["local"]
    columns = (
        "", "items", "plain s", *(title for engine in engines for title in (f"{engine} s", "of plain")), "lines",
        "Noir, Flink, MPI: lines", "seconds", "over",
    )  # fmt: skip
    made = table("Noir's benchmarks", columns, _CAPTION)
    different: list[str] = []
    for case in CASES:
        if arguments.only and arguments.only not in case.name:
            continue
        inputs = case.data(max(int(case.items * arguments.scale), 2))
        started = clock()
        expected = case.plain(inputs)
        plain_s = clock() - started
        cells = [case.name, integer(sum(map(len, inputs.values()))), decimals(plain_s)]
        digests: dict[str, str] = {}
        for engine in engines:
            found, digests[engine], seconds = run_case(case, inputs, ENGINES[engine], clock)
            cells += [decimals(seconds), decimals(plain_s / seconds)]
            try:
                compare(case, found, expected)
            except Different as error:
                different.append(f"{engine}: {error}")
        if len(set(digests.values())) > 1:
            different.append(f"{case.name}: the engines' outputs are not the same: {digests}")
        published = case.published
        cells += [str(lines_of(case)), shown(published.lines), shown(published.seconds), published.data]
        made.add_row(*cells)
    console = Console(width=None if sys.stdout.isatty() else 160)
    console.print(made)
    for line in different:
        console.print(line, markup=False, highlight=False)
    return 1 if different else 0


def shown(numbers: Sequence[float | None]) -> str:
    return ", ".join("-" if each is None else f"{each:g}" for each in numbers)


if __name__ == "__main__":
    sys.exit(main())
