#!/usr/bin/env bash
# Polars takes a CSV that is compressed by bzip2 for text
#
# Versions: polars==2.1.0 pyarrow==26.0.1
# Expected: read_csv decompresses .csv.bz2 as it does .gz and .zst, or says that it does not.
# Seen:     a frame of no rows and one column, whose name is the compressed bytes; no error. Arrow reads the file.
# Matters:  zero rows without an error look like an empty day.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"
"${PYTHON:-python3}" -m venv venv
venv/bin/pip install --quiet --disable-pip-version-check polars==2.1.0 pyarrow==26.0.1
venv/bin/python - <<'EOF'
import bz2
import polars as pl
import pyarrow.csv

with open("numbers.csv.bz2", "wb") as file:
    file.write(bz2.compress(b"n\n1\n2\n3\n"))
frame = pl.read_csv("numbers.csv.bz2")
assert frame.shape == (0, 1) and frame.columns[0].startswith("BZh9"), frame
assert pyarrow.csv.read_csv("numbers.csv.bz2")["n"].to_pylist() == [1, 2, 3]
print("as described")
EOF
