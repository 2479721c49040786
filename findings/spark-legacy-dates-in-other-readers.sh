#!/usr/bin/env bash
# Files that Spark marks as of the old calendar are read by others as of the new one, days away
#
# Versions: pyspark==4.3.0 pyarrow==26.0.1 duckdb==2.0.1 polars==2.1.0
# Expected: a file that Spark writes with spark.sql.parquet.datetimeRebaseModeInWrite=LEGACY, as every Spark 2 did, says
#           so in its footer (org.apache.spark.legacyDateTime), so readers convert its dates, or refuse them.
# Seen:     Spark reads the dates that it wrote; pyarrow, DuckDB and Polars take no notice of the mark: 1500-01-01 is
#           1500-01-10, and a day of the year 44 is two days earlier. Dates from 1582-10-15 on are right, so the file
#           looks sound. Needs Java 17.
# Matters:  the days differ, in either direction, by century; what Spark and another engine compute of one file differs,
#           and nothing is logged.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"
"${PYTHON:-python3}" -m venv venv
venv/bin/pip install --quiet --disable-pip-version-check pyspark==4.3.0 pyarrow==26.0.1 duckdb==2.0.1 polars==2.1.0
venv/bin/python - <<'EOF'
import datetime as dt
import glob
import os
import sys

import duckdb
import polars as pl
import pyarrow.parquet as pq
from pyspark.sql import SparkSession

os.environ["PYSPARK_PYTHON"] = sys.executable
spark = (
    SparkSession.builder.master("local[1]")
    .config("spark.ui.enabled", "false")
    .config("spark.ui.showConsoleProgress", "false")
    .config("spark.driver.bindAddress", "127.0.0.1")
    .config("spark.local.dir", os.getcwd())
    .config("spark.sql.session.timeZone", "UTC")
    .config("spark.sql.parquet.datetimeRebaseModeInWrite", "LEGACY")
    .getOrCreate()
)
dates = [dt.date(44, 3, 15), dt.date(1500, 1, 1), dt.date(1582, 10, 15), dt.date(2000, 1, 1)]
spark.createDataFrame([(date,) for date in dates], "d date").coalesce(1).write.parquet("dates")
assert [row.d for row in spark.read.parquet("dates").orderBy("d").collect()] == dates
spark.stop()
(path,) = glob.glob("dates/*.parquet")
assert b"org.apache.spark.legacyDateTime" in pq.read_metadata(path).metadata
others = [dt.date(44, 3, 13), dt.date(1500, 1, 10), *dates[2:]]
assert pq.read_table(path)["d"].to_pylist() == others
assert [date for (date,) in duckdb.sql(f"select d from '{path}' order by d").fetchall()] == others
assert pl.read_parquet(path)["d"].to_list() == others
print("as described")
EOF
