"""What is in memory is bounded by the bytes that are made, whatever was read."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from typing import Any

import flows
import pytest
from test_nodes import batches, fed, items

import drift
from drift.engines.simulated.simulation import Simulation
from drift.machines import maps, room, unmapped, windowing, worker
from drift.machines.nodes import batching
from drift.machines.nodes import worker as workers
from drift.machines.nodes.batching import FIRST_ITEMS, GROWTH, BatchPolicy
from drift.machines.nodes.feeding import FeedNode
from drift.machines.nodes.intake import Intake
from drift.machines.nodes.messages import AckMessage, Batch, MinimalTime
from drift.machines.nodes.node import Send, tracked
from drift.machines.nodes.worker import _PATIENT_ITEMS_MIN, WorkerNode
from drift.machines.plan import Plan
from drift.testing.schedule import Player, Schedule
from drift_acker.ledger import ack_of
from drift_acker.table import Ack, AckTable
from drift_graph.item import Columns
from drift_graph.meta import BEGINNING, END_OF_TIME
from drift_graph.metas import Metas
from drift_graph.sizes import BATCH_BYTES
from drift_graph.times import SourceMachine

MEGABYTE = 1 << 20
LARGE = MEGABYTE // 4
ONE_LARGE = "x" * MEGABYTE
#: Calls that may be made between two looks at what they make.
UNSEEN = 256


class Meter:
    """How much a function has made that the caller has not taken."""

    def __init__(self, big_from: int, big: int) -> None:
        self.big_from, self.big = big_from, big
        self.untaken = self.greatest = 0

    def make(self, number: int) -> str:
        made = "x" * (self.big if number >= self.big_from else 1)
        self.untaken += len(made)
        self.greatest = max(self.greatest, self.untaken)
        return made

    def make_many(self, number: int) -> list[str]:
        return [self.make(number) for _ in range(2000)]

    def take(self, items: Iterator[drift.Item[str]]) -> int:
        count = 0
        for item in items:
            self.untaken -= len(item.payload)
            count += 1
        return count


def test_few_large_payloads_are_made_before_the_first_is_released() -> None:
    meter = Meter(0, MEGABYTE)
    graph = drift.Graph("large")
    graph.source("numbers").map(meter.make).sink("out")
    assert meter.take(iter(drift.run(graph, {"numbers": range(100)}))) == 100
    assert meter.greatest <= (FIRST_ITEMS + 1) * MEGABYTE


def test_payloads_that_become_large_in_the_middle_of_a_batch_cut_it() -> None:
    meter = Meter(12_000, LARGE)
    graph = drift.Graph("jump")
    graph.source("numbers").map(str).map(int).map(meter.make).sink("out")
    run = drift.run(graph, {"numbers": range(12_300)})
    assert meter.take(iter(run)) == 12_300
    assert meter.greatest <= (2 * UNSEEN + FIRST_ITEMS * GROWTH) * LARGE + BATCH_BYTES


def test_one_item_that_becomes_many_is_taken_alone() -> None:
    meter = Meter(0, 10_000)
    graph = drift.Graph("many")
    graph.source("numbers").flat_map(meter.make_many).sink("out")
    assert meter.take(iter(drift.run(graph, {"numbers": range(20)}))) == 40_000
    assert meter.greatest <= (FIRST_ITEMS + 1) * 2000 * 10_000


AT_ONCE: dict[str, Callable[[Any, Callable[[Any], str]], Any]] = {
    "timers": lambda stream, make: stream.process(
        lambda number: number, 0, lambda state, number, time: (0, [drift.at(drift.END, number)]),
        lambda state, number, time: (0, [make(number)]),
    ),
    "ends": lambda stream, make: stream.key_by(lambda number: number).at_end(drift.agg.count().then(make)).map(second),
    "windows": lambda stream, make: (
        stream.key_by(lambda number: number)
        .window(drift.windows.tumbling(1000)).aggregate(drift.agg.count().then(make)).map(second)
    ),
    "map of windows": lambda stream, make: (
        stream.key_by(lambda number: number).window(drift.windows.tumbling(1000)).count().map(make_of(make))
    ),
    "map of sessions": lambda stream, make: (
        stream.key_by(lambda number: number)
        .window(drift.windows.session(1000)).count().filter(bool).map(make_of(make))
    ),
    "map of ends": lambda stream, make: (
        stream.key_by(lambda number: number).at_end(drift.agg.count()).map(make_of(make))
    ),
    "map of timers": lambda stream, make: (
        stream.process(
            lambda number: number, 0, lambda state, number, time: (0, [drift.at(drift.END, number)]),
            lambda state, number, time: (0, [number]),
        ).flat_map(lambda number: [make(number)])
    ),
}  # fmt: skip

#: Of rows, windows are computed in arrays, and all that end together end at once.
OF_ROWS: dict[str, Callable[[Any], Any]] = {
    "windows": lambda keyed: keyed.window(drift.windows.tumbling(1000)).aggregate(drift.agg.sum("number")),
    "sessions": lambda keyed: keyed.window(drift.windows.session(1000)).aggregate(drift.agg.sum("number")),
    "ends": lambda keyed: keyed.at_end(drift.agg.sum("number")),
}


def make_of(make: Callable[[int], str]) -> Callable[[Any], str]:
    """The function of a result, which is a pair or a window, that makes a text of its number."""
    return lambda result: make(result[1] if type(result) is tuple else result.value)


def second(pair: Any) -> str:
    return str(pair[1] if type(pair) is tuple else pair.value)


@pytest.mark.parametrize("place", AT_ONCE)
def test_what_ends_together_is_made_and_released_some_at_a_time(place: str) -> None:
    meter = Meter(0, MEGABYTE)
    graph = drift.Graph("together")
    stream = graph.source("numbers", time=drift.EventTime(lambda number: number))
    AT_ONCE[place](stream, meter.make).sink("out")
    assert meter.take(iter(drift.run(graph, {"numbers": range(100)}))) == 100
    assert meter.greatest <= 2 * (FIRST_ITEMS + 4) * MEGABYTE


@pytest.mark.parametrize("place", OF_ROWS)
def test_and_what_maps_make_of_rows_that_end_together(place: str) -> None:
    meter = Meter(0, MEGABYTE)
    graph = drift.Graph("together")
    rows = graph.source("rows", schema={"number": int, "at": int}, time=drift.EventTime("at"))
    OF_ROWS[place](rows.key_by("number")).map(make_of(meter.make)).sink("out")
    run = drift.run(graph, {"rows": [{"number": number, "at": 1} for number in range(100)]})
    assert meter.take(iter(run)) == 100
    assert meter.greatest <= 2 * (FIRST_ITEMS + 4) * MEGABYTE


def test_a_failing_call_among_large_ones_changes_no_bound() -> None:
    meter = Meter(12_000, LARGE)

    def fails(number: int) -> str:
        if number == 12_200:
            raise ValueError("no")
        return meter.make(number)

    graph = drift.Graph("failing")
    graph.source("numbers").map(fails).sink("out")
    with pytest.raises(drift.StepError):
        meter.take(iter(drift.run(graph, {"numbers": range(12_300)})))
    assert meter.greatest <= (2 * UNSEEN + FIRST_ITEMS * GROWTH) * LARGE + BATCH_BYTES


@pytest.fixture
def tiny(monkeypatch: pytest.MonkeyPatch) -> None:
    """Batches are cut wherever they can be."""
    monkeypatch.setattr(batching, "MADE_MAX", 600)
    monkeypatch.setattr(workers, "_MADE_MAX", 600)
    monkeypatch.setattr(workers, "_AHEAD_BYTES_MAX", 1000)
    monkeypatch.setattr(maps, "ROOM_BYTES", 400)
    monkeypatch.setattr(windowing, "ROOM_BYTES", 400)
    monkeypatch.setattr(worker, "BATCH_BYTES", 600)
    monkeypatch.setattr(worker, "FIRST", 2)
    for name, value in {"FIRST": 2, "GROWTH": 2, "_MADE_MAX": 600, "BATCH_BYTES": 300}.items():
        monkeypatch.setattr(unmapped, name, value)
    monkeypatch.setattr(room, "_AT_ONCE", 2)
    monkeypatch.setattr(room, "BATCH_BYTES", 200)


def grown(number: int) -> list[str]:
    return ["x" * (number * 37 % 211), str(number % 5)][: number % 3 + 1]


def words() -> drift.Graph:
    graph = drift.Graph("words")
    first = graph.source("a", time=drift.EventTime(lambda n: n * 7 % 90, lateness=90)).flat_map(grown)
    second = graph.source("b").map(lambda n: "y" * (n % 120)).filter(bool)
    both = first.merge(second)
    both.key_by(len).window(drift.windows.tumbling(10)).count().sink("counts")
    both.scan(len, 0, lambda state, word: (state + 1, (word, state))).flat_map(lambda pair: [pair] * 3).sink("states")
    first.map(lambda word: word * 3).sink("longer")
    timed = both.process(str, 0, sets_timers, lambda state, note, time: (state, [note * (1 + time % 3), note]))
    timed.sink("timed")
    timed.key_by(len).at_end(drift.agg.collect()).sink("at the end")
    windows = both.key_by(str).window(drift.windows.tumbling(30)).aggregate(drift.agg.collect()).map(repr)
    windows.sink("windows")
    again = windows.flat_map(lambda text: [text, text[:5]]).window(drift.windows.tumbling(60)).count()
    again.map(lambda window: str(window) * 9).scan(len, 0, lambda state, text: (state + 1, state)).sink("again")
    return graph


def counted() -> drift.Graph:
    """Sessions of rows, all of which end at once, and windows of what is made of them."""
    graph = drift.Graph("counted")
    rows = graph.source("rows", schema={"at": int, "k": int}, time=drift.EventTime("at", lateness=20))
    sessions = rows.key_by("k").window(drift.windows.session(20)).aggregate(drift.agg.count())
    texts = sessions.map(lambda window: str(window) * 5)
    texts.key_by(len).window(drift.windows.tumbling(50)).count().sink("windows")
    texts.scan(len, 0, lambda state, text: (state + 1, (text[-30:], state))).sink("states")
    return graph


@pytest.mark.usefixtures("tiny")
def test_nor_do_those_of_rows_that_end_together() -> None:
    rows = [{"at": at + at * 7 % 20, "k": at * 13 % 29} for at in range(0, 600, 3)]
    flows.outputs(counted(), {"rows": rows}, [{"batch_items": 40}, {"batch_items": 4096}])


def sets_timers(state: int, word: str, time: int) -> tuple[int, list[Any]]:
    return state + 1, [drift.at(time + 7, word), drift.at(drift.END, word + str(state))]


@pytest.mark.usefixtures("tiny")
def test_batches_cut_by_what_they_make_change_no_output() -> None:
    inputs = {"a": list(range(80)), "b": list(range(60))}
    flows.outputs(words(), inputs, [{"batch_items": 40}, {"batch_items": 4096}, {"fused": False}])


@pytest.mark.usefixtures("tiny")
@pytest.mark.parametrize("workers", [1, 3])
def test_nor_with_several_workers_whatever_the_schedule(workers: int) -> None:
    inputs = {"a": list(range(80)), "b": list(range(60))}
    expected = drift.run(words(), inputs, engine="reference")
    assert len(list(expected)) > 300
    for noise in range(4):
        schedule = Player(Schedule(noise=noise))
        outcome = Simulation(words().build(), inputs, schedule, workers=workers, batch_items=40).run()
        assert (outcome.error, outcome.digest) == (None, expected.digest)


def batch(numbers: int, *, time: int, to: str = "numbers", suffix: bytes = b"\0\0\0") -> Batch:
    """A batch with so many items of a source, for its program or for a grouping."""
    metas = Metas.numbered(time * 1000, numbers, suffix)
    return Batch(metas[0], time, [(to, Columns(Metas(metas), list(range(numbers)), None))])


def all_turns(node: WorkerNode, sends: list[Send]) -> list[Send]:
    """And what it sends in the turns that it asks for, at once or when its patience is over."""
    while node.wake_s < math.inf:
        more = node.turn([], node.wake_s)
        assert more, "a turn that a worker asks for has something to do"
        sends = [*sends, *more]
    return sends


def made_of(sends: list[Send]) -> int:
    return sum(len(payload) for batch in batches(sends) for _, columns in batch.parts for payload in columns.payloads)


def large(number: int) -> str:
    return ONE_LARGE


class Receivers:
    """The acker's table, and the processes that take what a worker sends, all at once when they are asked to."""

    def __init__(self, node: WorkerNode, fed: list[Batch]) -> None:
        self.table = AckTable(range(1), levels=node.levels.count)
        self.table.handle(ack_of((), map(tracked, fed), [(0, END_OF_TIME)]))
        self.node = node
        self.sends = all_turns(node, [send for each in fed for send in node.turn([each], 1.0)])

    def take(self) -> list[Send]:
        """Take everything, and tell the worker; returns what it sends then."""
        for send in self.sends:
            if isinstance(send.message, AckMessage):
                self.table.handle(Ack(send.message.cells, send.message.heartbeats, send.message.waiting))
            elif isinstance(send.message, Batch):
                self.table.handle(ack_of([tracked(send.message)], ()))
        notice = MinimalTime(self.table.minimal_time, self.table.least_in_flight, -1, 0, self.table.frontiers)
        self.sends = all_turns(self.node, self.node.turn([notice], 1.0))
        return self.sends


