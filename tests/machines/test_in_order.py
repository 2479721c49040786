"""What is not done where nothing can come out of order, and how items in event time come into order as columns."""

from __future__ import annotations

import ast
from array import array
from collections import Counter
from collections.abc import Sequence
from operator import itemgetter
from types import SimpleNamespace
from typing import Any

import polars as pl
import pytest
from flows import outcome
from hypothesis import given
from hypothesis import strategies as st

import drift
from drift.columns.rows import Frame
from drift.machines.nodes.batching import BatchPolicy
from drift.machines.nodes.intake import Fed
from drift.machines.nodes.ordering import Ordering
from drift.machines.plan import Plan
from drift.machines.rows import called_in_a_row
from drift.machines.windowing import Opening
from drift.machines.worker import BARRIER, Worker
from drift_graph.item import Columns, sorted_by_meta
from drift_graph.meta import (
    BEGINNING,
    END_OF_TIME,
    LATER_MARK,
    MetaParts,
    in_rounds,
    is_later,
    moment_of,
    pack_time,
    time_of,
    varint,
)
from drift_graph.metas import Metas
from drift_graph.payloads import are_rows
from drift_graph.times import Arrived, SourceMachine

TIMES = st.one_of(st.integers(-5, 5), st.integers(2**24 - 3, 2**24 + 3), st.integers(-(2**63), 2**63 - 1))
TIES = st.one_of(st.integers(0, 300), st.integers(2**32 - 2, 2**32 + 2), st.integers(0, 2**64 - 1))
PLACES = st.lists(st.tuples(TIMES, TIES), min_size=1, max_size=40, unique=True)


