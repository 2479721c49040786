#!/usr/bin/env bash
# Filters that are handed to a Vortex file take -0.0 for less than 0.0, also those of Polars, DuckDB and Arrow
#
# Versions: vortex-data==0.93.0, polars==2.1.0, duckdb==2.0.1, pyarrow==26.0.1
# Expected: the rows of `a = 0` and `a < 0` are those that each of the three finds in a table in memory: both zeros are
#           equal in all of them. Where a format compares otherwise, its adapter filters again or hands nothing over.
# Seen:     the file compares floats in IEEE's total order. `a = 0` loses the rows of -0.0 and `a < 0` gives them, in
#           each of the three, since they hand the filter over and do not check again. NaN is above all numbers, as in
#           Polars and DuckDB; in Arrow, where it is above none, `a > 1` gives rows that are not its own.
# Matters:  one query over one table gives other rows by the format that the table is kept in.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"
"${PYTHON:-python3}" -m venv venv
venv/bin/pip install --quiet --disable-pip-version-check \
    vortex-data==0.93.0 polars==2.1.0 duckdb==2.0.1 pyarrow==26.0.1
venv/bin/python - <<'EOF'
import duckdb
import polars as pl
import pyarrow as pa
import pyarrow.compute as pc
import vortex
import vortex.io

table = pa.table({"row": [0, 1, 2, 3, 4, 5], "a": [-0.0, 0.0, 1.0, float("nan"), -1.0, None]})
vortex.io.write(table, "rows.vortex")
file = vortex.open("rows.vortex")
back = file.to_arrow().read_all()
assert str(back["a"].to_pylist()) == str(table["a"].to_pylist())  # what is stored is right
dataset = file.to_dataset()


def in_polars(rows, condition):
    return rows.filter(condition)["row"].to_list()


def in_duckdb(rows, condition):
    return [row for (row,) in duckdb.sql(f"select row from {rows} where {condition} order by row").fetchall()]


a = pl.col("a")
held_rows = table
lazy, held = file.to_polars(), pl.from_arrow(table)
for condition, of_file, of_table in ((a == 0, [1], [0, 1]), (a < 0, [0, 4], [4]), (a > 1, [3], [3])):
    assert lazy.filter(condition).collect()["row"].to_list() == of_file
    assert in_polars(held, condition) == of_table
assert in_duckdb("dataset", "a = 0") == [1] and in_duckdb("held_rows", "a = 0") == [0, 1]
assert in_duckdb("dataset", "a < 0") == [0, 4] and in_duckdb("held_rows", "a < 0") == [4]
field = pc.field("a")
for condition, of_file, of_table in ((field == 0.0, [1], [0, 1]), (field < 0.0, [0, 4], [4]), (field > 1.0, [3], [])):
    assert dataset.to_table(filter=condition)["row"].to_pylist() == of_file
    assert table.filter(condition)["row"].to_pylist() == of_table
print("as described")
EOF
