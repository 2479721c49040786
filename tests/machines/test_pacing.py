"""The pace of feeding follows what is taken back, judged when its consequences are known."""

from __future__ import annotations

import math
from itertools import compress
from typing import Any

import pytest

import drift
from drift.engines.feed import Feed
from drift.engines.source_feed import SourceFeed
from drift.machines.nodes.acker import AckerNode
from drift.machines.nodes.messages import AckMessage, Batch, MinimalTime
from drift.machines.nodes.node import ACKER, CALLER, Send, tracked
from drift.machines.nodes.pacing import Pacing, needs_pace
from drift.machines.nodes.worker import WorkerNode
from drift.machines.plan import Plan
from drift.machines.worker import BARRIER, Worker
from drift_graph.item import Columns, Failure
from drift_graph.meta import END_OF_TIME, pack_time
from drift_graph.metas import Metas


def test_the_pace_rises_while_little_is_taken_back_and_falls_where_much_is() -> None:
    pacing = Pacing(items_max=4)
    paces = []
    for time, tombstones in enumerate([0, 0, 0, 30, 30, 5]):
        pacing.count(1, tombstones, pack_time(time))
        pacing.judge(pack_time(time + 1))
        paces.append(pacing.batch_items)
    assert paces == [2, 4, 4, 2, 1, 1]


def test_the_pace_is_not_judged_before_what_was_fed_is_through() -> None:
    pacing = Pacing(items_max=4096)
    for time in range(10):
        pacing.count(1, 0, pack_time(time))
    assert pacing.judge(pack_time(1))  # the first has no older ones
    for time in range(10, 20):
        pacing.count(1, 0, pack_time(time))
    assert not pacing.judge(pack_time(9))
    pacing.count(0, 1000, pack_time(9))
    assert pacing.judge(END_OF_TIME)
    assert pacing.batch_items == 1


def looped(keys: int) -> drift.Dataflow:
    """A cycle in which windows of one key go on to another."""
    graph = drift.Graph("looped")
    loop: drift.Feedback[tuple[int, int]] = graph.feedback("again")
    entered = graph.source("numbers").map(lambda number: (2, number))
    windows = entered.merge(loop).group(lambda item: item[1] % keys, 2)
    changed = windows.map(lambda window: (window[-1][0], sum(each[1] * 31 for each in window) % 997))
    changed.flat_map(lambda item: [(item[0] - 1, item[1])] if item[0] else []).feed(loop)
    changed.count(lambda item: item[1] % 5).sink("out")
    return graph.build()


def test_cycles_through_several_workers_are_paced_and_scans_are_not() -> None:
    assert needs_pace(Plan(looped(9)), 2)
    assert not needs_pace(Plan(looped(9)), 1)
    scan = drift.Graph("scan")
    scan.source("numbers").count(lambda number: number % 3).sink("out")
    assert not needs_pace(Plan(scan.build()), 2)


def test_a_cycle_over_few_keys_gives_the_digest_of_local_over_zeromq() -> None:
    given = {"numbers": range(400)}
    report = drift.run(looped(20), given, engine="zeromq", workers=2).finish()
    assert report.digest == drift.run(looped(20), given).finish().digest


