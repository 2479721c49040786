#!/usr/bin/env bash
# A RANGE frame of ClickHouse takes the rows in whose key is NULL, however far away they are
#
# Versions: chdb==4.4.0 (ClickHouse 26.9.2)
# Expected: of the keys 1, 2, 3, 9 and NULL, which comes last, "range between current row and 1 following" of the row 9
#           is that row alone: NULL is no number between 9 and 10. DuckDB, SQLite and DataFusion say so.
# Seen:     the row 9 has the value of the row of NULL in its sum; with NULL first, descending, the frame of each row goes
#           on to the last. The same keys without the NULL, in the same Nullable column, are right. Nothing is raised.
# Matters:  a moving sum over a time that may be missing is wrong beside the missing ones, and looks like any other.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"
"${PYTHON:-python3}" -m venv venv
venv/bin/pip install --quiet --disable-pip-version-check chdb==4.4.0
venv/bin/python - <<'END'
import json

import chdb


def sums(frame: str, keys: list[object]) -> dict[object, int]:
    """The sum of each key's frame, where a key's value is ten times the key, and that of NULL 1000."""
    rows = ", ".join(f"({'NULL' if key is None else key}, {1000 if key is None else 10 * key})" for key in keys)
    asked = f"select k, sum(v) over ({frame}) as x from values('k Nullable(Int64), v Int64', {rows})"
    found = json.loads(str(chdb.query(asked, "JSONCompact")))["data"]
    return {None if key is None else int(key): int(total) for key, total in found}


ahead = "order by k range between current row and 1 following"
assert sums(ahead, [1, 2, 3, 9]) == {1: 30, 2: 50, 3: 30, 9: 90}
assert sums(ahead, [1, 2, 3, 9, None]) == {1: 30, 2: 50, 3: 30, 9: 90 + 1000, None: 1000}
first = "order by k desc nulls first range between current row and 1 following"
assert sums(first, [1, 2, 3, 9]) == {1: 10, 2: 30, 3: 50, 9: 90}
assert sums(first, [1, 2, 3, 9, None]) == {None: 1150, 9: 150, 3: 60, 2: 30, 1: 10}
print("a sum over keys from 9 to 10 has the value of NULL in it")
END
