"""What is counted about a run: one table for reports, the page, Prometheus and OpenTelemetry.

Invariant: a number has one name, one text and one way of being computed, whoever shows it; a metric is shown exactly
where its entry says so.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from drift.engines.base import Progress
from drift.engines.observed import Observed, SourceState

Label = str  # "", or what each value is of: "source", "sink", "operator" or "process"


class Reading(NamedTuple):
    """A run at one moment.

    Attributes:
        state: "waiting", "running", "finished", "stopped" or "failed".
        seconds: since the run began.
        now_s: on `time.monotonic`.
        diverted: items that a source or a step could not process.
        memory_bytes: resident, the peak of all processes together.
        sinks: items released to each.
    """

    progress: Progress
    state: str
    seconds: float
    now_s: float = 0.0
    diverted: int = 0
    memory_bytes: int = 0
    observed: Observed = Observed({}, [], [], {})
    sources: Sequence[SourceState] = ()
    sinks: Mapping[str, int] = {}

    @property
    def has_ended(self) -> bool:
        """Whether nothing more comes."""
        return self.state not in ("waiting", "running")


@dataclass(frozen=True)
class Metric:
    """One entry of the table.

    Attributes:
        unit: in UCUM, as OpenTelemetry has it: "{item}", "s", "By", "" for none.
        text: what it is, for people.
        of: its value; for a label, the value of each name.
        counts: whether it only grows.
        report, page, prometheus, otel: its name in `Report`, in status.json, for Prometheus (without "_total") and for
            OpenTelemetry; "" if it is not shown there.
        digits: after the decimal point, on the page and for Prometheus.
    """

    unit: str
    text: str
    of: Callable[[Reading], Any]
    counts: bool = True
    label: Label = ""
    report: str = ""
    page: str = ""
    prometheus: str = ""
    otel: str = ""
    digits: int | None = None

    def shown(self, reading: Reading) -> Any:
        """Its value as the page and Prometheus have it; a dict for a label."""
        value = self.of(reading)
        if self.label:
            return {name: self._rounded(each) for name, each in value.items()}
        return self._rounded(value)

    def _rounded(self, value: Any) -> Any:
        return value if self.digits is None else round(value, self.digits)


def _since(reading: Reading, since_s: float | None) -> float:
    return max(reading.now_s - since_s, 0.0) if since_s is not None else 0.0


_ITEMS = "{item}"

METRICS: tuple[Metric, ...] = (
    Metric(
        _ITEMS, "Items read from all sources.", lambda now: now.progress.items_in,
        report="items_in", page="items_in", prometheus="drift_items_in", otel="drift.items.in",
    ),
    Metric(
        _ITEMS, "Items released to all sinks.", lambda now: now.progress.items_out,
        report="items_out", page="items_out", prometheus="drift_items_out", otel="drift.items.out",
    ),
    Metric(
        _ITEMS, "Items retracted by groupings before release.", lambda now: now.progress.tombstones,
        report="tombstones", page="tombstones", prometheus="drift_tombstones", otel="drift.tombstones",
    ),
    Metric(
        _ITEMS, "Items that came too late and were diverted.", lambda now: now.progress.late_items,
        report="late_items", page="late", prometheus="drift_late_items", otel="drift.items.late",
    ),
    Metric(
        _ITEMS, "Items that a source or a step could not process, diverted.", lambda now: now.diverted,
        page="diverted", prometheus="drift_diverted_items", otel="drift.items.diverted",
    ),
    Metric(
        _ITEMS, "Items read whose output is not complete.", lambda now: now.progress.unsettled, counts=False,
        page="unsettled", prometheus="drift_unsettled_items", otel="drift.items.unsettled",
    ),
    Metric(
        "s", "Since the run began.", lambda now: now.seconds, counts=False,
        report="seconds", page="seconds", prometheus="drift_run_seconds", digits=3,
    ),
    Metric("By", "Resident memory, the peak.", lambda now: now.memory_bytes, report="peak_memory_bytes", counts=False),
    Metric(
        "{frame}", "Malformed or foreign messages that were not taken.", lambda now: now.progress.refused_frames,
        report="refused_frames", page="refused_frames", prometheus="drift_refused_frames",
    ),
    Metric("{process}", "Processes that died and were replaced.", lambda now: tuple(now.progress.died), report="died"),
    Metric("{recovery}", "Completed recoveries.", lambda now: now.progress.recoveries, report="recoveries"),
    Metric(_ITEMS, "Items sent again after deaths.", lambda now: now.progress.fed_again, report="fed_again"),
    Metric("s", "Time of all recoveries.", lambda now: now.progress.recovering_s, report="recovering_s"),
    Metric(
        "s", "How long the source that holds minimal time gave nothing.",
        lambda now: 0.0 if now.has_ended else now.progress.silent_s, counts=False,
        page="silent_s", prometheus="drift_silent_seconds", digits=1,
    ),
    Metric(
        "", "1 while the run is running.", lambda now: float(now.state == "running"), counts=False,
        prometheus="drift_running",
    ),
    Metric(
        "", "Who holds minimal time back.",
        lambda now: {now.progress.held_by: 1.0} if now.progress.held_by and not now.has_ended else {}, counts=False,
        label="holder", prometheus="drift_held_by",
    ),
    Metric(
        _ITEMS, "Items of a source.", lambda now: {each.name: each.items for each in now.sources},
        label="source", page="items", prometheus="drift_source_items",
    ),
    Metric(
        _ITEMS, "Of a source, diverted.", lambda now: {each.name: each.late_items for each in now.sources},
        label="source", page="late", prometheus="drift_source_late_items",
    ),
    Metric(
        "s", "Since a source gave something.",
        lambda now: {each.name: _since(now, each.silent_since_s) for each in now.sources}, counts=False,
        label="source", page="silent_s", prometheus="drift_source_silent_seconds", digits=1,
    ),
    Metric(
        _ITEMS, "Items released to a sink.", lambda now: dict(now.sinks),
        label="sink", page="items", prometheus="drift_sink_items",
    ),
    Metric(
        _ITEMS, "Items and tombstones that left an operator.",
        lambda now: {name: counts[0] for name, counts in now.observed.counts.items()},
        label="operator", page="items", prometheus="drift_operator_items", otel="drift.operator.items",
    ),
    Metric(
        "By", "About how many bytes left an operator.",
        lambda now: {name: counts[1] for name, counts in now.observed.counts.items()},
        label="operator", page="bytes", prometheus="drift_operator_bytes",
    ),
    Metric(
        _ITEMS, "Tombstones that left an operator.",
        lambda now: {name: counts[2] for name, counts in now.observed.counts.items()},
        label="operator", page="tombstones", prometheus="drift_operator_tombstones",
    ),
    Metric(
        "By", "Resident memory.",
        lambda now: {each.name: each.memory_bytes for each in now.observed.processes}, counts=False,
        label="process", page="memory_bytes", prometheus="drift_process_memory_bytes",
    ),
    Metric(
        "s", "Processor time.", lambda now: {each.name: each.cpu_s for each in now.observed.processes},
        label="process", page="cpu_s", prometheus="drift_process_cpu_seconds", digits=3,
    ),
)  # fmt: skip


def reported(reading: Reading) -> dict[str, Any]:
    """The numbers of a `Report`."""
    return {metric.report: metric.of(reading) for metric in METRICS if metric.report}


def on_page(reading: Reading, label: Label = "") -> dict[str, Any]:
    """The numbers of the page: of the run; or with a label, by name those of each."""
    shown = {metric.page: metric.shown(reading) for metric in METRICS if metric.page and metric.label == label}
    if not label:
        return shown
    return {name: {page: values[name] for page, values in shown.items()} for name in next(iter(shown.values()))}


def named(system: str) -> Iterator[tuple[str, Metric]]:
    """The metrics that a system ("prometheus" or "otel") is given, by its names for them."""
    return ((name, metric) for metric in METRICS if (name := getattr(metric, system)))
