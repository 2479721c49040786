#!/usr/bin/env bash
# A null among the keys on the right, and Arrow's join_asof finds the rows of no other key either
#
# Versions: pyarrow==26.0.1
# Expected: a row without a key matches at most rows without a key; what the other rows find does not change.
# Seen:     by one column of integers or dates, from the batch of the right table on that has a null among its keys no
#           row of the left table that has a key finds anything, not even what earlier batches hold. So the answer
#           depends on how the right table is cut into chunks. Keys of batches without nulls are compared by value, and
#           from the first null on by a hash, which meets values on the other side. Nulls on the left alone do no harm;
#           texts, and two columns of keys, always go by the hash, and are right.
# Matters:  one row that lacks its key takes the matches of all rows around it, and nothing is raised.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"
"${PYTHON:-python3}" -m venv venv
venv/bin/pip install --quiet --disable-pip-version-check pyarrow==26.0.1
venv/bin/python - <<'END'
import pyarrow as pa

LEFT = [(5, 1), (9, 2)]  # of time and key
RIGHT = [(3, 1), (4, 1), (8, 2)]
WITH_NULL = [*RIGHT, (9, None)]


def table(rows: list[tuple], kind: pa.DataType, keys: list[str]) -> pa.Table:
    values = pa.array([key for _, key in rows], pa.int32()).cast(kind)
    return pa.table({"at": [time for time, _ in rows]} | dict.fromkeys(keys, values))


def joined(left: list[tuple], right: list[tuple], kind=pa.int64(), keys=("key",), cut: int = 0) -> list[int | None]:
    """For each row on the left, the time that was found on the right, which is in two chunks if it is cut."""
    held = table(right, kind, keys).append_column("found", pa.array([time for time, _ in right]))
    if cut:
        held = pa.concat_tables([held.slice(0, cut), held.slice(cut)])
    return table(left, kind, keys).join_asof(held, "at", list(keys), -1000)["found"].to_pylist()


def right_answer(left: list[tuple], right: list[tuple]) -> list[int | None]:
    return [max((time for time, other in right if other == key and time <= at), default=None) for at, key in left]


assert right_answer(LEFT, RIGHT) == right_answer(LEFT, WITH_NULL) == [4, 8]
for kind in (pa.int64(), pa.int32(), pa.date32()):
    assert joined(LEFT, RIGHT, kind) == [4, 8]
    for cut, seen in ((0, [None, None]), (1, [None, None]), (2, [4, None]), (3, [4, None])):
        assert joined(LEFT, WITH_NULL, kind, cut=cut) == seen, (kind, cut)
    assert joined([*LEFT, (9, None)], RIGHT, kind) == [4, 8, None]
    assert joined(LEFT, WITH_NULL, kind, keys=("key", "again")) == [4, 8]
assert joined(LEFT, WITH_NULL, pa.string()) == [4, 8]
print("beside a null key nothing is found")
END
