#!/usr/bin/env bash
# A sorted column of Polars that is cast with wrapping stays sorted by its word alone
#
# Versions: polars==2.1.0
# Expected: cast(..., wrap_numerical=True) of a column gives the same for a sorted one as for any other, and what
#           follows sorts and compares what is there; as reinterpret does, and the arithmetic that wraps.
# Seen:     the mark that says "sorted" stays, and the values, of which the large have become negative, are not: sort()
#           changes nothing, max() is the last value and min() the first, and a filter h > 0 finds no row, as it looks
#           for the place where the positive begin. Of the same numbers in another order before the cast all are right.
#           Int64 to Int8 the same; from a signed type to an unsigned one the mark is gone.
# Matters:  hashes of 64 bits are cast so for a database that has no unsigned integers: whether the result can be sorted
#           hangs on whether somebody has sorted before.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"
"${PYTHON:-python3}" -m venv venv
venv/bin/pip install --quiet --disable-pip-version-check polars==2.1.0
venv/bin/python - <<'EOF'
import polars as pl

hashes = pl.DataFrame({"h": [7, 2**63 + 5, 3, 2**63]}, schema={"h": pl.UInt64})
signed = pl.col("h").cast(pl.Int64, wrap_numerical=True)
right = sorted(value - 2**64 if value >= 2**63 else value for value in hashes["h"])


def answers(frame):
    wrapped = frame.select(signed)
    return {
        "sorted": wrapped.sort("h")["h"].to_list(),
        "min, max": wrapped.select(a=pl.col("h").min(), b=pl.col("h").max()).row(0),
        "h > 0": sorted(wrapped.filter(pl.col("h") > 0)["h"]),
        "sum": wrapped["h"].sum(),
    }


total = sum(right) % 2**64
assert answers(hashes) == {"sorted": right, "min, max": (right[0], right[-1]), "h > 0": [3, 7], "sum": total}
as_it_was = [3, 7, -(2**63), -(2**63) + 5]
wrong = {"sorted": as_it_was, "min, max": (as_it_was[0], as_it_was[-1]), "h > 0": [], "sum": total}
assert answers(hashes.sort("h")) == wrong
assert hashes.sort("h").select(pl.col("h").reinterpret(signed=True)).sort("h")["h"].to_list() == right

small = pl.Series([1, 127, 128, 200]).sort()
assert small.cast(pl.Int8, wrap_numerical=True).flags["SORTED_ASC"]
assert small.cast(pl.Int8, wrap_numerical=True).max() == -56
assert not small.cast(pl.UInt64, wrap_numerical=True).flags["SORTED_ASC"]
print("as described")
EOF
