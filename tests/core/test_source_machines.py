"""What a source gives its items: global times, heartbeats, who is late."""

from __future__ import annotations

import enum
from collections.abc import Sequence
from itertools import accumulate, compress
from operator import itemgetter, not_
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from strategies import Opaque, event_inputs, event_time, numbers, payloads, times

import drift
from drift_graph.canonical import canonical, form_of
from drift_graph.meta import BEGINNING, END_OF_TIME, MetaParts, global_time, pack_time, time_of
from drift_graph.times import SourceMachine


@given(
    st.lists(st.tuples(times, numbers | st.integers(2**56, 2**64 - 1)), unique=True, max_size=80),
    st.booleans(),
    st.sampled_from((0, 247, 248)),
    st.integers(1, 80),
    times,
)
def test_metas_of_a_batch_are_the_global_times_of_its_items(
    pairs: list[tuple[int, int]], hashed: bool, rank: int, batch_items: int, minimal: int
) -> None:
    """Where most ties take eight bytes they are made together, and what is settled is counted without sorting."""
    if hashed:
        pairs = [(time, tie if index % 9 == 4 else tie | 2**63) for index, (time, tie) in enumerate(pairs)]
        pairs = list(dict.fromkeys(pairs))
    policy = drift.EventTime(itemgetter(0), tie=itemgetter(1), lateness=2**64)
    machine = SourceMachine("in", rank, policy)
    metas: list[bytes] = []
    for start in range(0, len(pairs), batch_items):
        arrived = machine.take(pairs[start : start + batch_items])
        assert arrived.error is None and not arrived.late
        metas += arrived.metas
    assert metas == [global_time(time, rank, tie, 0) for time, tie in pairs]
    assert [global_time(time, rank, tie, 1) for time, tie in pairs] == list(machine.take(pairs).metas)
    for bound in sorted([pack_time(minimal), *metas]):
        assert machine.unsettled(bound) == sum(meta >= bound for meta in metas) + sum(
            meta[:-1] + b"\1" >= bound for meta in metas
        )


@given(st.lists(st.integers(0, 9), min_size=1, max_size=200), st.integers(5, 9), st.integers(1, 100))
def test_what_is_late_is_what_is_behind_the_greatest_time_before_it(
    times: list[int], lateness: int, batch_items: int
) -> None:
    machine = SourceMachine("in", 0, drift.EventTime(int, lateness=lateness, late="divert"))
    kept: list[int] = []
    late: list[int] = []
    for start in range(0, len(times), batch_items):
        arrived = machine.take(times[start : start + batch_items])
        kept += arrived.payloads
        late += [each.payload for each in arrived.late]
    greatest = list(accumulate(times, max))
    behind = [seen - time > lateness for seen, time in zip(greatest, times)]
    assert kept == list(compress(times, map(not_, behind))) and late == list(compress(times, behind))


def test_a_source_lets_go_of_what_is_settled_where_an_item_of_the_batch_is_far_ahead() -> None:
    machine = SourceMachine("in", 0, drift.EventTime(lambda time: time, lateness=10**9))
    for start in range(0, 2000, 20):
        machine.take([*range(start, start + 20), 10**6 + start])
        assert machine.unsettled(global_time(start + 20, 0, 0, 0)) == start // 20 + 1
    assert sum(len(metas) for _, _, metas, _ in machine._unsettled._sent) == 100


def machine(policy: drift.ArrivalTime | drift.EventTime, **more: Any) -> SourceMachine:
    return SourceMachine("in", 0, policy, **more)


def bad_time(row: Any) -> Any:
    return None if row[1] == "no time" else row[0]


def bad_tie(row: Any) -> Any:
    """Some rows of one time have the tie of another."""
    if row[1] == "no tie":
        raise ValueError("no tie")
    return Opaque(1) if row[1] == "tie without form" else row[1] % 3 if type(row[1]) is int else row[1]


_bad_rows = st.lists(
    st.tuples(
        st.integers(0, 6),
        st.integers(0, 9) | st.integers(0, 9) | st.sampled_from(["no time", "no tie", "tie without form", Opaque(1)]),
    ),
    max_size=12,
)


@given(_bad_rows, st.integers(0, 3), st.sampled_from(["error", "divert"]), st.sampled_from([None, bad_tie]), st.data())
def test_how_a_bad_input_is_cut_into_batches_does_not_show(
    given_rows: list[Any], lateness: int, late: Any, tie: Any, data: st.DataObject
) -> None:
    check_batches(drift.EventTime(bad_time, lateness, tie, late), given_rows, data)


@given(event_inputs(20, late="divert"), st.data())
def test_how_an_input_is_cut_into_batches_does_not_show(given_input: Any, data: st.DataObject) -> None:
    check_batches(given_input.time, given_input.payloads, data)


def check_batches(policy: drift.EventTime, given_payloads: list[Any], data: st.DataObject) -> None:
    """One batch and any cut into several give the same metas, heartbeats, late items and error."""
    whole, divided = machine(policy), machine(policy)
    expected = whole.take(list(given_payloads))
    left = list(given_payloads)
    metas: list[bytes] = []
    late: list[Any] = []
    error: Exception | None = None
    heartbeat = divided.heartbeat
    while left and error is None:
        size = data.draw(st.integers(1, len(left)))
        arrived = divided.take(left[:size])
        left, error = left[size:], arrived.error
        assert all(meta >= heartbeat for meta in arrived.metas), "an item below the heartbeat"
        assert arrived.heartbeat >= heartbeat
        heartbeat = arrived.heartbeat
        metas += arrived.metas
        late += arrived.late
    assert metas == list(expected.metas) and len(set(metas)) == len(metas)
    assert [(each.time, each.heartbeat, form_of(each.payload)) for each in late] == [
        (each.time, each.heartbeat, form_of(each.payload)) for each in expected.late
    ]
    assert (type(error), str(error)) == (type(expected.error), str(expected.error))
    assert divided.heartbeat == whole.heartbeat
    assert (divided.items_in, divided.late_items) == (whole.items_in, whole.late_items) == (len(metas), len(late))


