"""Sources with a schema give rows as columns: the payloads of the same source without, and the same errors in place."""

from __future__ import annotations

import gzip
import json
import sqlite3
from collections.abc import Callable
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

import drift
from drift.columns.rows import Frame
from drift_graph.errors import InputError, SettingsError

SCHEMA = {"id": int, "key": str, "fare": float, "ok": bool}
Rows = list[dict[str, Any]]
rows_of_trips = st.lists(
    st.fixed_dictionaries(
        {
            "key": st.text("ab\n\"',é", max_size=4),
            "fare": st.none() | st.floats(allow_nan=False, allow_infinity=False),
            "ok": st.none() | st.booleans(),
        }
    ),
    max_size=30,
).map(lambda rows: [{name: {"id": at, **row}[name] for name in SCHEMA} for at, row in enumerate(rows)])


def cell(value: Any) -> str:
    return "" if value is None else str(value).lower() if type(value) is bool else str(value)


def csv(path: Path, rows: Rows, **more: Any) -> Any:
    quoted = [['"' + cell(value).replace('"', '""') + '"' for value in row.values()] for row in rows]
    text = "\r\n".join(map(",".join, [list(SCHEMA), *quoted])) + "\r\n"
    path.write_bytes(gzip.compress(text.encode()) if path.suffix == ".gz" else text.encode())
    return drift.sources.csv(path, schema=SCHEMA, **more)


def jsonl(path: Path, rows: Rows) -> Any:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return drift.sources.jsonl(path, schema=SCHEMA)


def sqlite(path: Path, rows: Rows) -> Any:
    path.unlink(missing_ok=True)
    with sqlite3.connect(path) as connection:
        connection.execute("create table trips (id integer primary key, key text, fare real, ok integer)")
        connection.executemany("insert into trips values (?, ?, ?, ?)", [tuple(row.values()) for row in rows])
    connection.close()
    return drift.sources.sqlite(str(path), "trips", key="id", schema={**SCHEMA, "ok": int}, rows_at_once=7)


def read(source: Any, items_max: int = 5) -> list[Any]:
    reader = source.open()
    found: list[Any] = []
    while (payloads := reader.read(items_max)) is not None:
        found.append(payloads)
    reader.close()
    return found


MAKERS: list[Callable[[Path, Rows], Any]] = [csv, jsonl, sqlite]


@pytest.mark.parametrize("make", MAKERS)
@given(rows=rows_of_trips, items_max=st.integers(1, 9))
def test_rows_are_the_payloads(
    make: Callable[[Path, Rows], Any], tmp_path_factory: pytest.TempPathFactory, rows: Rows, items_max: int
) -> None:
    found = read(make(tmp_path_factory.mktemp("rows") / "trips", rows), items_max)
    assert {type(each) for each in found if len(each)} <= {Frame}
    payloads = [payload for each in found for payload in each]
    assert payloads == (rows if make is not sqlite else [{**row, "ok": as_int(row["ok"])} for row in rows])


def as_int(value: bool | None) -> int | None:
    return None if value is None else int(value)


ROWS: Rows = [{"id": n, "key": "a", "fare": n / 4, "ok": n % 2 == 0} for n in range(100)]


@pytest.mark.parametrize("make", MAKERS)
def test_a_run_resumes_where_rows_ended(make: Callable[[Path, Rows], Any], tmp_path: Path) -> None:
    source = make(tmp_path / "trips", ROWS)
    reader = source.open()
    before = [*reader.read(33), *reader.read(20)]
    position = reader.position()
    reader.close()
    again = source.open()
    again.seek(position)
    behind: list[Any] = []
    while (payloads := again.read(33)) is not None:
        behind += payloads
    assert [row["id"] for row in before + behind] == list(range(100))


