"""Writes polars/: `python tests/foreign/write_polars.py`, with the version of Polars that the document names."""

from __future__ import annotations

import datetime as dt
import shutil
from decimal import Decimal
from pathlib import Path

import polars as pl

FOLDER = Path(__file__).parent / "polars"
NAN = float("nan")
NIGHT = [dt.datetime(2024, 10, 27, 0, 30), dt.datetime(2024, 10, 27, 1, 30)]
FRAMES = {
    "huge integers": pl.DataFrame({"v": [2**100, None, -1]}, {"v": pl.Int128}),
    "decimals": pl.DataFrame({"v": [Decimal("1.50"), Decimal("12345678901234567890.12")]}, {"v": pl.Decimal(38, 2)}),
    "categories": pl.DataFrame(
        {"v": ["b", "a", None], "e": ["b", "a", None], "l": [["b", "a"], None, []]},
        {"v": pl.Categorical, "e": pl.Enum(["a", "b"]), "l": pl.List(pl.Categorical)},
    ),
    "nanoseconds": pl.DataFrame({"v": [1704067200123456000, None, 1704067200123456789]}).cast(pl.Datetime("ns")),
    "zones": pl.DataFrame({"v": NIGHT}).with_columns(
        pl.col("v").dt.replace_time_zone("UTC").dt.convert_time_zone("Europe/Berlin"),
        w=pl.col("v").cast(pl.Datetime("ms")),
    ),
    "spans": pl.DataFrame(
        {"v": [dt.timedelta(microseconds=-1), None], "w": [dt.timedelta(3)] * 2, "x": [dt.time(1, 2, 3, 4), None]},
        {"v": pl.Duration("us"), "w": pl.Duration("ns"), "x": pl.Time},
    ),
    "nested": pl.DataFrame(
        {"v": [[{"a": [1, None]}, None], [], None], "w": [[1, 2], None, [3, 4]]}, {"v": None, "w": pl.Array(pl.Int8, 2)}
    ),
    "floats": pl.DataFrame({"v": [-0.0, NAN, 0.0], "w": [NAN, 1.5, -0.0]}, {"v": pl.Float64, "w": pl.Float32}),
    "half floats": pl.DataFrame({"v": [1.5, -0.0]}, {"v": pl.Float16}),
    "numbers": pl.DataFrame(
        {"a": [1], "b": [255], "c": [2**64 - 1], "d": [None]},
        {"a": pl.Int8, "b": pl.UInt8, "c": pl.UInt64, "d": pl.Null},
    ),
}

if __name__ == "__main__":
    shutil.rmtree(FOLDER, ignore_errors=True)
    FOLDER.mkdir()
    for name, frame in FRAMES.items():
        frame.write_parquet(FOLDER / f"{name}.parquet")
