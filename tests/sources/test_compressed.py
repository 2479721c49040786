"""Compressed files: all that was packed comes, and what is cut off, broken or no text is an error that says so."""

from __future__ import annotations

import bz2
import gzip
import io
import lzma
import tarfile
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import drift
from drift_graph.errors import InputError

LINES = "".join(f'{{"a": {at}}}\n' for at in range(5000)).encode()


def by_arrow(codec: str) -> Callable[[bytes], bytes]:
    return lambda data: bytes(pa.Codec(codec).compress(data, asbytes=True))


def archive(*files: tuple[str, bytes]) -> bytes:
    made = io.BytesIO()
    with zipfile.ZipFile(made, "w", zipfile.ZIP_DEFLATED) as writing:
        for name, data in files:
            writing.writestr(name, data)
    return made.getvalue()


def zipped(data: bytes, *names: str) -> bytes:
    return archive(*((name, data) for name in names or ("a.jsonl",)))


PACKED: dict[str, Callable[[bytes], bytes]] = {
    ".gz": gzip.compress,
    ".bz2": bz2.compress,
    ".xz": lzma.compress,
    ".zst": by_arrow("zstd"),
    ".lz4": by_arrow("lz4"),
    ".zip": zipped,
}
STREAMS = [ending for ending in PACKED if ending != ".zip"]


def read(path: Path, data: bytes, make: Any = drift.sources.jsonl) -> list[Any]:
    path.write_bytes(data)
    reader = make(path).open()
    found: list[Any] = []
    try:
        while (payloads := reader.read(700)) is not None:
            found += payloads
    except InputError as error:
        found.append(str(error))
    finally:
        reader.close()
    return found


ROWS = [{"a": at} for at in range(5000)]


@pytest.mark.parametrize("ending", PACKED)
def test_lines_come_from_a_file_of_any_packing_whatever_its_name(ending: str, tmp_path: Path) -> None:
    assert read(tmp_path / f"a.jsonl{ending}", PACKED[ending](LINES)) == ROWS
    assert read(tmp_path / "a.jsonl", PACKED[ending](LINES)) == ROWS
    cells = b"a,b\n" + b"1,2\n" * 50
    assert read(tmp_path / f"a.csv{ending}", PACKED[ending](cells), drift.sources.csv) == [{"a": "1", "b": "2"}] * 50


def check_resumes(path: Path, items: int) -> None:
    """A reader that begins behind so many items, or a few more, gives the next one."""
    source = drift.sources.jsonl(path)
    reader = source.open()
    before: list[Any] = []
    while len(before) < items:
        before += reader.read(700) or []
    position = reader.position()
    reader.close()
    again = source.open()
    again.seek(position)
    assert again.read(1) == [{"a": len(before)}]
    again.close()


@pytest.mark.parametrize("ending", PACKED)
def test_a_run_resumes_within_a_packed_file(ending: str, tmp_path: Path) -> None:
    path = tmp_path / f"a.jsonl{ending}"
    path.write_bytes(PACKED[ending](LINES))
    check_resumes(path, 3000)


