#!/usr/bin/env bash
# Of a slice of structs some of which are null, Arrow writes other rows to ORC
#
# Versions: pyarrow==26.0.1
# Expected: the rows of the slice, as it writes them to Parquet and to its own files, and as it writes slices of lists,
#           maps and booleans to ORC.
# Seen:     where a struct in the slice is null, the values are those from the beginning of the array that was sliced:
#           as many rows as the slice has, shifted. The batches of `to_batches` are such slices: all but the first come
#           out wrong. Without a null in the slice, and where a filter has made the rows anew, they are right. Nothing
#           raises.
# Matters:  who writes a table to ORC in pieces gets a file of the right length with rows of other places.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"
"${PYTHON:-python3}" -m venv venv
venv/bin/pip install --quiet --disable-pip-version-check pyarrow==26.0.1
venv/bin/python - <<'EOF'
import io

import pyarrow as pa
import pyarrow.feather as feather
import pyarrow.orc as orc
import pyarrow.parquet as parquet


def back(table, write, read):
    file = io.BytesIO()
    write(table, file)
    file.seek(0)
    return read(file)["a"].to_pylist()


rows = [{"x": 1}, {"x": 2}, None, {"x": 4}, {"x": 5}]
table = pa.table({"a": rows})
for start in range(5):
    piece = table.slice(start)
    assert piece["a"].to_pylist() == rows[start:]
    assert back(piece, parquet.write_table, parquet.read_table) == rows[start:]
    assert back(piece, feather.write_feather, feather.read_table) == rows[start:]
assert back(table, orc.write_table, orc.read_table) == rows
assert back(table.slice(1), orc.write_table, orc.read_table) == [{"x": 1}, {"x": 2}, None, {"x": 4}]
_, second = table.to_batches(max_chunksize=3)
assert second["a"].to_pylist() == [{"x": 4}, {"x": 5}]
assert back(pa.table(second), orc.write_table, orc.read_table) == [{"x": 4}, {"x": 5}]  # none of these is null
_, second = pa.table({"a": [*rows, None, {"x": 7}]}).to_batches(max_chunksize=5)
assert back(pa.table(second), orc.write_table, orc.read_table) == [{"x": 1}, {"x": 2}]  # of None and 7
piece = table.slice(1).filter(pa.array([True] * 4))
assert back(piece, orc.write_table, orc.read_table) == rows[1:]  # made anew
lists = pa.table({"a": [[1], [2], None, [4]]}).slice(1)
assert back(lists, orc.write_table, orc.read_table) == [[2], None, [4]]
print("as described")
EOF
