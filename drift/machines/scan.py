"""A scan's cycle fused into one loop: a state for each key, and enough history to insert an item.

Invariant: after `process`, the state of a key and the outputs sent for its items, counting tombstones, are those of
applying `step` to the key's items in the order of their metas, from `initial`.

Why: items above all earlier ones of their keys are processed in one loop and logged. For an item below others, the
history of its key is drawn from the log and recomputed from that item on, until a recomputed state equals the old one:
after that nothing can differ.

Memory: logged and drawn items are dropped when minimal time has passed them. Then a key has its last state only.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Sequence
from itertools import repeat
from operator import eq
from typing import Any

from drift.machines.changes import NOTHING, Debts, Difference
from drift.machines.cuts import DELETED, Entries
from drift.machines.grouping import keyed
from drift.machines.in_order import InOrder
from drift.machines.keys import stands_for_itself
from drift.machines.log import Keyed, Log
from drift.machines.maps import Ports
from drift.operators import ScanKey, ScanState, State, StepResult, StepsEach, pair_of
from drift_barrier.barrier import FAILURES
from drift_graph.canonical import same
from drift_graph.failures import failed_step
from drift_graph.functions import pass_interrupts
from drift_graph.item import Columns, Failure, joined
from drift_graph.meta import varint
from drift_graph.operators import Group, Map
from drift_graph.unchanged import Sample, Sampler, check_unchanged

#: In place of a state after a step that raised: later items of the key give nothing until that is corrected.
_BLOCKED: Any = type("Blocked", (), {"__repr__": lambda self: "blocked"})()


_COMPARED = frozenset({int, str, bool, type(None)})  # types within which == is the same as `same`
_NONE = Keyed([], [], [])
_SETTLED_RETAINED_MAX = 32  # settled items that a history may retain before it is cut


class _History:
    """The unsettled items of one key, except those in segments that it was not drawn from yet."""

    __slots__ = ("metas", "payloads", "befores", "outputs", "drawn_to")

    def __init__(self) -> None:
        self.metas: list[bytes] = []
        self.payloads: list[Any] = []
        self.befores: list[Any] = []
        self.outputs: list[Any] = []
        self.drawn_to = 0


class ScanStage(InOrder):
    """The machine of one scan on one worker.

    Args:
        group, state: the grouping and the map of its state.
        ranks: of these and of the map of its output, in this order.
    """

    def __init__(self, group: Group, state: Map, ranks: tuple[int, int, int], *, cyclic: bool = False) -> None:
        self._cyclic = cyclic
        assert isinstance(group.key, ScanKey) and isinstance(state.function, ScanState)
        group_rank, state_rank, output_rank = map(varint, ranks)
        self.suffix = group_rank + output_rank + varint(0)
        self._failure_suffix = group_rank + state_rank
        self._group_suffix = group_rank
        self._group = group
        self._state = state
        self._keys = Group(group.name, group.step, group.where, group.key.key, 2)  # no state comes back to this stage
        self._step = state.function.step
        self._initial = state.function.initial
        self._states: dict[Any, Any] = {}
        self._log = Log()
        self._histories: dict[Any, _History] = {}
        self._debts = Debts(group.step)
        self._sampler = Sampler()
        self._kind: type | None = None  # of the keys so far
        self._blocked_keys: dict[Any, None] = {}

    @property
    def wants_keys(self) -> bool:
        return isinstance(self._step, StepsEach) or super().wants_keys

    @property
    def _corrects(self) -> bool:
        return bool(self._blocked_keys)

    def _process(self, columns: Columns, ports: Ports, is_complete: bool) -> Columns:
        columns, keys = keyed(self._keys, self._group_suffix, columns, ports, endless=self._cyclic)
        metas, payloads, diffs = columns
        if not metas:
            return columns
        self.get(metas, keys)
        batch = Keyed(metas, keys, payloads)
        if is_complete:
            changed, rest = _NONE, batch
        elif diffs is None and not self._debts and not self._blocked_keys:
            changed, rest = self._log.parted(batch, self._histories)
        else:
            self._log.note(metas)
            changed, rest = batch, _NONE
        sent: list[Columns] = []
        if changed.metas:
            sent.append(self._change(changed, diffs, ports))
        if rest.metas and not self._blocked_keys:
            outputs = self._run_complete(rest) if is_complete else self._run(rest)
            done = len(outputs)
            sent.append(Columns(rest.metas[:done], outputs, None))
            rest = Keyed(rest.metas[done:], rest.keys[done:], rest.payloads[done:])
        if rest.metas:  # a step has raised
            sent.append(self._change(rest, None, ports))
        return joined(sent)

    def _run(self, batch: Keyed) -> list[Any]:
        """Process and log items above all others of their keys, up to the first whose step raises."""
        metas, keys, payloads = batch
        states, step, initial = self._states, self._step, self._initial
        find = states.get
        befores: list[Any] = []
        outputs: list[Any] = []
        remember, give = befores.append, outputs.append
        samples = self._sampler.sample(payloads, find(keys[0], initial), initial)
        try:
            for key, payload in zip(keys, payloads):
                state = find(key, initial)
                remember(state)
                match step(state, payload):
                    case state, output:
                        states[key] = state
                        give(output)
                    case other:
                        raise StepResult(other)
        except BaseException as raised:  # met again in _change, which says what and where
            pass_interrupts(raised)
            done = len(outputs)
            metas, keys, payloads, befores = metas[:done], keys[:done], payloads[:done], befores[:done]
        else:
            if samples:
                check_unchanged(self._state, samples, "a payload or a state")
        if outputs:
            self._log.append(metas, keys, payloads, befores, outputs)
        return outputs

    def _run_at_once(self, payloads: list[Any]) -> list[Any]:
        states, key_of, step, initial = self._states, self._keys.key, self._step, self._initial
        find = states.get
        kind = self._kind
        samples: list[Sample] = []
        outputs: list[Any] = []
        try:
            if kind is None or self._sampler.is_due:
                key = key_of(payloads[0])
                kind = self._kind = type(key)
            if not stands_for_itself(kind):
                return outputs
            if self._sampler.is_due:
                samples = self._sampler.sample(payloads, find(key, initial), initial)
            else:
                self._sampler.pass_by(len(payloads))
            for payload in payloads:
                key = key_of(payload)
                if type(key) is not kind:
                    break
                made = step(find(key, initial), payload)
                if type(made) is not tuple:
                    made = pair_of(made)
                states[key], output = made
                outputs.append(output)
        except BaseException as raised:  # raised again with the rest of the batch, where it is reported
            pass_interrupts(raised)
        else:
            if samples:
                check_unchanged(self._state, samples, "a payload or a state")
        return outputs

    def _run_complete(self, batch: Keyed) -> list[Any]:
        """Like `_run`, if no item will come below the batch, so that nothing has to be logged."""
        _, keys, payloads = batch
        states, step, initial = self._states, self._step, self._initial
        find = states.get
        outputs: list[Any] = []
        samples = self._sampler.sample(payloads, find(keys[0], initial), initial)
        try:
            if isinstance(self._step, StepsEach):
                self._step.each(states, keys, payloads, outputs)
            else:
                for key, payload in zip(keys, payloads):
                    made = step(find(key, initial), payload)
                    if type(made) is not tuple:
                        made = pair_of(made)
                    states[key], output = made
                    outputs.append(output)
        except BaseException as raised:  # met again in _change, which says what and where
            pass_interrupts(raised)
        else:
            if samples:
                check_unchanged(self._state, samples, "a payload or a state")
        return outputs

    def _change(self, batch: Keyed, diffs: Sequence[int] | None, ports: Ports) -> Columns:
        """Insert items and tombstones anywhere in the order."""
        metas, keys, payloads = batch
        changes: dict[Any, list[tuple[bytes, Any, int]]] = {}
        for key, meta, payload, diff in zip(keys, metas, payloads, diffs or [1] * len(metas)):
            changes.setdefault(key, []).append((meta, payload, diff))
        outputs, failures = Difference(), Difference()
        for key, changed in changes.items():
            self._change_key(key, changed, outputs, failures)
        if failures.metas:
            failed = failures.columns()
            ports.setdefault(FAILURES, []).append(
                failed._replace(metas=[meta + self._failure_suffix for meta in failed.metas])
            )
        return outputs.columns()

    def _change_key(
        self, key: Any, changes: list[tuple[bytes, Any, int]], outputs: Difference, failures: Difference
    ) -> None:
        history = self._history(key)
        first = bisect_left(history.metas, changes[0][0])
        old_befores, old_outputs = history.befores[first:], history.outputs[first:]
        metas, payloads = history.metas[first:], history.payloads[first:]
        olds: list[int] = list(range(len(metas)))  # index of each item among the old ones, or -1
        removed: dict[bytes, list[Any]] = {}  # outputs of the items that tombstones cancelled, by meta
        changed_end = 0  # from this index of the new items on, none was inserted or removed
        for meta, payload, diff in changes:
            at = bisect_left(metas, meta)
            if diff == 1:
                if self._debts.settles(meta, payload):
                    continue
                metas.insert(at, meta)
                payloads.insert(at, payload)
                olds.insert(at, -1)
                changed_end = max(changed_end + 1, at + 1)
                continue
            while at < len(metas) and metas[at] == meta and not same(payloads[at], payload):
                at += 1
            if at == len(metas) or metas[at] != meta:
                self._debts.owe(meta, payload)
                continue
            if olds[at] >= 0:
                removed.setdefault(meta, []).append(old_outputs[olds[at]])
            del metas[at], payloads[at], olds[at]
            changed_end = max(changed_end - 1, at)
        state = old_befores[0] if old_befores else self._states.get(key, self._initial)
        befores: list[Any] = []
        new_outputs: list[Any] = []
        for at, old in enumerate(olds):
            if at >= changed_end and same(state, old_befores[old]):
                befores += old_befores[old:]
                new_outputs += old_outputs[old:]
                break
            befores.append(state)
            state, output = self._stepped(state, payloads[at])
            new_outputs.append(output)
            meta = metas[at]
            before = old_outputs[old] if old >= 0 else (removed[meta].pop() if removed.get(meta) else NOTHING)
            _replace(meta, before, output, outputs, failures)
        else:
            self._states[key] = state
            if state is _BLOCKED:
                self._blocked_keys[key] = None
            else:
                self._blocked_keys.pop(key, None)
        for meta, lost in removed.items():
            for output in lost:
                _replace(meta, output, NOTHING, outputs, failures)
        history.metas[first:], history.payloads[first:] = metas, payloads
        history.befores[first:], history.outputs[first:] = befores, new_outputs

    def _stepped(self, state: Any, payload: Any) -> tuple[Any, Any]:
        if state is _BLOCKED:
            return _BLOCKED, NOTHING
        try:
            return pair_of(self._step(state, payload))
        except BaseException as error:
            pass_interrupts(error)
            return _BLOCKED, failed_step(self._state, error, (State(None, state), payload))

    def _history(self, key: Any) -> _History:
        history = self._histories.get(key)
        if history is None:
            history = self._histories[key] = _History()
        for meta, payload, before, output in self._log.draw(key, history):
            history.metas.append(meta)
            history.payloads.append(payload)
            history.befores.append(before)
            history.outputs.append(output)
        settled = bisect_left(history.metas, self._log.settled)
        if settled > _SETTLED_RETAINED_MAX:
            del history.metas[:settled], history.payloads[:settled], history.befores[:settled]
            del history.outputs[:settled]
        return history

    def settle(self, minimal_time: bytes) -> None:
        """Drop items below minimal time, since none will change any more; the last states stay."""
        self._log.settle(minimal_time)
        self._histories = self._log.unsettled(self._histories)
        if self._touched is not None:
            self._touched.settle(minimal_time)

    def as_of(self, cut: bytes, keys: Sequence[Any]) -> Entries:
        """The states of these keys as of the cut, or DELETED."""
        befores = self._befores(cut) if keys else {}
        initial, kind = self._initial, type(self._initial)
        states = list(map(self._states.get, keys, repeat(initial)))
        if befores:
            states = [befores.get(key, state) for key, state in zip(keys, states)]
        kinds = set(map(type, states))
        if kind not in kinds or (kinds == {kind} and kind in _COMPARED and initial not in states):
            return Entries(keys, states) if type(_BLOCKED) not in kinds else self._unblocked(keys, states)
        is_same = eq if kind in _COMPARED else same
        found = [DELETED if type(state) is kind and is_same(state, initial) else state for state in states]
        return self._unblocked(keys, found)

    def _unblocked(self, keys: Sequence[Any], states: Sequence[Any]) -> Entries:
        """Without keys whose step raised."""
        return Entries.of((key, state) for key, state in zip(keys, states) if state is not _BLOCKED)

    def rewind(self, cut: bytes) -> None:
        """Forget all that is at or above a cut; see `KeyedState.rewind`."""
        for key, state in self._befores(cut).items():
            self._blocked_keys.pop(key, None)
            if state is self._initial:
                self._states.pop(key, None)
            else:
                self._states[key] = state
                if state is _BLOCKED:
                    self._blocked_keys[key] = None
        for history in self._histories.values():
            at = bisect_left(history.metas, cut)
            del history.metas[at:], history.payloads[at:], history.befores[at:], history.outputs[at:]
        self._log.rewind(cut)
        self._debts.rewind(cut)
        if self._touched is not None:
            self._touched.rewind(cut)

    def _befores(self, cut: bytes) -> dict[Any, Any]:
        """The state of each key that has items at or above a cut, before the first of them."""
        befores: dict[Any, Any] = {}
        for key, history in self._histories.items():
            at = bisect_left(history.metas, cut)
            if at < len(history.metas):
                befores[key] = history.befores[at]
        for key, _, before, _ in self._log.above(cut):
            befores.setdefault(key, before)
        return befores

    def put(self, entries: Iterable[tuple[Any, Any]]) -> None:
        self._states.update(entries)

    @property
    def held(self) -> int:
        """How many items are unsettled, and tombstones wait for their items."""
        return len(self._debts) + self._log.held(self._histories)


def _replace(meta: bytes, old: Any, new: Any, outputs: Difference, failures: Difference) -> None:
    """The output sent at `meta` is `old` and should be `new`; either may be a failure, which goes to `failures`."""
    if type(old) is not Failure and type(new) is not Failure:
        outputs.replace(meta, old, new)
        return
    outputs.replace(meta, NOTHING if type(old) is Failure else old, NOTHING if type(new) is Failure else new)
    if type(old) is type(new) is Failure and old.message == new.message:
        return
    failures.replace(meta, old if type(old) is Failure else NOTHING, NOTHING)  # two are equal in other words as well
    failures.replace(meta, NOTHING, new if type(new) is Failure else NOTHING)
