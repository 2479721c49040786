"""Lines that are too long are named, or diverted in their place; they take no more memory than the limit says."""

from __future__ import annotations

import gzip
import io
import json
import os
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from sourced import all_of, drained, fault_of, temporary
from test_sources_positions import check, chunks

from drift import InputError, SettingsError, sources
from drift.sources import Source
from drift.sources.base import NothingYet
from drift.sources.chunks import File
from drift_graph.diverted import diverted, is_diverted

MAKES: list[Callable[..., Any]] = [
    sources.text,
    sources.jsonl,
    lambda path, **more: sources.csv(path, columns=["x"], **more),
]


@given(
    lengths=st.lists(st.integers(0, 12), min_size=1, max_size=12),
    newline=st.sampled_from([b"\n", b"\r\n", b"\r"]),
    ended=st.booleans(),
    line_max=st.integers(1, 10),
    chunk_bytes=st.integers(1, 30),
    items_max=st.integers(1, 4),
    zipped=st.booleans(),
)
@settings(deadline=None, max_examples=60)
def test_a_line_is_too_long_by_its_bytes_alone_however_the_file_is_cut(
    lengths: list[int], newline: bytes, ended: bool, line_max: int, chunk_bytes: int, items_max: int, zipped: bool
) -> None:
    lines = [bytes([97 + at]) * length for at, length in enumerate(lengths)]
    data = newline.join(lines) + newline * ended
    lines = [line.encode() for line in io.TextIOWrapper(io.BytesIO(data)).read().removesuffix("\n").split("\n")]
    lines = lines if data else []

    def expected(at: int, line: bytes) -> Any:
        if len(line) <= line_max:
            return line.decode()
        return diverted(f"s, line {at}", f"the line has more than line_max={line_max} bytes", line[:line_max])

    wanted = [expected(at, line) for at, line in enumerate(lines, 1)]
    good = next((at for at, line in enumerate(wanted) if is_diverted(line)), None)

    def make(*, diverts: bool) -> Source:
        source = sources.text(path, line_max=line_max)
        return source.diverting("s") if diverts else source

    with chunks(chunk_bytes), temporary(gzip.compress(data) if zipped else data) as path:
        assert all_of(make(diverts=True), items_max) == wanted
        check(lambda: make(diverts=True), items_max)
        check(lambda: make(diverts=False), items_max)
        if good is not None:
            payloads, fault = fault_of(make(diverts=False), items_max)
            assert payloads == wanted[:good]
            assert fault.startswith(f"{path}, line {good + 1}: the line has more than line_max={line_max} bytes, which")
            assert fault.endswith("raise line_max")


@given(
    kind=st.sampled_from(MAKES),
    lines=st.lists(st.integers(0, 10**11).map(str), min_size=1, max_size=12),
    newline=st.sampled_from(["\n", "\r\n"]),
    line_max=st.integers(2, 10),
    items_max=st.integers(1, 4),
    steps=st.lists(st.tuples(st.integers(0, 40), st.integers(0, 5), st.booleans()), max_size=8),
    diverts=st.booleans(),
)
@example(sources.text, ["0", "100000", "1"], "\n", 2, 3, [(2, 1, False), (4, 1, True)], True)  # within it
@settings(deadline=None, max_examples=150)
def test_a_pipe_is_read_on_where_a_run_left_it_also_around_lines_that_are_too_long(
    kind: Callable[..., Any],
    lines: list[str],
    newline: str,
    line_max: int,
    items_max: int,
    steps: list[tuple[int, int, bool]],
    diverts: bool,
) -> None:
    """In each step so many more bytes are written, and read so many times; after some another run goes on."""
    data = newline.join([*lines, ""]).encode()

    def opened(path: Path) -> Any:
        source = kind(path, line_max=line_max)
        return (source.diverting("s") if diverts else source).open()

    with temporary(data) as path:
        whole, error = drained(opened_by(lambda: opened(path)), items_max)
        pipe = path.with_name("pipe")
        os.mkfifo(pipe)
        held = os.open(pipe, os.O_RDWR)
        got: list[Any] = []
        found: Exception | None = None
        reader = opened(pipe)
        for size, reads, ends in (*steps, (len(data), -1, True)):
            os.write(held, data[:size])
            data = data[size:]
            try:
                if reads < 0:
                    got += reader.read(items_max)
                    os.close(held)  # what is in the pipe stays there as long as somebody has it open
                while reads and (batch := reader.read(items_max)) is not None:
                    got += batch
                    reads -= 1
            except InputError as fault:
                found = fault
            if ends or found:
                reader.halt()
                position = json.dumps(reader.position())
                assert reader.left() == [] and json.dumps(reader.position()) == position
                reader.close()
                reader = opened(pipe)
                reader.seek(json.loads(position))
        reader.close()
    assert got == whole
    told, wanted = (str(each).partition(", which begins")[0] for each in (found, error))
    assert told.replace(str(pipe), str(path)) == wanted


