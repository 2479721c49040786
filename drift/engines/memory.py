"""The memory of this process: how much it has, and how often the garbage collector walks through it."""

from __future__ import annotations

import contextlib
import gc
import resource
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

_PAGE_BYTES = resource.getpagesize()
_GC_THRESHOLD = 100_000
_thresholds_before: list[tuple[int, int, int]] = []
_lock = threading.Lock()


def memory_bytes() -> int:
    """Resident memory of this process now; or its peak if the present value is unknown."""
    try:
        return int(Path("/proc/self/statm").read_text().split()[1]) * _PAGE_BYTES
    except (OSError, IndexError, ValueError):
        return peak_memory_bytes()


def peak_memory_bytes() -> int:
    """Peak resident memory of this process; on Linux since its program was loaded, elsewhere since the fork."""
    try:
        status = Path("/proc/self/status").read_text()
        return int(status.split("VmHWM:")[1].split()[0]) * 1024
    except (OSError, IndexError):
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        return peak if sys.platform == "darwin" else peak * 1024


@contextlib.contextmanager
def rare_collections() -> Iterator[None]:
    """Raises the garbage collector's threshold meanwhile: thousands of live items are not garbage.

    Several may be active at once and end in any order; the last to end restores the thresholds from before the first.
    """
    with _lock:
        thresholds = gc.get_threshold()
        _thresholds_before.append(thresholds)
        gc.set_threshold(max(thresholds[0], _GC_THRESHOLD), *thresholds[1:])
    try:
        yield
    finally:
        with _lock:
            thresholds = _thresholds_before.pop()
            if not _thresholds_before:
                gc.set_threshold(*thresholds)
