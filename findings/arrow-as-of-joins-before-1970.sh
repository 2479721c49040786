#!/usr/bin/env bash
# One row from before 1970 in the right table, and Arrow's join_asof finds nothing for any row
#
# Versions: pyarrow==26.0.1
# Expected: each row of the left table with the latest of the right one at or before its time, whatever the signs of the
#           times: both tables are sorted, as join_asof wants them.
# Seen:     times are compared as unsigned numbers of 64 bits, so those from before 1970 and negative integers are later
#           than all others. If the right table begins with one, all rows after it are taken for not reached yet, and
#           every row of the left table is left with null; nothing is raised. The error "out-of-order on-key values",
#           which says that such a table is not sorted, comes only where the left table has a negative time as well as
#           others. Where all times of both are negative the answers are right. So it is for integers, dates and
#           timestamps.
# Matters:  a table of reference values that begins in the sixties joins with nothing.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"
"${PYTHON:-python3}" -m venv venv
venv/bin/pip install --quiet --disable-pip-version-check pyarrow==26.0.1
venv/bin/python - <<'END'
import pyarrow as pa

TYPES = [pa.int64(), pa.int32(), pa.date32(), pa.timestamp("s"), pa.timestamp("ns")]


def joined(left: list[int], right: list[int], kind: pa.DataType) -> list[int | None]:
    """For each time on the left, the time that was found on the right."""
    a = pa.table({"at": pa.array(left, kind), "key": [1] * len(left)})
    b = pa.table({"at": pa.array(right, kind), "key": [1] * len(right), "found": right})
    return a.join_asof(b, "at", "key", -1000)["found"].to_pylist()


def right_answer(left: list[int], right: list[int]) -> list[int | None]:
    return [max((time for time in right if time <= at), default=None) for at in left]


for kind in TYPES:
    for left, right, seen in (
        ([1, 5, 9], [1, 4, 9], [1, 4, 9]),
        ([1, 5, 9], [-3, 1, 4, 9], [None, None, None]),  # one row more, at -3
        ([1, 5, 9], [-3], [None, None, None]),  # which is the latest before all three
        ([-9, -5], [-10, -6], [-10, -6]),
    ):
        assert joined(left, right, kind) == seen, (kind, left, right, joined(left, right, kind))
        assert (seen == right_answer(left, right)) == (-3 not in right)
    try:
        joined([-1, 5], [1, 4], kind)
    except pa.ArrowInvalid as error:
        assert "out-of-order on-key values" in str(error)
    else:
        raise AssertionError(kind)
print("a time of -3 on the right hides all rows behind it")
END
