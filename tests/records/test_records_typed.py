"""Payloads of a record as typed columns."""

from __future__ import annotations

import dataclasses
from collections import namedtuple
from enum import Enum
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import drift

Point = namedtuple("Point", "x y")


class Kind(Enum):
    BUY = "buy"


@dataclasses.dataclass(frozen=True)
class Trip:
    origin: str
    delay: float


def recorded(path: Path, payloads: list[Any]) -> drift.Record:
    graph = drift.Graph("echo")
    given = graph.source("given")
    given.sink("all")
    given.filter(lambda payload: payload == payloads[0], name="is first").sink("first")
    drift.run(graph, {"given": payloads}, record=path).finish()
    return drift.Record(path)


@pytest.mark.parametrize(
    ("payloads", "columns"),
    [
        ([("a", 1), ("b", 2)], {"0": ["a", "b"], "1": [1, 2]}),
        ([{"word": "a", "n": 1}, {"word": "b"}], {"word": ["a", "b"], "n": [1, None]}),
        ([Point(1, 2.5), Point(2, 3.5)], {"x": [1, 2], "y": [2.5, 3.5]}),
        ([Trip("JFK", 1.0), Trip("LGA", -2.0)], {"origin": ["JFK", "LGA"], "delay": [1.0, -2.0]}),
        ([7, 8, None], {"value": [7, 8, None]}),
        ([("a", [1, 2]), ("b", [])], {"0": ["a", "b"], "1": [[1, 2], []]}),
        ([("a", (Trip("JFK", 1.0),))], {"0": ["a"], "1": [[{"origin": "JFK", "delay": 1.0}]]}),
        ([{"kind": Kind.BUY, "of": {2, 1}}], {"kind": ["buy"], "of": [[1, 2]]}),
        ([{"at": Point(1, 2.5)}], {"at": [{"x": 1, "y": 2.5}]}),
        ([{"time": 5, "row": 6}], {"payload.time": [5], "payload.row": [6]}),
    ],
    ids=[
        "tuples",
        "dicts",
        "named tuples",
        "dataclasses",
        "values",
        "lists",
        "objects in fields",
        "an Enum and a set",
        "a named tuple in a field",
        "names that are taken",
    ],
)
def test_fields_are_columns_and_the_input_as_well(payloads: list[Any], columns: dict[str, Any], tmp_path: Path) -> None:
    table = recorded(tmp_path / "record", payloads).table("input")
    assert table.column_names == ["row", "source", "time", *columns]
    assert {name: table.column(name).to_pylist() for name in columns} == columns
    assert table.column("row").to_pylist() == table.column("time").to_pylist() == list(range(len(payloads)))


def test_of_one_sink_from_one_position_up_to_another_with_names_or_types(tmp_path: Path) -> None:
    record = recorded(tmp_path / "record", [("a", 1), ("b", 2), ("a", 1)])
    table = record.table(of="first", columns=["word", "count"])
    assert table.to_pydict() == {
        "position": [1, 4], "sink": ["first", "first"], "time": [0, 2], "word": ["a", "a"], "count": [1, 1]
    }  # fmt: skip
    mixed = recorded(tmp_path / "mixed", [("a", 1), {"word": "b"}]).table("input", columns=["word", "count"])
    assert mixed.select(["word", "count"]).to_pydict() == {"word": ["a", "b"], "count": [1, None]}
    typed = record.table(columns={"word": pa.string(), "count": pa.int8()}, first=2, end=4)
    assert typed.schema.field("count").type == pa.int8() and typed.column("position").to_pylist() == [2, 3]
    assert len(record.table(first=5)) == 0
    with pytest.raises(drift.SettingsError, match="has no sink 'none'; it has 'all', 'first'"):
        record.table(of="none")
    with pytest.raises(drift.PayloadError, match="have the fields word"):
        record.table(columns=["word"])
    with pytest.raises(drift.PayloadError, match="'count' is bool"):
        record.table(columns={"word": pa.string(), "count": pa.bool_()})


@pytest.mark.parametrize("payloads", [[1, "one"], [("a", 1), ("b", 1, 2)], [2**70], [{1: 2}], [(0,) * 9999, 1]])
def test_what_no_column_holds_is_an_error_that_says_what_to_do(payloads: list[Any], tmp_path: Path) -> None:
    with pytest.raises(drift.PayloadError, match="of=NAME; else name types") as raised:
        recorded(tmp_path / "record", payloads).table()
    assert len(str(raised.value)) < 800


def test_batches_of_a_long_record_are_one_table(tmp_path: Path) -> None:
    count = 40_000
    rest = ({"n": number, "odd": number % 2 == 1} for number in range(1, count))
    table = recorded(tmp_path / "record", [{"n": None, "late": 1.5}, *rest]).table("input")
    assert table.column("n").to_pylist() == [None, *range(1, count)]
    assert table.column("late").to_pylist() == [1.5, *[None] * (count - 1)]
