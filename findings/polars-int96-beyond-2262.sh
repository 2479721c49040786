#!/usr/bin/env bash
# Which moments does Polars read from INT96, the type in which Spark writes timestamps?
#
# Versions: polars==2.1.0 pyarrow==26.0.1 duckdb==2.0.1
# Expected: the moments, or an error for those that 64 bits of nanoseconds do not hold, before 1677 and after 2262.
# Seen:     the last moment of these 64 bits, 2262-04-11 23:47:16.854775807, for years before 1677 as well: the first
#           and the last year, and 1582, become one moment. DuckDB reads each. (A file of PyArrow that also has Arrow's
#           own types is read as it is; Spark's files have none.)
# Matters:  '9999-12-31' for "no end" and '0001-01-01' for "unknown", which many tables have, are one moment.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"
"${PYTHON:-python3}" -m venv venv
venv/bin/pip install --quiet --disable-pip-version-check polars==2.1.0 pyarrow==26.0.1 duckdb==2.0.1
venv/bin/python - <<'EOF'
import datetime as dt
import os
import sys

import duckdb
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq

moments = [dt.datetime(1, 1, 1), dt.datetime(1582, 10, 15), dt.datetime(2024, 1, 1), dt.datetime(9999, 12, 31)]
table = pa.table({"v": moments})
pq.write_table(table, "int96.parquet", use_deprecated_int96_timestamps=True, store_schema=False)
assert [row[0] for row in duckdb.sql("SELECT v FROM 'int96.parquet'").fetchall()] == moments
column = pl.read_parquet("int96.parquet")["v"]
last = 2**63 - 1
assert column.dtype == pl.Datetime("ns"), column.dtype
assert column.to_physical().to_list() == [last, last, 1704067200000000000, last], column.to_physical().to_list()
print("as described")
sys.stdout.flush()
os._exit(0)  # threads of the libraries are still there
EOF
