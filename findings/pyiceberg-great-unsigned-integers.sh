#!/usr/bin/env bash
# What does PyIceberg do with an unsigned integer of 32 bits that is beyond the signed ones?
#
# Versions: pyiceberg[sql-sqlite,pyiceberg-core]==0.12.0 pyarrow==26.0.1
# Expected: the table is made with long, which holds them; or create_table says that there is no such type.
# Seen:     the table is made with int, and small values are appended; one from 2**31 on raises struct.error, which names
#           no column, when the data file is already written: it stays behind and belongs to no snapshot.
# Matters:  cast unsigned columns before they get there; files that no snapshot names have to be cleared up.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"
"${PYTHON:-python3}" -m venv venv
venv/bin/pip install --quiet --disable-pip-version-check "pyiceberg[sql-sqlite,pyiceberg-core]==0.12.0" pyarrow==26.0.1
venv/bin/python - <<'EOF'
import os
import struct
import sys
from pathlib import Path

import pyarrow as pa
from pyiceberg.catalog.sql import SqlCatalog

Path("warehouse").mkdir()
catalog = SqlCatalog("lake", uri="sqlite:///catalog.db", warehouse=f"file://{Path.cwd()}/warehouse")
catalog.create_namespace("of")
small = pa.table({"u": pa.array([1], pa.uint32())})
table = catalog.create_table("of.numbers", small.schema)
assert str(table.schema().fields[0].field_type) == "int", table.schema()
table.append(small)
try:
    table.append(pa.table({"u": pa.array([2**31], pa.uint32())}))
except struct.error as error:
    assert "'u'" not in str(error), error
else:
    raise AssertionError("it was appended")
assert table.refresh().scan().to_arrow()["u"].to_pylist() == [1]
assert len(list(Path("warehouse").rglob("*.parquet"))) == 2
print("as described")
sys.stdout.flush()
os._exit(0)  # threads of the libraries are still there
EOF
