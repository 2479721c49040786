"""The line on a terminal that says where a run stands.

Invariant: a piece costs one look at the clock; the line is drawn at most ten times a second.
"""

from __future__ import annotations

import time
from collections import deque
from types import TracebackType

from drift_graph.meta import BEGINNING, END_OF_TIME, time_of
from rich.console import Console
from rich.live import Live
from rich.text import Text

from drift.engines.base import Progress
from drift.run import Run

_INTERVAL_S = 0.1
_RATE_OVER_S = 2.0


class ProgressLine:
    """Drawn while it is entered, gone afterwards; `active=False` does nothing at all."""

    def __init__(self, *, active: bool) -> None:
        self._console = Console(stderr=True, highlight=False)
        self._live = Live(
            console=self._console, auto_refresh=False, transient=True, redirect_stdout=False, redirect_stderr=False
        )
        self._active = active
        self._next_s = 0.0
        self._start_s = time.monotonic()
        self._seen: deque[tuple[float, int, int]] = deque()  # moment, items in, items out

    def __enter__(self) -> ProgressLine:
        if self._active:
            self._live.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._active:
            self._live.stop()

    def show(self, run: Run) -> None:
        """Draw the line anew if it is time to."""
        if not self._active:
            return
        now = time.monotonic()
        if now < self._next_s:
            return
        self._next_s = now + _INTERVAL_S
        progress = run.progress
        self._seen.append((now, progress.items_in, progress.items_out))
        while len(self._seen) > 2 and now - self._seen[1][0] >= _RATE_OVER_S:
            self._seen.popleft()
        text = line_text(progress, self._rates(), now - self._start_s)
        self._live.update(Text(text, no_wrap=True, overflow="ellipsis"), refresh=True)

    def _rates(self) -> tuple[float, float]:
        """Items in and out a second, over the last seconds."""
        (start, first_in, first_out), (end, last_in, last_out) = self._seen[0], self._seen[-1]
        seconds = end - start
        return ((last_in - first_in) / seconds, (last_out - first_out) / seconds) if seconds > 0 else (0.0, 0.0)


def line_text(progress: Progress, rates: tuple[float, float], seconds: float) -> str:
    """The line's words; what matters most stands first, since a narrow terminal cuts the rest."""
    minutes, rest = divmod(int(seconds), 60)
    parts = [
        f"{minutes}:{rest:02}",
        f"in {progress.items_in:,} ({rates[0]:,.0f}/s)",
        f"out {progress.items_out:,} ({rates[1]:,.0f}/s)",
        f"unsettled {progress.unsettled:,}",
        f"at {_time_text(progress.minimal_time)}" + (f", held by {progress.held_by}" if progress.held_by else ""),
    ]
    if progress.tombstones:
        parts.append(f"tombstones {progress.tombstones:,}")
    if progress.late_items:
        parts.append(f"late {progress.late_items:,}")
    return "  ".join(parts)


def _time_text(minimal_time: bytes) -> str:
    if minimal_time == BEGINNING:
        return "the beginning"
    return "the end" if minimal_time == END_OF_TIME else f"time {time_of(minimal_time)}"
