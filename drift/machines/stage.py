"""What a worker asks of the machine of a grouping, fused or not."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Protocol

from drift.machines.maps import Ports
from drift_graph.item import Columns


class Stage(Protocol):
    """The machine of one grouping on one worker.

    Attributes:
        suffix: what the metas of its output lack.
    """

    @property
    def suffix(self) -> bytes: ...

    def process(self, columns: Columns, ports: Ports) -> Columns:
        """Take a batch sorted by meta; what to send and take back."""

    def settle(self, minimal_time: bytes) -> None:
        """Nothing below minimal time will change any more: forget what only a change there would need."""

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
        heartbeat: what all sources are past: timers below it come.
    """

    heartbeat: bytes

    def fire(self, ports: Ports) -> Columns:
        """Timers below the heartbeat come; what they give."""

    @property
    def least_timer(self) -> bytes | None:
        """The meta of the first timer that has not come, or one before it."""

    @property
    def is_due(self) -> bool:
        """Whether timers are below the heartbeat."""
