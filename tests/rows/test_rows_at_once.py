"""Blocks of CSV and JSON lines that are read at once are those that are read row by row."""

from __future__ import annotations

import csv
import datetime
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

import drift
from drift.columns.cells import Cells
from drift_graph.errors import InputError
from drift_graph.payloads import are_rows

lines_of_csv = st.lists(
    st.sampled_from(
        [
            "a,b",
            "a,",
            ",",
            '"a",b',
            '"a,b",c',
            '"",""',
            "é,ü",
            " a , b",
            "a",
            "a,b,c",
            "",
            'a"b,c',
            '"a""b",c',
            'a,"b',
            'c",d',
            'c"',
            '"a"b,c',
            "a,b\r",
            '"a",b\r',
            "a\rb,c",
            "a\0b,c",
            "\ufeffa,b",
            "a;b,c",
            '"',
            '"a\r",b',
        ]
    ),
    max_size=6,
)
CLEAN = ["a,b", "a,", '"a",b', '"a,b",c', "é,ü", ' a ,"b"', "a,b\r"]


@given(lines_of_csv, st.booleans())
@example(CLEAN, True)
@example(["a,b\rc,d", ""], True)
@example(['a,"b', 'c"'], True)
@example(['x",",y"z', 'c,a"'], True)
def test_clean_lines_have_the_cells_that_pythons_reader_finds(lines: list[str], ends: bool) -> None:
    text = "\n".join(lines) + "\n" * ends
    found = Cells(["x", "y"], ["y", "x"], ",").columns(text.encode()) if text else None
    assert found is not None or lines != CLEAN or not ends
    if found is not None:
        given = text.removesuffix("\n").split("\n")
        wanted = list(csv.reader([line + "\n" for line in given], strict=True))  # it raises for what is no CSV
        assert [[x, y] for y, x in zip(*map(list, found))] == wanted


@pytest.mark.parametrize("delimiter", ["|", "\t"])
def test_cells_are_cut_at_the_delimiter(delimiter: str) -> None:
    found = Cells(["x", "y"], ["x", "y"], delimiter).columns(f'a{delimiter}"b,{delimiter}c"\n'.encode())
    assert found is not None
    assert [list(each) for each in found] == [["a"], [f"b,{delimiter}c"]]
    assert Cells(["x", "y"], ["x", "y"], delimiter).columns(b'a,"b"\n') is None


def test_a_field_is_as_long_as_pythons_reader_takes(monkeypatch: pytest.MonkeyPatch) -> None:
    cells = Cells(["x", "y"], ["x"], ",")
    assert cells.columns(b"a,b\nabcdef,b\n") is not None
    before = csv.field_size_limit(6)
    try:
        assert cells.columns(b"a,b\nabcdef,b\n") is None
    finally:
        csv.field_size_limit(before)


SCHEMA = {
    "n": int,
    "text": str,
    "day": datetime.date,
    "at": pl.Datetime("us", "UTC"),
    "ok": bool,
    "local": datetime.datetime,
}
ROWS = [f"{at},t{at % 7},2013-01-0{at % 9 + 1},2013-01-01T00:00:{at % 60:02}Z,true,\n" for at in range(60)]
ODD = [
    '7,"two\nlines",2013-01-01,,,\n',
    "\n",
    '8,"a ""quoted"" text",2013-W01-1,,,2013-01-01\n',
    '"9","x",2013-01-01,,,\r\n',
]
BAD = ["x,a,2013-01-01,,,\n", "1,a\n", '2,a"b","c"d,,,\n', "3,a,2013-02-30,,,\n"]


@contextmanager
def row_by_row() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Cells, "takes", lambda parameters: False)
        yield


def read_all(source: Any, items_max: int, position: Any = None) -> tuple[list[Any], list[Any], str]:
    """Payloads, the position behind each batch, and the error."""
    reader, found, positions = source.open(), [], []
    try:
        if position is not None:
            reader.seek(position)
        while (batch := reader.read(items_max)) is not None:
            assert are_rows(batch)
            found += batch
            positions.append((len(found), reader.position()))
    except InputError as error:
        return found, positions, str(error)
    finally:
        reader.close()
    return found, positions, ""


@given(
    rows=st.lists(st.sampled_from([*ROWS, *ODD]), max_size=30),
    bad=st.lists(st.sampled_from(BAD), max_size=1),
    chunk_bytes=st.sampled_from([1, 30, 200, 1 << 18]),
    items_max=st.integers(1, 20),
)
def test_a_file_gives_the_same_however_its_blocks_are_read(
    rows: list[str], bad: list[str], chunk_bytes: int, items_max: int, tmp_path_factory: pytest.TempPathFactory
) -> None:
    path: Path = tmp_path_factory.getbasetemp() / "rows_at_once.csv"
    lines = [*rows[:20], *bad, *rows[20:]]
    path.write_bytes("".join([",".join(SCHEMA) + "\n", *lines]).encode())
    source = drift.sources.csv(path, schema=SCHEMA)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("drift.sources.chunks._CHUNK_BYTES", chunk_bytes)
        found, positions, fault = read_all(source, items_max)
        with row_by_row():
            wanted, _, says = read_all(source, 1 << 16)
        assert (found, fault) == (wanted, says)
        for count, position in positions[-3:]:
            rest, _, again = read_all(source, items_max, position)
            assert (rest, again) == (found[count:], fault)


def test_a_clean_file_is_read_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "clean.csv"
    path.write_text("".join(ROWS))
    monkeypatch.setattr("drift.sources.chunks._CHUNK_BYTES", 100)
    found: list[int] = []
    columns = Cells.columns

    def noted(self: Cells, data: bytes) -> Any:
        found.append(data.count(b"\n"))
        return columns(self, data)

    monkeypatch.setattr(Cells, "columns", noted)
    header = drift.sources.csv(path, schema=SCHEMA, columns=list(SCHEMA))
    assert [row["n"] for row in read_all(header, 7)[0]] == [*range(60)]
    assert sum(found) == 60


def test_json_lines_are_read_at_once_up_to_a_line_that_is_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "rows.jsonl"
    lines = [f'{{"n": {at}}}\n' for at in range(40)]
    path.write_text("".join([*lines[:20], "\n", *lines[20:], '{"n": "x"}\n', '{"n": 5}\n']))
    monkeypatch.setattr("drift.sources.chunks._CHUNK_BYTES", 4)
    found, _, fault = read_all(drift.sources.jsonl(path, schema={"n": int}), 3)
    assert [row["n"] for row in found] == [*range(40)]
    assert "line 42: cannot be decoded as JSON" in fault
