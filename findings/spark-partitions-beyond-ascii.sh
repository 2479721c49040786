#!/usr/bin/env bash
# Does Spark read the texts by which other programs have partitioned a folder?
#
# Versions: pyspark==4.3.0 pyarrow==26.0.1 polars==2.1.0 duckdb==2.0.1 pandas==2.3.3; needs Java 17
# Expected: of k='café' in the folder of Parquet files k=caf%C3%A9/ 'café', as each of these reads of the others.
# Seen:     PyArrow, Polars and DuckDB all write k=caf%C3%A9/, the bytes of UTF-8 escaped. Spark takes each escaped byte
#           for a character of its own and gives 'cafÃ©', without a word; so a filter k = 'café' finds no row, and a
#           join none. What it writes itself is k=café/, which all of them read.
# Matters:  texts that name folders have to be escaped in ASCII only, if Spark is to read them.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"
"${PYTHON:-python3}" -m venv venv
venv/bin/pip install --quiet --disable-pip-version-check \
    pyspark==4.3.0 pyarrow==26.0.1 polars==2.1.0 duckdb==2.0.1 pandas==2.3.3
venv/bin/python - 2> log <<'PYTHON' || { cat log; exit 1; }
import os

import duckdb
import polars as pl
import pyarrow as pa
import pyarrow.dataset as ds
from pyspark.sql import SparkSession

rows = pa.table({"k": ["café"], "n": [1]})
by_k = ds.partitioning(pa.schema([("k", pa.string())]), flavor="hive")
ds.write_dataset(rows, "of_arrow", format="parquet", partitioning=by_k)
pl.from_arrow(rows).lazy().sink_parquet(pl.PartitionBy("of_polars/", key="k", include_key=False), mkdir=True)
duckdb.sql("COPY (SELECT * FROM rows) TO 'of_duckdb' (FORMAT parquet, PARTITION_BY (k))")
os.environ["PYSPARK_PYTHON"] = "venv/bin/python"
spark = SparkSession.builder.master("local[1]").config("spark.ui.enabled", "false").getOrCreate()
for name in ("of_arrow", "of_polars", "of_duckdb"):
    assert os.listdir(name) == ["k=caf%C3%A9"], os.listdir(name)
    files = f"{name}/**/*.parquet"
    assert ds.dataset(name, partitioning=by_k).to_table()["k"].to_pylist() == ["café"]
    assert pl.read_parquet(files, hive_partitioning=True)["k"].to_list() == ["café"]
    assert duckdb.sql(f"SELECT k FROM read_parquet('{files}', hive_partitioning = true)").fetchall() == [("café",)]
    found = spark.read.parquet(os.path.abspath(name))
    assert [row.k for row in found.collect()] == ["caf\u00c3\u00a9"], found.collect()
    assert found.where("k = 'café'").count() == 0
found.sparkSession.createDataFrame([("café", 1)], "k string, n long").write.partitionBy("k").parquet("of_spark")
assert "k=café" in os.listdir("of_spark")
assert ds.dataset("of_spark", format="parquet", partitioning=by_k).to_table()["k"].to_pylist() == ["café"]
spark.stop()
print("as described")
PYTHON
