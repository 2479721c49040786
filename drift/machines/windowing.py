"""Windows whose ends follow from the times of their items, in order: the kernel's loop over a batch of objects or rows.

Invariant: the windows that are open here are of one end; outputs, states and timers are those of the process, and what
it would do otherwise (a function raises, a key has several timers) is left to it.

Why: in these processes (`drift.operators.OpensWindows`) all items of a key whose window ends at the same moment are in
the same window. If no item will come below a batch, whatever ends before its last item ends now, of all keys at once.
A sorted batch is cut into stretches with one moment, so a window is a cell of the kernel's table, and the meta of its
timer, which its first item determines.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Sequence
from functools import partial
from itertools import accumulate, chain, repeat
from typing import Any, ClassVar, NamedTuple

from drift.machines.in_order import InOrder, Shared, unless_it_raises, values_of
from drift.machines.log import Keyed
from drift.machines.room import ROOM_BYTES
from drift.machines.undo import Before
from drift.operators import OpensWindows, Process, Timer
from drift_graph.functions import pass_interrupts
from drift_graph.item import Columns
from drift_graph.meta import (
    END_OF_TIME,
    FIRST_OF_MOMENT,
    LATER_MARK,
    LATER_MARK_AT,
    TIME_MAX,
    TIME_MIN,
    in_rounds,
    moment_of,
    pack_time,
    time_of,
    varint,
)
from drift_graph.metas import Integers, Metas
from drift_graph.payloads import Rows
from drift_graph.sizes import size_of
from drift_graph.unchanged import Sample
from drift_kernel import kernel

#: Windows whose results are made, and measured, before those of the others.
_FIRST = 8

#: Where the phase is in the meta of a later item of the first round.
_PHASE_AT = LATER_MARK_AT + 2

#: Start and end of rows in windows with one end, and the last time before it.
_Stretch = tuple[int, int, int]


def _behind_phase(meta: bytes) -> bytes:
    """A bound above the later items of the first round of the same time and phase, and below those of later phases."""
    return meta[:_PHASE_AT] + bytes((meta[_PHASE_AT] + 1,))


class _Ended(NamedTuple):
    """Windows that have ended, with the metas of their timers, in order; and what a user's function was given."""

    timers: Metas
    keys: list[Any]
    outputs: Any
    samples: list[Sample]


