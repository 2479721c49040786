#!/usr/bin/env bash
# In Polars the sum of a list has other bits if another row's list has a null
#
# Versions: polars==2.1.0
# Expected: list.sum of a row depends on the numbers of that row.
# Seen:     300 floats and two large ones that cancel sum to 4480.0 alone or beside a list without nulls, and to
#           4481.1 beside a list with one; a slice without that row keeps the second value.
# Matters:  the result of a row depends on its neighbours, so on how rows are cut into batches.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"
"${PYTHON:-python3}" -m venv venv
venv/bin/pip install --quiet --disable-pip-version-check polars==2.1.0
venv/bin/python - <<'EOF'
import polars as pl

numbers = [0.1 * n for n in range(300)] + [1e17, -1e17]
assert pl.Series([numbers]).list.sum()[0] == 4480.0
assert pl.Series([numbers, [1.0]]).list.sum()[0] == 4480.0
beside_null = pl.Series([numbers, [1.0, None]])
assert beside_null.list.sum()[0] == 4481.1
assert beside_null[:1].list.sum()[0] == 4481.1
print("as described")
EOF
