"""A source that is read again from where `Rereading` says gives what the unbroken reading gave from the checkpoint
on.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from drift import ArrivalTime, EventTime, InputError
from drift.machines.nodes.intake import Intake
from drift_graph.meta import BEGINNING, global_time_of, pack_time, time_of
from drift_graph.metas import Metas
from drift_graph.policies import TimePolicy
from drift_graph.rereading import Rereading, as_plain, from_plain
from drift_graph.times import Arrived, SourceMachine

Payload = tuple[int, str]
Made = Callable[[], SourceMachine]


def machine_of(policy: TimePolicy, *, live: bool = False) -> SourceMachine:
    return SourceMachine("s", 0, policy, live=live)


def above(checkpoint: bytes, arrivals: list[Arrived]) -> tuple[list[tuple[bytes, Any]], list[Any], bytes]:
    """What of the readings is at or above a checkpoint: items, late items, and the last heartbeat."""
    pairs = [pair for each in arrivals for pair in zip(each.metas, each.payloads) if pair[0] >= checkpoint]
    late = [one for each in arrivals for one in each.late if pack_time(one.heartbeat) >= checkpoint]
    return pairs, late, max([checkpoint, *(each.heartbeat for each in arrivals)])


payloads = st.lists(st.tuples(st.integers(0, 12), st.sampled_from("ab")), max_size=25)
policies = st.builds(
    lambda lateness, tie: EventTime(lambda row: row[0], lateness=lateness, late="divert", tie=tie),
    st.integers(0, 4),
    st.sampled_from([None, lambda row: row[1], lambda row: 7 if row[1] == "a" else 8]),
) | st.just(ArrivalTime())


@given(rows=payloads, policy=policies, draw=st.data())
@settings(deadline=None, max_examples=200)
def test_what_is_read_again_is_what_was_read_from_the_checkpoint_on(
    rows: list[Payload], policy: TimePolicy, draw: st.DataObject
) -> None:
    unbroken = machine_of(policy)
    each = [unbroken.take([row]) for row in rows]
    machine = machine_of(policy)
    rereading = Rereading(machine)
    metas = [meta for one in each for meta in one.metas]
    at, checkpoint = 0, BEGINNING
    while at < len(rows):
        size = draw.draw(st.integers(1, 6))
        before = rereading.here(at)
        rereading.add(before, machine.take(rows[at : at + size]))
        at = min(at + size, len(rows))
        if draw.draw(st.booleans()):  # minimal time comes to here: a heartbeat, or an item below it that is in flight
            moments = [machine.heartbeat, *(meta for meta in metas if checkpoint <= meta < machine.heartbeat)]
            checkpoint = max(checkpoint, draw.draw(st.sampled_from(moments)))
            position = rereading.at(checkpoint, rereading.here(at))
            check(rows, policy, each, checkpoint, json.loads(json.dumps(as_plain(position))))
    final = rereading.at(b"\xff", rereading.here(at))
    assert final.reader == len(rows) and not rereading._batches, "nothing is kept below a checkpoint"


def check(rows: list[Payload], policy: TimePolicy, unbroken: list[Arrived], checkpoint: bytes, plain: Any) -> None:
    position = from_plain("s", plain)
    again = machine_of(policy)
    again.resume(position.judging, position.stamp_count)
    intake = Intake([again], batch_items=1, in_flight_max=100)
    intake.resume(checkpoint)
    taken = [intake.give(0, [row], 0, 0.0) for row in rows[position.reader :]]
    arrived = [fed.arrived for fed in taken if fed is not None]
    expected = above(checkpoint, unbroken)
    assert above(BEGINNING, [*arrived, Arrived(Metas(), [], checkpoint, [], None)]) == expected
    for ours, theirs in zip(reversed(arrived), reversed(unbroken)):
        assert ours.heartbeat == max(theirs.heartbeat, checkpoint)
    if rows[position.reader :]:
        assert (again.items_in, again.late_items) == (
            sum(len(one.metas) for one in unbroken),
            sum(len(one.late) for one in unbroken),
        )


def test_counting_resumes_at_the_time_and_tie_in_which_the_checkpoint_lies() -> None:
    policy = EventTime(lambda row: row[0], lateness=5)
    machine = machine_of(policy)
    rereading = Rereading(machine)
    every: list[bytes] = []
    for at in range(5):
        before = rereading.here(at)
        arrived = machine.take([(3, "a")])
        rereading.add(before, arrived)
        every += arrived.metas
    for number, meta in enumerate(every):
        position = rereading.at(meta, rereading.here(5))
        assert position.reader == number and (position.stamp_count.items if position.stamp_count else 0) == number
        assert global_time_of(meta) == meta and time_of(meta) == 3


def test_a_tie_function_is_held_to_what_it_said_before_the_checkpoint() -> None:
    policy = EventTime(lambda row: row[0], lateness=5, tie=lambda row: 7)
    machine = machine_of(policy)
    rereading = Rereading(machine)
    metas = []
    for at, row in enumerate([(3, "a"), (3, "a")]):
        before = rereading.here(at)
        arrived = machine.take([row])
        rereading.add(before, arrived)
        metas += arrived.metas
    position = from_plain("s", json.loads(json.dumps(as_plain(rereading.at(metas[1], rereading.here(2))))))
    for row, refused in (((3, "a"), False), ((3, "b"), True)):
        again = machine_of(policy)
        again.resume(position.judging, position.stamp_count)
        assert (again.take([row]).error is not None) is refused


def test_the_stamps_of_a_live_source_resume() -> None:
    machine = machine_of(ArrivalTime(), live=True)
    machine.take(["a"], 100)
    machine.tick(150)
    rereading = Rereading(machine)
    before = rereading.here(None, 1)
    arrived = machine.take(["b", "c"], machine.stamp_at(120))
    rereading.add(before, arrived)
    position = from_plain(
        "s", json.loads(json.dumps(as_plain(rereading.at(arrived.metas[1], rereading.here(None, 2)))))
    )
    assert position.entry == 1
    again = machine_of(ArrivalTime(), live=True)
    again.resume(position.judging, position.stamp_count)
    assert again.take(["b", "c"], 150).metas == arrived.metas
    assert again.items_in == 3


@pytest.mark.parametrize("damage", [{"v": 99}, {"judging": {}}, {"stamp_count": [1]}, None, 7])
def test_a_position_that_is_none_is_refused(damage: Any) -> None:
    machine = machine_of(ArrivalTime())
    plain = as_plain(Rereading(machine).here(0))
    with pytest.raises(InputError, match="source 's' cannot resume from"):
        from_plain("s", {**plain, **damage} if isinstance(damage, dict) else damage)


def test_a_position_is_in_front_of_what_waits_to_be_judged() -> None:
    machine = SourceMachine("s", 0, EventTime(int, late="divert", future_max=10))
    rereading, given = Rereading(machine), []
    for number, batch in enumerate([[1, 2, 3, 4], [500]]):
        before = rereading.here(number)
        arrived = machine.take(batch)
        rereading.add(before, arrived)
        given += [time_of(meta) for meta in arrived.metas]
    assert given == [1, 2, 3, 4] and machine.has_held
    assert rereading.at(machine.heartbeat + b"\xff", rereading.here(2)).reader == 1
