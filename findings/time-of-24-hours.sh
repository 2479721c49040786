#!/usr/bin/env bash
# What is the time of day 24:00:00 of DuckDB, read by four libraries?
#
# Versions: duckdb==2.0.1 polars==2.1.0 pyarrow==26.0.1 pandas==2.3.3
# Expected: an error where a library has no such time, and 24:00:00 where it has.
# Seen:     from one Parquet file DuckDB reads 24:00:00; PyArrow's to_pylist gives 00:00:00, the other end of the day;
#           Polars reads null; pandas, by PyArrow, raises a ValueError.
# Matters:  who sorts by such times has three answers, two without a warning: look for 86,400,000,000 microseconds.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"
"${PYTHON:-python3}" -m venv venv
venv/bin/pip install --quiet --disable-pip-version-check duckdb==2.0.1 polars==2.1.0 pyarrow==26.0.1 pandas==2.3.3
venv/bin/python - <<'EOF'
import datetime
import os
import sys

import duckdb
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq

duckdb.sql("COPY (SELECT '24:00:00'::TIME AS t) TO 'times.parquet'")
assert duckdb.sql("SELECT t::TEXT FROM 'times.parquet'").fetchall() == [("24:00:00",)]
table = pq.read_table("times.parquet")
assert table["t"].to_pylist() == [datetime.time(0, 0)], table["t"].to_pylist()
assert table["t"].cast(pa.int64()).to_pylist() == [86_400_000_000]
assert pl.read_parquet("times.parquet")["t"].to_list() == [None]
try:
    table.to_pandas()
except ValueError as error:
    assert "hour must be in 0..23" in str(error), error
else:
    raise AssertionError("pandas has a time")
print("as described")
sys.stdout.flush()
os._exit(0)  # threads of the libraries are still there
EOF
