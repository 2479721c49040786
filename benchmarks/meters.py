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
    """Of this process, those below it, and those of these that have ended; where the system tells it, as on Linux."""
    below: dict[int, list[int]] = {}
    ticks: dict[int, int] = {}
    for path in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = path.read_text().rpartition(")")[2].split()
        except (FileNotFoundError, ProcessLookupError):  # it has ended meanwhile
            continue
        below.setdefault(int(fields[1]), []).append(int(path.parent.name))
        ticks[int(path.parent.name)] = sum(map(int, fields[11:15]))
    every = [os.getpid()]
    for process in every:
        every += below.get(process, ())
    return sum(map(ticks.__getitem__, every)) / os.sysconf("SC_CLK_TCK")
