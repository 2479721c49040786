"""What a run has taken of a source that gives it once, and ended before it was read: the next run has it."""

from __future__ import annotations

import fcntl
import os
import socket
import struct
import termios
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import pytest
from waiting import wait_until

import drift
from drift import InputError, PayloadError, sources
from drift.sources import polled, zeromq

LINES = [f"line {n}" for n in range(700)]

#: Opens a source, and sends it texts.
Sending = Callable[[list[str]], tuple[Any, Callable[[], bool]]]


@contextmanager
def over_zmq(monkeypatch: pytest.MonkeyPatch, **arguments: Any) -> Iterator[Sending]:
    import zmq

    received: list[Any] = []
    fetch = zeromq._Queue.fetch

    def counted(self: Any, items_max: int, wait_s: float) -> Any:
        fetched = fetch(self, items_max, wait_s)
        received.extend(fetched.values if fetched is not None else ())
        return fetched

    monkeypatch.setattr(zeromq._Queue, "fetch", counted)
    with zmq.Context() as context, ExitStack() as senders:

        def sending(lines: list[str]) -> tuple[Any, Callable[[], bool]]:
            source = sources.zmq_pull("tcp://127.0.0.1:*", **{"decode": "text", **arguments})
            sender = senders.enter_context(context.socket(zmq.PUSH))
            sender.connect(source.address)
            for line in lines:
                sender.send(line.encode("latin-1"))
            before = len(received)
            return source, lambda: len(received) - before == len(lines)

        yield sending


@contextmanager
def over_tcp(monkeypatch: pytest.MonkeyPatch) -> Iterator[Sending]:
    with ExitStack() as senders:

        def sending(lines: list[str]) -> tuple[Any, Callable[[], bool]]:
            source = sources.tcp_lines()
            sender = senders.enter_context(socket.create_connection(source.address))
            sender.sendall("".join(f"{line}\n" for line in lines).encode("latin-1"))
            unsent = lambda: struct.unpack("i", fcntl.ioctl(sender, termios.TIOCOUTQ, b"    "))[0]  # noqa: E731
            wait_until(lambda: not unsent(), "it is where the first read finds it")
            return source, lambda: True

        yield sending


@contextmanager
def through_a_pipe(monkeypatch: pytest.MonkeyPatch) -> Iterator[Sending]:
    os.mkfifo("pipe")
    held = os.open("pipe", os.O_RDWR)  # else opening it would wait
    begun = ""

    def sending(lines: list[str]) -> tuple[Any, Callable[[], bool]]:
        nonlocal begun
        data = "".join(f"{line}\n" for line in lines).removeprefix(begun)
        begun = "en"  # half of the next line
        os.write(held, (data + begun).encode("latin-1"))
        return sources.text("pipe"), lambda: True

    yield sending
    os.close(held)


def sunk() -> drift.Graph:
    graph = drift.Graph("once")
    graph.source("s").sink("out")
    return graph


@pytest.fixture(autouse=True)
def _folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


