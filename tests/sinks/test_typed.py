"""Columns of tables hold what they were given, equal and of the same kind, whatever the batches; or it is an error."""

from __future__ import annotations

import dataclasses
import datetime
import enum
import subprocess
import sys
from collections.abc import Sequence
from decimal import Decimal
from pathlib import Path
from typing import Any, NamedTuple
from uuid import UUID
from zoneinfo import ZoneInfo

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

import drift
from drift import PayloadError
from drift.sinks.stored import _zone_text
from drift.sinks.typed import Tables, payload_arrays

HAS_UUIDS = int(pa.__version__.partition(".")[0]) >= 24  # before, a UUID is of no type that Arrow infers
UTC = datetime.UTC
BERLIN = ZoneInfo("Europe/Berlin")
EAST = datetime.timezone(datetime.timedelta(hours=5, minutes=30))
DAY = datetime.date(2024, 1, 2)
NAIVE = datetime.datetime(2024, 1, 2, 3, 4, 5, 6)
ZONED = NAIVE.replace(tzinfo=UTC)
TIME = datetime.time(1, 2, 3, 4)


class Pair(NamedTuple):
    x: Any
    y: Any


class Kind(enum.Enum):
    A = "a"


@dataclasses.dataclass(frozen=True)
class Only:
    value: Any


def table_of(payloads: Sequence[Any], cuts: Sequence[int] = (), columns: Any = None) -> pa.Table:
    """The table of payloads that come in batches, which end at these indices."""
    tables = Tables("out", columns)
    for start, end in zip([0, *cuts], [*cuts, len(payloads)]):
        if start < end:
            tables.add({}, list(payloads[start:end]))
    return tables.table()


def is_same(value: Any, other: Any) -> bool:
    """Whether a value was read back; a field that a dict lacks is None."""
    if isinstance(value, (list, tuple)):
        return type(other) is list and len(value) == len(other) and all(map(is_same, value, other))
    if isinstance(value, dict):
        return set(value) <= set(other) and all(is_same(value.get(name), each) for name, each in other.items())
    if type(value) in (int, float, Decimal):
        number = type(other) in (int, float, Decimal) and (value == other or (value != value and other != other))
        return number and (value != 0 or str(value)[0] == str(other)[0])
    if type(value) is not type(other):
        return False
    if isinstance(value, datetime.datetime):  # which are of pytz, from older versions of Arrow
        return value.isoformat() == other.isoformat() and _zone_text(value.tzinfo) == _zone_text(other.tzinfo)
    return bool(value == other)


HELD: dict[str, list[Any]] = {
    "numbers": [1, 1.5, 2**53, None],
    "floats": [-0.0, float("nan"), float("inf"), None],
    "floats in lists": [[-0.0, float("nan"), None], [0.0]],
    "decimals": [Decimal("1.10"), Decimal("-20"), Decimal(10) ** 39],
    "a decimal and an int": [Decimal("1.5"), 2],
    "a zone": [NAIVE.replace(tzinfo=BERLIN)],
    "a zone in lists": [[NAIVE.replace(tzinfo=BERLIN), None]],
    "an offset in dicts": [{"at": NAIVE.replace(tzinfo=EAST)}],
    "both hours of the night": [datetime.datetime(2024, 10, 27, 2, 30, tzinfo=BERLIN, fold=fold) for fold in (0, 1)],
    "the first and the last moment": [datetime.datetime.min, datetime.datetime.max],
    "those in UTC": [each.replace(tzinfo=UTC) for each in (datetime.datetime.min, datetime.datetime.max)],
    "days and times": [{"day": DAY, "time": TIME, "took": datetime.timedelta(microseconds=-1)}],
    **({"UUIDs": [UUID(int=5)]} if HAS_UUIDS else {}),
    "lists of tuples": [[(1, 2), ()], []],
    "dicts of other fields": [{"a": 1}, {"b": {"c": b"\xff"}}, {}],
    "empty lists": [[], [1], None],
    "fields that are missing in a batch": [{"b": []}, {"a": [None, None]}],
}  # fmt: skip


@pytest.mark.parametrize("name", HELD)
def test_a_column_holds_what_it_was_given(name: str) -> None:
    payloads = [{"v": value} for value in HELD[name]]
    for cuts in ([], range(1, len(payloads))):
        values = table_of(payloads, cuts)["v"].to_pylist()
        assert all(map(is_same, HELD[name], values)), values


