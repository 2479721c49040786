"""Files as sources: lines, JSON and CSV; all that is sound is given, then what is not is named."""

from __future__ import annotations

import gzip
import io
import json
import os
import subprocess
import sys
from collections.abc import Callable
from contextlib import closing
from datetime import datetime
from functools import partial
from itertools import chain
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sourced import all_of, fault_of, temporary

from drift import InputError, SettingsError, sources
from drift.sources import Source

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
        patch.setattr("drift.sources.chunks._CHUNK_BYTES", chunk_bytes)
        with temporary(gzip.compress(data) if zipped else data) as path:
            assert all_of(sources.text(path, encoding), items_max) == expected


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
        patch.setattr("drift.sources.chunks._CHUNK_BYTES", chunk_bytes)
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
    with pytest.raises(InputError, match="the folder has no files; check the path"):
        make(tmp_path).open()
    with pytest.raises(SettingsError, match="the path of a file is a text"):
        make(7)


def test_an_encoding_that_there_is_not_is_refused_at_once() -> None:
    for make in (sources.text, sources.csv):
        with pytest.raises(SettingsError, match="unknown encoding: klingon"):
            make("x", encoding="klingon")
        with pytest.raises(SettingsError, match="'hex' is not a text encoding"):
            make("x", encoding="hex")


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
def test_a_pipe_is_not_waited_for_when_it_has_data(kind: str, lines: list[str], said: list[str | None]) -> None:
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


