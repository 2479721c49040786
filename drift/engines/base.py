"""The interface between a run and its engine."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

from drift.engines.observed import Observed
from drift_barrier.barrier import Released
from drift_graph.meta import BEGINNING, END_OF_TIME, time_of

if TYPE_CHECKING:
    from drift.state.checkpoint import Checkpoint


@dataclass
class Progress:
    """How far a run has come, as far as the calling process knows.

    Attributes:
        minimal_bytes: minimal time as bytes that compare with metas; `minimal_time` and `reached` are for people.
        released_below: all output below it has been handed out; bytes as well.
        unsettled: input items whose output is not complete.
        fraction: the share of the input that has been read, 0 to 1; None if unknown.
        held_by: the source or worker that minimal time waits for, by name, or "".
        died: names of processes that died and were replaced, in order.
        fed_again: input items that were sent to the workers again after deaths.
        recoveries, recovering_s: number of completed recoveries, and the seconds they took.
        silent_since_s: if a source holds minimal time: when it last had items, on `time.monotonic`.
    """

    items_in: int = 0
    items_out: int = 0
    unsettled: int = 0
    tombstones: int = 0
    late_items: int = 0
    minimal_bytes: bytes = BEGINNING
    released_below: bytes = BEGINNING
    held_by: str = ""
    silent_since_s: float | None = None
    fraction: float | None = None
    refused_frames: int = 0
    died: list[str] = field(default_factory=list)
    recoveries: int = 0
    fed_again: int = 0
    recovering_s: float = 0.0
    peak_memory_bytes: dict[str, int] = field(default_factory=dict)

    @property
    def silent_s(self) -> float:
        """How long the source that holds minimal time has had no items, while items wait for it; else 0."""
        since_s = self.silent_since_s
        return max(time.monotonic() - since_s, 0.0) if since_s is not None and self.unsettled else 0.0

    @property
    def minimal_time(self) -> int | None:
        """All output before it is released: an int in the unit of the sources' times (numbers of items, milliseconds,
        or whatever the time function gives); None at the beginning and the end.
        """
        return time_of(self.minimal_bytes) if BEGINNING < self.minimal_bytes < END_OF_TIME else None

    @property
    def reached(self) -> str:
        """Minimal time in words: "the beginning", "time 1234" or "the end"."""
        if self.minimal_time is not None:
            return f"time {self.minimal_time}"
        return "the beginning" if self.minimal_bytes == BEGINNING else "the end"

    def resume(self, checkpoint: Checkpoint, items_in: int, late_items: int) -> None:
        """Begin at a checkpoint, so that nobody sees the numbers start at 0 and jump.

        Args:
            items_in, late_items: of the sources, as of what they read next.
        """
        self.items_in, self.late_items = items_in, late_items
        self.items_out, self.tombstones = checkpoint.output.position, checkpoint.tombstones
        self.minimal_bytes = self.released_below = checkpoint.at


#: Called with the operator of a call, and metas, payloads and answers of items.
OnAnswers = Callable[[str, Sequence[bytes], Sequence[Any], Sequence[Any]], None]


@runtime_checkable
class Asks(Protocol):
    """An engine that asks about the items at calls itself.

    Attributes:
        on_answers: called with all answers before output is released; None for nobody.
    """

    on_answers: OnAnswers | None


class Engine(Protocol):
    """Runs a dataflow; constructed with everything it needs, and always closed.

    Attributes:
        needs_items: set to False before `released` if only the digest is wanted; the engine may then omit batches.
    """

    needs_items: bool

    @property
    def progress(self) -> Progress:
        """How far the run has come."""

    def released(self) -> Iterator[Released]:
        """The output, batch by batch; an empty batch if there is nothing new for a while, so that the caller can act.

        Raises:
            DriftError: the run failed; everything released before stands.
        """

    def hexdigest(self) -> str:
        """Digest of the released items."""

    def blocks(self) -> list[bytes]:
        """Digests of the full blocks released."""

    def observed(self) -> Observed:
        """Report for a watched run; callable from any thread; each bar is reported once."""

    def close(self) -> None:
        """End every process and remove every file that the engine made; may be called twice."""
