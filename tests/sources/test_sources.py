"""What is given to a run as a source, and live sources in a run."""

from __future__ import annotations

import csv
import gc
import io
import itertools
import os
import socket
import threading
from collections import deque
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow
import pytest
import zmq
from sourced import drained, in_thread, send
from waiting import HANG_S

import drift
from drift import EventTime, InputError, SettingsError, sources
from drift.sources.ended import has_ended

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


#: Iterators of Python's own that have items; those that are told to have ended where no run has read them.
SEEN: dict[str, Callable[[], Any]] = {
    **{f"over {type(each).__name__}": partial(iter, each) for each in ([1], (1,), "ab", b"ab", {1: 2}, {1})},
    "backwards": lambda: reversed([1]),
    "until": lambda: iter(iter([1, 2]).__next__, 2),
    "map": lambda: map(str, [1]),
    "map of a generator": lambda: map(str, (n for n in (1,))),
    "map of two": lambda: map(max, [1], [2, 3]),
    "zip": lambda: zip([1, 2], [3]),
    "zip of zips": lambda: zip(map(str, [1]), zip([1, 2])),
    "filter": lambda: filter(None, [0, 1]),
    "enumerate": lambda: enumerate([1]),
    "chain": lambda: itertools.chain([1], [2]),
    "islice": lambda: itertools.islice([1, 2], 1),
    "starmap": lambda: itertools.starmap(max, [(1, 2)]),
    "compress": lambda: itertools.compress([1], [1]),
    "dropwhile": lambda: itertools.dropwhile(bool, [1, 0]),
    "filterfalse": lambda: itertools.filterfalse(None, [0]),
    "takewhile": lambda: itertools.takewhile(bool, [1, 1]),
}
NOTED: dict[str, Callable[[], Any]] = {
    "range": lambda: iter(range(3)),
    "deque": lambda: iter(deque([1])),
    "takewhile until": lambda: itertools.takewhile(lambda n: n < 2, [1, 2, 3]),
    "accumulate": lambda: itertools.accumulate([1, 2]),
    "pairwise": lambda: itertools.pairwise([1, 2]),
    "zip_longest": lambda: itertools.zip_longest([1], [2, 3]),
    "product": lambda: itertools.product([1], [2]),
    "permutations": lambda: itertools.permutations([1, 2]),
    "combinations": lambda: itertools.combinations([1, 2], 1),
    "repeat": lambda: itertools.repeat(1, 2),
    "tee": lambda: itertools.tee([1])[0],
    "map of lines": lambda: map(str, io.StringIO("a\nb\n")),
    "zip of lines": lambda: zip(io.StringIO("a\n"), io.StringIO("b\n")),
}


@pytest.mark.parametrize("what", [*SEEN, *NOTED])
def test_an_iterator_that_has_ended_is_no_empty_input(what: str) -> None:
    made = (SEEN | NOTED)[what]
    graph = drift.Graph("once")
    graph.source("s").map(str).sink("out")
    once = made()
    assert len(list(drift.run(graph, {"s": once}))) == len(list(made()))
    ended = [once]
    if what in SEEN:  # also where something else than a run has read it
        ended.append(made())
        list(ended[-1])
    for each in ended:
        with pytest.raises(drift.SettingsError, match="has ended, or was closed"):
            drift.run(graph, {"s": each})


def test_an_iterator_of_nothing_is_an_empty_input_and_so_is_one_that_holds_what_has_ended() -> None:
    graph = drift.Graph("once")
    graph.source("s").map(str).sink("out")
    made = (iter(()), iter([]), map(str, []), zip([], [1]), filter(None, [0]), itertools.chain(), iter({}), iter(""))
    for empty in (*made, reversed([]), itertools.islice([1], 0), (n for n in ())):
        assert list(drift.run(graph, {"s": empty})) == []
    pairs = zip([(n for n in (1,)), 2], "ab")
    list(next(pairs)[0])
    assert not has_ended(pairs)
    assert len(list(drift.run(graph, {"s": itertools.accumulate(iter(()), initial=7)}))) == 1


def test_what_nobody_has_any_more_is_not_kept_for_having_ended() -> None:
    class Slotted:
        __slots__ = ("left",)

        def __init__(self) -> None:
            self.left = 2

        def __iter__(self) -> Any:
            return self

        def __next__(self) -> int:
            if not self.left:
                raise StopIteration
            self.left -= 1
            return self.left

        def __del__(self) -> None:
            gone.append(self.left)

    gone: list[int] = []
    graph = drift.Graph("once")
    graph.source("s").sink("out")
    held = Slotted()
    for once in (held, Slotted()):
        drift.run(graph, {"s": once}).finish()
    del once
    gc.collect()
    drift.run(graph, {"s": [1]}).finish()
    drift.run(graph, {"s": iter([1])}).finish()
    assert gone == [0]
    with pytest.raises(drift.SettingsError, match="has ended, or was closed"):
        drift.run(graph, {"s": held})


def _pushed(path: Path) -> Any:
    source = sources.zmq_pull(f"ipc://{path}", decode="json")
    with zmq.Context() as context, context.socket(zmq.PUSH) as sender:
        sender.connect(source.address)
        for message in (b"0", b"1", b"2", b""):
            sender.send(message)
    return source


def _connected(path: Path) -> Any:
    listener = socket.create_server(("127.0.0.1", 0))

    def serve() -> None:
        with listener, listener.accept()[0] as peer:
            peer.sendall(b"0\n1\n2\n")

    in_thread(serve)
    return sources.tcp_lines(*listener.getsockname(), connect=True)


def _sent(path: Path) -> Any:
    source = sources.tcp_lines()
    send(source.address, b"0\n1\n2\n")
    return source


GIVEN_ONCE: dict[str, Callable[[Path], Any]] = {  # the numbers 0, 1 and 2
    "a generator": lambda path: (n for n in range(3)),
    "a live generator": lambda path: sources.live(n for n in range(3)),
    "lines sent": _sent,
    "lines of a server": _connected,
    "messages": _pushed,
}


@pytest.mark.parametrize("what", GIVEN_ONCE)
def test_what_gives_once_is_whole_after_a_run_that_was_refused(what: str, tmp_path: Path) -> None:
    graph = drift.Graph("refused")
    graph.source("s").map(int).sink("out")
    once = GIVEN_ONCE[what](tmp_path / "place")
    for number in (7, 8):
        with pytest.raises(drift.DriftError):
            drift.run(graph, {"s": once}, state=drift.Checkpoints(tmp_path / "state", from_checkpoint=number)).finish()
    drift.run(graph, {"s": once}).close()  # nor does a run take something that is closed before it has begun
    assert [item.payload for item in drift.run(graph, {"s": once})] == [0, 1, 2]


def test_a_pipe_is_opened_by_the_run_that_reads_it(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    held = os.open(pipe, os.O_RDWR)  # else opening it would wait

    def opened() -> int:
        links = [each for each in Path("/proc/self/fd").iterdir() if os.path.lexists(each)]  # but that of the listing
        return [os.readlink(each) for each in links].count(str(pipe))  # noqa: PTH115

    try:
        reader = sources.text(pipe).open()
        assert (opened(), list(reader.filenos())) == (1, [])
        os.write(held, b"0\n")
        assert (reader.read(2), opened()) == (["0"], 2)
        assert len(reader.filenos()) == 1
        reader.close()
    finally:
        os.close(held)


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
