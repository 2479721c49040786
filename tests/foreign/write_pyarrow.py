"""Writes pyarrow-VERSION/: `python tests/foreign/write_pyarrow.py`, with the versions that the document names."""

from __future__ import annotations

import datetime as dt
import shutil
from decimal import Decimal
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

FOLDER = Path(__file__).parent / f"pyarrow-{pa.__version__.partition('.')[0]}"
TWICE = pa.array([[(1, "a"), (2, None)], [(1, "a"), (1, "b")]], pa.map_(pa.int32(), pa.string()))
LISTS = pa.array([[1, None], [], None], pa.list_(pa.int32()))
MOMENTS = [dt.datetime(2024, 1, 1, 1, 2, 3, 4), dt.datetime(9999, 12, 31), dt.datetime(1, 1, 1), None]
SMALL, MIDDLE = pa.array([Decimal("1.5")], pa.decimal128(4, 1)), pa.array([Decimal("-1.50")], pa.decimal128(18, 2))
TABLES = {
    "repeated keys": ({"v": TWICE}, {}),
    "70 digits": ({"v": pa.array([Decimal(10) ** 60, Decimal(-1)], pa.decimal256(70, 0))}, {}),
    "decimals as bytes": ({"a": SMALL, "b": MIDDLE}, {}),
    "decimals as integers": ({"a": SMALL, "b": MIDDLE}, {"store_decimal_as_integer": True}),
    "lists": ({"v": LISTS, "w": LISTS.cast(pa.large_list(pa.int32()))}, {}),
    "lists of items": ({"v": LISTS}, {"use_compliant_nested_type": False}),
    "views": (
        {
            "v": pa.array([[1, None], [], None], pa.list_view(pa.int32())),
            "w": pa.array(["a", None, ""], pa.string_view()),
            "x": pa.array([b"\xff", None, b""], pa.binary_view()),
        },
        {},
    ),
    "int96": ({"v": pa.array(MOMENTS)}, {"use_deprecated_int96_timestamps": True}),
    "nanoseconds": ({"v": pa.array([1704067200123456000, None, 1704067200123456789], pa.timestamp("ns"))}, {}),
    "zones": (
        {"v": pa.array([5000], pa.timestamp("ns", "Asia/Kolkata")), "w": pa.array([0], pa.timestamp("s", "+05:30"))},
        {},
    ),
    "dictionaries": (
        {
            "v": pa.array(["b", "a", None]).dictionary_encode(),
            "w": pa.array([2.5, None, -0.0]).dictionary_encode(),
            "x": pa.array([[b"b"], None, []]),
        },
        {},
    ),
    "floats": (
        {"v": [-0.0, float("nan"), 0.0, None]},
        {"use_dictionary": False, "column_encoding": "BYTE_STREAM_SPLIT"},
    ),
    "two of one name": (pa.Table.from_arrays([pa.array([1]), pa.array([2])], ["a", "a"]), {}),
    "keys of structs": (
        {"v": pa.array([[({"x": 1}, 2)]], pa.map_(pa.struct([("x", pa.int8())]), pa.int8()))},
        {},
    ),
}

if __name__ == "__main__":
    shutil.rmtree(FOLDER, ignore_errors=True)
    FOLDER.mkdir()
    for name, (columns, options) in TABLES.items():
        if name == "views" and FOLDER.name == "pyarrow-20":  # which does not write them
            continue
        pq.write_table(
            pa.table(columns) if isinstance(columns, dict) else columns, FOLDER / f"{name}.parquet", **options
        )
