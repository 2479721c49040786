#!/usr/bin/env bash
# Is an empty text that a Delta table is partitioned by empty, or null?
#
# Versions: deltalake==1.6.6 polars==2.1.0 pyarrow==26.0.1
# Expected: what was written: '' and None are two values.
# Seen:     the protocol has one spelling for both, so delta-rs writes '' and reads null; Polars reads the same files
#           and says ''. One table, two answers, and a filter k = '' finds the row or not.
# Matters:  an empty text has to be refused as a partition, or written as something else.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"
"${PYTHON:-python3}" -m venv venv
venv/bin/pip install --quiet --disable-pip-version-check deltalake==1.6.6 polars==2.1.0 pyarrow==26.0.1
venv/bin/python - <<'EOF'
import os
import sys
import deltalake
import polars as pl
import pyarrow as pa

rows = pa.table({"k": ["", "a", None], "v": [1, 2, 3]})
deltalake.write_deltalake("table", rows, partition_by=["k"])
by_arrow = deltalake.DeltaTable("table").to_pyarrow_table().sort_by("v")["k"].to_pylist()
by_polars = pl.read_delta("table").sort("v")["k"].to_list()
assert by_arrow == [None, "a", None], by_arrow
assert by_polars == ["", "a", None], by_polars
print("as described")
sys.stdout.flush()
os._exit(0)  # threads of both libraries are still there
print("as described")
EOF
