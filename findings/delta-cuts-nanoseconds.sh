#!/usr/bin/env bash
# Writing nanoseconds to Delta cuts them without a word, towards zero
#
# Versions: deltalake==1.6.6 pyarrow==26.0.1
# Expected: Delta has microseconds, so a timestamp that is no whole number of them is refused, as pyarrow refuses the
#           cast.
# Seen:     it is cut: 999 ns become 0, and so do -999 ns: moments before 1970 go up, those after it down, and two
#           different moments become one.
# Matters:  keys and orders by time change: what was before another moment is equal to it. Cast to microseconds before,
#           where the direction of rounding is chosen and seen.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"
"${PYTHON:-python3}" -m venv venv
venv/bin/pip install --quiet --disable-pip-version-check deltalake==1.6.6 pyarrow==26.0.1
venv/bin/python - <<'EOF'
import deltalake
import pyarrow as pa

nanoseconds = [-1_001, -999, -1, 0, 999, 1_001, 1_700_000_000_000_000_999]
times = pa.array(nanoseconds, pa.timestamp("ns"))
try:
    times.cast(pa.timestamp("us"))
except pa.ArrowInvalid as error:
    assert "would lose data" in str(error), error
else:
    raise AssertionError("pyarrow cuts too")
deltalake.write_deltalake("table", pa.table({"t": times, "n": range(len(times))}))
stored = deltalake.DeltaTable("table").to_pyarrow_table().sort_by("n")
assert stored["t"].type.unit == "us"
found = stored["t"].cast(pa.int64()).to_pylist()
assert found == [-1, 0, 0, 0, 0, 1, 1_700_000_000_000_000], found
assert [each // 1000 for each in nanoseconds] == [-2, -1, -1, 0, 0, 1, 1_700_000_000_000_000]
print("as described")
EOF
