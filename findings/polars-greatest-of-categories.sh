#!/usr/bin/env bash
# In Polars the greatest of two categories is not the greater one
#
# Versions: polars==2.1.0
# Expected: where a > b is true, max_horizontal(a, b) is a.
# Seen:     comparisons of Categorical go by text; max_horizontal goes by the numbers of the categories, which are
#           those of the order in which the process met them.
# Matters:  the same query has another answer in a process that has seen other texts before.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"
"${PYTHON:-python3}" -m venv venv
venv/bin/pip install --quiet --disable-pip-version-check polars==2.1.0
venv/bin/python - <<'EOF'
import polars as pl

kind = {"a": pl.Categorical, "b": pl.Categorical}
frame = pl.DataFrame({"a": ["b", "a"], "b": ["a", "b"]}, schema=kind)
found = frame.select(is_greater=pl.col("a") > pl.col("b"), greatest=pl.max_horizontal("a", "b"))
assert found["is_greater"].to_list() == [True, False]
assert found["greatest"].to_list() == ["a", "a"]
print("as described")
EOF