@pytest.mark.parametrize("count", [1, 2])
def test_a_worker_makes_no_more_until_what_it_made_has_arrived(count: int) -> None:
    """And in the end it has made everything, also of input that is older than what came before it."""
    graph = drift.Graph("large")
    graph.source("numbers").map(large).sink("out")
    node = WorkerNode(Plan(graph.build()), 0, count, starts_small=True)
    takes_all_at_this_pace(node, [batch(60, time=2), batch(60, time=3), batch(1, time=1)])


@pytest.mark.parametrize("count", [1, 2])
@pytest.mark.parametrize("mapped", [False, True])
def test_nor_does_a_grouping_whose_items_come_from_the_feed_or_from_neighbours(count: int, mapped: bool) -> None:
    """Those of neighbours wait for older ones, as long as the worker is patient; with room for more, not longer."""
    graph = drift.Graph("large")
    numbers = graph.source("numbers")
    numbers = numbers.map(abs) if mapped else numbers
    numbers.scan(lambda n: n, 0, lambda seen, n: (seen + 1, large(n)), name="states").sink("out")
    node = WorkerNode(Plan(graph.build()), 0, count, starts_small=True)
    suffix = b"\0\0\0\1" if mapped else b"\0\0\0"
    sizes = [*((_PATIENT_ITEMS_MIN, time) for time in range(2, 8)), (20, 1)]
    takes_all_at_this_pace(node, [batch(size, time=time, to="states", suffix=suffix) for size, time in sizes])


