"""A stage with timers by itself, against a loop over the sorted items and timers of each key.

Items, tombstones, heartbeats and settling come in a drawn order; between them the stage goes back to a checkpoint, or
another one is restored from one. Timers are set for later, for the same moment, for before it and for the end; states
go back to the initial one; calls raise.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from heapq import heappop, heappush
from random import Random
from typing import Any

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tight import LEAST_MEMORY, limited

import drift
from drift.machines.checkpoints import DELETED
from drift.machines.maps import Ports
from drift.machines.plan import Plan
from drift.operators import Process
from drift.testing import Seeds
from drift_barrier.barrier import FAILURES
from drift_graph.item import Columns, Failure, sorted_by_meta
from drift_graph.later import Later, placed
from drift_graph.meta import BEGINNING, END_OF_TIME, global_time, later_meta, time_of, varint
from drift_graph.metas import Metas

#: One of a payload's timers is set for so much later.
AFTER = (-3, 0, 1, 2, 5)


def on_item(state: int, payload: tuple[int, int], time: int) -> tuple[int, list[Any]]:
    """Every eighth state is the initial one; what a payload does hangs on its second number."""
    number = payload[1]
    if number == 97 and state % 3 == 1:
        raise ValueError(number)
    outputs: list[Any] = [("item", number, state)] if number % 3 else []
    if number % 2:
        outputs.append(drift.at(time + AFTER[number // 2 % 5], number % 4))
    if number % 7 == 1:
        outputs += [drift.at(time + AFTER[number % 5], 5), ("between", state)]
    if number % 11 == 1:
        outputs.append(drift.at(drift.END, 1))
    return (state * 5 + number) % 8, outputs


def on_time(state: int, note: int, time: int) -> tuple[int, list[Any]]:
    """A note sets the timer of the next lower one, and goes back to the initial state now and then."""
    if note == 4 and state == 3:
        raise ValueError(note)
    outputs: list[Any] = [("note", note, state)] if state % 2 else []
    if note and time < drift.END:
        outputs.append(drift.at(time + AFTER[(state + note) % 5], note - 1))
    return (0 if state == note else (state * 3 + note) % 8), outputs


def key_of(payload: tuple[int, int]) -> int:
    return payload[0]


PROCESS = Process(key_of, 0, on_item, on_time)


class OwnLogic(drift.Logic[tuple[int, int], int, Any]):
    """What the process does, as an operator of `Stream.step`."""

    initial = 0

    def key(self, payload: tuple[int, int]) -> int:
        return payload[0]

    def on_batch(self, states: dict[Any, int], rows: drift.Rows[tuple[int, int]], out: drift.Out[Any]) -> None:
        for key, payload, time in rows:
            before = states[key]
            states[key] = -1  # is not seen where the call raises
            states[key], outputs = on_item(before, payload, time)
            out(outputs)

    def on_timers(self, states: dict[Any, int], due: drift.Rows[int], out: drift.Out[Any]) -> None:
        for key, note, time in due:
            states[key], outputs = on_time(states[key], note, time)
            out(outputs)


def value_of(payload: tuple[int, int]) -> int:
    """What a session aggregates of a payload; the step raises as `on_item` does."""
    if payload[1] == 97:
        raise ValueError(97)
    return payload[1]


#: The steps that are drawn.
STEPS: dict[str, Callable[[drift.Stream[Any]], drift.Stream[Any]]] = {
    "process": lambda stream: stream.process(key_of, 0, on_item, on_time),
    "own": lambda stream: stream.step(OwnLogic()),
    "sessions": lambda stream: (
        stream.key_by(key_of).window(drift.windows.session(gap=3)).aggregate(drift.agg.collect(value_of))
    ),
    "windows": lambda stream: (
        stream.key_by(key_of).window(drift.windows.tumbling(4)).aggregate(drift.agg.collect(value_of))
    ),
}

Sent = Counter[tuple[bytes, Any]]


class Bench:
    """A stage, what it was given and has sent, and what it should have sent."""

    def __init__(self, step: str = "process") -> None:
        graph = drift.Graph("stage")
        STEPS[step](graph.source("in")).sink("out")
        self._plan = Plan(graph.build())
        dataflow = self._plan.dataflow
        ((self._name, self.stage),) = self._plan.stages().items()
        by_kind = {type(getattr(each, "function", None)).__name__: each for each in dataflow.operators}
        ranks = [by_kind[each].name for each in ("ProcessState", "ProcessTimers", "ProcessOutput")]
        self._process: Process = (
            by_kind["ProcessState"].function.process if step in ("sessions", "windows") else PROCESS
        )
        self._group, self._state, self._timers, self._output = (
            varint(dataflow.ranks[each]) for each in (self._name, *ranks)
        )
        self.came: Counter[tuple[bytes, Any]] = Counter()
        self.sent: Sent = Counter()
        self.minimal_time = BEGINNING

    def begin_anew(self) -> None:
        """Put another stage in the place of this one."""
        ((_, self.stage),) = self._plan.stages().items()

    def note(self, columns: Columns, ports: Ports, least: bytes) -> None:
        failed = [each for batch in ports.pop(FAILURES, ()) for each in zip(batch.metas, batch.payloads, _ones(batch))]
        assert not ports
        for meta, payload, diff in [*zip(columns.metas, columns.payloads, _ones(columns)), *failed]:
            assert meta >= least, "older than all that was given and waited"
            place = meta, "failed" if type(payload) is Failure else payload
            self.sent[place] += diff
            if not self.sent[place]:
                del self.sent[place]

    def process(self, changes: list[tuple[bytes, Any, int]]) -> None:
        metas, payloads, diffs = map(list, zip(*changes))
        for meta, payload, diff in changes:
            self.came[meta, payload] += diff
        ports: Ports = {}
        batch = sorted_by_meta(Columns(Metas(metas), payloads, diffs if -1 in diffs else None))
        least = min(batch.metas[0], self.stage.least_timer or END_OF_TIME)
        self.note(self.stage.process(batch, ports), ports, least)

    def fire(self) -> None:
        ports: Ports = {}
        if self.stage.is_due:
            least = self.stage.least_timer or END_OF_TIME
            self.note(self.stage.fire(ports), ports, least)

    def one_at_a_meta(self) -> bool:
        there = [meta for (meta, _), count in self.came.items() if count]
        return set(self.came.values()) <= {0, 1} and len(set(there)) == len(there)

    def looped(
        self, below: bytes, heartbeat: bytes, *, eagerly: bool = False
    ) -> tuple[Sent, dict[int, tuple[Any, list[Any]]], list[bytes]]:
        """What is to be sent for the items below a bound, the states then, and the timers that have not fired.

        Timers below the last item of their key have fired; eagerly, also if that item was taken back.
        """
        process = self._process
        sent: Sent = Counter()
        states: dict[int, tuple[Any, list[Any]]] = {}
        waiting: list[bytes] = []
        by_key: dict[int, list[tuple[bytes, bool, Any]]] = {}
        for (meta, payload), count in self.came.items():
            if count and meta < below:
                by_key.setdefault(payload[0], []).append((meta, False, payload))
        for key, entries in by_key.items():
            last = max(meta for (meta, payload), count in self.came.items() if payload[0] == key and (count or eagerly))
            entries.sort()
            state, timers = process.initial, []
            while entries:
                meta, is_timer, subject = heappop(entries)
                if is_timer and meta >= min(below, max(heartbeat, last)):
                    timers.append((meta, subject))
                    continue
                if state is None:
                    continue
                try:
                    step = process.on_time if is_timer else process.on_item
                    state, made = step(state, subject.note if is_timer else subject, time_of(meta))
                except ValueError:
                    state = None
                    sent[meta + self._group + self._state, "failed"] += 1
                    continue
                outputs = [each for each in made if type(each) is not Later]
                asked = [each for each in made if type(each) is Later]
                for at, output in enumerate(outputs):
                    sent[meta + self._group + self._output + varint(at), output] += 1
                for at, each in enumerate(asked):
                    timer = placed(meta + self._group, self._timers + varint(at), process.timer(key, each))
                    heappush(entries, (timer[0], True, timer[1]))
            states[key] = state, timers
            waiting += [meta for meta, _ in timers]
        return sent, states, waiting

    def check(self) -> None:
        if self.one_at_a_meta():
            expected, _, _ = self.looped(END_OF_TIME, self.stage.heartbeat)
            at_most, _, waiting = self.looped(END_OF_TIME, self.stage.heartbeat, eagerly=True)
            assert expected <= self.sent <= at_most, (self.sent - at_most, expected - self.sent)
            least = self.stage.least_timer
            assert (least or END_OF_TIME) <= min(waiting, default=END_OF_TIME)

    def check_states(self, checkpoint: bytes, kept: dict[int, Any]) -> None:
        """The states of a checkpoint are those of the loop over what is below it."""
        _, states, _ = self.looped(checkpoint, checkpoint)
        expected = {key: (state, timers) for key, (state, timers) in states.items() if state is not None}
        expected = {key: each for key, each in expected.items() if each != (self._process.initial, [])}
        blocked = {key for key, (state, _) in states.items() if state is None}
        assert {key: each for key, each in kept.items() if key not in blocked} == expected


def _ones(columns: Columns) -> list[int]:
    return list(columns.diffs or [1] * len(columns.metas))


def meta_of(choose: Random) -> bytes:
    """Of an item; now and then a later one, of a step before."""
    time = choose.randint(0, 12)
    meta = global_time(time, 0, choose.randint(0, 2), 0)
    if choose.random() < 0.2:
        meta = later_meta(global_time(choose.randint(0, 12), 0, 3, 0), varint(9), time, 1) or meta
    return meta + varint(choose.choice([1, 1, 2]))


def run_stage(choose: Random, *, complete: bool, log_limits: bool, step: str = "process") -> int:
    """Random changes, batches, heartbeats and checkpoints; returns how many items came below others."""
    limits = dict(LEAST_MEMORY)
    if choose.random() < 0.5:
        limits["drift.machines.log._SMALL_ITEMS_MAX"] = 16
    if log_limits:
        with limited(limits):
            return _run_stage(choose, complete, step)
    return _run_stage(choose, complete, step)


def _run_stage(choose: Random, complete: bool, step: str) -> int:
    bench = Bench(step)
    keys = choose.randint(1, 3)
    raising = choose.random() < 0.2

    def payload() -> tuple[int, int]:
        number = choose.randrange(98)
        return choose.randrange(keys), number if raising or number != 97 else 6

    final = {meta_of(choose): payload() for _ in range(choose.randint(1, 20))}
    back = [] if complete else [(meta_of(choose), payload()) for _ in range(choose.randint(0, 6))]
    changes = [(meta, each, 1) for meta, each in final.items()]
    for meta, each in back:
        changes += [(meta, each, 1), (meta, each, -1)]
    shuffle = choose.choice([0, 2, 20])
    changes.sort(
        key=lambda change: (time_of(change[0]) + choose.random() * shuffle, change[0]) if not complete else (change[0],)
    )
    partly = not complete and choose.random() < 0.3  # what has come is complete now and then
    tracked = not complete and not partly and choose.random() < 0.5
    kept: dict[int, Any] = {}
    if tracked:
        bench.stage.track()
    heartbeat = BEGINNING
    while changes or heartbeat < END_OF_TIME:
        if changes:
            size = choose.randint(1, min(8, len(changes)))
            batch, changes = changes[:size], changes[size:]
        else:
            batch = []
        left = min((meta for meta, _, _ in changes), default=END_OF_TIME)
        if choose.random() < 0.5 or not changes:
            ahead = global_time(choose.randint(0, 14), choose.randint(0, 1), 0, 0)
            bound = left if complete else END_OF_TIME
            heartbeat = max(heartbeat, min(bound, ahead)) if changes else END_OF_TIME
        bench.stage.heartbeat = max(bench.stage.heartbeat, heartbeat)
        if complete or (partly and choose.random() < 0.5):
            bench.stage.complete_below = max(bench.stage.complete_below, min(left, heartbeat))
        if batch:
            bench.process(batch)
        bench.fire()
        bench.check()
        _, _, waiting = (
            bench.looped(END_OF_TIME, bench.stage.heartbeat) if bench.one_at_a_meta() else (0, 0, [BEGINNING])
        )
        minimal = min([left, heartbeat, bench.stage.least_timer or END_OF_TIME, *waiting])
        chance = choose.random()
        if minimal < bench.minimal_time or minimal in (BEGINNING, END_OF_TIME) or complete or chance < 0.3:
            if minimal > bench.minimal_time and not complete:
                bench.minimal_time = minimal
                bench.stage.settle(minimal)
        elif any(state is None for state, _ in bench.looped(minimal, minimal)[1].values()):
            pass  # the run would end at this failure
        elif tracked and chance < 0.5:
            for key, state in bench.stage.changed(minimal):
                kept.pop(key, None)
                if state is not DELETED:
                    kept[key] = state
            bench.check_states(minimal, kept)
            changes, heartbeat = go_back(bench, changes, minimal, kept if choose.random() < 0.5 else None, choose)
        elif chance < 0.65 and not tracked and not partly:
            changes, heartbeat = go_back(bench, changes, minimal, None, choose)
    bench.check()
    bench.stage.settle(END_OF_TIME)
    assert bench.stage.held == 0 and bench.stage.least_timer is None
    return len(back)


def go_back(
    bench: Bench, changes: list[tuple[bytes, Any, int]], checkpoint: bytes, kept: dict[int, Any] | None, choose: Random
) -> tuple[list[tuple[bytes, Any, int]], bytes]:
    """Go back to a checkpoint, in memory or with another stage; what is to come from there, and the heartbeat."""
    net = Counter(bench.came)
    for meta, each, diff in changes:
        net[meta, each] += diff
    bench.came = Counter({place: count for place, count in bench.came.items() if place[0] < checkpoint})
    bench.sent = Counter({place: count for place, count in bench.sent.items() if place[0] < checkpoint})
    if kept is None:
        bench.stage.rewind(checkpoint)
    else:
        bench.begin_anew()
        bench.stage.track()
        bench.stage.restore(list(kept.items()))
        bench.stage.heartbeat = checkpoint
    bench.minimal_time = checkpoint
    bench.stage.settle(checkpoint)
    again = [(meta, each, 1) for (meta, each), count in net.items() if count and meta >= checkpoint]
    choose.shuffle(again)
    return again, checkpoint


@pytest.mark.parametrize("step", STEPS)
@pytest.mark.parametrize("log_limits", [False, True])
@pytest.mark.parametrize("complete", [False, True])
@given(st.randoms(use_true_random=False))
def test_a_stage_with_timers_sends_what_a_loop_over_each_key_gives(
    log_limits: bool, complete: bool, step: str, choose: Random
) -> None:
    run_stage(choose, complete=complete, log_limits=log_limits, step=step)


@pytest.mark.parametrize(("seed", "step"), [(2939, "windows"), (186, "process")])
def test_timers_that_fired_complete_stay_so_where_a_row_below_them_is_corrected(seed: int, step: str) -> None:
    """Rows of their keys are logged, since batches were complete in part only; they are run again from below."""
    run_stage(Random(seed), complete=False, log_limits=False, step=step)


def test_a_timer_that_has_fired_stays_so_where_the_item_above_it_is_taken_back() -> None:
    """Nothing is sent that is older than the tombstone, since minimal time may have passed the timer."""
    bench = Bench()
    first, above = (global_time(time, 0, 0, 0) for time in (2, 6))
    bench.process([(first, (0, 7), 1), (above, (0, 2), 1)])
    before = Counter({place: count for place, count in bench.sent.items() if place[0] < above})
    assert ("note", 3, 7) in {output for _, output in before}
    bench.process([(above, (0, 2), -1)])
    assert bench.sent == before
    bench.stage.heartbeat = global_time(7, 0, 0, 0)
    bench.fire()
    bench.check()


def test_a_session_that_began_in_order_is_corrected_behind_its_timer() -> None:
    """The timer was set in order, and has fired where items may still come below others."""
    bench = Bench("sessions")
    first, below, above = (global_time(time, 0, 0, 0) + varint(1) for time in (2, 6, 9))
    bench.stage.heartbeat = bench.stage.complete_below = below[:8]
    bench.process([(first, (0, 1), 1)])
    bench.process([(above, (0, 3), 1)])
    bench.process([(below, (0, 2), 1)])
    bench.check()
    bench.stage.heartbeat = END_OF_TIME
    bench.fire()
    bench.check()


def test_steps_that_give_nothing_send_no_empty_batch() -> None:
    graph = drift.Graph("ends")
    rows = graph.source("rows", schema={"n": int, "at": int}, time=drift.EventTime("at")).with_columns(one=pl.lit(1))
    counts = rows.key_by("n").window(drift.windows.tumbling(3)).aggregate(drift.agg.count())
    counts.key_by("key").at_end(drift.agg.count()).sink("out")
    seeds = Seeds(graph, {"rows": [{"n": at * 7 % 5, "at": at // 2} for at in range(40)]})
    assert [failure for seed in range(4) if (failure := seeds.run(seed).failure)] == []
