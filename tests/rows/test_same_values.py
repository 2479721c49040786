"""One reading of a value of each type: the same item, or the same refusal, through every reader."""

from __future__ import annotations

import csv
import datetime
import decimal
import io
import json
import math
from collections.abc import Callable, Sequence
from datetime import UTC
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

import drift
from drift.columns.expressions import fields_of
from drift.columns.rows import Frame
from drift.columns.schema_rows import SchemaRows
from drift.columns.values import at_once, of_text
from drift.sources.base import as_rows
from drift.sources.json_rows import RowValues
from drift.sources.polled import Fetched, PolledSource, Poller, decoder
from drift_graph.diverted import is_diverted
from drift_graph.errors import InputError, SettingsError

REFUSED = "refused"
D, DT, TD = decimal.Decimal, datetime.datetime, datetime.timedelta
US, UTC_US, MS, NS = pl.Datetime("us"), pl.Datetime("us", "UTC"), pl.Datetime("ms"), pl.Datetime("ns")
LAST = "2024-02-29T23:59:59.999999"


class Case(NamedTuple):
    """Attributes:
    text: of a cell, and of a string of JSON; None if the forms differ.
    json: if it is not the text as a string.
    expected: the value, or REFUSED.
    kind: the Python type for `type=`, if it has the values of this one.
    """

    of: Any
    text: str | None
    expected: Any
    json: str | None = None
    kind: Any = None

    @property
    def literal(self) -> str:
        return json.dumps(self.text) if self.json is None else self.json


def number(of: Any, text: str, expected: Any, kind: Any = None) -> Case:
    return Case(of, text, expected, text, kind)


