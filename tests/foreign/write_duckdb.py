"""Writes duckdb/: `python tests/foreign/write_duckdb.py`, with the version of DuckDB that the document names."""

from __future__ import annotations

import shutil
from pathlib import Path

import duckdb

FOLDER = Path(__file__).parent / "duckdb"
QUERIES = {
    "huge integers": "SELECT 9223372036854775808::HUGEINT AS v UNION ALL SELECT 1",
    "exact sums": "SELECT sum(v) AS v FROM (VALUES (9007199254740993::BIGINT), (0)) t(v)",
    "sums cast to decimals": "SELECT sum(v)::DECIMAL(38, 0) AS v FROM (VALUES (9007199254740993::BIGINT), (0)) t(v)",
    "bignum": "SELECT 123456789012345678901234567890123456789012::BIGNUM AS v",
    "decimals": "SELECT 1.5::DECIMAL(4, 1) AS a, -123456789.25::DECIMAL(18, 2) AS b, "
    "12345678901234567890123456789012345678::DECIMAL(38, 0) AS c",
    "maps": "SELECT map([1, 2], ['a', NULL]) AS v",
    "nanoseconds": "SELECT '2024-01-01 00:00:00.123456'::TIMESTAMP_NS AS v UNION ALL "
    "SELECT '2024-01-01 00:00:00.123456789'::TIMESTAMP_NS",
    "zones": "SELECT '2024-01-01 00:00:00+02'::TIMESTAMPTZ AS v, '10:00:00+02'::TIMETZ AS w, "
    "'2024-01-01'::TIMESTAMP_S AS x",
    "infinity": "SELECT '2024-01-01'::TIMESTAMP AS v UNION ALL SELECT 'infinity'::TIMESTAMP",
    "days beyond": "SELECT '9999-12-31'::DATE AS v UNION ALL SELECT '0044-03-15 (BC)'::DATE",
    "24 hours": "SELECT '23:59:59.999999'::TIME AS v UNION ALL SELECT '24:00:00'::TIME",
    "intervals": "SELECT INTERVAL '1 month 2 days' AS v, 1 AS n",
    "variants": "SELECT 5::VARIANT AS v, 1 AS n",
    "kinds": "SELECT '00000000-0000-0000-0000-000000000005'::UUID AS id, 'a'::ENUM ('a', 'b') AS e, "
    "'101'::BIT AS bits, '\\xff'::BLOB AS raw, '{\"a\": 1}'::JSON AS j, 18446744073709551615::UBIGINT AS u",
    "nested": "SELECT [[1, NULL], [], NULL] AS v, {'a': [{'b': 1}]} AS w, [1, 2]::INT[2] AS x",
    "floats": "SELECT * FROM (VALUES ('nan'::DOUBLE, 'nan'::FLOAT), ('-0.0'::DOUBLE, '-0.0'::FLOAT), (1, 1)) t(v, w)",
}

if __name__ == "__main__":
    shutil.rmtree(FOLDER, ignore_errors=True)
    FOLDER.mkdir()
    connection = duckdb.connect()
    connection.execute("SET TimeZone = 'America/New_York'")
    for name, query in QUERIES.items():
        connection.execute(f"COPY ({query}) TO '{FOLDER}/{name}.parquet'")
