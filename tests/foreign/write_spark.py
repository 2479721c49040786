"""Writes spark/: `python tests/foreign/write_spark.py`, with the version of PySpark that the document names."""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path

from pyspark.sql import SparkSession

FOLDER = Path(__file__).parent / "spark"
PARQUET = "spark.sql.parquet."
DECIMALS = (
    "SELECT cast(1.5 AS decimal(4, 1)) a, cast(-123456789.25 AS decimal(18, 2)) b, "
    "cast(12345678901234567890123456789012345678 AS decimal(38, 0)) c"
)
LISTS = "SELECT array(1, null) v, array(array(1), null) w, map('a', array(1)) m, array(named_struct('x', 1)) s"
MOMENTS = (
    "SELECT timestamp'2024-01-01 00:00:00.123456' v, timestamp'9999-12-31 23:59:59.999999' w, "
    "timestamp'0001-01-01 00:00:00' x, timestamp_ntz'2024-01-01 00:00:00' y"
)
DAYS = "SELECT * FROM VALUES (1, date'1582-10-15'), (2, date'1582-10-04') t(n, d)"
OF_MOMENTS = "SELECT * FROM VALUES (1, timestamp'1900-01-01 00:00:00'), (2, timestamp'1582-10-04 00:00:00') t(n, v)"
QUERIES = {
    "decimals": (DECIMALS, {}),
    "decimals as of old": (DECIMALS, {"writeLegacyFormat": "true"}),
    "lists": (LISTS, {}),
    "lists as of old": (LISTS, {"writeLegacyFormat": "true"}),
    "int96": (MOMENTS, {}),
    "microseconds": (MOMENTS, {"outputTimestampType": "TIMESTAMP_MICROS"}),
    "days": (DAYS, {}),
    "days of Julius Caesar": (DAYS, {"datetimeRebaseModeInWrite": "LEGACY"}),
    "moments of Julius Caesar": (OF_MOMENTS, {"int96RebaseModeInWrite": "LEGACY"}),
    "intervals": ("SELECT interval '1-2' year to month v, interval '1 02:03:04.5' day to second w", {}),
    "variants": ("SELECT named_struct('x', parse_json('{\"a\": 1}')) v, 1 n", {}),
    "floats": ("SELECT * FROM VALUES (double('nan'), float('-0.0')), (-0D, float('nan')), (1D, 1f) t(v, w)", {}),
    "kinds": ("SELECT 1Y a, 2S b, true c, X'ff' d, '' e, null f", {}),
}

if __name__ == "__main__":
    shutil.rmtree(FOLDER, ignore_errors=True)
    FOLDER.mkdir()
    session = SparkSession.builder.master("local[1]").config("spark.sql.session.timeZone", "UTC").getOrCreate()
    for name, (query, options) in QUERIES.items():
        with tempfile.TemporaryDirectory() as folder:
            for key, value in options.items():
                session.conf.set(PARQUET + key, value)
            session.sql(query).coalesce(1).write.parquet(f"{folder}/out")
            for key in options:
                session.conf.unset(PARQUET + key)
            (part,) = Path(folder, "out").glob("*.parquet")
            shutil.copy(part, FOLDER / f"{name}.parquet")
    session.stop()
