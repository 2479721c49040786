"""The process of sessions: for each key a state, its timers, and enough history to insert an item.

Other processes run on the keyed machine (`keyed.py`); this one is behind `sessions.py`, whose timers move in place.

Invariant: after `process` or `fire`, the state of a key and the outputs sent for it, counting tombstones, are those of
applying its items and timers in the order of their metas, from `initial`; except timers at or above both the heartbeat
and the key's last item, which have not fired yet.

Why: keys are independent, so each is processed by itself: a timer fires before the key's next item above it, or when
the sources are past it. Every step adds a node that links to the previous one. If an item comes below others of its
key, the nodes above it are undone, the timers that they set are removed, the timers that they fired are set again, and
the key is recomputed from there; the difference is sent.

If no item will come below a batch, its steps are never undone: a key's node is reused, without a previous one.

Memory: the last node of each key, and all unsettled nodes. A key that is settled, without timers, and in its initial
state is dropped.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from heapq import heapify, heappop, heappush
from typing import Any

from drift.machines.changes import NOTHING, Debts, Difference, difference
from drift.machines.checkpoints import DELETED, Entries, KeyedState, Touched
from drift.machines.keys import keyed
from drift.machines.maps import Ports
from drift.operators import Process, State, Timer, state_and_outputs
from drift_barrier.barrier import FAILURES
from drift_graph.canonical import same
from drift_graph.failures import META_BYTES_MAX, endless_cycle, failed_step
from drift_graph.functions import pass_interrupts
from drift_graph.item import Columns, Failure
from drift_graph.later import EndlessTimers, Later, placed
from drift_graph.meta import BEGINNING, END_OF_TIME, time_of, varint
from drift_graph.metas import Metas, times_of
from drift_graph.operators import Group, Map
from drift_graph.unchanged import Sampler, check_unchanged

#: In place of a state after a step that raised: later items of the key give nothing until that is corrected.
BLOCKED: Any = type("Blocked", (), {"__repr__": lambda self: "blocked"})()

_sequences = frozenset({list, tuple})

#: So many nodes more than there are keys may be stored before settled ones are searched for.
_NODES_RETAINED_MIN = 4096

# A node is a list, since one is made for each item:
META, PAYLOAD, STATE, OUTPUTS, TIMERS_SET, HEAP, BEFORE = range(7)
Node = list[Any]


class Due:
    """A timer: alive while it is set and has not fired."""

    __slots__ = ("meta", "timer", "alive")

    def __init__(self, meta: bytes, timer: Timer) -> None:
        self.meta = meta
        self.timer = timer
        self.alive = True

    def __lt__(self, other: Due) -> bool:
        return self.meta < other.meta


class ProcessStage(KeyedState):
    """The machine of one process on one worker.

    Args:
        group: its grouping.
        state, timers: the maps under which failures of calls, and of timers, are reported.
        process: its functions.
        ranks: of the grouping, the state's map, the timers' map and the output's map.

    Attributes:
        heartbeat: timers below it fire: all sources are past it, and in an iteration all items of its round.
        ended: whether all input has ended.
        new_due: makes a timer.
    """

    suffix = b""
    is_timed = True
    form = "ProcessStage"
    new_due: Callable[[bytes, Timer], Due] = Due

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
        self._group_suffix, state_rank, self._timers_rank, output_rank = map(varint, ranks)
        self._first_timer = self._timers_rank + varint(0)
        self._cyclic = cyclic
        self._failure_suffix = self._group_suffix + state_rank
        self._output_head = self._group_suffix + output_rank
        self._output_suffixes = [self._output_head + varint(0)]
        self._keys = Group(group.name, group.step, group.where, process.key, 2)  # timers never leave this stage
        self._group = group
        self._state_map, self._timers_map = state, timers
        self._process = process
        self.heartbeat = BEGINNING
        self.ended = False
        self._nodes: dict[Any, Node] = {}
        self._nodes_count = 0
        self._sweep_at = _NODES_RETAINED_MIN
        self._timers: list[tuple[bytes, int, Any, Any]] = []  # a heap over all keys, of `new_due`
        self._timers_set = 0
        self._debts = Debts(group.step)
        self._sampler = Sampler()
        self._initials = process.initials
        self._settled = BEGINNING
        self._touched: Touched = Touched()

    # Items and timers in order.

    def process(self, columns: Columns, ports: Ports) -> Columns:
        """Process a batch sorted by meta; returns outputs and tombstones, in any order, with complete metas."""
        columns, keys = keyed(self._keys, self._group_suffix, columns, ports, endless=self._cyclic)
        metas, payloads, diffs = columns
        self.get(metas, keys)
        out, failures = Difference(), Difference()
        if diffs is None and not self._debts:
            changes = self._append(metas, keys, payloads, out, failures)
        else:
            changes = {}
            for key, meta, payload, diff in zip(keys, metas, payloads, diffs or [1] * len(metas)):
                changes.setdefault(key, []).append((meta, payload, diff))
        for key, changed in changes.items():
            self._change(key, changed, out, failures)
        return self._leaving(out, failures, ports)

    def fire(self, ports: Ports) -> Columns:
        """Fire the timers below the heartbeat, in order; returns their outputs."""
        out, failures = Difference(), Difference()
        self._fire_due(out, failures)
        return self._leaving(out, failures, ports)

    def _fire_due(self, out: Difference, failures: Difference) -> None:
        timers, heartbeat = self._timers, self.heartbeat
        while timers and timers[0][0] < heartbeat:
            meta, _, key, due = heappop(timers)
            if not due.alive:
                continue
            if due.meta > meta:  # it was moved
                self._timers_set += 1
                heappush(timers, (due.meta, self._timers_set, key, due))
            else:
                self._fire(key, self._nodes[key], due, out, failures)

    @property
    def least_timer(self) -> bytes | None:
        """The meta of the first timer that has not fired; or a lower one, if a timer was taken back."""
        return self._timers[0][0] if self._timers else None

    @property
    def is_due(self) -> bool:
        """Whether any timer is below the heartbeat."""
        return bool(self._timers) and self._timers[0][0] < self.heartbeat

    def _append(
        self, metas: Metas, keys: Sequence[Any], payloads: list[Any], out: Difference, failures: Difference
    ) -> dict[Any, list[tuple[bytes, Any, int]]]:
        """Process the items of a batch that are above all others of their key; returns the rest, by key."""
        is_complete = bool(metas) and metas[-1] < self.complete_below
        nodes, on_item, initial = self._nodes, self._process.on_item, self._process.initial
        find, first_output = nodes.get, self._output_suffixes[0]
        rest: dict[Any, list[tuple[bytes, Any, int]]] = {}
        send_meta, send_payload, send_diff = out.metas.append, out.payloads.append, out.diffs.append
        first = find(keys[0]) if keys else None
        samples = self._sampler.sample(payloads, initial if first is None else first[STATE], *self._initials)
        made = 0
        for meta, key, payload, time in zip(metas, keys, payloads, times_of(metas)):
            node = find(key)
            if node is None:
                state, heap = initial, None
            else:
                if node[0] >= meta or (rest and key in rest):
                    rest.setdefault(key, []).append((meta, payload, 1))
                    continue
                heap = node[5]
                if heap and heap[0].meta < meta:
                    node = self._fire_below(key, node, meta, out, failures)
                state = node[2]
            try:
                if state is BLOCKED:
                    raise _Blocked
                result = on_item(state, payload, time)
                if type(result) is tuple and len(result) == 2 and type(result[1]) in _sequences:
                    state, outputs = result
                else:
                    state, outputs = state_and_outputs(result)
            except BaseException as error:
                pass_interrupts(error)
                self._block(key, meta, payload, node, error, failures)
                continue
            if node is None or not is_complete:
                node = nodes[key] = [meta, payload, state, outputs, (), heap, node]
                made += 1
            else:
                node[:] = meta, None, state, (), (), heap, None
            if not outputs:
                continue
            if len(outputs) == 1 and type(outputs[0]) is not Later:
                send_meta(meta + first_output)
                send_payload(outputs[0])
                send_diff(1)
            elif len(outputs) == 1:
                self._give(key, node, outputs, failures)
            elif Later not in set(map(type, outputs)):
                out.metas += [meta + suffix for suffix in self._suffixes(len(outputs))]
                out.payloads += outputs
                out.diffs += [1] * len(outputs)
            else:
                self._give(key, node, outputs, failures)
                for where, output in self._sent(node):
                    out.replace(where, NOTHING, output)
        self._nodes_count += made
        if samples:
            check_unchanged(self._state_map, samples)
        return rest

    def _suffixes(self, count: int) -> Sequence[bytes]:
        """The suffixes of an item's first `count` outputs, appended to its meta."""
        known = self._output_suffixes
        while len(known) < count:
            known.append(self._output_head + varint(len(known)))
        return known[:count]

    def _give(self, key: Any, node: Node, outputs: Sequence[Any], failures: Difference) -> None:
        """Set the timers among the results of a step, and store its outputs in the node."""
        plain: list[Any] = []
        timers: list[Due] = []
        for each in outputs:
            if type(each) is not Later:
                plain.append(each)
                continue
            ending = self._timers_rank + varint(len(timers))
            try:
                timer = placed(node[META] + self._group_suffix, ending, self._process.timer(key, each), self.ended)
            except EndlessTimers as error:
                where = node[META] + self._group_suffix + self._timers_rank
                failures.replace(where, NOTHING, failed_step(self._timers_map, error, each.payload))
                timers.clear()
                break
            timers.append(self.new_due(*timer))
        node[OUTPUTS] = plain
        if timers:
            node[TIMERS_SET] = timers
            for due in timers:
                self._set(key, node, due)

    def _set(self, key: Any, node: Node, due: Due) -> None:
        if node[HEAP] is None:
            node[HEAP] = []
        heappush(node[HEAP], due)
        self._timers_set += 1
        heappush(self._timers, (due.meta, self._timers_set, key, due))

    def _fire_below(self, key: Any, node: Node, bound: bytes, out: Difference, failures: Difference) -> Node:
        """Fire a key's timers below a bound; returns its last node after them."""
        heap = node[HEAP]
        while heap and heap[0].meta < bound:
            if not heap[0].alive:
                heappop(heap)
            else:
                self._fire(key, self._nodes[key], heap[0], out, failures)
        return self._nodes[key]

    def _fire(self, key: Any, node: Node, due: Due, out: Difference, failures: Difference) -> None:
        """Fire one timer, the first of its key."""
        heap = node[HEAP]
        while heap and not heap[0].alive:
            heappop(heap)
        assert heap and heap[0].meta == due.meta
        if heap[0] is due:
            heappop(heap)
        else:  # the timers of an item and of its replacement have the same meta
            heap.remove(due)
            heapify(heap)
        due.alive = False
        self._touched.note_one(due.meta, key)
        self._step(key, node, due.meta, due, out, failures)

    def _step(
        self, key: Any, node: Node | None, meta: bytes, payload: Any, out: Difference, failures: Difference
    ) -> None:
        """Process an item or a timer above all others of its key."""
        fresh: Node = [meta, payload, None, (), (), None if node is None else node[HEAP], node]
        state = self._process.initial if node is None else node[STATE]
        self._nodes_count += 1
        try:
            if state is BLOCKED:
                raise _Blocked
            if len(meta) > META_BYTES_MAX:
                raise endless_cycle(self._group)
            if isinstance(payload, Due):
                result = self._process.on_time(state, payload.timer.note, time_of(meta))
            else:
                result = self._process.on_item(state, payload, time_of(meta))
            fresh[STATE], outputs = state_and_outputs(result)
        except BaseException as error:
            pass_interrupts(error)
            self._block(key, meta, payload, node, error, failures)
            return
        self._nodes[key] = fresh
        if outputs:
            self._give(key, fresh, outputs, failures)
            for where, output in self._sent(fresh):
                out.replace(where, NOTHING, output)

    def _block(
        self, key: Any, meta: bytes, payload: Any, node: Node | None, error: BaseException, failures: Difference
    ) -> None:
        """Block the key: this step raised, or an earlier one did."""
        heap = None if node is None else node[HEAP]
        self._nodes[key] = fresh = [meta, payload, BLOCKED, (), (), heap, node]
        if not isinstance(error, _Blocked):
            before = self._process.initial if node is None else node[STATE]
            last = payload.timer if isinstance(payload, Due) else payload
            fresh[OUTPUTS] = (failed_step(self._state_map, error, (State(None, before), last)),)
            for where, failure in self._sent(fresh):
                failures.replace(where, NOTHING, failure)

    def _sent(self, node: Node) -> list[tuple[bytes, Any]]:
        """The outputs sent for a node, including a failure, with metas."""
        outputs = node[OUTPUTS]
        if node[STATE] is BLOCKED:
            return [(node[META] + self._failure_suffix, failure) for failure in outputs]
        meta = node[META]
        return [(meta + suffix, output) for suffix, output in zip(self._suffixes(len(outputs)), outputs)]

    # Corrections: items below others of their key.

    def _change(self, key: Any, changes: list[tuple[bytes, Any, int]], out: Difference, failures: Difference) -> None:
        """Undo the nodes at or above the first change, and recompute from there."""
        node, undone = self._parted(key, changes[0][0])
        items = self._undo(key, node, undone)
        for meta, payload, diff in changes:
            self._apply(items, meta, payload, diff)
        if node is None:
            self._nodes.pop(key, None)
        else:
            self._nodes[key] = node
        current, failed = Difference(), Difference()
        for meta, payload in items:
            last = self._nodes.get(key)
            if last is not None and last[HEAP]:
                last = self._fire_below(key, last, meta, current, failed)
            self._step(key, last, meta, payload, current, failed)
        last = self._nodes.get(key)
        if last is not None and last[HEAP]:
            self._fire_below(key, last, self.heartbeat, current, failed)
        before = [each for old in undone for each in self._sent(old)]
        difference([each for each in before if type(each[1]) is not Failure], current, out)
        difference([each for each in before if type(each[1]) is Failure], failed, failures)

    def _undo(self, key: Any, node: Node | None, undone: Sequence[Node]) -> list[tuple[bytes, Any]]:
        """Undo nodes; returns the items that they were made for."""
        self._nodes_count -= len(undone)
        items: list[tuple[bytes, Any]] = []
        dead: set[int] = set()
        for each in undone:
            for due in each[TIMERS_SET]:
                due.alive = False
                dead.add(id(due))
        for each in undone:
            if not isinstance(each[PAYLOAD], Due):
                items.append((each[META], each[PAYLOAD]))
            elif id(each[PAYLOAD]) not in dead:
                assert node is not None
                each[PAYLOAD].alive = True
                self._set(key, node, each[PAYLOAD])
        return items

    def _apply(self, items: list[tuple[bytes, Any]], meta: bytes, payload: Any, diff: int) -> None:
        """Apply an item or a tombstone to a key's unsettled items."""
        at = _position(items, meta)
        if diff == 1:
            if not self._debts.settles(meta, payload):
                items.insert(at, (meta, payload))
            return
        while at < len(items) and items[at][0] == meta and not same(items[at][1], payload):
            at += 1
        if at < len(items) and items[at][0] == meta:
            del items[at]
        else:
            self._debts.owe(meta, payload)

    def _leaving(self, out: Difference, failures: Difference, ports: Ports) -> Columns:
        if failures.metas:
            ports.setdefault(FAILURES, []).append(failures.columns())
        return out.columns()

    # Memory.

    def settle(self, minimal_time: bytes) -> None:
        """Drop nodes below minimal time from time to time, since none will change any more."""
        self._settled = minimal_time
        self._touched.settle(minimal_time)
        if self._nodes_count > self._sweep_at or minimal_time == END_OF_TIME:
            self._sweep()

    def _sweep(self) -> None:
        """Drop settled nodes, except the last of each key, and keys in their initial state without timers."""
        settled, initial = self._settled, self._process.initial
        retained = 0
        for key, node in list(self._nodes.items()):
            each: Node | None = node
            while each is not None and each[META] >= settled:
                retained += 1
                each = each[BEFORE]
            if each is None:
                continue
            retained += 1
            each[PAYLOAD], each[OUTPUTS], each[TIMERS_SET], each[BEFORE] = None, (), (), None
            if each is node and not _alive(node[HEAP]) and (node[STATE] is initial or same(node[STATE], initial)):
                del self._nodes[key]
                retained -= 1
        self._nodes_count = retained
        self._sweep_at = max(_NODES_RETAINED_MIN, 2 * retained)

    # As of a checkpoint.

    def as_of(self, checkpoint: bytes, keys: Sequence[Any]) -> Entries:
        """The states of these keys and their timers in order, or DELETED."""
        initial = self._process.initial
        found: list[tuple[Any, Any]] = []
        for key in keys:
            node, undone = self._parted(key, checkpoint)
            if node is None:
                found.append((key, DELETED))
            elif node[STATE] is not BLOCKED:
                timers = _timers_below(node, undone)
                as_if_new = not timers and (node[STATE] is initial or same(node[STATE], initial))
                found.append((key, DELETED if as_if_new else (node[STATE], timers)))
        return Entries.of(found)

    def rewind(self, checkpoint: bytes) -> None:
        """Forget all that is at or above a checkpoint; see `KeyedState.rewind`.

        The heartbeat becomes the checkpoint, and timers that had fired at or above it are set again.
        """
        for key in self._touched.above(checkpoint):
            node, undone = self._parted(key, checkpoint)
            if undone:
                self._undo(key, node, undone)
            if node is None:
                self._nodes.pop(key, None)
            else:
                self._nodes[key] = node
        self._touched.rewind(checkpoint)
        self._debts.rewind(checkpoint)
        self.heartbeat = checkpoint

    def _parted(self, key: Any, meta: bytes) -> tuple[Node | None, list[Node]]:
        """The last node of a key below a meta, and its nodes at or above it, in order."""
        undone: list[Node] = []
        node = self._nodes.get(key)
        while node is not None and node[META] >= meta:
            undone.append(node)
            node = node[BEFORE]
        undone.reverse()
        return node, undone

    def put(self, entries: Iterable[tuple[Any, Any]]) -> None:
        for key, (state, timers) in entries:
            self._nodes[key] = node = [BEGINNING, None, state, (), (), None, None]
            for meta, timer in timers:
                self._set(key, node, self.new_due(meta, timer))

    @property
    def held(self) -> int:
        """How many items are unsettled, timers have not fired, and tombstones wait for their items."""
        held = len(self._debts) + sum(len(_alive(node[HEAP])) for node in self._nodes.values())
        for node in self._nodes.values():
            each: Node | None = node
            while each is not None and each[META] >= self._settled:
                held += 1
                each = each[BEFORE]
        return held


class _Blocked(Exception):
    """Raised instead of a call that comes after one that raised."""


def _alive(heap: list[Due] | None) -> list[Due]:
    return [due for due in heap if due.alive] if heap else []


def _timers_below(node: Node, undone: Sequence[Node]) -> list[tuple[bytes, Timer]]:
    """The timers of a key that were pending after a node; `undone` are the nodes after it."""
    last = undone[-1] if undone else node
    above = {id(due) for each in undone for due in each[TIMERS_SET]}
    fired = [each[PAYLOAD] for each in undone if isinstance(each[PAYLOAD], Due)]
    return [(due.meta, due.timer) for due in sorted([*_alive(last[HEAP]), *fired]) if id(due) not in above]


def _position(items: Sequence[tuple[bytes, Any]], meta: bytes) -> int:
    """The index at which a meta is, or would be inserted, among items in order."""
    low, high = 0, len(items)
    while low < high:
        middle = (low + high) // 2
        if items[middle][0] < meta:
            low = middle + 1
        else:
            high = middle
    return low
