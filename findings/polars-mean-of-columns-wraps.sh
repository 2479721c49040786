#!/usr/bin/env bash
# The mean of two columns of Polars is less than both
#
# Versions: polars==2.1.0 duckdb==2.0.1
# Expected: mean_horizontal of 100 and 100 is 100.0 in any type, as mean of the two in one column, as rolling_mean of
#           small integers, and as the mean of a list of them, which is the same question.
# Seen:     the numbers are added in the type of the columns and wrap before they are divided: of two Int8 the mean is
#           -28.0, of two UInt8 of 200 it is 72.0, of two Int32 or Int64 of the greatest number -1.0, a float that looks
#           like any other. A wider column among them mends it. So do list.mean, arr.mean and DuckDB's list_avg.
# Matters:  mean is the one aggregate that nobody expects to overflow, since its result is a float between its operands;
#           sensors and images have UInt8, amounts in cents Int32.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"
"${PYTHON:-python3}" -m venv venv
venv/bin/pip install --quiet --disable-pip-version-check polars==2.1.0 duckdb==2.0.1
venv/bin/python - <<'EOF'
import duckdb
import polars as pl

wrapped = {
    (pl.Int8, 100): -28.0,
    (pl.UInt8, 200): 72.0,
    (pl.Int16, 30_000): -2768.0,
    (pl.Int32, 2**31 - 1): -1.0,
    (pl.UInt32, 2**32 - 1): 2147483647.0,
    (pl.Int64, 2**63 - 1): -1.0,
}
pair = pl.mean_horizontal("a", "b")
for (kind, value), mean in wrapped.items():
    frame = pl.DataFrame({"a": [value], "b": [value]}, schema={"a": kind, "b": kind})
    for engine in ("in-memory", "streaming"):
        assert frame.lazy().select(pair).collect(engine=engine).item() == mean
    assert frame.mean_horizontal().item() == mean
    assert pl.concat([frame["a"], frame["b"]]).mean() == float(value)
    assert frame.select(pl.concat_list("a", "b").list.mean()).item() == float(value)
    assert frame.select(pl.concat_arr("a", "b").arr.mean()).item() == float(value)
    assert duckdb.execute("select list_avg([?, ?])", [value, value]).fetchone() == (float(value),)

small = pl.DataFrame({"a": [100], "b": [100]}, schema={"a": pl.Int8, "b": pl.Int8})
assert small["a"].append(small["b"]).rolling_mean(2).to_list() == [None, 100.0]
assert small.with_columns(pl.col("b").cast(pl.Int16)).select(pair).item() == 100.0
print("as described")
EOF
