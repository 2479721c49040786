"""Files that are followed: what is written to a folder while it is read is given once, in the order of names."""

from __future__ import annotations

import bz2
import gzip
import json
import lzma
import random
import select
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from waiting import HANG_S

import drift
from drift import sources
from drift.cli.specs import source_of
from drift.sources.base import Reader


@contextmanager
def opened(source: Any, position: Any = None) -> Iterator[Reader]:
    with closing(source.open()) as reader:
        if position is not None:
            reader.seek(position)
        yield reader


def read_all(reader: Reader) -> list[Any]:
    """All that is there now."""
    found: list[Any] = []
    while payloads := reader.read(2):
        found += payloads
    assert payloads == []
    return found


def woken(reader: Reader) -> bool:
    return bool(select.select(reader.filenos(), (), (), HANG_S)[0])


def append(path: Path, text: str) -> None:
    with path.open("a", newline="") as file:
        file.write(text)


def test_what_is_appended_and_files_that_come_are_given_in_order(tmp_path: Path) -> None:
    with opened(sources.text(tmp_path / "*.log", follow=True)) as reader:
        assert read_all(reader) == []
        append(tmp_path / "1.log", "one\ntwo\nthr")
        assert woken(reader) and read_all(reader) == ["one", "two"]
        append(tmp_path / "1.log", "ee\nfour")
        assert woken(reader) and read_all(reader) == ["three"]
        append(tmp_path / "other.txt", "another\n")
        append(tmp_path / "3.log", "")
        append(tmp_path / "2.log", "five\n")
        assert woken(reader) and read_all(reader) == ["four", "five"], "a file ends when one behind it is there"
        append(tmp_path / "3.log", "six\n")
        assert woken(reader) and read_all(reader) == ["six"]


def test_a_file_that_is_named_is_followed(tmp_path: Path) -> None:
    append(tmp_path / "app.log", "one\n")
    with opened(sources.text(tmp_path / "app.log", follow=True)) as reader:
        assert read_all(reader) == ["one"]
        append(tmp_path / "app.log", "two\n" * 3)
        assert woken(reader) and read_all(reader) == ["two"] * 3


@pytest.mark.parametrize("name", ["a.jsonl", "a.jsonl.gz", "a.parquet"])
def test_a_batch_goes_on_wherever_a_named_file_was_followed_to(name: str, tmp_path: Path) -> None:
    path, rows = tmp_path / name, [{"n": 1}, {"n": 2}]
    if name == "a.parquet":
        pq.write_table(pa.Table.from_pylist(rows), path)
    else:
        lines = "".join(f"{json.dumps(row)}\n" for row in rows).encode()
        path.write_bytes(gzip.compress(lines) if name.endswith(".gz") else lines)
    made = sources.parquet if name == "a.parquet" else sources.jsonl
    positions = []
    with opened(made(path, follow=True)) as reader:
        positions.append(reader.position())
        for _ in rows:
            assert reader.read(1)
            positions.append(reader.position())
        assert reader.read(1) == reader.read(1) == [], "a packed file that is at its end is no rotated one"
        if name != "a.parquet":  # whose end says no row
            positions.append(reader.position())
    for position, before in zip(positions, (0, 1, 2, 2)):
        with opened(made(path), position) as reader:
            assert [*(reader.read(9) or ())] == rows[before:]


def test_a_position_is_resumed_from_wherever_it_was_reported(tmp_path: Path) -> None:
    def write(step: int) -> None:
        append(tmp_path / f"{step // 3}.jsonl", f'{{"n": {2 * step}}}\n{{"n": {2 * step + 1}')
        append(tmp_path / f"{step // 3}.jsonl", "}\n")

    source = sources.jsonl(tmp_path, follow=True)
    positions: list[tuple[Any, int]] = []
    with opened(source) as reader:
        count = 0
        for step in range(9):
            positions.append((reader.position(), count))
            write(step)
            while payloads := reader.read(1):
                assert payloads == [{"n": count}]
                count += 1
                positions.append((reader.position(), count))
    assert count == 18
    for position, before in positions:
        with opened(source, position) as reader:
            assert read_all(reader) == [{"n": n} for n in range(before, 18)]
    (tmp_path / "0.jsonl").unlink()  # what was read may be cleared away
    with opened(source, positions[-1][0]) as reader:
        assert read_all(reader) == []
        write(9)
        assert read_all(reader) == [{"n": 18}, {"n": 19}]