CASES = [
    number(pl.Int64, "9223372036854775807", 2**63 - 1),
    number(pl.Int64, "9223372036854775808", REFUSED),
    number(pl.Int64, "1.0", REFUSED, int),
    number(pl.Int64, "1e2", REFUSED, int),
    number(pl.Int8, "200", REFUSED),
    number(pl.UInt8, "-1", REFUSED),
    number(pl.UInt8, "-0", 0),
    number(pl.UInt64, "18446744073709551615", 2**64 - 1),
    number(pl.UInt64, "18446744073709551616", REFUSED),
    number(pl.Float64, "0.1", 0.1, float),
    number(pl.Float64, "1", 1.0, float),
    number(pl.Float64, "9007199254740992", 2.0**53, float),
    number(pl.Float64, "9007199254740993", REFUSED, float),
    number(pl.Float64, "-9007199254740993", REFUSED, float),
    number(pl.Float64, "9007199254740993.0", 2.0**53, float),
    number(pl.Float64, "123456789012345678", REFUSED, float),
    number(pl.Float64, "123456789012345680", 123456789012345680.0, float),
    number(pl.Float64, "1e400", REFUSED, float),
    number(pl.Float64, "-1e400", REFUSED, float),
    number(pl.Float64, "1" + "0" * 400, REFUSED, float),
    number(pl.Float64, "1e-400", 0.0, float),
    number(pl.Float32, "0.5", 0.5),
    number(pl.Float32, "0.1", REFUSED),
    number(pl.Float32, "0.10000000149011612", 0.10000000149011612),
    number(pl.Float32, "16777217", REFUSED),
    number(pl.Float32, "1e39", REFUSED),
    Case(pl.Float64, "abc", REFUSED, kind=float),
    number(pl.Boolean, "true", True, bool),
    number(pl.Boolean, "1", REFUSED, bool),
    Case(pl.String, "a:\"b\"", "a:\"b\"", kind=str),
    Case(pl.Enum(["a", "b"]), "b", "b"),
    Case(pl.Enum(["a", "b"]), "c", REFUSED),
    Case(pl.Categorical(), "c", "c"),
    number(pl.Decimal(6, 2), "1.10", D("1.10")),
    Case(pl.Decimal(6, 2), "1.10", D("1.10")),
    number(pl.Decimal(6, 2), "-0.0", D("0.00")),
    number(pl.Decimal(6, 2), "1.105", REFUSED),
    number(pl.Decimal(6, 2), "12345", REFUSED),
    number(pl.Decimal(38, 18), "0.100000000000000005", D("0.100000000000000005")),
    number(pl.Decimal(6, 2), "1e2", D("100.00")),
    Case(pl.Decimal(6, 2), "1_0", REFUSED),
    Case(pl.Decimal(6, 2), "NaN", REFUSED),
    Case(pl.Date, "2024-02-29", datetime.date(2024, 2, 29), kind=datetime.date),
    Case(pl.Date, "2023-02-29", REFUSED, kind=datetime.date),
    Case(pl.Date, "0000-02-29", REFUSED, kind=datetime.date),
    Case(pl.Time, "23:59:59.999999", datetime.time(23, 59, 59, 999999), kind=datetime.time),
    Case(pl.Time, "23:59:59.9999999", REFUSED, kind=datetime.time),
    Case(pl.Time, "24:00:00", REFUSED, kind=datetime.time),
    Case(pl.Time, "20240131", REFUSED, kind=datetime.time),
    Case(pl.Time, "12:30:00+01:00", REFUSED),
    Case(pl.Time, "12:30:00Z", REFUSED),
    Case(US, LAST, DT(2024, 2, 29, 23, 59, 59, 999999), kind=datetime.datetime),
    Case(US, LAST + "000", DT(2024, 2, 29, 23, 59, 59, 999999), kind=datetime.datetime),
    Case(US, LAST + "9", REFUSED, kind=datetime.datetime),
    Case(US, LAST + "1", REFUSED, kind=datetime.datetime),
    Case(US, LAST + "Z", REFUSED),
    Case(US, "2024-02-29T24:00:00", REFUSED, kind=datetime.datetime),
    Case(US, "2024-02-29T23:59:60", REFUSED, kind=datetime.datetime),
    Case(US, "2024-02-29T12304533", REFUSED, kind=datetime.datetime),
    Case(US, "0000-02-29T12:30:45", REFUSED, kind=datetime.datetime),
    Case(US, "20240229T123045.33", DT(2024, 2, 29, 12, 30, 45, 330000)),
    Case(US, "2024-02-30T00:00:00", REFUSED, kind=datetime.datetime),
    Case(UTC_US, LAST + "Z", DT(2024, 2, 29, 23, 59, 59, 999999, UTC), kind=datetime.datetime),
    Case(UTC_US, LAST + "9Z", REFUSED, kind=datetime.datetime),
    Case(UTC_US, LAST, REFUSED),
    Case(UTC_US, "2024-03-01T00:59:59+01:00", DT(2024, 2, 29, 23, 59, 59, 0, UTC)),
    Case(UTC_US, "2024-02-29t23:59:59z", DT(2024, 2, 29, 23, 59, 59, 0, UTC), kind=datetime.datetime),
    Case(UTC_US, "9999-12-31T23:59:59-01:00", REFUSED),
    Case(UTC_US, "0001-01-01T00:00:00+02:00", REFUSED),
    Case(UTC_US, "2024-02-29T24:00:00Z", REFUSED, kind=datetime.datetime),
    Case(UTC_US, "2024-02-29T23:59:60Z", REFUSED, kind=datetime.datetime),
    Case(pl.Datetime("us", "Europe/Berlin"), "2024-02-29T23:00:00Z", DT(2024, 2, 29, 23, tzinfo=UTC)),
    Case(MS, "2024-02-29T12:00:00.123", DT(2024, 2, 29, 12, 0, 0, 123000)),
    Case(MS, "2024-02-29T12:00:00.123000", DT(2024, 2, 29, 12, 0, 0, 123000)),
    Case(MS, "2024-02-29T12:00:00.1234", REFUSED),
    Case(pl.Datetime("ms", "UTC"), "2024-02-29T12:00:00.123Z", DT(2024, 2, 29, 12, 0, 0, 123000, UTC)),
    Case(NS, LAST, DT(2024, 2, 29, 23, 59, 59, 999999)),
    Case(NS, LAST + "9", REFUSED),
    Case(NS, "9999-01-01T00:00:00", REFUSED),
    Case(pl.Duration("us"), "P1DT2H0.000001S", TD(days=1, hours=2, microseconds=1), kind=TD),
    Case(pl.Duration("us"), "-PT1S", TD(seconds=-1), kind=TD),
    Case(pl.Duration("us"), "PT0.0000005S", REFUSED, kind=TD),
    Case(pl.Duration("ms"), "PT0.0005S", REFUSED),
    Case(pl.Duration("us"), "1 day", REFUSED, kind=TD),
    Case(pl.Binary, "YWL/", b"ab\xff", kind=bytes),
    Case(pl.Binary, "YWL", REFUSED, kind=bytes),
    Case(pl.Binary, "YWJ/\n", REFUSED, kind=bytes),
    Case(pl.List(pl.Float64), None, [1.0, None], "[1, null]"),
    Case(pl.List(pl.Float64), None, REFUSED, "[9007199254740993]"),
    Case(pl.List(UTC_US), None, [DT(2024, 1, 1, tzinfo=UTC)], '["2024-01-01T00:00:00Z"]'),
    Case(pl.List(UTC_US), None, REFUSED, '["2024-01-01T00:00:00.0000001Z"]'),
    Case(pl.Array(pl.Int64, 2), None, [1, 2], "[1, 2]"),
    Case(pl.Array(pl.Int64, 2), None, REFUSED, "[1]"),
    Case(pl.Struct({"a": pl.Decimal(4, 1)}), None, {"a": D("0.1")}, '{"a": 0.1}'),
    Case(pl.Struct({"a": pl.Int64}), None, REFUSED, '{"a": 1, "a": 2}'),
    Case(pl.Struct({"a": pl.Int64}), None, REFUSED, '{"a": 1, "b": 2}'),
    Case(pl.Int64, None, None, "null"),
    Case(pl.Datetime("us"), None, None, "null"),
    Case(pl.List(pl.Int64), None, None, "null"),
]  # fmt: skip


