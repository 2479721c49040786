#!/usr/bin/env bash
# ADBC's driver for SQLite decides the type of a column by 1,024 rows, and turns numbers into text on the way
#
# Versions: adbc-driver-sqlite==1.13.0 pyarrow==26.0.1
# Expected: a column of integers with one text among them is an error, or text, wherever the text stands.
# Seen:     within the first 1,024 rows all become text, 2.5 as '2.500000e+00' or '2.5' by whether its batch began as
#           numbers; behind them the query fails. The same table passes or fails by its length.
# Matters:  a small test table says nothing about the real one.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"
"${PYTHON:-python3}" -m venv venv
venv/bin/pip install --quiet --disable-pip-version-check adbc-driver-sqlite==1.13.0 pyarrow==26.0.1
venv/bin/python - <<'EOF'
import sqlite3
import adbc_driver_sqlite.dbapi as adbc


def read(integers):
    file = f"{integers}.db"
    with sqlite3.connect(file) as base:
        base.execute("create table t (v)")
        base.executemany("insert into t values (?)", [(n,) for n in range(integers)] + [("x",), (2.5,)])
    with adbc.connect(file) as base, base.cursor() as cursor:
        cursor.execute("select v from t")
        return cursor.fetch_arrow_table()["v"].to_pylist()[-3:]


assert read(10) == ["9", "x", "2.500000e+00"], read(10)
assert read(1023) == ["1022", "x", "2.5"]
try:
    read(1024)
except OSError as error:
    assert "Type mismatch in column 0: expected INT64 but got STRING/BINARY" in str(error), error
else:
    raise AssertionError("1,024 integers and a text were read")
print("as described")
EOF
