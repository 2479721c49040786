"""Peak memory of the processes that a measurement starts, by what they are.

Invariant: a peak is the kernel's own of a process (VmHWM), as it was when it was last seen.

Why: on Spark memory is in processes that nobody here waits for, the JVM and its Python workers; so they are looked at
while they run, four times a second. What a process takes in its last quarter of a second may be missed.
"""

from __future__ import annotations

import os
import threading
from pathlib import Path
from types import TracebackType

_INTERVAL_S = 0.25


class Peaks:
    """Watches the descendants of this process while it is entered.

    Attributes:
        of: bytes, the most that a process of each kind had: "jvm", "worker" (of Spark), "python" (any other).
    """

    def __init__(self) -> None:
        self.of: dict[str, int] = {}
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)

    def __enter__(self) -> Peaks:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._ended.set()
        self._thread.join()

    def _run(self) -> None:
        while not self._ended.wait(_INTERVAL_S):
            self._sample()

    def _sample(self) -> None:
        parents = {pid: parent for pid in _pids() if (parent := _parent(pid)) is not None}
        ours = {os.getpid()}
        while grown := {pid for pid, parent in parents.items() if parent in ours and pid not in ours}:
            ours |= grown
        for pid in ours - {os.getpid()}:
            kind, peak = _kind(pid), _peak(pid)
            if kind is not None and peak is not None:
                self.of[kind] = max(self.of.get(kind, 0), peak)


def _pids() -> list[int]:
    return [int(entry.name) for entry in Path("/proc").iterdir() if entry.name.isdecimal()]


def _text(pid: int, name: str) -> str | None:
    try:
        return Path(f"/proc/{pid}/{name}").read_text(errors="replace")
    except OSError:  # it has ended
        return None


def _parent(pid: int) -> int | None:
    stat = _text(pid, "stat")
    return int(stat.rpartition(")")[2].split()[1]) if stat is not None else None


def _kind(pid: int) -> str | None:
    line = _text(pid, "cmdline")
    if not line:
        return None
    if "pyspark.daemon" in line or "pyspark/daemon" in line:
        return "worker"
    program = Path(line.split("\0", 1)[0]).name
    return "jvm" if program == "java" else "python" if program.startswith("python") else None


def _peak(pid: int) -> int | None:
    for line in (_text(pid, "status") or "").splitlines():
        if line.startswith("VmHWM:"):
            return int(line.split()[1]) * 1024
    return None
