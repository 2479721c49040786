"""Sources, on real files and real sockets: all that is sound is given, then what is not is named."""

from __future__ import annotations

import gc
import gzip
import io
import json
import os
import select
import socket
import struct
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import drift
from drift import EventTime, InputError, SettingsError, sources
from drift.sources import Source

WAIT_MAX_S = 30.0  # only a broken build waits so long


def drained(source: Source, items_max: int = 1000) -> tuple[list[Any], Exception | None]:
    """All that a source gives, waiting only on its descriptors, and the error it ends with."""
    reader = source.open()
    given: list[Any] = []
    try:
        while True:
            try:
                batch = reader.read(items_max)
            except Exception as error:
                with pytest.raises(type(error)):
                    reader.read(items_max)  # it does not look like the end of the input the next time
                return given, error
            if batch is None:
                assert not source.live or not select.select(reader.filenos(), (), (), 0)[0], "an engine would spin"
                return given, None
            assert len(batch) <= items_max
            assert batch or source.live
            given += batch
            if not batch:
                ready, _, _ = select.select(reader.filenos(), (), (), WAIT_MAX_S)
                assert ready, "the source went to sleep"
    finally:
        reader.close()


def all_of(source: Source, items_max: int = 1000) -> list[Any]:
    payloads, error = drained(source, items_max)
    assert error is None
    return payloads


def fault_of(source: Source, items_max: int = 1000) -> tuple[list[Any], str]:
    payloads, error = drained(source, items_max)
    assert isinstance(error, InputError)
    return payloads, str(error)


def fds() -> list[str]:
    return sorted(os.listdir("/proc/self/fd"))  # noqa: PTH208


@pytest.fixture
def nothing_left() -> Iterator[None]:
    """No thread and no descriptor is left behind."""
    gc.collect()
    threads, before = threading.active_count(), fds()
    yield
    gc.collect()
    assert threading.active_count() == threads
    assert fds() == before


pytestmark = [pytest.mark.usefixtures("nothing_left"), pytest.mark.filterwarnings("error")]


# Lines of text.


@given(
    content=st.lists(
        st.sampled_from(["", "a", "\n", "\r", "\r\n", "é", "𝄞", "\x0b", "\x85", "\u2028", "long" * 50]), max_size=30
    ).map("".join),
    encoding=st.sampled_from(["utf-8", "utf-16", "latin-1", "utf-8-sig", "shift_jis"]),
    zipped=st.booleans(),
    chunk_bytes=st.integers(1, 40),
    items_max=st.integers(1, 7),
)
@settings(deadline=None, max_examples=300)
def test_text_gives_the_lines_that_python_gives_however_the_file_is_cut(
    content: str, encoding: str, zipped: bool, chunk_bytes: int, items_max: int
) -> None:
    data = content.encode(encoding, "ignore")
    expected = [line.rstrip("\n") for line in io.TextIOWrapper(io.BytesIO(data), encoding)]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("drift.sources.files._CHUNK_BYTES", chunk_bytes)
        with temporary(gzip.compress(data) if zipped else data) as path:
            assert all_of(sources.text(path, encoding), items_max) == expected


class temporary:
    """A file with this content; Hypothesis and tmp_path do not go together."""

    def __init__(self, data: bytes) -> None:
        self._data = data

    def __enter__(self) -> Path:
        import tempfile

        self._folder = tempfile.TemporaryDirectory()
        path = Path(self._folder.name) / "data"
        path.write_bytes(self._data)
        return path

    def __exit__(self, *error: object) -> None:
        self._folder.cleanup()


def test_a_last_line_without_newline_and_an_empty_file_are_what_they_are(tmp_path: Path) -> None:
    path = tmp_path / "lines"
    path.write_bytes(b"one\ntwo")
    assert all_of(sources.text(path)) == ["one", "two"]
    path.write_bytes(b"")
    assert all_of(sources.text(str(path))) == []
    path.write_bytes(b"\n\n")
    assert all_of(sources.text(path)) == ["", ""]