def nested(value: Any, other: Any) -> list[Any]:
    """Two values next to each other, at several depths."""
    return [[value, other], [[value, other]], [{"a": value}, {"a": other}], [{"a": [(value,), (other,)]}]]


REFUSED: dict[str, list[Any]] = {
    "a time with a zone": [TIME.replace(tzinfo=UTC), None],
    "a time of the second hour": [TIME.replace(fold=1), TIME],
    "a moment of the second hour": [NAIVE.replace(fold=1), NAIVE],
    "a moment that is skipped": [datetime.datetime(2024, 3, 31, 2, 30, tzinfo=BERLIN), None],
    "moments of two zones": [ZONED, ZONED.astimezone(BERLIN)],
    "a zone with a name of its own": [NAIVE.replace(tzinfo=datetime.timezone(datetime.timedelta(hours=1), "X")), None],
    "an offset in seconds": [NAIVE.replace(tzinfo=datetime.timezone(datetime.timedelta(seconds=3))), None],
    "before the first moment": [datetime.datetime.min.replace(tzinfo=EAST), None],
    "naive and zoned": [NAIVE, ZONED],
    "bytes and text": [b"a", "a"],
    "days and moments": [DAY, NAIVE],
    "a moment and a number": [NAIVE, 5],
    "numbers and True": [1, True],
    "floats and True": [1.5, True],
    "a number of numpy and True": [np.int64(1), np.bool_(True)],
    "a float and a great int": [1.5, 2**53 + 1],
    "great ints": [2**64, 2**64],
    "a float and a decimal": [1.5, Decimal("1.5")],
    "no decimals": [Decimal("NaN"), Decimal("Infinity")],
    "a decimal with the sign of zero": [Decimal("-0"), Decimal(1)],
    "nanoseconds": [pd.Timestamp(5), pd.Timestamp(6)],
    "nanoseconds of spans": [pd.Timedelta(5), pd.Timedelta(6)],
    "NaT": [pd.NaT, pd.NaT],
    "NaT of numpy": [np.datetime64("NaT", "us"), None],
    "half a character": ["\ud800", "\ud800"],
    "names of bytes": [{b"a": 1}, {"a": 1}],
    "names that are numbers": [{1: 2}, {1: 2}],
}  # fmt: skip


@pytest.mark.parametrize("name", REFUSED)
def test_what_a_column_does_not_hold_is_refused_at_any_depth_in_any_order(name: str) -> None:
    for pair in (REFUSED[name], REFUSED[name][::-1]):
        for values in [pair, *nested(*pair)]:
            for cuts in ([], range(1, len(values))):
                with pytest.raises(PayloadError, match=r"no one type holds the values of 'v': .*; where sinks or"):
                    table_of([{"v": value} for value in values], cuts)


@pytest.mark.parametrize(
    ("value", "kind"),
    [
        (1.5, pa.int64()),
        (0.1, pa.float32()),
        (2049, pa.float16()),
        (True, pa.float64()),
        (-0.0, pa.int64()),
        ("a", pa.binary()),
        (b"a", pa.string()),
        (NAIVE, pa.date32()),
        (NAIVE, pa.timestamp("ms")),
        (NAIVE, pa.timestamp("us", "UTC")),
        (ZONED, pa.timestamp("us")),
        (TIME, pa.time32("ms")),
        (datetime.timedelta(microseconds=1), pa.duration("s")),
        (pd.Timestamp(5), pa.timestamp("us")),
        ("ab", pa.list_(pa.string())),
        ({"a": 1, "b": 2}, pa.struct([("a", pa.int64())])),
        ([("a", 1)], pa.struct([("a", pa.int64())])),
        ({"a": 1.5}, pa.map_(pa.string(), pa.int64())),
        (UUID(int=5), pa.binary(16)),
    ],
)  # fmt: skip
def test_a_declared_type_refuses_what_it_does_not_hold(value: Any, kind: pa.DataType) -> None:
    for values, of in ([value, None], kind), ([[value]], pa.list_(kind)), ([{"a": value}], pa.struct([("a", kind)])):
        with pytest.raises(PayloadError, match=r"column 'v' is .*, and a payload has something else: "):
            table_of([{"v": each} for each in values], columns={"v": of})