@given(
    kind=st.sampled_from(MAKES),
    lines=st.lists(st.one_of(st.integers(0, 10**11).map(str), st.sampled_from(['"a', 'b"'])), min_size=1, max_size=12),
    line_max=st.integers(2, 10),
    items_max=st.integers(1, 4),
    chunk_bytes=st.integers(1, 30),
    steps=st.lists(st.tuples(st.integers(0, 40), st.integers(1, 6), st.booleans()), max_size=8),
)
@example(MAKES[2], ["0", "100", "1000", "100"], 2, 1, 30, [(10, 3, False)])
@settings(deadline=None, max_examples=100)
def test_a_file_that_grows_is_read_on_around_lines_that_are_too_long(
    kind: Callable[..., Any],
    lines: list[str],
    line_max: int,
    items_max: int,
    chunk_bytes: int,
    steps: list[tuple[int, int, bool]],
) -> None:
    """In each step so many more bytes are written, and read so many times; after some another reader goes on."""
    data = "\n".join([*lines, ""]).encode()

    def opened(path: Path) -> Any:
        return kind(path, line_max=line_max).diverting("s")

    with chunks(chunk_bytes), temporary(data) as path:
        whole = all_of(opened(path), items_max)
        path.write_bytes(b"")
        reader = opened(path).growing().open()
        got: list[Any] = []
        for size, reads, ends in (*steps, (len(data), -1, False)):
            with path.open("ab") as file:
                file.write(data[:size])
            data = data[size:]
            with suppress(NothingYet):
                while reads:
                    got += reader.read(items_max)
                    reads -= 1
            if ends:
                position = json.loads(json.dumps(reader.position()))
                reader.close()
                reader = opened(path).growing().open()
                reader.seek(position)
        reader.complete()
        while (batch := reader.read(items_max)) is not None:
            got += batch
        reader.close()
    assert got == whole


