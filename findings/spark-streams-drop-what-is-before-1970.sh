#!/usr/bin/env bash
# A stream of Spark drops rows from before 1970 as late, in its first micro-batch, whatever its watermark allows
#
# Versions: pyspark==4.3.0
# Expected: in a windowed count with withWatermark("at", "3650 days") a row of 1969 counts beside rows of 1970: nothing
#           came before it, and it is within the ten years that the watermark allows.
# Seen:     it is dropped; the same query as a batch counts it. The watermark begins at 1970-01-01 and never goes back,
#           so all windows that end before are closed from the start. Nothing is raised or logged; only
#           numRowsDroppedByWatermark of the query's progress says 1. Needs Java 17.
# Matters:  a backfill of old records by a stream loses whatever is from before 1970, and a batch over it does not.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"
"${PYTHON:-python3}" -m venv venv
venv/bin/pip install --quiet --disable-pip-version-check pyspark==4.3.0
venv/bin/python - <<'EOF'
import os
import sys

from pyspark.sql import SparkSession
from pyspark.sql import functions as f

os.environ.update(PYSPARK_PYTHON=sys.executable, TZ="UTC")
spark = (
    SparkSession.builder.master("local[1]")
    .config("spark.ui.enabled", "false")
    .config("spark.ui.showConsoleProgress", "false")
    .config("spark.driver.bindAddress", "127.0.0.1")
    .config("spark.local.dir", os.getcwd())
    .config("spark.sql.session.timeZone", "UTC")
    .config("spark.sql.shuffle.partitions", "1")
    .getOrCreate()
)
spark.sql("select explode(array(timestamp'1969-06-01 12:00:00', timestamp'1970-02-01', timestamp'1970-03-01')) as at")\
    .write.parquet("rows")


def counted(rows):
    return rows.groupBy(f.window("at", "1 day")).count()


def days(frame):
    return sorted(f"{row.window.start:%Y-%m-%d}" for row in frame.collect())


stream = counted(spark.readStream.schema("at timestamp").parquet("rows").withWatermark("at", "3650 days"))
writer = stream.writeStream.outputMode("update").format("memory").queryName("counts")
query = writer.option("checkpointLocation", "checkpoint").trigger(availableNow=True).start()
query.awaitTermination()
assert days(counted(spark.read.parquet("rows"))) == ["1969-06-01", "1970-02-01", "1970-03-01"]
assert days(spark.table("counts")) == ["1970-02-01", "1970-03-01"]
assert [each["numRowsDroppedByWatermark"] for p in query.recentProgress for each in p["stateOperators"]] == [1]
spark.stop()
print("as described")
EOF
