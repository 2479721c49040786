"""Windows that each item prolongs, as sessions are, in order: a batch in arrays, or in one loop without a step for each
item.

Invariant: the outputs, states and timers are those of the process, timer by timer: what is done here is what its steps
would do, and what they would do otherwise (a function raises, a key has several timers) is left to them.

Why: such a process (`drift.operators.ProlongsWindows`) has one timer for each open window, and the timer either outputs
the window or only sets itself again at what is by then the window's end. If no item will come below a batch, nothing of
it is taken back: so a timer moves in place, and only when an item or the heartbeat is above it. The meta of a timer
contains the root of its chain and the number of its hops, which are stored with it: to move it takes one hash. Rows in
columns prolong windows in arrays; what is not sure there leaves them for the stage.
"""

from __future__ import annotations

from heapq import heappop
from operator import itemgetter
from typing import Any, cast

import xxhash

from drift.machines.changes import Difference
from drift.machines.in_order import Shared
from drift.machines.log import Keyed
from drift.machines.merging import InArrays
from drift.machines.timers import Due
from drift.operators import Process, ProlongsWindows, Timer
from drift_graph.functions import pass_interrupts
from drift_graph.item import Columns
from drift_graph.later import HOPS_MAX
from drift_graph.meta import (
    END,
    global_time_of,
    hops_of,
    moment_of,
    pack_time,
    root_of,
    time_of,
    varint,
)
from drift_graph.metas import Metas
from drift_graph.payloads import Rows, have_fields


class _End(Due):
    """The timer of a window.

    Attributes:
        time: of its meta.
        chain: what follows the time in the meta of the next one: its moment, and the root; see `later_meta`.
        hops: see `hops_of`.
    """

    __slots__ = ("chain", "hops", "time")

    def __init__(self, meta: bytes, timer: Timer, set_at: bytes, parts: tuple[int, bytes, int]) -> None:
        super().__init__(meta, timer, set_at)
        self.time, self.chain, self.hops = parts