def test_a_row_of_csv_over_several_lines_is_given_when_it_is_complete(tmp_path: Path) -> None:
    file = tmp_path / "1.csv"
    with opened(sources.csv(tmp_path / "*.csv", follow=True)) as reader:
        append(file, 'word,n\nto,1\n"b')
        assert read_all(reader) == [{"word": "to", "n": "1"}]
        append(file, "\n")
        assert read_all(reader) == []
        append(file, 'e",2\nor,3\n')
        assert read_all(reader) == [{"word": "b\ne", "n": "2"}, {"word": "or", "n": "3"}]
        append(tmp_path / "2.csv", "n,word\n4,not\n")
        assert read_all(reader) == [{"n": "4", "word": "not"}]


def test_files_that_are_complete_when_they_come_are_not_waited_for(tmp_path: Path) -> None:
    with opened(sources.text(tmp_path, follow=True)) as reader:
        (tmp_path / "1.gz").write_bytes(gzip.compress(b"one\ntwo"))
        assert read_all(reader) == ["one", "two"]
        append(tmp_path / "2", "three\n")
        assert read_all(reader) == ["three"]
    folder = tmp_path / "rows"
    folder.mkdir()
    with opened(sources.parquet(folder, follow=True, payload="value")) as reader:
        for number in range(3):
            pq.write_table(pa.table({"n": [number, 10]}), tmp_path / "part")
            (tmp_path / "part").rename(folder / f"{number}.parquet")
            assert woken(reader) and read_all(reader) == [number, 10]


def test_what_cannot_be_read_is_diverted_with_the_name_of_its_file(tmp_path: Path) -> None:
    graph = drift.Graph("apart")
    graph.source("rows", on_error="divert").sink("out")
    append(tmp_path / "1.jsonl", "1\n{\n2\n")
    with drift.run(graph, {"rows": sources.jsonl(tmp_path, follow=True)}) as run:
        found = [next(item) for item in [iter(run)] for _ in range(3)]
    assert [item.payload for item in found if item.sink == "out"] == [1, 2]
    (bad,) = [item.payload for item in found if item.sink == "errors"]
    assert bad["location"] == "rows, 1.jsonl, line 2"


def test_a_file_that_comes_too_late_in_the_order_ends_the_input(tmp_path: Path) -> None:
    append(tmp_path / "2", "two\n")
    source = sources.text(tmp_path, follow=True)
    with opened(source) as reader:
        assert read_all(reader) == ["two"]
        position = reader.position()
        append(tmp_path / "1", "one\n")
        with pytest.raises(drift.InputError, match=r"'1' appeared in .* after '2' was read"):
            read_all(reader)
    with (
        pytest.raises(drift.InputError, match=r"before which there were 0.*there are 1 before it"),
        opened(source, position),
    ):
        pass


def test_a_file_that_grows_behind_its_end_ends_the_input(tmp_path: Path) -> None:
    source = sources.text(tmp_path, follow=True)
    append(tmp_path / "1", "one")
    append(tmp_path / "2", "two\n")
    with opened(source) as reader:
        assert read_all(reader) == ["one", "two"]
        position = reader.position()
        append(tmp_path / "1", " more\n")
        with pytest.raises(drift.InputError, match="has 9 bytes, and had 3 when it was read to its end"):
            read_all(reader)
    with opened(source, position) as again, pytest.raises(drift.InputError, match="has 9 bytes, and had 3"):
        read_all(again)


def test_a_file_that_is_emptied_or_removed_while_it_is_read_ends_the_input(tmp_path: Path) -> None:
    source = sources.text(tmp_path, follow=True)
    append(tmp_path / "1", "one\ntwo\n")
    with opened(source) as reader:
        assert read_all(reader) == ["one", "two"]
        position = reader.position()
        (tmp_path / "1").write_text("new\n")
        assert woken(reader)
        with pytest.raises(drift.InputError, match="has 4 bytes where it had 8"):
            read_all(reader)
    with opened(source, position) as again, pytest.raises(drift.InputError, match=r"up to byte 8 .*shorter, 4 bytes"):
        read_all(again)
    with opened(source) as reader:
        assert read_all(reader) == ["new"]
        (tmp_path / "1").unlink()
        with pytest.raises(drift.InputError, match="was deleted while it was read"):
            read_all(reader)


