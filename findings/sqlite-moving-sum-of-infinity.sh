#!/usr/bin/env bash
# In SQLite a moving sum is NULL for ever once an infinity has left its window
#
# Versions: apsw==3.54.1.0
# Expected: sum(v) OVER (ROWS 1 PRECEDING) of inf, 1, 1, 1 is inf, inf, 2, 2, and after an overflow the sum is finite
# again.
# Seen:     inf, inf, NULL, NULL; avg and total the same; after two numbers that overflow together the sum stays
#           infinite; and of 1e300, 1e284, 1, 1, 1, 1 the last sums are 0.0.
# Matters:  window frames are computed by an inverse step even where none exists; a result then depends on rows
#           outside its window.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"
"${PYTHON:-python3}" -m venv venv
venv/bin/pip install --quiet --disable-pip-version-check apsw==3.54.1.0
venv/bin/python - <<'EOF'
import math
import apsw

base = apsw.Connection(":memory:")
base.execute("create table t (i int, v double)")


def moving(function, values):
    base.execute("delete from t")
    base.executemany("insert into t values (?, ?)", list(enumerate(values)))
    return [row[0] for row in base.execute(f"select {function}(v) over (order by i rows 1 preceding) from t")]


for function in ("sum", "avg", "total"):
    assert moving(function, [math.inf, 1.0, 1.0, 1.0]) == [math.inf, math.inf, None, None]
assert moving("sum", [1e308, 1e308, 1.0, 1.0, 1.0]) == [1e308, math.inf, math.inf, math.inf, math.inf]
assert moving("sum", [1e300, 1e284, 1.0, 1.0, 1.0, 1.0])[3:] == [0.0, 0.0, 0.0]
assert moving("sum", [1e16, 1.0, 1.0, 1.0]) == [1e16, 1e16, 2.0, 2.0]  # what compensated sums do cure
print("as described")
EOF
