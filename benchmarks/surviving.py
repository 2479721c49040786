"""What it costs that a run goes on where its processes die: throughput with cuts, beside that of a run that cannot.

    python -m benchmarks.surviving --keys 1000 own --items 1000000 --rounds 5

Running counts by key over zeromq with two workers. Each round has a run of every kind, one after the other, so that
what else the machine does falls on all: "off" is `recover=False`, "default" says nothing, "250 ms" cuts that often.
Ratios are of processors' time, that of all processes of a run; and of time by the clock.
"""

from __future__ import annotations

import argparse
import resource
import time
from statistics import median
from typing import Any

import drift

_KINDS: dict[str, dict[str, Any]] = {
    "off": {"recover": False},
    "default": {},
    "250 ms": {"cut_interval_s": 0.25},
}


def counted(keys: int | None) -> drift.Graph:
    """Of every item a count; `keys` None for as many as there are items."""
    graph = drift.Graph("counted")
    key = (lambda n: n) if keys is None else (lambda n: n % keys)
    graph.source("numbers").scan(key, 0, lambda count, n: (count + 1, (n, count + 1))).sink("counts")
    return graph


def _cpu_s() -> float:
    used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(each.ru_utime + each.ru_stime for each in used)


def measured(keys: int | None, items: int, settings: dict[str, Any]) -> tuple[float, float]:
    """Seconds of the processors, and by the clock."""
    cpu_s, began_s = _cpu_s(), time.perf_counter()
    run = drift.run(counted(keys), {"numbers": range(items)}, engine="zeromq", workers=2, **settings)
    for _ in run.pieces():
        pass
    return _cpu_s() - cpu_s, time.perf_counter() - began_s


def main() -> None:
    """See the module."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.surviving", description=__doc__.partition("\n")[0])
    parser.add_argument("--keys", nargs="+", default=["1000", "own"], help="how many, or own: one for each item")
    parser.add_argument("--items", type=int, default=3_000_000)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--kinds", nargs="+", default=list(_KINDS))
    given = parser.parse_args()
    print(f"{'keys':>8} {'':>10} {'cpu s':>8} {'s':>8} {'of off: cpu':>12} {'clock':>6}")
    for text in given.keys:
        keys = None if text == "own" else int(text)
        took: dict[str, list[tuple[float, float]]] = {kind: [] for kind in given.kinds}
        for _ in range(given.rounds):
            for kind, times in took.items():
                times.append(measured(keys, given.items, _KINDS[kind]))
        for kind, times in took.items():
            cpu_s, clock_s = (median(each[at] for each in times) for at in (0, 1))
            shares = [median(off[at] / on[at] for off, on in zip(took["off"], times)) for at in (0, 1)]
            told = f"{cpu_s:>8.2f} {clock_s:>8.2f} {shares[0]:>12.3f} {shares[1]:>6.3f}"
            print(f"{text:>8} {kind:>10} {told}", flush=True)


if __name__ == "__main__":
    main()