def test_a_file_that_grows_before_the_next_begins_is_read_to_its_end(tmp_path: Path) -> None:
    append(tmp_path / "1", "a")
    with opened(sources.text(tmp_path, follow=True)) as reader:
        assert read_all(reader) == []
        append(tmp_path / "1", "\n" + "b\n" * 5000)
        append(tmp_path / "2", "c\n")
        assert read_all(reader) == ["a", *["b"] * 5000, "c"]


def test_a_file_that_is_replaced_is_read_to_its_end_and_then_ends_the_input(tmp_path: Path) -> None:
    source = sources.text(tmp_path / "app.log", follow=True)
    append(tmp_path / "app.log", "one\n")
    with opened(source) as reader:
        assert read_all(reader) == ["one"]
        position = reader.position()
        append(tmp_path / "app.log", "two\n")
        append(tmp_path / "new", "".join(f"{n}\n" for n in range(100)))
        (tmp_path / "new").rename(tmp_path / "app.log")
        assert woken(reader)
        assert reader.read(10) == ["two"], "what was unread of the old file comes first"
        assert reader.read(10) == [] and woken(reader)
        with pytest.raises(
            drift.InputError, match=r"app\.log was rotated, and the piece before what comes next is not"
        ):
            reader.read(10)
    with opened(source, position) as again:
        assert again.read(10) == [] and woken(again)
        with pytest.raises(drift.InputError, match="the piece of it that was read is not there any more"):
            again.read(10)


class Rotating:
    """A log that is written, and rotated in a way; `written` is all that was written to it."""

    def __init__(self, folder: Path, way: str) -> None:
        self.path, self.way, self.written, self.days = folder / "app.log", way, [], 0
        self.path.touch()

    def write(self, lines: int) -> None:
        new = [f"line {len(self.written) + n}" for n in range(lines)]
        append(self.path, "".join(f"{line}\n" for line in new))
        self.written += new

    def rotate(self) -> None:
        self.days += 1
        if "date" in self.way:
            old = self.path.with_name(f"app.log-202601{self.days:02}")
        else:
            for n in range(8, 0, -1):
                for packed in ("", ".gz"):
                    if (piece := self.path.with_name(f"app.log.{n}{packed}")).exists():
                        piece.rename(self.path.with_name(f"app.log.{n + 1}{packed}"))
            old = self.path.with_name("app.log.1")
        if "copy" in self.way:
            old.write_bytes(self.path.read_bytes())
            self.path.write_bytes(b"")
        else:
            self.path.rename(old)
            self.path.touch()
        if "gzip" in self.way:
            with gzip.open(f"{old}.gz", "wb") as packed_file:
                packed_file.write(old.read_bytes())
            old.unlink()


WAYS = ["rename", "copy", "rename, gzip", "copy, gzip", "rename, date", "copy, date, gzip"]


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("again", [False, True])
def test_a_file_that_is_rotated_goes_on_while_it_is_read_and_when_it_is_read_again(
    tmp_path: Path, way: str, again: bool
) -> None:
    log, source, found = Rotating(tmp_path, way), sources.text(tmp_path / "app.log", follow=True), []
    reader = source.open()
    draw = random.Random(way)
    for step in range(30):
        log.write(draw.randrange(4))
        if draw.random() < 0.3:
            found += reader.read(draw.randrange(1, 5)) or []
        if draw.random() < 0.4 and log.days < 8:
            log.rotate()
        if draw.random() < 0.6:
            found += read_all(reader)
        if again and draw.random() < 0.4:
            position = json.loads(json.dumps(reader.position()))
            reader.close()
            for _ in range(draw.randrange(3) if log.days < 7 else 0):
                log.write(draw.randrange(3))
                log.rotate()
            reader = source.open()
            reader.seek(position)
        assert found == log.written[: len(found)], step
    log.write(1)
    found += read_all(reader)
    reader.close()
    assert found == log.written


PACKED: dict[str, Callable[[bytes], bytes]] = {
    "": bytes, ".gz": gzip.compress, ".bz2": bz2.compress, ".xz": lzma.compress,
    ".zst": lambda data: _by_arrow(data, "zstd"), ".lz4": lambda data: _by_arrow(data, "lz4"),
}  # fmt: skip


