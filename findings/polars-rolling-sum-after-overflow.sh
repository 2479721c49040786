#!/usr/bin/env bash
# A rolling sum that has overflowed once is NaN in every later window
#
# Versions: polars==2.1.0
# Expected: two large numbers overflow to infinity in the one window that holds both; later windows are right again.
# Seen:     rolling_sum, rolling_mean, rolling_sum_by and rolling().agg(sum) give NaN for all windows that follow,
#           although these hold nothing but ones; rolling_var and rolling_min recover.
# Matters:  a moving sum that subtracts what leaves the window has a memory; recomputing each window, or adding up
#           slices, has none.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"
"${PYTHON:-python3}" -m venv venv
venv/bin/pip install --quiet --disable-pip-version-check polars==2.1.0
venv/bin/python - <<'EOF'
import math
import polars as pl

values = [1e308, 1e308, 1.0, 1.0, 1.0, 1.0]
frame = pl.DataFrame({"i": range(6), "v": values})
sums = {
    "rolling_sum": frame["v"].rolling_sum(2),
    "rolling_mean": frame["v"].rolling_mean(2),
    "rolling_sum_by": frame.select(pl.col("v").rolling_sum_by("i", window_size="2i"))["v"],
    "rolling().agg": frame.rolling("i", period="2i").agg(pl.col("v").sum())["v"],
}
for name, found in sums.items():
    assert found[1] == math.inf, (name, found)
    assert all(map(math.isnan, found[2:])), (name, found)
assert frame["v"].rolling_var(2).to_list()[3:] == [0.0, 0.0, 0.0]
assert frame["v"].rolling_min(2).to_list()[2:] == [1.0] * 4
print("as described")
EOF
