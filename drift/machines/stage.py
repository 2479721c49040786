"""The interface between a worker and the machine of a grouping, fused or not."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Protocol

from drift.machines.checkpoints import Entries, Lookup
from drift.machines.maps import Ports
from drift_graph.item import Columns


class Stage(Protocol):
    """The machine of one grouping on one worker; its keyed state is a `KeyedState`.

    Attributes:
        suffix: the bytes that the metas of its output still lack.
        complete_below: all items below it have come with this call, so nothing below it is ever taken back.
        is_timed: whether it is a `TimedStage`.
        only_at_ends: whether it needs no item before the heartbeat has passed it; see `drift.machines.logics.Logic`.
        has_columns: whether it has a form for rows in columns, where nothing can come below them.
        form: names the form of its states in stored checkpoints.
    """

    form: str

    complete_below: bytes
    is_timed: bool
    has_columns: bool

    @property
    def only_at_ends(self) -> bool: ...

    @property
    def suffix(self) -> bytes: ...

    def process(self, columns: Columns, ports: Ports) -> Columns:
        """Process a batch sorted by meta; returns the outputs to send, with tombstones."""

    def settle(self, minimal_time: bytes) -> None:
        """Drop what is only needed for changes below minimal time, since there will be none."""

    def track(self, *, tracks: bool = True) -> None: ...
    def changed(self, checkpoint: bytes) -> Entries: ...
    def rewind(self, checkpoint: bytes) -> None: ...
    def restore(self, entries: Iterable[tuple[Any, Any]], lookup: Lookup | None = None) -> None: ...
    def page(self, lookup: Lookup) -> None: ...
    def drop(self, keys_at_once: int, *, recent: bool) -> Iterator[Entries]: ...

    @property
    def pages(self) -> Mapping[Any, Any]:
        """The states in memory that may be dropped, by key."""

    @property
    def held(self) -> int:
        """How many items are unsettled, and tombstones wait for their items."""


class TimedStage(Stage, Protocol):
    """A stage with timers of its own.

    Attributes:
        heartbeat: timers below it fire: all sources are past it, and in an iteration all items of its round.
        ended: whether all input has ended.
        fired: how many timers the last `fire` fired one by one.
    """

    heartbeat: bytes
    ended: bool

    @property
    def fired(self) -> int: ...

    def fire(self, ports: Ports, most: int = sys.maxsize) -> Columns:
        """Fire the timers below the heartbeat, the first ones first; returns their outputs.

        Args:
            most: about as many as are to fire now, where they fire one by one; the others stay due.
        """

    @property
    def least_timer(self) -> bytes | None:
        """The meta of the first timer that has not fired, or a lower one."""

    @property
    def is_due(self) -> bool:
        """Whether any timer is below the heartbeat."""