def test_lines_behind_one_that_is_too_long_do_not_wait_until_more_comes(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    held = os.open(tmp_path / "pipe", os.O_RDWR)
    os.write(held, b"0\n100\n1\n2\n")
    reader: Any = sources.text(tmp_path / "pipe", line_max=2).diverting("s").open()
    assert [is_diverted(each) or each for _ in range(3) for each in reader.read(9)] == ["0", True, "1", "2"]
    reader.close()
    os.close(held)


class opened_by:
    """A source whose readers are made by a function."""

    live = False

    def __init__(self, make: Callable[[], Any]) -> None:
        self.open = make


@pytest.fixture
def held(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """How many bytes files of lines hold, each time they read on."""
    noted: list[int] = []
    read_on = File._chunk

    def noting(file: File) -> tuple[bytes, str]:
        noted.append(file._part_bytes + sum(len(block.data) for block in file.unreturned))
        return read_on(file)

    monkeypatch.setattr(File, "_chunk", noting)
    return noted


@pytest.mark.parametrize("make", MAKES)
@pytest.mark.parametrize("encoding", ["utf-8", "utf-16"])
def test_a_line_without_an_end_takes_no_memory(
    make: Callable[..., Any], encoding: str, tmp_path: Path, held: list[int]
) -> None:
    path = tmp_path / "bomb.gz"
    with gzip.open(path, "wb", compresslevel=1) as file:
        for text in ["1\n", *["1" * (1 << 20)] * 24, "\n2\n"]:
            file.write(text.encode(encoding.replace("16", "16-le")))
    more: dict[str, Any] = {"line_max": 1 << 20}
    if encoding != "utf-8":
        if make is sources.jsonl:
            return
        more["encoding"] = "utf-16-le"
    payloads, fault = fault_of(make(path, **more))
    assert len(payloads) == 1 and len(held) < 12  # of some hundred
    assert f"{path}, line 2: the line has more than line_max=1048576 bytes, which begins with b'1111" in fault
    if encoding == "utf-8":
        found = all_of(make(path, **more).diverting("s"))
        assert len(found) == 3
        assert is_diverted(found[1]) and found[1][1] == "s, line 2" and found[1][3] == b"1" * 1000
    assert max(held) < 3 << 19


@pytest.mark.parametrize("diverts", [False, True])
@pytest.mark.parametrize("chunk_bytes", [3, 20, 1000])
def test_a_row_over_many_lines_is_limited(tmp_path: Path, diverts: bool, chunk_bytes: int) -> None:
    path = tmp_path / "rows.csv"
    path.write_text('a,b\n1,"x\ny\nz"\n2,"01\n' + "0123\n" * 4 + "3,c\n")  # a quote that is never closed
    source: Any = sources.csv(path, line_max=18)
    made = source.diverting("s") if diverts else source
    good = {"a": "1", "b": "x\ny\nz"}
    with chunks(chunk_bytes):
        payloads, error = drained(made)
        check(lambda: made, 1)
    reason = "the row that starts here has more than line_max=18 characters"
    if diverts:
        apart = diverted("s, line 5", reason, '2,"01\n0123\n0123\n0123\n0123')
        assert payloads == [good, apart, {"a": "3", "b": "c"}] and error is None
    else:
        assert payloads == [good]
        assert str(error) == f"{path}, line 5: {reason}; close its quotes, or raise line_max"


def test_a_field_of_csv_that_never_ends_takes_no_memory(tmp_path: Path, held: list[int]) -> None:
    path = tmp_path / "rows.csv"
    with path.open("w") as file:
        file.write('a,b\n1,"')
        for _ in range(200_000):
            file.write('"",\n","')
    source: Any = sources.csv(path, line_max=10_000)
    assert "line 2: the row that starts here has more than line_max=10000 characters" in fault_of(source)[1]
    assert len(held) <= 2  # of seven


def test_a_followed_file_goes_on_behind_a_line_that_is_too_long(tmp_path: Path) -> None:
    path = tmp_path / "1"
    path.write_text("one\n")
    source: Any = sources.text(tmp_path, follow=True, line_max=5)
    reader = source.diverting("s").open()
    found: list[Any] = []
    for text in ("two\nthre", "eeeee", "eeee", "ee\nfour\n"):
        with path.open("a") as file:
            file.write(text)
        while payloads := reader.read(1):
            found += payloads
        position = reader.position()
        assert position["within"]["within"] == (3 <= len(found) < 4)
        again = source.diverting("s").open()
        again.seek(position)
        assert again.read(1) == []
        again.close()
    assert [each[1] if is_diverted(each) else each for each in found] == ["one", "two", "s, 1, line 3", "four"]
    reader.close()


def test_a_limit_that_is_none_is_refused() -> None:
    for make in MAKES:
        for wrong in (0, -1, 1.5, None, True):
            with pytest.raises(SettingsError, match=r"line_max=.* is not an int of 1 or more"):
                make("x", line_max=wrong)
