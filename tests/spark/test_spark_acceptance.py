"""The small cases of `acceptance.py`, in few jobs on Spark, and as a stream there."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from acceptance import CASES, by_sink, expected_of, graph_of, rows_of

import drift
import drift.spark
from benchmarks.noir.__main__ import CASES as BENCHMARKS
from benchmarks.noir.__main__ import run_case
from benchmarks.noir.case import Case

NAMES = list(CASES)


@pytest.mark.smoke
def test_every_case_on_spark(spark: Any) -> None:
    run = drift.run(graph_of(NAMES), {"rows": rows_of(NAMES)}, engine="spark", spark=spark, partitions=2)
    assert by_sink([(item.sink, item.payload) for item in run]) == expected_of(NAMES)
    assert run.digest == drift.run(graph_of(NAMES), {"rows": rows_of(NAMES)}).finish().digest


def test_every_case_as_a_stream_on_spark(spark: Any, tmp_path: Path) -> None:
    """In two micro-batches: all timers and rounds wait for the second, which is begun when the input has ended."""
    rows = rows_of(NAMES)
    path = tmp_path / "in.json"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    read = spark.readStream.schema("at long, case string, value string").option("pathGlobFilter", path.name)
    stream = drift.spark.stream(
        graph_of(NAMES).build(), {"rows": read.json(str(tmp_path))}, checkpoint=tmp_path / "kept", partitions=1
    )
    stream.finish()
    run = drift.run(graph_of(NAMES), {"rows": rows})
    expected = [(item.sink, drift.canonical(item.payload)) for item in run]
    assert [(row.sink, bytes(row.payload)) for row in stream.items().orderBy("position").collect()] == expected
    assert stream.digest() == run.digest


@pytest.mark.parametrize("case", BENCHMARKS[::4], ids=lambda case: case.name)
def test_a_benchmark_of_noir_on_spark_has_the_digest_of_local(spark: Any, case: Case) -> None:
    inputs = case.data(60)
    digest = run_case(case, inputs, {"engine": "spark", "spark": spark, "partitions": 2})[1]
    assert digest == run_case(case, inputs, {"engine": "local"})[1]
