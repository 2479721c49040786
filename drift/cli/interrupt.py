"""Ctrl-C between two items, never inside the writing of one; SIGTERM.

Invariant: Ctrl-C ends the run at once, except while sinks or the record are being written or the run is being closed:
then right afterwards. SIGTERM ends the run's sources, and all items read are released. A second signal ends the run in
any case.

Why: code that writes or closes is marked as `undisturbed`, and the handler checks whether the main thread is in it. The
sinks note their position in the same code, so the reported position is the one in the files.
"""

from __future__ import annotations

import signal
import threading
from types import FrameType
from typing import Any

from drift.running import Run
from drift.undisturbed import may_be_interrupted


class Interrupts:
    """Turns SIGINT and SIGTERM into KeyboardInterrupt while it is entered.

    Attributes:
        number: the signal that came; 0 if none.
        running: the run whose sources the first SIGTERM ends, instead of a KeyboardInterrupt; a second signal ends it.
        stopped: a SIGTERM has ended the sources.
    """

    def __init__(self) -> None:
        self.number = 0
        self.running: Run | None = None
        self.stopped = False
        self._before: dict[int, Any] = {}

    def __enter__(self) -> Interrupts:
        if threading.current_thread() is threading.main_thread():
            for number in (signal.SIGINT, signal.SIGTERM):
                self._before[number] = signal.signal(number, self._on_signal)
        return self

    def __exit__(self, *_: object) -> None:
        for number, before in self._before.items():
            signal.signal(number, before)

    def check(self) -> None:
        """Act on a signal that came during writing; called between two batches."""
        if self.number:
            raise KeyboardInterrupt

    def _on_signal(self, number: int, frame: FrameType | None) -> None:
        if number == signal.SIGTERM and self.running is not None and not self.stopped:
            self.stopped = True
            self.running.stop()
            return
        again = bool(self.number)
        self.number = number
        if again or may_be_interrupted():
            raise KeyboardInterrupt
