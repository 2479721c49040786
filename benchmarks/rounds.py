"""Measurements in processes of their own, in rounds: each round makes each measurement once, one after the other.

Invariant: one measurement runs at a time, and a ratio is between two of one round.
"""

from __future__ import annotations

import json
import os
import platform
import resource
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import drift
from benchmarks.workloads import ROOT

Spec = dict[str, Any]
Result = dict[str, Any]
Round = dict[str, Result]

_MEASUREMENT_MAX_S = 600


@dataclass
class Options:
    """What to measure, and how long.

    Attributes:
        items: of a throughput measurement.
        rounds: of every section but `disorder`, which takes one fewer, if more than one.
        report: takes a line about what is being measured.
    """

    items: int = 1_000_000
    rounds: int = 3
    workloads: tuple[str, ...] = ()
    disorder_items: int = 250_000
    disorder: tuple[float, ...] = (0.0, 0.01, 0.1, 0.5)
    latency_items: int = 25_000
    latency_rate: int = 5_000
    scaling_items: tuple[int, ...] = (10_000, 100_000, 1_000_000)
    report: Callable[[str], None] = field(default=lambda line: None, repr=False)


class Failed(Exception):
    """A measurement's process failed, or its result is not what it must be."""


def measure(spec: Spec) -> Result:
    """One measurement; adds `others_cores`, how many cores were busy with anything else meanwhile."""
    watch = _Watch()
    command = [sys.executable, "-m", "benchmarks.measure", json.dumps(spec)]
    try:
        done = subprocess.run(command, cwd=ROOT, stdout=subprocess.PIPE, text=True, timeout=_MEASUREMENT_MAX_S)
    except subprocess.TimeoutExpired:
        raise Failed(f"the measurement {spec} did not end within {_MEASUREMENT_MAX_S} s") from None
    if done.returncode != 0:
        raise Failed(f"the measurement {spec} ended with exit code {done.returncode}; what it said is above")
    result: Result = json.loads(done.stdout.splitlines()[-1])
    result["others_cores"] = watch.others_cores()
    return result


def interleaved(specs: Mapping[str, Spec], rounds: int, what: str, report: Callable[[str], None]) -> list[Round]:
    """Each of several measurements once a round."""
    done: list[Round] = []
    for number in range(rounds):
        results: Round = {}
        for name, spec in specs.items():
            report(f"{what}: {name}, round {number + 1} of {rounds}")
            results[name] = measure(spec)
        done.append(results)
    return done


def median(values: Iterable[float]) -> float:
    return statistics.median(values)


def rate(result: Result) -> float:
    """Items a second, start to end."""
    return float(result["items"] / result["seconds"])


def steady_rate(result: Result) -> float | None:
    """Items a second from the first released batch to the last; None where that is one batch."""
    return float(result["steady_items"] / result["steady_seconds"]) if result["steady_seconds"] > 0 else None


def median_of(rounds: Iterable[Round], number: Callable[[Round], float | None]) -> float | None:
    """The median of what a round gives; None where one gives nothing."""
    values = [number(each) for each in rounds]
    known = [value for value in values if value is not None]
    return median(known) if known and len(known) == len(values) else None


def check_digests(rounds: Iterable[Round], what: str) -> str:
    """The one digest of all runs.

    Raises:
        Failed: they differ.
    """
    digests = {name: result["digest"] for each in rounds for name, result in each.items() if "digest" in result}
    if len(set(digests.values())) != 1:
        raise Failed(f"{what}: the digests differ, which is a bug: {digests}")
    return str(next(iter(digests.values())))


def machine() -> dict[str, Any]:
    """What the numbers were measured on."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    return {
        "cores": cores,
        "processor": _processor(),
        "memory_bytes": os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"),
        "system": f"{platform.system()} {platform.release()}",
        "python": f"{platform.python_implementation()} {platform.python_version()}",
        "drift": drift.__version__,
        "load_average": os.getloadavg(),
    }


def _processor() -> str:
    path = Path("/proc/cpuinfo")
    if path.exists():
        for line in path.read_text().splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return str(platform.processor() or platform.machine())


class _Watch:
    """How busy the machine is beside our own processes, where /proc tells."""

    def __init__(self) -> None:
        self._started = time.monotonic()
        self._busy, self._own = _busy_seconds(), _own_seconds()

    def others_cores(self) -> float | None:
        busy, own = _busy_seconds(), _own_seconds()
        if busy is None or self._busy is None:
            return None
        seconds = time.monotonic() - self._started
        return round(max(0.0, (busy - self._busy) - (own - self._own)) / seconds, 3)


def _busy_seconds() -> float | None:
    path = Path("/proc/stat")
    if not path.exists():
        return None
    user, nice, system, _, _, irq, softirq, *_ = map(int, path.read_text().split("\n", 1)[0].split()[1:])
    return float((user + nice + system + irq + softirq) / os.sysconf("SC_CLK_TCK"))


def _own_seconds() -> float:
    usages = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(usage.ru_utime + usage.ru_stime for usage in usages)
