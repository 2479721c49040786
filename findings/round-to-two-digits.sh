#!/usr/bin/env bash
# Rounding one double to two digits: two answers among five tools, and two more for a half
#
# Versions: polars==2.1.0 pyarrow==26.0.1 duckdb==2.0.1 numpy==2.4.6
# Expected: 2.675 is a little below the half, so it rounds to 2.67 everywhere; a half goes to even, or away from zero,
# once for each tool.
# Seen:     Polars, Arrow and numpy scale first and say 2.68; Python and DuckDB say 2.67. DuckDB's round(2.5) is 3,
#           its cast of 2.5 to an integer is 2, and the cast of a decimal 2.5 is 3.
# Matters:  a total of rounded prices differs by who rounds; round once, in one place.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"
"${PYTHON:-python3}" -m venv venv
venv/bin/pip install --quiet --disable-pip-version-check polars==2.1.0 pyarrow==26.0.1 duckdb==2.0.1 numpy==2.4.6
venv/bin/python - <<'EOF'
import duckdb
import numpy
import polars as pl
import pyarrow as pa
import pyarrow.compute as pc

base = duckdb.connect()
found = {
    "python": round(2.675, 2),
    "duckdb": base.execute("select round(2.675::double, 2)").fetchone()[0],
    "polars": pl.Series([2.675]).round(2)[0],
    "arrow": pc.round(pa.array([2.675]), 2)[0].as_py(),
    "numpy": float(numpy.round(2.675, 2)),
}
assert found == {"python": 2.67, "duckdb": 2.67, "polars": 2.68, "arrow": 2.68, "numpy": 2.68}, found
halves = base.execute("select round(2.5::double), 2.5::double::int, 2.5::decimal(3, 1)::int").fetchone()
assert halves == (3.0, 2, 3), halves
print("as described")
EOF