@given(event_inputs(20, late="divert"), st.data())
def test_unsettled_items_are_those_at_or_above_minimal_time(given_input: Any, data: st.DataObject) -> None:
    source = machine(given_input.time)
    metas: list[bytes] = []
    minimal_time = BEGINNING
    for payload in given_input.payloads:
        metas += source.take([payload]).metas
        if data.draw(st.booleans()):
            minimal_time = max(minimal_time, source.heartbeat)
        assert source.unsettled(minimal_time) == sum(meta >= minimal_time for meta in metas)
    assert source.unsettled(END_OF_TIME) == 0


@given(st.lists(st.tuples(st.integers(0, 3), payloads), max_size=8), st.data())
def test_global_times_of_equal_event_times_do_not_depend_on_arrival(
    rows: list[tuple[int, Any]], data: st.DataObject
) -> None:
    shuffled = data.draw(st.permutations(rows))
    policy = drift.EventTime(event_time, lateness=3)

    def placed(given_rows: Sequence[tuple[int, Any]]) -> list[tuple[bytes, bytes]]:
        arrived = machine(policy).take(list(given_rows))
        assert arrived.error is None
        return sorted(zip(arrived.metas, map(canonical, arrived.payloads)))

    assert placed(rows) == placed(shuffled)


def test_live_items_are_stamped_and_stamps_never_go_back() -> None:
    source = machine(drift.ArrivalTime(), live=True)
    metas = [meta for now in (5, 5, 4, 9, 8) for meta in source.take(["a", "b"], now_ms=now).metas]
    assert metas == sorted(set(metas))
    assert [time_of(meta) for meta in metas] == [5] * 6 + [9] * 4
    assert source.tick(8) == source.heartbeat > metas[-1]
    assert source.tick(12) == pack_time(12)
    assert time_of(source.take(["c"], now_ms=3).metas[0]) == 12


def test_the_heartbeat_of_an_idle_source_is_past_what_came_and_not_below_the_others() -> None:
    source = machine(drift.EventTime(event_time, lateness=10, late="divert", idle_after_ms=100))
    source.take([(20, "a")])
    assert source.heartbeat == pack_time(10)
    assert source.idle(BEGINNING) == pack_time(21)
    assert source.idle(pack_time(50)) == pack_time(50)
    arrived = source.take([(49, "b"), (50, "c")])
    assert [late.payload for late in arrived.late] == [(49, "b")]
    assert [time_of(meta) for meta in arrived.metas] == [50]
    assert source.finish() == END_OF_TIME == source.idle(BEGINNING)


@pytest.mark.parametrize("whole", [np.int64(7), np.uint8(7), enum.IntEnum("Hour", {"SEVEN": 7}).SEVEN])
def test_a_time_may_be_of_any_class_of_whole_numbers(whole: Any) -> None:
    source = machine(drift.EventTime(lambda row: whole if row == "whole" else row, lateness=2))
    arrived = source.take([3, "whole"])
    assert arrived.error is None
    assert [(time_of(meta), type(time_of(meta))) for meta in arrived.metas] == [(3, int), (7, int)]


def test_a_time_that_is_none_ends_the_run_after_the_items_before_it() -> None:
    for policy, error, words in [
        (drift.EventTime(lambda row: row["t"]), drift.StepError, "raised KeyError"),
        (drift.EventTime(lambda row: row.get("t", 1.5)), drift.InputError, "gave 1.5"),
        (drift.EventTime(lambda row: row.get("t", True)), drift.InputError, "gave True for"),
        (drift.EventTime(lambda row: row.get("t", np.True_)), drift.InputError, "True and False are not times"),
        (drift.EventTime(lambda row: row.get("t")), drift.InputError, "give every item a time"),
        (drift.EventTime(lambda row: row.get("t", 2**63)), drift.InputError, "with a zone: this is beyond"),
        (drift.EventTime(lambda row: 1, tie=lambda row: row["t"]), drift.StepError, "tie function"),
        (drift.EventTime(lambda row: 1, tie=lambda row: 7), drift.InputError, "two different payloads"),
        (drift.EventTime(lambda row: 1, tie=lambda row: row.get("t", object())), drift.PayloadError, "object"),
    ]:
        arrived = machine(policy).take([{"t": 1}, {"u": 2}, {"t": 3}])
        assert len(arrived.metas) == len(arrived.payloads) == 1 and MetaParts(arrived.metas[0]).ordinal == 0
        assert isinstance(arrived.error, error) and words in str(arrived.error)
        assert "'in'" in str(arrived.error)


def one_time(payload: Any) -> int:
    return 1


def test_a_payload_that_cannot_be_hashed_has_no_position_in_event_time() -> None:
    arrived = machine(drift.EventTime(one_time)).take([1, 2, Opaque(3), 4])
    assert len(arrived.metas) == 2
    assert isinstance(arrived.error, drift.PayloadError) and "Opaque" in str(arrived.error)