def test_over_zeromq_feeding_begins_with_one_item_and_goes_at_the_pace_of_the_acker(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """How much is taken back hangs on how the workers get on; where nothing can be, the pace must rise."""
    graph = drift.Graph("windows of one")
    loop: drift.Feedback[tuple[int, int]] = graph.feedback("again")
    entered = graph.source("numbers").map(lambda number: (2, number))
    windows = entered.merge(loop).group(lambda item: sum(item) % 20, 1)
    windows.flat_map(lambda window: [(window[0][0] - 1, window[0][1])] if window[0][0] else []).feed(loop)
    windows.sink("out")
    paces: list[int] = []
    read = SourceFeed._read

    def noted(feed: Feed, *arguments: Any) -> Any:
        paces.append(feed.intake.policy.items)
        return read(feed, *arguments)

    given = {"numbers": range(400)}
    expected = drift.run(graph, given).finish().digest
    monkeypatch.setattr(SourceFeed, "_read", noted)
    report = drift.run(graph, given, engine="zeromq", workers=2).finish()
    assert (report.digest, report.tombstones) == (expected, 0)
    assert paces[0] == 1 < max(paces)


def test_the_caller_hears_of_each_batch_at_once_and_workers_later_of_several() -> None:
    """Minimal time may be what it was: without the number of batches the caller would wait for one of them for ever."""
    acker = AckerNode(1, [0, CALLER], [CALLER])
    told: list[int] = []
    for number, now_s in ((1, 1.0), (2, 1.0001)):
        fed = AckMessage([(pack_time(number), number, 0)], [], items=1)
        for message in (fed, AckMessage(fed.cells, [])):
            sends = [send.message for send in acker.turn([message], now_s) if send.to == CALLER]
            told += [notice.batches for notice in sends if isinstance(notice, MinimalTime)]
    assert told == [1, 1, 2, 2]
    assert acker.wake_s == pytest.approx(1.05)
    sends = acker.turn([], acker.wake_s)
    assert [(send.to, send.message.batches) for send in sends if isinstance(send.message, MinimalTime)] == [(0, 2)]
    assert acker.wake_s == math.inf


def test_barrier_and_caller_hear_at_once_and_notices_have_the_frontier_of_each_level() -> None:
    acker = AckerNode(2, [0, CALLER], [CALLER], levels=2)
    acker.turn([AckMessage([], [(0, pack_time(3))])], 1.0)
    sends = acker.turn([AckMessage([(pack_time(2), 7, 1)], [(1, pack_time(4))])], 1.0)
    assert [send.to for send in sends] == [BARRIER, CALLER]
    notice = sends[0].message
    assert isinstance(notice, MinimalTime)
    assert (notice.time, notice.frontiers) == (pack_time(2), (pack_time(3), pack_time(2)))


def acks(sends: list[Send]) -> list[AckMessage]:
    return [send.message for send in sends if send.to == ACKER and isinstance(send.message, AckMessage)]


def batches(sends: list[Send]) -> list[Batch]:
    return [send.message for send in sends if isinstance(send.message, Batch)]


@pytest.mark.parametrize("mapped", [False, True])
def test_a_worker_holds_back_what_neighbours_may_correct_and_nothing_else(mapped: bool) -> None:
    """What the calling process sends comes in order; where workers run the maps, older items may be on their way."""
    graph = drift.Graph("numbers")
    source = graph.source("numbers")
    (source.map(abs) if mapped else source).group(key=lambda n: n, window=1, name="windows").sink("out")
    node = WorkerNode(Plan(graph.build()), 0, 2)
    metas = Metas.numbered(1000, 200, b"\0\0\0")
    batch = Batch(metas[0], 5, [("windows", Columns(Metas(metas), list(range(200)), None))])
    sends = node.turn([MinimalTime(pack_time(0), pack_time(500), 0), batch], 1.0)
    assert len(sends) == (0 if mapped else 2)
    sends += node.turn([MinimalTime(pack_time(0), metas[0], 0)], 1.0)
    assert len(acks(sends)) == 1 and len(batches(sends)) == 1
    assert node.wake_s == math.inf


def test_a_worker_is_patient_for_as_long_as_five_batches_take_and_then_goes_ahead() -> None:
    graph = drift.Graph("numbers")
    graph.source("numbers").map(abs).group(key=lambda n: 0, window=1, name="windows").sink("out")
    node = WorkerNode(Plan(graph.build()), 0, 2)
    metas = [Metas.numbered(1000 * at, 200, b"\0\0\0\1") for at in (1, 2)]
    first, second = (Batch(each[0], 5, [("windows", Columns(Metas(each), [0] * 200, None))]) for each in metas)
    assert node.turn([MinimalTime(pack_time(0), pack_time(0), 0), first], 1.0) == []
    assert node.wake_s == pytest.approx(1.05)
    assert node.turn([], 1.04) == []
    assert len(acks(node.turn([], 1.05))) == 1
    assert node.turn([second], 3.0, 2.0) == []  # the last one took two seconds, so neighbours may as well
    assert node.wake_s == pytest.approx(13.0)
    assert len(acks(node.turn([], 13.0))) == 1


def test_what_a_worker_has_made_itself_does_not_wait_where_nothing_older_is_in_flight() -> None:
    graph = drift.Graph("numbers")
    graph.source("numbers").map(abs).group(key=lambda n: 0, window=1, name="windows").sink("out")
    node = WorkerNode(Plan(graph.build()), 0, 2)
    metas = Metas.numbered(1000, 3, b"\0\0\0")
    batch = Batch(metas[0], 5, [("numbers", Columns(Metas(metas), [0] * 3, None))])
    notice = MinimalTime(pack_time(0), metas[0], 0, number=1)
    assert len(acks(node.turn([notice, batch], 1.0))) == 1 and node.wake_s == 1.0
    assert len(acks(node.turn([], 1.0))) == 1 and node.wake_s == math.inf


@pytest.mark.parametrize(("tombstones", "waits"), [(99, False), (100, True)])
def test_a_small_share_of_its_own_does_not_wait_where_little_is_corrected(tombstones: int, waits: bool) -> None:
    """It is processed in the turn in which it is mapped, and so acknowledged with it."""
    graph = drift.Graph("numbers")
    graph.source("numbers").map(abs).group(key=lambda n: n, window=1, name="windows").sink("out")
    node = WorkerNode(Plan(graph.build()), 0, 2)
    metas = Metas.numbered(2000, 50, b"\0\0\0")
    notice = MinimalTime(pack_time(0), pack_time(0), 0, tombstones=tombstones, mapped_items=1000, number=1)
    sends = node.turn([notice, Batch(metas[0], 5, [("numbers", Columns(Metas(metas), list(range(50)), None))])], 1.0)
    assert len(acks(sends)) == 1 and len(batches(sends)) == (1 if waits else 2)
    assert node.wake_s == (pytest.approx(1.05) if waits else math.inf)
    assert len(acks(node.turn([], 1.05))) == waits


def test_a_worker_finishes_older_items_before_it_begins_with_newer_ones() -> None:
    """And looks for older ones again between two batches to be mapped."""
    graph = drift.Graph("numbers")
    graph.source("numbers").map(abs).group(key=lambda n: 0, window=1, name="windows").sink("out")
    node = WorkerNode(Plan(graph.build()), 0, 2)
    raw = [Metas.numbered(1000 * at, 200, b"\0\0\0") for at in (2, 3)]
    unmapped = [
        Batch(metas[0], at, [("numbers", Columns(Metas(metas), [0] * 200, None))]) for at, metas in enumerate(raw)
    ]
    old = Metas.numbered(1000, 200, b"\0\0\0\1")
    windows = Batch(old[0], 9, [("windows", Columns(Metas(old), [0] * 200, None))])
    sends = node.turn([*unmapped, MinimalTime(pack_time(0), old[0], 0), windows], 1.0)
    acked = [len(acks(sends))]
    while node.wake_s == 1.0:
        sends += node.turn([], 1.0)
        acked.append(len(acks(sends)))
    assert acked == [1, 2, 3]
    assert [ack.cells[0][0] for ack in acks(sends)] == [old[0], raw[0][0], raw[1][0]]


def test_a_worker_gives_a_window_once_nothing_in_flight_may_correct_it() -> None:
    graph = drift.Graph("numbers")
    windowed = graph.source("numbers", time=drift.EventTime(int)).window(drift.windows.tumbling(10))
    windowed.count().sink("out")
    node = WorkerNode(Plan(graph.build()), 0, 1)
    metas = Metas.numbered(0, 5, b"\0\0\0")
    sends = node.turn([Batch(metas[0], 5, [("numbers", Columns(Metas(metas), list(range(5)), None))])], 1.0)
    for number, below in enumerate((pack_time(9), pack_time(20))):
        assert not batches(sends), "and what waits is acknowledged as such"
        sends = node.turn([MinimalTime(pack_time(0), below, 0, frontiers=(below, pack_time(0)), number=number)], 1.0)
    (batch,) = batches(sends)
    assert [list(columns.payloads) for _, columns in batch.parts] == [[drift.Window(None, 0, 10, 5)]]


def test_a_batch_that_cannot_be_carried_goes_in_halves_and_an_item_as_a_failure() -> None:
    """Acks of what goes in its place add up, whatever comes first."""
    graph = drift.Graph("numbers")
    graph.source("numbers").map(abs, name="abs").sink("out")
    plan = Plan(graph.build())
    node = WorkerNode(plan, 0, 1)
    metas = Metas.numbered(1000, 3, b"\0\0\0")
    sends = node.turn([Batch(metas[0], 5, [("numbers", Columns(Metas(metas), [1, 2, 3], None))])], 1.0)
    carried: list[Batch] = []
    acker = AckerNode(1, [], [])
    acker.turn([AckMessage([(metas[0], 5, 0)], [])], 1.0)
    while sends:
        send = sends.pop()
        if isinstance(send.message, Batch) and 2 in send.message.parts[0][1].payloads:
            sends = [*sends, *node.unsent(send, ValueError("2 cannot be carried"))]
        elif isinstance(send.message, Batch):
            carried.append(send.message)
        else:
            acker.turn([send.message], 1.0)
    payloads = [payload for batch in carried for _, columns in batch.parts for payload in columns.payloads]
    assert sorted(payload for payload in payloads if type(payload) is int) == [1, 3]
    (failure,) = (payload for payload in payloads if type(payload) is Failure)
    assert failure.step == "abs" and "2 cannot be carried" in failure.message
    assert acker.table.in_flight == 1
    acker.turn([AckMessage([tracked(batch) for batch in carried[1:]], [])], 1.0)
    acker.turn([AckMessage([tracked(carried[0])], [])], 1.0)
    assert acker.table.in_flight == 0


@pytest.mark.parametrize("mapped", [False, True])
def test_a_batch_that_workers_share_by_its_keys_is_as_large_for_each(mapped: bool) -> None:
    graph = drift.Graph("numbers")
    source = graph.source("numbers")
    (source.map(abs) if mapped else source).group(key=lambda n: n, window=1).sink("out")
    run = drift.run(graph, {"numbers": range(50)}, engine="zeromq", workers=2, batch_items=5)
    assert run.finish().digest == drift.run(graph, {"numbers": range(50)}).finish().digest
    assert run._feed.intake.policy.items == (5 if mapped else 10)


@pytest.mark.parametrize("apart", [True, False])
def test_a_worker_takes_nothing_back_of_shares_that_it_is_given_at_once(apart: bool) -> None:
    """Shares of two neighbours, one behind the other or between each other, in whatever order they came."""
    graph = drift.Graph("numbers")
    graph.source("numbers").map(abs).group(key=lambda n: 0, window=2, name="windows").sink("out")
    worker = Worker(Plan(graph.build()))
    metas = Metas.numbered(1000, 8, b"\0\0\0\1")
    shares = [bytes((at // 4 if apart else at % 2) == share for at in range(8)) for share in (1, 0)]
    batches = [Columns(Metas(metas.chosen(share)), list(compress(range(8), share)), None) for share in shares]
    sends = worker.turn([("windows", columns) for columns in batches])
    sent = [columns for each in sends.values() for _, columns in each]
    windows = sorted(pair for columns in sent for pair in zip(columns.metas, columns.payloads))
    assert [window for _, window in windows] == [(0,), *((at - 1, at) for at in range(1, 8))]
    assert worker.tombstones == 0
