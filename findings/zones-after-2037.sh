#!/usr/bin/env bash
# What time is it in Berlin at noon UTC in July? Four libraries, three answers, by year
#
# Versions: polars==2.1.0 pyarrow==26.0.1 pandas==2.3.3 duckdb==2.0.1 tzdata==2026.6
# Expected: 14:00 in every year: the rule of the zone has no end, and all read the same database.
# Seen:     zoneinfo and DuckDB say 14:00 for ever; Arrow's kernels and pandas say 13:00 from 2038 on, Polars from
#           2100 on. None raises: their tables of transitions end, and winter goes on.
# Matters:  far times in zones (expiry dates, mortgages, placeholders such as 2999) fall into another hour or day by
#           the library that looks.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"
"${PYTHON:-python3}" -m venv venv
venv/bin/pip install --quiet --disable-pip-version-check polars==2.1.0 pyarrow==26.0.1 pandas==2.3.3 duckdb==2.0.1 tzdata==2026.6
venv/bin/python - <<'EOF'
import datetime as dt
from zoneinfo import ZoneInfo
import duckdb
import pandas
import polars as pl
import pyarrow as pa
import pyarrow.compute as pc

base, zone = duckdb.connect(), "Europe/Berlin"


def hours(year):
    noon = dt.datetime(year, 7, 1, 12, tzinfo=dt.timezone.utc)
    (of_duckdb,) = base.execute(f"select hour(timezone('{zone}', timestamptz '{noon:%Y-%m-%d %H:%M:%S}+00'))").fetchone()
    return {
        "zoneinfo": noon.astimezone(ZoneInfo(zone)).hour,
        "duckdb": of_duckdb,
        "polars": pl.Series([noon]).dt.convert_time_zone(zone).dt.hour()[0],
        "arrow": pc.hour(pa.array([noon], pa.timestamp("us", zone)))[0].as_py(),
        "pandas": pandas.Timestamp(noon).as_unit("us").tz_convert(zone).hour,
    }


assert set(hours(2037).values()) == {14}
for year in (2038, 2099):
    assert hours(year) == {"zoneinfo": 14, "duckdb": 14, "polars": 14, "arrow": 13, "pandas": 13}, hours(year)
for year in (2100, 2500):
    assert hours(year) == {"zoneinfo": 14, "duckdb": 14, "polars": 13, "arrow": 13, "pandas": 13}, hours(year)
print("as described")
EOF