@pytest.mark.parametrize("count", [1, 2])
def test_nor_does_the_first_of_two_groupings_in_a_message_that_has_something_old_for_the_second(count: int) -> None:
    graph = drift.Graph("large")
    first = graph.source("numbers").scan(lambda n: n, 0, lambda seen, n: (seen + 1, large(n)), name="first")
    first.scan(lambda text: 0, 0, lambda seen, text: (seen + 1, str(text)), name="second").sink("out")
    node = WorkerNode(Plan(graph.build()), 0, count, starts_small=True)
    old, new = batch(1, time=1, to="second"), batch(80, time=2, to="first")
    takes_all_at_this_pace(node, [batch(60, time=3, to="first"), Batch(old.granule, 4, [*new.parts, *old.parts])])


@pytest.mark.parametrize("count", [1, 2])
def test_nor_what_ends_together_though_a_notice_knows_nothing_of_it(count: int) -> None:
    graph = drift.Graph("large")
    graph.source("numbers").key_by(abs).at_end(drift.agg.count(), name="ends").map(large).sink("out")
    node = WorkerNode(Plan(graph.build()), 0, count, starts_small=True)
    receivers = Receivers(node, [batch(200, time=1, to="ends")])
    made, times = 0, 0
    while more := receivers.take():
        stale = MinimalTime(BEGINNING, END_OF_TIME, -1, 0, [END_OF_TIME, BEGINNING])  # of before anything was made
        more += all_turns(node, node.turn([stale], 1.0))
        assert made_of(more) <= workers._AHEAD_BYTES_MAX + workers._MADE_MAX + FIRST_ITEMS * MEGABYTE
        made, times = made + made_of(more), times + 1
    assert made == 200 * MEGABYTE and times > 3
    assert receivers.table.minimal_time == END_OF_TIME


