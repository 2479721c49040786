"""Reports a run to OpenTelemetry: a span for the run, and counters that continue over all runs of a process.

Invariant: at the end the counters have been increased by exactly the run's numbers; during the run they are updated at
most once a second, by the run's own thread, so no extra thread is needed.

As with any library, the user decides where the data goes: by an SDK that the process sets up, or by
`opentelemetry-instrument` around the command. Without either it is discarded.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from drift.engines.metrics import Metric, Reading, named
from drift.web.life import Life

_EVERY_S = 1.0


class Telemetry:
    """Of one run."""

    def __init__(self, life: Life) -> None:
        from opentelemetry import metrics, trace

        meter, self._tracer = metrics.get_meter("drift"), trace.get_tracer("drift")
        run, self._life = life.run, life
        self._attributes = {"drift.graph": run.dataflow.name, "drift.engine": run.engine}
        self._instruments: dict[str, Any] = {}
        for name, metric in named("otel"):
            create: Any = meter.create_counter if metric.adds_up else meter.create_gauge
            if metric.adds_up and not metric.counts:
                create = meter.create_up_down_counter
            self._instruments[name] = create(name, metric.unit, metric.text)
        self._reported: Counter[tuple[str, str]] = Counter()  # by the names of an instrument and of what it counts
        self._next_s = 0.0
        self._span: Any = None

    def start(self) -> None:
        for name, metric, of, number in self._numbers(self._life.reading()):
            if metric.counts:  # what earlier processes of the run have counted, they have reported
                self._reported[name, of] = number
        self._span = self._tracer.start_span(f"drift run {self._life.run.dataflow.name}", attributes=self._attributes)

    def take(self) -> None:
        """Called after each released batch; updates the counters once a second."""
        now_s = time.monotonic()
        if now_s >= self._next_s:
            self._next_s = now_s + _EVERY_S
            self._report(self._life.reading())

    def end(self, state: str, error: BaseException | None) -> None:
        """Called when the run has ended: updates the counters, and ends the span."""
        if self._span is None:
            return
        from opentelemetry.trace import Status, StatusCode

        reading = self._life.reading()
        self._report(reading._replace(progress=replace(reading.progress, unsettled=0)))  # nothing waits any more
        for name in ("drift.items.in", "drift.items.out"):
            self._span.set_attribute(name, self._reported[name, ""])
        self._span.set_attribute("drift.state", state)
        if error is not None and state == "failed":
            self._span.record_exception(error)
            self._span.set_status(Status(StatusCode.ERROR, type(error).__name__))
        self._span.end()
        self._span = None

    def _report(self, reading: Reading) -> None:
        for name, metric, of, number in self._numbers(reading):
            new = number - self._reported[name, of] if metric.adds_up else number
            self._reported[name, of] = number
            attributes = self._attributes | ({f"drift.{metric.label}": of} if metric.label else {})
            if not metric.adds_up:
                self._instruments[name].set(new, attributes)
            elif new:
                self._instruments[name].add(new, attributes)

    @staticmethod
    def _numbers(reading: Reading) -> Iterator[tuple[str, Metric, str, Any]]:
        """The metrics that have a value: the instrument, the entry, what it is of, the value."""
        for name, metric in named("otel"):
            value = metric.of(reading)
            for of, number in value.items() if metric.label else [("", value)]:
                if number is not None:
                    yield name, metric, of, number
