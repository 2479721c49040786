"""The line on a terminal that says where a run stands.

Invariant: drawing it costs the run nothing but a glance at five numbers, five times a second, and it goes on while a
batch takes long.

Why: a thread draws, and only reads `Run.progress`, whose fields are numbers, bytes and a text.
"""

from __future__ import annotations

import time
from collections import deque
from types import TracebackType

from rich.console import Console
from rich.live import Live
from rich.text import Text

from drift.engines.base import Progress
from drift.records.watch import Watch
from drift.running import Run

_DRAWN_PER_SECOND = 5
_RATE_OVER_S = 2.0
_BAR_CELLS = 12


class ProgressLine:
    """Drawn while it is entered, gone afterwards; `active=False` does nothing at all."""

    def __init__(self, *, active: bool) -> None:
        self._run: Run | None = None
        self._start_s = time.monotonic()
        self._seen: deque[tuple[float, int, int]] = deque()  # moment, items in, items out
        self._live: Live | None = None
        if active:
            self._live = Live(
                console=Console(stderr=True, highlight=False),
                get_renderable=self._line,
                refresh_per_second=_DRAWN_PER_SECOND,
                transient=True,
                redirect_stdout=False,
                redirect_stderr=False,
            )

    def __enter__(self) -> ProgressLine:
        if self._live is not None:
            self._live.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._live is not None:
            self._live.stop()

    def follow(self, run: Run) -> None:
        """Tell of this run from now on."""
        self._run = run

    def _line(self) -> Text:
        now = time.monotonic()
        progress = self._run.progress if self._run is not None else Progress()
        self._seen.append((now, progress.items_in, progress.items_out))
        while len(self._seen) > 2 and now - self._seen[1][0] >= _RATE_OVER_S:
            self._seen.popleft()
        text = line_text(progress, self._rates(), now - self._start_s)
        return Text(text, no_wrap=True, overflow="ellipsis")

    def _rates(self) -> tuple[float, float]:
        """Items in and out a second, over the last seconds."""
        (start, first_in, first_out), (end, last_in, last_out) = self._seen[0], self._seen[-1]
        seconds = end - start
        return ((last_in - first_in) / seconds, (last_out - first_out) / seconds) if seconds > 0 else (0.0, 0.0)


class WatchLine(ProgressLine):
    """The same of what reads records."""

    def __init__(self, *watches: Watch, active: bool) -> None:
        self._watches = watches
        super().__init__(active=active)

    def _line(self) -> Text:
        minutes, seconds = divmod(int(time.monotonic() - self._start_s), 60)
        told = [str(watch) for watch in self._watches if watch.what]
        return Text("  ".join([f"{minutes}:{seconds:02}", *told]), no_wrap=True, overflow="ellipsis")


def line_text(progress: Progress, rates: tuple[float, float], seconds: float) -> str:
    """The line's words; what matters most stands first, since a narrow terminal cuts the rest."""
    minutes, rest = divmod(int(seconds), 60)
    clock = f"{minutes}:{rest:02}"
    if progress.fraction:
        left_m, left_s = divmod(int(seconds / progress.fraction - seconds), 60)
        clock += f" {_bar(progress.fraction)} {progress.fraction:.0%}, {left_m}:{left_s:02} left"
    parts = [
        clock,
        f"in {progress.items_in:,} ({rates[0]:,.0f}/s)",
        f"out {progress.items_out:,} ({rates[1]:,.0f}/s)",
        f"unsettled {progress.unsettled:,}",
        f"at {progress.reached}" + (f", held by {progress.held_by}" if progress.held_by else ""),
    ]
    if progress.tombstones:
        parts.append(f"tombstones {progress.tombstones:,}")
    if progress.late_items:
        parts.append(f"late {progress.late_items:,}")
    return "  ".join(parts)


def _bar(fraction: float) -> str:
    full = round(fraction * _BAR_CELLS)
    return "━" * full + "╌" * (_BAR_CELLS - full)