def _by_arrow(data: bytes, codec: str) -> bytes:
    written = pa.BufferOutputStream()
    with pa.CompressedOutputStream(written, codec) as stream:
        stream.write(data)
    return bytes(written.getvalue())


@pytest.mark.parametrize("resumes", [False, True])
@pytest.mark.parametrize("empty", [b"", b"\n", b"n\n"], ids=["empty", "line", "header"])
@pytest.mark.parametrize("packing", PACKED)
def test_a_piece_of_a_log_of_csv_without_rows_is_passed_over_however_it_is_packed(
    tmp_path: Path, packing: str, empty: bytes, resumes: bool
) -> None:
    def read(reader: Reader) -> list[Any]:
        while not (found := read_all(reader)):  # a piece with a header alone may be a copy that is not cut yet
            assert woken(reader)
        return found

    path = tmp_path / "app.csv"
    source = sources.csv(path, follow=True)
    path.write_bytes(b"n\n1\n")
    with opened(source) as reader:
        assert read(reader) == [{"n": "1"}]
        position = reader.position()
        path.rename(tmp_path / "app.csv.3")
        for number in (2, 1):  # two in a row
            (tmp_path / f"app.csv.{number}{packing}").write_bytes(PACKED[packing](empty))
        path.write_bytes(b"n\n2\n")
        if not resumes:
            assert read(reader) == [{"n": "2"}]
    with opened(source, position) as reader:
        assert read(reader) == [{"n": "2"}]
        position = reader.position()
        for number, ending in ((3, ""), (2, packing), (1, packing), (0, "")):
            name = f"app.csv.{number}" if number else "app.csv"
            (tmp_path / f"{name}{ending}").rename(tmp_path / f"app.csv.{number + 1}{ending}")
        path.write_bytes(b"n\n3\n")
        if not resumes:
            assert read(reader) == [{"n": "3"}]
    with opened(source, position) as reader:
        assert read(reader) == [{"n": "3"}]


def test_what_was_read_of_a_file_after_it_was_copied_does_not_come_again(tmp_path: Path) -> None:
    path = tmp_path / "app.log"
    append(path, "one\ntwo\n")
    with opened(sources.text(path, follow=True)) as reader:
        assert reader.read(1) == ["one"] and read_all(reader) == ["two"]
        (tmp_path / "app.log.1").write_bytes(path.read_bytes())
        append(path, "three\n")
        assert read_all(reader) == ["three"]
        path.write_bytes(b"")
        append(path, "four\n")
        assert read_all(reader) == ["four"]


@pytest.mark.parametrize("resumes", [False, True])
@pytest.mark.parametrize("older", ["", "no JSON\n"])
def test_what_was_written_comes_though_older_pieces_are_removed_before_anything_was_read(
    tmp_path: Path, older: str, resumes: bool
) -> None:
    path, source = tmp_path / "app.log", sources.jsonl(tmp_path / "app.log", follow=True)
    append(tmp_path / "app-20260101.log", older)
    append(tmp_path / "app-20260102.log", older)
    append(tmp_path / "app-20260103.log", "")
    path.touch()
    with opened(source) as reader:
        assert read_all(reader) == []
        position = reader.position() if resumes else None
        for day, line in enumerate(("4\n", "5\n", "6\n")):
            append(path, line)
            path.rename(tmp_path / f"app-2026020{day}.log")
            path.touch()
        for old in ("20260101", "20260103"):
            (tmp_path / f"app-{old}.log").unlink()
        if not resumes:
            assert read_all(reader) == [4, 5, 6]
            return
    with opened(source, position) as reader:
        assert read_all(reader) == [4, 5, 6]


def test_what_was_written_to_the_file_before_the_first_read_comes_though_older_pieces_are_removed(
    tmp_path: Path,
) -> None:
    path, source = tmp_path / "app.log", sources.text(tmp_path / "app.log", follow=True)
    append(tmp_path / "app.log.2", "1\n")
    append(tmp_path / "app.log.1", "2\n")
    append(path, "3\n")
    with opened(source) as reader:
        position = reader.position()  # that of a checkpoint before anything was read
    for number in (1, 0):
        (tmp_path / ("app.log.1" if number else "app.log")).rename(tmp_path / f"app.log.{number + 1}")
    append(path, "4\n")
    with opened(source, position) as reader:
        assert read_all(reader) == ["3", "4"]