def test_a_line_of_many_chunks_is_one_line(tmp_path: Path) -> None:
    path = tmp_path / "lines"
    path.write_text("a" * 3_000_000 + "\n" + "b" * 1_500_000 + "\nc\n")
    assert [len(line) for line in all_of(sources.text(path))] == [3_000_000, 1_500_000, 1]


@given(
    before=st.lists(st.text("aé𝄞", max_size=20), max_size=8),
    bad=st.sampled_from([b"\xff", b"\xc3\n", b"\xe2\x82\n", b"\xed\xa0\x80", b"\xf0\x9d"]),
    after=st.sampled_from([b"", b"tail\nmore\n"]),
    chunk_bytes=st.integers(1, 30),
)
@settings(deadline=None)
def test_bytes_that_are_not_text_are_named_after_the_lines_before_them(
    before: list[str], bad: bytes, after: bytes, chunk_bytes: int
) -> None:
    data = "".join(f"{line}\n" for line in before).encode() + b"ok" + bad + after
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("drift.sources.files._CHUNK_BYTES", chunk_bytes)
        with temporary(data) as path:
            payloads, fault = fault_of(sources.text(path))
            assert payloads == before
            assert fault.startswith(f"{path}, line {len(before) + 1}: b'\\x")
            assert "is not utf-8" in fault and "pass the encoding" in fault


@pytest.mark.parametrize("make", [sources.text, sources.jsonl, sources.csv])
def test_a_file_that_cannot_be_opened_is_named_before_anything_runs(
    make: Callable[[Any], Source], tmp_path: Path
) -> None:
    with pytest.raises(InputError, match=r"nowhere.txt cannot be opened: No such file or directory; check the path"):
        make(tmp_path / "nowhere.txt").open()
    with pytest.raises(InputError, match="Is a directory; give one of the files in it"):
        make(tmp_path).open()
    with pytest.raises(SettingsError, match="the path of a file is a text"):
        make(7)


def test_an_encoding_that_there_is_not_is_refused_at_once() -> None:
    for make in (sources.text, sources.csv):
        with pytest.raises(SettingsError, match="unknown encoding: klingon"):
            make("x", encoding="klingon")
        with pytest.raises(SettingsError, match="'hex' is not a text encoding"):
            make("x", encoding="hex")


