"""A run's numbers for Prometheus, in its text format; the names are stable."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from drift.engines.metrics import Reading, named

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"


def as_text(graph: str, reading: Reading) -> bytes:
    """One reading of a run, in Prometheus' text format."""
    from prometheus_client import CollectorRegistry, generate_latest

    registry = CollectorRegistry()
    registry.register(_Collector(graph, reading))  # type: ignore[arg-type, unused-ignore]
    return bytes(generate_latest(registry))


class _Collector:
    """The metric families of one reading."""

    def __init__(self, graph: str, reading: Reading) -> None:
        self._graph = graph
        self._reading = reading

    def describe(self) -> list[Any]:
        return []

    def collect(self) -> Iterator[Any]:
        from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily

        for name, metric in named("prometheus"):
            make: Any = CounterMetricFamily if metric.counts else GaugeMetricFamily
            family = make(name, metric.text, labels=["graph", *filter(None, [metric.label])])
            value = metric.shown(self._reading)
            for key, number in value.items() if metric.label else [("", value)]:
                if number is not None:
                    family.add_metric([self._graph, *([key] if metric.label else [])], number)
            yield family
