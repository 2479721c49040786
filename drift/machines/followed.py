"""A stage that corrects nothing and whose worker may have to rewind: another one follows it, as of minimal time.

Invariant: the stage behind has got what the one ahead has got below a bound, which is no greater than minimal time;
what is above it waits here, in the order of its metas. Both give what any stage gives for their items.

Why: nothing comes below the items of the one ahead (`complete_below`), so nothing is corrected, and it logs nothing.
But a worker that survives another's death rewinds to minimal time, and a checkpoint is of minimal time. So the same
items run a second time, many at once: in a stage above whose items there is nothing, so that its states are those of a
checkpoint, and its keys those that changed. Where another process dies, a new stage takes these states. Rows in
columns, and windows in the kernel's loop, take so little that twice is less than what a log costs.

Where a stage gives outputs for items at once, those that are no rows are corrected as ever: whether the first are rows
decides it.
"""

from __future__ import annotations

import sys
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

from drift.machines.checkpoints import Entries, Lookup
from drift.machines.keyed import KeyedStage
from drift.machines.maps import Ports
from drift_graph.item import Columns, joined
from drift_graph.meta import BEGINNING
from drift_graph.payloads import are_rows

#: So many settled items wait before they run again, and twice as many as there are items behind.
_WAITING_MIN = 1 << 16


class Followed:
    """A `TimedStage`, and so a `Stage`; see the module. `make`: a new stage."""

    def __init__(self, make: Callable[[], KeyedStage]) -> None:
        self._make = make
        self._ahead = make()
        self._behind: KeyedStage | None = make()
        self._is_followed: bool | None = None  # before the first item None
        self._waiting: deque[tuple[Columns, bool]] = deque()  # what did not run behind; and whether the input had ended
        self._waiting_rows = 0
        self._complete_below = self._minimal_time = BEGINNING
        self.is_timed, self.has_columns, self.form = self._ahead.is_timed, self._ahead.has_columns, self._ahead.form
        self.suffix = self._ahead.suffix

    @property
    def only_at_ends(self) -> bool:
        """Once it is followed, all items wait."""
        return self._ahead.only_at_ends or bool(self._is_followed)

    @property
    def complete_below(self) -> bytes:
        return self._complete_below

    @complete_below.setter
    def complete_below(self, bound: bytes) -> None:
        self._complete_below = bound
        if self._is_followed:
            self._ahead.complete_below = bound

    @property
    def heartbeat(self) -> bytes:
        return self._ahead.heartbeat

    @heartbeat.setter
    def heartbeat(self, heartbeat: bytes) -> None:
        self._ahead.heartbeat = heartbeat

    @property
    def ended(self) -> bool:
        return self._ahead.ended

    @ended.setter
    def ended(self, ended: bool) -> None:
        self._ahead.ended = ended

    def process(self, columns: Columns, ports: Ports) -> Columns:
        if self._is_followed is None and columns.metas:
            self._decide(is_followed=self._ahead.only_at_ends or are_rows(columns.payloads))
        if self._is_followed and self._behind is not None and columns.metas:
            assert columns.diffs is None and columns.metas[-1] < self._complete_below
            self._waiting.append((columns, self.ended))
            self._waiting_rows += len(columns.metas)
        return self._ahead.process(columns, ports)

    def _decide(self, *, is_followed: bool) -> None:
        self._is_followed = is_followed
        if is_followed:
            self._ahead.track(tracks=False)
            self._ahead.complete_below = self._complete_below
        else:
            self._behind = None

    def fire(self, ports: Ports, most: int = sys.maxsize) -> Columns:
        return self._ahead.fire(ports, most)

    @property
    def fired(self) -> int:
        return self._ahead.fired

    @property
    def least_timer(self) -> bytes | None:
        return self._ahead.least_timer

    @property
    def is_due(self) -> bool:
        return self._ahead.is_due

    def _follow(self, behind: KeyedStage, bound: bytes) -> None:
        """Run again what is below a bound, which minimal time has reached."""
        while self._waiting and self._waiting[0][0].metas[0] < bound:
            ended = self._waiting[0][1]
            batches: list[Columns] = []
            while self._waiting and self._waiting[0][1] is ended and self._waiting[0][0].metas[0] < bound:
                columns, _ = self._waiting.popleft()
                below = columns.metas.count_below(bound)
                batches.append(columns.slice(0, below))
                if below < len(columns.metas):
                    self._waiting.appendleft((columns.slice(below, len(columns.metas)), ended))
            rows = joined(batches)
            self._waiting_rows -= len(rows.metas)
            behind.ended, behind.complete_below = ended, bound
            behind.process(rows, {})
        behind.heartbeat = behind.complete_below = bound
        behind.fire({})
        behind.settle(bound)

    def settle(self, minimal_time: bytes) -> None:
        self._ahead.settle(minimal_time)
        self._minimal_time = max(self._minimal_time, minimal_time)
        if self._behind is not None and self._waiting_rows > max(_WAITING_MIN, 2 * self._behind.held):
            self._follow(self._behind, self._minimal_time)

    def track(self, *, tracks: bool = True) -> None:
        self._ahead.track(tracks=tracks)
        if not tracks:
            self._behind, self._waiting_rows = None, 0
            self._waiting.clear()
        elif self._behind is not None:
            self._behind.track()

    def changed(self, checkpoint: bytes) -> Entries:
        if not self._is_followed or self._behind is None:
            return self._ahead.changed(checkpoint)
        self._follow(self._behind, checkpoint)
        return self._behind.changed(checkpoint)

    def rewind(self, checkpoint: bytes) -> None:
        if not self._is_followed or self._behind is None:
            self._ahead.rewind(checkpoint)
            return
        self._follow(self._behind, checkpoint)
        self._waiting.clear()
        self._waiting_rows = 0
        self._ahead = self._make()
        self._behind.copy_to(self._ahead)
        self._ahead.heartbeat = self.complete_below = checkpoint

    def restore(self, entries: Iterable[tuple[Any, Any]], lookup: Lookup | None = None) -> None:
        entries = list(entries)
        self._ahead.restore(entries, lookup)
        if self._behind is not None:
            self._behind.restore(entries, lookup)

    def page(self, lookup: Lookup) -> None:
        """Where states may not be in memory, items are corrected as ever."""
        self._ahead.page(lookup)
        if self._ahead.is_paged:
            self._decide(is_followed=False)

    def drop(self, keys_at_once: int, *, recent: bool) -> Iterator[Entries]:
        return self._ahead.drop(keys_at_once, recent=recent)

    @property
    def pages(self) -> Mapping[Any, Any]:
        return self._ahead.pages

    @property
    def held(self) -> int:
        return self._ahead.held
