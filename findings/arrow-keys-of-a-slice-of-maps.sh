#!/usr/bin/env bash
# Which keys does a slice of a column of maps have?
#
# Versions: pyarrow==26.0.1
# Expected: those of its own rows, as `flatten` of a slice of lists and `field` of a slice of structs give.
# Seen:     those of all rows of the column that it is a slice of, in `keys` and in `items`; `flatten` takes no maps.
# Matters:  a check or a sum of a batch that was sliced off sees rows of its neighbours; cut by `offsets`.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"
"${PYTHON:-python3}" -m venv venv
venv/bin/pip install --quiet --disable-pip-version-check pyarrow==26.0.1
venv/bin/python - <<'EOF'
import os
import sys

import pyarrow as pa

maps = pa.array([[("a", 1)], [("b", 2)], [("c", 3)]], pa.map_(pa.string(), pa.int32())).slice(1, 1)
assert maps.to_pylist() == [[("b", 2)]]
assert maps.keys.to_pylist() == ["a", "b", "c"] and maps.items.to_pylist() == [1, 2, 3]
start, end = maps.offsets.to_pylist()
assert maps.keys.slice(start, end - start).to_pylist() == ["b"]
assert pa.array([[1], [2], [3]]).slice(1, 1).flatten().to_pylist() == [2]
assert pa.array([{"a": 1}, {"a": 2}]).slice(1).field("a").to_pylist() == [2]
try:
    maps.flatten()
except pa.ArrowNotImplementedError:
    pass
else:
    raise AssertionError("maps can be flattened")
print("as described")
sys.stdout.flush()
os._exit(0)  # threads of the libraries are still there
EOF
