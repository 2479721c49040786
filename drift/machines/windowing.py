"""Windows whose ends follow from the times of their items, in order: a batch of them in one call.

Invariant: the windows that are open here are of one end; or they are those of rows in columns, in arrays.

Why: in these processes (`drift.operators.OpensWindows`) all items of a key whose window ends at the same moment are in
the same window. If no item will come below a batch, whatever ends before its first item ends now, of all keys at once.
A sorted batch is cut into stretches with one moment, so a window is no object, only an accumulator and the meta of its
timer, which its first item determines.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Iterator, Sequence
from itertools import compress, repeat
from typing import Any

from drift.machines.in_order import InOrder, Shared
from drift.machines.log import Keyed
from drift.machines.timers import Due
from drift.operators import NO_ITEMS, OpensWindows, Process, Timer
from drift_graph.functions import pass_interrupts
from drift_graph.item import Columns
from drift_graph.meta import (
    BEGINNING,
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
from drift_graph.metas import Metas
from drift_graph.payloads import Rows

#: Where the phase is in the meta of a later item of the first round.
_PHASE_AT = LATER_MARK_AT + 2

#: Start and end of rows in windows with one end, and the last time before it.
_Stretch = tuple[int, int, int]


def _behind_phase(meta: bytes) -> bytes:
    """A bound above the later items of the first round of the same time and phase, and below those of later phases."""
    return meta[:_PHASE_AT] + bytes((meta[_PHASE_AT] + 1,))


class Opening(InOrder):
    """The form in order of such a process."""

    opens: OpensWindows

    def __init__(self, process: Process, shared: Shared) -> None:
        assert isinstance(process.on_item, OpensWindows)
        self.opens, self._phase, self._shared = process.on_item, process.phase, shared
        self._initial = process.initial
        self._suffix, _, of_timers, of_output = shared.ranks
        self._ending = of_timers + varint(0)
        self._output = self._suffix + of_output + varint(0)
        self._phase_of_end = bytes((LATER_MARK,)) + varint(0) + bytes((process.phase,))
        self._until = TIME_MIN  # the last time of the windows here
        self._accumulators: dict[Any, Any] = {}  # of these windows, by key
        self._timers: dict[Any, bytes] = {}  # the metas of their ends
        self._notes: dict[Any, Any] = {}  # keys as the step gives them, where they differ from their identities
        self._arrays: Any = None  # an `OpenWindows` once rows have come, or False if there is none

    def process(self, batch: Keyed) -> tuple[int, list[Columns]]:
        metas, keys, payloads = batch
        sent: list[Columns] = []
        stretches, count = self._stretches(metas)
        for start, stop, until in stretches:
            if not self._begin(until, metas[start], sent):
                return start, sent
            if not self._add(Keyed(metas[start:stop], keys[start:stop], payloads[start:stop])):
                return start, sent
        return count, sent

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

    def _begin(self, until: int, bound: bytes, sent: list[Columns]) -> bool:
        """End all windows that end before a stretch, whose first item is the bound; False if a call has raised."""
        if self._accumulators and self._until != until and not self._end(sent):
            return False
        if self._arrays and not self._end_arrays(bisect_left(self._arrays.untils, until), sent):
            return False
        self._until = until
        least = self._shared.timers.least
        return least is None or least >= bound or self._shared.fire(bound, sent)

    def _add(self, stretch: Keyed) -> bool:
        """Add items to windows of the present end; False, and nothing has changed, if that is not possible."""
        of_batch = dict.fromkeys(stretch.keys)
        self._leave_arrays()
        if not self._take_over(of_batch):
            return False
        accumulators = self._accumulators
        known = {key: accumulators[key] for key in of_batch if key in accumulators}
        opened = [key for key in of_batch if key not in known]
        found = self._added(known, opened, stretch)
        if found is None:
            return False
        firsts, notes = found
        accumulators.update(known)
        self._open(opened, firsts)
        self._notes.update(notes)
        return True

    def _added(
        self, known: dict[Any, Any], opened: Sequence[Any], stretch: Keyed
    ) -> tuple[Metas, dict[Any, Any]] | None:
        """Add items to the accumulators of their keys; None if a call raises.

        Returns:
            Of the keys that had none the metas of their first items, and the notes that differ from the keys.
        """
        metas, keys, payloads = stretch
        firsts: list[int] = []
        notes: dict[Any, Any] = {}
        try:
            if opened:
                indices = dict(zip(reversed(keys), range(len(keys) - 1, -1, -1)))  # the first of each
                firsts = list(map(indices.__getitem__, opened))
                notes = {key: self.opens.key(payloads[at]) for key, at in zip(opened, firsts) if type(key) is bytes}
            self.opens.aggregate.add_each(known, keys, payloads)
        except BaseException as raised:  # raised again item by item, where it is reported
            pass_interrupts(raised)
            return None
        return metas.take(firsts), notes

    def _open(self, keys: Sequence[Any], firsts: Metas) -> None:
        if keys:
            self._timers.update(zip(keys, self._ends_of(firsts, self._until)))

    def _ends_of(self, firsts: Metas, until: int) -> list[bytes]:
        """The metas of the ends of windows, by those of their first items."""
        return list(firsts.with_suffix(self._suffix).later(self._ending, until, self._phase))

    # With states and timers of the stage.

    def stretches(self, metas: Metas) -> Iterator[tuple[int, int]]:
        done = 0
        for start, stop, until in self._stretches(metas)[0]:
            if start > done:  # before it there are items in no window
                break
            yield stop, until
            done = stop

    def append(self, stretch: Keyed, until: int) -> dict[Any, Any] | None:
        states, initial = self._shared.states, self._initial
        of_batch = dict.fromkeys(stretch.keys)
        befores = dict(zip(of_batch, map(states.get, of_batch, repeat(initial))))
        known = {key: state for key, state in befores.items() if state is not initial}
        opened = [key for key in of_batch if key not in known] if len(known) < len(befores) else []
        found = self._added(known, opened, stretch)
        if found is None:
            return None
        states.update(known)
        firsts, notes = found
        if opened:
            for key, first, timer in zip(opened, firsts, self._ends_of(firsts, until)):
                self._shared.timers.set(key, Due(timer, Timer(key, notes.get(key, key)), first))
        return befores

    def _take_over(self, keys: Iterable[Any]) -> bool:
        """Take the windows of keys from the stage; False if one is not of the present end."""
        states, timers = self._shared.states, self._shared.timers
        if not states:
            return True
        moment = self._moment(self._until)
        for key in keys:
            heap = timers.by_key.get(key)
            if heap is None:
                continue
            if len(heap) > 1 or moment_of(heap[0].meta) != moment:
                return False
            due = heap[0]
            timers.pop(key, due)
            self._keep(key, states.pop(key), due.meta, due.timer.note)
        return True

    def _keep(self, key: Any, accumulator: Any, timer: bytes, note: Any) -> None:
        self._accumulators[key] = accumulator
        self._timers[key] = timer
        if type(key) is bytes:  # a key that is not its own identity; see `identities`
            self._notes[key] = note

    # Ends.

    def fire(self, bound: bytes, *, ended: bool) -> list[Columns]:
        sent: list[Columns] = []
        if self._accumulators and self._last_of(self._until) <= bound:
            self._end(sent)
        if self._arrays:
            untils = self._arrays.untils
            ends = bisect_left(untils, True, key=lambda until: self._last_of(until) > bound)
            self._end_arrays(ends, sent)
        return sent

    def _last_of(self, until: int) -> bytes:
        """A bound above all timers of an end."""
        return self._moment(until) + END_OF_TIME

    def _end(self, sent: list[Columns]) -> bool:
        """Output the windows here; False if that raises: they are handed back."""
        keys = sorted(self._accumulators, key=self._timers.__getitem__)
        timers = list(map(self._timers.__getitem__, keys))
        notes = list(map(self._notes.get, keys, keys)) if self._notes else keys
        accumulators = list(map(self._accumulators.__getitem__, keys))
        samples = self._shared.sample_states(accumulators)
        try:
            outputs = self.opens.outputs(notes, accumulators, self._until)
        except BaseException as raised:  # raised again in a step, where it is reported
            pass_interrupts(raised)
            self.hand_back()
            return False
        self._shared.check(samples)
        self._shared.note_fired(timers, keys)
        output = self._output
        sent.append(Columns(Metas(timers).with_suffix(output), outputs, None))
        self._accumulators, self._timers, self._notes = {}, {}, {}
        return True

    def hand_back(self, keys: Iterable[Any] | None = None) -> None:
        for _, windows in self._taken(len(self._arrays.untils) if self._arrays else 0):
            for window in windows:
                self._hand(*window)
        accumulators, timers, notes = self._accumulators, self._timers, self._notes
        for key in list(accumulators) if keys is None else dict.fromkeys(keys):
            if key in accumulators:
                self._hand(key, accumulators.pop(key), timers.pop(key), notes.pop(key, key))

    def _hand(self, key: Any, accumulator: Any, timer: bytes, note: Any) -> None:
        self._shared.states[key] = accumulator
        self._shared.timers.set(key, Due(timer, Timer(key, note), BEGINNING))

    def entries(self, keys: Sequence[Any]) -> dict[Any, Any]:
        if self._arrays and len(self._arrays.untils) > 1:
            self.hand_back()
        self._leave_arrays()
        accumulators, timers, notes = self._accumulators, self._timers, self._notes
        if not accumulators:
            return {}
        some = [key for key in keys if key in accumulators]
        return {key: (accumulators[key], [(timers[key], Timer(key, notes.get(key, key)))]) for key in some}

    @property
    def least(self) -> bytes | None:
        if self._accumulators:
            return self._moment(self._until) + FIRST_OF_MOMENT
        return self._moment(self._arrays.untils[0]) + FIRST_OF_MOMENT if self._arrays else None

    def __len__(self) -> int:
        return len(self._accumulators) + (len(self._arrays) if self._arrays else 0)

    # Rows in columns.

    def process_rows(self, metas: Metas, rows: Rows) -> tuple[int, list[Columns]]:
        sent: list[Columns] = []
        stretches, count = self._stretches(metas)
        lengths = [stop - start for start, stop, _ in stretches]
        if count < len(metas):
            return 0, sent
        if sum(lengths) < count:
            return self._process_some(stretches, metas, rows)
        groups = self.opens.groups(rows, lengths)
        if groups is None:
            return 0, sent
        self._shared.get([metas[-1]] * len(groups.distinct), groups.distinct)
        if not self._begin(stretches[0][2], metas[0], sent):
            return 0, sent
        if self._arrays is None:
            opened = self.opens.opened()
            self._arrays = False if opened is None else opened
        in_stage = self._shared.timers.by_key.keys()
        in_objects = self._accumulators or (in_stage and not in_stage.isdisjoint(groups.distinct))
        untils = [until for _, _, until in stretches]
        if not in_objects and self._arrays is not False and self._arrays.add(groups, metas, untils):
            return len(metas), sent
        self._leave_arrays()
        return self._add_groups(groups, metas, rows, stretches, sent), sent

    def _process_some(self, stretches: Sequence[_Stretch], metas: Metas, rows: Rows) -> tuple[int, list[Columns]]:
        """Process rows some of which are in no window."""
        chosen = bytearray(len(metas))
        for start, stop, _ in stretches:
            chosen[start:stop] = b"\1" * (stop - start)
        some = Columns(metas, rows, None).chosen(bytes(chosen))  # type: ignore[arg-type]
        done, sent = self.process_rows(some.metas, some.payloads) if stretches else (0, [])  # type: ignore[arg-type]
        return [*compress(range(len(metas)), chosen), len(metas)][done], sent

    def _add_groups(
        self, groups: Any, metas: Metas, rows: Rows, stretches: Sequence[_Stretch], sent: list[Columns]
    ) -> int:
        """Add rows to windows that are not in arrays; how many."""
        left, right = groups.bounds[0]  # of keys that may have windows
        if not self._take_over(groups.keys[left:right]):
            return 0
        before = [self._accumulators.get(key, NO_ITEMS) for key in groups.keys[left:right]]
        before += [NO_ITEMS] * (len(groups.keys) - right)
        samples = self._shared.sample(rows)  # type: ignore[arg-type]
        try:
            after = self.opens.aggregate.add_groups(groups, before)
        except BaseException as raised:  # raised again item by item, where it is reported
            pass_interrupts(raised)
            return 0
        self._shared.check(samples)
        for (start, _, until), (left, right) in zip(stretches, groups.bounds):
            if not self._begin(until, metas[start], sent):
                return start
            self._accumulators.update(zip(groups.keys[left:right], after[left:right]))
            opened = [at for at in range(left, right) if before[at] is NO_ITEMS]
            firsts = metas.take([groups.firsts[at] for at in opened])
            self._open([groups.keys[at] for at in opened], firsts)
        return len(metas)

    def _leave_arrays(self) -> None:
        """Make windows in arrays, which are of one end, objects."""
        for until, windows in self._taken(len(self._arrays.untils) if self._arrays else 0):
            self._until = until
            for window in windows:
                self._keep(*window)

    def _end_arrays(self, ends: int, sent: list[Columns]) -> bool:
        """Output the windows in arrays of so many ends; False if that raises."""
        if not ends:
            return True
        taken = self._arrays.take(ends)
        rows = self.opens.outputs_of(self._arrays, taken)
        if rows is not None:
            timers = self._timers_of(taken)
            self._shared.note_fired(timers, taken.keys)
            sent.append(Columns(timers.with_suffix(self._output), rows, None))  # type: ignore[arg-type]
            return True
        are_made = True
        for until, windows in self._windows_of(taken):
            self._until = until
            for window in windows:
                self._keep(*window)
            are_made = self._end(sent) and are_made
        return are_made

    def _taken(self, ends: int) -> Iterator[tuple[int, Iterator[tuple[Any, Any, bytes, Any]]]]:
        """Take out the windows in arrays of so many ends; see `_windows_of`."""
        return self._windows_of(self._arrays.take(ends)) if ends else iter(())

    def _windows_of(self, taken: Any) -> Iterator[tuple[int, Iterator[tuple[Any, Any, bytes, Any]]]]:
        """Of each end the last time before it, and of its windows what `_keep` takes."""
        accumulators, timers, keys = self._arrays.accumulators(taken), self._timers_of(taken), taken.keys
        for until, start, stop in taken.by_end():
            some = slice(start, stop)
            yield until, zip(keys[some], accumulators[some], timers[some], keys[some])

    def _timers_of(self, taken: Any) -> Metas:
        """The metas of the ends of windows in arrays."""
        made: Metas = taken.timers(self._suffix, self._ending, self._phase)
        return made
