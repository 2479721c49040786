"""Sources are read again from a position: what comes then is what had not been given, whatever chunks and batches."""

from __future__ import annotations

import codecs
import csv
import gzip
import io
import itertools
import json
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sourced import drained, temporary

from drift import InputError, sources
from drift.sources import Source
from drift.sources.arguments import as_source
from drift.sources.known import Known


def check(make: Callable[[], Source], items_max: int = 3, every: int = 1) -> None:
    """From each position of an unbroken reading the rest comes, with the same error; positions are plain and small."""
    whole, error = drained(make(), 1000)
    reader = make().open()
    received: list[Any] = []
    positions: list[tuple[int, str]] = []
    while True:
        positions.append((len(received), json.dumps(reader.position())))
        try:
            batch = reader.read(items_max)
        except InputError:
            break
        if batch is None:
            break
        received += batch
    positions.append((len(received), json.dumps(reader.position())))
    reader.close()
    assert received == whole
    for count, plain in positions[::every]:
        assert len(plain) < 600
        rest, again = drained(Sought(make(), json.loads(plain)), items_max)
        assert rest == whole[count:], (count, plain)
        assert str(again) == str(error)


class Sought:
    """A source from a position on."""

    def __init__(self, source: Source, position: Any) -> None:
        self._source = source
        self._position = position
        self.live = source.live

    def open(self) -> Any:
        reader: Any = self._source.open()
        reader.seek(self._position)
        assert reader.position() == self._position
        return reader


class chunks:
    """Files are read in chunks of so many bytes."""

    def __init__(self, size: int) -> None:
        self._patch = pytest.MonkeyPatch()
        self._size = size

    def __enter__(self) -> None:
        self._patch.setattr("drift.sources.chunks._CHUNK_BYTES", self._size)

    def __exit__(self, *error: object) -> None:
        self._patch.undo()


texts = st.text(st.sampled_from('aé𝄞,"\n\r 1'), max_size=60)


@given(
    content=texts,
    encoding=st.sampled_from(["utf-8-sig", "utf-16", "shift_jis", "latin-1"]),
    zipped=st.booleans(),
    chunk_bytes=st.integers(1, 30),
    items_max=st.integers(1, 4),
    bom=st.booleans(),
)
@settings(deadline=None, max_examples=40)
def test_text_is_read_from_any_line_on_in_any_encoding(
    content: str, encoding: str, zipped: bool, chunk_bytes: int, items_max: int, bom: bool
) -> None:
    data = content.encode(encoding, "ignore")
    if not bom:
        data = data.removeprefix(codecs.BOM_UTF8)
    with chunks(chunk_bytes), temporary(gzip.compress(data) if zipped else data) as path:
        check(lambda: sources.text(path, encoding), items_max)


@given(
    lines=st.lists(
        st.sampled_from([b"1", b'{"a": "\xc3\xa9"}', b"", b"  ", b"[1, 2]", b"no json", b"\xff"]), max_size=12
    ),
    chunk_bytes=st.integers(1, 20),
    items_max=st.integers(1, 4),
    diverts=st.booleans(),
)
@settings(deadline=None, max_examples=40)
def test_json_lines_are_read_from_any_value_on(
    lines: list[bytes], chunk_bytes: int, items_max: int, diverts: bool
) -> None:
    def make() -> Source:
        source: Any = sources.jsonl(path)
        made: Source = source.diverting("s") if diverts else source
        return made

    with chunks(chunk_bytes), temporary(b"\n".join(lines)) as path:
        check(make, items_max)


rows_of_text = st.lists(st.lists(st.text(st.sampled_from('aé,"\n\r '), max_size=4), min_size=2, max_size=2), max_size=8)


@given(
    rows=rows_of_text,
    bad=st.sampled_from([b"", b"1,2,3\r\n4,5\r\n", b'"a"b,c\r\nd,e\r\n', b"\xff,a\r\nb,c\r\n"]),
    header=st.booleans(),
    chunk_bytes=st.integers(1, 20),
    items_max=st.integers(1, 4),
    diverts=st.booleans(),
    zipped=st.booleans(),
)
@settings(deadline=None, max_examples=40)
def test_csv_is_read_from_any_row_on_with_its_header(
    rows: list[list[str]], bad: bytes, header: bool, chunk_bytes: int, items_max: int, diverts: bool, zipped: bool
) -> None:
    written = io.StringIO()
    csv.writer(written).writerows([["x", "y"], *rows] if header else rows)
    data = (codecs.BOM_UTF8 if header else b"") + written.getvalue().encode() + bad

    def make() -> Source:
        source: Any = sources.csv(path, columns=None if header else ["x", "y"])
        made: Source = source.diverting("s") if diverts else source
        return made

    with chunks(chunk_bytes), temporary(gzip.compress(data) if zipped else data) as path:
        check(make, items_max)


