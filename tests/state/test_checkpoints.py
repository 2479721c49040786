"""Stages and workers as of a checkpoint: they go back to one, and others go on from one, on generated graphs."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from functools import partial
from random import Random
from typing import Any

import pytest
from checkpointing import Team, arrivals, expected
from generated import few_keys, one_key, small, weigh
from hypothesis import given
from hypothesis import strategies as st
from strategies import AWKWARD, cases

import drift
from drift.machines.checkpoints import Touched
from drift.machines.keyed import KeyedStage
from drift.machines.keys import form_of_identity, identities, identity_of
from drift.machines.plan import Plan
from drift.machines.worker import BARRIER, Part, Worker
from drift_graph.canonical import canonical
from drift_graph.item import Columns
from drift_graph.meta import BEGINNING, END_OF_TIME, global_time
from drift_graph.metas import Metas

seeds = st.integers(0, 2**32)


def check(dataflow: drift.Dataflow, sources: dict[str, list[Any]], seed: int, workers: int, fused: bool) -> None:
    """Feed, break off at random, and feed again: the output is that of the reference."""
    random = Random(seed)
    inputs = arrivals(dataflow, sources)
    team = Team(Plan(dataflow, fused=fused), inputs, random, workers, pages=random.random() < 0.5)
    for _ in range(random.randint(1, 3)):
        for _ in range(random.randint(0, 30)):
            team.step()
        if random.random() < 0.5:
            team.take_checkpoint()
        else:
            team.rewind()
            continue
        for _ in range(random.randint(0, 30)):
            team.step()
        if random.random() < 0.7:
            team.go_on(random.randint(1, 3), lazily=random.random() < 0.5)
    team.run()
    assert team.released() == expected(dataflow, inputs)
    assert not any(worker.held for worker in team.workers)


@given(cases(items_max=12), seeds, st.integers(1, 3), st.booleans())
def test_a_run_that_goes_back_to_checkpoints_gives_what_one_gives_that_does_not(
    case: Any, seed: int, workers: int, fused: bool
) -> None:
    check(case.dataflow(), case.sources(), seed, workers, fused)


# Graphs with later items: delays, processes, rounds.


def timed(payload: Any) -> int:
    return payload[0]  # type: ignore[no-any-return]


def delayed(most: int, payload: Any, time: int) -> list[Any]:
    """One to three children, some of them later."""
    weight = weigh(payload)
    family = [(time, small(payload)), drift.at(time + weight % (most + 1), (time, weight % 5)), drift.at(drift.END, 3)]
    return family[: 1 + weight % 3] if weight & 64 else family[weight % 3 :]


def turning(payload: Any, time: int) -> list[Any]:
    """Rounds that end."""
    number = payload[-1] if isinstance(payload, tuple) else payload
    number = number if isinstance(number, int) else 0
    return [("round", number), drift.next_round((time, number - 1))] if number > 0 else [("last", number)]


def timed_item(state: int, payload: Any, time: int) -> tuple[int, list[Any]]:
    weight = weigh((state, payload))
    outputs: list[Any] = [(time, (state, small(payload)))] if weight & 1 else []
    if weight % 3:
        outputs.append(drift.at(time + weight % 4, weight % 3))
    if weight % 5 == 0:
        outputs.append(drift.at(drift.END, 0))
    return weight % 4, outputs


def timed_note(state: int, note: int, time: int) -> tuple[int, list[Any]]:
    """A timer sets at most as many others as its note says."""
    following = [drift.at(time + 1 + state % 3, note - 1)] if note > 0 and time != drift.END else []
    return 0 if note == 0 else (state * 3 + note) % 7, [(time, ("note", note, state)), *following]


def total(state: int, payload: Any) -> tuple[int, Any]:
    state = (state * 31 + weigh(payload)) % 101
    return state, (0, state)


def with_later(steps: list[str]) -> drift.Dataflow:
    graph = drift.Graph("later")
    stream: Any = graph.source("in0", time=drift.EventTime(timed, lateness=4)).merge(
        graph.source("in1", time=drift.EventTime(timed, lateness=4))
    )
    stream.sink("plain")
    for number, step in enumerate(steps):
        name = f"s{number}"
        if step == "delay":
            stream = stream.flat_map(partial(delayed, 6), later=True, with_time=True, name=name)
        elif step == "turn":
            stream = stream.flat_map(turning, later=True, with_time=True, name=name)
        elif step == "process":
            stream = stream.process(few_keys, 0, timed_item, timed_note, name=name)
        elif step == "scan":
            stream = stream.scan(few_keys, 0, total, name=name)
        elif step in LOOPS:
            loop: Any = graph.feedback(f"{name}-again")
            entered = LOOPS[step](stream.map(small, name=f"{name}-in").merge(loop), name)
            entered.flat_map(once_more, later=True, with_time=True, name=f"{name}-back").feed(loop)
            stream = entered
        elif step in WINDOWS:
            windowed = stream.key_by(few_keys).window(WINDOWS[step]).fold(1, mixed, name=name)
            stream = windowed.map(lambda window: (window.end % 7, window.value))
        elif step == "end":
            stream = stream.key_by(few_keys).at_end(drift.agg.fold(1, mixed), name=name)
        elif step == "rounds":
            stream = stream.iterate(3, 0, one_round, mixed, name=name)[1]
        else:
            stream = stream.group(few_keys, 2, name=name)
    stream.sink("out")
    return graph.build()


#: By step what its feedback cycle passes.
LOOPS: dict[str, Callable[[Any, str], Any]] = {
    "loop": lambda stream, name: stream.scan(few_keys, 5, total, name=name),
    "group-loop": lambda stream, name: stream.group(few_keys, 2, name=name),
}

WINDOWS = {
    "tumbling": drift.windows.tumbling(4),
    "sliding": drift.windows.sliding(6, 4),
    "gaps": drift.windows.sliding(2, 5),
    "session": drift.windows.session(3),
}


def mixed(state: int, payload: Any) -> int:
    """Hangs on the order."""
    return (state * 31 + weigh(payload)) % 101


def one_round(items: drift.Stream[Any]) -> drift.Stream[Any]:
    kept = items.filter(lambda pair: weigh(pair) % 4)
    ended = items.key_by(few_keys).at_end(drift.agg.fold(1, mixed))
    return kept.map(lambda pair: (pair[0] % 5, small(pair[1]))).merge(ended)


def once_more(payload: Any, time: int) -> list[Any]:
    weight = weigh(payload)
    return [drift.at(time + weight % 3 + 1, weight % 7)] if weight % 3 == 0 and time < 60 else []


STEPS = ["delay", "process", "group", "scan", "turn", *LOOPS, *WINDOWS, "end", "rounds"]
later_steps = st.lists(st.sampled_from(STEPS), min_size=1, max_size=4)


@st.composite
def rows(draw: st.DrawFn) -> list[Any]:
    drawn = draw(st.lists(st.tuples(st.integers(0, 2), st.integers(0, 4), st.integers(0, 9)), max_size=10))
    now, given_rows = 10, []
    for step, behind, value in drawn:
        now += step
        given_rows.append((now - behind, value))
    return given_rows


@pytest.mark.long
@given(later_steps, rows(), rows(), seeds, st.integers(1, 3), st.booleans())
def test_a_run_with_later_items_that_goes_back_to_checkpoints_gives_what_one_gives_that_does_not(
    steps: list[str], first: list[Any], second: list[Any], seed: int, workers: int, fused: bool
) -> None:
    check(with_later(steps), {"in0": first, "in1": second}, seed, workers, fused)


def test_what_came_back_on_a_loop_and_what_it_was_made_of_change_at_once_and_a_checkpoint_parts_them() -> None:
    graph = drift.Graph("loop")
    loop: Any = graph.feedback("again")
    entered: Any = graph.source("in").merge(loop).scan(one_key, 0, total)
    entered.flat_map(in_three, later=True, with_time=True).feed(loop)
    entered.sink("out")
    dataflow = graph.build()
    first, second, checkpoint = (global_time(time, 0, 0, 0) for time in (4, 5, 6))
    worker, released = Worker(Plan(dataflow), rewinds=True), Counter[tuple[str, bytes, bytes]]()

    def take(parts: list[Part]) -> None:
        for sink, columns in worker.turn(parts).get(BARRIER, []):
            for meta, payload, diff in zip(columns.metas, columns.payloads, columns.diffs or [1] * len(columns.metas)):
                released[sink, meta, canonical(payload)] += diff

    worker.settle(BEGINNING, END_OF_TIME)
    take([("in", Columns(Metas([second]), ["b"], None))])  # comes back at 8 and 11
    take([("in", Columns(Metas([first]), ["a"], None))])  # another state for all of these
    for place in [place for place in released if place[1] >= checkpoint]:
        del released[place]
    assert not worker.rewind(checkpoint)
    worker.settle(checkpoint, END_OF_TIME)
    take([])
    came = [(sink, meta, payload) for (sink, meta, payload), count in sorted(released.items()) for _ in range(count)]
    assert came == expected(dataflow, [(first, "in", "a"), (second, "in", "b")])
    assert set(released.values()) <= {0, 1} and len(came) == 6


def in_three(payload: Any, time: int) -> list[Any]:
    return [drift.at(time + 3, payload)] if time < 9 else []


# What it is made of.


@pytest.mark.parametrize("key", [*AWKWARD, ("a", 1, None), ("a", 1.0)])
def test_the_identity_of_a_key_comes_back_from_its_form(key: Any) -> None:
    (identity,) = identities([key])
    again = identity_of(form_of_identity(identity))
    assert again == identity and type(again) is type(identity)


@given(st.lists(st.tuples(st.integers(0, 30), st.integers(0, 3)), max_size=20), seeds)
def test_what_was_touched_is_reported_once_and_not_lost(changes: list[tuple[int, int]], seed: int) -> None:
    random = Random(seed)
    touched = Touched(tracks=True)
    touched._rows_max = random.randint(0, 8)
    noted_keys: list[int] = []
    checkpoint = 0
    for at, key in changes:
        at = max(at, checkpoint)
        touched.add([bytes([at])], [key])
        noted_keys.append(key)
        if random.random() < 0.2:
            checkpoint = max(checkpoint, random.randint(0, 30))
            touched.settle(bytes([checkpoint]))
    assert set(touched.take(b"\xff")) == set(noted_keys)
    assert not touched.take(b"\xff")


@given(st.permutations([("a", 1), ("b", 1), ("a", -1), ("c", 1), ("b", -1)]), st.integers(0, 5))
def test_a_process_has_several_items_at_one_meta_while_a_tombstone_is_on_its_way(
    changes: list[tuple[str, int]], fired_after: int
) -> None:
    graph = drift.Graph("replaced")
    graph.source("in").process(one_key, 0, noted_item, noted, name="noted").sink("out")
    (stage,) = Plan(graph.build()).stages().values()
    assert isinstance(stage, KeyedStage)
    stage.track()
    meta, sent = global_time(5, 0, 0, 0) + b"\x07", Counter[tuple[bytes, Any]]()
    for number, (payload, diff) in enumerate([*changes, ("", 0)]):
        if number == fired_after:
            stage.heartbeat = END_OF_TIME
        for columns in (stage.process(Columns(Metas([meta]), [payload], [diff]), {}) if diff else None, stage.fire({})):
            if columns is not None:
                for where, made, one in zip(columns.metas, columns.payloads, columns.diffs or [1] * 9):
                    sent[where, made] += one
    assert [made for (_, made), count in sorted(sent.items()) if count] == [("item", "c"), ("timer", "c", 1)]
    assert set(sent.values()) <= {0, 1} and len(stage.changed(END_OF_TIME)) <= 1


def noted_item(state: int, payload: str, time: int) -> tuple[int, list[Any]]:
    return state + 1, [("item", payload), drift.at(time + 2, payload)]


def noted(state: int, note: str, time: int) -> tuple[int, list[Any]]:
    return state, [("timer", note, state)]


@pytest.mark.parametrize("kind", ["scan", "group", "process"])
def test_an_item_at_the_checkpoint_is_not_below_it(kind: str) -> None:
    graph = drift.Graph("boundary")
    stream: Any = graph.source("in")
    if kind == "scan":
        stream = stream.scan(one_key, 0, total)
    elif kind == "group":
        stream = stream.group(one_key, 3)
    else:
        stream = stream.process(one_key, 0, noted_item, noted)
    stream.sink("out")
    first, at_checkpoint, above = (
        global_time(time, 0, 0, 0) for time in (5, 6, 9)
    )  # a timer comes at 7, before the last
    (one,) = Plan(graph.build()).stages().values()
    (other,) = Plan(graph.build()).stages().values()
    other.process(Columns(Metas([first]), ["a"], None), {})
    for stage in (one, other):
        stage.track()
    one.process(Columns(Metas([first, at_checkpoint, above]), ["a", "b", "c"], None), {})
    below = list(other.as_of(at_checkpoint, [None]))
    assert list(one.changed(at_checkpoint)) == below != list(one.as_of(END_OF_TIME, [None]))
    one.process(Columns(Metas([at_checkpoint]), ["overtaken"], [-1]), {})
    assert one.held > other.held + 2
    one.rewind(at_checkpoint)
    assert list(one.as_of(END_OF_TIME, [None])) == below and one.held == other.held
