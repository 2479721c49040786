"""A run's numbers for Prometheus, in its text format; the names are stable."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"


def as_text(numbers: dict[str, Any]) -> bytes:
    """One sample of the run's numbers, in Prometheus' text format."""
    from prometheus_client import CollectorRegistry, generate_latest

    registry = CollectorRegistry()
    registry.register(_Collector(numbers))  # type: ignore[arg-type, unused-ignore]
    return bytes(generate_latest(registry))


class _Collector:
    """The metric families of one sample."""

    def __init__(self, numbers: dict[str, Any]) -> None:
        self._numbers = numbers

    def describe(self) -> list[Any]:
        return []

    def collect(self) -> Iterator[Any]:
        from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily

        numbers = self._numbers

        def family(make: Any, name: str, text: str, label: str, values: dict[str, float]) -> Any:
            made = make(name, text, labels=["graph", label] if label else ["graph"])
            for key, value in values.items():
                made.add_metric([numbers["graph"], key] if label else [numbers["graph"]], value)
            return made

        counts: list[tuple[str, str, str]] = [
            ("drift_items_in", "Items read from all sources.", "items_in"),
            ("drift_items_out", "Items released to all sinks.", "items_out"),
            ("drift_tombstones", "Items retracted by groupings before release.", "tombstones"),
            ("drift_late_items", "Items that came too late and were diverted.", "late"),
            ("drift_diverted_items", "Items that a source or a step could not process, diverted.", "diverted"),
            ("drift_refused_frames", "Malformed or foreign messages that were not taken.", "refused_frames"),
        ]
        for name, text, key in counts:
            yield family(CounterMetricFamily, name, text, "", {"": numbers[key]})
        gauges: list[tuple[str, str, float]] = [
            ("drift_unsettled_items", "Items read whose output is not complete.", numbers["unsettled"]),
            ("drift_silent_seconds", "How long the source that holds minimal time gave nothing.", numbers["silent_s"]),
            ("drift_run_seconds", "Since the run began.", numbers["seconds"]),
            ("drift_running", "1 while the run is running.", float(numbers["state"] == "running")),
        ]
        for name, text, value in gauges:
            yield family(GaugeMetricFamily, name, text, "", {"": value})
        held = {numbers["held_by"]: 1.0} if numbers["held_by"] else {}
        yield family(GaugeMetricFamily, "drift_held_by", "Who holds minimal time back.", "holder", held)
        sources = {each["name"]: each for each in numbers["sources"]}
        for name, text, key in (
            ("drift_source_items", "Items of a source.", "items"),
            ("drift_source_late_items", "Of a source, diverted.", "late"),
        ):
            values = {source: each[key] for source, each in sources.items()}
            yield family(CounterMetricFamily, name, text, "source", values)
        silent = {source: each["silent_s"] for source, each in sources.items()}
        yield family(
            GaugeMetricFamily, "drift_source_silent_seconds", "Since a source gave something.", "source", silent
        )
        yield family(CounterMetricFamily, "drift_sink_items", "Items released to a sink.", "sink", numbers["sinks"])
        for name, text, key in (
            ("drift_operator_items", "Items and tombstones that left an operator.", "items"),
            ("drift_operator_bytes", "About how many bytes left an operator.", "bytes"),
            ("drift_operator_tombstones", "Tombstones that left an operator.", "tombstones"),
        ):
            values = {operator: each[key] for operator, each in numbers["operators"].items()}
            yield family(CounterMetricFamily, name, text, "operator", values)
        memory = {each["name"]: each["memory_bytes"] for each in numbers["processes"]}
        yield family(GaugeMetricFamily, "drift_process_memory_bytes", "Resident memory.", "process", memory)
        cpu = {each["name"]: each["cpu_s"] for each in numbers["processes"]}
        yield family(CounterMetricFamily, "drift_process_cpu_seconds", "Processor time.", "process", cpu)