BAD: list[tuple[Callable[[Path], Any], str]] = [
    (lambda path: changed_csv(path, "42,", "4x2,"), "line 44: the column 'id' has '4x2', which is no Int64"),
    (lambda path: changed_csv(path, "42,a,10.5,true", "42,a,10.5,yes"), "line 44: the column 'ok' has 'yes'"),
    (lambda path: changed_csv(path, "42,a,10.5,true", "42,a"), "line 44: 2 columns where the header has 4"),
    (lambda path: changed_jsonl(path, '{"id": 42,', '{"id": "42",'), "line 43: .* Expected `int"),
    (lambda path: changed_jsonl(path, '{"id": 42,', '{"id": 99999999999999999999,'), "line 43: "),
    (lambda path: changed_jsonl(path, '{"id": 42, "key": "a",', '{"id": 42,'), "line 43: .* missing required"),
    (lambda path: changed_jsonl(path, '{"id": 42,', '{"id": 42, "more": 1,'), "line 43: .* unknown field"),
    (lambda path: changed_sqlite(path), "the row with id 42: it is not of the schema: the field 'fare' is Float64"),
]


def changed_csv(path: Path, old: str, new: str) -> Any:
    lines = [",".join(map(cell, row.values())) for row in ROWS]
    text = "\n".join([",".join(SCHEMA), *lines])
    assert text.count("\n" + old) == 1
    path.write_text(text.replace("\n" + old, "\n" + new))
    return drift.sources.csv(path, schema=SCHEMA)


def changed_jsonl(path: Path, old: str, new: str) -> Any:
    jsonl(path, ROWS)
    text = path.read_text()
    assert text.count(old) == 1
    path.write_text(text.replace(old, new))
    return drift.sources.jsonl(path, schema=SCHEMA)


def changed_sqlite(path: Path) -> Any:
    source = sqlite(path, ROWS)
    with sqlite3.connect(path) as connection:
        connection.execute("update trips set fare = 'dear' where id = 42")
    connection.close()
    return source


@pytest.mark.parametrize(("make", "says"), BAD)
@pytest.mark.parametrize("items_max", [1, 64])
def test_a_row_that_is_not_of_the_schema_ends_the_input_behind_those_before_it(
    make: Callable[[Path], Any], says: str, items_max: int, tmp_path: Path
) -> None:
    reader = make(tmp_path / "trips").open()
    found: list[Any] = []
    with pytest.raises(InputError, match=says):
        while True:
            found += reader.read(items_max)
    assert [row["id"] for row in found] == list(range(42))


@pytest.mark.parametrize(("make", "says"), BAD)
def test_or_it_is_diverted_in_its_place(make: Callable[[Path], Any], says: str, tmp_path: Path) -> None:
    graph = drift.Graph("diverts")
    graph.source("trips", on_error="divert").map(lambda row: row["id"]).sink("out")
    run = drift.run(graph, {"trips": make(tmp_path / "trips")})
    items = list(run)
    assert [item.payload for item in items if item.sink == "out"] == [n for n in range(100) if n != 42]
    (at,) = [at for at, item in enumerate(items) if item.sink == "errors"]
    assert at == 42


@pytest.mark.parametrize(
    ("kind", "good", "bad"),
    [
        (pl.Decimal(6, 2), "1.5", "NaN"),
        (pl.Decimal(6, 2), "1.5", "-inf"),
        (pl.Time, "12:00:00.123456", "12:00:00Z"),
        (pl.Time, "12:00:00", "12:00:00+01:00"),
        (pl.Time, "12:00:00.1234560", "12:00:00.1234567"),
        (pl.Datetime("us"), "2013-01-01T12:00:00.1234560", "2013-01-01T12:00:00.1234567"),
        (pl.Datetime("us", "UTC"), "2013-01-01 12:00:00Z", "2013-01-01 12:00:00.1234567Z"),
    ],
)
def test_nothing_of_a_cell_is_lost(kind: Any, good: str, bad: str, tmp_path: Path) -> None:
    (tmp_path / "cells.csv").write_text(f"a,b\n{good},1\n{bad},2\n{good},3\n")
    schema = {"a": kind, "b": int}
    graph = drift.Graph("cells")
    graph.source("cells", schema=schema, on_error="divert").sink("out")
    items = list(drift.run(graph, {"cells": drift.sources.csv(tmp_path / "cells.csv", schema=schema)}))
    assert [item.sink for item in items] == ["out", "errors", "out"]
    assert items[0].payload["a"] == items[2].payload["a"] is not None