class Prolonging(InArrays):
    """The form in order of such a process; states and timers that are not in arrays stay in the stage. A key without a
    window has none.
    """

    def __init__(self, process: Process, shared: Shared) -> None:
        super().__init__(process, shared)
        assert isinstance(process.on_item, ProlongsWindows)
        self._prolongs, self._initial = process.on_item, process.initial
        self._states, self._timers, self._note_fired = shared.states, shared.timers, shared.note_fired
        self._sample_states, self._check = shared.sample_states, shared.check
        self._moment_ending = _moment_ending(process.phase)
        grouping, self._first_timer, _ = self._timers_of
        self._hashed_ending = grouping + self._first_timer

    def process_rows(self, metas: Metas, rows: Rows) -> tuple[int, list[Columns]]:
        if self._arrays is None:
            self._arrays = self._prolongs.sessions(self._timers_of)
        batch = self._arrays.batch(metas, rows) if self._arrays is not None and have_fields(rows) else None
        if batch is None:
            return 0, []
        self._shared.get([metas[-1]] * len(batch.keys), batch.keys)
        if not self._has_no_objects and not self._is_absorbed():
            return 0, []
        made = self._arrays.add(batch)
        return (0, []) if made is None else (len(metas), [self._ended(*made)])

    def _is_absorbed(self) -> bool:
        """Whether all states and timers are in arrays now; before, they were in the stage."""
        states, timers = self._states, self._timers
        if len(self._arrays) or timers.by_key.keys() != states.keys():
            return False
        entries = [
            (key, (state, [(due.meta, due.timer) for due in timers.by_key[key]])) for key, state in states.items()
        ]
        if not self._arrays.absorb(entries):
            return False
        states.clear()
        timers.by_key.clear()
        timers.upcoming.clear()
        return True

    def _fire_arrays(self, bound: bytes) -> Columns:
        timers, keys, windows, again = self._arrays.fire(bound)
        self._note_fired(timers, keys)
        if again:
            self._note_fired(*map(list, zip(*sorted(again, key=itemgetter(0)))))
        return self._ended(timers, windows)

    def process(self, batch: Keyed) -> tuple[int, list[Columns]]:
        self.hand_back()
        metas, keys, payloads = batch
        states, initial, prolongs = self._states, self._initial, self._prolongs
        heaps = cast(dict[Any, list[_End]], self._timers.by_key)  # of these keys
        find, times, out = states.get, metas.times(), Difference()
        if times[-1] > END - prolongs.gap or not all(map(self._is_simple, dict.fromkeys(keys))):
            return 0, []
        if metas.some_later():
            return 0, []
        beyond, result, key_of = prolongs.gap - 1, prolongs.result, prolongs.key
        begin, add = prolongs.aggregate.begin_value, prolongs.aggregate.add_value
        done = 0
        try:
            values = prolongs.aggregate.values_of(payloads)
            for done, key, value, time in zip(range(len(keys)), keys, values, times):
                state = find(key, initial)
                if state is not initial:
                    first, last, known = state
                    until = last + beyond
                    if time <= until:
                        states[key] = first, time, add(known, value)
                        if time > first + beyond and (due := heaps[key][0]).time < time:
                            self._move(due, until)
                        continue
                    due = heaps[key][0]
                    self._end(key, due, until, result(state, due.timer.note, until), out)
                opened = time, time, begin(value)
                note = key_of(payloads[done]) if type(key) is bytes else key  # see `identities`
                self._open(key, note, metas[done], time + beyond, opened)
            done = len(keys)
        except BaseException as raised:  # raised again item by item, where it is reported
            pass_interrupts(raised)
        return done, [out.columns()]

    def fire(self, bound: bytes, *, ended: bool) -> list[Columns]:
        sent: list[Columns] = []
        if self._arrays is not None:
            sent.append(self._fire_arrays(bound))
            least = self._arrays.least
            if least is not None and least < bound:
                self.hand_back()
        upcoming, states, prolongs = self._timers.upcoming, self._states, self._prolongs
        metas, keys, out = list[bytes](), list[Any](), Difference()
        while upcoming and upcoming[0][0] < bound:
            meta, _, key, due = upcoming[0]
            if not due.alive or (type(due) is Due and self._is_simple(key)):  # another stands in its place now
                heappop(upcoming)
                continue
            if due.meta == meta:
                if not isinstance(due, _End) or len(self._timers.by_key[key]) > 1:
                    break
                if ended and due.hops >= HOPS_MAX:
                    break
                state = states[key]
                try:
                    until = min(state[1] + prolongs.gap - 1, END)
                    if until <= due.time:
                        samples = self._sample_states((state,))
                        output = prolongs.result(state, due.timer.note, until)
                except BaseException as raised:  # raised again in a step, where it is reported
                    pass_interrupts(raised)
                    break
                metas.append(meta)
                keys.append(key)
                if until <= due.time:
                    self._check(samples)
                    heappop(upcoming)
                    self._end(key, due, until, output, out)
                    continue
                self._move(due, until)
            assert isinstance(due, _End)
            self._timers.wait_on(key, due)
        self._note_fired(metas, keys)
        return [*sent, out.columns()]

    def _is_simple(self, key: Any) -> bool:
        """Whether a key has no window, or one with its timer, which is an `_End` from now on."""
        heap = self._timers.by_key.get(key)
        if heap is None:
            return key not in self._states or self._states[key] is self._initial
        if len(heap) > 1 or key not in self._states:
            return False
        due = heap[0]
        if type(due) is Due:  # set by a step, or restored
            due.alive = False
            meta = due.meta
            parts = time_of(meta), _moment_ending(moment_of(meta)[-1]) + root_of(meta), hops_of(meta)
            heap[0] = _End(meta, due.timer, due.set_at, parts)
            self._timers.wait(key, heap[0])
        return True

    def _open(self, key: Any, note: Any, meta: bytes, until: int, state: Any) -> None:
        """Open a key's window and set its timer."""
        chain = self._moment_ending + global_time_of(meta)
        identity = xxhash.xxh3_128_digest(meta + self._hashed_ending)
        timer = pack_time(until) + chain + varint(1) + identity + self._first_timer
        due = _End(timer, Timer(key, note), meta, (until, chain, 1))
        self._states[key] = state
        self._timers.by_key[key] = [due]
        self._timers.wait(key, due)

    def _move(self, due: _End, until: int) -> None:
        """Put a timer at a later time, as if it had set itself again; see `later_meta`."""
        due.hops += 1
        due.time = until
        identity = xxhash.xxh3_128_digest(due.meta + self._hashed_ending)
        due.meta = pack_time(until) + due.chain + varint(due.hops) + identity + self._first_timer

    def _end(self, key: Any, due: _End, until: int, output: Any, out: Difference) -> None:
        """Output a key's window, whose last time is `until`."""
        if due.time < until:
            self._move(due, until)
        due.alive = False
        del self._states[key], self._timers.by_key[key]
        out.metas.append(due.meta + self._output)
        out.payloads.append(output)
        out.diffs.append(1)


def _moment_ending(phase: int) -> bytes:
    """What follows the time in a moment of the first round."""
    return b"\xff" + varint(0) + bytes((phase,))