def test_ties_that_differ_only_in_their_lowest_bits_are_distinguished() -> None:
    ties = [*range(2**63 + 99, 2**63 - 1, -1), 0]
    for times in (1, 2):
        stamps = [(7 + tie // 50 % times, tie) for tie in ties]
        columns = (array(code, column) for code, column in zip("qQ", zip(*stamps)))
        metas = Metas.stamped(*columns, varint(0), b"\0")
        ordered = sorted_by_meta(Columns(metas, ties, None))
        assert ordered.payloads == [tie for _, tie in sorted(stamps)] and list(ordered.metas) == sorted(metas)


ARRIVING = st.lists(st.lists(st.tuples(st.integers(0, 9), st.integers(0, 2)), min_size=1, max_size=6), max_size=12)


@given(ARRIVING, st.integers(0, 9), st.sampled_from([None, itemgetter(1)]))
def test_items_of_one_stamp_are_numbered_as_they_come(
    batches: list[list[tuple[int, int]]], lateness: int, tie: Any
) -> None:
    came: Counter[tuple[int, int]] = Counter()
    machine = SourceMachine("in", 0, drift.EventTime(itemgetter(0), tie=tie, lateness=lateness, late="divert"))
    for batch in batches:
        arrived = machine.take(batch)
        assert arrived.error is None
        for meta, payload in zip(arrived.metas, arrived.payloads, strict=True):
            assert MetaParts(meta).ordinal == came[payload]
            came[payload] += 1
    numbered = {(time, number): count for time, number, count, _ in machine.remembered().ordinals}
    least = machine.least_time
    if tie is not None:
        assert numbered == {stamp: count for stamp, count in came.items() if stamp[0] >= least}
    assert len(numbered) == sum(time >= least for time, _ in came)


@given(
    st.lists(st.tuples(st.lists(st.integers(0, 1000), max_size=8), st.integers(0, 1000)), max_size=8),
    st.integers(1, 20),
)
def test_what_waits_is_given_once_in_order_and_as_soon_as_it_is_asked_for(
    steps: list[tuple[list[int], int]], items_max: int
) -> None:
    ordering, given_before, came, bound = Ordering(BatchPolicy(items_max)), list[bytes](), set[int](), 0
    for times, ahead in steps:
        times = [time for time in dict.fromkeys(times) if time >= bound and time not in came]
        came.update(times)
        metas = [pack_time(time) + b"\0\0\0" for time in times]
        ordering.add([Fed("in", 0, Arrived(Metas(metas), list(times), BEGINNING, [], None))])
        bound = max(bound, ahead)
        while ordering.least < pack_time(bound):
            taken = ordering.take(pack_time(bound))
            assert taken
            for _, columns in taken:
                assert [pack_time(time) for time in columns.payloads] == [meta[:8] for meta in columns.metas]
                assert len(columns.metas) <= items_max + items_max // 8
                given_before += columns.metas
        assert given_before == sorted(given_before)
        assert len(given_before) == sum(time < bound for time in came)
    assert bool(ordering) == (len(given_before) < len(came))


LATER = st.tuples(st.integers(0, 8), st.integers(0, 2), st.integers(1, 9)).map(
    lambda of: pack_time(of[0]) + bytes((LATER_MARK,)) + varint(of[1]) + bytes((of[2],)) + bytes(30)
)


@given(st.sets(LATER | st.integers(0, 8).map(lambda time: pack_time(time) + b"\0\0\0")).map(sorted))
def test_windows_in_order_take_items_up_to_one_of_a_later_end_or_of_rounds(metas: list[bytes]) -> None:
    opening = object.__new__(Opening)
    opening.opens = SimpleNamespace(until=lambda time: None if time // 3 == 1 else time // 3 * 3 + 2)  # type: ignore[assignment]
    opening._phase_of_end = bytes((LATER_MARK,)) + varint(0) + b"\6"
    taken = dict[int, list[int]]()
    for at, meta in enumerate(metas):
        until = opening.opens.until(time_of(meta))
        if until == time_of(meta) and is_later(meta) and (in_rounds(meta) or moment_of(meta)[10] >= 6):
            break
        taken.setdefault(until or 0, []).append(at)
    stretches, count = opening._stretches(Metas(metas))
    assert count == sum(map(len, taken.values()))
    assert [list(range(start, stop)) for start, stop, _ in stretches] == [taken[until] for *_, until in stretches]
    assert [until for *_, until in stretches] == [until for until in taken if until]


@pytest.mark.parametrize(("count", "expected"), [(18, [18]), (19, [16, 3]), (40, [16, 16, 8])])
def test_a_small_rest_is_no_batch_of_its_own(count: int, expected: list[int]) -> None:
    ordering, bound = Ordering(BatchPolicy(16)), pack_time(count)
    metas = [pack_time(time) + b"\0\0\0" for time in range(100)]
    ordering.add([Fed("in", 0, Arrived(Metas(metas), list(range(100)), BEGINNING, [], None))])
    taken = []
    while ordering.least < bound:
        taken += [len(columns.metas) for _, columns in ordering.take(bound)]
    assert taken == expected


def test_what_waits_long_is_sorted_anew_only_where_its_run_doubles() -> None:
    ordering = Ordering(BatchPolicy(10))
    for time in range(1000):
        ordering.add([Fed("in", 0, Arrived(Metas([pack_time(time) + b"\0\0\0"]), [time], BEGINNING, [], None))])
        assert len(ordering._runs["in"]) == (time + 1).bit_count()


def test_rows_that_wait_stay_rows_beside_an_object() -> None:
    def fed(times: range, payloads: Any) -> Fed:
        return Fed(
            "in", 0, Arrived(Metas([pack_time(time) + b"\0\0\0" for time in times]), payloads, BEGINNING, [], None)
        )

    ordering = Ordering(BatchPolicy(100))
    for times in (range(10, 20), range(5, 6), range(20, 40)):
        frame = pl.DataFrame({"at": times}, schema={"at": pl.Int64})
        ordering.add([fed(times, ["diverted"] if len(times) == 1 else Frame(frame))])
    assert [list(columns.payloads) for _, columns in ordering.take(pack_time(6))] == [["diverted"]]
    ((_, columns),) = ordering.take(END_OF_TIME)
    assert are_rows(columns.payloads) and [row["at"] for row in columns.payloads] == list(range(10, 40))


@given(st.integers(0, 9), st.lists(st.integers(0, 5), max_size=5))
def test_functions_in_a_row_are_called_as_one_after_the_other(count: int, payloads: list[int]) -> None:
    functions = [lambda value, each=each: (value, each) for each in range(count)]
    expected: list[Any] = list(payloads)
    for function in functions:
        expected = list(map(function, expected))
    assert called_in_a_row(functions, payloads) == expected


def chain() -> drift.Graph:
    graph = drift.Graph("chain")
    graph.source("in").map(lambda n: n + 1).map(lambda n: 10 // (n - 50)).map(str).sink("out")
    return graph


def test_a_call_that_raises_in_a_row_of_maps_names_its_step() -> None:
    for engine in ("local", "reference"):
        run = drift.run(chain(), {"in": range(100)}, engine=engine)
        with pytest.raises(drift.StepError, match="modulo by zero"):
            run.finish()
        assert run.report.items_out == 49


@pytest.mark.parametrize("bad", [7, 100])
def test_a_filter_behind_maps_leaves_in_what_is_true_up_to_a_call_that_raises(bad: int) -> None:
    """Batches behind the first go through the maps and the filter in a row."""

    def sure(n: int) -> Any:
        return ((), "", 0, None, 2, "x", (0,), 10 // (n - bad))[n % 8]

    graph = drift.Graph("filtered")
    graph.source("in").map(lambda n: n - 1).map(lambda n: n + 1).filter(sure).map(lambda n: -n).sink("out")
    runs = [drift.run(graph, {"in": range(24)}, engine=name, batch_items=4) for name in ("local", "reference")]
    found = list(map(outcome, runs))
    assert found[0] == found[1] and [item.payload for item in found[0][0][:3]] == [-4, -5, -6]


def stateful() -> drift.Graph:
    graph = drift.Graph("stateful")
    numbers = graph.source("in")
    numbers.scan(lambda n: n % 3, 0, lambda total, n: (total + n, total + n)).sink("sums")
    numbers.group(lambda n: n % 3, 2).sink("pairs")
    return graph


@pytest.mark.parametrize("split", [3, 8])
def test_what_is_complete_is_not_held_and_gives_what_it_gives_otherwise(split: int) -> None:
    """Up to a split everything has come; the rest comes with an item in between, which corrects it."""
    metas = Metas.numbered(0, 10, b"\0\0\0")
    early, between, late = metas[:split], metas[split : split + 1], metas[split + 1 :]
    outputs: list[list[tuple[str, bytes, str, int]]] = []
    for complete_below in (BEGINNING, metas[split]):
        worker = Worker(Plan(stateful().build()))
        sent: list[tuple[str, bytes, str, int]] = []
        for batch, start in ((early, 0), (late, split + 1), (between, split)):
            payloads = list(range(start, start + len(batch)))
            made = worker.turn([("in", Columns(batch, payloads, None))] if batch else [], heartbeat=complete_below)
            if batch is early:
                assert (worker.held == 0) == bool(complete_below)
            for name, columns in made.get(BARRIER, ()):
                diffs = columns.diffs or [1] * len(columns.metas)
                sent += zip([name] * len(diffs), columns.metas, map(repr, columns.payloads), diffs)
        net: dict[tuple[str, bytes, str], int] = {}
        for *item, diff in sent:
            net[tuple(item)] = net.get(tuple(item), 0) + diff  # type: ignore[index]
        outputs.append(sorted((*item, count) for item, count in net.items() if count))
    assert outputs[0] == outputs[1] and len(outputs[0]) == 20


KEYS = [0, 1, True, 1.0, "1", None, (1,), (True,)]


@given(st.lists(st.integers(0, len(KEYS) - 1), max_size=12), st.integers(0, 12), st.sampled_from(["key", "step", ""]))
def test_keys_of_several_types_and_calls_that_raise_give_what_the_reference_gives(
    keys: list[int], bad: int, raises: str
) -> None:
    """In order keys are found and steps made in one loop, which ends at a key of another type, and where a call raises.

    The first two items have keys of one type; so the loop has begun.
    """

    def checked(role: str, number: int) -> None:
        if role == raises and number == bad:
            raise LookupError(number)

    def key(item: tuple[int, int]) -> Any:
        checked("key", item[0])
        return KEYS[item[1]]

    def step(count: int, item: tuple[int, int]) -> tuple[int, Any]:
        checked("step", item[0])
        return count + 1, (count, item)

    graph = drift.Graph("keys")
    numbers = graph.source("in")
    numbers.scan(key, 0, step).sink("counts")
    numbers.group(key, 2).sink("pairs")
    given_items = list(enumerate([0, 0, *keys]))
    found, expected = (outcome(drift.run(graph, {"in": given_items}, engine=name)) for name in ("local", "reference"))
    assert found == expected


def outputs_of(graph: drift.Graph, batches: Sequence[tuple[list[int], int]], fused: bool = True) -> list[Any]:
    """What is left of the outputs of a worker that gets batches of times, and with each that all below has come."""
    worker, kept = Worker(Plan(graph.build(), fused=fused)), Counter[tuple[bytes, str]]()
    for times, complete in batches:
        metas = Metas([event_meta(time) for time in times])
        below = pack_time(complete)
        worker.settle(BEGINNING, below)
        sends = worker.turn([("in", Columns(metas, times, None))] if times else [], heartbeat=below)
        for _, (made, payloads, diffs) in sends.get(BARRIER, ()):
            for meta, payload, diff in zip(made, payloads, diffs or [1] * len(made)):
                kept[meta, repr(payload)] += diff
    return [ast.literal_eval(payload) for (_, payload), count in sorted(kept.items()) if count]


def event_meta(time: int) -> bytes:
    return pack_time(time) + bytes([0]) + bytes(8) + bytes([0])


@pytest.mark.parametrize("fused", [True, False])
def test_an_item_that_comes_with_the_news_that_nothing_is_below_what_was_ahead_corrects_it(fused: bool) -> None:
    """The item ahead is complete only with the batch that brings the one below it."""
    graph = drift.Graph("ahead")
    source = graph.source("in", time=drift.EventTime(lambda number: number))
    source.scan(lambda number: 0, 0, lambda state, number: (state + 1, (number, state))).sink("out")
    assert outputs_of(graph, [([5], 1), ([3], 9)], fused) == [(3, 0), (5, 1)]


def test_a_timer_that_fires_below_what_was_ahead_corrects_it() -> None:
    graph = drift.Graph("ahead")
    source = graph.source("in", time=drift.EventTime(lambda number: number))
    source.process(
        lambda number: 0,
        0,
        lambda state, number, time: (state + 1, [(number, state), drift.at(time + 2, "timer")]),
        lambda state, note, time: (state + 10, []),
    ).sink("out")
    assert outputs_of(graph, [([1], 1), ([5], 2), ([], 9)]) == [(1, 0), (5, 11)]


@pytest.mark.parametrize(
    "windows",
    [drift.windows.tumbling(7), drift.windows.session(gap=2), drift.windows.sliding(6, 4), drift.windows.sliding(2, 5)],
    ids=str,
)
@given(times=st.permutations(range(40)), size=st.integers(1, 9))
def test_items_of_windows_in_any_order_are_held_until_none_of_them_is_corrected(
    windows: Any, times: list[int], size: int
) -> None:
    graph = drift.Graph("held")
    source = graph.source("in", time=drift.EventTime(int, lateness=40))
    source.key_by(lambda number: number % 2).window(windows).aggregate(drift.agg.collect()).sink("out")
    worker, made = Worker(Plan(graph.build()), rewinds=True), list[Any]()
    for start in range(0, len(times) + size, size):
        some = times[start : start + size]
        parts = [("in", Columns(Metas([event_meta(time) for time in some]), some, None))] if some else []
        sends = worker.turn(parts)
        worker.settle(
            BEGINNING, pack_time(left) if (left := min(times[start + size :], default=-1)) >= 0 else END_OF_TIME
        )
        for _, columns in [*sends.get(BARRIER, ()), *worker.turn(()).get(BARRIER, ())]:
            assert columns.diffs is None
            made += zip(columns.metas, columns.payloads)
    made.sort(key=itemgetter(0))
    expected = drift.run(graph, {"in": times}, engine="reference")
    assert [payload for _, payload in made] == [item.payload for item in expected]
    assert worker.tombstones == 0


def test_what_waits_is_not_read_a_few_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """While all are within the lateness, nothing is processed from which the size of a batch could be learned."""
    read: list[int] = []
    take = SourceMachine.take
    monkeypatch.setattr(
        SourceMachine, "take", lambda self, payloads, *now: read.append(len(payloads)) or take(self, payloads, *now)
    )
    graph = drift.Graph("waiting")
    graph.source("in", time=drift.EventTime(int, lateness=10**6)).map(str).sink("out")
    run = drift.run(graph, {"in": range(5000)}, batch_items=1024)
    assert [item.payload for item in run] == [str(number) for number in range(5000)]
    assert len(read) < 20 and max(read) == 1024
