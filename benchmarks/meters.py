"""What this process has used so far: CPU and memory."""

from __future__ import annotations

import os
import resource
import sys
from pathlib import Path


def peak_memory_bytes() -> int:
    """Of this process, where the system tells it; `getrusage` on Linux is not below that of the process that forked."""
    status = Path("/proc/self/status")
    if status.exists():
        (line,) = [line for line in status.read_text().splitlines() if line.startswith("VmHWM:")]
        return int(line.split()[1]) * 1024
    return own_peak_bytes()


def own_peak_bytes() -> int:
    """What a run's report has for the calling process."""
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else peak * 1024


def cpu_seconds() -> float:
    """Of this process and of those it started that have ended."""
    usages = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(usage.ru_utime + usage.ru_stime for usage in usages)


def tree_cpu_seconds() -> float:
    """Of this process, those below it, and those of these that have ended; where the system tells it, as on Linux.

    It goes back where one has ended that its parent has not waited for, as Spark's workers of Python do after a minute
    without work: a difference over such an end is too little.
    """
    stats = _stats()
    every = [os.getpid(), *_below(stats, os.getpid())]
    return sum(sum(map(int, stats[process][11:15])) for process in every) / os.sysconf("SC_CLK_TCK")


def processes_below(process: int | None = None) -> list[int]:
    """Those that one has started, this one if none is given, and those that these have, and so on."""
    return _below(_stats(), os.getpid() if process is None else process)


def _stats() -> dict[int, list[str]]:
    """Of each process what the system tells, from its state on."""
    found: dict[int, list[str]] = {}
    for path in Path("/proc").glob("[0-9]*/stat"):
        try:
            found[int(path.parent.name)] = path.read_text().rpartition(")")[2].split()
        except (FileNotFoundError, ProcessLookupError):  # it has ended meanwhile
            continue
    return found


def _below(stats: dict[int, list[str]], process: int) -> list[int]:
    children: dict[int, list[int]] = {}
    for number, fields in stats.items():
        children.setdefault(int(fields[1]), []).append(number)
    found = list(children.get(process, ()))
    for each in found:
        found += children.get(each, ())
    return found
