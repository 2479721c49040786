#!/usr/bin/env bash
# Of the frame "before me" DataFusion gives the row itself, where the key is an unsigned integer near zero
#
# Versions: datafusion==55.0.0 duckdb==2.0.1 apsw==3.54.1.0 chdb==4.4.0
# Expected: of the keys 0, 1, 3 and 10, "range between 3 preceding and 1 preceding" of the key 0 is empty, whatever the
#           type of the key: -3 to -1.
# Seen:     of an unsigned key both ends that would be below zero are zero, so the frame of the key 0 is the key 0: a
#           sum of what was before includes the row itself; "2 preceding and 2 preceding" of the key 1 is the key 0, and
#           descending the same with "following". A signed key is right. SQLite and ClickHouse are right; DuckDB raises
#           "Overflow in subtraction of UINT8 (0 - 3)".
# Matters:  offsets, ticks and seconds since a start are unsigned and begin at 0; a feature made of the past then holds
#           what it is to predict, for the first rows alone.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"
"${PYTHON:-python3}" -m venv venv
venv/bin/pip install --quiet --disable-pip-version-check \
    datafusion==55.0.0 duckdb==2.0.1 apsw==3.54.1.0 chdb==4.4.0 pyarrow==26.0.1
venv/bin/python - <<'EOF'
import json

import apsw
import chdb
import datafusion
import duckdb
import pyarrow as pa

keys, values = [0, 1, 3, 10], [1, 2, 4, 8]
right = {
    "range between 3 preceding and 1 preceding": [None, 1, 3, None],
    "range between 2 preceding and 2 preceding": [None, None, 2, None],
    "desc range between 1 following and 3 following": [None, 1, 3, None],
}
seen = {
    "range between 3 preceding and 1 preceding": [1, 1, 3, None],
    "range between 2 preceding and 2 preceding": [1, 1, 2, None],
    "desc range between 1 following and 3 following": [1, 1, 3, None],
}
query = "select sum(v) over (order by k {}) as s from {} order by k".format

context, lite = datafusion.SessionContext(), apsw.Connection(":memory:")
lite.execute("create table t (k int, v int)")
lite.executemany("insert into t values (?, ?)", list(zip(keys, values)))
for kind in (pa.uint8(), pa.uint32(), pa.uint64(), pa.int8(), pa.int64()):
    table = pa.table({"k": pa.array(keys, kind), "v": values})
    context.from_arrow(table, name=f"t_{kind}")
    for frame, sums in right.items():
        found = context.sql(query(frame, f"t_{kind}")).to_arrow_table()["s"].to_pylist()
        assert found == (seen[frame] if pa.types.is_unsigned_integer(kind) else sums)

for frame, sums in right.items():
    assert [s for (s,) in lite.execute(query(frame, "t"))] == sums
    rows = "(select toUInt8(k) as k, v from values('k Int64, v Int64', (0, 1), (1, 2), (3, 4), (10, 8)))"
    lines = str(chdb.query(query(frame, rows), "JSONEachRow")).splitlines()
    assert [int(json.loads(line)["s"]) or None for line in lines] == sums

small = pa.table({"k": pa.array(keys, pa.uint8()), "v": values})
try:
    duckdb.sql(query("range between 3 preceding and 1 preceding", "small")).fetchall()
except duckdb.OutOfRangeException as error:
    assert "Overflow in subtraction of UINT8 (0 - 3)" in str(error)
else:
    raise AssertionError("DuckDB computes it")
print("as described")
EOF
