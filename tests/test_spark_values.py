"""Arrow columns become the same Python values as by Arrow's own, slower way."""

from __future__ import annotations

import datetime
import math
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest

from drift.spark.values import python_values

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


@pytest.mark.parametrize(("kind", "values"), COLUMNS, ids=lambda each: str(each)[:30])
def test_values_are_those_of_arrow(kind: Any, values: list[Any]) -> None:
    given = [list(value.items()) if isinstance(value, dict) and pa.types.is_map(kind) else value for value in values]
    column = pa.array(given, kind)
    for part in (column, column.slice(1)):
        found = python_values(part)
        assert found == part.to_pylist(maps_as_pydicts="strict")
        assert [*map(repr, found)] == [*map(repr, part.to_pylist(maps_as_pydicts="strict"))]
