"""The pace of feeding follows what is taken back, judged when its consequences are known."""

from __future__ import annotations

import math
from itertools import compress
from pathlib import Path
from typing import Any

import pytest

import drift
from drift.engines.base import Settings
from drift.engines.feed import Feed
from drift.engines.pacing import Pacing, needs_pace
from drift.engines.zeromq.roles import AckerLoop, WorkerLoop
from drift.engines.zeromq.sockets import Transport
from drift.engines.zeromq.wire import AckMessage, Batch, Codec, Message, MinimalTime
from drift.machines.plan import Plan
from drift.machines.worker import Worker
from drift_graph.item import Columns
from drift_graph.meta import END_OF_TIME, NumberedMetas, chosen_metas, pack_time


def test_the_pace_rises_while_little_is_taken_back_and_falls_where_much_is() -> None:
    pacing = Pacing(items_max=4)
    paces = []
    for time, tombstones in enumerate([0, 0, 0, 30, 30, 5]):
        pacing.note(1, tombstones, pack_time(time))
        pacing.judge(pack_time(time + 1))
        paces.append(pacing.batch_items)
    assert paces == [2, 4, 4, 2, 1, 1]


def test_the_pace_is_not_judged_before_what_was_fed_is_through() -> None:
    pacing = Pacing(items_max=4096)
    for time in range(10):
        pacing.note(1, 0, pack_time(time))
    assert pacing.judge(pack_time(1))  # the first has no older ones
    for time in range(10, 20):
        pacing.note(1, 0, pack_time(time))
    assert not pacing.judge(pack_time(9))
    pacing.note(0, 1000, pack_time(9))
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
    read = Feed._read

    def noted(feed: Feed, *arguments: Any) -> Any:
        paces.append(feed.batch_items)
        return read(feed, *arguments)

    given = {"numbers": range(400)}
    expected = drift.run(graph, given).finish().digest
    monkeypatch.setattr(Feed, "_read", noted)
    report = drift.run(graph, given, engine="zeromq", workers=2).finish()
    assert (report.digest, report.tombstones) == (expected, 0)
    assert paces[0] == 1 < max(paces)


class Heard:
    """In place of an outbox: what was sent."""

    def __init__(self, codec: Codec) -> None:
        self._codec = codec
        self.messages: list[Message] = []

    def send(self, frame: bytes) -> None:
        self.messages.append(self._codec.decode(frame))


def test_the_caller_hears_of_a_batch_that_was_fed_and_done_before_the_next_notice(tmp_path: Path) -> None:
    """Minimal time may be what it was: without the number of batches the caller would wait for this one for ever."""
    graph = drift.Graph("numbers")
    graph.source("numbers").group(key=lambda n: n, window=1).sink("out")
    acker = AckerLoop(7, Transport(str(tmp_path)), graph.build(), Settings())
    caller = Heard(Codec(0, 7))
    acker._barrier = acker._caller = caller  # type: ignore[assignment]
    acker._others = [caller]  # type: ignore[list-item]
    for number, next_notice_s in ((1, 0.0), (2, math.inf)):
        acker._next_notice_s = next_notice_s
        acker.turn([AckMessage([(pack_time(number), number)], [], items=1)])
        acker._next_notice_s = next_notice_s
        acker.turn([AckMessage([(pack_time(number), number)], [])])
    acker._next_notice_s = 0.0
    acker.turn([])
    acker.context.destroy()
    assert [message.batches for message in caller.messages if isinstance(message, MinimalTime)] == [1, 1, 2]


