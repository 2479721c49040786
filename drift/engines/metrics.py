"""What is counted about a run: one table for reports, the page, Prometheus and OpenTelemetry.

Invariant: a number has one name, one text and one way of being computed, whoever shows it; a metric is shown exactly
where its entry says so.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

from drift.engines.base import Progress
from drift.engines.observed import CheckpointState, Observed, SourceState
from drift_graph.meta import BEGINNING, END_OF_TIME, time_of

Label = str  # "", or what each value is of: "source", "sink", "operator", "process", or "died", a process that did


class Reading(NamedTuple):
    """A run at one moment.

    Attributes:
        state: "waiting", "running", "finished", "stopped" or "failed".
        seconds: since the run began.
        clock_ms: since 1970.
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
    clock_ms: int = 0
    checkpoints: CheckpointState | None = None

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
        of: its value, None if there is none now; for a label, the value of each name that has one.
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

    @property
    def adds_up(self) -> bool:
        """Whether its values of several runs make a sum."""
        return self.counts or self.unit == _ITEMS

    def shown(self, reading: Reading) -> Any:
        """The metric's value as the page and Prometheus have it; a dict for a label."""
        value = self.of(reading)
        if self.label:
            return {name: self._rounded(each) for name, each in value.items()}
        return self._rounded(value)

    def _rounded(self, value: Any) -> Any:
        return value if self.digits is None or value is None else round(value, self.digits)


def _since(reading: Reading, since_s: float | None) -> float:
    return max(reading.now_s - since_s, 0.0) if since_s is not None else 0.0


def _lag_s(reading: Reading, below: bytes) -> float | None:
    """How far a time is behind the clock, in seconds; None if it is no time in milliseconds since 1970."""
    if reading.has_ended or not BEGINNING < below < END_OF_TIME:
        return None
    time_ms = time_of(below)
    return (reading.clock_ms - time_ms) / 1000 if _DATES_FROM_MS <= time_ms < _DATES_TO_MS else None


def _lags(reading: Reading) -> dict[str, float]:
    lags = {each.name: _lag_s(reading, each.heartbeat) for each in reading.sources if each.silent_since_s is not None}
    return {name: lag for name, lag in lags.items() if lag is not None}


def _backlogs(reading: Reading, unit: str) -> dict[str, int]:
    known = ((each.name, each.backlog) for each in reading.sources)
    return {name: backlog[0] for name, backlog in known if backlog is not None and backlog[1] == unit}


def _checkpoint_age_s(reading: Reading) -> float | None:
    taken = reading.checkpoints
    return (reading.clock_ms - taken.taken_ms) / 1000 if taken is not None and taken.taken_ms else None


