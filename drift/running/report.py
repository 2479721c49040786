"""What a run did."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields

from drift.state.run_checkpoints import Held


@dataclass(frozen=True)
class Report:
    """The results and costs of a run.

    Attributes:
        digest: of the output released; equal for equal output. "" if there is none: nothing ran, or a zeromq run is
            still running, was left before its end, or lost a process.
        items_in, items_out: read from all sources, released to all sinks; if the run resumed from a checkpoint, by all
            runs since the beginning.
        items_before: of `items_in`, those of the runs before the checkpoint that this one resumed from.
        tombstones: outputs that groupings cancelled before release.
        late_items: diverted, by the time policy or to a sink of their own.
        sinks: items released to each sink, also those of late items and of errors; as `items_out`.
        seconds: wall clock, start to end.
        peak_memory_bytes: resident, the sum over all processes of the run.
        refused_frames: malformed or foreign messages that were refused (zeromq).
        guarantee: how often each item of the output is in the sinks, whatever dies, and which source or sink limits it;
            "" for replays.
        died: processes of the run that died and were replaced, in order (zeromq, with recover).
        held: what a run with state that has paused, or was stopped, holds for the call that goes on; else None.
        recoveries, fed_again, recovering_s: number of recoveries, input items that were processed again for them, and
            their total time in seconds.
    """

    graph: str
    engine: str
    workers: int
    digest: str
    items_in: int
    items_out: int
    tombstones: int
    late_items: int
    seconds: float
    peak_memory_bytes: int
    refused_frames: int
    guarantee: str = ""
    died: tuple[str, ...] = ()
    recoveries: int = 0
    fed_again: int = 0
    recovering_s: float = 0.0
    items_before: int = 0
    sinks: Mapping[str, int] = field(default_factory=dict)
    held: Held | None = None

    @property
    def items_per_second(self) -> float:
        """Items that this run has read, by wall clock."""
        return max(self.items_in - self.items_before, 0) / self.seconds if self.seconds else 0.0

    def __str__(self) -> str:
        """A line for each attribute that has something to say."""
        values = {each.name: getattr(self, each.name) for each in fields(self)}
        return "\n".join(f"{name:<18} {value}" for name, value in values.items() if value or name.startswith("items"))

    def _repr_html_(self) -> str:
        """A table, which notebooks show."""
        from drift.running.notebook import report_html

        return report_html(self)