@pytest.mark.parametrize("strict", [True, False])
@pytest.mark.parametrize("diverts", [False, True])
def test_rows_of_csv_are_those_of_pythons_reader_however_the_file_is_cut(
    strict: bool, diverts: bool, tmp_path: Path
) -> None:
    """Rows of several lines, blank lines, and what goes on behind the end of a block."""
    text = 'x,y\n1,2\n\n\n3,"a\nb\n"\n5,6\n\n7,"c"\n8,"d\n\ne"\n\n9,0\n'
    expected = [dict(zip("xy", row)) for row in csv.reader(io.StringIO(text, newline=""), strict=strict) if row][1:]
    path = tmp_path / "rows.csv"
    path.write_text(text)

    def make() -> Source:
        source: Any = sources.csv(path, strict=strict)
        made: Source = source.diverting("s") if diverts else source
        return made

    for chunk_bytes in range(1, len(text) + 1, 3):
        with chunks(chunk_bytes):
            assert drained(make()) == (expected, None)
            check(make, 1)


@given(
    content=texts,
    chunk_bytes=st.integers(1, 20),
    items_max=st.integers(1, 4),
    bad=st.sampled_from([b"", b"\xff", b"\xc3\n"]),
)
@settings(deadline=None, max_examples=25)
def test_text_with_lines_diverted_is_read_from_any_line_on(
    content: str, chunk_bytes: int, items_max: int, bad: bytes
) -> None:
    def make() -> Source:
        source: Any = sources.text(path)
        made: Source = source.diverting("s")
        return made

    with chunks(chunk_bytes), temporary(content.encode() + bad + content.encode()) as path:
        check(make, items_max)


def test_a_long_line_makes_no_long_position(tmp_path: Path) -> None:
    path = tmp_path / "lines"
    path.write_text("a" * 3_000_000 + "\n" + "b" * 1_500_000 + "\nc\n")
    check(lambda: sources.text(path), 1)


def test_parquet_and_tables_are_read_from_any_row_on(tmp_path: Path) -> None:
    table = pa.table({"n": list(range(20)), "word": [f"w{n}" for n in range(20)]})
    pq.write_table(table, tmp_path / "a.parquet", row_group_size=6)
    check(lambda: sources.parquet(tmp_path / "a.parquet"), 4)
    check(lambda: sources.parquet(tmp_path / "a.parquet", columns=["word", "n"], payload="tuple"), 7)
    check(lambda: sources.table(table), 3)
    check(lambda: sources.table(table.to_pandas()), 3)
    reader: Any = sources.table(table.to_reader()).open()
    assert reader.position() is None, "a reader of batches is read once"
    reader.close()


def test_folders_and_patterns_are_read_from_any_file_on_also_when_files_have_come(tmp_path: Path) -> None:
    for name in "abc":
        (tmp_path / f"{name}.txt").write_text("".join(f"{name}{n}\n" for n in range(3)))
    pq.write_table(pa.table({"n": [1, 2, 3]}), tmp_path / "x.parquet")
    pq.write_table(pa.table({"n": [4]}), tmp_path / "y.parquet")
    check(lambda: sources.text(tmp_path / "*.txt"), 2)
    check(lambda: sources.parquet(tmp_path / "*.parquet"), 2)
    check(lambda: sources.text(tmp_path / "a*.txt"), 2)
    reader: Any = sources.text(tmp_path / "*.txt").open()
    assert [reader.read(2), reader.read(2), reader.read(2)] == [["a0", "a1"], ["a2"], ["b0", "b1"]]
    position = reader.position()
    (tmp_path / "d.txt").write_text("d0\n")
    assert drained(Sought(sources.text(tmp_path / "*.txt"), position))[0] == ["b2", "c0", "c1", "c2", "d0"]
    (tmp_path / "aa.txt").write_text("too late\n")
    with pytest.raises(InputError, match=r"'b\.txt', before which there were 1 when the state of this run was saved"):
        drained(Sought(sources.text(tmp_path / "*.txt"), position))
    (tmp_path / "aa.txt").unlink()
    (tmp_path / "b.txt").unlink()
    with pytest.raises(InputError, match="and now it is not there; bring back"):
        drained(Sought(sources.text(tmp_path / "*.txt"), position))


class Again:
    """What can be iterated again, and is no sequence."""

    def __iter__(self) -> Iterator[int]:
        return iter(range(10))


