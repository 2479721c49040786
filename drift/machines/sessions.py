"""The process of windows that each item prolongs, as sessions are: a batch in one loop, without a step for each item.

Invariant: the outputs, states and timers are those of the process, timer by timer: what is done here is what its steps
would do, and what they would do otherwise (a function raises, an item comes below others) is left to them.

Why: such a process (`drift.operators.ProlongsWindows`) has one timer for each open window, and the timer either outputs
the window or only sets itself again at what is by then the window's end. If no item will come below a batch, nothing of
it is taken back: so a timer moves in place, without a node, and only when an item or the heartbeat is above it. The
meta of a timer contains the root of its chain and the number of its hops, which are stored with it: to move it takes
one hash.
"""

from __future__ import annotations

from collections.abc import Sequence
from heapq import heappop, heappush, heapreplace
from typing import Any

import xxhash

from drift.machines.changes import Difference
from drift.machines.process import BLOCKED, HEAP, META, PAYLOAD, STATE, Due, Node, ProcessStage
from drift.operators import Process, ProlongsWindows, Timer
from drift_graph.functions import pass_interrupts
from drift_graph.later import HOPS_MAX
from drift_graph.meta import (
    END,
    LATER_MARK,
    LATER_MARK_AT,
    global_time_of,
    hops_of,
    moment_of,
    pack_time,
    root_of,
    time_of,
    varint,
)
from drift_graph.metas import Metas, may_be_later, times_of
from drift_graph.operators import Group, Map
from drift_graph.unchanged import check_unchanged


class _End(Due):
    """The timer of a window.

    Attributes:
        time: of its meta.
        chain: what follows the time in the meta of the next one: its moment, and the root; see `later_meta`.
        hops: see `hops_of`.
    """

    __slots__ = ("time", "chain", "hops")

    def __init__(self, meta: bytes, timer: Timer, parts: tuple[int, bytes, int] | None = None) -> None:
        super().__init__(meta, timer)
        if parts is None:
            parts = time_of(meta), _moment_ending(moment_of(meta)[-1]) + root_of(meta), hops_of(meta)
        self.time, self.chain, self.hops = parts


def _moment_ending(phase: int) -> bytes:
    """What follows the time in a moment of the first round."""
    return b"\xff" + varint(0) + bytes((phase,))


class SessionStage(ProcessStage):
    """The machine of such a process on one worker; it has the arguments and attributes of `ProcessStage`."""

    new_due = _End
    form = "SessionStage"

    def __init__(
        self,
        group: Group,
        state: Map,
        timers: Map,
        process: Process,
        ranks: tuple[int, int, int, int],
        *,
        cyclic: bool = False,
    ) -> None:
        super().__init__(group, state, timers, process, ranks, cyclic=cyclic)
        assert isinstance(process.on_item, ProlongsWindows)
        self._prolongs = process.on_item
        self._moment_ending = _moment_ending(process.phase)
        self._hashed_ending = self._group_suffix + self._first_timer

    def _append(
        self, metas: Metas, keys: Sequence[Any], payloads: list[Any], out: Difference, failures: Difference
    ) -> dict[Any, list[tuple[bytes, Any, int]]]:
        done = self._prolong(metas, keys, payloads, out) if metas and metas[-1] < self.complete_below else 0
        if done == len(metas):
            return {}
        return super()._append(metas[done:], keys[done:], payloads[done:], out, failures)

    def _prolong(self, metas: Metas, keys: Sequence[Any], payloads: list[Any], out: Difference) -> int:
        """Process as many items as possible in one loop, for a batch that no item will come below; returns how many."""
        find, first, initial, prolongs = self._nodes.get, metas[0], self._process.initial, self._prolongs
        there = [node for node in map(find, dict.fromkeys(keys)) if node is not None]
        times = times_of(metas)
        if times[-1] > END - prolongs.gap or not all(node[META] < first and self._is_simple(node) for node in there):
            return 0
        if may_be_later(metas) and any(meta[LATER_MARK_AT] == LATER_MARK for meta in metas):
            return 0
        beyond, result, key_of = prolongs.gap - 1, prolongs.result, prolongs.key
        begin, add = prolongs.aggregate.begin_value, prolongs.aggregate.add_value
        samples = self._sampler.sample(payloads, there[0][STATE] if there else initial, *self._initials)
        done = 0
        try:
            values = prolongs.aggregate.values_of(payloads)
            for known in there:
                known[PAYLOAD:] = None, known[STATE], (), (), known[HEAP], None
            for done, key, value, time in zip(range(len(keys)), keys, values, times):
                node = find(key)
                if node is not None and (state := node[STATE]) is not initial:
                    due = node[HEAP][0]
                    until = state[1] + beyond
                    if time <= until:
                        node[STATE] = state[0], time, add(state[2], value)
                        if due.time < time:
                            self._move(due, until)
                        continue
                    self._end(key, due, until, result(state, due.timer.note, until), out)
                opened = time, time, begin(value)
                note = key_of(payloads[done]) if type(key) is bytes else key  # see `identities`
                self._open(key, note, metas[done], time + beyond, opened)
            done = len(keys)
        except BaseException as raised:  # raised again item by item, where it is reported
            pass_interrupts(raised)
        else:
            if samples:
                check_unchanged(self._state_map, samples)
        return done

    def _is_simple(self, node: Node) -> bool:
        """Whether a key has no window, or one with its timer."""
        state, heap = node[STATE], node[HEAP]
        if state is self._process.initial:
            return not heap
        return state is not BLOCKED and bool(heap) and len(heap) == 1 and heap[0].alive

    def _fire_due(self, out: Difference, failures: Difference) -> None:
        timers, nodes, prolongs, note = self._timers, self._nodes, self._prolongs, self._touched.note_one
        bound = min(self.heartbeat, self.complete_below)
        while timers and timers[0][0] < bound:
            meta, _, key, due = timers[0]
            if not due.alive:
                heappop(timers)
                continue
            if due.meta == meta:
                node = nodes[key]
                if not self._is_simple(node) or (self.ended and due.hops >= HOPS_MAX):
                    break
                state = node[STATE]
                try:
                    until = min(state[1] + prolongs.gap - 1, END)
                    if until <= due.time:
                        output = prolongs.result(state, due.timer.note, until)
                except BaseException as raised:  # raised again in a step, where it is reported
                    pass_interrupts(raised)
                    break
                note(meta, key)
                if until <= due.time:
                    heappop(timers)
                    self._end(key, due, until, output, out)
                    continue
                self._move(due, until)
            self._timers_set += 1
            heapreplace(timers, (due.meta, self._timers_set, key, due))
        super()._fire_due(out, failures)

    def _open(self, key: Any, note: Any, meta: bytes, until: int, state: Any) -> None:
        """Open a key's window and set its timer."""
        chain = self._moment_ending + global_time_of(meta)
        identity = xxhash.xxh3_128_digest(meta + self._hashed_ending)
        timer = pack_time(until) + chain + varint(1) + identity + self._first_timer
        due = _End(timer, Timer(key, note), (until, chain, 1))
        self._nodes[key] = [meta, None, state, (), (), [due], None]
        self._nodes_count += 1
        self._timers_set += 1
        heappush(self._timers, (timer, self._timers_set, key, due))

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
        del self._nodes[key]
        self._nodes_count -= 1
        out.metas.append(due.meta + self._output_suffixes[0])
        out.payloads.append(output)
        out.diffs.append(1)
