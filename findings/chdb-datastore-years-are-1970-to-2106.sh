#!/usr/bin/env bash
# In chDB's DataStore the year of 1950-06-15 is 1970, until the year is a column of the table
#
# Versions: chdb==4.4.0 chdb-core==26.9.0 pandas==3.1.1 numpy==2.4.6
# Expected: dt.year is the year, whatever the moment, as in pandas and as toYear of ClickHouse's DateTime64 says.
# Seen:     year, month, day, hour, dayofweek, month_name and floor("D") of what is before 1970 are those of
#           1970-01-01 00:00:00, and of what is after 2106-02-07 06:28:15 those of this second: the bounds of 32 bits
#           without a sign. Days of the month beyond 2106 come out as 7. In a filter, as a key of groups and as a new
#           column of a table the same expression is right, so rows of "year < 1970" are found whose year is then 1970.
# Matters:  dates of birth and ends of contracts are moved without an error, by how the column is asked for.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"
"${PYTHON:-python3}" -m venv venv
venv/bin/pip install --quiet --disable-pip-version-check chdb==4.4.0 chdb-core==26.9.0 pandas==3.1.1 numpy==2.4.6
TZ=UTC venv/bin/python -W ignore - <<'END'
import datetime as dt

import chdb
import pandas as pd
from datastore import DataStore

MOMENTS = [
    dt.datetime(1950, 6, 15, 12, 34, 56),
    dt.datetime(1969, 12, 31, 23, 59, 59),
    dt.datetime(2000, 2, 3, 4, 5, 6),
    dt.datetime(2106, 2, 7, 6, 28, 15),
    dt.datetime(2110, 5, 5),
]
FIRST, LAST = dt.datetime(1970, 1, 1), dt.datetime(1970, 1, 1) + dt.timedelta(seconds=2**32 - 1)
held = [min(max(moment, FIRST), LAST) for moment in MOMENTS]
frame = pd.DataFrame({"at": MOMENTS})


def store() -> DataStore:
    return DataStore.from_df(frame.copy())


for part in ("year", "month", "day", "hour", "minute", "second"):
    right = [getattr(moment, part) for moment in MOMENTS]
    seen = [getattr(moment, part) for moment in held]
    assert getattr(frame["at"].dt, part).tolist() == right
    assert getattr(store()["at"].dt, part).to_pandas().tolist() == seen != right, part
    whole = store()
    whole["part"] = getattr(whole["at"].dt, part)
    assert whole.to_pandas()["part"].tolist() == right, part
assert store()["at"].dt.year.to_pandas().tolist() == [1970, 1970, 2000, 2106, 2106]
assert store()["at"].dt.dayofweek.to_pandas().tolist() == [moment.weekday() for moment in held]
assert store()["at"].dt.floor("D").to_pandas().dt.date.tolist() == [moment.date() for moment in held]
assert int(store()["at"].dt.year.max()) == 2106

before = store()
before = before[before["at"].dt.year < 1970]
assert before.to_pandas()["at"].dt.year.tolist() == [1950, 1969]
assert chdb.query("select toYear(toDateTime64('1950-06-15 12:34:56', 6, 'UTC'))").bytes().strip() == b"1950"
print("1950-06-15 is of 1970")
END