def of_run(source: Any, schema: dict[str, Any], **more: Any) -> list[Any]:
    graph = drift.Graph("values")
    graph.source("s", on_error="divert", schema=schema).sink("out")
    return [REFUSED if item.sink == "errors" else item.payload["v"] for item in drift.run(graph, {"s": source}, **more)]


def of_reader(source: Any, schema: dict[str, Any] | None = None, items_max: int = 1000) -> list[Any]:
    """What a run takes from a source, whose schema is that of the graph if one is given."""
    rows = None if schema is None else SchemaRows(fields_of(schema, "test"))
    reader = as_rows(source, rows).diverting("s").open()
    found: list[Any] = []
    while (payloads := reader.read(items_max)) is not None:
        found += [REFUSED if is_diverted(each) else each["v"] if type(each) is dict else each.v for each in payloads]
    reader.close()
    return found


class Messages(Poller):
    """A poller of messages; see `drift.sources.polled.Poller`."""

    def __init__(self, values: Sequence[bytes]) -> None:
        self._values = list(values)

    def fetch(self, items_max: int, wait_s: float) -> Fetched | None:
        values, self._values = self._values[:items_max], self._values[items_max:]
        return Fetched(values, values) if values else None

    def location(self, mark: Any) -> str:
        return "a message"


def messages(lines: Sequence[str], kind: Any = None) -> PolledSource:
    encoded = [line.encode() for line in lines]
    rereads = drift.sources.text("-").guarantee
    return PolledSource("m", rereads, lambda: Messages(encoded), decoder("m", "json", kind), live=False)


def line_of(case: Case) -> str:
    """A line with a value; `n` is a float, so that large integers are looked for."""
    return f'{{"n": 1, "v": {case.literal}}}'