def test_a_gzip_file_that_was_cut_off_gives_its_whole_lines_first(tmp_path: Path) -> None:
    lines = [f"line {number} {number * 7919 % 1000}" for number in range(20_000)]
    whole = gzip.compress("".join(f"{line}\n" for line in lines).encode())
    for name in ("cut.gz", "cut"):  # known by its name, known by its first bytes
        path = tmp_path / name
        path.write_bytes(whole[: len(whole) // 2])
        payloads, fault = fault_of(sources.text(path))
        assert payloads == lines[: len(payloads)]
        assert 5_000 < len(payloads) < 20_000
        assert fault.startswith(f"{path}, line {len(payloads) + 1}: the gzip data end early")


def test_a_gzip_file_without_its_last_bytes_is_not_taken_for_whole(tmp_path: Path) -> None:
    path = tmp_path / "cut.gz"
    for missing in range(1, 9):  # its check sum and length
        path.write_bytes(gzip.compress(b"one\ntwo\n")[:-missing])
        payloads, fault = fault_of(sources.text(path))
        assert payloads == ["one", "two"]
        assert "line 3: the gzip data end early" in fault


def test_a_broken_gzip_file_and_one_that_is_none_are_named(tmp_path: Path) -> None:
    path = tmp_path / "broken.gz"
    data = bytearray(gzip.compress(b"one\ntwo\n"))
    data[-6] ^= 1  # the check sum
    path.write_bytes(data)
    payloads, fault = fault_of(sources.text(path))
    assert payloads == ["one", "two"]
    assert f"{path}, line 3: the gzip data are broken (CRC check failed" in fault
    path.write_bytes(b"one\n")
    assert "line 1: the gzip data are broken (Not a gzipped file" in fault_of(sources.text(path))[1]


def test_gzip_members_one_after_another_are_one_file(tmp_path: Path) -> None:
    path = tmp_path / "two.gz"
    path.write_bytes(gzip.compress(b"one\ntw") + gzip.compress(b"o\nthree\n"))
    assert all_of(sources.text(path)) == ["one", "two", "three"]


def test_a_source_of_a_file_can_be_opened_again(tmp_path: Path) -> None:
    path = tmp_path / "lines"
    path.write_text("a\nb\n")
    source = sources.text(path)
    assert all_of(source) == all_of(source) == ["a", "b"]
    assert repr(source) == f"text({str(path)!r})"


READ_STDIN = """
import drift, sys
graph = drift.Graph("stdin")
graph.source("lines").sink("out")
for item in drift.run(graph, {"lines": getattr(drift.sources, sys.argv[1])("-")}):
    print(item.payload, flush=True)
"""


def test_standard_input_is_read_plain_and_zipped() -> None:
    for data in (b"one\ntwo\n", gzip.compress(b"one\ntwo\n")):
        done = subprocess.run([sys.executable, "-c", READ_STDIN, "text"], input=data, capture_output=True, check=True)
        assert done.stdout == b"one\ntwo\n"


@pytest.mark.parametrize(
    ("kind", "lines", "said"),
    [
        ("text", ["one", "two"], ["one", "two"]),
        ("jsonl", ["1", "[2]"], ["1", "[2]"]),
        ("csv", ["a,b", "1,2"], [None, "{'a': '1', 'b': '2'}"]),
    ],
)
def test_a_pipe_is_not_waited_for_when_it_has_something(kind: str, lines: list[str], said: list[str | None]) -> None:
    with subprocess.Popen(
        [sys.executable, "-c", READ_STDIN, kind], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdin is not None and process.stdout is not None
        for line, answer in zip(lines, said):
            process.stdin.write(f"{line}\n")
            process.stdin.flush()
            if answer is not None:
                assert process.stdout.readline() == f"{answer}\n"  # the pipe is still open
        process.stdin.close()
        assert process.stdout.read() == ""


# JSON.

json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=5,
)


@given(
    values=st.lists(json_values, max_size=8),
    newline=st.sampled_from(["\n", "\r\n", "\n\n", "\n \t\n"]),
    mark=st.booleans(),
    zipped=st.booleans(),
    chunk_bytes=st.integers(1, 50),
)
@settings(deadline=None)
def test_json_lines_come_back_as_they_were_written(
    values: list[Any], newline: str, mark: bool, zipped: bool, chunk_bytes: int
) -> None:
    data = "".join(json.dumps(value) + newline for value in values).encode("utf-8-sig" if mark else "utf-8")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("drift.sources.files._CHUNK_BYTES", chunk_bytes)
        with temporary(gzip.compress(data) if zipped else data) as path:
            assert all_of(sources.jsonl(path), 3) == values


@pytest.mark.parametrize(
    ("line", "said"),
    [
        (b'{"a": 1', "cannot be decoded as JSON: Input data was truncated; the line is b'{\"a\": 1'"),
        (b"1 2", "cannot be decoded as JSON: JSON is malformed: trailing characters (byte 3)"),
        (b"NaN", "cannot be decoded as JSON: JSON is malformed"),
        (b'"\xff"', "cannot be decoded as JSON: 'utf-8' codec can't decode byte 0xff"),
        (b"[" * 200_000, "cannot be decoded as JSON: maximum recursion depth exceeded"),
        (b"1e999", "Number out of range"),
    ],
)
@pytest.mark.parametrize("before", [[], [b"1"], [b"1", b"", b"  ", b"2"]])
def test_a_line_that_is_no_json_is_named_after_the_values_before_it(
    line: bytes, said: str, before: list[bytes], tmp_path: Path
) -> None:
    path = tmp_path / "data.jsonl"
    path.write_bytes(b"\n".join([*before, line, b"3", b""]))
    payloads, fault = fault_of(sources.jsonl(path))
    assert payloads == [1, 2][: len([each for each in before if each.strip()])]
    assert fault.startswith(f"{path}, line {len(before) + 1}: ")
    assert said in fault and fault.endswith("correct it or take it out")
    assert len(fault) < 600


def test_json_lines_are_made_what_is_asked_for(tmp_path: Path) -> None:
    class Flight(msgspec.Struct):
        carrier: str
        delay: int

    path = tmp_path / "flights.jsonl"
    path.write_text('{"carrier": "LH", "delay": 5}\n{"carrier": "LH", "delay": "late"}\n')
    payloads, fault = fault_of(sources.jsonl(path, type=Flight))
    assert payloads == [Flight("LH", 5)]
    assert f"{path}, line 2: cannot be decoded as JSON: Expected `int`, got `str` - at `$.delay`" in fault


# CSV.

cells = st.text(st.characters(codec="utf-8", exclude_characters="\0"), max_size=6)


@given(
    rows=st.lists(st.tuples(cells, cells, cells), max_size=8),
    delimiter=st.sampled_from([",", ";", "\t"]),
    end=st.sampled_from(["\n", "\r\n"]),
    chunk_bytes=st.integers(1, 60),
    items_max=st.integers(1, 5),
)
@settings(deadline=None)
def test_csv_rows_come_back_as_they_were_written(
    rows: list[tuple[str, str, str]], delimiter: str, end: str, chunk_bytes: int, items_max: int
) -> None:
    import csv

    out = io.StringIO(newline="")
    writer = csv.writer(out, delimiter=delimiter, lineterminator=end, quoting=csv.QUOTE_ALL)
    writer.writerows([("a", "b", "c"), *rows])
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("drift.sources.files._CHUNK_BYTES", chunk_bytes)
        with temporary(out.getvalue().encode("utf-8-sig")) as path:
            source = sources.csv(path, delimiter=delimiter)
            assert all_of(source, items_max) == [dict(zip("abc", row)) for row in rows]


def test_a_row_of_another_width_is_named_by_the_line_it_starts_at(tmp_path: Path) -> None:
    path = tmp_path / "flights.csv"
    path.write_text('carrier,delay\nLH,1\n\n"A\nA",2\nBA,3,4\nLH,5\n')
    payloads, fault = fault_of(sources.csv(path))
    assert [payload["carrier"] for payload in payloads] == ["LH", "A\nA"]
    assert fault.startswith(
        f"{path}, line 6: 3 columns where the header has 2; the row is ['BA', '3', '4']; correct it"
    )


def test_a_quote_that_is_never_closed_does_not_swallow_the_rest_of_the_file(tmp_path: Path) -> None:
    path = tmp_path / "open.csv"
    path.write_text('a,b\n1,2\n3,"4\n5,6\n')
    payloads, fault = fault_of(sources.csv(path))
    assert payloads == [{"a": "1", "b": "2"}]
    assert fault.startswith(f"{path}, line 3: the row that starts here is no CSV: unexpected end of data")


def test_columns_are_converted_and_a_value_that_cannot_be_is_named(tmp_path: Path) -> None:
    path = tmp_path / "flights.csv"
    path.write_text("carrier,delay\nLH,1\nBA,\n")
    payloads, fault = fault_of(sources.csv(path, convert={"delay": int}))
    assert payloads == [{"carrier": "LH", "delay": 1}]
    assert f"{path}, line 3: column 'delay' has '', for which its convert function raised ValueError" in fault


def test_columns_can_be_named_for_a_file_without_header(tmp_path: Path) -> None:
    path = tmp_path / "plain.csv"
    path.write_text("LH,1\n")
    assert all_of(sources.csv(path, columns=("carrier", "delay"))) == [{"carrier": "LH", "delay": "1"}]


def test_bytes_that_are_not_text_end_a_csv_file_after_the_rows_before(tmp_path: Path) -> None:
    path = tmp_path / "latin.csv"
    path.write_bytes("name\nMunich\nZürich\n".encode("latin-1"))
    payloads, fault = fault_of(sources.csv(path))
    assert payloads == [{"name": "Munich"}]
    assert fault.startswith(f"{path}, line 3: b'\\xfc' is not utf-8")
    assert all_of(sources.csv(path, encoding="latin-1")) == [{"name": "Munich"}, {"name": "Zürich"}]


def test_a_header_that_names_no_columns_is_named(tmp_path: Path) -> None:
    path = tmp_path / "bad.csv"
    path.write_text("a,a\n1,2\n")
    assert f"{path}, line 1: two columns are named 'a'" in fault_of(sources.csv(path))[1]
    path.write_text("a,b\n1,2\n")
    assert "convert names 'c', but the columns are 'a', 'b'" in fault_of(sources.csv(path, convert={"c": int}))[1]
    path.write_text("")
    assert f"{path}, line 1: the file is empty; CSV starts with a header row" in fault_of(sources.csv(path))[1]
    with pytest.raises(SettingsError, match="two columns are named 'a'"):
        sources.csv(path, columns=["a", "a"])
    with pytest.raises(SettingsError, match="csv format parameters"):
        sources.csv(path, delimiter="::")
    with pytest.raises(SettingsError, match="csv format parameters"):
        sources.csv(path, colour="red")


# What is given to a run.


def test_a_path_and_a_text_in_place_of_a_source_say_what_to_write() -> None:
    with pytest.raises(SettingsError, match=r"use drift.sources.text\(path\)"):
        sources.as_source("lines", "flights.csv")
    with pytest.raises(SettingsError, match=r"say what is in the file: drift.sources.text, jsonl or csv"):
        sources.as_source("lines", Path("flights.csv"))
    with pytest.raises(SettingsError, match="neither an iterable nor a drift source"):
        sources.as_source("lines", 7)


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


# TCP.


def connected(source: Any) -> socket.socket:
    return socket.create_connection(source.address)


def send(address: tuple[str, int], *pieces: bytes) -> None:
    with socket.create_connection(address) as connection:
        for piece in pieces:
            connection.sendall(piece)


def in_thread(function: Callable[..., object], *arguments: Any) -> threading.Thread:
    thread = threading.Thread(target=function, args=arguments)
    thread.start()
    return thread


@given(
    lines=st.lists(st.text(st.characters(codec="utf-8", exclude_characters="\r\n"), max_size=40), max_size=20),
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
                    select.select(reader.filenos(), (), (), WAIT_MAX_S)
                    lines += reader.read(10) or []
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
        sent, given = 0, 0
        with pytest.raises(BlockingIOError):  # one line is taken for a thousand: the sender must get stuck
            while True:
                sent += connection.send((line * 1001)[sent % 100 :][:100_000])
                given += len(reader.read(1) or [])
        connection.setblocking(True)
        thread = in_thread(connection.sendall, line[sent % 100 :])
        while given < sent // 100 + 1:
            given += len(reader.read(1000) or [])
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


def test_the_input_goes_on_after_the_last_close_where_that_is_asked_for() -> None:
    source = sources.tcp_lines(until_closed=False)
    reader = source.open()
    for number in range(3):
        send(source.address, b"%d\n" % number)
        lines: list[str] = []
        while not lines:
            assert select.select(reader.filenos(), (), (), WAIT_MAX_S)[0]
            batch = reader.read(10)
            assert batch is not None
            lines = batch
        assert lines == [str(number)]
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
    connection = connected(source)
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    connection.close()  # a reset
    payloads, fault = fault_of(source)
    assert payloads == []
    assert "the connection broke" in fault and "lines may be missing" in fault


def test_who_connects_after_the_end_is_refused() -> None:
    source = sources.tcp_lines()
    send(source.address, b"one\n")
    reader = source.open()
    while (batch := reader.read(10)) is not None:
        assert batch or select.select(reader.filenos(), (), (), WAIT_MAX_S)[0]
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
        gone = server.getsockname()
    with pytest.raises(InputError, match=f"cannot connect to 127.0.0.1:{gone[1]}: .*refused; see that the sender"):
        sources.tcp_lines(*gone, connect=True).open()
    with pytest.raises(SettingsError, match="needs the port"):
        sources.tcp_lines(connect=True)


# ZeroMQ.


@pytest.fixture
def pusher() -> Iterator[Callable[..., Any]]:
    import zmq

    context = zmq.Context()
    senders = []

    def push(source: Any, kind: int = zmq.PUSH) -> Any:
        sender = context.socket(kind)
        sender.connect(source.address)
        senders.append(sender)
        return sender

    yield push
    context.destroy(linger=0)


@pytest.mark.parametrize("items_max", [1, 7, 1000])
def test_messages_come_in_order_and_an_empty_one_ends_them(pusher: Callable[..., Any], items_max: int) -> None:
    source = sources.zmq_pull("tcp://127.0.0.1:*")
    sender = pusher(source)
    messages = [b"%d" % number for number in range(500)]
    for message in [*messages, b"", b"after"]:
        sender.send(message)
    assert all_of(source, items_max) == messages


def test_each_message_wakes_the_engine(pusher: Callable[..., Any]) -> None:
    source = sources.zmq_pull("tcp://127.0.0.1:*", decode="json")
    sender = pusher(source)
    reader = source.open()
    for number in range(50):  # sent only when the reader has slept: a lost wake-up would show
        sender.send_json([number] * 3)
        sender.send_json(number)
        got: list[Any] = []
        while len(got) < 2:
            assert select.select(reader.filenos(), (), (), WAIT_MAX_S)[0]
            got += reader.read(1) or []
        assert got == [[number] * 3, number]
    reader.close()


def test_messages_are_decoded_and_a_bad_one_is_named(pusher: Callable[..., Any]) -> None:
    for decode, good, bad, said in (
        ("text", "é".encode(), b"\xff", "message 2: it is not UTF-8: 'utf-8' codec can't decode byte 0xff"),
        ("json", b"[1]", b"[1", "message 2: it is not JSON: Input data was truncated; the message is b'[1'"),
    ):
        source = sources.zmq_pull("tcp://127.0.0.1:*", decode=decode)  # type: ignore[arg-type]
        sender = pusher(source)
        for message in (good, bad, good):
            sender.send(message)
        payloads, fault = fault_of(source)
        assert len(payloads) == 1
        assert fault.startswith(f"zmq_pull({source.address!r}), {said}")


def test_a_message_of_several_parts_is_refused(pusher: Callable[..., Any]) -> None:
    source = sources.zmq_pull("tcp://127.0.0.1:*")
    pusher(source).send_multipart([b"a", b"b"])
    assert "message 1: it has 2 parts; send one part" in fault_of(source)[1]


def test_a_subscription_takes_its_topic(pusher: Callable[..., Any]) -> None:
    import zmq

    source = sources.zmq_pull("tcp://127.0.0.1:*", subscribe="LH", decode="text", until_empty=False)
    publisher = pusher(source, zmq.XPUB)
    reader = source.open()
    while not publisher.poll(0):
        assert select.select(reader.filenos(), (), (), WAIT_MAX_S)[0]
        assert reader.read(10) == []  # a bound socket subscribes when it is asked for messages
        publisher.poll(1)
    assert publisher.recv() == b"\x01LH"
    for message in ("BA 1", "LH 2", "BA 3", "LH 4"):
        publisher.send_string(message)
    got: list[Any] = []
    while len(got) < 2:
        assert select.select(reader.filenos(), (), (), WAIT_MAX_S)[0]
        got += reader.read(10) or []
    assert got == ["LH 2", "LH 4"]
    reader.close()


def test_an_address_that_cannot_be_bound_is_refused_at_once() -> None:
    source = sources.zmq_pull("tcp://127.0.0.1:*")
    for address, said in (
        (source.address, "Address already in use"),
        ("nonsense", "Invalid argument"),
        ("carrier-pigeon://x", "not supported"),
    ):
        with pytest.raises(SettingsError, match=f"cannot bind {address!r}: .*{said}"):
            sources.zmq_pull(address)
    source.close()
    with pytest.raises(SettingsError, match="has served its run"):
        source.open()
    with pytest.raises(SettingsError, match="neither 'bytes' nor 'text' nor 'json'"):
        sources.zmq_pull("tcp://127.0.0.1:*", decode="xml")  # type: ignore[arg-type]


# Blocking iterables.


@given(count=st.integers(0, 300), buffer_items_max=st.integers(1, 20), items_max=st.integers(1, 20))
@settings(deadline=None, max_examples=50)
def test_a_live_iterable_is_given_whole_and_in_order(count: int, buffer_items_max: int, items_max: int) -> None:
    source = sources.live(iter(range(count)), buffer_items_max=buffer_items_max)
    assert all_of(source, items_max) == list(range(count))


def test_a_live_iterable_waits_when_its_buffer_is_full() -> None:
    taken = 0
    full = threading.Event()

    def numbers() -> Iterator[int]:
        nonlocal taken
        while True:
            taken += 1
            if taken == 6:
                full.set()
            yield taken

    reader = sources.live(numbers(), buffer_items_max=5).open()
    assert full.wait(WAIT_MAX_S)
    assert reader.read(2) == [1, 2]
    reader.close()
    assert taken <= 5 + 2 + 1


def test_an_error_in_a_live_iterable_comes_after_the_items_before_it() -> None:
    def three() -> Iterator[int]:
        yield from (1, 2, 3)
        raise ValueError("four")

    payloads, error = drained(sources.live(three()), 2)
    assert payloads == [1, 2, 3]
    assert isinstance(error, ValueError) and str(error) == "four"


def test_closing_ends_the_generator_in_its_own_thread() -> None:
    ended_in: list[str] = []

    def numbers() -> Iterator[int]:
        try:
            while True:
                yield 1
        finally:
            ended_in.append(threading.current_thread().name)

    reader = sources.live(numbers(), buffer_items_max=3).open()
    reader.close()
    assert ended_in in (["drift live source"], [])  # empty where it was closed before it began


def test_closing_does_not_wait_for_ever_and_says_so() -> None:
    go_on = threading.Event()

    def silent() -> Iterator[int]:
        go_on.wait(WAIT_MAX_S)
        yield 1

    reader = sources.live(silent(), close_max_s=0.0).open()
    thread = next(each for each in threading.enumerate() if each.name == "drift live source")
    with pytest.warns(ResourceWarning, match="has not given its next item"):
        reader.close()
    go_on.set()
    thread.join(WAIT_MAX_S)
    assert not thread.is_alive()


def test_what_cannot_be_live_is_refused() -> None:
    for wrong in ("text", 7):
        with pytest.raises(SettingsError, match="takes an iterable or generator"):
            sources.live(wrong)  # type: ignore[arg-type]
    with pytest.raises(SettingsError, match="buffer_items_max=0"):
        sources.live([1], buffer_items_max=0)


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
        assert go_on.wait(WAIT_MAX_S), "the other source was stalled"
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
        assert three_out.wait(WAIT_MAX_S), "the silent source stalled this one"
        yield (50, "four")
        assert four_out.wait(WAIT_MAX_S), "the silent source stalled this one"

    def silent() -> Iterator[tuple[int, str]]:
        assert four_out.wait(WAIT_MAX_S), "this source stalled the other one"
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
