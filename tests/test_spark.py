"""The graph on Spark gives what it gives anywhere: the digests of local, the same failures in the same words."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest

import drift

EXAMPLES = Path(__file__).parents[1] / "examples"
sys.path.insert(0, str(EXAMPLES))

import flights  # noqa: E402
import wordcount  # noqa: E402

HAMLET = EXAMPLES / "data" / "hamlet.txt.gz"


@pytest.mark.parametrize("partitions", [1, 2, 7])
def test_the_words_of_hamlet_give_the_digest_of_local(spark: Any, partitions: int) -> None:
    lines = {"lines": drift.sources.text(HAMLET)}
    expected = drift.run(wordcount.graph, lines).finish()
    report = drift.run(wordcount.graph, lines, engine="spark", spark=spark, partitions=partitions).finish()
    assert (report.digest, report.items_in, report.items_out) == (
        expected.digest,
        expected.items_in,
        expected.items_out,
    )


def test_the_items_of_a_run_are_those_of_local(spark: Any) -> None:
    feed = {"flights": flights.departures()}
    run = drift.run(flights.graph, feed, engine="spark", spark=spark, partitions=3)
    assert list(run) == list(drift.run(flights.graph, feed))
    assert run.digest == drift.run(flights.graph, feed).finish().digest
