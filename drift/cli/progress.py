"""The progress lines of commands on a terminal.

Invariant: drawing it costs the run only the reading of five numbers, five times a second, and it is also drawn during a
long batch.

Why: a thread draws, and only reads `Run.progress`, whose fields are numbers, bytes and a text.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager

from drift.engines.base import Progress
from drift.records.watch import Watch
from drift.running import SILENT_S, Run
from drift.show.steps import columns_of, cut

_DRAWN_PER_SECOND = 5
_RATE_OVER_S = 2.0
#: Of the line: it fits a terminal of the usual width.
COLUMNS = 80


@contextmanager
def live_line(text: Callable[[], str], *, active: bool) -> Iterator[None]:
    """Draw a line, on standard error, until the context ends; `active=False` does nothing at all.

    Args:
        text: called by the thread that draws.
    """
    if not active:
        yield
        return
    from rich.console import Console  # here: most commands draw nothing, and it takes a tenth of their start
    from rich.live import Live
    from rich.text import Text

    with Live(
        console=Console(stderr=True, highlight=False),
        get_renderable=lambda: Text(text(), no_wrap=True, overflow="ellipsis"),
        refresh_per_second=_DRAWN_PER_SECOND,
        transient=True,
        redirect_stdout=False,
        redirect_stderr=False,
    ):
        yield


def watch_line(*watches: Watch, active: bool) -> AbstractContextManager[None]:
    """The progress line of a command that reads records."""
    start_s = time.monotonic()

    def text() -> str:
        shown = [str(watch) for watch in watches if watch.what]
        return "  ".join([clock_text(time.monotonic() - start_s), *shown])

    return live_line(text, active=active)


class ProgressOfRun:
    """The text of the line of a run."""

    def __init__(self) -> None:
        self._run: Run | None = None
        self._start_s = time.monotonic()
        self._samples: deque[tuple[float, int, int]] = deque()  # moment, items in, items out

    def follow(self, run: Run) -> None:
        self._run = run

    def text(self) -> str:
        now = time.monotonic()
        progress = self._run.progress if self._run is not None else Progress()
        if self._run is not None:  # which may resume with numbers of its own
            self._samples.append((now, progress.items_in, progress.items_out))
        while len(self._samples) > 2 and now - self._samples[1][0] >= _RATE_OVER_S:
            self._samples.popleft()
        return line_text(progress, self._rates(), now - self._start_s)

    def _rates(self) -> tuple[float, float]:
        """Items in and out a second, over the last seconds."""
        if not self._samples:
            return 0.0, 0.0
        (start, first_in, first_out), (end, last_in, last_out) = self._samples[0], self._samples[-1]
        seconds = end - start
        return ((last_in - first_in) / seconds, (last_out - first_out) / seconds) if seconds > 0 else (0.0, 0.0)


def line_text(progress: Progress, rates: tuple[float, float], seconds: float, columns_max: int = COLUMNS) -> str:
    """The line's words: first what holds the output back, and then as much as there is room for, what matters first."""
    held = progress.held_by
    if held and progress.silent_s >= SILENT_S:
        held += f", silent {clock_text(progress.silent_s)}"
    line = cut(f"held by {held}" if held else "running", columns_max // 2)
    clock = clock_text(seconds)
    if progress.fraction:
        left_s = seconds / progress.fraction - seconds
        clock += f" {progress.fraction:.0%}, {clock_text(left_s)} left"
    parts = [
        f"in {short(progress.items_in)} {short(rates[0])}/s",
        f"out {short(progress.items_out)} {short(rates[1])}/s",
        f"replaced {', '.join(progress.died[-2:])} in {progress.recovering_s:.1f} s" if progress.died else "",
        f"unsettled {short(progress.unsettled)}" if progress.unsettled else "",
        clock,
        f"late {short(progress.late_items)}" if progress.late_items else "",
        f"at {progress.reached.removeprefix('time ')}",
        f"tombstones {short(progress.tombstones)}" if progress.tombstones else "",
    ]
    for part in filter(None, parts):
        if columns_of(line) + 2 + columns_of(part) <= columns_max:
            line += f"  {part}"
    return line


def short(number: float) -> str:
    """A number in six columns at most, below 10**15: 9,999, 12.3k, 4.57M.

    >>> short(9999), short(12345), short(4_567_890), short(999_960)
    ('9,999', '12.3k', '4.57M', '1.00M')
    """
    if number < 9999.5:
        return f"{number:,.0f}"
    for least, unit in ((1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k")):
        size = number / least
        if size >= 0.9995:
            return f"{size:.{2 if size < 9.995 else 1 if size < 99.95 else 0}f}{unit}"
    raise AssertionError(f"{number} is less than {9999.5}, and was shown before")


def clock_text(seconds: float) -> str:
    """Minutes and seconds, with hours where there are any.

    >>> clock_text(75), clock_text(3605)
    ('1:15', '1:00:05')
    """
    minutes, seconds_left = divmod(int(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{seconds_left:02}" if hours else f"{minutes}:{seconds_left:02}"
