#!/usr/bin/env bash
# In DuckDB 1.5 a reader ends early, without an error, when its connection is asked something else
#
# Versions: duckdb==1.5.4 pyarrow==26.0.1
# Expected: a record batch reader of a relation gives all rows, or an error once another query has taken the
# connection.
# Seen:     it gives the rows that were fetched before, and ends as if there were no more. DuckDB 2.0.1 raises an
#           error.
# Matters:  a loop that reads a table and looks something up on the same connection loses most of the table.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"
"${PYTHON:-python3}" -m venv venv
venv/bin/pip install --quiet --disable-pip-version-check duckdb==1.5.4 pyarrow==26.0.1
venv/bin/python - <<'EOF'
import duckdb
import pyarrow as pa

base = duckdb.connect()
reader = pa.RecordBatchReader.from_stream(base.sql("select * from range(3000000) t(n)"))
first = reader.read_next_batch().num_rows
base.execute("select 1").fetchall()
rest = sum(batch.num_rows for batch in reader)
assert 0 < first + rest < 3_000_000, (first, rest)
print("as described")
EOF
