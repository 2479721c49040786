"""Writes delta/ and iceberg/: `python tests/foreign/write_lakes.py`, with the versions that the document names."""

from __future__ import annotations

import datetime as dt
import os
import shutil
from decimal import Decimal
from pathlib import Path

import deltalake
import pyarrow as pa
from pyiceberg.catalog.sql import SqlCatalog

FOLDER = Path(__file__).parent
CATALOG = {"type": "sql", "uri": "sqlite:///iceberg/catalog.db", "warehouse": "iceberg", "name": "foreign"}
TYPES = {
    "dec": [Decimal("1.50")],
    "x": [float("nan")],
    "y": [-0.0],
    "day": [dt.date(1, 1, 1)],
    "at": pa.array([5], pa.timestamp("us", "UTC")),
    "there": pa.array([5], pa.timestamp("us")),
    "l": [[{"a": [1, None]}]],
    "raw": [b"\xff"],
    "f": pa.array([1.5], pa.float32()),
}
TWICE = {"m": pa.array([[(1, "a"), (1, "b")]], pa.map_(pa.int32(), pa.string()))}
CATEGORIES = {"v": pa.array(["b", "a"]).dictionary_encode()}
NANOS = {"v": pa.array([1704067200123456789], pa.timestamp("ns"))}  # delta-rs makes microseconds of it
PARTS = {
    "d": [dt.date(2024, 1, 1), None],
    "t": pa.array([5, 6], pa.timestamp("us")),
    "x": [1.5, -0.0],
    "dec": [Decimal("1.5"), Decimal("2.0")],
    "b": [True, None],
    "k": ["a/b =ä%", None],
    "v": [1, 2],
}
DELTA = {"types": TYPES, "repeated keys": TWICE, "categories": CATEGORIES, "nanoseconds": NANOS}
ICEBERG = {
    "types": {**TYPES, "time": [dt.time(1, 2, 3, 4)], "small": pa.array([2**16 - 1], pa.uint16())},
    "twice": TWICE,
    "categories": CATEGORIES,
    "fixed": {"v": pa.array([b"\0" * 15 + b"\5"], pa.binary(16))},
}

if __name__ == "__main__":
    os.chdir(FOLDER)
    for folder in ("delta", "iceberg"):
        shutil.rmtree(folder, ignore_errors=True)
    Path("iceberg").mkdir()
    for name, columns in DELTA.items():
        deltalake.write_deltalake(f"delta/{name}", pa.table(columns))
    for row in pa.table(PARTS).to_batches(max_chunksize=1):
        by = [name for name in PARTS if name != "v"]
        deltalake.write_deltalake("delta/partitions", row, partition_by=by, mode="append")
    deltalake.write_deltalake("delta/partitions of bytes", pa.table({"k": [b"\xff"], "v": [1]}), partition_by=["k"])
    catalog = SqlCatalog(**CATALOG)
    catalog.create_namespace("of")
    for name, columns in ICEBERG.items():
        table = pa.table(columns)
        catalog.create_table(f"of.{name}", table.schema).append(table)
    catalog.close()
