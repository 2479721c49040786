#!/usr/bin/env bash
# NaN is the greatest number in DuckDB and DataFusion until the file has statistics
#
# Versions: pyarrow==26.0.1 duckdb==2.0.1 deltalake==1.6.6 polars==2.1.0
# Expected: x > 2 selects NaN from a file if it does in memory: both engines hold NaN to be greater than all numbers.
# Seen:     minimum and maximum of a Parquet column and of a Delta file leave NaN out, and both engines skip what has no
#           greater maximum: DuckDB finds no row in files of pyarrow or Polars (it does in its own), and none with x =
#           'nan'; delta-rs finds none in its own table, finds it with x + 0 > 2, and its delete of x > 2 deletes
#           nothing. Polars, with the same order, finds it.
# Matters:  a filter is then no function of the values: it depends on who wrote the file, and on whether an expression
#           can be pushed down.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"
"${PYTHON:-python3}" -m venv venv
venv/bin/pip install --quiet --disable-pip-version-check pyarrow==26.0.1 duckdb==2.0.1 deltalake==1.6.6 polars==2.1.0
venv/bin/python - <<'EOF'
import math

import deltalake
import duckdb
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq

table = numbers = pa.table({"x": [1.0, 2.0, math.nan]})
pq.write_table(table, "arrow.parquet")
pl.from_arrow(table).write_parquet("polars.parquet")
duckdb.sql("copy (select x from numbers) to 'duckdb.parquet'")


def rows(text):
    return len(duckdb.sql(text).fetchall())


assert rows("select x from numbers where x > 2") == 1
found = {name: rows(f"select x from '{name}.parquet' where x > 2") for name in ("arrow", "polars", "duckdb")}
assert found == {"arrow": 0, "polars": 0, "duckdb": 1}, found
assert rows("select x from numbers where x = 'nan'") == 1
assert rows("select x from 'arrow.parquet' where x = 'nan'") == 0
for name in found:
    assert pl.scan_parquet(f"{name}.parquet").filter(pl.col("x") > 2).collect().height == 1

deltalake.write_deltalake("delta", table)
delta = deltalake.DeltaTable("delta")


def delta_rows(text):
    return pa.table(deltalake.QueryBuilder().register("t", delta).execute(text).read_all()).to_pylist()


assert [row["b"] for row in delta_rows("select x > 2 as b from t")] == [False, False, True]
assert delta_rows("select x from t where x > 2") == []
assert len(delta_rows("select x from t where x + 0 > 2")) == 1
assert delta.delete("x > 2")["num_deleted_rows"] == 0
assert delta.to_pyarrow_table().num_rows == 3
print("as described")
EOF
