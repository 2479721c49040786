"""The forms in order of joins of rows in columns, and of rows that are rolled over.

Invariant: the rows that are stored are all in arrays, or all in the stage.

Why: nothing can come below a batch that is processed here, so a pair is never taken back. Timers that only drop rows
are not set here, since the arrays drop them by themselves; a key that is handed back gets the one that drops its last
row.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from operator import itemgetter
from typing import Any, ClassVar

from drift.machines.in_order import InOrder, Shared, unless_it_raises
from drift.machines.keys import form_of_identity
from drift.machines.timers import Due
from drift.operators import JoinsRows, Process, Timer
from drift_graph.item import Columns
from drift_graph.meta import (
    END_OF_TIME,
    FIRST_OF_MOMENT,
    LATER_MARK,
    pack_time,
    time_of,
    varint,
)
from drift_graph.metas import Metas
from drift_kernel import kernel

_State = tuple[Any, list[tuple[bytes, Timer]]]


class _RowsByKey(InOrder):
    """What the forms have in common."""

    only_at_ends: ClassVar = False
    has_columns: ClassVar = True

    def __init__(self, process: Process, shared: Shared) -> None:
        assert isinstance(process.on_item, JoinsRows)
        self._join, self._shared, self._phase = process.on_item, shared, process.phase
        suffix, _, of_timers, of_output = shared.ranks
        self._suffix, self._ending, self._output = suffix, of_timers + varint(0), suffix + of_output
        self._takes_over = True  # until states of the stage could not be columns

    def process_rows(self, metas: Metas, rows: Any) -> tuple[int, list[Columns]]:
        if self._arrays is None:
            self._arrays = self._join.in_arrays((self._suffix, self._ending, self._phase))
        times = metas.times()
        found = self._arrays.keys_of(rows) if self._join.fits(times, rows.sides.tobytes()) else None
        if found is None:  # of other fields, or keys in no columns: these rows meet those here in objects
            return 0, []
        keys, sides = found
        self._shared.get([metas[-1]] * len(keys), keys)
        if not self._has_taken_over():  # rows of these keys are in the stage, and are no columns
            return 0, []
        arrays = self._arrays
        arrays.last = arrays.last or metas[0]  # states that were taken over, of before a death, have no last row here
        self._keep()
        arrays.last = metas[-1]
        sent = self._add(metas, times, rows, sides)
        if gone := self._arrays.without_rows():
            self._shared.note_fired([metas[-1]] * len(gone), gone)
        return len(metas), sent

    def _add(self, metas: Metas, times: Sequence[int], rows: Any, sides: Any) -> list[Columns]:
        """Add rows to those in arrays; what they give."""
        raise NotImplementedError

    def _has_taken_over(self) -> bool:
        """Whether all states are in arrays; those of the stage are taken over, if they can be."""
        states, timers = self._shared.states, self._shared.timers
        if not states and not timers.by_key:  # what is taken again would replace what is here
            return True
        if not self._takes_over:
            return False
        absorbed = self._absorbed(states, timers.by_key)
        if absorbed != "done":
            self._takes_over = absorbed == "later"
            return False
        for key in list(timers.by_key):
            timers.put(key, ())
        states.clear()
        return True

    def _absorbed(self, states: Mapping[Any, Any], timers: Mapping[Any, Sequence[Due]]) -> str:
        """Store states of keys in the arrays: "done"; "later" or "never" if they cannot be stored there."""
        entries = {key: self._join.entries_of(state) for key, state in states.items()}
        absorbed: str = self._arrays.absorb(entries, {key: heap[0].meta for key, heap in timers.items()})
        return absorbed

    def hand_back(self) -> None:
        if self._arrays:
            self._shared.put(self._states_of(None))
            self._arrays.clear()

    def entries(self, keys: Sequence[Any]) -> dict[Any, Any]:
        return dict(self._states_of(keys)) if self._arrays else {}

    def _states_of(self, keys: Sequence[Any] | None) -> list[tuple[Any, _State]]:
        """The state of each of these keys that has rows, or of all, and its timers."""
        return [(key, self._state_of(key, left, right)) for key, (left, right) in self._arrays.taken(keys).items()]

    def _state_of(self, key: Any, left: Sequence[Any], right: Sequence[Any]) -> _State:
        state, time = self._join.state_of(left, right)
        if time is None:
            return state, []
        parent = self._arrays.last + self._suffix + form_of_identity(key)
        (meta,) = Metas([parent]).later(self._ending, time, self._phase)
        return state, [(meta, Timer(key, None))]


class JoiningRows(_RowsByKey):
    """The form of a process that joins rows with those that came before; its timers give nothing."""

    def _add(self, metas: Metas, times: Sequence[int], rows: Any, sides: Any) -> list[Columns]:
        counts, pairs = self._arrays.pairs(rows.sides, times, sides)
        if pairs is None:
            return []
        endings = [self._output + varint(index) for index in range(max(counts))]
        return [Columns(metas.children(counts, endings), pairs, None)]


class WaitingRows(_RowsByKey):
    """The form of a process whose rows of the left wait for all of their time."""

    def _add(self, metas: Metas, times: Sequence[int], rows: Any, sides: Any) -> list[Columns]:
        self._arrays.add(metas, rows.sides, times, sides)
        return self.fire(metas[-1], ended=False)  # so those that wait, and may be handed back, are of one time

    def fire(self, bound: bytes, *, ended: bool) -> list[Columns]:
        if not self._arrays or len(bound) < len(pack_time(0)):
            return []
        self._keep()
        time = time_of(bound)
        fired = self._arrays.fire(time if self._moment(time) + END_OF_TIME <= bound else time - 1, self._output, varint)
        if fired is None:
            return []
        self._shared.note_fired(fired.timers, fired.keys)
        return [] if fired.pairs is None else [Columns(fired.metas, fired.pairs, None)]

    def _moment(self, time: int) -> bytes:
        return pack_time(time) + bytes((LATER_MARK,)) + varint(0) + bytes((self._phase,))

    def _states_of(self, keys: Sequence[Any] | None) -> list[tuple[Any, _State]]:
        waits, stored = self._arrays.waits(keys), self._arrays.taken(keys)
        found = []
        for key in {**stored, **waits}:
            left, timer = waits.get(key, ((), b""))
            state, timers = self._state_of(key, left, stored[key][1] if key in stored else ())
            found.append((key, (state, [*([(timer, Timer(key, None))] if left else ()), *timers])))
        return found

    @property
    def least(self) -> bytes | None:
        time = self._arrays.least if self._arrays else None
        return None if time is None else self._moment(time) + FIRST_OF_MOMENT

    def __len__(self) -> int:
        return len(self._arrays) if self._arrays else 0


class RollingRows(WaitingRows):
    """The form of a process that gives rows with what they are rolled over; its rows are those of the left."""

    only_at_ends: ClassVar = True
    is_built: ClassVar = kernel is not None

    def __init__(self, process: Process, shared: Shared) -> None:
        super().__init__(process, shared)
        self._key = process.key

    def process_rows(self, metas: Metas, rows: Any) -> tuple[int, list[Columns]]:
        sided = self._join.sided(self._key, rows)  # type: ignore[attr-defined]
        return (0, []) if sided is None else super().process_rows(metas, sided)  # it is None of rows of other fields

    def _absorbed(self, states: Any, timers: Any) -> Any:
        return self._arrays.absorb_states(states, {key: [each.meta for each in heap] for key, heap in timers.items()})

    def fire(self, bound: bytes, *, ended: bool) -> list[Columns]:
        sent = unless_it_raises(partial(super().fire, bound, ended=ended))
        if sent is None:  # a function raised: timers fire one by one, where that is reported
            return []
        if self._arrays is not None and self._arrays.fired:
            metas, keys = zip(*sorted(self._arrays.fired, key=itemgetter(0)))
            self._arrays.fired = []
            self._shared.note_fired(metas, keys)
        return sent

    def _states_of(self, keys: Sequence[Any] | None) -> list[tuple[Any, _State]]:
        return [
            (key, (state, [(meta, Timer(key, None)) for meta in metas]))
            for key, (state, metas) in self._arrays.states(keys).items()
        ]
