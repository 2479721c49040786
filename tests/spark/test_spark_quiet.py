"""What ends early on Spark ends quietly: a query that is stopped, a DataFrame of which few rows are wanted."""

from __future__ import annotations

import re
import subprocess
import sys

from waiting import HANG_S

import drift
from drift.spark.errors import short_error

SCRIPT = r"""
import json, pathlib, sys, tempfile, time
import drift
from pyspark.sql import SparkSession

spark = SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false").getOrCreate()
rows = drift.Graph("rows")
rows.source("n").flat_map(lambda n: [(n, "x" * 1000)] * 3).sink("out")
print(len(drift.spark.dataframe(rows, {"n": range(60_000)}, partitions=1).limit(3).collect()))

folder = pathlib.Path(tempfile.mkdtemp())
(folder / "in").mkdir()
(folder / "in" / "0.json").write_text("".join(json.dumps({"time": n, "taxi": n % 5}) + "\n" for n in range(2000)))
started = folder / "started"

def slow(trip):
    open(str(started), "a").close()
    time.sleep(0.02)
    return trip["taxi"]

trips = drift.Graph("trips")
by_time = drift.EventTime(lambda trip: trip["time"], lateness=10)
trips.source("trips", time=by_time).map(slow).count(key=lambda taxi: taxi).sink("out")
read = spark.readStream.schema("time long, taxi long").json(str(folder / "in"))
query = drift.spark.stream(trips, {"trips": read}, checkpoint=folder / "checkpoint", partitions=1).start()
while not started.exists():
    time.sleep(0.05)
query.stop()
print("stopped", query.exception())
"""


def test_neither_a_limit_nor_a_stop_in_a_micro_batch_prints_a_trace() -> None:
    done = subprocess.run([sys.executable, "-c", SCRIPT], capture_output=True, text=True, timeout=HANG_S)
    assert done.stdout.splitlines() == ["3", "stopped None"], done.stderr
    assert "BrokenPipeError" not in done.stderr and "StackOverflowError" not in done.stderr, done.stderr


class Py4JJavaError(Exception):
    """As py4j's, with the trace of the JVM in its text."""


Py4JJavaError.__module__ = "py4j.protocol"


def test_spark_is_told_of_its_own_errors_in_few_words() -> None:
    trace = "".join(f"\tat org.apache.spark.Thing.call{number}(Thing.scala:1)\n" for number in range(500))
    asked = "An error occurred while calling o70.collect.\n: org.apache.spark.SparkException: "
    names = "java.io.InterruptedIOException|java.lang.InterruptedException"
    for said, is_stop in (("Job 3 cancelled part of cancelled job group", True), ("no disk", False)):
        short = short_error(Py4JJavaError(f"{asked}{said}\n{trace}"))
        text = f"{type(short).__name__}: {short}"
        assert len(text) < 700 and "An error occurred while calling" in text
        found = re.search(rf"Py4JJavaError: An error occurred while calling((.|\r\n|\r|\n)*)({names})", text)
        assert (found is not None) == is_stop
    try:
        try:
            raise Py4JJavaError(f"{asked}cancelled\n{trace}")
        except Py4JJavaError as error:
            raise drift.ProcessError("Spark gave up") from error
    except drift.ProcessError as chained:
        assert len(str(short_error(chained))) < 700
    plain = drift.StepError("step 'map' raised")
    assert short_error(plain) is plain
