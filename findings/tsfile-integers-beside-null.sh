#!/usr/bin/env bash
# An integer of a TsFile is read as another one where a null is among its next 1,024 rows
#
# Versions: tsfile==2.5.0 pandas==3.1.1 numpy==2.4.6
# Expected: to_dataframe gives the integers that the file has: its column is of pandas' Int64, which holds null beside
#           all of them.
# Seen:     the file is right, as a reader of rows says. to_dataframe reads 1,024 rows at once, and where one of these
#           is null the others come through a double on their way to Int64: 2**53 + 1 is 2**53. The null at row 1,023
#           changes row 0, the null at row 1,024 does not; one in another column does not either. An integer near 2**63
#           raises.
# Matters:  identifiers and nanoseconds are such numbers: two become one, and by the type of the column nothing has
#           happened; a gap in a series changes its neighbours.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"
"${PYTHON:-python3}" -m venv venv
venv/bin/pip install --quiet --disable-pip-version-check tsfile==2.5.0 pandas==3.1.1 numpy==2.4.6
venv/bin/python - <<'EOF'
import numpy
import pandas
from tsfile import TsFileReader
from tsfile.utils import dataframe_to_tsfile, to_dataframe

great, rows = 2**53 + 1, 3000


def written(null_at):
    values = [great + 2 * n for n in range(rows)]
    if null_at is not None:
        values[null_at] = None
    others = pandas.array([None, *range(1, rows)], dtype="Int64")
    frame = pandas.DataFrame({"time": numpy.arange(rows), "v": pandas.array(values, dtype="Int64"), "w": others})
    path = f"{null_at}.tsfile"
    dataframe_to_tsfile(frame, path, "t")
    return path, values


def by_rows(path):
    found = []
    with TsFileReader(path) as reader, reader.query_table("t", ["v"]) as result:
        while result.next():
            found.append(None if result.is_null_by_index(2) else result.get_value_by_index(2))
    return found


def by_frame(path):
    column = to_dataframe(path, "t")["v"]
    assert str(column.dtype) == "Int64"
    return [None if value is pandas.NA else int(value) for value in column]


for null_at, wrong in ((None, range(0)), (1, range(1024)), (1023, range(1024)), (1024, range(1024, 2048))):
    path, values = written(null_at)
    assert by_rows(path) == values
    found = by_frame(path)
    assert [n for n in range(rows) if found[n] != values[n]] == [n for n in wrong if n != null_at]
    assert all(found[n] == int(float(values[n])) for n in wrong if n != null_at)
print("as described")
EOF
