"""What a run did."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    pass


@dataclass(frozen=True)
class Report:
    """What a run did.

    Attributes:
        digest: of the output released; equal for equal output. "" where there is none: nothing ran, or over zeromq
            the run goes on, was left before its end, or lost a process.
        items_in, items_out: read from all sources, released to all sinks.
        tombstones: taken back by groupings before release.
        late_items: diverted.
        seconds: wall clock, start to end.
        peak_memory_bytes: resident, all processes of the run added.
        refused_frames: malformed or foreign messages that came and were not taken (zeromq).
        guarantee: how often each item of the output is in the sinks, whatever dies, and because of whom; "" of replays.
        died: processes of the run that died and were replaced, in order (zeromq, with recover).
        recoveries, fed_again, recovering_s: how often the run went back and was where it had been again, how many items
            of the input were given to the workers again for it, and how many seconds it took in all.
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

    @property
    def items_per_second(self) -> float:
        """Items in, by wall clock."""
        return self.items_in / self.seconds if self.seconds else 0.0
