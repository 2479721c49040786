"""What a worker asks of the machine of a grouping, fused or not."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Protocol

from drift.machines.cuts import Entries, Lookup
from drift.machines.maps import Ports
from drift_graph.item import Columns


class Stage(Protocol):
    """The machine of one grouping on one worker.

    Attributes:
        suffix: what the metas of its output lack.
        whole_below: what comes below it comes in this call at the latest, so that nothing there is ever taken back.
    """

    whole_below: bytes

    @property
    def suffix(self) -> bytes: ...

    def process(self, columns: Columns, ports: Ports) -> Columns:
        """Take a batch sorted by meta; what to send and take back."""

    def settle(self, minimal_time: bytes) -> None:
        """Nothing below minimal time will change any more: forget what only a change there would need."""

    def track(self) -> None:
        """Before any item: cuts will be taken of this stage."""

    def changed(self, cut: bytes) -> Entries:
        """The keys that have changed since the last cut, and what later items need of each as of this one, or GONE.

        Taken when minimal time has come to the cut, before the stage is told of a greater one.
        """

    def rewind(self, cut: bytes) -> None:
        """Forget all that is at or above a cut, which is not below the minimal time that was told last.

        The stage is then as one that was given what is below the cut, and nothing else.
        """

    def restore(self, entries: Iterable[tuple[Any, Any]], lookup: Lookup | None = None) -> None:
        """Go on, before any item, from a cut that had this of keys; of others `lookup` knows, and is asked once."""

    def remembered(self) -> list[tuple[Any, Any]]:
        """By key, what later items need once everything is settled."""

    def recall(self, remembered: Iterable[tuple[Any, Any]]) -> None:
        """Go on, before any item, where a machine ended that remembered this."""

    @property
    def held(self) -> int:
        """Items that are not settled, and tombstones that wait for theirs."""


class TimedStage(Stage, Protocol):
    """A stage with timers of its own.

    Attributes:
        heartbeat: timers below it come: all sources are past it, and in an iteration all items of its round.
        ended: whether all input has.
    """

    heartbeat: bytes
    ended: bool

    def fire(self, ports: Ports) -> Columns:
        """Timers below the heartbeat come; what they give."""

    @property
    def least_timer(self) -> bytes | None:
        """The meta of the first timer that has not come, or one before it."""

    @property
    def is_due(self) -> bool:
        """Whether timers are below the heartbeat."""
