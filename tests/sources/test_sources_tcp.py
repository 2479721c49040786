"""Lines over TCP, on real sockets: all that is sound is given, then what is not is named."""

from __future__ import annotations

import select
import socket
import struct
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sourced import all_of, connected, fault_of, in_thread, send
from waiting import HANG_S

from drift import InputError, SettingsError, sources

pytestmark = [pytest.mark.usefixtures("nothing_left"), pytest.mark.filterwarnings("error")]


@given(
    lines=st.lists(
        st.text(st.characters(codec="utf-8", exclude_characters="\r\n"), max_size=40), min_size=1, max_size=20
    ),
    cuts=st.lists(st.integers(0, 400), max_size=6),
    items_max=st.integers(1, 9),
)
@settings(deadline=None, max_examples=50)
def test_lines_over_tcp_come_as_sent_however_they_are_cut(lines: list[str], cuts: list[int], items_max: int) -> None:
    data = "".join(f"{line}\n" for line in lines).encode()
    edges = [0, *sorted(cuts), len(data)]
    source = sources.tcp_lines()
    thread = in_thread(send, source.address, *(data[start:end] for start, end in pairwise(edges)))
    assert all_of(source, items_max) == lines
    thread.join()


def test_the_port_is_known_before_a_run_and_taken_only_once() -> None:
    source = sources.tcp_lines()
    assert source.address == ("127.0.0.1", source.port) and source.port > 0
    with pytest.raises(SettingsError, match=f"cannot listen at 127.0.0.1:{source.port}: .*Address already in use"):
        sources.tcp_lines(port=source.port)
    source.close()
    with pytest.raises(SettingsError, match="has served its run"):
        source.open()
    with pytest.raises(SettingsError, match=r"cannot listen at 192.0.2.1:0"):
        sources.tcp_lines("192.0.2.1")


@pytest.mark.parametrize("how", ["closed", "reset"])
def test_who_only_looks_whether_somebody_listens_ends_nothing(how: str) -> None:
    source = sources.tcp_lines()
    reader = source.open()
    for _ in range(3):
        with connected(source) as scan:
            if how == "reset":
                scan.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        assert reader.read(10) == [] and reader.read(10) == []
    thread = in_thread(send, source.address, b"the real\nsender\n")
    lines: list[str] = []
    while (batch := taken(reader)) is not None:
        lines += batch
    assert lines == ["the real", "sender"]
    thread.join()
    reader.close()


def test_a_megabyte_line_is_given_and_a_longer_one_refused_by_name() -> None:
    for length, refused in ((1 << 20, False), ((1 << 20) + 1, True)):
        source = sources.tcp_lines()
        with connected(source) as connection:
            peer = "{}:{}".format(*connection.getsockname())
            thread = in_thread(connection.sendall, b"first\n" + b"x" * length + b"\n")
            if refused:
                payloads, fault = fault_of(source)
                assert payloads == ["first"]
                assert fault.startswith(f"connection from {peer}, line 2: the line is longer than 1048576 bytes; end ")
            else:
                reader = source.open()
                lines: list[str] = []
                while len(lines) < 2:
                    lines += taken(reader) or []
                assert lines == ["first", "x" * length]
                reader.close()
            thread.join()


def test_a_line_without_end_is_refused_while_it_still_comes() -> None:
    source = sources.tcp_lines(line_bytes_max=1000)

    def flood(connection: socket.socket) -> None:
        with pytest.raises(OSError):  # the run has closed the connection
            while True:
                connection.sendall(b"x" * 4096)

    with connected(source) as connection:
        thread = in_thread(flood, connection)
        payloads, fault = fault_of(source)
        thread.join()
    assert payloads == []
    assert "line 1: the line is longer than 1000 bytes" in fault


