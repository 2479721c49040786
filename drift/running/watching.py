"""The log, the page, the telemetry of a run, and its bar in a notebook.

Invariant: they get a batch after the sinks, and change nothing.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from typing import TYPE_CHECKING

from drift.engines.base import Progress
from drift.extras import need
from drift.logged import RunLog
from drift.running.observers import Observer
from drift.streams import ERRORS
from drift.web.life import Life, Watched
from drift.web.status import Status
from drift_barrier.barrier import Released

if TYPE_CHECKING:
    from drift.running.notebook import Bar
    from drift.web.server import LivePage
    from drift.web.telemetry import Telemetry

#: A source that holds back the output is named after this time without input.
SILENT_S = 10.0


class Watching(Observer):
    """The log of a run and, on request, its page and its telemetry.

    Args:
        life: the numbers of the run.

    Attributes:
        page: of the run, or None.
        status: what its page shows.
    """

    page: LivePage | None = None
    _telemetry: Telemetry | None = None

    def __init__(self, run: Watched, life: Life) -> None:
        self.life = life
        self.status = Status(run, self.life)
        self._log = RunLog(run.dataflow.name, run.engine, run.settings.workers_in_all)
        self._has_errors = any(sink.name == ERRORS for sink in run.dataflow.sinks)
        self._run = run
        self._bar: Bar | None = None

    def open(self, web: int | str | None, otel: bool) -> None:
        """Open the page and the telemetry; see `drift.run`."""
        self.page = _live_page(web, self.status) if web is not None else None
        try:
            self._telemetry = _telemetry(self.life) if otel else None
        except BaseException:
            self.close()
            raise

    def start(self) -> None:
        self.life.start()
        if self.page is not None:
            self.page.start()
        self._log.started()
        if "IPython" in sys.modules:
            from drift.running.notebook import bar_of

            self._bar = bar_of(self._run.dataflow.name)
        if self._telemetry is not None:
            self._telemetry.start()

    def take(self, batch: Released) -> Released:
        """Report news: a batch, diverted items, a source that all wait for."""
        self.life.take(batch)
        progress = self._run.progress
        if self.page is not None or self._run.stores_state:
            self.status.take(batch)
        if progress.late_items:
            self._log.late(progress.late_items)
        if self._has_errors and batch.metas:
            self._log.diverted(self.life.diverted)
        if self._telemetry is not None:
            self._telemetry.take()
        if self._bar is not None:
            self._bar.take(progress)
        if not batch.metas:
            silent_s = progress.silent_s
            self._log.silent(progress.held_by if silent_s >= SILENT_S else "", silent_s, progress.unsettled)
        return batch

    def end(self, state: str, error: BaseException | None, progress: Progress, seconds: float) -> None:
        """The run, which had begun, has ended, and everything is closed."""
        self._log.ended(state, progress.items_in, progress.items_out, seconds, error)
        if self._telemetry is not None:
            self._telemetry.end(state, error)
        if self._bar is not None:
            self._bar.end(state, progress, seconds)

    @property
    def released(self) -> Mapping[str, int]:
        """Items to each sink so far."""
        return self.life.released

    def told(self) -> Mapping[bytes, bytes] | None:
        return self.status.told()

    def close(self) -> None:
        if self.page is not None:
            self.page.close()


def _live_page(web: int | str, status: Status) -> LivePage:
    need("web", "web=")
    from drift.web.address import as_address
    from drift.web.server import LivePage

    page = LivePage(as_address(web), {"": status})
    assert status.picture  # drawn in this thread, before the run begins
    return page


def _telemetry(life: Life) -> Telemetry:
    need("otel", "otel=True")
    from drift.web.telemetry import Telemetry

    return Telemetry(life)