@pytest.mark.parametrize(
    ("value", "kind", "read"),
    [
        (1.0, pa.int64(), 1),
        (0.5, pa.float32(), 0.5),
        (np.float32(0.1), pa.float32(), float(np.float32(0.1))),
        (5, pa.timestamp("ms", "UTC"), datetime.datetime(1970, 1, 1, 0, 0, 0, 5000, tzinfo=UTC)),
        (5, pa.date32(), datetime.date(1970, 1, 6)),
        (ZONED.astimezone(EAST), pa.timestamp("us", "UTC"), ZONED),
        (pd.Timestamp(5), pa.timestamp("ns"), pd.Timestamp(5)),
        ((1, 2), pa.struct([("a", pa.int8()), ("b", pa.int8())]), {"a": 1, "b": 2}),
        ({1: 2}, pa.map_(pa.int64(), pa.int64()), [(1, 2)]),
        ("a", pa.dictionary(pa.int8(), pa.string()), "a"),
        (2**64, pa.decimal128(38, 0), 2**64),
    ],
)
def test_a_declared_type_takes_what_it_holds(value: Any, kind: pa.DataType, read: Any) -> None:
    assert table_of([{"v": value}, {}], columns={"v": kind})["v"].to_pylist() == [read, None]


def test_objects_are_structs_and_sets_lists_in_one_order_whatever_their_values() -> None:
    for pair in Pair(1, 2), Pair(1, "a"):
        assert table_of([{"v": pair}])["v"].to_pylist() == [{"x": pair.x, "y": pair.y}]
    assert table_of([{"v": [Only(Kind.A)]}])["v"].to_pylist() == [[{"value": "a"}]]
    code = "from drift.sinks.typed import Tables as T; t = T('', None); t.add({}, [{'v': set('abcdef')}]); "
    made = [
        subprocess.check_output(
            [sys.executable, "-c", code + "print(t.table()['v'].to_pylist())"],
            env={"PYTHONHASHSEED": seed, "PYTHONPATH": ":".join(sys.path)},
        )
        for seed in "123"
    ]
    assert made == [b"[['a', 'b', 'c', 'd', 'e', 'f']]\n"] * 3


def test_a_field_called_value_is_one() -> None:
    for payload in ({"value": 3}, Only(3)):
        assert table_of([payload]).to_pylist() == [{"value": 3}]
        assert table_of([payload], columns=["value"]).to_pylist() == [{"value": 3}]
    assert table_of([{"value": 3, "n": 4}], columns=["value"]).to_pylist() == [{"value": 3}]


@pytest.mark.parametrize(
    "payloads",
    [
        [{1: 2}, {"a": 1}],
        [1, {"a": 1}],
        [{"a": 1}, (1, 2)],
        [Only(1), Pair(1, 2)],
        [{"value": 1}, Only(1)],
        [(), 1, (1,)],
    ],
)
def test_payloads_of_other_fields_are_refused_in_one_batch_and_in_several(payloads: list[Any]) -> None:
    for cuts in ([], range(1, len(payloads))):
        with pytest.raises(PayloadError, match="where sinks or sources differ"):
            table_of(payloads, cuts)


def test_no_two_fields_are_one_column_and_names_are_text() -> None:
    graph = drift.Graph("names")
    graph.source("rows").sink("out")
    with pytest.raises(PayloadError, match=r"two fields would be the column 'payload.time'"):
        drift.run(graph, {"rows": [{"time": 1, "payload.time": 2}]}).to_arrow()
    with pytest.raises(PayloadError, match="no column can have the name"):
        drift.run(graph, {"rows": [{"\ud800": 1}]}).to_arrow()


zones = st.sampled_from([None, UTC, BERLIN, EAST])
ints, decimals = st.integers(-(2**54), 2**54), st.decimals(allow_nan=False, places=2)
moments = st.datetimes(timezones=zones)
scalars = st.one_of(
    st.booleans(), ints, st.floats(), st.text(max_size=2), st.binary(max_size=2), st.dates(), moments, st.times(),
    st.timedeltas(), decimals,
)  # fmt: skip


