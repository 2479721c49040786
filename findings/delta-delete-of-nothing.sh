#!/usr/bin/env bash
# A delete that finds no row leaves no version, and drops what was to be written with it
#
# Versions: deltalake==1.6.6 pyarrow==26.0.1
# Expected: DeltaTable.delete(..., commit_properties=...) is a commit, also of no rows, so its metadata can be read
# back.
# Seen:     where no row is found no version is made; the metadata of the call is nowhere, and nothing says so.
# Matters:  whoever keeps a position or the name of a run in the metadata of commits waits for one that never comes.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"
"${PYTHON:-python3}" -m venv venv
venv/bin/pip install --quiet --disable-pip-version-check deltalake==1.6.6 pyarrow==26.0.1
venv/bin/python - <<'EOF'
import deltalake
import pyarrow as pa

deltalake.write_deltalake("table", pa.table({"v": [1, 2]}))
table = deltalake.DeltaTable("table")
said = deltalake.CommitProperties(custom_metadata={"by": "me"})
table.delete("v = 5", commit_properties=said)
assert deltalake.DeltaTable("table").version() == 0
table.delete("v = 2", commit_properties=said)
assert deltalake.DeltaTable("table").version() == 1
assert deltalake.DeltaTable("table").history(1)[0]["by"] == "me"
print("as described")
EOF
