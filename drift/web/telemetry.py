"""Reports a run to OpenTelemetry: a span for the run, and counters that continue over all runs of a process.

Invariant: at the end the counters have been increased by exactly the run's numbers; during the run they are updated at
most once a second, by the run's own thread, so no extra thread is needed.

As with any library, the user decides where the data goes: by an SDK that the process sets up, or by
`opentelemetry-instrument` around the command. Without either it is discarded.
"""

from __future__ import annotations

import time
from typing import Any

from drift.engines.base import Progress
from drift.web.status import Watched

_EVERY_S = 1.0


class Telemetry:
    """Of one run."""

    def __init__(self, run: Watched) -> None:
        from opentelemetry import metrics, trace

        meter, self._tracer = metrics.get_meter("drift"), trace.get_tracer("drift")
        self._run = run
        self._attributes = {"drift.graph": run.dataflow.name, "drift.engine": run.engine}
        unit = "{item}"
        self._in = meter.create_counter("drift.items.in", unit, "Items read from all sources.")
        self._out = meter.create_counter("drift.items.out", unit, "Items released to all sinks.")
        self._tombstones = meter.create_counter("drift.tombstones", unit, "Items retracted before release.")
        self._late = meter.create_counter("drift.items.late", unit, "Items that came too late and were diverted.")
        self._diverted = meter.create_counter("drift.items.diverted", unit, "Items diverted as errors.")
        self._unsettled = meter.create_up_down_counter("drift.items.unsettled", unit, "Read, output not complete.")
        self._operator = meter.create_counter("drift.operator.items", unit, "Items that left an operator.")
        self._reported = dict.fromkeys(("in", "out", "tombstones", "late", "diverted", "unsettled"), 0)
        self._of_operators: dict[str, int] = {}
        self._next_s = 0.0
        self._span: Any = None

    def start(self) -> None:
        self._span = self._tracer.start_span(f"drift run {self._run.dataflow.name}", attributes=self._attributes)

    def take(self, progress: Progress, diverted: int) -> None:
        """Called after each released batch; updates the counters once a second."""
        now_s = time.monotonic()
        if now_s >= self._next_s:
            self._next_s = now_s + _EVERY_S
            self._report(progress, diverted)

    def end(self, state: str, error: BaseException | None, diverted: int) -> None:
        """Called when the run has ended: updates the counters, and ends the span."""
        if self._span is None:
            return
        from opentelemetry.trace import Status, StatusCode

        self._report(self._run.progress, diverted)
        self._unsettled.add(-self._reported["unsettled"], self._attributes)  # nothing waits any more
        self._span.set_attribute("drift.items.in", self._reported["in"])
        self._span.set_attribute("drift.items.out", self._reported["out"])
        self._span.set_attribute("drift.state", state)
        if error is not None and state == "failed":
            self._span.record_exception(error)
            self._span.set_status(Status(StatusCode.ERROR, type(error).__name__))
        self._span.end()
        self._span = None

    def _report(self, progress: Progress, diverted: int) -> None:
        for name, instrument, value in (
            ("in", self._in, progress.items_in),
            ("out", self._out, progress.items_out),
            ("tombstones", self._tombstones, progress.tombstones),
            ("late", self._late, progress.late_items),
            ("diverted", self._diverted, diverted),
            ("unsettled", self._unsettled, progress.unsettled),
        ):
            new, self._reported[name] = value - self._reported[name], value
            if new:
                instrument.add(new, self._attributes)
        for name, (items, _, _) in self._run.observed().counts.items():
            new, self._of_operators[name] = items - self._of_operators.get(name, 0), items
            if new:
                self._operator.add(new, {**self._attributes, "drift.operator": name})
