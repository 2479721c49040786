"""What a worker asks of the machine of a grouping, fused or not."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Protocol

from drift.machines.cuts import Entries, Lookup
from drift.machines.maps import Ports
from drift_graph.item import Columns


class Stage(Protocol):
    """The machine of one grouping on one worker; what it keeps by key is a `KeyedState`.

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

    def track(self, *, tracks: bool = True) -> None: ...
    def changed(self, cut: bytes) -> Entries: ...
    def rewind(self, cut: bytes) -> None: ...
    def restore(self, entries: Iterable[tuple[Any, Any]], lookup: Lookup | None = None) -> None: ...

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