def takes_all_at_this_pace(node: WorkerNode, fed: list[Batch]) -> None:
    receivers = Receivers(node, fed)
    most = workers._AHEAD_BYTES_MAX + workers._MADE_MAX + FIRST_ITEMS * MEGABYTE
    arrived, times = receivers.sends, 0
    assert workers._AHEAD_BYTES_MAX < made_of(arrived) <= most
    while more := receivers.take():
        assert made_of(more) <= most
        arrived, times = [*arrived, *more], times + 1
    assert items(arrived) == sum(len(columns.metas) for each in fed for _, columns in each.parts) and times > 3
    assert receivers.table.minimal_time == END_OF_TIME


def test_the_first_batches_go_to_all_workers_and_grow_only_where_functions_are_fast() -> None:
    graph = drift.Graph("slow")
    graph.source("numbers").map(abs).sink("out")
    dataflow = graph.build()
    machines = [SourceMachine(source.name, rank, source.time) for rank, source in enumerate(dataflow.sources)]
    intake = Intake(machines, batch_items=4096, in_flight_max=100_000)
    node = FeedNode(Plan(dataflow), 4, intake, starts_small=True)
    assert [send.to for at in range(4) for send in fed(node, intake, [at]) if isinstance(send.message, Batch)] == [
        0, 1, 2, 3,
    ]  # fmt: skip

    def learned(mapped_items: int, mapped_s: float) -> int:
        node.turn([MinimalTime(BEGINNING, END_OF_TIME, 0, 4, mapped_items=mapped_items, mapped_s=mapped_s)], 1.0)
        return intake.policy.items

    assert learned(4, 0.2) == 1  # each took as long as a batch should
    assert learned(8, 0.2004) == GROWTH
    assert learned(9, 0.2005) == GROWTH**2
    assert learned(109, 1.2005) == 5


def test_a_policy_takes_at_least_one_item_and_at_most_what_it_may() -> None:
    policy = BatchPolicy(100)
    policy.learn(100, 1000 * BATCH_BYTES)
    assert policy.items == 1
    for expected in (8, 64, 100, 100):
        policy.learn(1, 1)
        assert policy.items == expected
    policy.pace(3)
    assert policy.items == 3