def test_what_can_be_iterated_again_is_read_from_any_item_on_and_a_generator_is_not() -> None:
    for payloads in (list("abcdefg"), tuple("ab"), range(3, 1_000, 7), Again(), []):
        check(lambda payloads=payloads: as_source("s", payloads), 3, every=20 if len(str(payloads)) < 50 else 1)
        assert as_source("s", payloads).guarantee.rereads == "from a position"  # type: ignore[attr-defined]
    once = as_source("s", (n for n in range(3)))
    reader: Any = once.open()
    assert reader.position() is None and once.guarantee.rereads == "not at all"  # type: ignore[attr-defined]
    shorter: Any = as_source("s", [1, 2]).open()
    long: Any = as_source("s", [1, 2, 3, 4]).open()
    long.read(3)
    with pytest.raises(InputError, match="read up to item 3 when the state of this run was saved, and now it has 2"):
        shorter.seek(long.position())


def test_a_file_that_is_another_or_shorter_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "lines"
    path.write_text("".join(f"{n}\n" for n in range(100)))
    with chunks(64):
        reader: Any = sources.text(path).open()
        received = reader.read(1000) + reader.read(1000) + reader.read(1000)
        position = reader.position()
        reader.close()
        whole = path.read_bytes()
        path.write_bytes(whole + b"100\n")
        assert (received + drained(Sought(sources.text(path), position))[0])[-2:] == ["99", "100"]
        path.write_bytes(whole[:30])
        with pytest.raises(
            InputError, match=r"was read up to byte 191 when .* was saved, and now it is shorter, 30 bytes"
        ):
            drained(Sought(sources.text(path), position))
        path.write_bytes(whole.replace(b"20", b"02"))
        with pytest.raises(InputError, match="it has something else before that: it is another file"):
            drained(Sought(sources.text(path), position))
        path.write_bytes(whole)
        with pytest.raises(InputError, match="that is no position of this kind of source"):
            drained(Sought(sources.jsonl(path), position))
        with pytest.raises(InputError, match="in a form that this version reads"):
            drained(Sought(sources.text(path), {**position, "v": 2}))


@pytest.mark.parametrize("items_max", [1, 3, 1000])
def test_another_file_is_refused_wherever_in_the_first_chunk_reading_ended(tmp_path: Path, items_max: int) -> None:
    path = tmp_path / "lines"
    makes: list[Callable[[Any], Source]] = [sources.text, sources.jsonl, lambda path: sources.csv(path, columns=["n"])]
    for make in makes:
        for zipped in (False, True):
            write = (lambda data: path.write_bytes(gzip.compress(data))) if zipped else path.write_bytes
            write(b"".join(b"%d\n" % n for n in range(100, 200)))
            reader: Any = make(path).open()
            assert len(reader.read(items_max)) == min(items_max, 100)
            position = json.loads(json.dumps(reader.position()))
            reader.close()
            write(b"".join(b"%d\n" % n for n in range(200, 300)))
            with pytest.raises(InputError, match="it has something else before that: it is another file"):
                drained(Sought(make(path), position))


def test_what_is_behind_the_position_may_be_corrected(tmp_path: Path) -> None:
    path = tmp_path / "values"
    path.write_text("1\n\n2\n{\n3\n")
    reader: Any = sources.jsonl(path).open()
    assert reader.read(10) == [1, 2]
    with pytest.raises(InputError, match="line 4"):
        reader.read(10)
    position = reader.position()
    reader.close()
    path.write_text("1\n\n2\n{}\n3\n")
    assert drained(Sought(sources.jsonl(path), position)) == ([{}, 3], None)