@pytest.mark.parametrize("was_read", [0, 1])
def test_a_copy_of_a_file_that_is_not_cut_yet_is_not_read_beside_it(tmp_path: Path, was_read: int) -> None:
    path, source = tmp_path / "app.log", sources.text(tmp_path / "app.log", follow=True)
    append(path, "")
    with opened(source) as reader:
        append(path, "one\ntwo\n")
        assert reader.read(1) == ["one"] if was_read else True
        position = reader.position()
    with opened(source, position) as reader:
        (tmp_path / "app.log.1").write_bytes(path.read_bytes()[:6])  # it is being copied
        assert reader.read(9) == [] and woken(reader)
        (tmp_path / "app.log.1").write_bytes(path.read_bytes())
        assert reader.read(9) == [] and woken(reader)
        path.write_bytes(b"")
        append(path, "three\n")
        assert read_all(reader) == ["one", "two", "three"][was_read:]


def test_pieces_that_repeat_each_other_are_each_read(tmp_path: Path) -> None:
    path, source = tmp_path / "app.log", sources.text(tmp_path / "app.log", follow=True)
    append(path, "")
    with opened(source) as reader:
        append(tmp_path / "app.log.1", "begin\n")
        append(path, "begin\nmore\n")
        assert reader.read(9) == [] and woken(reader), "it may be a copy"
        found = read_all(reader)
        while not found:  # the newest piece may be a copy that is not cut yet
            assert woken(reader)
            found = read_all(reader)
        assert found == ["begin", "begin", "more"]


def test_a_file_that_was_copied_and_cut_and_then_renamed_goes_on(tmp_path: Path) -> None:
    path, source = tmp_path / "app.log", sources.text(tmp_path / "app.log", follow=True)
    append(path, "one\n")
    with opened(source) as reader:
        assert read_all(reader) == ["one"]
        (tmp_path / "app.log.2").write_bytes(path.read_bytes())
        path.write_bytes(b"")
        append(path, "two\nthree\n")
        path.rename(tmp_path / "app.log.1")
        append(path, "four\n")
        assert read_all(reader) == ["two", "three", "four"]


def test_older_pieces_of_csv_are_known_by_their_ends(tmp_path: Path) -> None:
    path, source = tmp_path / "app.log", sources.csv(tmp_path / "app.log", follow=True)
    append(tmp_path / "app.log.1", "n\n1\n")
    path.touch()
    with opened(source) as reader:
        assert read_all(reader) == []
        position = reader.position()
        append(path, "n\n2\n")
        assert read_all(reader) == [{"n": "2"}]
    with opened(source, position) as reader:
        assert read_all(reader) == [{"n": "2"}]
    (tmp_path / "app.log.1").rename(tmp_path / "app.log.2")
    path.rename(tmp_path / "app.log.1")
    append(path, "n\n3\n")
    with opened(source, position) as reader:
        assert read_all(reader) == [{"n": "2"}, {"n": "3"}]


def test_a_piece_that_ends_with_lines_of_which_nothing_is_made_is_known_by_its_end(tmp_path: Path) -> None:
    path, source = tmp_path / "app.log", sources.jsonl(tmp_path / "app.log", follow=True)
    append(path, "1\n\n")
    with opened(source) as reader:
        assert read_all(reader) == [1]
        path.rename(tmp_path / "app.log.1")
        append(path, "2\n")
        assert read_all(reader) == [2]
        position = reader.position()
    (tmp_path / "app.log.1").rename(tmp_path / "app.log.2")
    path.rename(tmp_path / "app.log.1")
    append(path, "3\n")
    with opened(source, position) as reader:
        assert read_all(reader) == [3]


@pytest.mark.parametrize("end", ["", "0\n"])
def test_a_run_that_resumes_goes_on_behind_pieces_in_which_nothing_is_though_a_newer_one_begins_equally(
    tmp_path: Path, end: str
) -> None:
    path, source = tmp_path / "app.log", sources.text(tmp_path / "app.log", follow=True)
    append(tmp_path / "app.log.2", end)
    append(tmp_path / "app.log.1", "")
    path.touch()
    with opened(source) as reader:
        assert read_all(reader) == []
        append(path, "begin\n")
        assert read_all(reader) == ["begin"]
        position = reader.position()
    append(path, "1\n")
    for number in (2, 1):
        (tmp_path / f"app.log.{number}").rename(tmp_path / f"app.log.{number + 1}")
    path.rename(tmp_path / "app.log.1")
    append(path, "begin\n2\n")
    with opened(source, position) as reader:
        assert read_all(reader) == ["1", "begin", "2"]