@pytest.mark.parametrize("ending", STREAMS)
def test_members_follow_each_other_and_zeros_behind_them_are_nothing(ending: str, tmp_path: Path) -> None:
    pack = PACKED[ending]
    path = tmp_path / f"a.jsonl{ending}"
    half = LINES.index(b"\n", len(LINES) // 2) + 1
    assert read(path, pack(LINES[:half]) + pack(LINES[half:])) == ROWS
    if ending in (".gz", ".bz2", ".xz"):
        assert read(path, pack(LINES) + b"\0" * 512) == ROWS


@pytest.mark.parametrize("ending", STREAMS)
def test_what_is_cut_off_or_broken_is_an_error_behind_the_lines_before_it(ending: str, tmp_path: Path) -> None:
    pack = PACKED[ending]
    path = tmp_path / f"a.jsonl{ending}"
    whole = pack(LINES)
    cut = [(whole[:-missing], 0) for missing in range(1, 10)]
    for data, rows_min in (*cut, (whole + whole[: len(whole) // 3], 4880), (whole + whole[:4], 4880)):
        *rows, error = read(path, data)  # Arrow keeps what it has of a KiB to itself
        assert "end early" in error and len(rows) >= rows_min and rows[:5000] == ROWS[: len(rows[:5000])]
    for data, rows_min in ((whole + b"no member of anything", 4880), (b"one\n", 0)):
        *rows, error = read(path, data)
        assert ("broken" in error or "end early" in error) and rows == ROWS[: len(rows)] and len(rows) >= rows_min
    if ending in (".gz", ".bz2", ".xz"):  # others need not have a check sum
        *rows, error = read(path, whole[:-6] + bytes([whole[-6] ^ 1]) + whole[-5:])
        assert f"line {len(rows) + 1}: the " in error and "data are broken (" in error and rows == ROWS[: len(rows)]


@pytest.mark.parametrize("ending", PACKED)
def test_a_packed_file_of_no_bytes_is_no_empty_input(ending: str, tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"is empty, and a .* file of no lines has a header at least: it was cut off"):
        read(tmp_path / f"a.jsonl{ending}", b"")
    assert read(tmp_path / f"a.jsonl{ending}", PACKED[ending](b"")) == []
    assert read(tmp_path / "a.jsonl", b"") == []


def test_the_files_of_a_zip_file_follow_each_other_in_the_order_of_their_names(tmp_path: Path) -> None:
    cut = LINES.index(b"\n", len(LINES) // 3)
    files = {"b/2.jsonl": LINES[cut + 1 :], "__MACOSX/._1.jsonl": b"\0\5", "b/": b"", "b/1.jsonl": LINES[:cut]}
    path = tmp_path / "a.zip"
    assert read(path, archive(*files.items(), ("b/11.jsonl", b""))) == ROWS
    check_resumes(path, 4000)


@pytest.mark.filterwarnings("ignore:Duplicate name")
def test_two_files_of_a_zip_file_with_one_name_are_both_read(tmp_path: Path) -> None:
    first, second = b'{"a": 1}', b'{"a": 2}'
    assert read(tmp_path / "a.zip", archive(("a.jsonl", first), ("a.jsonl", second))) == [{"a": 1}, {"a": 2}]


def test_a_zip_file_without_files_or_with_several_tables_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="is a zip file with no files in it"):
        read(tmp_path / "a.zip", archive(("b/", b"")))
    found = read(tmp_path / "a.csv.zip", zipped(b"a,b\n1,2\n", "a.csv", "b.csv"), drift.sources.csv)
    assert len(found) == 1 and "is a zip file of 2 files, each of which has a header: unpack them into a" in found[0]


def tar() -> bytes:
    made = io.BytesIO()
    with tarfile.open(fileobj=made, mode="w:gz"):
        pass
    return made.getvalue()


def parquet() -> bytes:
    made = io.BytesIO()
    pq.write_table(pa.table({"a": [1]}), made)
    return made.getvalue()


@pytest.mark.parametrize(
    ("name", "data", "says"),
    [
        ("a.tar.gz", tar(), "a tar archive"),
        ("a.jsonl.snappy", b"\x10<{}", "compressed by Snappy"),
        ("a.jsonl", parquet(), r"a file of Parquet, and no text: read it with drift\.sources\.parquet"),
        ("a.jsonl", b"SQLite format 3\0", "a database of SQLite"),
    ],
    ids=["tar", "snappy", "parquet", "sqlite"],  # the archive has the time in it
)
@pytest.mark.parametrize("on_error", ["error", "divert"])
def test_what_is_no_text_is_refused_by_name(name: str, data: bytes, says: str, on_error: str, tmp_path: Path) -> None:
    (tmp_path / name).write_bytes(data)
    graph = drift.Graph("none")
    graph.source("s", on_error=on_error).sink("out")  # type: ignore[arg-type]
    with pytest.raises(InputError, match=says):
        list(drift.run(graph, {"s": drift.sources.jsonl(tmp_path / name)}))
