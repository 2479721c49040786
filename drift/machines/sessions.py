"""Windows that each item prolongs, as sessions are, in order: the kernel's loop over a batch of objects or of rows.

Invariant: the outputs, states and timers are those of the process, timer by timer: what is done here is what its steps
would do, and what they would do otherwise (a function raises, a key has several timers) is left to them.

Why: such a process (`drift.operators.ProlongsWindows`) has one timer for each open window, and the timer either outputs
the window or only sets itself again at what is by then the window's end. If no item will come below a batch, nothing of
it is taken back: so a timer moves in place, and only when an item or the heartbeat is above it. Rows give the loop
numbers of keys and columns of values, objects a list of each; the windows are the same ones.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Sequence
from functools import partial
from typing import Any, ClassVar, NamedTuple

from drift.machines.in_order import InOrder, Shared, unless_it_raises, values_of
from drift.machines.log import Keyed
from drift.machines.undo import Before
from drift.operators import Process, ProlongsWindows, Timer
from drift_graph.functions import pass_interrupts
from drift_graph.item import Columns
from drift_graph.later import HOPS_MAX
from drift_graph.meta import END, FIRST_OF_MOMENT, LATER_MARK, hops_of, pack_time, time_of, varint
from drift_graph.metas import Integers, Metas
from drift_graph.payloads import Rows
from drift_graph.unchanged import Sample
from drift_kernel import kernel


class _Ended(NamedTuple):
    """Windows that have ended, with the metas of their timers, in order; and what a user's function was given."""

    cells: Integers
    timers: Metas
    windows: Any
    samples: list[Sample]


class Prolonging(InOrder):
    """The form in order of such a process. A key's window is in the kernel's table, or in the stage."""

    is_built: ClassVar[bool] = kernel is not None
    in_kernel: ClassVar[bool] = True
    takes_objects: ClassVar[bool] = True
    leaves_pages: ClassVar[bool] = False

    def __init__(self, process: Process, shared: Shared) -> None:
        assert isinstance(process.on_item, ProlongsWindows) and kernel is not None
        self._kernel, self._prolongs, self._initial, self._shared = kernel, process.on_item, process.initial, shared
        suffix, _, of_timers, of_output = shared.ranks
        self._output = suffix + of_output + varint(0)
        self._moment_ending = bytes((LATER_MARK,)) + varint(0) + bytes((process.phase,)) + FIRST_OF_MOMENT
        several, self._parts = self._prolongs.parts
        self._gap = min(self._prolongs.gap, END)
        self._table = kernel.Sessions(
            self._gap,
            (suffix, of_timers + varint(0), process.phase),
            HOPS_MAX,
            [kernel.Accumulators(kind, part.begin_value, part.add_value) for kind, part in self._parts],
            several=several,
        )
        self._has_rows = False

    def process_rows(self, metas: Metas, rows: Rows) -> tuple[int, list[Columns]]:
        samples = self._shared.sample(rows)  # type: ignore[arg-type]
        batch = unless_it_raises(self._prolongs.in_columns, rows)
        if batch is None:
            return 0, []
        self._has_rows = True
        codes, keys, values = batch
        self._shared.get([metas[-1]] * len(keys), keys)
        added = self._add(metas, codes, keys, values)
        self._shared.check(samples)
        return added

    def process(self, batch: Keyed) -> tuple[int, list[Columns]]:
        self._has_rows = False
        values = unless_it_raises(values_of, self._parts, batch.payloads)
        if values is None:
            return 0, []
        return self._add(batch.metas, *self._kernel.codes_of(batch.keys), values, batch.payloads)

    def _add(
        self, metas: Metas, codes: Any, keys: list[Any], values: list[Any], payloads: Sequence[Any] = ()
    ) -> tuple[int, list[Columns]]:
        if metas.some_later() or time_of(metas[-1]) > END - self._gap or not self._take_over(keys):
            return 0, []
        try:
            over = self._table.add(metas, codes, keys, values, payloads, self._prolongs.key)
        except BaseException as raised:  # raised again item by item, where it is reported
            pass_interrupts(raised)
            return 0, []
        ended = None if over is None else self._ended(over)
        if ended is None:
            self._table.take_back()
            return 0, []
        if self._shared.undo:
            self._shared.undo.note(Before(keys, partial(_entries_of, self._table.before())))
        self._table.keep()
        return len(metas), self._sent(ended)

    def _take_over(self, keys: Iterable[Any]) -> bool:
        """Take the windows of keys from the stage; False if one is not as these are."""
        states, timers = self._shared.states, self._shared.timers
        for key in keys if states else ():
            heap, state = timers.by_key.get(key), states.get(key, self._initial)
            if heap is None and state is self._initial:
                continue
            if heap is None or len(heap) > 1 or state is self._initial or state[1] > END - self._gap:
                return False
            due = heap[0]
            timers.pop(key, due)
            del states[key]
            self._table.absorb(key, state, due.meta, time_of(due.meta), hops_of(due.meta), due.timer.note)
        return True

    def _ended(self, cells: Integers) -> _Ended | None:
        """The windows of these cells; None if a call raises."""
        table = self._table
        cells, timers = table.in_order(cells)
        arrays = table.arrays(cells) if self._has_rows else None
        windows = None if arrays is None else self._prolongs.windows(table.keys_of(cells), *arrays)
        if windows is not None:
            return _Ended(cells, timers, windows, [])
        states = table.states(cells)
        samples = self._shared.sample_states(states[2])
        made = unless_it_raises(self._prolongs.results, *states)
        return None if made is None else _Ended(cells, timers, made, samples)

    def _sent(self, ended: _Ended) -> list[Columns]:
        self._shared.check(ended.samples)
        return [Columns(ended.timers.with_suffix(self._output), ended.windows, None)] if ended.cells else []

    def fire(self, bound: bytes, *, ended: bool) -> list[Columns]:
        over, moved, had = self._table.fire(bound)
        order, timers = Metas(had).sorted()
        self._shared.note_fired(timers, self._kernel.taken(self._table.keys_of(moved), order))
        made = self._ended(over)
        if made is None:
            self._table.go_on(over)
            over = over[:0]
        if self._shared.undo and (over or moved):
            before = self._table.before_fired(over, moved, had)
            self._shared.undo.note(Before(before.all_keys(), partial(_entries_of, before)))
        if made is None:
            return []
        self._shared.note_fired(made.timers, self._table.keys_of(made.cells))
        self._table.end(made.cells)
        return self._sent(made)

    def hand_back(self) -> None:
        cells = self._table.cells_of(None)
        self._shared.put(_entries_of(self._table, cells))
        self._table.end(cells)

    def entries(self, keys: Sequence[Any]) -> dict[Any, Any]:
        return dict(_entries_of(self._table, self._table.cells_of(keys)))

    @property
    def least(self) -> bytes | None:
        due = self._table.least()
        return None if due is None else pack_time(due) + self._moment_ending

    def __len__(self) -> int:
        return len(self._table)


def _entries_of(table: Any, cells: Integers | None = None) -> Iterable[tuple[Any, Any]]:
    """The states and timers of sessions; without cells of all in a table that was made for undo."""
    cells = array("q", range(len(table.all_keys()))) if cells is None else cells
    *states, notes = table.states(cells)
    for key, state, note, meta in zip(table.keys_of(cells), zip(*states), notes, table.timers_of(cells)):
        yield key, (state, [(meta, Timer(key, note))])
