#!/usr/bin/env bash
# Who reads the integers of 128 bits that Polars writes to Parquet?
#
# Versions: polars==2.1.0 pyarrow==26.0.1 duckdb==2.0.1
# Expected: Parquet has no such integers, so decimals, which all read; or an error when they are written.
# Seen:     16 bytes of a type that only a note in the file says. DuckDB reads a BLOB, the least byte first, which sorts
#           otherwise than numbers; PyArrow opens no such file, so it reads none of its other columns either.
# Matters:  cast to pl.Decimal(38, 0) before a file leaves Polars.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"
"${PYTHON:-python3}" -m venv venv
venv/bin/pip install --quiet --disable-pip-version-check polars==2.1.0 pyarrow==26.0.1 duckdb==2.0.1
venv/bin/python - <<'EOF'
import os
import sys

import duckdb
import polars as pl
import pyarrow.parquet as pq

frame = pl.DataFrame({"v": [2**100, -1], "n": [1, 2]}, schema={"v": pl.Int128, "n": pl.Int64})
frame.write_parquet("wide.parquet")
assert pl.read_parquet("wide.parquet").equals(frame)
found = duckdb.sql("SELECT v, typeof(v) FROM 'wide.parquet' ORDER BY n").fetchall()
assert found == [((2**100).to_bytes(16, "little"), "BLOB"), (b"\xff" * 16, "BLOB")], found
try:
    pq.read_table("wide.parquet", columns=["n"])
except Exception as error:
    assert "64 bits" in str(error), error
else:
    raise AssertionError("PyArrow reads it")
frame.with_columns(pl.col("v").cast(pl.Decimal(38, 0))).write_parquet("decimals.parquet")
assert [int(each) for each in pq.read_table("decimals.parquet")["v"].to_pylist()] == [2**100, -1]
print("as described")
sys.stdout.flush()
os._exit(0)  # threads of the libraries are still there
EOF