def test_a_sender_that_is_too_fast_is_slowed_down_and_loses_nothing() -> None:
    source = sources.tcp_lines()
    reader = source.open()
    line = b"y" * 99 + b"\n"
    with connected(source) as connection:
        connection.setblocking(False)
        sent, received = 0, 0
        with pytest.raises(BlockingIOError):  # one line is taken for a thousand: the sender must get stuck
            while True:
                sent += connection.send((line * 1001)[sent % 100 :][:100_000])
                received += len(reader.read(1) or [])
        connection.setblocking(True)
        thread = in_thread(connection.sendall, line[sent % 100 :])
        while received < sent // 100 + 1:
            received += len(reader.read(1000) or [])
        assert reader.read(1) == []
        thread.join()
    reader.close()


def test_several_connections_each_keep_their_order() -> None:
    source = sources.tcp_lines(connections_max=3)
    data = [[f"{sender}:{number}" for number in range(2000)] for sender in range(8)]
    connections = [connected(source) for _ in data]  # more than are served at once
    threads = [
        in_thread(lambda to, lines: (to.sendall("\n".join([*lines, ""]).encode()), to.close()), connection, lines)
        for connection, lines in zip(connections, data)
    ]
    payloads = all_of(source, 500)
    for thread in threads:
        thread.join()
    for sender, lines in enumerate(data):
        assert [line for line in payloads if line.startswith(f"{sender}:")] == lines


def test_the_input_continues_after_the_last_close_where_that_is_asked_for() -> None:
    source = sources.tcp_lines(until_closed=False)
    reader = source.open()
    for number in range(3):
        send(source.address, b"%d\n" % number)
        assert taken(reader) == [str(number)]
    assert reader.read(10) == []
    reader.close()


def test_a_line_that_is_cut_off_and_bytes_that_are_not_text_name_the_peer() -> None:
    for data, said in (
        (b"one\ntwo", "line 2: the connection was closed 3 bytes into the line"),
        (b"one\ntw\xff\nthree\n", r"line 2: b'\xff' is not UTF-8 (invalid start byte)"),
    ):
        source = sources.tcp_lines()
        with connected(source) as connection:
            peer = "{}:{}".format(*connection.getsockname())
            connection.sendall(data)
        payloads, fault = fault_of(source)
        assert payloads == ["one"]
        assert fault.startswith(f"connection from {peer}, {said}")


def test_a_connection_that_breaks_is_no_end() -> None:
    source = sources.tcp_lines()
    reader = source.open()
    with connected(source) as connection:
        connection.sendall(b"one\n")
        assert taken(reader) == ["one"]
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))  # it closes with a reset
    with pytest.raises(InputError, match=r"line 2: the connection broke .* lines may be missing"):
        taken(reader)
    reader.close()


def taken(reader: sources.Reader) -> list[Any] | None:
    """What comes next."""
    while (batch := reader.read(10)) == []:
        assert select.select(reader.filenos(), (), (), HANG_S)[0]
    return batch


def test_who_connects_after_the_end_is_refused() -> None:
    source = sources.tcp_lines()
    send(source.address, b"one\n")
    reader = source.open()
    assert taken(reader) == ["one"] and taken(reader) is None
    with pytest.raises(ConnectionRefusedError):
        connected(source)
    assert reader.read(10) is None
    reader.close()


def test_windows_line_ends_are_taken_off() -> None:
    source = sources.tcp_lines()
    send(source.address, b"one\r\ntwo\r", b"\nthree\n\n")
    assert all_of(source) == ["one", "two", "three", ""]


def test_it_can_connect_in_place_of_listening() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        source = sources.tcp_lines(*server.getsockname(), connect=True)

        def serve() -> None:
            connection, _ = server.accept()
            with connection:
                connection.sendall(b"one\ntwo\n")

        thread = in_thread(serve)
        assert all_of(source) == ["one", "two"]
        thread.join()
    with socket.socket() as silent:
        silent.bind(("127.0.0.1", 0))  # nobody else gets the port, and nobody listens
        host, port = silent.getsockname()
        with pytest.raises(InputError, match=f"cannot connect to 127.0.0.1:{port}: .*refused; see that the sender"):
            sources.tcp_lines(host, port, connect=True).open()
    with pytest.raises(SettingsError, match="needs the port"):
        sources.tcp_lines(connect=True)
