"""Arrow columns become the same Python values as by Arrow's own, slower way."""

from __future__ import annotations

import datetime
import math
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

import drift
from drift.arrow import payloads_of, python_values
from drift.spark.frames import Reading
from drift_graph.canonical import canonical, canonical_each

COLUMNS: list[tuple[Any, list[Any]]] = [
    (pa.int64(), [0, -(2**63), 2**63 - 1, None]),
    (pa.int64(), [2**53 + 1, 7]),
    (pa.int32(), [1, None, -5]),
    (pa.int8(), []),
    (pa.float64(), [0.1, -0.0, math.inf, None]),
    (pa.float32(), [0.5, 1e30]),
    (pa.bool_(), [True, None, False]),
    (pa.bool_(), [True, False]),
    (pa.string(), ["", "\u00e9\u4e2d", None]),
    (pa.binary(), [b"", b"\x00\xff", None]),
    (pa.decimal128(20, 2), [Decimal("1.10"), None]),
    (pa.date32(), [datetime.date(2013, 1, 1), None]),
    (pa.timestamp("us", "UTC"), [datetime.datetime(2013, 1, 1, tzinfo=datetime.UTC), None]),
    (pa.list_(pa.int64()), [[1, None], [], None]),
    (pa.struct([("a", pa.int64()), ("b", pa.string())]), [{"a": 1, "b": None}, None]),
    (pa.map_(pa.string(), pa.int64()), [{"x": 1}, {}, None]),
    (pa.null(), [None, None]),
]


@pytest.mark.smoke
@pytest.mark.parametrize(("kind", "values"), COLUMNS, ids=lambda each: str(each)[:30])
def test_values_are_those_of_arrow(kind: Any, values: list[Any]) -> None:
    given = [list(value.items()) if isinstance(value, dict) and pa.types.is_map(kind) else value for value in values]
    column = pa.array(given, kind)
    for part in (column, column.slice(1)):
        found = python_values(part)
        assert found == part.to_pylist(maps_as_pydicts="strict")
        zones = dict.fromkeys(("<UTC>", "zoneinfo.ZoneInfo(key='UTC')"), "datetime.timezone.utc")
        shown = [repr(value) for value in part.to_pylist(maps_as_pydicts="strict")]
        for zone, ours in zones.items():  # of whichever library Arrow found
            shown = [each.replace(zone, ours) for each in shown]
        assert [*map(repr, found)] == shown


NOON = datetime.datetime(2024, 1, 2, 12, tzinfo=datetime.UTC)
ZONED: list[tuple[Any, Any, Any]] = [
    (pa.timestamp("us", "Asia/Tokyo"), NOON, NOON),
    (pa.struct([("at", pa.timestamp("us", "Asia/Tokyo"))]), {"at": NOON}, {"at": NOON}),
    (pa.list_(pa.timestamp("us", "Asia/Tokyo")), [NOON, None], [NOON, None]),
    (pa.map_(pa.string(), pa.timestamp("us", "Asia/Tokyo")), [("at", NOON)], {"at": NOON}),
    (pa.timestamp("us"), NOON.replace(tzinfo=None), NOON.replace(tzinfo=None)),
]


@pytest.mark.parametrize(("kind", "given", "wanted"), ZONED, ids=lambda each: str(each)[:30])
def test_an_instant_is_one_value_whatever_the_zone_of_the_session(kind: Any, given: Any, wanted: Any) -> None:
    (found,) = python_values(pa.array([given], kind))
    assert canonical(found) == canonical(wanted)


def test_a_map_whose_keys_are_no_keys_in_python_is_an_error_of_its_column() -> None:
    for key in (pa.struct([("a", pa.int64())]), pa.list_(pa.int64())):
        value = {"a": 1} if pa.types.is_struct(key) else [1]
        column = pa.array([[(value, 1)]], pa.map_(key, pa.int64()))
        with pytest.raises(drift.InputError, match=r"column 'by_row', of type map<.*unhashable"):
            payloads_of([column], ["by_row"], "dict", 1)


types_of_columns = st.lists(st.sampled_from([int, bool, str, bytes, float, datetime.date]), min_size=1, max_size=4)
kinds = {int: st.integers(-(2**63), 2**63 - 1), str: st.text(max_size=3), bytes: st.binary(max_size=3)}


@given(st.data(), types_of_columns, st.sampled_from(["tuple", "value"]))
def test_forms_of_rows_are_canonical_bytes(data: st.DataObject, types: list[type], payload: Any) -> None:
    types = types[:1] if payload == "value" else types
    names = tuple(data.draw(st.permutations(["b", "aa", "c", "ab"]))[: len(types)])
    values = [data.draw(st.lists(st.none() | kinds.get(kind, st.from_type(kind)), max_size=3)) for kind in types]
    count = min(map(len, values))
    arrow = {int: pa.int64(), bool: pa.bool_(), str: pa.string(), bytes: pa.binary(), float: pa.float64()}
    arrays = [pa.array(each[:count], arrow.get(kind, pa.date32())) for each, kind in zip(values, types)]
    batch = pa.RecordBatch.from_arrays(arrays, names=names)
    reading = Reading("in", 0, drift.ArrivalTime(), payload, names, False)
    payloads = reading.payloads(batch)
    forms = reading.forms(batch, payloads)
    assert forms is None or forms == canonical_each(payloads)
    assert forms is not None or {float, datetime.date} & set(types)
