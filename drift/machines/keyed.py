"""The one optimistic machine: it runs a logic for each key, and corrects itself where an item comes below others.

Invariant: after `process` or `fire`, the state of a key and the outputs sent for it, counting tombstones, are those of
giving its items and timers to the logic in the order of their metas, from the initial state; except timers at or above
both the heartbeat and the key's last item, which have not fired yet.

Why: keys are independent. Rows above all earlier ones of their keys go to the logic as they come, in one call; the
batch, the states of its keys before it and what it made are logged until they are settled. Where an item comes below
others of its key, or a tombstone comes, the key goes back to a state that was kept, and its rows and timers run again
from there through the same logic, until a state that was kept comes out again: after that nothing can differ. The
difference is sent. If nothing will come below a batch, nothing is logged; a stage that may have to go back to minimal
time keeps what the keys of the batch had before it (`undo.py`).

A timer knows the row that set it. So the timers that wait at a place in the order are those that were set below it and
come at or above it, and need not be kept apart.

Memory: logged and drawn rows are dropped when minimal time has passed them. Then a key has its last state, if that is
not the initial one, and its timers.
"""

from __future__ import annotations

import sys
from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from itertools import chain, groupby, repeat
from operator import attrgetter, eq, itemgetter, not_
from typing import Any, NamedTuple

from drift.machines.checkpoints import DELETED, Entries, KeyedState, Lookup, Paged
from drift.machines.differences import NOTHING, Debts, Difference, difference
from drift.machines.in_order import InOrder, Shared, unless_it_raises
from drift.machines.keys import keyed
from drift.machines.log import History, Keyed, Log, LoggedRow
from drift.machines.logics import Logic
from drift.machines.maps import Ports
from drift.machines.timers import Due, Timers
from drift.machines.undo import Before, Read, Step, Undo, taken_back
from drift.operators import KeyedItems, State, Timer
from drift_barrier.barrier import FAILURES
from drift_graph.canonical import same
from drift_graph.failures import check_lengths, failed_step
from drift_graph.functions import pass_interrupts
from drift_graph.item import Columns, Failure, joined
from drift_graph.later import EndlessTimers, Later, placed
from drift_graph.meta import BEGINNING, END_OF_TIME, time_of, varint
from drift_graph.metas import Metas
from drift_graph.operators import Group, Map
from drift_graph.payloads import are_rows, have_fields
from drift_graph.unchanged import Sample, Sampler, changed_later, check_unchanged

#: In place of a state after a call that raised: later rows of the key make nothing until that is corrected.
BLOCKED: Any = type("Blocked", (), {"__repr__": lambda self: "blocked"})()

_COMPARED = frozenset({int, str, bool, type(None)})  # types within which == is the same as `same`
_SWEPT_MIN = 4096  # so many states are stored before those that are the initial one are searched for
_APART_MIN, _APART_MAX = 8, 32  # rows between two states that are kept where rows run again


class Place(NamedTuple):
    """The operators that a stage stands for.

    Attributes:
        state: the map under which failures of calls are reported.
        timers: the map under which endless timers are reported.
        ranks: of the grouping, and of the maps of state, timers and output, as bytes; those that there are.
    """

    group: Group
    state: Map | None
    timers: Map | None
    ranks: tuple[bytes, ...]


class Failed(tuple[Any, ...]):
    """What a row made whose call raised: no outputs, and a failure."""

    failure: Failure

    @classmethod
    def of(cls, failure: Failure) -> Failed:
        failed = cls()
        failed.failure = failure
        return failed


class _Fired(NamedTuple):
    """A timer that fired, the outputs, and the state before it."""

    meta: bytes
    key: Any
    due: Due
    outputs: Sequence[Any]
    before: Any


