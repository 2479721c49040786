"""Over Spark Connect, with a server of its own: runs where `pyspark[connect]` is installed."""

from __future__ import annotations

import os
import subprocess
import sys
from typing import Any

import pytest

from drift.spark.prepare import default_partitions

PROGRAM = """
import os, sys
from pathlib import Path

os.environ["PYSPARK_PYTHON"] = sys.executable  # of the server, which this process starts
from pyspark.sql import SparkSession

import drift
from generated import Recipe, build

spark = SparkSession.builder.remote("local[2]").getOrCreate()
rows = [{"number": number, "word": f"word {number % 7}"} for number in range(300)]
graph = drift.Graph("words")
graph.source("rows", time=drift.EventTime(lambda row: row["number"])).count(key=lambda row: row["word"]).sink("counts")
expected = drift.run(graph, {"rows": rows}).finish().digest
assert drift.run(graph, {"rows": rows}, engine="spark", spark=spark).finish().digest == expected
frame = spark.createDataFrame([tuple(row.values()) for row in rows], "number long, word string")
assert drift.run(graph, {"rows": frame}, engine="spark").finish().digest == expected
looped = build(Recipe(1, [("loop", 0, "plain", 3, 3, 2), ("scan", 0, "few", "mixing")]))
numbers = {"in0": range(60)}
report = drift.run(looped, numbers, engine="spark", spark=spark, partitions=2).finish()
assert report.digest == drift.run(looped, numbers).finish().digest
failing = drift.Graph("failing")
failing.source("numbers").map(lambda number: 10 // number).sink("out")
try:
    drift.run(failing, {"numbers": [5, 0]}, engine="spark", spark=spark).finish()
except drift.StepError as error:
    assert "ZeroDivisionError" in str(error)
else:
    raise AssertionError("a step raised, and the run did not")
print("done")
"""


def test_batches_and_loops_run_over_spark_connect() -> None:
    pytest.importorskip("grpc", reason="pip install 'pyspark[connect]'")
    environment = {**os.environ, "SPARK_TESTING": "1"}  # or the server's port is 15002, always
    done = subprocess.run([sys.executable, "-c", PROGRAM], env=environment, capture_output=True, text=True)
    assert (done.returncode, done.stdout) == (0, "done\n"), done.stderr[-3000:]


class Remote:
    """As much of a session over Connect as is asked for the number of its slots."""

    def __init__(self) -> None:
        self.conf: dict[str, str] = {}

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):
            raise AttributeError(name)
        return lambda *arguments: 3 if name == "count" else self


def test_over_connect_there_are_as_many_partitions_as_slots_and_not_those_of_a_shuffle() -> None:
    assert default_partitions(Remote()) == 3
