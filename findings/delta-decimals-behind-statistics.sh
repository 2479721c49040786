#!/usr/bin/env bash
# Filters lose rows of a Delta table whose decimals have more than fifteen digits
#
# Versions: deltalake==1.6.6, pyarrow==26.0.1, polars==2.1.0, duckdb==2.0.1
# Expected: a = x finds the rows with x: statistics of files are bounds, rounded outwards where they are rounded.
# Seen:     delta-rs writes the least and the greatest decimal of a file as floats to JSON, rounded to the nearest, and
#           files are skipped by them. Of 1234567890123456.12 in a decimal(18, 2) both bounds are ...456.2: Polars'
#           scan_delta, to_pandas(filters=), to_pyarrow_dataset, DuckDB over that and delta-rs' own SQL find no row, and
#           a delete of it deletes nothing. Where the float has more digits than the type, both bounds are null in
#           Arrow's dataset, and no filter of any kind finds a row of the file. Rows that are not asked about come whole.
# Matters:  amounts of money in a decimal(18, 2), or numbers of accounts in a decimal(20, 0), are there and are not found.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"
"${PYTHON:-python3}" -m venv venv
venv/bin/pip install --quiet --disable-pip-version-check \
    deltalake==1.6.6 pyarrow==26.0.1 polars==2.1.0 duckdb==2.0.1 pandas==3.1.1
venv/bin/python - <<'EOF'
import json
from decimal import Decimal
from pathlib import Path

import duckdb
import polars as pl
import pyarrow as pa
import pyarrow.compute as pc
from deltalake import DeltaTable, QueryBuilder, write_deltalake


def adds(path):
    """The files that a commit adds."""
    actions = map(json.loads, Path(path).read_text().splitlines())
    return [action["add"] for action in actions if "add" in action]


def found(folder, kind, value):
    """How many rows of `value` each finds in a table of that row and one that is greater by one."""
    for each in (value, value + 1):
        write_deltalake(folder, pa.table({"a": pa.array([each], kind)}), mode="append")
    table = DeltaTable(folder)
    dataset = table.to_pyarrow_dataset()
    assert dataset.to_table()["a"].to_pylist().count(value) == 1
    digits = f"decimal({kind.precision}, {kind.scale})"
    return {
        "Polars": pl.scan_delta(folder).filter(pl.col("a") == pl.lit(value)).collect().height,
        "Polars, all rows": pl.scan_delta(folder).collect().filter(pl.col("a") == pl.lit(value)).height,
        "pandas": len(table.to_pandas(filters=[("a", "==", value)])),
        "Arrow": dataset.to_table(filter=pc.field("a") == pa.scalar(value, kind)).num_rows,
        "DuckDB": len(duckdb.sql(f"select 1 from dataset where a = '{value}'::{digits}").fetchall()),
        "delta-rs": pa.table(
            QueryBuilder().register("t", table).execute(f"select a from t where a = cast('{value}' as {digits})").read_all()
        ).num_rows,
    }


money = found("money", pa.decimal128(18, 2), Decimal("1234567890123456.12"))
assert money == {"Polars": 0, "Polars, all rows": 1, "pandas": 0, "Arrow": 0, "DuckDB": 0, "delta-rs": 0}, money
(stats,) = [json.loads(added["stats"]) for added in adds("money/_delta_log/00000000000000000000.json")]
assert stats["minValues"] == stats["maxValues"] == {"a": 1234567890123456.2}
assert DeltaTable("money").delete("a = cast('1234567890123456.12' as decimal(18, 2))")["num_deleted_rows"] == 0
digits = found("digits", pa.decimal128(20, 2), Decimal("99999999999999999.99"))
assert digits == {"Polars": 1, "Polars, all rows": 1, "pandas": 0, "Arrow": 0, "DuckDB": 0, "delta-rs": 1}, digits
dataset = DeltaTable("digits").to_pyarrow_dataset()
assert dataset.to_table().num_rows == 2
assert dataset.to_table(filter=pc.field("a") > pa.scalar(Decimal(0), pa.decimal128(20, 2))).num_rows == 0
print("as described")
EOF