class KeyedStage(KeyedState):
    """The machine of one logic on one worker.

    Args:
        cyclic: whether items may come back to it through other operators.

    Attributes:
        suffix: the bytes that the metas of its output still lack.
        heartbeat: timers below it fire: all sources are past it, and in an iteration all items of its round.
        ended: whether all input has ended.
        fired: how many timers the last `fire` fired one by one.
        in_order: the form in order of its logic.
        has_columns: whether it has a form for rows in columns, where nothing can come below them.
        is_timed, only_at_ends, keeps_owner, keeps_key, form, objects_because: see `Logic`.
    """

    def __init__(self, logic: Logic, place: Place, *, cyclic: bool = False) -> None:
        group, self._state_map, self._timers_map, ranks = place
        self._logic = logic
        self.is_timed, self.only_at_ends, self.form = logic.is_timed, logic.only_at_ends, logic.form
        self._on_rows: Any = getattr(logic, "on_rows", None)
        self.keeps_owner, self.keeps_key = logic.keeps_owner, logic.keeps_key
        self.objects_because = logic.objects_because
        self._cyclic = cyclic
        self._group = group
        self._group_suffix = ranks[0]
        self._failure_suffix = ranks[0] + ranks[1] if len(ranks) > 1 else b""
        self._timers_rank = ranks[2] if len(ranks) > 3 else b""
        self._first_timer = self._timers_rank + varint(0)
        self._output_head = ranks[0] + ranks[-1] if len(ranks) > 1 else ranks[0]
        self._output_suffixes = [self._output_head + varint(0)]
        self.suffix = b"" if logic.gives_many else self._output_suffixes[0] if len(ranks) > 1 else ranks[0]
        self._nothing: Any = () if logic.gives_many else NOTHING
        self._keys = Group(group.name, group.step, group.where, logic.key, group.window)
        self._initial = logic.initial
        self._states: dict[Any, Any] = {}
        self._sweep_at = _SWEPT_MIN
        self._log = Log(self._replayed)
        self._histories: dict[Any, History] = {}
        self._blocked: dict[Any, None] = {}
        self._debts = Debts(group.step)
        self._sampler, self._key_sampler = Sampler(), Sampler()
        self._failing = Difference()
        self.heartbeat = BEGINNING
        self.ended, self.fired = False, 0
        self._timers = Timers()
        self._undo: Undo[KeyedStage] = Undo()
        of_states, fire = partial(self._sampled_for_timers, ()), self._fire_timers
        of_stage = self._states, self._timers, self.put, ranks, self.get, self._note_fired, fire, self._undo
        shared = Shared(*of_stage, self._sampled, of_states, self._check)
        self.in_order = InOrder() if logic.in_order is None else logic.in_order(shared)
        self.has_columns = self._on_rows is not None or logic.only_at_ends or self.in_order.has_columns

    # Rows in order.

    def process(self, columns: Columns, ports: Ports) -> Columns:
        """Process a batch sorted by meta; returns outputs and tombstones, whose metas still lack the suffix.

        Raises:
            ImpureStep: a user's function has changed what it was handed, or what it had returned before.
        """
        sent = self._processed(columns, ports)
        if self._undo:
            self._undo.end_step(columns.metas[-1] + b"\0" if columns.metas else BEGINNING, columns, ended=self.ended)
        self._check_returned(sent)
        return sent

    def _check_returned(self, sent: Columns) -> None:
        noting = self._logic.noting
        if noting is not None and (changed := noting.check(sent.payloads)):
            raise changed_later(self._state_map or self._group, changed)

    def _processed(self, columns: Columns, ports: Ports) -> Columns:
        metas, payloads, diffs = columns
        if not metas:
            return columns
        self._settle_complete(metas[0])
        is_complete = diffs is None and metas[-1] < self.complete_below and self._log.is_above(metas[0])
        is_complete = is_complete and not self._debts
        if is_complete and not self._blocked and are_rows(payloads):
            rows = self._in_columns(metas, payloads) if self._on_rows is not None and have_fields(payloads) else None
            if rows is not None:
                return Columns(metas, rows, None)
            done, sent = self.in_order.process_rows(metas, payloads)
            if done < len(metas):
                sent += self._process(columns.slice(done, len(metas)), ports, is_complete)
            return self._leaving(sent, ports)
        return self._leaving(self._process(columns, ports, is_complete), ports)

    def _in_columns(self, metas: Metas, rows: Any) -> Any:
        """The outputs of rows as rows; None if the logic has no form for these."""

        def fetch(keys: Sequence[Any]) -> list[Any]:
            self.get([metas[-1]] * len(keys), keys)
            states = list(map(self._states.get, keys, repeat(self._initial)))
            if self._undo:
                self._undo.note(Before(keys, partial(zip, keys, states)))
            return states

        return unless_it_raises(self._on_rows, self._keys.key, rows, fetch, self._states.update)

    def _sampled(self, payloads: Sequence[Any], keys: Sequence[Any] = ()) -> list[Sample]:
        """What the user's functions get for these, as it is: payloads, states that may change, and initial values.

        Args:
            keys: of payloads that the key function has just got.
        """
        states: Sequence[Any] = ()
        if keys and self._key_sampler.is_plain:
            payloads = ()
        if keys and self._logic.hands_state:
            are_kept = self._logic.noting is not None and self._logic.noting.has_kept
            states = [self._states.get(key, self._initial) for key in (dict.fromkeys(keys) if are_kept else keys[:1])]
        return self._sampler.sample(payloads, *states, *self._logic.initials)

    def _sampled_for_timers(self, notes: Sequence[Any], states: Sequence[Any]) -> list[Sample]:
        return self._sampler.sample(notes, *states, *self._logic.initials) if self._logic.noting is not None else []

    def _check(self, samples: Sequence[Sample]) -> None:
        if samples and self._state_map is not None:
            check_unchanged(self._state_map, samples)

    def _process(self, columns: Columns, ports: Ports, is_complete: bool) -> list[Columns]:
        if are_rows(columns.payloads):
            columns.payloads.need_values()
        columns, keys = keyed(self._keys, self._group_suffix, columns, ports, self._key_sampler, endless=self._cyclic)
        metas, payloads, diffs = columns
        if not metas:
            return []
        self.get(metas, keys)
        batch = Keyed(metas, keys, payloads)
        sent: list[Columns] = []
        if self.in_order.takes_objects and is_complete and not self._blocked:
            samples = self._sampled(payloads, keys)
            done, sent = self.in_order.process(batch)
            if done == len(keys):
                self._check(samples)
                return sent
            batch = batch.after(done)
        self.in_order.hand_back()  # what may be corrected, is no value of it or is behind a call that raised
        if is_complete:
            return self._append(batch, sent, is_complete=True)
        if diffs is None and not self._debts:
            changed, rest = self._log.parted(batch, self._histories, whole_keys=self.is_timed)
        else:
            self._log.pass_by(metas)
            changed, rest = batch, batch.slice(0, 0)
        sent = [self._change(changed, diffs)] if changed.metas else []
        return self._append(rest, sent, is_complete=False) if rest.metas else sent

    def _append(self, batch: Keyed, sent: list[Columns], *, is_complete: bool) -> list[Columns]:
        """Process rows above all others of their keys, and log them if something may come below."""
        if is_complete:
            self._note(batch.keys)
            takes, left = self._logic.takes, -1
            while takes is not None and batch.keys and len(batch.keys) != left:  # else none of them was taken
                left = len(batch.keys)
                batch = self._take(batch, takes, sent)
            if not batch.keys:
                return sent
        fired: list[_Fired] = []
        befores: dict[Any, Any] | None = None if is_complete else {}
        outputs = self._run(batch, fired, befores)
        sent.append(self._sent(batch, outputs))
        if fired:
            sent.append(self._took_place(fired))
        if befores is not None:
            metas, keys, subjects, results = _merged(batch, outputs, fired) if fired else (*batch, outputs)
            self._log.pass_by(metas)
            self._log.append(metas, keys, subjects, results, befores)
        return sent

    def _take(self, batch: Keyed, takes: Callable[[Any], bool], sent: list[Columns]) -> Keyed:
        """Process rows that set no timers in one call, where nothing can come below the batch; returns the others.

        Those are rows of keys whose state the logic does not take, and rows above the next timer of their key.
        """
        metas, keys, payloads = batch
        last = metas[-1]
        firsts = dict(zip(reversed(keys), range(len(keys) - 1, -1, -1)))
        fired: list[_Fired] = []
        states: dict[Any, Any] = {}
        bounds: dict[Any, bytes] = {}  # of some keys: their rows from here on are not taken
        timers_of = self._timers.by_key.get
        for key, at in firsts.items():
            heap = timers_of(key)
            if heap and heap[0].meta < last:
                self._fire_below(key, metas[at], fired)
                heap = timers_of(key)
                if heap and heap[0].meta < last:
                    bounds[key] = heap[0].meta
            state = self._states.get(key, self._initial)
            if state is BLOCKED or not takes(state):
                bounds[key] = BEGINNING
            elif state is not self._initial:
                states[key] = state
        if fired:
            sent.append(self._took_place(fired))
        rest = batch.slice(0, 0)
        if bounds:
            others = bytes([meta >= bounds.get(key, END_OF_TIME) for key, meta in zip(keys, metas)])
            batch, rest = batch.chosen(bytes(map(not_, others))), batch.chosen(others)
            metas, keys, payloads = batch
            if not keys:
                return rest
        outputs: list[Any] = []
        samples = self._sampled(payloads, keys)
        try:
            self._logic.on_taken(states, KeyedItems(keys, payloads, metas), outputs.append)
        except BaseException as raised:  # raised again row by row, where it is reported
            pass_interrupts(raised)
        else:
            self._check(samples)
        done = len(outputs)
        if done:
            self._states.update(states)
            sent.append(self._sent(Keyed(metas[:done], keys[:done], payloads[:done]), outputs))
        if done == len(keys):
            return rest
        return Keyed(
            Metas.joined([metas[done:], rest.metas]), [*keys[done:], *rest.keys], [*payloads[done:], *rest.payloads]
        )

    def _run(self, batch: Keyed, fired: list[_Fired], befores: dict[Any, Any] | None) -> list[Any]:
        """Give a batch to the logic, in one call if that is possible; what its rows made."""
        metas, keys, payloads = batch
        outputs: list[Any] = []
        samples = self._sampled(payloads, keys)
        try:
            if self.is_timed:
                each = self._fed(batch, outputs, fired, befores)
                self._logic.on_batch(self._states, KeyedItems(keys, payloads, metas, each), outputs.append)
            elif not self._blocked or self._blocked.keys().isdisjoint(keys):
                if befores is not None:
                    distinct = dict.fromkeys(keys)
                    befores.update(zip(distinct, map(self._states.get, distinct, repeat(self._initial))))
                self._logic.on_batch(self._states, KeyedItems(keys, payloads, metas), outputs.append)
        except BaseException as raised:  # raised again row by row, where it is reported
            pass_interrupts(raised)
        else:
            self._check(samples)
        if len(outputs) < len(keys):
            self._run_one_by_one(batch, outputs, fired, befores)
        return outputs

    def _run_one_by_one(
        self, batch: Keyed, outputs: list[Any], fired: list[_Fired], befores: dict[Any, Any] | None
    ) -> None:
        """Run rows behind those that have made something, one by one; calls may raise, or come after one that did."""
        states, initial, run, metas = self._states, self._initial, self._logic.on_batch, batch.metas
        for key, payload, _ in self._fed(batch, outputs, fired, befores):
            at, before = len(outputs), states.get(key, initial)
            try:
                run(states, KeyedItems((key,), (payload,), metas[at : at + 1]), outputs.append)
            except BaseException as error:
                pass_interrupts(error)
                del outputs[at:]
                outputs.append(self._failed(key, before, payload, error))

    def _fed(
        self, batch: Keyed, outputs: list[Any], fired: list[_Fired], befores: dict[Any, Any] | None
    ) -> Iterator[tuple[Any, Any, int]]:
        """The rows after those that have made something; between them the timers of their keys fire that come before
        them, and those that they set are set.
        """
        metas, keys, payloads = batch
        start = len(outputs)
        if start:
            metas, keys, payloads = batch.after(start)
        states, timers_of, initial, blocked = self._states, self._timers.by_key.get, self._initial, self._blocked
        later = Later if self._logic.gives_many else None
        for at, (meta, key, payload, time) in enumerate(zip(metas, keys, payloads, metas.times()), start):
            if befores is not None and key not in befores:
                befores[key] = states.get(key, initial)
            heap = timers_of(key)
            if heap and heap[0].meta < meta:
                self._fire_below(key, meta, fired)
            if blocked and key in blocked:
                outputs.append(self._nothing)
                continue
            yield key, payload, time
            if later is not None and (own := outputs[at]) and (len(own) > 1 or type(own[0]) is later):
                outputs[at] = self._without_timers(key, meta, own)

    def _failed(self, key: Any, before: Any, subject: Any, error: BaseException) -> Failed:
        """Block a key whose call raised; what its row makes."""
        assert self._state_map is not None
        self._states[key] = BLOCKED
        self._blocked[key] = None
        return Failed.of(failed_step(self._state_map, error, (State(None, before), subject)))

    # What is sent.

    def _sent(self, batch: Keyed, outputs: list[Any]) -> Columns:
        """The outputs of a batch; failures go to their port."""
        metas = batch.metas
        if self._blocked:
            for meta, each in zip(metas, outputs):
                if type(each) is Failed:
                    self._failing.replace(meta + self._failure_suffix, NOTHING, each.failure)
        if self._logic.gives_many:
            counts = list(map(len, outputs))
            longest = max(counts)
            if not longest:
                return Columns(Metas(), [], None)
            return Columns(metas.children(counts, self._suffixes(longest)), list(chain.from_iterable(outputs)), None)
        if self._blocked:
            there = [at for at, each in enumerate(outputs) if each is not NOTHING and type(each) is not Failed]
            return Columns(metas.take(there), [outputs[at] for at in there], None)
        return Columns(metas, outputs, None)

    def _suffixes(self, count: int) -> Sequence[bytes]:
        """The suffixes of a row's first `count` outputs, appended to its meta."""
        known = self._output_suffixes
        while len(known) < count:
            known.append(self._output_head + varint(len(known)))
        return known[:count]

    def _outputs_of(self, rows: Iterable[LoggedRow]) -> tuple[Difference, Difference]:
        """What rows make, and their failures."""
        out, failures = Difference(), Difference()
        for meta, _, outputs in rows:
            if type(outputs) is Failed:
                failures.metas.append(meta + self._failure_suffix)
                failures.payloads.append(outputs.failure)
            elif self._logic.gives_many:
                out.metas += [meta + suffix for suffix in self._suffixes(len(outputs))]
                out.payloads += outputs
            elif outputs is not NOTHING:
                out.metas.append(meta)
                out.payloads.append(outputs)
        return out, failures

    def _leaving(self, sent: Sequence[Columns], ports: Ports) -> Columns:
        if self._failing.metas:
            ports.setdefault(FAILURES, []).append(self._failing.columns())
            self._failing = Difference()
        filled = [columns for columns in sent if columns.metas]
        return joined(filled) if len(filled) != 1 else filled[0]

    # Timers.

    def fire(self, ports: Ports, most: int = sys.maxsize) -> Columns:
        """Fire the timers below the heartbeat, the first ones first, and return what they give.

        Args:
            most: about as many as are to fire now, where they fire one by one; the others stay due.

        Raises:
            ImpureStep: see `process`.
        """
        self.fired = 0
        sent = self._fired(ports, most)
        if self._undo:
            self._undo.end_step(min(self.heartbeat, self.complete_below), None, ended=self.ended)
        self._check_returned(sent)
        return sent

    def _fired(self, ports: Ports, most: int) -> Columns:
        if (least := self.least_timer) is not None:
            self._settle_complete(least)
        sent: list[Columns] = []
        if not self._blocked:
            sent += self.in_order.fire(min(self.heartbeat, self.complete_below), ended=self.ended)
        if (least := self.in_order.least) is not None and least < self.heartbeat:
            self.in_order.hand_back()  # what it could not fire, fires one by one
        self._fire_timers(self.heartbeat, sent, most)
        return self._leaving(sent, ports)

    def _fire_timers(self, bound: bytes, sent: list[Columns], most: int = sys.maxsize) -> bool:
        """Fire the timers here below a bound, or about `most` of them; whether no call has raised."""
        timers = self._timers
        self.fired = 0
        while self.fired < most and (entries := timers.take_moment(bound, most - self.fired)):
            is_logged = entries[-1][0] >= self.complete_below or len(self._log) or self._histories  # of rows below them
            if not is_logged:
                self._note(key for _, _, key, _ in entries)
            firsts = {
                key: due for _, _, key, due in entries if timers.by_key[key][0] is due and key not in self._blocked
            }
            fired = self._fire_together(firsts) if firsts else []
            for _, _, key, due in entries:
                if due.alive:  # a further one of its key, or the call raised
                    self._fire_below(key, due.meta, fired, including=True)
            self.fired += len(fired)
            sent.append(self._took_place(fired))
            if is_logged:
                metas, keys, subjects, outputs, befores = map(list, zip(*fired))
                self._log.append(metas, keys, subjects, outputs, dict(zip(reversed(keys), reversed(befores))))
                self._log.pass_by(metas)
        return not self._blocked

    def _fire_together(self, dues: Mapping[Any, Due]) -> list[_Fired]:
        """Fire timers of one moment, each the first of its key, in one call; none, if that raises."""
        states, keys, timers = self._states, list(dues), list(dues.values())
        befores = list(map(states.get, keys, repeat(self._initial)))
        metas = [due.meta for due in timers]
        outputs: list[Any] = []
        notes = [due.timer.note for due in timers]
        samples = self._sampled_for_timers(notes, befores)
        try:
            check_lengths(self._group, metas)
            self._logic.on_timers(states, KeyedItems(keys, notes, Metas(metas)), outputs.append)
        except BaseException as raised:  # raised again timer by timer, where it is reported
            pass_interrupts(raised)
            for key, before in zip(keys, befores):
                self._put_state(key, before)
            return []
        self._check(samples)
        for key, due in dues.items():
            self._timers.pop(key, due)
        outputs = [self._without_timers(*each) if each[2] else each[2] for each in zip(keys, metas, outputs)]
        for key in keys:
            if key not in self._timers.by_key and states.get(key) is self._initial:
                del states[key]
        return list(map(_Fired, metas, keys, timers, outputs, befores))

    def _fire_below(self, key: Any, bound: bytes, fired: list[_Fired], *, including: bool = False) -> None:
        """Fire a key's timers below a bound, one by one."""
        states, heap = self._states, self._timers.by_key.get(key)
        while heap and (heap[0].meta < bound or (including and heap[0].meta == bound)):
            due, before = heap[0], states.get(key, self._initial)
            meta, note = due.meta, due.timer.note
            outputs: list[Any] = []
            self._timers.pop(key, due)
            if before is BLOCKED:
                outputs.append(())
            else:
                samples = self._sampled_for_timers((note,), (before,))
                try:
                    check_lengths(self._group, (meta,))
                    rows = KeyedItems((key,), (note,), Metas([meta]), iter(((key, note, time_of(meta)),)))
                    self._logic.on_timers(states, rows, outputs.append)
                except BaseException as error:
                    pass_interrupts(error)
                    outputs.append(self._failed(key, before, due.timer, error))
                else:
                    self._check(samples)
                    if outputs[0]:
                        outputs[0] = self._without_timers(key, meta, outputs[0])
            fired.append(_Fired(meta, key, due, outputs[0], before))
            heap = self._timers.by_key.get(key)

    def _took_place(self, fired: list[_Fired]) -> Columns:
        """Sort timers that have fired by meta; their outputs."""
        fired.sort(key=_meta_of)
        metas, keys, dues, outputs, _ = map(list, zip(*fired))
        self._note_fired(metas, keys)
        return self._sent(Keyed(Metas(metas), keys, dues), outputs)

    def _note_fired(self, metas: Sequence[bytes], keys: Sequence[Any]) -> None:
        if self._touched is not None:
            self._touched.add(metas, keys)
        if self._paged is not None:
            self._paged.know(keys)

    def _without_timers(self, key: Any, meta: bytes, outputs: Sequence[Any]) -> Sequence[Any]:
        """Set the timers among the outputs of a row; the others."""
        if Later not in map(type, outputs):
            return outputs
        plain: list[Any] = []
        timers: list[Due] = []
        parent = meta + self._group_suffix
        for each in outputs:
            if type(each) is not Later:
                plain.append(each)
                continue
            ending = self._first_timer if not timers else self._timers_rank + varint(len(timers))
            try:
                where, timer = placed(parent, ending, self._logic.timer(key, each), self.ended)
            except EndlessTimers as error:
                assert self._timers_map is not None
                failure = failed_step(self._timers_map, error, each.payload)
                self._failing.replace(parent + self._timers_rank, NOTHING, failure)
                return plain
            timers.append(Due(where, timer, meta))
        for due in timers:
            self._timers.set(key, due)
        return plain

    @property
    def least_timer(self) -> bytes | None:
        """The meta of the first timer that has not fired; or a lower one of its moment."""
        least, own = self._timers.least, self.in_order.least
        return least if own is None else own if least is None else min(least, own)

    @property
    def is_due(self) -> bool:
        """Whether any timer is below the heartbeat."""
        return (least := self.least_timer) is not None and least < self.heartbeat

    # Corrections: items below others of their key, and tombstones.

    def _change(self, batch: Keyed, diffs: Sequence[int] | None) -> Columns:
        """Insert items and tombstones anywhere in the order."""
        metas, keys, payloads = batch
        changes: dict[Any, list[tuple[bytes, Any, int]]] = {}
        for key, meta, payload, diff in zip(keys, metas, payloads, diffs or [1] * len(metas)):
            changes.setdefault(key, []).append((meta, payload, diff))
        out = Difference()
        for key, changed in changes.items():
            self._change_key(key, changed, out)
        return out.columns()

    def _change_key(self, key: Any, changes: list[tuple[bytes, Any, int]], out: Difference) -> None:
        """Go back to a state that was kept at or below the first change, and run again from there."""
        history = self._history(key)
        first, last = changes[0][0], changes[-1][0]
        state = self._states.get(key, self._initial)
        if history.metas and history.metas[-1] >= first:
            place = history.place_before(first)
            begin, before = min(history.kept_at[place], first), history.kept[place]
        else:
            place, before = len(history.kept), state
            begin = min(first, self._timers.by_key[key][0].meta) if key in self._timers.by_key else first
        start = bisect_left(history.metas, begin)
        old = _Old(history.rows[start:], history.kept_at[place:], history.kept[place:], state, self._timers.of(key))
        del history.rows[start:], history.metas[start:], history.kept_at[place:], history.kept[place:]
        items = [row for row in old.rows if not isinstance(row.subject, Due)]
        for meta, payload, diff in changes:
            self._apply(items, meta, payload, diff)
        self._timers.put(key, _waiting(old.timers, old.rows, begin))
        self._put_state(key, before)
        history.kept_at.append(begin)
        history.kept.append(before)
        rows, stopped_at = self._run_again(key, items, first, last, old, history)
        left = len(old.rows) if stopped_at is None else bisect_left(old.rows, stopped_at, key=_meta_of)
        alike = bisect_left(old.rows, first, key=_meta_of)  # so many rows are as they were
        self._send_difference(old.rows[alike:left], rows[alike:], out)
        rows += old.rows[left:]
        history.rows += rows
        history.metas += [row.meta for row in rows]
        history.drop_places()

    def _send_difference(self, before: Sequence[LoggedRow], current: Sequence[LoggedRow], out: Difference) -> None:
        """Send what rows make now in place of what they made before."""
        sent, failures = self._outputs_of(before)
        now, failing = self._outputs_of(current)
        difference(zip(sent.metas, sent.payloads), now, out)
        if failures.metas or failing.metas:
            difference(zip(failures.metas, failures.payloads), failing, self._failing)

    def _run_again(
        self, key: Any, items: Sequence[LoggedRow], first: bytes, last: bytes, old: _Old, history: History
    ) -> tuple[list[LoggedRow], bytes | None]:
        """Run a key's items and timers, in parts between which states are kept.

        Args:
            first, last: metas of the changes.

        Returns:
            The rows, and the place at which it stopped because everything is there as it was; None at the end.
        """
        metas, subjects = [row.meta for row in items], [row.subject for row in items]
        fired: list[_Fired] = []
        done: list[LoggedRow] = []
        known = {bisect_left(metas, at): (at, state) for at, state in zip(old.kept_at, old.kept) if at > last}
        begin = bisect_left(metas, first)
        at, apart, stopped_at = 0, _APART_MIN, None
        for end in dict.fromkeys((begin, *known, len(metas))):
            while at < end:
                stop = min(at + apart, end) if at >= begin else end
                while stop < end and metas[stop] == metas[stop - 1]:
                    stop += 1
                self._fire_below(key, metas[at], fired)
                if metas[at] > history.kept_at[-1]:
                    history.kept_at.append(metas[at])
                    history.kept.append(self._states.get(key, self._initial))
                if at >= begin:
                    apart = min(2 * apart, _APART_MAX)
                part = Keyed(Metas(metas[at:stop]), [key] * (stop - at), subjects[at:stop])
                done += map(LoggedRow, part.metas, part.payloads, self._run(part, fired, None))
                at = stop
            if end in known:
                place, state = known[end]
                self._fire_below(key, place, fired)
                if self._is_as_before(key, place, state, old):
                    stopped_at = place
                    break
        if stopped_at is None:
            if below := bisect_left(old.rows, first, key=_meta_of):  # what has fired below the changes stays so
                self._fire_below(key, old.rows[below - 1].meta, fired, including=True)
            self._fire_below(key, self.heartbeat, fired)
        else:
            left = bisect_left(old.kept_at, stopped_at)
            history.kept_at += old.kept_at[left:]
            history.kept += old.kept[left:]
            self._put_state(key, old.state)
            self._timers.put(key, old.timers)
        if fired:
            self._note_fired([each.meta for each in fired], [key] * len(fired))
            done += [LoggedRow(each.meta, each.due, each.outputs) for each in fired]
            done.sort(key=_meta_of)
            self._log.pass_by([fired[-1].meta])
        return done, stopped_at

    def _is_as_before(self, key: Any, place: bytes, state: Any, old: _Old) -> bool:
        """Whether a key has the state and the timers that it had at this place."""
        current = self._states.get(key, self._initial)
        if not (current is state or (current is not BLOCKED and same(current, state))):
            return False
        before = sorted(_waiting(old.timers, old.rows, place), key=_meta_of)
        now = sorted(self._timers.of(key), key=_meta_of)
        return len(before) == len(now) and all(
            one.meta == other.meta and same(one.timer.note, other.timer.note) for one, other in zip(before, now)
        )

    def _apply(self, items: list[LoggedRow], meta: bytes, payload: Any, diff: int) -> None:
        """Apply an item or a tombstone to a key's unsettled items."""
        at = bisect_left(items, meta, key=_meta_of)
        if diff == 1:
            if not self._debts.settles(meta, payload):
                items.insert(at, LoggedRow(meta, payload, None))
            return
        while at < len(items) and items[at].meta == meta and not same(items[at].subject, payload):
            at += 1
        if at < len(items) and items[at].meta == meta:
            del items[at]
        else:
            self._debts.owe(meta, payload)

    def _history(self, key: Any) -> History:
        history = self._histories.setdefault(key, History())
        self._log.draw(key, history)
        return history

    def _replayed(self, key: Any, state: Any, rows: Sequence[LoggedRow]) -> Any:
        """The state after some rows of a key, which have run before."""
        states = {key: state}
        for is_timer, group in groupby(rows, lambda row: isinstance(row.subject, Due)):
            if states[key] is BLOCKED:
                break
            stretch = list(group)
            metas, subjects = [row.meta for row in stretch], [row.subject for row in stretch]
            outputs: list[Any] = []
            try:
                if is_timer:
                    notes = [due.timer.note for due in subjects]
                    for meta, note in zip(metas, notes):
                        self._logic.on_timers(states, KeyedItems((key,), (note,), Metas([meta])), outputs.append)
                else:
                    items = KeyedItems([key] * len(stretch), subjects, Metas(metas))
                    self._logic.on_batch(states, items, outputs.append)
            except BaseException as raised:  # it has been reported
                pass_interrupts(raised)
                return BLOCKED
        return states.get(key, self._initial)

    # States and timers.

    def _put_state(self, key: Any, state: Any) -> None:
        if state is BLOCKED:
            self._blocked[key] = None
        else:
            self._blocked.pop(key, None)
        if state is self._initial:
            self._states.pop(key, None)
        else:
            self._states[key] = state

    # Memory.

    def _settle_complete(self, least: bytes) -> None:
        """What is below all that may still come is settled, whatever minimal time is.

        Args:
            least: the first meta of the batch that has come, or of a timer; either may correct what is above it.
        """
        bound = min(self.complete_below, least)
        if bound > self._log.settled and (len(self._log) or self._histories):
            self._settle_log(bound)

    def _settle_log(self, settled: bytes) -> None:
        self._log.settle(settled)
        self._histories = self._log.unsettled(self._histories)

    def settle(self, minimal_time: bytes) -> None:
        """Drop rows below minimal time, since none will change any more; the last states stay."""
        self._settle_log(max(minimal_time, self._log.settled))
        self._undo.settle(minimal_time)
        if self._touched is not None:
            self._touched.settle(minimal_time)
        if self.is_timed and (len(self._states) > self._sweep_at or minimal_time == END_OF_TIME):
            initial, kind = self._initial, type(self._initial)
            swept = [
                key
                for key, state in self._states.items()
                if state is initial or (type(state) is kind and same(state, initial))
            ]
            for key in swept:
                del self._states[key]
            if self._paged is not None:
                self._paged.know(swept)
            self._sweep_at = max(_SWEPT_MIN, 2 * len(self._states))

    @property
    def pages(self) -> Mapping[Any, Any]:
        return self._states if self._paged is not None else {}

    def page(self, lookup: Lookup) -> None:
        """Look up states that are not in memory; those of a form in order have timers, and stay."""
        if self.in_order.leaves_pages:
            self.in_order = InOrder()
            self._unread = self._paged = Paged(lookup, self._states)

    def drop(self, keys_at_once: int, *, recent: bool) -> Iterator[Entries]:
        """Drop states from memory and give them to be written; keys with timers, and those whose call raised, stay."""
        paged, states = self._paged, self._states
        if paged is None:
            return
        stay = self._keys_above(self._log.settled)
        gone = [key for key in paged.recent if key not in states and not self._stays(key, stay)]
        wanted = () if recent else paged.recent
        cold = [key for key in states if key not in wanted and not self._stays(key, stay)]
        paged.recent = {key: None for key in paged.recent if key not in states and self._stays(key, stay)}
        for start in range(0, len(gone), keys_at_once):
            yield Entries((), (), gone[start : start + keys_at_once])
        for start in range(0, len(cold), keys_at_once):
            keys = cold[start : start + keys_at_once]
            entries = self._as_of(END_OF_TIME, keys)
            for key in keys:
                del states[key]
            yield entries

    def _stays(self, key: Any, unsettled: Mapping[Any, None]) -> bool:
        return key in unsettled or key in self._timers.by_key or key in self._blocked

    # As of a checkpoint.

    def _keys_above(self, checkpoint: bytes) -> dict[Any, None]:
        keys = self._log.keys_above(checkpoint)
        keys.update((key, None) for key, each in self._histories.items() if each.metas and each.metas[-1] >= checkpoint)
        return keys

    def _above(self, checkpoint: bytes) -> dict[Any, History]:
        """The histories of keys with rows or timers at or above a checkpoint."""
        return {key: self._history(key) for key in self._keys_above(checkpoint)}

    def as_of(self, checkpoint: bytes, keys: Sequence[Any]) -> Entries:
        """The states of these keys as of the checkpoint, with their timers in order if it has any; or DELETED."""
        in_order = self.in_order.entries(keys)
        if in_order:  # nothing above the checkpoint is there
            left = [key for key in keys if key not in in_order]
            return Entries.of(chain(in_order.items(), self._as_of(checkpoint, left)))
        return self._as_of(checkpoint, keys)

    def _as_of(self, checkpoint: bytes, keys: Sequence[Any]) -> Entries:
        above = self._above(checkpoint) if keys else {}
        initial, kind, stored, found = self._initial, type(self._initial), self._logic.stored, list[tuple[Any, Any]]()
        is_same, timers = eq if kind in _COMPARED else same, list[tuple[bytes, Timer]]()
        for key, state in zip(keys, map(self._states.get, keys, repeat(initial))):
            history = above.get(key)
            if history is not None:
                state = history.state_at(checkpoint, key, self._replayed)
            if state is BLOCKED:
                continue
            state = state if stored is None else stored(state)
            if self.is_timed:
                waiting = _waiting(self._timers.of(key), () if history is None else history.rows, checkpoint)
                timers = [(due.meta, due.timer) for due in sorted(waiting)]
            if not timers and (state is initial or (type(state) is kind and is_same(state, initial))):
                found.append((key, DELETED))
            else:
                found.append((key, (state, timers) if self.is_timed else state))
        return Entries.of(found)

    def rewind(self, checkpoint: bytes) -> None:
        """Forget all that is at or above a checkpoint; see `KeyedState.rewind`.

        The heartbeat becomes the checkpoint, and timers that had fired at or above it are set again.
        """
        above = self._above(checkpoint)
        if above:
            self.in_order.hand_back()  # for histories have states as the logic has them
        if self._paged is not None:
            self._paged.know(above)
        for key, history in above.items():
            self._put_state(key, history.state_at(checkpoint, key, self._replayed))
            self._timers.put(key, _waiting(self._timers.of(key), history.rows, checkpoint))
            history.truncate(checkpoint)
        self._log.rewind(checkpoint)
        self._debts.rewind(checkpoint)
        if self._touched is not None:
            self._touched.rewind(checkpoint)
        steps = self._undo.above(checkpoint)
        if steps:
            self._undo.forget_above(checkpoint)
            self._take_back(steps)
            self._run_first(steps[0], checkpoint)
        self.heartbeat, self.complete_below = checkpoint, min(self.complete_below, checkpoint)

    # Steps that corrected nothing.

    def go_back_by(self, make: Callable[[], KeyedStage]) -> None:
        """Note from now on what goes back to minimal time, before any item.

        Args:
            make: a stage like this one, without items.
        """
        self._undo.make = make

    def look_up(self, keys: Sequence[Any]) -> Sequence[Any]:
        new = super().look_up(keys)
        if new and self._undo and self._paged is None:  # with pages there is no form in order
            self._undo.note(Read(new))
        return new

    def _note(self, keys: Iterable[Any]) -> None:
        """Note what keys have, which is not in the form in order, before a step that corrects nothing changes it."""
        if not self._undo:
            return
        keys = dict.fromkeys(keys)
        had = list(map(self._states.get, keys, repeat(self._initial)))
        if self.is_timed:
            timers = [[(due.meta, due.timer) for due in self._timers.of(key)] for key in keys]
            had = list(zip(had, timers))
        self._undo.note(Before(keys, partial(zip, keys, had)))

    def _take_back(self, steps: Sequence[Step]) -> dict[Any, None] | None:
        """Have what there was before steps; the keys that they may have changed, or None for all."""
        whole, entries, looked_up = taken_back(steps)
        if self._unread is not None:
            self._unread.forget(looked_up)
        if whole is not None:
            for key in list(self._timers.by_key):
                self._timers.put(key, ())
            self._states.clear()
            self.in_order.put_back(whole.kept)
        if entries:
            self.in_order.hand_back()  # for what keys had is as the logic has it
        for key, entry in entries.items():
            state, timers = (self._initial, ()) if entry is DELETED else entry if self.is_timed else (entry, ())
            self._put_state(key, state)
            self._timers.put(key, [Due(meta, timer, BEGINNING) for meta, timer in timers])
        if self._paged is not None:
            self._paged.know(entries)
        return entries if whole is None else None

    def _run_first(self, step: Step, place: bytes) -> None:
        """Process again what of a step is below a place; steps behind it have nothing below."""
        self.ended, self.complete_below = step.ended, place
        if step.rows is not None and (below := step.rows.metas.count_below(place)):
            self.process(step.rows.slice(0, below), {})
        self.heartbeat = place
        if self.is_timed:
            self.fire({})

    def changed(self, checkpoint: bytes) -> Entries:
        steps = self._undo.above(checkpoint)
        if not steps or self._undo.make is None:
            return super().changed(checkpoint)
        before = self._undo.make()
        before.track()
        known = before._take_back(steps)
        before._run_first(steps[0], checkpoint)
        assert self._touched is not None and before._touched is not None
        keys = {**self._touched.take(checkpoint), **before._touched.take(checkpoint)}
        there = [key for key in keys if known is None or key in known]
        rest = [key for key in keys if known is not None and key not in known]
        if self._paged is not None:
            self.look_up(rest)
        return Entries.of(chain(before.as_of(checkpoint, there), self.as_of(checkpoint, rest)))

    def track(self, *, tracks: bool = True) -> None:
        super().track(tracks=tracks)
        if not tracks:
            self._undo.stop()

    def put(self, entries: Iterable[tuple[Any, Any]]) -> None:
        if not self.is_timed:
            self._states.update(entries)
            return
        for key, (state, timers) in entries:
            self._put_state(key, state)
            for meta, timer in timers:
                self._timers.set(key, Due(meta, timer, BEGINNING))

    @property
    def held(self) -> int:
        """How many items are unsettled, timers have not fired, and tombstones wait for their items."""
        return len(self._debts) + self._log.held(self._histories) + len(self._timers) + len(self.in_order)


class _Old(NamedTuple):
    """What a key has from some place on, before it runs again from there; see `History`."""

    rows: list[LoggedRow]
    kept_at: list[bytes]
    kept: list[Any]
    state: Any
    timers: list[Due]


def _waiting(timers: Iterable[Due], rows: Sequence[LoggedRow], place: bytes) -> list[Due]:
    """The timers that waited at a place, of those that wait and the rows of those that have fired."""
    found = [due for due in timers if due.set_at < place]
    start = bisect_left(rows, place, key=_meta_of)
    return found + [row.subject for row in rows[start:] if isinstance(row.subject, Due) and row.subject.set_at < place]


def _merged(
    batch: Keyed, outputs: Sequence[Any], fired: Sequence[_Fired]
) -> tuple[Sequence[bytes], Sequence[Any], list[Any], list[Any]]:
    """The metas, keys, subjects and results of rows and of timers that fired between them, in order."""
    rows = [*zip(*batch, outputs), *((each.meta, each.key, each.due, each.outputs) for each in fired)]
    rows.sort(key=itemgetter(0))
    metas, keys, subjects, results = map(list, zip(*rows))
    return metas, keys, subjects, results


_meta_of = attrgetter("meta")
