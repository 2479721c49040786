#!/usr/bin/env bash
# The categories of an Arrow table are written to Parquet as pickles by Daft, which no other reader takes for texts
#
# Versions: daft==0.7.26 pyarrow==25.0.1 polars==2.1.0 duckdb==2.0.1 pandas==3.1.1
# Expected: a column of a dictionary is its texts, as Daft itself reads it from Parquet; what it does not know is
#           refused.
# Seen:     from_arrow and from_pandas make a column of Python's objects of it, without a word, also of decimals of 256
#           or 32 bits and of time32. A filter by it works and shows the texts, so does to_pydict; write_parquet and
#           to_arrow give each value as the bytes of its pickle: of 'red' 18 bytes for Polars, DuckDB and PyArrow. Daft
#           alone reads the file as it was. The same rows with a cast to string before are right everywhere.
# Matters:  pandas' categories, Polars' Categorical and most dictionaries of Arrow are such columns; the file looks
#           sound to who wrote it, and joins by the column find nothing for all others.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"
"${PYTHON:-python3}" -m venv venv
venv/bin/pip install --quiet --disable-pip-version-check daft==0.7.26 pyarrow==25.0.1 polars==2.1.0 duckdb==2.0.1 \
    pandas==3.1.1
venv/bin/python - <<'END'
import datetime
import decimal
import os
import pickle

os.environ["DAFT_PROGRESS_BAR"] = "0"
import daft
import duckdb
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq

texts = pa.array(["red", "blue", "red"])
rows = {"v": [1, 2, 3]}


def written(frame: daft.DataFrame, name: str) -> str:
    """A Parquet file that Daft has written of the frame."""
    [path] = frame.write_parquet(name).to_pydict()["path"]
    return path


plain = written(daft.from_arrow(pa.table({"x": texts} | rows)), "plain")
assert pl.read_parquet(plain)["x"].to_list() == ["red", "blue", "red"]
pq.write_table(pa.table({"x": texts.dictionary_encode()} | rows), "by-arrow.parquet")
assert daft.read_parquet("by-arrow.parquet").schema()["x"].dtype == daft.DataType.string()

frames = {
    "arrow": daft.from_arrow(pa.table({"x": texts.dictionary_encode()} | rows)),
    "pandas": daft.from_pandas(pd.DataFrame({"x": pd.Categorical(texts.to_pylist())} | rows)),
}
pickles = [b"\x80\x05\x95\x07\x00\x00\x00\x00\x00\x00\x00\x8c\x03red\x94."]
pickles += [b"\x80\x05\x95\x08\x00\x00\x00\x00\x00\x00\x00\x8c\x04blue\x94.", *pickles]
assert pickles == [pickle.dumps(text, protocol=5) for text in texts.to_pylist()]
for name, frame in frames.items():
    assert frame.schema()["x"].dtype == daft.DataType.python()
    assert frame.where(daft.col("x") == "red").to_pydict() == {"x": ["red", "red"], "v": [1, 3]}
    path = written(frame, name)
    assert pl.read_parquet(path)["x"].to_list() == pickles
    assert duckdb.sql(f"select x from '{path}'").fetchall() == [(each,) for each in pickles]
    assert duckdb.sql(f"select typeof(x) from '{path}' limit 1").fetchall() == [("BLOB",)]
    assert pq.read_table(path)["x"].to_pylist() == pickles
    assert frame.to_arrow()["x"].to_pylist() == pickles
    assert daft.read_parquet(path).to_pydict()["x"] == ["red", "blue", "red"]

others = [
    pa.array([decimal.Decimal("1.5")], pa.decimal256(50, 1)),
    pa.array([decimal.Decimal("1.5")], pa.decimal32(5, 1)),
    pa.array([datetime.time(1)], pa.time32("s")),
]
for other in others:
    assert daft.from_arrow(pa.table({"x": other})).schema()["x"].dtype == daft.DataType.python()
print("categories are in the file as pickles")
END
