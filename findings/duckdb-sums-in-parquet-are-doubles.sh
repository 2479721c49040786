#!/usr/bin/env bash
# DuckDB's exact sum of integers is a rounded double once it is in Parquet
#
# Versions: duckdb==2.0.1 pyarrow==26.0.1
# Expected: sum(BIGINT) is a HUGEINT, exact; COPY to Parquet writes a decimal of 38 digits, or refuses.
# Seen:     it writes DOUBLE, without a word: two groups whose sums differ by one are equal in the file, and a sum read
#           back is another number; UHUGEINT the same. CSV has the exact digits.
# Matters:  the type changes between a query and its COPY: a check of totals passes on the query and fails on the file.
#           Cast sums to DECIMAL(38, 0) or BIGINT before.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"
"${PYTHON:-python3}" -m venv venv
venv/bin/pip install --quiet --disable-pip-version-check duckdb==2.0.1 pyarrow==26.0.1
venv/bin/python - <<'EOF'
import duckdb
import pyarrow.parquet as pq

rows = "(values (1, 9007199254740992::bigint), (2, 9007199254740992), (2, 1)) t(g, x)"
query = f"select g, sum(x) as s from {rows} group by g order by g"
exact = [(1, 9007199254740992), (2, 9007199254740993)]
assert [str(kind) for kind in duckdb.sql(query).types] == ["INTEGER", "HUGEINT"]
assert duckdb.sql(query).fetchall() == exact
duckdb.sql(f"copy ({query}) to 't.parquet'")
assert str(pq.read_schema("t.parquet").field("s").type) == "double"
assert duckdb.sql("select count(*), count(distinct s) from 't.parquet'").fetchall() == [(2, 1)]
duckdb.sql(f"copy ({query}) to 't.csv'")
assert open("t.csv").read().split() == ["g,s", "1,9007199254740992", "2,9007199254740993"]
duckdb.sql("copy (select 18446744073709551615::uhugeint as u) to 'u.parquet'")
assert pq.read_table("u.parquet")["u"].to_pylist() == [18446744073709551616.0]
duckdb.sql(f"copy (select g, s::decimal(38, 0) as s from ({query})) to 'd.parquet'")
assert pq.read_table("d.parquet")["s"].to_pylist() == [number for _, number in exact]
print("as described")
EOF