@pytest.mark.parametrize("first", ["begin\n", ""])
def test_of_pieces_in_which_the_same_is_the_one_that_was_read_is_known(tmp_path: Path, first: str) -> None:
    path, source = tmp_path / "app.log", sources.text(tmp_path / "app.log", follow=True)
    append(tmp_path / "app-20260101.log", "begin\n")
    append(path, first)
    with opened(source) as reader:
        assert read_all(reader) == first.split()
        path.rename(tmp_path / "app-20260102.log")
        path.touch()
        assert read_all(reader) == []
        position = reader.position()
    append(path, "begin\n")
    path.rename(tmp_path / "app-20260103.log")
    append(path, "begin\nmore\n")
    with opened(source, position) as reader:
        found = read_all(reader)
        while not found:  # the newest piece may be a copy that is not cut yet
            assert woken(reader)
            found = read_all(reader)
        assert found == ["begin", "begin", "more"]


@pytest.mark.parametrize("number", [False, True])
def test_of_pieces_that_begin_equally_the_one_that_was_read_is_known_though_those_before_it_are_gone(
    tmp_path: Path, number: bool
) -> None:
    path, source = tmp_path / "app.log", sources.text(tmp_path / "app.log", follow=True)
    first, second = ("app.log.2", "app.log.1") if number else ("app-20260101.log", "app-20260102.log")
    append(path, "1\n")
    with opened(source) as reader:
        assert read_all(reader) == ["1"]
        path.rename(tmp_path / ("app.log.1" if number else first))
        append(path, "begin\n")
        assert read_all(reader) == ["begin"]
        position = reader.position()
    (tmp_path / ("app.log.1" if number else first)).unlink()
    append(path, "2\n")
    path.rename(tmp_path / second)
    append(path, "begin\n3\n")
    with opened(source, position) as reader:
        assert read_all(reader) == ["2", "begin", "3"]


def test_pieces_of_which_nothing_says_which_one_was_read_end_the_input(tmp_path: Path) -> None:
    path, source = tmp_path / "app.log", sources.text(tmp_path / "app.log", follow=True)

    def rotate(day: int) -> None:
        (tmp_path / f"app-2026010{day}.log").write_bytes(path.read_bytes())
        path.write_bytes(b"")

    append(path, "1\n")
    with opened(source) as reader:
        assert read_all(reader) == ["1"]
        rotate(1)
        append(path, "begin\n")
        assert read_all(reader) == ["begin"]
        position = reader.position()
    append(path, "2\n")
    rotate(2)
    append(path, "begin\n3\n")
    with opened(source, position) as reader:
        assert read_all(reader) == ["2", "begin", "3"], "it is the one behind the first"
    (tmp_path / "app-20260101.log").unlink()
    with opened(source, position) as reader:
        assert reader.read(9) == [] and woken(reader)
        with pytest.raises(drift.InputError, match=r"each of app-20260102.log, app.log begins with what was read of"):
            reader.read(9)


def test_of_copies_that_begin_equally_the_one_without_what_was_read_last_is_that_behind_the_last_piece(
    tmp_path: Path,
) -> None:
    path, source = tmp_path / "app.log", sources.text(tmp_path / "app.log", follow=True)

    def rotate(day: int, copied: int | None = None) -> None:
        (tmp_path / f"app-2026010{day}.log").write_bytes(path.read_bytes()[:copied])
        path.write_bytes(b"")

    append(path, "1\n")
    with opened(source) as reader:
        assert read_all(reader) == ["1"]
        rotate(1)
        append(path, "begin\n")
        assert read_all(reader) == ["begin"]
        append(path, "2\n3\n")
        assert read_all(reader) == ["2", "3"]
        position = reader.position()
    rotate(2, len("begin\n2\n"))
    append(path, "begin\n4\n")
    rotate(3)
    append(path, "5\n")
    with opened(source, position) as reader:
        assert read_all(reader) == ["begin", "4", "5"]