def test_true_and_false_come_back_from_where_sinks_have_written_them(tmp_path: Path) -> None:
    rows = [{"ok": True}, {"ok": False}, {"ok": None}]
    graph = drift.Graph("again")
    graph.source("rows").sink("out")
    drift.run(graph, {"rows": rows}, sinks={"out": drift.sinks.csv(tmp_path / "ok.csv")}).finish()
    of_csv = drift.sources.csv(tmp_path / "ok.csv", schema={"position": int, "time": int, "ok": bool})
    assert [row["ok"] for each in read(of_csv, 9) for row in each] == [True, False, None]
    drift.run(graph, {"rows": rows}, sinks={"out": drift.sinks.sqlite(tmp_path / "ok.db", "ok")}).finish()
    schema = {"position": int, "ok": bool}
    of_table = drift.sources.sqlite(tmp_path / "ok.db", "select position, ok from ok", key="position", schema=schema)
    found = [row["ok"] for each in read(of_table, 9) for row in each]
    assert found == [True, False, None]


@pytest.mark.parametrize(
    ("make", "says"),
    [
        (lambda: drift.sources.csv("x", schema={"a": pl.List(int)}), "no text is read as one"),
        (lambda: drift.sources.csv("x", schema={"a": int}, convert={}), "not both"),
        (lambda: drift.sources.csv("x", schema={"fair": int}, columns=["fare"]), "did you mean 'fare'"),
        (lambda: drift.sources.csv("x", schema={}), "has no fields"),
        (lambda: drift.sources.jsonl("x", int, schema={"a": int}), "not both"),
        (lambda: drift.sources.sqlite("x", "t", key="a", payload="tuple", schema={"a": int}), "not both"),
    ],
)
def test_schemas_that_cannot_be_are_refused(make: Callable[[], Any], says: str) -> None:
    with pytest.raises(SettingsError, match=says):
        make()


def test_columns_that_a_file_or_query_has_not_are_named(tmp_path: Path) -> None:
    csv(tmp_path / "trips.csv", ROWS)
    with pytest.raises(InputError, match=r"schema= has 'fair', and the columns are .*; did you mean 'fare'"):
        read(drift.sources.csv(tmp_path / "trips.csv", schema={"fair": float}))
    sqlite(tmp_path / "trips.db", ROWS)
    with pytest.raises(InputError, match="name them in that order"):
        read(drift.sources.sqlite(str(tmp_path / "trips.db"), "trips", key="id", schema=SCHEMA | {"more": int}))


@pytest.mark.parametrize("encoding", ["utf-8-sig", "latin-1"])
def test_cells_of_csv_that_stand_for_no_value_are_none(tmp_path: Path, encoding: str) -> None:
    path = tmp_path / "na.csv"
    path.write_text("at,zone,fare\n1,a,1.5\n2,NA,NA\n3,,\n4,b,-\n")

    def read(**settings: Any) -> list[Any]:
        graph = drift.Graph("na")
        graph.source("rows").sink("out")
        source = drift.sources.csv(path, encoding=encoding, **settings)
        return [tuple(item.payload.values()) for item in drift.run(graph, {"rows": source})]

    typed = [(1, "a", 1.5), (2, None, None), (3, "", None), (4, "b", None)]
    assert read(schema={"at": int, "zone": str, "fare": float}, null_values=["NA", "-"]) == typed
    of_categories = [(at, zone or None, fare) for at, zone, fare in typed]
    assert read(schema={"at": int, "zone": pl.Categorical(), "fare": float}, null_values=["NA", "-"]) == of_categories
    texts = [("1", "a", "1.5"), ("2", None, None), ("3", "", ""), ("4", "b", "-")]
    assert read(null_values="NA") == texts
    converted = [("1", "a", 1.5), ("2", None, None), ("3", "", None), ("4", "b", None)]
    nulls = ["NA", "-"]
    assert read(null_values=nulls, convert={"fare": lambda text: float(text) if text else None}) == converted
    with pytest.raises(InputError, match=r"if 'NA' stands for no value, null_values=\['NA'\] reads None"):
        read(schema={"at": int, "zone": str, "fare": float})
    with pytest.raises(InputError, match=r"'1\.5'.* digits$"):
        read(schema={"at": int, "zone": str, "fare": int})
    with pytest.raises(SettingsError, match=r"null_values=\[0\] are no texts"):
        read(null_values=[0])
