#!/usr/bin/env bash
# Into a table that is partitioned by a float PyIceberg writes each row of zero twice, where both zeros are there
#
# Versions: pyiceberg[sql-sqlite]==0.12.0 pyarrow==26.0.1
# Expected: a table has the rows that were appended to it, in whichever partitions.
# Seen:     of 0.0, -0.0 and 1.5 there are two partitions of zero with both rows in each: four rows of zero instead of
#           two, of floats and of doubles; a scan, count() and the snapshot's added-records all say five. The keys are
#           taken by a group-by, which has two zeros, and the rows of each by ==, which has one. overwrite is the same,
#           with another column as a second key too. Nothing is raised. One of the zeros alone, in one append, is right.
#           Where NaN is among the keys, which == never finds, nothing can be written: "division by zero".
# Known:    Arrow's two ideas of zero are in arrow-zeros-that-are-equal.sh.
# Matters:  differences and roundings give -0.0; sums over the table are then wrong, in it and for all who read it.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"
"${PYTHON:-python3}" -m venv venv
venv/bin/pip install --quiet --disable-pip-version-check "pyiceberg[sql-sqlite]==0.12.0" pyarrow==26.0.1
venv/bin/python - <<'EOF'
import os

import pyarrow
from pyiceberg.catalog.sql import SqlCatalog

catalog = SqlCatalog("here", uri="sqlite:///here.db", warehouse=f"file://{os.getcwd()}")
catalog.create_namespace("given")
number = 0


def written(values, kind=pyarrow.float64(), keys=("x",)):
    """A table that is partitioned by these columns, with one row for each value."""
    global number
    number += 1
    rows = pyarrow.table({"n": range(len(values)), "x": pyarrow.array(values, kind), "k": ["a"] * len(values)})
    table = catalog.create_table(f"given.t{number}", schema=rows.schema)
    with table.update_spec() as spec:
        for key in keys:
            spec.add_identity(key)
    table.append(rows)
    return table, rows


def rows_of(table):
    return sorted(table.scan().to_arrow()["n"].to_pylist())


for kind in (pyarrow.float32(), pyarrow.float64()):
    table, rows = written([0.0, -0.0, 1.5], kind)
    assert rows_of(table) == [0, 0, 1, 1, 2], rows_of(table)
    assert table.scan().count() == int(table.current_snapshot().summary["added-records"]) == 5
    assert sorted(table.inspect.files()["record_count"].to_pylist()) == [1, 2, 2]
    table.overwrite(rows)
    assert rows_of(table) == [0, 0, 1, 1, 2]
    assert rows_of(written([0.0, -0.0, 1.5], kind, ("k", "x"))[0]) == [0, 0, 1, 1, 2]
    assert rows_of(written([0.0, -0.0, 1.5], kind, ())[0]) == [0, 1, 2]
    for right in ([0.0, 0.0, 1.5], [-0.0, -0.0, 1.5], [0.5, -0.5, None], [0.5, None, float("inf")]):
        assert rows_of(written(right, kind)[0]) == [0, 1, 2], right
    try:
        written([1.5, float("nan")], kind)
    except ZeroDivisionError:
        pass
    else:
        raise AssertionError("NaN was written")
print("three rows are five")
EOF
