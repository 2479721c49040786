"""What the nodes of a run decide, turn by turn: credit, gathering, where a run breaks off."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

import drift
from drift.machines.nodes.acker import AckerNode
from drift.machines.nodes.barrier import BarrierNode, digest_of
from drift.machines.nodes.checkpointing import PRICE, PRICE_LIVE, PRICE_WITH_TIME, CheckpointPace
from drift.machines.nodes.feeding import FeedNode
from drift.machines.nodes.intake import Intake
from drift.machines.nodes.links import LinkLogs
from drift.machines.nodes.messages import (
    AckMessage,
    Batch,
    BreakOff,
    Finished,
    Go,
    Halt,
    MinimalTime,
    ReleasedMessage,
    Rewind,
)
from drift.machines.nodes.node import ACKER, CALLER, Send
from drift.machines.nodes.rewind_log import RewindLog
from drift.machines.nodes.snapshots import InMemory
from drift.machines.nodes.together import WithAcker
from drift.machines.nodes.worker import WorkerNode
from drift.machines.plan import Plan
from drift.machines.worker import BARRIER
from drift_barrier.barrier import Released
from drift_graph.errors import InputError, SettingsError
from drift_graph.item import Columns
from drift_graph.meta import BEGINNING, END_OF_TIME, pack_time
from drift_graph.metas import Metas
from drift_graph.policies import EventTime
from drift_graph.times import SourceMachine


def mapped() -> drift.Dataflow:
    graph = drift.Graph("mapped")
    graph.source("numbers", time=drift.EventTime(int, lateness=3000)).map(abs).sink("out")
    return graph.build()


def feeding(
    batch_items: int = 10, in_flight_max: int = 1000, workers: int = 1, *, live: bool = False
) -> tuple[FeedNode, Intake]:
    dataflow = mapped()
    sources = enumerate(dataflow.sources)
    machines = [SourceMachine(source.name, rank, source.time, live=live) for rank, source in sources]
    intake = Intake(machines, batch_items=batch_items, in_flight_max=in_flight_max)
    return FeedNode(Plan(dataflow), workers, intake), intake


def fed(node: FeedNode, intake: Intake, numbers: Sequence[int] | None) -> list[Send]:
    """What the node sends for items of its source; None at the end of the input."""
    given = intake.give(0, None if numbers is None else list(numbers), 0, 0.0)
    return node.feed([] if given is None else [given])


def batches(sends: list[Send]) -> list[Batch]:
    return [send.message for send in sends if isinstance(send.message, Batch)]


def items(sends: list[Send]) -> int:
    return sum(len(columns.metas) for batch in batches(sends) for _, columns in batch.parts)


def notice(batches: int, in_flight: bytes = END_OF_TIME, time: bytes = BEGINNING, tombstones: int = 0) -> MinimalTime:
    return MinimalTime(time, in_flight, 0, batches, BEGINNING, tombstones)


def test_so_many_batches_are_on_their_way_and_no_more_until_a_notice_that_knows_of_them() -> None:
    node, intake = feeding()
    granules = []
    while node.may_read():
        (batch,) = batches(fed(node, intake, [len(granules)]))
        granules.append(batch.granule)
    assert len(granules) == 4
    node.turn([notice(2)], 0.0)  # none of the two is in flight, and of the others the acker has not heard
    assert node.may_read()
    for number in (4, 5):
        assert node.may_read()
        fed(node, intake, [number])
    node.turn([notice(4, granules[2])], 0.0)
    assert not node.may_read()
    node.turn([notice(4, granules[3])], 0.0)
    assert node.may_read()
    assert not node.may_read(stuck=True)


def test_batches_are_gathered_where_most_is_taken_back_and_not_where_little_is() -> None:
    node, intake = feeding(batch_items=20)
    sizes: list[int] = []
    tombstones = 0
    for start in range(2000, 0, -20):  # each before the last
        sent = items(fed(node, intake, range(start, start + 20)))
        if sent:
            sizes.append(sent)
            tombstones += 2 * sent
            node.turn([notice(len(sizes), tombstones=tombstones)], 0.0)
    assert sizes == [20, 20, 40, 80, 160, 320, 640]
    assert items(fed(node, intake, [3])) == 0
    assert items(fed(node, intake, None)) == 721  # the end is not waited for


def test_where_nothing_is_taken_back_any_more_nothing_is_gathered_any_more() -> None:
    node, intake = feeding(batch_items=20)
    tombstones = 0
    for number in range(1, 9):
        sent = items(fed(node, intake, range(20 * number, 20 * number + 20)))
        assert sent == (0 if number in (4, 5) else 60 if number == 6 else 20)
        tombstones += 40 if number == 3 else 0
        node.turn([notice(node._batches, tombstones=tombstones)], 0.0)


def test_a_run_breaks_off_where_all_below_the_error_is_through_and_reports_how_far_that_is() -> None:
    node, intake = feeding()
    fed(node, intake, [2000])
    intake.inputs.fail(0, InputError("the file is cut off"))
    intake.error = intake.inputs.error
    assert node.feed([]) == []
    assert node.turn([notice(1, in_flight=pack_time(2000))], 0.0) == []
    heartbeat = intake.machines[0].heartbeat
    assert node.turn([notice(1, in_flight=pack_time(2000), time=heartbeat)], 0.0) == [
        Send(BARRIER, BreakOff(heartbeat))
    ]
    assert node.feed([]) == node.turn([notice(1, time=heartbeat)], 0.0) == []
    assert isinstance(node.error, InputError) and not node.may_read()


def test_a_run_without_credit_ends_once_nothing_is_processed_that_would_give_some() -> None:
    node, intake = feeding(in_flight_max=2)
    fed(node, intake, [2000, 2001])
    assert node.turn([notice(1, in_flight=pack_time(2000))], 0.0) == [] and node.error is None
    node.turn([notice(1, time=intake.machines[0].heartbeat)], 0.0)
    assert isinstance(node.error, SettingsError)


def test_a_barrier_that_breaks_off_releases_what_it_had_not_heard_of_and_answers_once() -> None:
    """The notice of minimal time and the order to break off come on two ways."""
    node = BarrierNode(mapped(), "xxh3_128")
    metas = Metas.numbered(1000, 4, b"\0\0\0")
    (ack,) = node.turn([Batch(metas[0], 5, [("out", Columns(Metas(metas), [1, 2, 3, 4], None))])], 0.0)
    assert ack.to == ACKER and isinstance(ack.message, AckMessage)
    released, finished = node.turn([BreakOff(metas[2])], 0.0)
    assert released.to == finished.to == CALLER
    assert isinstance(released.message, ReleasedMessage) and released.message.released.payloads == [1, 2]
    assert isinstance(finished.message, Finished) and finished.message.digest == node.machine.digest.hexdigest()
    assert node.turn([MinimalTime(metas[3], metas[3], 0)], 0.0) == []


def test_with_the_acker_in_its_process_a_barrier_releases_in_the_turn_in_which_the_last_ack_has_come() -> None:
    node, intake = feeding()
    worker = WorkerNode(Plan(mapped()), 0, 1)
    both = WithAcker(BarrierNode(mapped(), "xxh3_128"), BARRIER, AckerNode(1, [0, CALLER], [CALLER]))
    assert set(both.receivers) == {0, CALLER}
    sends = [*fed(node, intake, [3, 1, 2]), *fed(node, intake, None)]
    worked = worker.turn([send.message for send in sends if send.to == 0], 0.0)
    before = both.turn([send.message for send in sends if send.to == ACKER], 0.0)
    last = both.turn([send.message for send in worked], 0.0)
    assert {send.to for send in (*before, *last)} == {0, CALLER}
    (piece,) = [send.message for send in last if isinstance(send.message, ReleasedMessage)]
    assert piece.released.payloads == [1, 2, 3]
    assert [send.message.time for send in last if isinstance(send.message, MinimalTime)] == [END_OF_TIME] * 2
    assert [send.to for send in last if isinstance(send.message, Finished)] == [CALLER]


def test_what_was_released_is_on_its_way_no_more_though_no_notice_has_come() -> None:
    node, intake = feeding()
    granules = []
    while node.may_read():
        granules += [batch.granule for batch in batches(fed(node, intake, [len(granules)]))]
    node.turn([ReleasedMessage(Released(0, Metas(), [], "out"), granules[1])], 0.0)
    assert node.may_read()
    fed(node, intake, [len(granules)])
    assert not node.may_read()


def test_of_a_live_source_that_is_kept_up_with_fewer_batches_are_on_their_way() -> None:
    node, intake = feeding(batch_items=10, live=True)
    for number in range(2):
        assert node.may_read()
        fed(node, intake, [number])
    assert not node.may_read()
    node.turn([notice(2)], 0.0)
    assert not node.may_read(0.019) and node.may_read(0.02)  # what comes meanwhile is read together
    for number in range(4):  # full batches: there is more to read than was read
        assert node.may_read(0.0 if number else 0.02)
        fed(node, intake, range(10 * number, 10 * number + 10))
    assert not node.may_read()


def test_a_live_source_that_is_behind_does_not_wait_because_another_one_gives_little() -> None:
    policy = EventTime(int, lateness=1000)
    machines = [SourceMachine(name, rank, policy, live=True) for rank, name in enumerate(("behind", "slow"))]
    intake = Intake(machines, batch_items=10, in_flight_max=1000)
    for number in range(3):
        intake.give(0, [10 * number + at for at in range(10)], 0, 1.0)
        intake.give(1, [10 * number], 0, 1.0)
        assert intake.policy.next_s == 1.0 and not intake.policy.keeps_up
    for least in ([40], [], None):  # it gives less, has nothing now, or has ended
        intake.give(0, list(range(30, 40)), 0, 1.0)
        intake.give(0, least, 0, 1.0)
        intake.give(1, [30], 0, 1.0)
        assert intake.policy.next_s == pytest.approx(1.02) and intake.policy.keeps_up


@pytest.mark.parametrize(
    ("live", "items", "price"), [(False, 3, PRICE), (True, 10, PRICE_LIVE), (True, 3, PRICE_WITH_TIME)]
)
def test_checkpoints_have_a_price_by_whether_the_input_is_live_and_workers_keep_up(
    live: bool, items: int, price: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    node, intake = feeding(live=live)
    prices: list[float] = []
    monkeypatch.setattr(RewindLog, "take", lambda self, now_s, minimal_time, price: prices.append(price))
    node.rewind_log = RewindLog(lambda carried: BreakOff(0), 1, InMemory(()), CheckpointPace())
    intake.give(0, list(range(items)), 0, 1.0)
    node.turn([], 1.0)
    assert prices == [price]


def test_workers_that_have_little_to_do_hear_of_minimal_time_seldom_and_the_caller_of_each() -> None:
    acker = AckerNode(1, [0, 1, CALLER], [CALLER])

    def heard(now_s: float, items: int, waiting: int = 0) -> list[int]:
        """Who does, where so many items were fed and are through."""
        time = pack_time(int(now_s * 10_000))
        waits = [(time, waiting, 0)] if waiting else []
        sent = acker.turn([AckMessage([], [(0, time)], items, 0, waits)], now_s)
        return [send.to for send in sent if send.to != BARRIER]

    assert heard(1.0, 3) == [0, 1, CALLER]
    assert heard(1.002, 3) == [CALLER]
    assert heard(1.0022, 3) == [CALLER] and 1.049 < acker.wake_s < 1.051
    assert heard(1.052, 3) == [0, 1, CALLER]
    assert heard(1.054, 100) == [0, 1, CALLER]  # they hold so many back while older ones are in flight
    assert heard(1.056, 3) == [CALLER]
    assert heard(1.058, 3, waiting=7) == [0, 1, CALLER]  # something waits for its time


def test_a_silent_source_moves_its_heartbeat_as_seldom_as_it_may_and_with_items_at_once() -> None:
    machine = SourceMachine("numbers", 0, drift.ArrivalTime(), live=True)
    intake = Intake([machine], batch_items=10, in_flight_max=1000)
    intake.beat_interval_s = 0.02

    def given(payloads: list[int], now_ms: int) -> bool:
        return intake.give(0, list(payloads), now_ms, now_ms / 1000) is not None

    assert given([1], 100) and given([2], 101)
    assert not given([], 119) and given([], 125)
    assert not given([], 130) and given([3], 131)


def test_a_barrier_resumes_the_digest_from_what_the_log_of_the_caller_has_noted() -> None:
    """Wherever batches end: within a block, at its end, behind several blocks."""
    barrier = BarrierNode(mapped(), "xxh3_128")
    log = RewindLog(lambda carried: Batch(b"", 0, []), 1, InMemory(()), CheckpointPace(None))
    first = 0
    for count in (1, 4094, 1, 5, 4096, 10_000, 3, 2283):
        barrier.machine.add("out", Columns(Metas.numbered(first, count, b"\0\0\0"), list(range(count)), None))
        first += count
        sends = barrier.turn([MinimalTime(pack_time(first), b"", 0)], 0.0)
        for message in [send.message for send in sends if isinstance(send.message, ReleasedMessage)]:
            log.note_released(message)
        assert digest_of(log.restart(), "xxh3_128").hexdigest() == barrier.machine.digest.hexdigest()
        assert log.position == first


def beside_windows() -> drift.Dataflow:
    """Windows, and beside them a scan, whose outputs go on at once."""
    graph = drift.Graph("beside")
    numbers = graph.source("numbers", time=EventTime(int))
    numbers.window(drift.windows.tumbling(10)).aggregate(drift.agg.count(), name="windows").sink("out")
    numbers.scan(lambda n: 0, 0, lambda total, n: (total + n, total + n), name="sums").sink("totals")
    return graph.build()


def to_beside(time: int, *names: str) -> Batch:
    metas = Metas.numbered(time, 1, b"\0\0\0")
    return Batch(metas[0], time + 1, [(name, Columns(Metas(metas), [time], None)) for name in names])


def test_what_is_sent_at_the_time_of_a_row_that_waits_gives_what_holds_it_another_checksum() -> None:
    """Else an ack that comes before this one, and says that nothing waits any more, would let the frontier pass it."""
    node = WorkerNode(Plan(beside_windows()), 0, 1)
    (first,) = acks_of(node.turn([to_beside(1, "windows")], 0.0))
    ((granule, checksum, level),) = first.waiting
    sends = node.turn([to_beside(2, "sums")], 0.0)
    (sent,), (second,) = batches(sends), acks_of(sends)
    assert (sent.granule, level, sent.level) == (granule, 1, 1)
    assert (granule, checksum, 1) in second.waiting and len(second.waiting) == 2


def test_what_waits_is_in_the_new_table_before_anything_goes_on_after_a_death() -> None:
    node = WorkerNode(Plan(beside_windows()), 0, 1, links=LinkLogs(lambda carried: []), shelf=InMemory(()))
    node.turn([to_beside(1, "windows")], 0.0)
    node.turn([MinimalTime(pack_time(1), END_OF_TIME, 0, frontiers=(pack_time(5), pack_time(1)))], 0.0)
    checkpoint = pack_time(2)
    for order in (Halt(1), Rewind(1, checkpoint, checkpoint, [BARRIER])):
        node.obey(order)
    sends, _ = node.obey(Go(1))
    (ack,) = acks_of(sends)
    assert [(granule[:8], level) for granule, _, level in ack.waiting] == [(pack_time(9), 1)]


def acks_of(sends: list[Send]) -> list[AckMessage]:
    return [send.message for send in sends if isinstance(send.message, AckMessage)]
