"""What is given to a run as a source, and live sources in a run."""

from __future__ import annotations

import csv
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow
import pytest
from sourced import drained, in_thread, send
from waiting import HANG_S

import drift
from drift import EventTime, InputError, SettingsError, sources

pytestmark = [pytest.mark.usefixtures("nothing_left"), pytest.mark.filterwarnings("error")]


def test_a_path_and_a_text_in_place_of_a_source_say_what_to_write() -> None:
    with pytest.raises(SettingsError, match=r"use drift.sources.text\(path\)"):
        sources.as_source("lines", "flights.csv")
    with pytest.raises(SettingsError, match=r"say what is in the file: drift.sources.text, jsonl or csv"):
        sources.as_source("lines", Path("flights.csv"))
    with pytest.raises(SettingsError, match="neither an iterable nor a drift source"):
        sources.as_source("lines", 7)


def test_a_list_of_sources_is_no_source(tmp_path: Path) -> None:
    files = [sources.text(tmp_path / name) for name in ("one", "two")]
    with pytest.raises(SettingsError, match="'lines' is given a list of 2 sources; give each of them a source of"):
        sources.as_source("lines", files)


def test_what_an_iterable_gave_before_it_raised_is_given() -> None:
    def three() -> Iterator[int]:
        yield from (1, 2, 3)
        raise ValueError("four")

    payloads, error = drained(sources.IterableSource(three()))
    assert payloads == [1, 2, 3]
    assert str(error) == "four"


def test_importing_drift_imports_neither_zmq_nor_pyspark() -> None:
    code = "import drift, sys; assert not {'zmq', 'pyspark', 'pandas'} & set(sys.modules)"
    subprocess.run([sys.executable, "-c", code], check=True)


# In a run.

ENGINES = ("local", "reference")


def graph_of(*names: str) -> drift.Graph:
    graph = drift.Graph("live")
    streams = [graph.source(name) for name in names]
    streams[0].merge(*streams[1:]).sink("out")
    return graph


def test_a_bad_line_ends_a_run_after_everything_before_it_is_out(tmp_path: Path) -> None:
    path = tmp_path / "data.jsonl"
    path.write_text("1\n2\nthree\n")
    out: list[drift.Item[Any]] = []
    with pytest.raises(InputError, match=r"data.jsonl, line 3: cannot be decoded"):
        out.extend(drift.run(graph_of("numbers"), {"numbers": sources.jsonl(path)}))
    assert [item.payload for item in out] == [1, 2]


@pytest.mark.parametrize("engine", ENGINES)
def test_a_live_run_by_event_time_gives_what_the_finite_run_gives(engine: str) -> None:
    lines = [f"{(number * 7919) % 100 + number} {number}" for number in range(500)]
    by_time = {"lines": EventTime(lambda line: int(line.split()[0]), lateness=100)}
    finite = list(drift.run(graph_of("lines"), {"lines": lines}, times=by_time))
    source = sources.tcp_lines()
    thread = in_thread(send, source.address, "".join(f"{line}\n" for line in lines).encode())
    run = drift.run(graph_of("lines"), {"lines": source}, times=by_time, engine=engine)
    assert list(run) == finite
    thread.join()
    run = drift.run(graph_of("lines"), {"lines": sources.live(iter(lines))}, times=by_time, engine=engine)
    assert [item.payload for item in run] == [item.payload for item in finite]


@pytest.mark.parametrize("engine", ENGINES)
def test_a_source_that_is_silent_does_not_stall_another_in_arrival_time(engine: str) -> None:
    go_on = threading.Event()

    def silent() -> Iterator[str]:
        assert go_on.wait(HANG_S), "the other source was stalled"
        yield "late riser"

    source = sources.tcp_lines()
    send(source.address, b"one\ntwo\n")
    out = []
    for item in drift.run(
        graph_of("loud", "silent"), {"loud": source, "silent": sources.live(silent())}, engine=engine
    ):
        out.append(item.payload)
        if len(out) == 2:
            go_on.set()
    assert out == ["one", "two", "late riser"]