FILLER = [f'{{"n": {at}.5, "v": null}}' for at in range(100)]
KINDS = list(dict.fromkeys(str(case.of) for case in CASES))


def written(path: Path, text: str) -> Path:
    path.write_text(text, newline="")
    return path


def in_columns(rows: RowValues, lines: Sequence[str]) -> Any:
    """The last value of lines that are read at once; REFUSED if they are left to one by one."""
    frame = rows.each([line.encode() for line in lines])
    return REFUSED if frame is None else frame.values[-1]["v"]


@pytest.mark.parametrize("kind", KINDS)
def test_a_value_is_the_same_item_or_the_same_refusal_through_every_reader(kind: str, tmp_path: Path) -> None:
    cases = [case for case in CASES if str(case.of) == kind]
    schema, expected = {"n": float, "v": cases[0].of}, [case.expected for case in cases]
    lines = list(map(line_of, cases))
    rows = RowValues(fields_of(schema, "test"))
    for case, line in zip(cases, lines):
        assert same(in_columns(rows, [*FILLER, line]), case.expected), case  # values of all types are read at once
    file = written(tmp_path / "a.jsonl", "\n".join(lines))
    windows = written(tmp_path / "b.jsonl", "\r\n".join([*FILLER, *lines, ""]))
    assert_same(of_reader(drift.sources.jsonl(file), schema), expected)
    assert_same(of_reader(drift.sources.jsonl(file, schema=schema), items_max=1), expected)
    assert_same(of_reader(drift.sources.jsonl(windows), schema, 7)[len(FILLER) :], expected)
    assert_same(of_reader(messages(lines), schema), expected)
    assert_same(of_reader(messages(lines), schema, 1), expected)
    cells = [case for case in cases if case.text is not None]
    for quoting in (csv.QUOTE_MINIMAL, csv.QUOTE_ALL):
        made = io.StringIO()
        csv.writer(made, quoting=quoting).writerows([["v", "n"], *([case.text, 1] for case in cells)])
        if cells:
            found = of_reader(drift.sources.csv(written(tmp_path / "a.csv", made.getvalue())), schema)
            assert_same(found, [case.expected for case in cells])
    for case in cells:
        file = written(tmp_path / "one.csv", f'v\n"{case.text}"\n'.replace('a:"b"', 'a:""b""'))
        assert_same(until_fault(drift.sources.csv(file, schema={"v": case.of})), [case.expected])


def assert_same(found: list[Any], expected: list[Any]) -> None:
    assert len(found) == len(expected)
    assert [pair for pair in zip(found, expected) if not same(*pair)] == []


TYPES = list(dict.fromkeys(case.kind for case in CASES if case.kind is not None))


@pytest.mark.parametrize("kind", TYPES)
def test_and_so_it_is_where_it_is_converted_to_a_type(kind: Any, tmp_path: Path) -> None:
    cases = [case for case in CASES if case.kind is kind]
    row = msgspec.defstruct("Row", [("n", float), ("v", kind | None)])
    for filler in ([], FILLER):
        lines = [line for case in cases for line in (*filler, line_of(case))]
        expected = [value for case in cases for value in (*[None] * len(filler), case.expected)]
        file = written(tmp_path / "t.jsonl", "\n".join(lines))
        assert_same(of_reader(drift.sources.jsonl(file, row)), expected)
        assert_same(of_reader(messages(lines, row)), expected)


def until_fault(source: Any) -> list[Any]:
    reader, found = source.open(), []
    try:
        while (payloads := reader.read(1000)) is not None:
            found += [payload["v"] for payload in payloads]
    except InputError as error:
        assert "line" in str(error) and "'v'" in str(error)
        found.append(REFUSED)
    reader.close()
    return found


def same(found: Any, expected: Any) -> bool:
    if isinstance(found, datetime.datetime) and found.tzinfo is not None:
        return bool(found == expected)
    return type(found) is type(expected) and bool(found == expected) and str(found) == str(expected)


