#!/usr/bin/env bash
# Are bytes by which a Delta table is partitioned read back?
#
# Versions: deltalake==1.6.6 pyarrow==26.0.1
# Expected: b'\xff' is read as b'\xff': the protocol says how bytes are written into the values of partitions.
# Seen:     delta-rs writes them as six characters, \u00FF, and reads these characters as the bytes. Empty bytes are read
#           as null.
# Matters:  no error anywhere, and each copy of such a table makes its keys six times as long.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"
"${PYTHON:-python3}" -m venv venv
venv/bin/pip install --quiet --disable-pip-version-check deltalake==1.6.6 pyarrow==26.0.1
venv/bin/python - <<'EOF'
import os
import sys

import deltalake
import pyarrow as pa

deltalake.write_deltalake("table", pa.table({"k": [b"\xff", b""], "v": [1, 2]}), partition_by=["k"])
found = deltalake.DeltaTable("table").to_pyarrow_table().sort_by("v")["k"].to_pylist()
assert found == [b"\\u00FF", None], found
assert len(found[0]) == 6
print("as described")
sys.stdout.flush()
os._exit(0)  # threads of the libraries are still there
EOF