@pytest.mark.parametrize("mapped", [False, True])
def test_a_worker_holds_back_what_neighbours_may_correct_and_nothing_else(tmp_path: Path, mapped: bool) -> None:
    """What the calling process sends comes in order; where workers run the maps, older items may be on their way."""
    graph = drift.Graph("numbers")
    source = graph.source("numbers")
    (source.map(abs) if mapped else source).group(key=lambda n: n, window=1, name="windows").sink("out")
    loop = WorkerLoop(0, 7, Transport(str(tmp_path)), graph.build(), Settings(workers=2))
    acker, others = Heard(Codec(0, 7)), Heard(Codec(0, 7))
    loop._acker = acker  # type: ignore[assignment]
    loop._peers = {1: others, -1: others}  # type: ignore[dict-item]
    metas = NumberedMetas(1000, 200, b"\0\0\0")
    batch = Batch(metas[0], 5, [("windows", Columns(metas, list(range(200)), None))])
    loop.turn([MinimalTime(pack_time(0), pack_time(500), 0), batch])
    assert len(acker.messages) == (not mapped)
    loop.turn([MinimalTime(pack_time(0), metas[0], 0)])
    loop.context.destroy()
    assert len(acker.messages) == 1 and len(others.messages) == 1


def test_a_worker_finishes_older_items_before_it_begins_with_newer_ones(tmp_path: Path) -> None:
    """And looks for older ones again between two batches to be mapped."""
    graph = drift.Graph("numbers")
    graph.source("numbers").map(abs).group(key=lambda n: 0, window=1, name="windows").sink("out")
    loop = WorkerLoop(0, 7, Transport(str(tmp_path)), graph.build(), Settings(workers=2))
    acker, others = Heard(Codec(0, 7)), Heard(Codec(0, 7))
    loop._acker = acker  # type: ignore[assignment]
    loop._peers = {1: others, -1: others}  # type: ignore[dict-item]
    raw = [NumberedMetas(1000 * at, 200, b"\0\0\0") for at in (2, 3)]
    batches = [Batch(metas[0], at, [("numbers", Columns(metas, [0] * 200, None))]) for at, metas in enumerate(raw)]
    old = NumberedMetas(1000, 200, b"\0\0\0\1")
    windows = Batch(old[0], 9, [("windows", Columns(old, [0] * 200, None))])
    loop.turn([*batches, MinimalTime(pack_time(0), old[0], 0), windows])
    acked = [len(acker.messages)]
    while loop.poll_ms == 0:
        loop.turn([])
        acked.append(len(acker.messages))
    loop.context.destroy()
    assert isinstance(first := acker.messages[0], AckMessage) and first.cells[0][0] == old[0]
    assert acked == [1, 2, 3]
    granules = [message.cells[0][0] for message in acker.messages if isinstance(message, AckMessage)]
    assert granules == [old[0], raw[0][0], raw[1][0]]


@pytest.mark.parametrize("mapped", [False, True])
def test_a_batch_that_workers_share_by_its_keys_is_as_large_for_each(mapped: bool) -> None:
    graph = drift.Graph("numbers")
    source = graph.source("numbers")
    (source.map(abs) if mapped else source).group(key=lambda n: n, window=1).sink("out")
    run = drift.run(graph, {"numbers": range(50)}, engine="zeromq", workers=2, batch_items=5)
    assert run.finish().digest == drift.run(graph, {"numbers": range(50)}).finish().digest
    assert run._feed.batch_items == (5 if mapped else 10)


@pytest.mark.parametrize("apart", [True, False])
def test_a_worker_takes_nothing_back_of_shares_that_it_is_given_at_once(apart: bool) -> None:
    """Shares of two neighbours, one behind the other or between each other, in whatever order they came."""
    graph = drift.Graph("numbers")
    graph.source("numbers").map(abs).group(key=lambda n: 0, window=2, name="windows").sink("out")
    worker = Worker(Plan(graph.build()))
    metas = NumberedMetas(1000, 8, b"\0\0\0\1")
    shares = [bytes((at // 4 if apart else at % 2) == share for at in range(8)) for share in (1, 0)]
    batches = [Columns(chosen_metas(metas, share), list(compress(range(8), share)), None) for share in shares]
    sends = worker.handle([("windows", columns) for columns in batches])
    sent = [columns for each in sends.values() for _, columns in each]
    windows = sorted(pair for columns in sent for pair in zip(columns.metas, columns.payloads))
    assert [window for _, window in windows] == [(0,), *((at - 1, at) for at in range(1, 8))]
    assert worker.tombstones == 0
