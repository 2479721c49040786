"""Stages whose states are in arrays where items come so, and key by key elsewhere: slices that are merged into sliding
windows, and rows that prolong sessions.

Invariant: its states and timers are all in arrays, or all in the keyed machine that it extends; outputs and metas are
those of that machine.

Why: nothing can come below what is in arrays. What is not sure there, and what asks for states of another time, finds
them where the keyed machine has them.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from drift.machines.checkpoints import DELETED, Entries
from drift.machines.keyed import KeyedStage, Place
from drift.machines.logics import Logic
from drift.machines.maps import Ports
from drift_graph.item import Columns, joined
from drift_graph.metas import with_suffix
from drift_graph.payloads import are_rows, have_fields


class MergingStage(KeyedStage):
    """See `KeyedStage`.

    Args:
        merges: the process's function for slices, a `MergesSlices`.
    """

    def __init__(self, logic: Logic, place: Place, merges: Any) -> None:
        super().__init__(logic, place)
        self._merges = merges
        self._merging: Any = None  # a `Merging`, or `Sessions`, once something in arrays has come

    def process(self, columns: Columns, ports: Ports) -> Columns:
        metas, slices, diffs = columns
        if self._merging is not None and len(self._merging) and diffs is None and not are_rows(slices) and metas:
            columns = Columns(metas, self._merging.in_arrays(slices) or slices, None)
            slices = columns.payloads
        if not self._takes(columns):
            self._make_objects()
            return super().process(columns, ports)
        assert are_rows(slices)
        self.get(metas, slices.keys)  # type: ignore[attr-defined]
        made: list[Columns] = []
        for start, stop in self._merging.stretches(slices):
            made.append(self._fire_arrays(metas[start]))
            least = self._merging.least
            if least is not None and least < metas[start]:
                self._make_objects()
                made.append(super().process(columns.slice(start, len(metas)), ports))
                break
            self._merging.add(metas[start:stop], slices[start:stop])
        return _joined(made)

    def _takes(self, columns: Columns) -> bool:
        """Whether slices can be added in arrays."""
        metas, slices, diffs = columns
        if not metas or diffs is not None or not are_rows(slices) or metas[-1] >= self.complete_below:
            return False
        if not self._has_no_objects:
            return False
        if self._merging is None:
            timers = self._group_suffix, self._first_timer, self._logic.phase
            self._merging = self._merges.merging(slices, timers)
        return self._merging is not None and bool(self._merging.takes(slices))

    @property
    def _has_no_objects(self) -> bool:
        """Whether nothing is in the keyed machine."""
        no_states = not self._states and not self._debts and not self._blocked and self._paged is None
        return no_states and super().least_timer is None

    def _fire_arrays(self, bound: bytes) -> Columns:
        timers, keys, windows = self._merging.fire(bound)
        if self._touched is not None:
            self._touched.note(timers, keys)
        return Columns(with_suffix(timers, self._output_suffixes[0]), windows, None)

    def fire(self, ports: Ports) -> Columns:
        if self._merging is None:
            return super().fire(ports)
        made = self._fire_arrays(min(self.heartbeat, self.complete_below))
        if self.is_due:
            self._make_objects()
            return _joined([made, super().fire(ports)])
        return made

    def _make_objects(self) -> None:
        if self._merging is not None:
            super().put(self._merging.take())

    @property
    def least_timer(self) -> bytes | None:
        return (self._merging.least if self._merging is not None else None) or super().least_timer

    @property
    def is_due(self) -> bool:
        least = self.least_timer
        return least is not None and least < self.heartbeat

    def as_of(self, checkpoint: bytes, keys: Sequence[Any]) -> Entries:
        if self._merging is not None and self._has_no_objects and self._merging.is_below(checkpoint):
            states = dict(self._merging.entries())
            return Entries.of((key, states.get(key, DELETED)) for key in keys)
        self._make_objects()
        return super().as_of(checkpoint, keys)

    def rewind(self, checkpoint: bytes) -> None:
        self._make_objects()
        super().rewind(checkpoint)

    def put(self, entries: Iterable[tuple[Any, Any]]) -> None:
        entries = list(entries)
        if entries:
            self._make_objects()
            super().put(entries)

    @property
    def held(self) -> int:
        return super().held + (len(self._merging) if self._merging is not None else 0)


class SessionStage(MergingStage):
    """The same for sessions: `merges` is a `ProlongsWindows`."""

    def process(self, columns: Columns, ports: Ports) -> Columns:
        made = self._added(columns)
        if made is not None:
            return made
        self._make_objects()
        return KeyedStage.process(self, columns, ports)

    def _added(self, columns: Columns) -> Columns | None:
        """What rows give that were added in arrays; None where that is not possible."""
        metas, rows, diffs = columns
        if not metas or diffs is not None or not have_fields(rows) or metas[-1] >= self.complete_below:
            return None
        if self._merging is None:
            self._merging = self._merges.sessions((self._group_suffix, self._first_timer, self._logic.phase))
        batch = self._merging.batch(metas, rows) if self._merging is not None else None
        if batch is None:
            return None
        self._settle_complete(metas[0])
        self.get([metas[-1]] * len(batch.keys), batch.keys)
        if not self._has_no_objects and not self._is_absorbed(batch.metas.shared):
            return None
        made = self._merging.add(batch)
        return None if made is None else Columns(with_suffix(made[0], self._output_suffixes[0]), made[1], None)

    def _is_absorbed(self, shared: tuple[bytes, bytes]) -> bool:
        """Whether all states and timers are in arrays now; before, they were in the keyed machine."""
        timers = self._timers
        if self._debts or self._blocked or self._paged is not None or len(self._log) or self._histories:
            return False
        if len(self._merging) or timers.by_key.keys() != self._states.keys():
            return False
        entries = [
            (key, (state, [(due.meta, due.timer) for due in timers.by_key[key]])) for key, state in self._states.items()
        ]
        if not self._merging.absorb(shared, entries):
            return False
        self._states.clear()
        timers.by_key.clear()
        timers.upcoming.clear()
        return True

    def _fire_arrays(self, bound: bytes) -> Columns:
        timers, keys, windows, again = self._merging.fire(bound)
        if self._touched is not None:
            self._touched.note(timers, keys)
            for timer, key in again:
                self._touched.note_one(timer, key)
        return Columns(with_suffix(timers, self._output_suffixes[0]), windows, None)


def _joined(made: Sequence[Columns]) -> Columns:
    filled = [columns for columns in made if columns.metas]
    return joined(filled) if len(filled) != 1 else filled[0]