@pytest.mark.parametrize("engine", ENGINES)
def test_a_source_that_is_silent_does_not_stall_another_in_event_time_with_an_idle_policy(engine: str) -> None:
    three_out, four_out = threading.Event(), threading.Event()

    def loud() -> Iterator[tuple[int, str]]:
        yield from ((1, "one"), (2, "two"), (3, "three"))
        assert three_out.wait(HANG_S), "the silent source stalled this one"
        yield (50, "four")
        assert four_out.wait(HANG_S), "the silent source stalled this one"

    def silent() -> Iterator[tuple[int, str]]:
        assert four_out.wait(HANG_S), "this source stalled the other one"
        yield (60, "late riser")

    policy = EventTime(lambda pair: pair[0], idle_after_ms=0)
    out = []
    run = drift.run(
        graph_of("loud", "silent"),
        {"loud": sources.live(loud()), "silent": sources.live(silent())},
        times={"loud": policy, "silent": policy},
        engine=engine,
    )
    for item in run:
        out.append(item.payload[1])
        if len(out) == 3:
            three_out.set()
        if len(out) == 4:
            four_out.set()
    assert out == ["one", "two", "three", "four", "late riser"]


def test_an_error_of_a_live_source_ends_the_run_and_nothing_is_left() -> None:
    def broken() -> Iterator[int]:
        yield from range(10)
        raise ConnectionError("the wire was cut")

    out: list[drift.Item[Any]] = []
    with pytest.raises(InputError, match="source 'a' raised ConnectionError after 10 items: the wire was cut"):
        out.extend(drift.run(graph_of("a"), {"a": sources.live(broken())}))
    assert [item.payload for item in out] == list(range(10))


def test_a_run_that_is_left_early_leaves_nothing() -> None:
    def endless() -> Iterator[int]:
        while True:
            yield 1

    source = sources.tcp_lines()
    with drift.run(graph_of("a", "b"), {"a": sources.live(endless()), "b": source}) as run:
        assert next(run).payload == 1


def _lines(tmp_path: Path) -> Any:
    (tmp_path / "rows.csv").write_text("k\n1\n")
    return (tmp_path / "rows.csv").open()


READ_ONCE: dict[str, Callable[[Any], Any]] = {  # of an open file
    "a generator": lambda file: (n for n in (1, 2)),
    "a reader of Arrow": lambda file: pyarrow.table({"k": [1, 2]}).to_reader(),
    "an open file": lambda file: file,
    "rows of CSV": csv.DictReader,
    "a live generator": lambda file: sources.live(n for n in (1, 2)),
}


@pytest.mark.parametrize("what", READ_ONCE)
@pytest.mark.parametrize("engine", ["local", "reference"])
def test_what_can_be_read_once_is_no_empty_input_of_another_run(what: str, engine: str, tmp_path: Path) -> None:
    graph = drift.Graph("once")
    graph.source("s").sink("out")
    with _lines(tmp_path) as file:
        once = READ_ONCE[what](file)
        assert list(drift.run(graph, {"s": once}, engine=engine))
        with pytest.raises(
            drift.SettingsError, match=r"source 's' is given a .* that has ended, or was closed: it can"
        ):
            list(drift.run(graph, {"s": once}, engine=engine))


def test_a_generator_of_a_run_that_was_refused_is_whole(tmp_path: Path) -> None:
    graph = drift.Graph("refused")
    graph.source("s").sink("out")
    once = (n for n in range(3))
    with pytest.raises(drift.DriftError):
        drift.run(graph, {"s": once}, state=drift.Checkpoints(tmp_path, from_checkpoint=7)).finish()
    assert [item.payload for item in drift.run(graph, {"s": once})] == [0, 1, 2]


def test_a_generator_that_was_begun_is_read_from_there() -> None:
    begun = (n for n in range(3))
    next(begun)
    graph = drift.Graph("begun")
    graph.source("s").sink("out")
    assert [item.payload for item in drift.run(graph, {"s": begun})] == [1, 2]


def test_a_file_that_somebody_closed_is_no_empty_input(tmp_path: Path) -> None:
    file = _lines(tmp_path)
    file.close()
    graph = drift.Graph("closed")
    graph.source("s").sink("out")
    with pytest.raises(drift.SettingsError, match="has ended, or was closed"):
        drift.run(graph, {"s": file})