def test_what_is_read_is_also_taken_as_a_dict_and_as_the_row_of_a_frame() -> None:
    for case in CASES:
        if case.expected is not None and case.expected != REFUSED:
            schema = {"v": case.of}
            frame = pl.DataFrame({"v": [case.expected]}, schema=schema)
            for rows in ([{"v": case.expected}], frame.to_dicts()):
                (found,) = SchemaRows(fields_of(schema, "test"))(rows)
                assert same(found["v"], case.expected), case


def test_a_run_of_any_batches_on_any_engine_has_these_items_and_refusals(tmp_path: Path) -> None:
    cases = [case for case in CASES if case.of == UTC_US]
    schema = {"n": float, "v": UTC_US}
    file = written(tmp_path / "a.jsonl", "\n".join(map(line_of, cases)))
    for more in ({}, {"batch_items": 1}, {"engine": "reference"}):
        found = of_run(drift.sources.jsonl(file), schema, **more)
        assert found == [case.expected for case in cases]


@pytest.mark.parametrize(
    ("of", "value"),
    [
        (float, 2**53 + 1), (float, 10**400), (pl.Float32, 0.1), (pl.Float32, 1e39), (pl.UInt64, 2**64),
        (pl.Enum(["a"]), "b"), (MS, DT(2024, 1, 1, 0, 0, 0, 1500)), (NS, DT(9999, 1, 1)),
        (pl.Duration("ms"), TD(0, 0, 1)),
        (pl.Decimal(6, 2), D("1.105")), (str, "\ud800"),
    ],
)  # fmt: skip
def test_a_dict_with_a_value_that_its_type_does_not_hold_is_refused(of: Any, value: Any) -> None:
    assert of_run([{"v": value}], {"v": of}) == [REFUSED]


BLANKS = ["", " ", "\t", "_", "+", "-", ".", "e", "E", ",", "0x", "1", "7", "00", "inf", "nan", "Infinity", "\uff19"]
PARTS = st.lists(
    st.sampled_from([*BLANKS, "2024", "02", "29", "T", ":", "Z", "+01:00", "999999", "24", "60"]), max_size=8
)


@given(
    texts=st.lists(PARTS.map("".join).filter(bool), min_size=1, max_size=3),
    of=st.sampled_from([case.of for case in CASES]),
)
def test_a_column_at_once_has_what_its_texts_are_one_by_one(texts: list[str], of: Any) -> None:
    read = of_text(of)
    if read is None:
        return
    column = at_once(of, pl.Series(texts, dtype=pl.String))
    if column is not None:
        of_rows = Frame(pl.DataFrame([column.alias("v")])).field("v")
        assert list(map(str, of_rows)) == [str(read(text)) for text in texts]


@pytest.mark.parametrize(
    "line", ['{"id":1,"id":2}', '{"id":1, "id" :1}', '{"id":1,"\\u0069d":2}', '{"id":{"a":1,"a":2}}']
)
@pytest.mark.parametrize("count", [1, 100])
def test_an_object_with_a_key_twice_is_refused_by_every_reader(line: str, count: int, tmp_path: Path) -> None:
    one = msgspec.defstruct("One", [("id", Any)])
    lines = ['{"id":7}'] * count + [line] + ['{"id":8}'] * count
    file = written(tmp_path / "a.jsonl", "\n".join(lines))
    nested = line.startswith('{"id":{')
    schema: dict[str, Any] = {"id": pl.Struct({"a": int}) if nested else int}
    sources: list[tuple[Callable[[], Any], dict[str, Any]]] = [
        (lambda: drift.sources.jsonl(file), {}),
        (lambda: drift.sources.jsonl(file, one), {}),
        (lambda: messages(lines), {}),
        (lambda: messages(lines, one), {}),
    ]
    if not nested:
        sources += [
            (lambda: drift.sources.jsonl(file), {"schema": schema}),
            (lambda: messages(lines), {"schema": schema}),
        ]
    for make, more in sources:
        graph = drift.Graph("twice")
        graph.source("s", on_error="divert", **more).sink("out")
        items = list(drift.run(graph, {"s": make()}))
        assert [at for at, item in enumerate(items) if item.sink == "errors"] == [count]
        assert len(items) == 2 * count + 1
        assert "twice" in items[count].payload["error"]


