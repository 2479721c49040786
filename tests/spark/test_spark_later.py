"""Later items on Spark: rows of their level like any other; between micro-batches timers wait with the state."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from spark_shares import digest_and_error, in_reference
from test_later import BY_TIME, arrivals, by_name, counted, due, on_timer, seen, trips
from test_spark_streaming import all_items, micro_batch, rows_moved, stream_of, write_files
from test_spark_streaming import trips as taxi_trips

import drift
import drift.spark
from drift.engines.shipping import packed
from drift.engines.surroundings import surroundings
from drift.spark.batches import BatchRow
from drift.spark.kernels import RangeEnd, Work
from drift.spark.levels import StateWriting
from drift_graph.meta import BEGINNING, END_OF_TIME

ARRIVED = [(at * 7 % 19 + at, "abcd"[at % 4], at) for at in range(300)]


def test_later_items_of_a_dataframe_give_the_digest_of_local(spark: Any) -> None:
    frame = spark.createDataFrame(ARRIVED, "at long, name string, number long").repartition(4, "number")
    rows = [frame_row.asDict() for frame_row in frame.collect()]
    digests = []
    for given_rows, chosen in ((frame, {"engine": "spark", "spark": spark}), (rows, {})):
        graph = drift.Graph("rows")
        source = graph.source("rows", time=drift.EventTime(lambda row: row["at"], lateness=400))
        source.flat_map(lambda row: [row, drift.at(row["at"] + 4, row)], later=True).group(
            lambda row: row["name"], 2
        ).sink("pairs")
        source.process(lambda row: row["name"], 0, counted, on_timer).sink("counted")
        digests.append(drift.run(graph, {"rows": given_rows}, **chosen).finish().digest)  # type: ignore[arg-type]
    assert digests[0] == digests[1]


def processed() -> drift.Graph:
    graph = drift.Graph("processed")
    first = graph.source("trips", time=BY_TIME).process(by_name, 0, seen, due, name="first")
    first.process(lambda payload: payload[0], 0, counted, on_timer, name="second").sink("out")
    first.sink("first out")
    return graph


WINDOWS = {
    "tumbling": drift.windows.tumbling(5),
    "sliding": drift.windows.sliding(9, 3),
    "session": drift.windows.session(3),
    "count": drift.windows.count(3, 2, partial=True),
    "rule": drift.windows.by_rule(lambda trip: ("go on", "close", "open", "skip")[trip[2] % 4], partial=True),
}


def windowed(kind: str) -> drift.Graph:
    """Keys of windows are forgotten when these end."""
    graph = drift.Graph(kind)
    graph.source("trips", time=BY_TIME).key_by(by_name).window(WINDOWS[kind]).collect().sink("out")
    return graph


def joined(how: Any) -> drift.Graph:
    graph = drift.Graph("joined")
    source = graph.source("trips", time=BY_TIME)
    left, right = source.filter(is_even), source.filter(is_odd)
    left.join(right, by_name, by_name, within=(2, 5), how=how).sink("out")
    return graph


def is_even(trip: Any) -> bool:
    return trip[2] % 2 == 0


def is_odd(trip: Any) -> bool:
    return not is_even(trip)


GRAPHS = {
    "processed": processed,
    "later": trips,
    "joined": partial(joined, "full"),
    "inner": partial(joined, "inner"),
    **{kind: partial(windowed, kind) for kind in WINDOWS},
}


@pytest.mark.parametrize("name", GRAPHS)
@settings(max_examples=settings.default.max_examples // 3)
@given(
    arrivals(),
    st.lists(st.integers(1, 3), min_size=1, max_size=3),
    st.lists(st.integers(0, 39), max_size=6),
    st.booleans(),
)
@example([(0, "a", 0), (3, "b", 1), (30, "b", 2)], [1], [1, 2], False)  # what is of "a" is forgotten in between
def test_micro_batches_cut_anywhere_give_the_output_of_a_run(
    name: str, arrived: list[Any], targets: list[int], cuts: list[int], whole: bool
) -> None:
    case = _Case(GRAPHS[name], arrived)
    items = all_items(case)
    states: list[BatchRow] = []
    ends: list[tuple[int, RangeEnd]] = []
    position, before = 0, BEGINNING
    ordered = sorted({cut for cut in cuts if 0 < cut < len(items)})
    for number, (begin, end) in enumerate(zip([0, *ordered], [*ordered, len(items)])):
        upto = items[end][0] if end < len(items) else END_OF_TIME
        tasks, tasks_before = (targets[at % len(targets)] for at in (number, number - 1))
        writes_all = whole or tasks != tasks_before
        writing, since, before = StateWriting(number, writes_all, before), before, upto
        work = Work(packed(case.dataflow()), surroundings(), True, tasks, (), heartbeat=upto, writes_state=writing)
        if number and tasks != tasks_before:
            states = rows_moved(replace(work, begin=since), states)
        kept, more, position = micro_batch(work, items[begin:end], states, position)
        states = [*kept, *(() if writes_all else states)]
        ends += more
    digest, error = in_reference(case)
    assert digest_and_error([end for _, end in ends]) == (digest, error) and not error


class _Case:
    def __init__(self, graph: Callable[[], drift.Graph], arrived: list[Any]) -> None:
        self._graph = graph
        self._arrived = arrived

    def dataflow(self) -> drift.Dataflow:
        return self._graph().build()

    def sources(self) -> dict[str, Any]:
        return {"trips": self._arrived}


def reminded(trip: Any, time: int) -> list[Any]:
    """Some soon, some micro-batches later, some at the end."""
    return [drift.at(time + delay, (trip["taxi"], time, delay)) for delay in (0, 3, 70)] + [drift.at(drift.END, time)]


def later_and_rounds() -> drift.Dataflow:
    graph = drift.Graph("trips")
    source = graph.source("trips", time=drift.EventTime(lambda trip: trip["time"], lateness=40))
    reminders = source.flat_map(reminded, with_time=True, later=True, name="remind")
    reminders.sink("reminders")
    reminders.filter(lambda each: type(each) is tuple).group(lambda each: each[0], 2).sink("pairs")
    times = source.map(lambda trip: trip["time"])
    total, last = times.iterate(
        3, 0, lambda pairs: pairs.map(lambda pair: pair[1] + pair[0] % 7), lambda state, time: state + time
    )
    total.sink("total")
    last.sink("last")
    return graph.build()


def test_a_stream_keeps_later_items_and_turns_rounds_at_its_end(spark: Any, tmp_path: Any) -> None:
    rows = taxi_trips(120)
    write_files(tmp_path / "in", rows, 3)
    stream = stream_of(spark, tmp_path, graph=later_and_rounds(), partitions=2)
    stream.wait(stream.start(availableNow=True))
    waiting = [commit.position for commit in stream._store(spark).commits()]
    stream_of(spark, tmp_path, graph=later_and_rounds(), partitions=3).finish()  # another process would, too
    run = drift.run(later_and_rounds(), {"trips": rows})
    expected = [(item.position, item.meta, item.sink, drift.canonical(item.payload)) for item in run]
    items = stream.items().orderBy("position").collect()
    assert [(row.position, bytes(row.meta), row.sink, bytes(row.payload)) for row in items] == expected
    assert stream.digest() == run.digest and 0 < waiting[1] < waiting[-1] < len(expected)


def test_windows_are_corrected_on_spark_as_elsewhere(spark: Any) -> None:
    graph = drift.Graph("corrected")
    time = drift.EventTime("at", lateness=11, allowed=70)
    numbers = graph.source("numbers", time=time, late="late").key_by("key")
    windowed = numbers.window(drift.windows.sliding(12, 5), allowed=40, late="gone")
    windowed.rows(of=drift.agg.collect("at")).sink("out")
    given = [{"at": n + 37 * n % 11 - (60 if n % 29 == 0 else 0), "key": n % 3} for n in range(300)]
    expected = drift.run(graph, {"numbers": given})
    assert max(item.payload["correction"] for item in expected if item.sink == "out") > 0
    for partitions in (1, 3):
        run = drift.run(graph, {"numbers": given}, engine="spark", partitions=partitions)
        assert run.finish().digest == expected.digest


def test_no_row_of_a_dataframe_is_belated(spark: Any) -> None:
    graph = drift.Graph("rows")
    rows = graph.source("rows", time=drift.EventTime("at", allowed=50))
    rows.window(drift.windows.tumbling(10), allowed=50).count().sink("out")
    frame = spark.createDataFrame([(at,) for at in (1, 30, 2)], "at long")
    found = [item.payload for item in drift.run(graph, {"rows": frame}, engine="spark")]
    assert [(each.start, each.value, each.correction) for each in found] == [(0, 2, 0), (30, 1, 0)]
