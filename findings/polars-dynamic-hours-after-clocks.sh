#!/usr/bin/env bash
# In which window of group_by_dynamic an hour is depends on whether the frame begins before a change of the clocks
#
# Versions: polars==2.1.0
# Expected: windows of 6 hours in a zone begin where dt.truncate("6h") says, at 0, 6, 12 and 18 o'clock, or every six
#           hours since some fixed moment: what is behind a window does not hang on what is before it.
# Seen:     only the start of the first window is found by the clock; the others are counted from it in hours passed. A
#           frame that begins in summer has its windows at 23, 5, 11 and 17 o'clock all winter, one that begins in
#           winter at 0, 6, 12 and 18, and then at 1, 7, 13 and 19 all summer. Windows of a day ("1d") are right.
# Matters:  sums of a window change when older rows are dropped, or when a table is computed in pieces: two partitions
#           of one table have windows that overlap.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"
"${PYTHON:-python3}" -m venv venv
venv/bin/pip install --quiet --disable-pip-version-check polars==2.1.0
venv/bin/python - <<'EOF'
from datetime import datetime

import polars as pl

zone = "Europe/Berlin"  # whose clocks go back on 2024-10-27, and forward on 2025-03-30
hours = pl.datetime_range(datetime(2024, 10, 26), datetime(2025, 4, 10), "1h", time_zone=zone, eager=True)
rows = pl.DataFrame({"at": hours, "n": 1})


def begins(rows, every):
    """The hours at which windows of a day in winter and of one in summer begin, and all starts since 2024-11-02."""
    windows = rows.group_by_dynamic("at", every=every).agg(pl.col("n").sum())
    assert windows["n"].sum() == rows.height
    starts = windows["at"]
    of = [starts.filter(starts.dt.date() == day.date()).dt.hour().to_list() for day in (winter, summer)]
    return of, set(starts.filter(starts.dt.date() > datetime(2024, 11, 1).date()).to_list())


winter, summer = datetime(2024, 12, 24), datetime(2025, 4, 5)
early, all_early = begins(rows, "6h")
later, all_later = begins(rows.filter(pl.col("at").dt.date() > datetime(2024, 10, 27).date()), "6h")
cut = sorted(set(rows["at"].dt.truncate("6h").dt.hour().to_list()))
assert cut == [0, 6, 12, 18]
assert early == [[5, 11, 17, 23], [0, 6, 12, 18]]  # the frame begins in summer
assert later == [[0, 6, 12, 18], [1, 7, 13, 19]]  # and in winter
assert all_early.isdisjoint(all_later)
assert begins(rows, "1d")[0] == [[0], [0]]
print("as described")
EOF
