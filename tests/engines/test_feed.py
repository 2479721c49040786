"""The shell around the sources: what it gathers, whom it waits for, when it stops."""

from __future__ import annotations

import gc
import random
import threading
from collections.abc import Iterator
from typing import Any

import pytest
from waiting import HANG_S

import drift


def running_total() -> drift.Graph:
    graph = drift.Graph("total")
    graph.source("numbers").scan(key=lambda n: 0, initial=0, step=lambda total, n: (total + n, total + n)).sink("out")
    return graph


ITEMS = 4000


def wholly_shuffled(**more: Any) -> drift.Run:
    numbers = list(range(ITEMS))
    random.Random(1).shuffle(numbers)
    times = {"numbers": drift.EventTime(time=int, tie=int, lateness=ITEMS)}
    return drift.run(running_total(), {"numbers": numbers}, times=times, batch_items=20, **more)


def test_wholly_shuffled_input_is_not_corrected_where_more_is_to_be_read() -> None:
    report = wholly_shuffled().finish()
    assert report.digest == wholly_shuffled(engine="reference").finish().digest
    assert report.tombstones == 0


def test_over_zeromq_wholly_shuffled_input_is_not_corrected_batch_by_batch() -> None:
    report = wholly_shuffled(engine="zeromq").finish()
    assert report.digest == wholly_shuffled(engine="reference").finish().digest
    # One key: a batch takes back half of what came before. 200 batches would take back 400,000 outputs.
    assert 0 < report.tombstones < 10 * ITEMS


def test_a_live_source_is_never_gathered_for() -> None:
    """Items come one by one, each before the last: all optimism is wasted, and each is processed all the same."""
    processed: list[int] = []
    seen = threading.Event()

    def step(total: int, number: int) -> tuple[int, int]:
        processed.append(number)
        seen.set()
        return total + number, total + number

    def backwards() -> Iterator[int]:
        for number in range(50, 0, -1):
            seen.clear()
            yield number
            assert seen.wait(HANG_S), "an item was held back"

    graph = drift.Graph("backwards")
    by_number = drift.EventTime(time=int, lateness=100)
    graph.source("numbers", time=by_number).scan(key=lambda n: 0, initial=0, step=step).sink("out")
    items = list(drift.run(graph, {"numbers": drift.sources.live(backwards())}))
    assert [item.time for item in items] == list(range(1, 51))


def test_too_little_credit_for_the_lateness_is_an_error_that_says_so() -> None:
    times = {"numbers": drift.EventTime(time=int, lateness=1000)}
    for engine in ("local", "reference", "zeromq"):
        run = drift.run(running_total(), {"numbers": range(100)}, times=times, in_flight_max=10, engine=engine)
        with pytest.raises(drift.SettingsError, match="raise in_flight_max or lower the lateness"):
            run.finish()


def test_a_run_that_has_not_begun_has_no_digest() -> None:
    run = drift.run(running_total(), {"numbers": [1]})
    with pytest.raises(drift.SettingsError, match="has not begun"):
        _ = run.digest
    assert run.finish().digest == run.digest


@pytest.mark.parametrize(
    ("sources", "words"),
    [
        ({"numbers": {"a": 1}}, "would be its keys only"),
        ({"numbers": "text"}, "to read a file use drift.sources.text"),
        ("numbers.txt", "is no dict; give each its name in the graph"),
        ({"number": [1]}, "has no source 'number'; it has 'numbers'"),
        ({}, "no input for source 'numbers'"),
    ],
)
def test_what_is_no_stream_is_refused_with_what_to_do(sources: Any, words: str) -> None:
    with pytest.raises(drift.SettingsError, match=words):
        drift.run(running_total(), sources)


@pytest.mark.parametrize("what", ["sinks", "times"])
def test_what_is_no_dict_is_refused_with_what_to_do(what: str) -> None:
    with pytest.raises(drift.SettingsError, match=f"{what}='out.csv' is no dict; .*{what}={{NAME: "):
        drift.run(running_total(), {"numbers": [1]}, **{what: "out.csv"})  # type: ignore[arg-type]


def test_a_loop_over_a_run_ends_where_the_run_is_closed() -> None:
    graph = drift.Graph("numbers")
    graph.source("numbers").sink("out")
    seen = []
    run = drift.run(graph, {"numbers": range(10_000)})
    for item in run:
        seen.append(item.payload)
        if item.payload == 5_000:
            run.close()
    assert seen == list(range(5_001))
    assert run.progress.items_out < 10_000
    assert list(run) == []


def test_fewer_items_are_read_at_once_where_one_becomes_many() -> None:
    def sizes(children: int) -> list[int]:
        graph = drift.Graph("children")
        graph.source("in").flat_map(lambda number: [number] * children).sink("out")
        run = drift.run(graph, {"in": range(1000)}, batch_items=100)
        return [len(batch.metas) for batch in run.batches() if batch.metas]

    assert sizes(1) == [8, 64, 28] + [100] * 9
    assert sizes(10) == [80] + [180] * 55 + [20]  # 18 items in and 180 out are 100 on average
    assert sizes(150) == [1200] + [150] * 992


def test_runs_that_end_in_any_order_leave_the_garbage_collector_as_it_was(monkeypatch: pytest.MonkeyPatch) -> None:
    gc.collect()  # what other tests have left to it
    monkeypatch.setattr("drift.engines.memory._thresholds_before", [])
    before = gc.get_threshold()

    def begun() -> Iterator[Any]:
        run = drift.run(running_total(), {"numbers": range(10)}, batch_items=1)
        next(run)
        return run

    gc.set_threshold(700, 10, 10)
    try:
        for order in ([0, 1], [1, 0]):
            runs = [begun(), begun()]
            for index in order:
                assert gc.get_threshold()[0] > 700
                list(runs[index])
            assert gc.get_threshold() == (700, 10, 10)
    finally:
        gc.set_threshold(*before)