class Opening(InOrder):
    """The form in order of such a process. A key's window is in the kernel's table, or in the stage."""

    is_built: ClassVar[bool] = kernel is not None
    in_kernel: ClassVar[bool] = True
    takes_objects: ClassVar[bool] = True
    leaves_pages: ClassVar[bool] = False
    takes_later: ClassVar[bool] = True

    opens: OpensWindows

    def __init__(self, process: Process, shared: Shared) -> None:
        assert isinstance(process.on_item, OpensWindows) and kernel is not None
        self._kernel, self.opens, self._phase, self._shared = kernel, process.on_item, process.phase, shared
        self._suffix, _, of_timers, of_output = shared.ranks
        self._ending = of_timers + varint(0)
        self._output = self._suffix + of_output + varint(0)
        self._phase_of_end = bytes((LATER_MARK,)) + varint(0) + bytes((process.phase,))
        several, self._parts = self.opens.parts
        columns = [kernel.Accumulators(kind, part.begin_value, part.add_value) for kind, part in self._parts]
        self._table = kernel.Windows(columns, several=several)
        self._until = TIME_MIN  # the last time of the windows here
        self._timers: list[Metas] = []  # of these windows, in the order of their cells
        self._has_rows = False  # the last batch

    # Items.

    def process(self, batch: Keyed) -> tuple[int, list[Columns]]:
        stretches, count = self._stretches(batch.metas)
        metas, keys, payloads = _inside(stretches, batch.slice(0, count))
        if not stretches:
            return count, []
        self._has_rows = False
        values = unless_it_raises(values_of, self._parts, payloads)
        if values is None:
            return 0, []
        sent: list[Columns] = []
        is_done = self._add(metas, stretches, (*self._kernel.codes_of(keys), values), payloads, sent)
        return count if is_done else 0, sent

    def process_rows(self, metas: Metas, rows: Rows) -> tuple[int, list[Columns]]:
        stretches, count = self._stretches(metas)
        metas, rows, _ = _inside(stretches, Columns(metas, rows, None).slice(0, count))  # type: ignore[arg-type]
        if not stretches:
            return count, []
        samples = self._shared.sample(rows)  # type: ignore[arg-type]
        batch = unless_it_raises(self.opens.in_columns, rows)
        if batch is None:
            return 0, []
        self._has_rows = True
        self._shared.get([metas[-1]] * len(batch[1]), batch[1])
        sent: list[Columns] = []
        is_done = self._add(metas, stretches, batch, (), sent)
        self._shared.check(samples)
        return count if is_done else 0, sent

    def _stretches(self, metas: Metas) -> tuple[list[_Stretch], int]:
        """The stretches of a sorted batch, and how many of its items are in them or in no window.

        Before the first item whose window ends at another moment than those of its time do, it stops.
        """
        found: list[_Stretch] = []
        some_later, start = metas.some_later(), 0
        while start < len(metas):
            until = self.opens.until(time_of(metas[start]))
            if until is None:
                start += 1
                continue
            stop = metas.count_below(pack_time(until + 1), start) if until < TIME_MAX else len(metas)
            if some_later:
                moment, first = self._moment(until), stop
                if metas[stop - 1] >= moment[: LATER_MARK_AT + 1]:  # it is a later item of that time
                    first = metas.count_below(moment[: LATER_MARK_AT + 1], start, stop)
                at, end = first, metas.count_below(moment, first, stop)
                while at < end and not in_rounds(metas[at]):  # as it is with one of a phase, it is with all of it
                    at = metas.count_below(_behind_phase(metas[at]), at, end)
                if at < stop:
                    return [*found, (start, at, until)] if at > start else found, at
            found.append((start, stop, until))
            start = stop
        return found, start

    def _moment(self, until: int) -> bytes:
        """The moment of an end, by the last time before it."""
        return pack_time(until) + self._phase_of_end

    def _add(
        self,
        metas: Metas,
        stretches: Sequence[_Stretch],
        batch: tuple[Any, list[Any], list[Any]],
        payloads: Sequence[Any],
        sent: list[Columns],
    ) -> bool:
        """Add the items of stretches to their windows, and end those before the last stretch; whether that is possible.

        Args:
            batch: see `OpensWindows.in_columns`.
        """
        codes, keys, values = batch
        untils = [until for *_, until in stretches]
        if len(self._table) and self._until != untils[0] and not self._end(sent):
            return False
        self._until = untils[0]
        least = self._shared.timers.least
        if least is not None and least < metas[0] and not self._shared.fire(metas[0], sent):
            return False
        if not self._take_over(keys):
            return False
        before, stops = len(self._table), list(accumulate(stop - start for start, stop, _ in stretches))
        had = self._all_before(keys) if self._shared.undo and len(stretches) > 1 else None
        added = unless_it_raises(self._table.add, codes, keys, values, stops, payloads, self.opens.key)
        if added is None:
            return False
        if had is None and self._shared.undo:
            table, cells = self._table.before()
            had = Before(keys, partial(_entries_of, table, self._timers, cells))
        firsts, starts = added
        ends = list(zip(untils, starts, starts[1:]))
        of_new = chain.from_iterable(repeat(until, stop - max(start, before)) for until, start, stop in ends)
        self._timers.append(self._timers_of(metas.take(firsts), array("q", of_new)))
        over = starts[-2]
        if over:
            timers = Metas.joined(self._timers)
            ended = self._ended(ends[:-1], timers[:over])
            if ended is None:
                self._timers.pop()
                self._table.take_back()
                return False
            self._send(ended, sent)
            self._timers = [timers[over:]]
        self._table.keep()
        self._until = untils[-1]
        if had is not None:
            self._shared.undo.note(had)
        return True

    def _all_before(self, keys: Sequence[Any]) -> Before:
        """What these keys have here, and all others."""
        cells = array("q", range(len(self._table)))
        every = [*keys, *self._table.keys_of(cells)]
        return Before(every, partial(_entries_of, self._table.copied(cells), self._timers, cells))

    def _timers_of(self, firsts: Metas, untils: Integers) -> Metas:
        """The metas of the ends of windows, by those of their first items."""
        return firsts.with_suffix(self._suffix).later(self._ending, untils, self._phase)

    def _take_over(self, keys: Iterable[Any]) -> bool:
        """Take the windows of keys from the stage; False if one is not of the present end."""
        states, timers = self._shared.states, self._shared.timers
        moment, taken = self._moment(self._until), list[bytes]()
        for key in keys if states else ():
            heap = timers.by_key.get(key)
            if heap is None:
                continue
            if len(heap) > 1 or moment_of(heap[0].meta) != moment:
                break
            due = heap[0]
            timers.pop(key, due)
            self._table.absorb(key, states.pop(key), due.timer.note)
            taken.append(due.meta)
        else:
            self._timers.append(Metas(taken))
            return True
        self._timers.append(Metas(taken))
        return False

    # Ends.

    def _ended(self, ends: Sequence[tuple[int, int, int]], timers: Metas) -> _Ended | None:
        """The windows of the first ends; None if a call raises, or they would be too much at once.

        Args:
            ends: of each the last time before it, its first cell, and the one after its last.
            timers: of these cells.
        """
        cells, timers = timers.sorted()
        untils, counts = [until for until, *_ in ends], [stop - start for _, start, stop in ends]
        arrays = self._table.arrays(cells) if self._has_rows else None
        if arrays is not None:
            keys, accumulators = arrays
            rows = self.opens.windows(keys, untils, counts, accumulators)
            if rows is not None:
                return _Ended(timers, keys, rows, [])
        keys, notes, accumulators = self._table.of(cells)
        samples = self._shared.sample_states(accumulators)
        outputs: list[Any] = []
        try:
            for until, start, stop in ends:
                first = min(start + _FIRST, stop)
                outputs += self.opens.outputs(notes[start:first], accumulators[start:first], until)
                if first < stop and size_of(outputs[-1]) * (stop - start) > ROOM_BYTES:
                    return None  # each ends by its timer, some in each turn
                outputs += self.opens.outputs(notes[first:stop], accumulators[first:stop], until)
        except BaseException as raised:  # raised again in a step, where it is reported
            pass_interrupts(raised)
            return None
        return _Ended(timers, keys, outputs, samples)

    def _send(self, ended: _Ended, sent: list[Columns]) -> None:
        self._shared.check(ended.samples)
        self._shared.note_fired(ended.timers, ended.keys)
        sent.append(Columns(ended.timers.with_suffix(self._output), ended.outputs, None))

    def _end(self, sent: list[Columns]) -> bool:
        """Output the windows here; False if a function raises, or all would be too much at once: then they are to end
        by their timers.
        """
        ended = self._ended([(self._until, 0, len(self._table))], Metas.joined(self._timers))
        if ended is None:
            return False
        if self._shared.undo:
            self._shared.undo.note(self._all_before(()))
        self._send(ended, sent)
        self._forget()
        return True

    def fire(self, bound: bytes, *, ended: bool) -> list[Columns]:
        sent: list[Columns] = []
        if len(self._table) and self._moment(self._until) + END_OF_TIME <= bound:  # above all timers of it
            self._end(sent)
        return sent

    def _forget(self) -> None:
        self._table.clear()
        self._timers = []

    def hand_back(self) -> None:
        self._shared.put(self._entries(range(len(self._table))))
        self._forget()

    def entries(self, keys: Sequence[Any]) -> dict[Any, Any]:
        return dict(self._entries(self._table.cells_of(keys)))

    def _entries(self, cells: Sequence[int]) -> Iterable[tuple[Any, Any]]:
        return _entries_of(self._table.copied(array("q", cells)), self._timers, cells)

    @property
    def least(self) -> bytes | None:
        return self._moment(self._until) + FIRST_OF_MOMENT if len(self._table) else None

    def __len__(self) -> int:
        return len(self._table)


def _entries_of(table: Any, timers: Sequence[Metas], cells: Sequence[int]) -> Iterable[tuple[Any, Any]]:
    """The states and timers of windows.

    Args:
        table: of these windows alone.
        timers, cells: of them, by the cells that they have, or had, among others.
    """
    metas = Metas.joined(timers) if cells else ()
    for cell, key, note, accumulator in zip(cells, *table.of(array("q", range(len(cells))))):
        yield key, (accumulator, [(metas[cell], Timer(key, note))])


def _inside(stretches: Sequence[_Stretch], batch: Any) -> Any:
    count = len(batch.metas)
    if sum(stop - start for start, stop, _ in stretches) == count:
        return batch
    chosen = bytearray(count)
    for start, stop, _ in stretches:
        chosen[start:stop] = b"\1" * (stop - start)
    return batch.chosen(bytes(chosen))
