#!/usr/bin/env bash
# In a descending RANGE frame of Daft a row may be missing from "current row"
#
# Versions: daft==0.7.26 duckdb==2.0.1
# Expected: of the keys 9, 3, 2 and 1, descending, "range between 1 preceding and current row" of the key 2 has the keys
#           3 and 2: preceding is what comes before in the order asked for, and the row is in its own frame.
# Seen:     the two offsets are added to the key whatever the order is, and the ends are then looked for in the order:
#           this frame is empty for every row, and so is its mirror image with "1 following"; "unbounded preceding and 1
#           preceding" has the row itself and those behind it, "unbounded preceding and 1 following" leaves it out. So
#           a sum is NULL or of other rows. Ascending, and ROWS in both orders, are right; DuckDB is right. The method
#           range_between says that its offsets are of values: (-1, 0) is one below up to the row, and right by that,
#           but (-1, Window.current_row) is empty. Nothing is raised.
# Matters:  "newest first" is a common order for a look back in time, and all NULL may be taken for no data.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"
"${PYTHON:-python3}" -m venv venv
venv/bin/pip install --quiet --disable-pip-version-check daft==0.7.26 duckdb==2.0.1
venv/bin/python - <<'END'
import os

os.environ["DAFT_PROGRESS_BAR"] = "0"
import daft
import duckdb
from daft import Window, col

given = daft.from_pydict({"p": [1, 1, 1, 1], "k": [1, 2, 3, 9], "v": [10, 20, 30, 90]})
rows = "values (1, 1, 10), (1, 2, 20), (1, 3, 30), (1, 9, 90)"


def sums(frame: str, order: str) -> tuple[list[int | None], list[int | None]]:
    """The sums of the frames of the keys 1, 2, 3 and 9, by Daft and by DuckDB."""
    asked = f"select k, sum(v) over (partition by p order by k {order} {frame}) as s from given"
    by_daft = daft.sql(asked, given=given).sort("k").to_pydict()["s"]
    by_duckdb = duckdb.sql(f"with given(p, k, v) as ({rows}) select s from ({asked}) order by k").fetchall()
    return by_daft, [None if s is None else int(s) for (s,) in by_duckdb]


back, ahead = "range between 1 preceding and current row", "range between current row and 1 following"
before = "range between unbounded preceding and 1 preceding"
more = "range between unbounded preceding and 1 following"
for frame in (back, ahead, before, more, "rows between 1 preceding and current row"):
    by_daft, right = sums(frame, "asc")
    assert by_daft == right, (frame, by_daft, right)

assert sums(back, "desc") == ([None, None, None, None], [30, 50, 30, 90])
assert sums(ahead, "desc") == ([None, None, None, None], [10, 30, 50, 90])
assert sums(before, "desc") == ([150, 150, 140, 90], [140, 120, 90, None])
assert sums(more, "desc") == ([140, 120, 90, None], [150, 150, 140, 90])
by_daft, right = sums("rows between 1 preceding and current row", "desc")
assert by_daft == right == [30, 50, 120, 90]

newest = Window().partition_by("p").order_by("k", desc=True)
to_zero = col("v").sum().over(newest.range_between(-1, 0))
to_the_row = col("v").sum().over(newest.range_between(-1, Window.current_row))
found = given.select("k", to_zero.alias("zero"), to_the_row.alias("row")).sort("k").to_pydict()
assert (found["zero"], found["row"]) == ([10, 30, 50, 90], [None, None, None, None]), found
print("descending, a row is not in the frame from 1 preceding to current row")
END
