"""Messages of a run to the standard `logging`, as the logger "drift".

Invariant: single events are logged once, and events of items at the first item, the tenth, the hundredth and so on;
nothing is written anywhere unless the user sets `logging` up.

Why: the logger has a handler that does nothing, as a library's should.
"""

from __future__ import annotations

import logging

from drift_graph.errors import ProcessError
from drift_graph.functions import safe_text

_log = logging.getLogger("drift")
_log.addHandler(logging.NullHandler())


class RunLog:
    """The log of one run."""

    def __init__(self, graph: str, engine: str, workers: int) -> None:
        self._graph = graph
        self._on = f"{engine}, {workers} workers" if workers > 1 else engine
        self._late_next = self._diverted_next = 1
        self._silent = ""  # the source that was reported

    def started(self) -> None:
        _log.info("graph %r: run started on %s", self._graph, self._on)

    def ended(self, state: str, items_in: int, items_out: int, seconds: float, error: BaseException | None) -> None:
        """Log the end: INFO, or ERROR if the run failed, without a traceback since the error is raised, too."""
        done = f"{items_in:,} items in, {items_out:,} out in {seconds:.2f} s"
        if state != "failed":
            _log.info("graph %r: run %s, %s", self._graph, state, done)
            return
        what = "a process died or hung" if isinstance(error, ProcessError) else type(error).__name__
        text = safe_text(str, error, 1000).encode("utf-8", "backslashreplace").decode()  # a handler may write UTF-8
        _log.error("graph %r: run failed, %s: %s; %s", self._graph, what, text, done)

    def late(self, items: int) -> None:
        """Log late items: the number diverted so far."""
        if items >= self._late_next:
            self._late_next = _next(items)
            _log.warning("graph %r: %s late items diverted so far", self._graph, f"{items:,}")

    def diverted(self, items: int) -> None:
        """Log the number of items diverted so far because a source or a step could not process them."""
        if items >= self._diverted_next:
            self._diverted_next = _next(items)
            _log.warning("graph %r: %s items that could not be processed diverted so far", self._graph, f"{items:,}")

    def silent(self, source: str, seconds: float, unsettled: int) -> None:
        """Log a source that holds the output back, having had no items for so long; "" if there is none."""
        if source and source != self._silent:
            _log.warning(
                "graph %r: %s has had no items for %.0f s and holds %s items back; where it may be idle so long, "
                "EventTime(..., idle_after_ms=...) lets the others proceed",
                self._graph, source, seconds, f"{unsettled:,}",
            )  # fmt: skip
        self._silent = source


def _next(items: int) -> int:
    """The next power of ten."""
    return int(10 ** len(str(items)))