@given(
    size=st.integers(0, 600),
    ends=st.lists(st.integers(0, 600), max_size=6),
    at=st.integers(0, 599),
    moves=st.sampled_from(["changed", "taken out", "put in"]),
)
@settings(deadline=None, max_examples=200)
def test_what_was_read_is_known_again_by_its_whole_beginning_samples_and_its_end(
    size: int, ends: list[int], at: int, moves: str
) -> None:
    with pytest.MonkeyPatch.context() as patch:
        for name, value in (("WHOLE", 100), ("STRIDE", 64), ("SAMPLE", 16), ("TAIL", 8)):
            patch.setattr(f"drift.sources.known.{name}_BYTES", value)
        data = bytes((n * n + n // 7) % 251 for n in range(size))

        def known_of(data: bytes, ends: list[int]) -> str:
            known = Known()
            for start, end in itertools.pairwise([0, *sorted(min(end, len(data)) for end in ends), len(data)]):
                known.update(data[start:end])
            assert known.offset == len(data)
            return known.copy().hexdigest()

        assert known_of(data, ends) == known_of(data, [])
        if at < size:
            covered = at < 100 or (at - 100) % 64 < 16 or at >= size - 8
            if moves == "changed":
                other = data[:at] + bytes([data[at] ^ 1]) + data[at + 1 :]
                assert (known_of(other, ends) != known_of(data, [])) == covered
            else:
                other = (
                    data[:at] + data[at + 1 :] + b"!" if moves == "taken out" else (data[:at] + b"!" + data[at:])[:-1]
                )
                assert known_of(other, ends) != known_of(data, []) or data[at:] == other[at:]


def test_of_a_large_file_only_what_the_hash_covers_is_read_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in (("WHOLE", 1000), ("STRIDE", 500), ("SAMPLE", 50), ("TAIL", 20)):
        monkeypatch.setattr(f"drift.sources.known.{name}_BYTES", value)
    path = tmp_path / "lines"
    lines = [f"line {n:04}" for n in range(1000)]
    path.write_text("".join(f"{line}\n" for line in lines))
    with chunks(30):
        check(lambda: sources.text(path), 7, every=31)
        reader: Any = sources.text(path).open()
        count = 0
        while count < 900:
            count += len(reader.read(7))
        position = reader.position()
        reader.close()
        data = bytearray(path.read_bytes())
        data[1030] ^= 1  # in what is covered
        path.write_bytes(data)
        with pytest.raises(InputError, match="it is another file"):
            drained(Sought(sources.text(path), position))
        data[1030] ^= 1
        data[1100] ^= 1  # in what is not
        path.write_bytes(data)
        assert drained(Sought(sources.text(path), position))[0] == lines[count:]


def test_a_last_line_that_goes_on_is_no_second_line(tmp_path: Path) -> None:
    path = tmp_path / "values"
    makes: list[Callable[[Any], Source]] = [sources.text, sources.jsonl, lambda path: sources.csv(path, columns=["n"])]
    for make in makes:
        path.write_text("1\n2")
        reader: Any = make(path).open()
        while reader.read(10) is not None:
            pass
        position = reader.position()
        reader.close()
        assert drained(Sought(make(path), position)) == ([], None)
        path.write_text("1\n23\n")
        with pytest.raises(InputError, match=r"up to byte 3, the end of its last line when .* that line goes on"):
            drained(Sought(make(path), position))


def test_a_pipe_has_no_position(tmp_path: Path) -> None:
    path = tmp_path / "pipe"
    os.mkfifo(path)
    source: Any = sources.text(path)
    assert source.guarantee.rereads == "not at all"
    assert sources.text("-").guarantee.rereads == "not at all"
    assert sources.text(tmp_path / "file").guarantee.rereads == "from a position"


@pytest.mark.parametrize("follow", [False, True])
@pytest.mark.parametrize("size", [10, 4096, 70_000, 300_000])
def test_a_file_of_a_folder_that_was_read_to_its_end_is_known_by_its_content(
    tmp_path: Path, size: int, follow: bool
) -> None:
    for name in "abc":
        (tmp_path / name).write_text(f"{name:x>{size}}\n")
    source = sources.text(tmp_path, follow=follow)
    reader = source.open()
    assert [reader.read(1) for _ in "ab"] == [[f"{name:x>{size}}"] for name in "ab"]
    position = reader.position()  # in b
    reader.close()
    again = source.open()
    again.seek(position)
    assert again.position() == position
    again.close()

    def sought(position: Any) -> Any:
        again = source.open()
        try:
            again.seek(position)
            return again.read(1)
        finally:
            again.close()

    os.utime(tmp_path / "a", (1, 1))
    assert sought(position) == [f"{'c':x>{size}}"]
    for changed in (f"{'a':y>{size}}\n", f"{'a':x>{size // 3}}{'a':y>{size - size // 3}}\n"):
        (tmp_path / "a").write_text(changed)
        for _ in range(2):
            with pytest.raises(InputError, match=r"other content|another name or content"):
                sought(position)
    older = {**position, "done": position["done"][:2]} if follow else {**position}
    older.pop("mark", None)  # as checkpoints had it before files had marks
    assert sought(older) == [f"{'c':x>{size}}"]
    if follow:
        (tmp_path / "a").unlink()
        assert sought(position) == [f"{'c':x>{size}}"]


@pytest.mark.parametrize("folder", [False, True])
def test_a_parquet_file_whose_footer_stays_is_known_by_its_content(tmp_path: Path, folder: bool) -> None:
    def written(*middle: int) -> bytes:
        table = pa.table({"n": [0, *range(1, 30_000), *middle, *range(1, 30_000), 40_000]})
        pq.write_table(table, tmp_path / "a.parquet", compression="none", use_dictionary=False)
        return (tmp_path / "a.parquet").read_bytes()

    footer = [written(*middle)[-400:] for middle in ((7, 9), (7, 8))]
    assert footer[0] == footer[1]
    source = sources.parquet(tmp_path if folder else tmp_path / "a.parquet")
    reader = source.open()
    assert reader.read(1) == [{"n": 0}]
    position = reader.position()
    reader.close()

    def seek() -> None:
        again = source.open()
        try:
            again.seek(position)
        finally:
            again.close()

    os.utime(tmp_path / "a.parquet", (1, 1))
    seek()
    written(7, 9)
    with pytest.raises(InputError, match=r"it is another file"):
        seek()
