"""What an engine is to a run."""

from __future__ import annotations

import contextlib
import gc
import resource
import sys
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

from drift.engines.observed import Observed
from drift_barrier.barrier import Released
from drift_graph.meta import BEGINNING, END_OF_TIME, time_of

_GC_THRESHOLD = 100_000
_thresholds_before: list[tuple[int, int, int]] = []
_lock = threading.Lock()


@contextlib.contextmanager
def rare_collections() -> Iterator[None]:
    """Meanwhile the garbage collector waits longer: items by the thousand are no garbage.

    Several may be on at once, and end in any order: with the last, all is as it was before the first.
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


@dataclass
class Progress:
    """Where a run stands, as far as the calling process knows.

    Attributes:
        minimal_time: as bytes that compare with metas; for people there are `time` and `reached`.
        released_below: all output below it is in the pieces that were handed out.
        unsettled: items read whose output is not complete.
        fraction: how much of the input has been read, 0 to 1; None where that is not known.
        held_by: what minimal time waits for: a source's or a worker's name, or "".
        died: names of processes that died and were replaced, in order.
        fed_again: items of the input that the workers were given again for that.
        recoveries, recovering_s: how often the run has gone back and come to where it was, and the seconds it took.
        silent_since_s: where a source holds it, when that last gave something, on `time.monotonic`.
    """

    items_in: int = 0
    items_out: int = 0
    unsettled: int = 0
    tombstones: int = 0
    late_items: int = 0
    minimal_time: bytes = BEGINNING
    released_below: bytes = BEGINNING
    held_by: str = ""
    silent_since_s: float | None = None
    fraction: float | None = None
    refused_frames: int = 0
    died: list[str] = field(default_factory=list)
    recoveries: int = 0
    fed_again: int = 0
    recovering_s: float = 0.0
    peak_memory_bytes: dict[str, int] = field(default_factory=dict)

    @property
    def silent_s(self) -> float:
        """How long the source that holds minimal time back has given nothing, while items wait for it; else 0."""
        since_s = self.silent_since_s
        return max(time.monotonic() - since_s, 0.0) if since_s is not None and self.unsettled else 0.0

    @property
    def time(self) -> int | None:
        """All items before it are released, in the unit of the sources' times; None at the beginning and at the end."""
        return time_of(self.minimal_time) if BEGINNING < self.minimal_time < END_OF_TIME else None

    @property
    def reached(self) -> str:
        """The same in words: "the beginning", "time 1234" or "the end"."""
        if self.time is not None:
            return f"time {self.time}"
        return "the beginning" if self.minimal_time == BEGINNING else "the end"


def peak_memory_bytes() -> int:
    """The most memory this process has had resident; on Linux since its program was loaded, on others since a fork."""
    try:
        status = Path("/proc/self/status").read_text()
        return int(status.split("VmHWM:")[1].split()[0]) * 1024
    except (OSError, IndexError):
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        return peak if sys.platform == "darwin" else peak * 1024


class Engine(Protocol):
    """Runs a dataflow; made with everything it needs, closed in any case.

    Attributes:
        needs_items: set to False before `released` where only the digest is wanted; pieces may be left out then.
    """

    needs_items: bool

    @property
    def progress(self) -> Progress:
        """Where the run stands."""

    def released(self) -> Iterator[Released]:
        """The output, piece by piece; an empty piece where there is nothing new for a while, so that a caller can act.

        Raises:
            DriftError: what ended the run; everything released before it stands.
        """

    def hexdigest(self) -> str:
        """Digest of what was released."""

    def blocks(self) -> list[bytes]:
        """Digests of the full blocks released."""

    def observed(self) -> Observed:
        """Its report for a run that is watched; from any thread; each bar only once."""

    def close(self) -> None:
        """End every process and remove every file of the run; may be called twice."""