@pytest.mark.parametrize("piece_bytes", [1, 3, 7])
@pytest.mark.parametrize(
    ("source", "data"),
    [
        (sources.text, "one\n\ntwo and more\r\nthr\u00e9e\nlast".encode()),
        (partial(sources.text, encoding="utf-16"), "one\ntwo and m\u00f6re\nlast\n".encode("utf-16")),
        (sources.jsonl, b'{"a": 1}\n[2,\t3]\n"four"\n'),
        (sources.csv, b'a,b\n1,2\n"more\nlines",3\n\n4,"5"\n6,7'),
        (partial(sources.text, line_max=8), b"one\ntwo is too long for it\nthree\nf\xffur\nfive\n"),
        (partial(sources.csv, line_max=12), b'a,b\n1,2\n"more\nlines\nthan so",3\n1\n4,5\n'),
    ],
    ids=["text", "text in UTF-16", "jsonl", "csv", "lines to divert", "rows to divert"],
)
def test_a_pipe_is_read_as_far_as_it_goes_and_never_waited_for(
    source: Any, data: bytes, piece_bytes: int, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    def opened(path: Path) -> Any:
        made = source(path)
        return (made.diverting("s") if "divert" in request.node.name else made).open()

    (tmp_path / "file").write_bytes(data)
    os.mkfifo(tmp_path / "pipe")
    writes = os.open(tmp_path / "pipe", os.O_RDWR)  # else nobody could open it for reading
    file, pipe = opened(tmp_path / "file"), opened(tmp_path / "pipe")
    wanted = list(chain.from_iterable(iter(lambda: file.read(100), None)))
    found: list[Any] = []
    for at in range(0, len(data), piece_bytes):
        os.write(writes, data[at : at + piece_bytes])
        for payloads in iter(lambda: pipe.read(1), []):
            found += payloads
    os.close(writes)
    found += chain.from_iterable(iter(lambda: pipe.read(100), None))
    assert found == wanted
    assert pipe.position() is None
    pipe.close()
    file.close()


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
        patch.setattr("drift.sources.chunks._CHUNK_BYTES", chunk_bytes)
        with temporary(gzip.compress(data) if zipped else data) as path:
            assert all_of(sources.jsonl(path), 3) == values


@pytest.mark.parametrize(
    ("line", "said"),
    [
        (b'{"a": 1', "cannot be decoded as JSON: Input data was truncated; the line is b'{\"a\": 1'"),
        (b"1 2", "cannot be decoded as JSON: JSON is malformed: trailing characters (byte 3)"),
        (b"NaN", "cannot be decoded as JSON: JSON is malformed"),
        (b'"\xff"', "cannot be decoded as JSON: 'utf-8' codec can't decode byte 0xff"),
        (b'{"a": "x\xff"}', "JSON: 'utf-8' codec can't decode byte 0xff in position 8: invalid start byte; the line"),
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
        patch.setattr("drift.sources.chunks._CHUNK_BYTES", chunk_bytes)
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
    with pytest.raises(SettingsError, match="csv takes no colour= "):
        sources.csv(path, colour="red")


def test_a_byte_order_mark_is_no_text(tmp_path: Path) -> None:
    path = tmp_path / "marked"
    path.write_bytes(b"\xef\xbb\xbfone\ntwo\n")
    assert all_of(sources.text(path)) == ["one", "two"]


@pytest.mark.parametrize(
    ("line", "key"),
    [
        (b'{"a": 1, "b": {"c": 1}, "a": 2}', "a"),
        (b'{"a": {"b": 1, "c": [], "b": 2}}', "b"),
        (b'[{"a" : 1, "a" :2}]', "a"),
        (b'{"\\u0061": 1, "a": "\\":"}', "a"),
    ],
)
@pytest.mark.parametrize("before", [[], [b"", b'{"n": 1}'], [b'{"a": "\\":"}', b'{"b": "\\u0022:"}']])
def test_a_json_object_with_two_equal_keys_is_named(tmp_path: Path, before: list[bytes], line: bytes, key: str) -> None:
    path = tmp_path / "twice"
    path.write_bytes(b"\n".join([*before, line, b"1"]))
    payloads, fault = fault_of(sources.jsonl(path))
    assert payloads == [json.loads(each) for each in before if each]
    assert f"line {len(before) + 1}: cannot be decoded as JSON: the key {key!r} is there twice" in fault


@pytest.mark.parametrize(
    "change",
    [
        lambda path: os.truncate(path, 300_000),
        lambda path: os.truncate(path, 0),
        lambda path: path.write_text("new 0000\n" * 100_000),
        lambda path: path.write_text("another line\n" * 200_000),
    ],
)
def test_a_file_that_is_cut_or_written_over_while_it_is_read_is_an_error(tmp_path: Path, change: Any) -> None:
    path = tmp_path / "a.txt"
    path.write_text("".join(f"old {n:04}\n" for n in range(100_000)))
    with closing(sources.text(path).open()) as reader:
        lines = list(reader.read(10) or ())
        change(path)
        with pytest.raises(InputError, match="the file was cut or written over while it was read: it has"):
            while (batch := reader.read(4096)) is not None:
                lines += batch
    assert {line[:3] for line in lines} == {"old"}


def test_a_file_that_is_replaced_or_appended_to_while_it_is_read_is_read_as_it_was(tmp_path: Path) -> None:
    path = tmp_path / "a.txt"
    path.write_text("old line\n" * 100_000)
    with closing(sources.text(path).open()) as reader:
        lines = list(reader.read(10) or ())
        (tmp_path / "b.txt").write_text("new line\n" * 100_000)
        (tmp_path / "b.txt").replace(path)
        while (batch := reader.read(4096)) is not None:
            lines += batch
    assert lines == ["old line"] * 100_000
    with closing(sources.text(path).open()) as reader:
        assert reader.read(10)
        with path.open("a") as file:
            file.write("more\n")
        while reader.read(4096) is not None:
            pass


def test_moments_of_int96_are_read_in_microseconds_or_refused(tmp_path: Path) -> None:
    pa, pq = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    moments = [datetime(*each) for each in ((2024, 3, 1, 12), (9999, 12, 31), (2300, 1, 1), (1500, 1, 1), (1, 1, 1))]
    inside = pa.array([[{"at": moment}] for moment in moments], pa.list_(pa.struct([("at", pa.timestamp("us"))])))
    table = pa.table({"id": range(5), "at": pa.array([*moments[:4], None], pa.timestamp("us")), "inside": inside})
    pq.write_table(table, tmp_path / "a.parquet", use_deprecated_int96_timestamps=True, row_group_size=2)
    for payload in ("dict", "rows"):
        read = all_of(sources.parquet(tmp_path / "a.parquet", payload=payload))  # type: ignore[arg-type]
        assert [row["at"] for row in read] == [*moments[:4], None]
        assert [row["inside"] for row in read] == [[{"at": moment}] for moment in moments]
    nanos = pa.table({"id": range(3), "at": pa.array([1000, 1001, 2000], pa.timestamp("ns"))})
    pq.write_table(nanos, tmp_path / "b.parquet", use_deprecated_int96_timestamps=True)
    assert "row 2: column 'at'" in fault_of(sources.parquet(tmp_path / "b.parquet"))[1]
    assert [row["id"] for row in all_of(sources.parquet(tmp_path / "b.parquet", columns=["id"]))] == [0, 1, 2]