def values_like(depth: int = 2) -> st.SearchStrategy[Any]:
    """Values that are alike, so that many lists of them are columns."""
    one = st.sampled_from([
        ints, ints | st.floats(), ints | decimals, decimals, moments, st.datetimes(timezones=st.just(BERLIN)),
        st.text(max_size=2), scalars,
    ])  # fmt: skip
    kinds = one.map(lambda each: each | st.none())
    for _ in range(depth):
        kinds = (
            kinds
            | kinds.map(lambda each: st.lists(each, max_size=2))
            | kinds.map(lambda each: st.dictionaries(st.sampled_from("abc"), each, max_size=2))
        )
    return kinds.flatmap(lambda each: st.lists(each, min_size=1, max_size=5))


@given(values_like(), st.data())
def test_a_table_does_not_depend_on_batches_and_holds_its_values(values: list[Any], data: st.DataObject) -> None:
    payloads = [{"v": value} for value in values]
    cuts = sorted(data.draw(st.sets(st.integers(1, len(values)))))
    made = []
    for each in ([], cuts):
        try:
            made.append(table_of(payloads, each))
        except PayloadError:
            made.append(None)
    one, several = made
    assert (one is None) == (several is None)
    if one is not None:
        assert one.schema == several.schema
        for table in made:
            assert all(map(is_same, values, table["v"].to_pylist()))


# In other libraries.


def echo(values: list[Any]) -> drift.Run:
    graph = drift.Graph("echo")
    graph.source("rows").sink("out")
    return drift.run(graph, {"rows": [{"v": value} for value in values]})


def test_pandas_has_zones_in_lists_and_great_integers_beside_none() -> None:
    for values in (
        [[ZONED.astimezone(BERLIN)]],
        [[2**53 + 1, None]],
        [{"a": 2**53 + 1}, {"a": None}],
        [2**53 + 1, None],
    ):
        made = [list(each) if isinstance(each, np.ndarray) else each for each in echo(values).to_pandas()["v"]]
        assert all(map(is_same, values, made)), made
    assert echo([1, None]).to_pandas()["v"].dtype == float
    assert list(echo([[1]]).to_pandas().columns) == ["position", "sink", "time", "v"]


@pytest.mark.parametrize("how", ["to_polars", "to_duckdb"])
def test_a_library_without_such_a_type_says_so(how: str) -> None:
    refused: dict[str, list[Any]] = {
        "to_polars": [Decimal(10) ** 39, [Decimal(10) ** 39], UUID(int=5), NAIVE.replace(tzinfo=EAST)],
        "to_duckdb": [Decimal(10) ** 39, np.float16(1), [np.float16(1)], np.timedelta64(5, "ns"), {"": 1}],
    }
    for value in refused[how]:
        if value != UUID(int=5) or HAS_UUIDS:
            with pytest.raises(PayloadError, match=r"to_arrow\(\)"):
                getattr(echo([value]), how)()


def test_columns_keep_their_names_or_it_is_an_error() -> None:
    def named(**names: int) -> drift.Run:
        graph = drift.Graph("echo")
        graph.source("rows").sink("out")
        return drift.run(graph, {"rows": [names]})

    assert named(**{"": 1, "b": 2}).to_polars().columns[3:] == ["", "b"]
    for names in ({"": 1}, {"a": 1, "A": 2}, {"a\0b": 1}):
        with pytest.raises(PayloadError, match="DuckDB would call the column"):
            named(**names).to_duckdb()


def test_parts_of_parquet_have_one_type_or_it_is_an_error(tmp_path: Path) -> None:
    def written(values: list[Any], name: str) -> Path:
        graph = drift.Graph("parts")
        graph.source("rows").sink("out")
        sink = drift.sinks.parquet(tmp_path / name, part_items=1)
        drift.run(graph, {"rows": [{"v": value} for value in values]}, sinks={"out": sink}, batch_items=1).finish()
        return tmp_path / name

    assert {pq.read_schema(part).field("v").type for part in written([1.5, 1], "floats").glob("*.parquet")} == {
        pa.float64()
    }
    for at, values in enumerate((["a", b"b"], [1.5, Decimal("0.1")], [1.5, 2**53 + 1])):
        with pytest.raises(drift.SinkError, match="no one type holds the values of 'v'"):
            written(values, str(at))


def test_a_column_without_nulls_takes_no_none() -> None:
    field = pa.field("n", pa.int32(), nullable=False)
    (column,) = payload_arrays([{"n": 1}], [field], "out")
    assert column.to_pylist() == [1]
    with pytest.raises(PayloadError, match=r"'out': column 'n' is int32.* None, where it takes no nulls"):
        payload_arrays([{"n": 1}, {"n": None}], [field], "out")