@pytest.mark.parametrize("how", ["is left", "is stopped", "fails"])
@pytest.mark.parametrize("engine", ["local", "zeromq"])
@pytest.mark.parametrize("kind", [over_zmq, over_tcp, through_a_pipe])
def test_what_was_received_comes_in_the_next_run(
    kind: Callable[..., Any], engine: Any, how: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    got: dict[int, str] = {}
    with kind(monkeypatch) as sending:
        for lines, last in ((LINES, "line 3"), (["end"], "end")):
            source, is_received = sending(lines)
            run = drift.run(sunk(), {"s": source}, engine=engine, batch_items=10, state="state")
            with pytest.raises(ZeroDivisionError) if how == "fails" and last != "end" else ExitStack(), run:
                for item in run:
                    assert got.setdefault(item.position, item.payload) == item.payload
                    if item.payload == last:
                        wait_until(is_received, "all of it was received")
                        if how == "fails" and last != "end":
                            raise ZeroDivisionError
                        if how == "is left" or last == "end":
                            break
                        run.stop()
    assert [got[position] for position in sorted(got)] == [*LINES, "end"]


@pytest.mark.parametrize("kind", [over_zmq, over_tcp, through_a_pipe])
def test_what_was_received_is_in_the_output_of_a_run_that_is_stopped(
    kind: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    with kind(monkeypatch) as sending:
        source, is_received = sending(LINES)
        run = drift.run(sunk(), {"s": source}, batch_items=10)
        got = []
        for item in run:
            got.append(item.payload)
            if len(got) == 1:
                wait_until(is_received, "all of it was received")
                run.stop()
    whole = LINES if kind is not through_a_pipe else LINES[: len(got)]  # which is read as far as it is needed
    assert got == whole
    assert len(got) > 10


def test_half_of_a_line_waits_for_as_many_runs_as_it_takes(tmp_path: Path) -> None:
    os.mkfifo("pipe")
    held = os.open("pipe", os.O_RDWR)
    got: dict[int, str] = {}
    for written, last in (("one\ntw", "one"), ("o\nthr", "two"), ("", ""), ("ee\nend\n", "end")):
        os.write(held, written.encode())
        run = drift.run(sunk(), {"s": sources.text("pipe")}, state="state")
        with run:
            if not last:
                run.stop()
            for item in run:
                assert got.setdefault(item.position, item.payload) == item.payload
                if item.payload == last:
                    run.stop()
    os.close(held)
    assert [got[position] for position in sorted(got)] == ["one", "two", "three", "end"]


def test_the_rest_of_what_was_sorted_as_a_whole_comes_in_the_next_run() -> None:
    graph = drift.Graph("whole")
    timed = graph.source("s", time=drift.EventTime(time="at", lateness="all"))
    timed.map(lambda row: row["at"]).sink("out")
    got: dict[int, int] = {}
    for last, rows in ((3, ({"at": (n * 7) % 1000} for n in range(1000))), (None, iter(list[Any]()))):
        with drift.run(graph, {"s": rows}, batch_items=10, state="state") as run:
            for item in run:
                assert got.setdefault(item.position, item.payload) == item.payload
                if item.payload == last:
                    break
    assert [got[position] for position in sorted(got)] == list(range(1000))


@pytest.mark.parametrize("kind", [over_zmq, over_tcp])
def test_what_was_received_behind_what_cannot_be_decoded_comes_in_the_next_run(
    kind: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    lines = [*LINES]
    lines[20], lines[400] = "\xff\xfe", "\xff"  # no UTF-8
    got: dict[int, str] = {}
    with kind(monkeypatch) as sending:
        source, is_received = sending(lines)
        run = drift.run(sunk(), {"s": source}, batch_items=10, state="state")
        with (
            pytest.warns(UserWarning, match=r"(?s)401.*the run has received it and ended before it"),
            pytest.raises(InputError, match=r"(message|line) 21: .*xff"),
            run,
        ):
            for item in run:
                got[item.position] = item.payload
                wait_until(is_received, "all of it was received")
        source, _ = sending(["end"])
        with drift.run(sunk(), {"s": source}, state="state") as run:
            for item in run:
                assert got.setdefault(item.position, item.payload) == item.payload
                if item.payload == "end":
                    break
    told = [line for line in lines if not line.startswith("\xff")]
    assert [got[position] for position in sorted(got)] == [*told, "end"]


class Unstorable:
    def __init__(self) -> None:
        self.file = print  # no value


def test_what_was_given_behind_what_cannot_be_logged_comes_in_the_next_run() -> None:
    got: dict[int, Any] = {}
    given = iter([*range(50), Unstorable(), *range(50, 100)])
    run = drift.run(sunk(), {"s": given}, batch_items=70, state="state")
    with pytest.raises(PayloadError, match="Unstorable"):
        got.update((item.position, item.payload) for item in run)
    with drift.run(sunk(), {"s": given}, state="state") as run:
        got.update((item.position, item.payload) for item in run)
    assert [got[position] for position in sorted(got)] == list(range(100))


def test_what_a_queue_still_holds_is_received_at_the_end(monkeypatch: pytest.MonkeyPatch) -> None:
    import zmq

    monkeypatch.setattr(polled.Poller, "buffered_max", 1)
    monkeypatch.setattr(polled, "FETCHED_MAX", 5)
    source = sources.zmq_pull("inproc://numbers", decode="json")
    reader: Any = source.open()
    with source._context.socket(zmq.PUSH) as sender:  # whose messages are there when they were sent
        sender.connect(source.address)
        for number in range(100):
            sender.send(b"%d" % number)
        assert reader.read(0) == []
        wait_until(lambda: reader._buffer, "its thread has fetched")
        reader.halt()
    got = reader.read(3)
    assert got + [number for batch in reader.left() for number in batch] == [*range(100)]
    reader.close()