def test_values_that_are_no_line_of_their_own_are_refused(tmp_path: Path) -> None:
    file = written(tmp_path / "a.jsonl", '{"id":\n1}\n{"id":2} {"id":3}\n')
    assert of_json_lines(file) == [REFUSED] * 3


def of_json_lines(file: Path) -> list[Any]:
    graph = drift.Graph("lines")
    graph.source("s", on_error="divert", schema={"id": int}).sink("out")
    items = drift.run(graph, {"s": drift.sources.jsonl(file)})
    return [REFUSED if item.sink == "errors" else item.payload["id"] for item in items]


def test_only_the_bad_line_of_a_block_is_lost(tmp_path: Path) -> None:
    lines = [f'{{"id":{at}}}' for at in range(3000)]
    lines[1234], lines[2345] = '{"id":"x"}', '{"id":18446744073709551616}'
    file = written(tmp_path / "a.jsonl", "\n".join(lines))
    expected = [REFUSED if at in (1234, 2345) else at for at in range(3000)]
    assert of_json_lines(file) == expected
    reader = drift.sources.jsonl(file, schema={"id": pl.UInt64}).open()
    found: list[Any] = []
    with pytest.raises(InputError, match="line 1235: "):
        while True:
            found += reader.read(500)
    assert [row["id"] for row in found] == list(range(1234))


def test_a_type_that_no_text_is_read_as_is_refused_at_the_start(tmp_path: Path) -> None:
    file = written(tmp_path / "a.csv", "n,v\n1,2\n")
    graph = drift.Graph("none")
    graph.source("s", schema={"n": int, "v": pl.List(int)}).sink("out")
    with pytest.raises(SettingsError, match=r"csv: the schema has List\(Int64\) for 'v', and no text is read as one"):
        list(drift.run(graph, {"s": drift.sources.csv(file)}))


def test_what_is_nested_loses_nothing_in_a_type_either(tmp_path: Path) -> None:
    inner = msgspec.defstruct(
        "Inner", [("x", float | None, None), ("at", dict[str, datetime.datetime], {})], tag="inner"
    )
    other = msgspec.defstruct("Other", [("x", int | float)], tag="other")
    outer = msgspec.defstruct("Outer", [("many", list[inner | other]), ("pair", tuple[float, int] | None, None)])
    good = [
        '{"many": [{"type": "other", "x": 9007199254740993}]}',
        '{"many": [{"type": "inner", "x": 9007199254740992, "at": {"a": "2024-01-01T00:00:00.123456Z"}}]}',
        '{"many": [], "pair": [1.5, 9007199254740993]}',
        '{"many": [], "more": "2024-01-01T00:00:00.1234567Z"}',
    ]
    bad = [
        '{"many": [{"type": "inner", "x": 9007199254740993}]}',
        '{"many": [{"type": "inner", "at": {"a": "2024-01-01T00:00:00.1234567Z"}}]}',
        '{"many": [], "pair": [9007199254740993, 1]}',
    ]
    graph = drift.Graph("nested")
    graph.source("s", on_error="divert").sink("out")
    file = written(tmp_path / "a.jsonl", "\n".join([*good, *bad]))
    items = list(drift.run(graph, {"s": drift.sources.jsonl(file, outer)}))
    assert [item.sink for item in items] == ["out"] * 4 + ["errors"] * 3
    assert "`$.many[0].at.a`" in items[5].payload["error"]
    assert not math.isnan(items[0].payload.many[0].x) and type(items[0].payload.many[0].x) is int
