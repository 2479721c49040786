"""What a run says to the standard `logging`, as the logger "drift".

Invariant: what happens once is said once, and what happens with items is said at the first of them, the tenth, the
hundredth and so on, however many there are; nothing is written anywhere unless the user sets `logging` up.

Why: the logger has a handler that does nothing, as a library's should.
"""

from __future__ import annotations

import logging

from drift_graph.errors import ProcessError
from drift_graph.functions import safe_text

_log = logging.getLogger("drift")
_log.addHandler(logging.NullHandler())


class RunLog:
    """Of one run."""

    def __init__(self, graph: str, engine: str, workers: int) -> None:
        self._graph = graph
        self._on = f"{engine}, {workers} workers" if workers > 1 else engine
        self._late_next = self._diverted_next = 1
        self._silent = ""  # the source that was reported

    def started(self) -> None:
        _log.info("graph %r: run started on %s", self._graph, self._on)

    def ended(self, state: str, items_in: int, items_out: int, seconds: float, error: BaseException | None) -> None:
        """How it ended: INFO, and where it failed ERROR; the error is raised as well, so here it has no traceback."""
        done = f"{items_in:,} items in, {items_out:,} out in {seconds:.2f} s"
        if state != "failed":
            _log.info("graph %r: run %s, %s", self._graph, state, done)
            return
        what = "a process died or hung" if isinstance(error, ProcessError) else type(error).__name__
        _log.error("graph %r: run failed, %s: %s; %s", self._graph, what, safe_text(str, error, 1000), done)

    def late(self, items: int) -> None:
        """So many items came too late until now and were diverted."""
        if items >= self._late_next:
            self._late_next = _next(items)
            _log.warning("graph %r: %s late items diverted so far", self._graph, f"{items:,}")

    def diverted(self, items: int) -> None:
        """So many items were set apart until now, since a source or a step could not take them."""
        if items >= self._diverted_next:
            self._diverted_next = _next(items)
            _log.warning("graph %r: %s items that could not be taken set apart so far", self._graph, f"{items:,}")

    def silent(self, source: str, seconds: float, unsettled: int) -> None:
        """A source has had no items for so long, and holds the output back; "" where none does."""
        if source and source != self._silent:
            _log.warning(
                "graph %r: %s has had no items for %.0f s and holds %s items back; where it may be idle so long, "
                "EventTime(..., idle_after_ms=...) lets the others go on",
                self._graph, source, seconds, f"{unsettled:,}",
            )  # fmt: skip
        self._silent = source


def _next(items: int) -> int:
    """The next power of ten."""
    return int(10 ** len(str(items)))
