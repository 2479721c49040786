"""The form in order of joins of rows in columns.

Invariant: the rows that are stored are all in arrays, or all in the stage.

Why: nothing can come below a batch that is processed here, so a pair is never taken back. Timers of these joins only
drop rows, which the arrays do by themselves; a key that is handed back gets the timer that drops its last row.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, ClassVar

from drift.machines.in_order import InOrder, Shared
from drift.machines.keys import form_of_identity
from drift.machines.log import Keyed
from drift.machines.timers import Due
from drift.operators import Process, Timer
from drift_graph.item import Columns
from drift_graph.meta import BEGINNING, later_metas, varint
from drift_graph.metas import Metas, metas_of_children, times_of
from drift_graph.payloads import Rows


class JoiningRows(InOrder):
    """The form of a process whose function for items is a `drift.operators.JoinsRows`."""

    only_at_ends: ClassVar = False
    leaves_pages: ClassVar = True

    def __init__(self, process: Process, shared: Shared) -> None:
        self._join: Any = process.on_item
        self._shared, self._phase = shared, process.phase
        ranks = shared.ranks
        self._suffix, self._output = ranks[0], ranks[0] + ranks[-1]
        self._ending = ranks[2] + varint(0)
        self._arrays: Any = None  # a `Joined` once rows have come
        self._takes_over = True  # until states of the stage could not be columns
        self._last = BEGINNING  # the last meta of the rows so far

    def process(self, batch: Keyed) -> tuple[int, list[Columns]]:
        return 0, []

    def process_rows(self, metas: Metas, rows: Rows) -> tuple[int, list[Columns]]:
        if self._arrays is None:
            self._arrays = self._join.in_arrays()
        times = times_of(metas)
        found = self._arrays.keys_of(rows) if self._join.fits(times, rows.sides.tobytes()) else None  # type: ignore[attr-defined]
        if found is None:
            self.hand_back()
            return 0, []
        keys, sides = found
        self._shared.get([metas[-1]] * len(keys), keys)
        if not self._has_taken_over():
            return 0, []
        counts, pairs = self._arrays.pairs(rows.sides, times, sides)  # type: ignore[attr-defined]
        self._last = metas[-1]
        if gone := self._arrays.without_rows():
            self._shared.note_fired([self._last] * len(gone), gone)
        if pairs is None:
            return len(metas), []
        endings = [self._output + varint(index) for index in range(max(counts))]
        return len(metas), [Columns(metas_of_children(metas, counts, endings), pairs, None)]

    def _has_taken_over(self) -> bool:
        """Whether all states are in arrays; those of the stage are taken over, if they can be."""
        states, timers = self._shared.states, self._shared.timers
        if not states and timers.least is None:
            return True
        self._takes_over = self._takes_over and self._arrays.absorb(
            {key: self._join.entries_of(state) for key, state in states.items()}
        )
        if not self._takes_over:
            self.hand_back()
            return False
        for key in list(timers.by_key):
            timers.put(key, ())
        states.clear()
        return True

    def fire(self, bound: bytes, *, ended: bool) -> list[Columns]:
        return []

    def hand_back(self, keys: Iterable[Any] | None = None) -> None:
        if not self._arrays:
            return
        for key, (state, timers) in self._states_of(None):
            self._shared.states[key] = state
            for meta, timer in timers:
                self._shared.timers.set(key, Due(meta, timer, BEGINNING))
        self._arrays.clear()

    def entries(self, keys: Sequence[Any]) -> dict[Any, Any]:
        if not self._arrays:
            return {}
        return dict(self._states_of(keys))

    def _states_of(self, keys: Sequence[Any] | None) -> list[tuple[Any, tuple[Any, list[tuple[bytes, Timer]]]]]:
        """The state of each key that has rows, and its timer, if it has one."""
        found = []
        for key, entries in self._arrays.taken(keys).items():
            state, time = self._join.state_of(*entries)
            timers = []
            if time is not None:
                parent = self._last + self._suffix + form_of_identity(key)
                (meta,) = later_metas([parent], self._ending, time, self._phase)
                timers = [(meta, Timer(key, None))]
            found.append((key, (state, timers)))
        return found
