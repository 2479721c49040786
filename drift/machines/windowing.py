"""Windows by time, fused into one loop: for each window an accumulator, and the items that may still change.

Invariant: the outputs sent for a window that has ended, counting tombstones, are those that its process would give for
the items so far, in the order of their metas; windows whose end is at or above the heartbeat have not ended yet.

Why: in these processes (`drift.operators.OpensWindows`) all items of a key whose window ends at the same moment are in
the same window, in any order of arrival. So a window is found by that moment and the key, and needs no stored timer:
its output has the meta of the timer that its first item sets. A sorted batch is cut into stretches with one moment. An
item above all others of its window is added to the accumulator; if an item comes below others, or is taken back, the
window is aggregated again from there; if the window had ended, it is output again, and the difference is sent.

If no item will come below a batch, all its items are added to the settled accumulators at once; such a window is no
object, only an accumulator and the meta of its end.

Memory: the accumulator of the settled items, and for each item above them its payload and the accumulator after it.
A window that has ended is dropped when minimal time has passed its end.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Sequence
from heapq import heapify, heappop, heappush
from itertools import repeat
from operator import itemgetter
from typing import Any

from drift.machines.changes import Debts, Difference, difference
from drift.machines.checkpoints import DELETED, Entries, KeyedState, Touched
from drift.machines.keys import keyed
from drift.machines.maps import Ports
from drift.operators import NO_ITEMS, OpensWindows, Process, State, Timer, state_and_outputs
from drift_barrier.barrier import FAILURES
from drift_graph.canonical import same
from drift_graph.failures import failed_step
from drift_graph.functions import pass_interrupts
from drift_graph.item import Columns, Failure, joined
from drift_graph.meta import (
    BEGINNING,
    END_OF_TIME,
    LATER_MARK,
    LATER_MARK_AT,
    TIME_MAX,
    TIME_MIN,
    global_time,
    later_meta,
    later_metas,
    moment_of,
    pack_time,
    time_of,
    varint,
)
from drift_graph.metas import Metas, may_be_later, metas_in_order, with_suffix
from drift_graph.operators import Group, Map
from drift_graph.payloads import Rows, have_fields
from drift_graph.unchanged import Sampler, check_unchanged

#: In place of an accumulator after a step that raised.
_BLOCKED: Any = type("Blocked", (), {"__repr__": lambda self: "blocked"})()

#: So many items may be retained before settled ones are searched for.
_ITEMS_RETAINED_MIN = 32_768

_mark = itemgetter(LATER_MARK_AT)

#: Appended to a moment: below every later item of that moment.
_FIRST_OF_MOMENT = global_time(TIME_MIN, 0, 0, 0) + varint(0) + bytes(16)


class _Window:
    """One window of a key that has, or had, unsettled items.

    Attributes:
        note: the key, as the step gives it.
        timer: the meta of its end, if its first item is settled; before that it depends on the first item.
        metas, payloads: of the unsettled items, and some settled ones.
        accumulators: after the settled items, and after each of these.
        sent: the outputs sent for it, with metas, if it has ended.
        failure: of a step that raised, with its meta.
    """

    __slots__ = ("note", "timer", "metas", "payloads", "accumulators", "sent", "failure")

    def __init__(self, note: Any, timer: bytes | None, accumulator: Any) -> None:
        self.note = note
        self.timer = timer
        self.metas: list[bytes] = []
        self.payloads: list[Any] = []
        self.accumulators: list[Any] = [accumulator]
        self.sent: list[tuple[bytes, Any]] = []
        self.failure: tuple[bytes, Failure] | None = None

    @property
    def is_empty(self) -> bool:
        return not self.metas and self.accumulators[0] is NO_ITEMS


class _End:
    """The windows with the same end, by key; and whether the end has passed.

    Attributes:
        settled: accumulators of the windows that have settled items only.
        timers: of these windows, the metas of their ends.
        notes: of these windows, the keys as the step gives them, if they differ from their identities.
        windows: the other windows.
    """

    __slots__ = ("moment", "settled", "timers", "notes", "windows", "has_passed")

    def __init__(self, moment: bytes) -> None:
        self.moment = moment
        self.settled: dict[Any, Any] = {}
        self.timers: dict[Any, bytes] = {}
        self.notes: dict[Any, Any] = {}
        self.windows: dict[Any, _Window] = {}
        self.has_passed = False

    @property
    def until(self) -> int:
        return time_of(self.moment)

    def settle(self, key: Any, note: Any, timer: bytes, accumulator: Any) -> None:
        """Store a window that has settled items only."""
        self.settled[key] = accumulator
        self.timers[key] = timer
        if type(key) is bytes:  # a key that is not its own identity; see `identities`
            self.notes[key] = note

    def pop_settled(self, key: Any) -> _Window:
        """Take out a window that had settled items only, because it will change."""
        return _Window(self.notes.pop(key, key), self.timers.pop(key), self.settled.pop(key))


class WindowStage(KeyedState):
    """The machine of such a process on one worker; it has the attributes of `KeyedStage`."""

    suffix = b""
    is_timed = True
    form = "WindowStage"

    def __init__(
        self, group: Group, state: Map, timers: Map, process: Process, ranks: tuple[int, int, int, int]
    ) -> None:
        self._group_suffix, state_rank, timers_rank, output_rank = map(varint, ranks)
        self._failure_suffix = self._group_suffix + state_rank
        self._timer_ending = timers_rank + varint(0)
        self._output_head = self._group_suffix + output_rank
        self._keys = Group(group.name, group.step, group.where, process.key, 2)
        self._state_map, self._timers_map = state, timers
        self._process = process
        assert isinstance(process.on_item, OpensWindows)
        self._opens = process.on_item
        self._phase_of_end = b"\xff" + varint(0) + bytes((process.phase,))
        self.heartbeat = BEGINNING
        self.ended = False
        self._ends: dict[bytes, _End] = {}
        self._upcoming: list[bytes] = []  # a heap: moments of ends that have not passed
        self._passed: list[bytes] = []  # a heap: moments of ends that have passed
        self._retained = 0
        self._sweep_at = _ITEMS_RETAINED_MIN
        self._blocked = 0  # windows with a failure
        self._debts = Debts(group.step)
        self._sampler = Sampler()
        self._settled = BEGINNING
        self._open: Any = None  # an `OpenWindows` once rows have come, or False if there is none
        self._fired: list[Any] = []  # windows in arrays that have ended
        self._touched: Touched = Touched()

    # Items and ends in order.

    def process(self, columns: Columns, ports: Ports) -> Columns:
        """Process a batch sorted by meta; returns outputs and tombstones, in any order, with complete metas."""
        metas, payloads, diffs = columns
        if diffs is None and have_fields(payloads):
            left = self._fold_rows(metas, payloads)
            if not left:
                return Columns([], [], None)
            columns = columns.slice(0, left)
        self._make_objects()
        columns, keys = keyed(self._keys, self._group_suffix, columns, ports)
        if not keys:
            return columns
        metas, payloads, diffs = columns
        self.get(metas, keys)
        out, failures = Difference(), Difference()
        changes: dict[tuple[bytes, Any], list[tuple[bytes, Any, int]]] = {}
        in_order = diffs is None and not self._debts and not self._blocked
        is_complete = in_order and metas[-1] < self.complete_below
        samples = self._sampler.sample(payloads, *self._process.initials)
        for start, end, moment in self._stretches(metas):
            known = self._ends.get(moment)
            if in_order and (known is None or not known.has_passed):
                stretch = metas[start:end], keys[start:end], payloads[start:end]
                rows = () if is_complete and self._fold(moment, *stretch) else self._append(moment, *stretch)
                for key, meta, payload in rows:
                    changes.setdefault((moment, key), []).append((meta, payload, 1))
                continue
            for at in range(start, end):
                change = (metas[at], payloads[at], 1 if diffs is None else diffs[at])
                changes.setdefault((moment, keys[at]), []).append(change)
        if samples:
            check_unchanged(self._state_map, samples)
        for (moment, key), changed in changes.items():
            self._change(moment, key, changed, out, failures)
        return _leaving(out, failures, ports)

    def fire(self, ports: Ports) -> Columns:
        """End the windows whose ends are below the heartbeat; returns their outputs."""
        rows = self._fire_arrays()
        out, failures = Difference(), Difference()
        waiting = self._upcoming
        while waiting and waiting[0] < self.heartbeat:
            moment = heappop(waiting)
            end = self._ends.get(moment)
            if end is None or end.has_passed:
                continue
            end.has_passed = True
            heappush(self._passed, moment)
            self._end(end, out, failures)
        made = _leaving(out, failures, ports)
        return made if rows is None else joined([rows, made]) if made.metas else rows

    def _end(self, end: _End, out: Difference, failures: Difference) -> None:
        """Output all windows of an end."""
        keys = sorted(end.settled, key=end.timers.__getitem__)
        timers = list(map(end.timers.__getitem__, keys))
        try:
            notes = list(map(end.notes.get, keys, keys)) if end.notes else keys
            outputs = self._opens.outputs(notes, list(map(end.settled.__getitem__, keys)), end.until)
        except BaseException as error:  # raised again in _send, which reports it
            pass_interrupts(error)
            for key in keys:
                end.windows[key] = end.pop_settled(key)
        else:
            head = self._output_head + varint(0)
            out.metas += [timer + head for timer in timers]
            out.payloads += outputs
            out.diffs += [1] * len(outputs)
            self._touched.note(timers, keys)
        for key, window in end.windows.items():
            self._send(end, key, window, out, failures)

    @property
    def least_timer(self) -> bytes | None:
        """A meta at or below the first end that has not passed."""
        if not self._upcoming:
            return None
        moment = self._upcoming[0]
        return moment + _FIRST_OF_MOMENT if moment_of(moment + _FIRST_OF_MOMENT) == moment else moment

    @property
    def is_due(self) -> bool:
        """Whether any window ends below the heartbeat."""
        return bool(self._upcoming) and self._upcoming[0] < self.heartbeat

    def _stretches(self, metas: Metas) -> list[tuple[int, int, bytes]]:
        """(start, end, moment) of each stretch of a sorted batch in windows of one end; items may be in no window."""
        found: list[tuple[int, int, bytes]] = []
        has_later = may_be_later(metas) and LATER_MARK in set(map(_mark, metas))
        start = 0
        while start < len(metas):
            until = self._opens.until(time_of(metas[start]))
            if until is None:
                start += 1
                continue
            last = pack_time(until)
            end = bisect_left(metas, pack_time(until + 1), start) if until < TIME_MAX else len(metas)
            while start < end:
                stop, moment = end, last + self._phase_of_end
                if has_later:
                    stop, moment = self._stretch(metas, start, end, until, moment)
                found.append((start, stop, moment))
                start = stop
        return found

    def _stretch(self, metas: Metas, start: int, end: int, until: int, moment: bytes) -> tuple[int, bytes]:
        """The end of a stretch and its moment, if the batch contains later items."""
        if metas[start][LATER_MARK_AT] != LATER_MARK:
            stop = start + 1
            while stop < end and metas[stop][LATER_MARK_AT] != LATER_MARK:
                stop += 1
            return stop, moment
        timer = self._timer(metas[start], until)
        if len(timer) == len(metas[start]) + len(self._group_suffix + self._timer_ending) and timer.startswith(
            metas[start]
        ):
            return start + 1, timer  # at once: a window of its own
        return bisect_left(metas, moment_of(metas[start]) + END_OF_TIME, start, end), moment_of(timer)

    def _timer(self, first: bytes, until: int) -> bytes:
        """The meta of the timer that a window's first item sets."""
        parent = first + self._group_suffix
        timer = later_meta(parent, self._timer_ending, until, self._process.phase)
        return parent + self._timer_ending if timer is None else timer

    def _fold_rows(self, metas: Metas, rows: Rows) -> int:
        """Add rows to their windows in columns, if no item will come below them; returns how many are left to add."""
        count = len(metas)
        if not count or self._debts or self._blocked or metas[-1] >= self.complete_below:
            return count
        stretches = self._stretches(metas)
        lengths = [stop - start for start, stop, _ in stretches]
        if sum(lengths) < count:
            return count
        groups = self._opens.groups(rows, lengths)
        if groups is None:
            return count
        self.get([metas[-1]] * len(groups.keys), groups.keys)
        if self._fired and stretches[0][2] <= self._phased(self._fired[-1].untils[-1]):
            self._make_objects()
        known = [at for at, (_, _, moment) in enumerate(stretches) if moment in self._ends]
        if not known and self._add_in_arrays(groups, metas, stretches):
            return 0
        if known and known[-1] + 1 < len(stretches):  # the windows behind them may still be in arrays
            start = stretches[known[-1] + 1][0]
            if self._fold_rows(metas[start:], rows[start:]):
                return count
            return 0 if self._fold_rows(metas[:start], rows[:start]) == 0 else start
        self._make_objects()
        return 0 if self._fold_groups(groups, metas, rows, stretches) else count

    def _add_in_arrays(self, groups: Any, metas: Metas, stretches: Sequence[tuple[int, int, bytes]]) -> bool:
        """Add rows to windows in arrays; False if that is not possible."""
        if self._open is None:
            opened = self._opens.opened()
            self._open = False if opened is None else opened
        untils = [time_of(moment) for _, _, moment in stretches]
        moments = [self._phased(until) for until in untils]
        if self._open is False or any(moment != each for moment, (_, _, each) in zip(moments, stretches)):
            return False
        last = self._open.untils[-1:]
        if not self._open.add(groups, metas, untils):
            return False
        for until, moment in zip(untils, moments):
            if last != [until]:
                heappush(self._upcoming, moment)
        return True

    def _phased(self, until: int) -> bytes:
        """The moment of an end, by the last time before it."""
        return pack_time(until) + self._phase_of_end

    def _make_objects(self) -> None:
        """Make objects of windows in arrays."""
        for taken in self._fired:
            self._settle_taken(taken, has_passed=True)
        self._fired.clear()
        if self._open and self._open.untils:
            self._settle_taken(self._open.take(len(self._open.untils)), has_passed=False)

    def _settle_taken(self, taken: Any, *, has_passed: bool) -> None:
        accumulators = self._open.accumulators(taken)
        timers = self._timers_of(taken)
        for until, start, stop in taken.by_end():
            end = self._end_of(self._phased(until), has_passed=has_passed)
            for at in range(start, stop):
                end.settle(taken.keys[at], taken.keys[at], timers[at], accumulators[at])

    def _timers_of(self, taken: Any) -> Metas:
        """The metas of the ends of windows in arrays."""
        made = taken.timers(self._group_suffix, self._timer_ending, self._process.phase)
        if made is None:
            parents = with_suffix(taken.firsts, self._group_suffix)
            made = []
            for until, start, stop in taken.by_end():
                made += later_metas(parents[start:stop], self._timer_ending, until, self._process.phase)
        return made  # type: ignore[no-any-return]

    def _fire_arrays(self) -> Columns | None:
        """End the windows in arrays whose ends are below the heartbeat."""
        untils = self._open.untils if self._open else ()
        ends = bisect_left(untils, self.heartbeat, key=self._phased)
        if not ends:
            return None
        taken = self._open.take(ends)
        made = self._opens.outputs_of(self._open, taken)
        if made is None:
            self._settle_taken(taken, has_passed=False)
            return None
        timers = self._timers_of(taken)
        self._touched.note(timers, taken.keys)
        self._fired.append(taken)
        return Columns(with_suffix(timers, self._output_head + varint(0)), made, None)  # type: ignore[arg-type]

    def _fold_groups(self, groups: Any, metas: Metas, rows: Rows, stretches: Sequence[tuple[int, int, bytes]]) -> bool:
        """Add rows to windows that are no arrays; False if that is not possible."""
        before: list[Any] = []
        for (start, _, moment), (left, right) in zip(stretches, groups.bounds):
            end, keys = self._end_of(moment), groups.keys[left:right]
            if end.has_passed or (end.windows and not self._settle_below(end, keys, metas[start])):
                return False
            before += map(end.settled.get, keys, repeat(NO_ITEMS))
        samples = self._sampler.sample(rows, *self._process.initials)  # type: ignore[arg-type]
        try:
            after = self._opens.aggregate.add_groups(groups, before)
        except BaseException as error:  # raised again in _append
            pass_interrupts(error)
            return False
        if samples:
            check_unchanged(self._state_map, samples)
        opened = [at for at, each in enumerate(before) if each is NO_ITEMS]
        firsts = metas_in_order(metas, [groups.firsts[at] for at in opened], increasing=True)
        parents = with_suffix(firsts, self._group_suffix)
        for (_, _, moment), (left, right) in zip(stretches, groups.bounds):
            end = self._ends[moment]
            end.settled.update(zip(groups.keys[left:right], after[left:right]))
            some = slice(bisect_left(opened, left), bisect_left(opened, right))
            timers = later_metas(parents[some], self._timer_ending, end.until, self._process.phase)
            end.timers.update(zip([groups.keys[at] for at in opened[some]], timers))
        return True

    def _fold(self, moment: bytes, metas: Metas, keys: Sequence[Any], payloads: list[Any]) -> bool:
        """Add items of one moment to their windows, if no item will come below them; False if that is not possible."""
        end = self._end_of(moment)
        of_batch = dict.fromkeys(keys)
        if end.windows and not self._settle_below(end, of_batch, metas[0]):
            return False
        settled = end.settled
        known = {key: settled[key] for key in of_batch if key in settled}
        opened = [key for key in of_batch if key not in known]
        notes: dict[Any, Any] = {}
        try:
            if opened:
                indices = dict(zip(reversed(keys), range(len(keys) - 1, -1, -1)))  # the first of each
                firsts = list(map(indices.__getitem__, opened))
                notes = {key: self._opens.key(payloads[at]) for key, at in zip(opened, firsts) if type(key) is bytes}
            self._opens.aggregate.add_each(known, keys, payloads)
        except BaseException as error:  # raised again in _append
            pass_interrupts(error)
            return False
        settled.update(known)
        if opened:
            parents = with_suffix(metas_in_order(metas, firsts, increasing=True), self._group_suffix)
            end.timers.update(zip(opened, later_metas(parents, self._timer_ending, end.until, self._process.phase)))
            end.notes.update(notes)
        return True

    def _settle_below(self, end: _End, keys: Iterable[Any], bound: bytes) -> bool:
        """Settle the windows of keys, below a bound that no item will come below; False if one has items above it."""
        for key in keys:
            window = end.windows.get(key)
            if window is not None:
                if window.metas and window.metas[-1] >= bound:
                    return False
                self._retained -= len(window.metas)
                self._settle(end, key, end.windows.pop(key))
        return True

    def _settle(self, end: _End, key: Any, window: _Window) -> None:
        """Settle a window that has settled items only."""
        end.settle(key, window.note, self._timer_of(end, window), window.accumulators[-1])

    def _end_of(self, moment: bytes, *, has_passed: bool = False) -> _End:
        end = self._ends.get(moment)
        if end is None:
            end = self._ends[moment] = _End(moment)
            end.has_passed = has_passed
            heappush(self._passed if has_passed else self._upcoming, moment)
        return end

    def _append(
        self, moment: bytes, metas: Metas, keys: Sequence[Any], payloads: list[Any]
    ) -> list[tuple[Any, bytes, Any]]:
        """Add the items of one moment that are above all others of their windows; returns the rest."""
        end = self._end_of(moment)
        windows, settled = end.windows, end.settled
        find = windows.get
        add, begin, key_of = self._opens.aggregate.add, self._opens.aggregate.begin, self._opens.key
        rest: list[tuple[Any, bytes, Any]] = []
        for key, meta, payload in zip(keys, metas, payloads):
            window = find(key)
            try:
                if window is None and key in settled:
                    window = windows[key] = end.pop_settled(key)
                if window is None:
                    accumulator = begin(payload)
                    window = windows[key] = _Window(key_of(payload), None, NO_ITEMS)
                    window.metas.append(meta)
                    window.payloads.append(payload)
                    window.accumulators.append(accumulator)
                    continue
                known = window.metas
                if known and known[-1] >= meta:
                    rest.append((key, meta, payload))
                    continue
                accumulators = window.accumulators
                accumulators.append(add(accumulators[-1], payload))
                known.append(meta)
                window.payloads.append(payload)
            except BaseException as error:  # raised again in _change, which reports it
                pass_interrupts(error)
                rest.append((key, meta, payload))
        self._retained += len(payloads) - len(rest)
        return rest

    # Corrections: items below others, and tombstones.

    def _change(
        self,
        moment: bytes,
        key: Any,
        changes: list[tuple[bytes, Any, int]],
        out: Difference,
        failures: Difference,
    ) -> None:
        """Apply items and tombstones anywhere among the items of a window."""
        end = self._end_of(moment)
        window = end.windows.get(key)
        if window is None:
            window = end.windows[key] = self._opened(end, key)
        first = len(window.metas)
        for meta, payload, diff in changes:
            first = min(first, self._apply(window, meta, payload, diff))
        if window.metas and window.timer is None:
            window.note = self._opens.key(window.payloads[0])
        self._aggregate(window, first, failures)
        if end.has_passed:
            self._send(end, key, window, out, failures)
        if window.is_empty:
            del end.windows[key]

    def _opened(self, end: _End, key: Any) -> _Window:
        """A new window, or one that had settled items only and will change."""
        if key not in end.settled:
            return _Window(None, None, NO_ITEMS)
        window = end.pop_settled(key)
        if end.has_passed:
            window.sent = self._outputs(end, key, window)
        return window

    def _apply(self, window: _Window, meta: bytes, payload: Any, diff: int) -> int:
        """Apply one item or tombstone; returns its index, or where it would be, among the window's items."""
        metas, payloads = window.metas, window.payloads
        at = bisect_left(metas, meta)
        if diff == 1:
            if not self._debts.settles(meta, payload):
                metas.insert(at, meta)
                payloads.insert(at, payload)
                self._retained += 1
            return at
        first = at
        while at < len(metas) and metas[at] == meta and not same(payloads[at], payload):
            at += 1
        if at < len(metas) and metas[at] == meta:
            del metas[at], payloads[at]
            self._retained -= 1
        else:
            self._debts.owe(meta, payload)
        return first

    def _aggregate(self, window: _Window, first: int, failures: Difference) -> None:
        """Aggregate a window again from index `first` on."""
        before = window.failure
        accumulators, aggregate = window.accumulators, self._opens.aggregate
        del accumulators[first + 1 :]
        accumulator = accumulators[-1]
        if accumulator is not _BLOCKED:
            window.failure = None
        for meta, payload in zip(window.metas[first:], window.payloads[first:]):
            if accumulator is not _BLOCKED:
                known = accumulator
                try:
                    accumulator = aggregate.begin(payload) if known is NO_ITEMS else aggregate.add(known, payload)
                except BaseException as error:
                    pass_interrupts(error)
                    state = State(None, self._process.initial if known is NO_ITEMS else known)
                    accumulator = _BLOCKED
                    failure = failed_step(self._state_map, error, (state, payload))
                    window.failure = meta + self._failure_suffix, failure
            accumulators.append(accumulator)
        self._blocked += (window.failure is not None) - (before is not None)
        old, new = ([] if each is None else [each] for each in (before, window.failure))
        _replace(old, new, failures)

    def _send(self, end: _End, key: Any, window: _Window, out: Difference, failures: Difference) -> None:
        """Replace the outputs of a window that has ended."""
        outputs = self._outputs(end, key, window)
        if outputs:
            self._touched.note_one(self._timer_of(end, window), key)
        if not window.sent:
            for meta, payload in outputs:
                into = failures if type(payload) is Failure else out
                into.metas.append(meta)
                into.payloads.append(payload)
                into.diffs.append(1)
        else:
            for kind, into in ((False, out), (True, failures)):
                old, new = (
                    [one for one in each if (type(one[1]) is Failure) is kind] for each in (window.sent, outputs)
                )
                _replace(old, new, into)
        window.sent = outputs

    def _outputs(self, end: _End, key: Any, window: _Window) -> list[tuple[bytes, Any]]:
        """The outputs of a window that has ended, with metas."""
        accumulator = window.accumulators[-1]
        if accumulator is NO_ITEMS or accumulator is _BLOCKED:
            return []
        timer = self._timer_of(end, window)
        try:
            result = self._process.on_time(accumulator, window.note, end.until)
            _, outputs = state_and_outputs(result)
            return [(timer + self._output_head + varint(index), output) for index, output in enumerate(outputs)]
        except BaseException as error:
            pass_interrupts(error)
            last = State(None, accumulator), Timer(key, window.note)
            return [(timer + self._failure_suffix, failed_step(self._state_map, error, last))]

    def _timer_of(self, end: _End, window: _Window) -> bytes:
        return window.timer or self._timer(window.metas[0], end.until)

    # Memory.

    def settle(self, minimal_time: bytes) -> None:
        """Drop items below minimal time from time to time, since none will change any more."""
        self._settled = minimal_time
        while self._passed and self._passed[0] + END_OF_TIME <= minimal_time:
            end = self._ends.get(self._passed[0])
            if end is not None and end.has_passed:
                self._retained -= sum(len(window.metas) for window in end.windows.values())
                del self._ends[end.moment]
            heappop(self._passed)
        self._fired = [taken for taken in self._fired if self._phased(taken.untils[-1]) + END_OF_TIME > minimal_time]
        if self._retained > self._sweep_at or minimal_time == END_OF_TIME:
            self._sweep()
        self._touched.settle(minimal_time)

    def _sweep(self) -> None:
        """Drop settled items."""
        settled = self._settled
        retained = windows = 0
        for end in self._ends.values():
            for key, window in list(end.windows.items()):
                at = bisect_left(window.metas, settled)
                if at == len(window.metas) and window.failure is None and not end.has_passed:
                    self._settle(end, key, end.windows.pop(key))
                    continue
                if at:
                    window.timer = self._timer_of(end, window)
                    del window.metas[:at], window.payloads[:at], window.accumulators[:at]
                retained += len(window.metas)
                windows += 1
        self._retained = retained
        self._sweep_at = max(_ITEMS_RETAINED_MIN, 2 * retained, windows)

    # As of a checkpoint.

    def as_of(self, checkpoint: bytes, keys: Sequence[Any]) -> Entries:
        """The open windows of these keys and their ends, in the form of a process on a `KeyedStage`."""
        self._make_objects()
        found: dict[Any, Any] = dict.fromkeys(keys, DELETED)
        for end in self._ends.values():
            for windows in (end.settled, end.windows):
                for key in found if len(found) < len(windows) else windows:
                    if key in windows and key in found:
                        accumulator, timer, note = self._as_of(end, key, checkpoint)
                        if accumulator is not NO_ITEMS and timer >= checkpoint:
                            found[key] = accumulator, [(timer, Timer(key, note))]
        return Entries.of(entry for entry in found.items() if entry[1] is DELETED or entry[1][0] is not _BLOCKED)

    def _as_of(self, end: _End, key: Any, checkpoint: bytes) -> tuple[Any, bytes, Any]:
        """The accumulator, the meta of the end and the note of a window; NO_ITEMS if it has no items below the
        checkpoint.
        """
        if key in end.settled:
            return end.settled[key], end.timers[key], end.notes.get(key, key)
        window = end.windows[key]
        accumulator = window.accumulators[bisect_left(window.metas, checkpoint)]
        return accumulator, checkpoint if accumulator is NO_ITEMS else self._timer_of(end, window), window.note

    def rewind(self, checkpoint: bytes) -> None:
        """Forget all that is at or above a checkpoint; see `Stage`."""
        self._make_objects()
        above = self._touched.above(checkpoint)
        for end in list(self._ends.values()):
            for key in above if len(above) < len(end.windows) else list(end.windows):
                window = end.windows.get(key)
                if window is None:
                    continue
                at = bisect_left(window.metas, checkpoint)
                self._retained -= len(window.metas) - at
                del window.metas[at:], window.payloads[at:], window.accumulators[at + 1 :]
                if window.failure is not None and window.failure[0] >= checkpoint:
                    window.failure = None
                    self._blocked -= 1
                if window.is_empty:
                    del end.windows[key]
            if end.has_passed and end.moment + END_OF_TIME > checkpoint:
                for key in [key for key, timer in end.timers.items() if timer < checkpoint]:
                    end.windows[key] = self._opened(end, key)  # its outputs stay as they were sent
                end.has_passed = False
                heappush(self._upcoming, end.moment)
                for window in end.windows.values():
                    if self._timer_of(end, window) >= checkpoint:
                        window.sent = []
            if not end.windows and not end.settled:
                del self._ends[end.moment]
        self._upcoming = [moment for moment in self._upcoming if moment in self._ends]
        heapify(self._upcoming)
        self._touched.rewind(checkpoint)
        self._debts.rewind(checkpoint)
        self.heartbeat = checkpoint

    def put(self, entries: Iterable[tuple[Any, Any]]) -> None:
        for key, (accumulator, timers) in entries:
            for timer, note in timers:
                self._end_of(moment_of(timer)).settle(key, note.note, timer, accumulator)

    @property
    def held(self) -> int:
        """How many items are unsettled, windows have not ended, and tombstones wait for their items."""
        held = len(self._debts) + (len(self._open) if self._open else 0)
        for end in self._ends.values():
            held += 0 if end.has_passed else len(end.windows) + len(end.settled)
            for window in end.windows.values():
                held += len(window.metas) - bisect_left(window.metas, self._settled)
        return held


def _replace(old: Sequence[tuple[bytes, Any]], new: Sequence[tuple[bytes, Any]], into: Difference) -> None:
    """Send the difference between `old` and `new`."""
    if not old and not new:
        return
    current = Difference()
    current.metas, current.payloads = [meta for meta, _ in new], [payload for _, payload in new]
    difference(old, current, into)


def _leaving(out: Difference, failures: Difference, ports: Ports) -> Columns:
    if failures.metas:
        ports.setdefault(FAILURES, []).append(failures.columns())
    return out.columns()
