#!/usr/bin/env bash
# In Polars x ** y has other bits in a frame of one row
#
# Versions: polars==2.1.0
# Expected: a power of two columns is computed row by row, so it is the same in any frame.
# Seen:     of one row the exponent is taken for a constant, and a constant 3 is done by multiplication: 0.57 ** 3.0
#           is 0.18519299999999997 alone and 0.18519299999999994 beside another row.
# Matters:  the last, short batch of a stream has other results than the same row in a long one.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"
"${PYTHON:-python3}" -m venv venv
venv/bin/pip install --quiet --disable-pip-version-check polars==2.1.0
venv/bin/python - <<'EOF'
import polars as pl

frame = pl.DataFrame({"x": [0.57, 0.3], "y": [3.0, 2.0]})
power = pl.col("x") ** pl.col("y")
assert frame.select(power)["x"][0] == 0.18519299999999994
assert frame[:1].select(power)["x"][0] == 0.18519299999999997
print("as described")
EOF