@pytest.mark.parametrize("days", [1, 2])
def test_a_file_that_was_cut_and_begins_as_its_copy_is_another_one(tmp_path: Path, days: int) -> None:
    path, source = tmp_path / "app.log", sources.text(tmp_path / "app.log", follow=True)
    append(path, "begin\n")
    with opened(source) as reader:
        assert read_all(reader) == ["begin"]
        for day in range(1, days + 1):
            append(path, f"{day}\n")
            copy = tmp_path / f"app-2026010{day}.log"
            copy.write_bytes(path.read_bytes()[:7])
            if day == 1:
                assert read_all(reader) == ["1"], "it is being copied"
            copy.write_bytes(path.read_bytes())
            if day == 1:
                assert read_all(reader) == [], "it was not cut yet"
                append(path, "more\n")
                copy.write_bytes(path.read_bytes())
            path.write_bytes(b"")
            append(path, "begin\n")
        append(path, "1\nand more\n")
        assert read_all(reader) == ["more", *(["begin", "2"] if days == 2 else []), "begin", "1", "and more"]


def test_what_is_written_to_a_renamed_file_comes_before_what_is_written_to_the_new_one(tmp_path: Path) -> None:
    path = tmp_path / "app.log"
    append(path, "one\n")
    with opened(sources.text(path, follow=True)) as reader:
        assert read_all(reader) == ["one"]
        path.rename(tmp_path / "app.log.1")
        assert read_all(reader) == []
        position = reader.position()
    with opened(sources.text(path, follow=True), position) as reader:
        assert read_all(reader) == [], "nothing has the name of the file yet"
        path.touch()
        position = reader.position()
    with opened(sources.text(path, follow=True), position) as reader:
        assert read_all(reader) == []
        append(tmp_path / "app.log.1", "two\n")
        assert read_all(reader) == ["two"]
        append(path, "three\n")
        assert read_all(reader) == ["three"]


def test_a_piece_that_was_removed_unread_ends_the_input(tmp_path: Path) -> None:
    log, source = Rotating(tmp_path, "rename"), sources.text(tmp_path / "app.log", follow=True)
    log.write(3)
    with opened(source) as reader:
        assert read_all(reader) == log.written
        position = reader.position()
    for _ in range(3):
        log.rotate()
        log.write(2)
    (tmp_path / "app.log.2").unlink()
    with opened(source, position) as reader:
        assert reader.read(10) == [] and woken(reader)
        with pytest.raises(drift.InputError, match="was rotated, and piece 2 is not there, and piece 3 is"):
            reader.read(10)


def test_a_file_that_is_written_over_by_more_than_was_read_ends_the_input(tmp_path: Path) -> None:
    append(tmp_path / "1", "one\ntwo\n")
    with opened(sources.text(tmp_path, follow=True)) as reader:
        assert read_all(reader) == ["one", "two"]
        (tmp_path / "1").write_text("ONE\nTWO\nthree\nfour\n")
        assert woken(reader)
        with pytest.raises(drift.InputError, match=r"line 3: the file was cut or written over .* before byte 8"):
            read_all(reader)


def test_what_cannot_be_followed_is_refused(tmp_path: Path) -> None:
    with pytest.raises(drift.SettingsError, match="standard input ends"):
        sources.text("-", follow=True)
    with pytest.raises(drift.InputError, match="is not a folder"):
        sources.text(tmp_path / "nowhere" / "*.txt", follow=True).open()
    with pytest.raises(drift.InputError, match="does not exist"):
        sources.text(tmp_path / "app.log", follow=True).open()


def test_a_run_with_state_resumes_in_the_folder(tmp_path: Path, nothing_left: None) -> None:
    graph = drift.Graph("grows")
    by_time = drift.EventTime(time=lambda n: n)
    graph.source("n", time=by_time).scan(key=lambda n: n % 2, initial=0, step=lambda s, n: (s + 1, (n, s + 1))).sink(
        "out"
    )
    folder = tmp_path / "in"
    folder.mkdir()
    found: list[Any] = []
    for day in range(3):
        append(folder / f"{day}.jsonl", "".join(f"{n}\n" for n in range(4 * day, 4 * day + 4)))
        source = source_of(f"follow:jsonl:{folder}")
        with drift.run(graph, {"n": source}, state=tmp_path / "state") as run:
            for item in run:
                found.append(item.payload)
                if item.payload[0] == 4 * day + 2:
                    run.stop()
    assert found == [(n, n // 2 + 1) for n in range(11)]  # another of the time of the last might come