_ITEMS = "{item}"
#: From 2001 to 2286: times below are counted in another unit, or number items.
_DATES_FROM_MS, _DATES_TO_MS = 10**12, 10**13

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
        report="refused_frames", page="refused_frames", prometheus="drift_refused_frames", otel="drift.refused_frames",
    ),
    Metric(
        "{process}", "Processes that died and were replaced.", lambda now: tuple(now.progress.died),
        report="died", page="died",
    ),
    Metric(
        "{process}", "Deaths of a process, which was replaced.", lambda now: Counter(now.progress.died),
        label="died", prometheus="drift_deaths", otel="drift.deaths",
    ),
    Metric(
        "{recovery}", "Completed recoveries.", lambda now: now.progress.recoveries,
        report="recoveries", page="recoveries", prometheus="drift_recoveries", otel="drift.recoveries",
    ),
    Metric(
        _ITEMS, "Items sent again after deaths.", lambda now: now.progress.fed_again,
        report="fed_again", page="fed_again", prometheus="drift_fed_again_items", otel="drift.items.fed_again",
    ),
    Metric(
        "s", "Time of all recoveries.", lambda now: now.progress.recovering_s,
        report="recovering_s", page="recovering_s", prometheus="drift_recovering_seconds", otel="drift.recovering",
    ),
    Metric(
        "s", "Event time up to which all is released, behind the clock; of times in milliseconds since 1970.",
        lambda now: _lag_s(now, now.progress.minimal_bytes), counts=False,
        page="lag_s", prometheus="drift_lag_seconds", otel="drift.lag", digits=3,
    ),
    Metric(
        "{checkpoint}", "Checkpoints written.",
        lambda now: now.checkpoints.written if now.checkpoints is not None else None,
        page="checkpoints", prometheus="drift_checkpoints", otel="drift.checkpoints",
    ),
    Metric(
        "s", "Since the last checkpoint was taken.", _checkpoint_age_s, counts=False,
        page="checkpoint_age_s", prometheus="drift_checkpoint_age_seconds", otel="drift.checkpoint.age", digits=3,
    ),
    Metric(
        "By", "Size of the last checkpoint: the states that had changed.",
        lambda now: now.checkpoints.size_bytes if now.checkpoints is not None else None, counts=False,
        page="checkpoint_bytes", prometheus="drift_checkpoint_bytes", otel="drift.checkpoint.size",
    ),
    Metric(
        "s", "Time that writing the last checkpoint took.",
        lambda now: now.checkpoints.seconds if now.checkpoints is not None else None, counts=False,
        page="checkpoint_s", prometheus="drift_checkpoint_seconds", otel="drift.checkpoint.duration", digits=4,
    ),
    Metric(
        "s", "How long the source that holds minimal time gave nothing.",
        lambda now: 0.0 if now.has_ended else now.progress.silent_s, counts=False,
        page="silent_s", prometheus="drift_silent_seconds", otel="drift.silent", digits=1,
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
        label="source", page="items", prometheus="drift_source_items", otel="drift.source.items",
    ),
    Metric(
        _ITEMS, "Of a source, diverted.", lambda now: {each.name: each.late_items for each in now.sources},
        label="source", page="late", prometheus="drift_source_late_items", otel="drift.source.items.late",
    ),
    Metric(
        "s", "Since a source gave something.",
        lambda now: {each.name: _since(now, each.silent_since_s) for each in now.sources}, counts=False,
        label="source", page="silent_s", prometheus="drift_source_silent_seconds", otel="drift.source.silent", digits=1,
    ),
    Metric(
        "s", "Event time below which a source gives nothing more, behind the clock.", _lags, counts=False,
        label="source", page="lag_s", prometheus="drift_source_lag_seconds", otel="drift.source.lag", digits=3,
    ),
    Metric(
        _ITEMS, "Items that a source has left to read, where it knows.", partial(_backlogs, unit=_ITEMS), counts=False,
        label="source", page="backlog_items", prometheus="drift_source_backlog_items", otel="drift.source.left.items",
    ),
    Metric(
        "By", "Bytes that a source has left to read, where it knows.", partial(_backlogs, unit="By"), counts=False,
        label="source", page="backlog_bytes", prometheus="drift_source_backlog_bytes", otel="drift.source.left.bytes",
    ),
    Metric(
        _ITEMS, "Items released to a sink.", lambda now: dict(now.sinks),
        label="sink", page="items", prometheus="drift_sink_items",
    ),
    Metric(
        _ITEMS, "Items and tombstones that left an operator.",
        lambda now: {name: left.items for name, left in now.observed.counts.items()},
        label="operator", page="items", prometheus="drift_operator_items", otel="drift.operator.items",
    ),
    Metric(
        "By", "About how many bytes left an operator.",
        lambda now: {name: left.size_bytes for name, left in now.observed.counts.items()},
        label="operator", page="bytes", prometheus="drift_operator_bytes", otel="drift.operator.bytes",
    ),
    Metric(
        _ITEMS, "Tombstones that left an operator.",
        lambda now: {name: left.tombstones for name, left in now.observed.counts.items()},
        label="operator", page="tombstones", prometheus="drift_operator_tombstones", otel="drift.operator.tombstones",
    ),
    Metric(
        "s", "For how long an operator was at work, in all processes; of a loop all of it is with its last operator.",
        lambda now: {name: left.busy_s for name, left in now.observed.counts.items()},
        label="operator", page="busy_s", prometheus="drift_operator_busy_seconds", otel="drift.operator.busy", digits=4,
    ),
    Metric(
        "By", "Resident memory.",
        lambda now: {each.name: each.memory_bytes for each in now.observed.processes}, counts=False,
        label="process", page="memory_bytes", prometheus="drift_process_memory_bytes", otel="drift.process.memory",
    ),
    Metric(
        "s", "Processor time.", lambda now: {each.name: each.cpu_s for each in now.observed.processes},
        label="process", page="cpu_s", prometheus="drift_process_cpu_seconds", otel="drift.process.cpu", digits=3,
    ),
)  # fmt: skip


def reported(reading: Reading) -> dict[str, Any]:
    return {metric.report: metric.of(reading) for metric in METRICS if metric.report}


def on_page(reading: Reading, label: Label = "") -> dict[str, Any]:
    """The numbers of the page: of the run; or with a label, by name those of each."""
    shown = {metric.page: metric.shown(reading) for metric in METRICS if metric.page and metric.label == label}
    if not label:
        return shown
    return {name: {page: values.get(name) for page, values in shown.items()} for name in next(iter(shown.values()))}


def named(system: str) -> Iterator[tuple[str, Metric]]:
    """The metrics that a system ("prometheus" or "otel") is given, by its names for them."""
    return ((name, metric) for metric in METRICS if (name := getattr(metric, system)))
