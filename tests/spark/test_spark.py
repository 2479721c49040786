"""The graph on Spark gives what it gives anywhere: the digests of local, the same failures in the same words."""

from __future__ import annotations

import gzip
import re
import sys
from pathlib import Path
from typing import Any

import pytest

import drift
from drift.cli.specs import source_of
from drift.spark import prepare, sampling

EXAMPLES = Path(__file__).parents[2] / "examples"
sys.path.insert(0, str(EXAMPLES))

import flights  # noqa: E402
import wordcount  # noqa: E402

HAMLET = EXAMPLES / "data" / "hamlet.txt.gz"
HAMLET_WORDS = gzip.decompress(HAMLET.read_bytes()).decode().split()


@pytest.mark.smoke
@pytest.mark.parametrize("partitions", [1, 7])
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


def rows_of_flights(spark: Any) -> Any:
    """The flights as a DataFrame, in no order of theirs."""
    return spark.createDataFrame([{**flight} for flight in flights.departures()]).repartition(5, "flight")


@pytest.mark.smoke
@pytest.mark.parametrize("partitions", [1, 3])
def test_a_dataframe_in_event_time_gives_the_digest_of_local(spark: Any, partitions: int) -> None:
    frame = rows_of_flights(spark)
    report = drift.run(flights.graph, {"flights": frame}, engine="spark", partitions=partitions).finish()
    assert report.digest == drift.run(flights.graph, {"flights": flights.departures()}).finish().digest
    assert report.items_in == frame.count()


ORDERS: dict[str, dict[str, int]] = {
    "own": {},
    "time": {},
    "spread by time": {"_ITEMS_OF_ONE_MIN": 0, "_LOPSIDED_MIN": 0},
    "stamp": {"_STAMP_ITEMS_MAX": 0},
}


@pytest.mark.parametrize("order", ORDERS)
def test_an_expression_gives_the_event_time(spark: Any, monkeypatch: pytest.MonkeyPatch, order: str) -> None:
    for name, value in ORDERS[order].items():
        monkeypatch.setattr(sampling, name, value)
    taken: list[str] = []
    monkeypatch.setattr(
        prepare, "row_order", lambda *arguments: taken.append(sampling.row_order(*arguments)) or taken[0]
    )
    minutes = "cast(unix_timestamp(cast(time_hour as timestamp)) / 60 as long) + cast(minute as long)"
    frame = rows_of_flights(spark)
    if order == "own":
        frame = frame.selectExpr("*", f"{minutes} as at").coalesce(1).sortWithinPartitions("at").drop("at")
    source = drift.spark.source(frame, time=minutes)
    report = drift.run(flights.graph, {"flights": source}, engine="spark", partitions=2).finish()
    assert report.digest == drift.run(flights.graph, {"flights": flights.departures()}).finish().digest
    assert taken == [order]


def test_a_dataframe_in_arrival_time_is_numbered_in_a_stated_order(spark: Any) -> None:
    words = HAMLET_WORDS[:3000]
    frame = spark.createDataFrame(list(enumerate(words)), "number int, value string").repartition(4, "value")
    values = drift.spark.source(frame.select("value"), payload="value", order_by=frame["number"])
    run = drift.run(wordcount.graph, {"lines": values}, engine="spark", partitions=2)
    assert run.finish().digest == drift.run(wordcount.graph, {"lines": words}).finish().digest
    holes = frame.selectExpr("value", "nullif(number, 1234) as number")
    for column in ("number", holes["number"]):
        with pytest.raises(drift.InputError, match=r"a row is null in order_by column .*number.*; filter such"):
            source = drift.spark.source(holes, payload="dict", order_by=column)
            drift.run(wordcount.graph, {"lines": source}, engine="spark").finish()
    misnamed = drift.spark.source(frame, order_by="nomber")
    with pytest.raises(drift.SettingsError, match=r"cannot be sorted by order_by=\['nomber'\].*name columns"):
        drift.run(wordcount.graph, {"lines": misnamed}, engine="spark").finish()
    with pytest.raises(drift.SettingsError, match="a DataFrame has no order of arrival"):
        drift.run(wordcount.graph, {"lines": frame}, engine="spark").finish()
    with pytest.raises(drift.SettingsError, match="only engine='spark' reads"):
        drift.run(wordcount.graph, {"lines": frame}).finish()


def test_what_the_document_shows_happens(spark: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The blocks that are marked `python spark` are one program; test_docs runs the others."""
    document = EXAMPLES.parent / "docs" / "spark.md"
    (tmp_path / "examples").symlink_to(EXAMPLES)
    monkeypatch.chdir(tmp_path)
    names: dict[str, Any] = {"spark": spark, "drift": drift}
    text = document.read_text()
    found = list(re.finditer(r"^```python spark\n(.*?)^```$", text, re.MULTILINE | re.DOTALL))
    assert len(found) > 3
    for block in found:
        line = text.count("\n", 0, block.start(1))
        exec(compile("\n" * line + block[1], document, "exec"), names)


def test_items_travel_through_the_driver_where_no_disk_is_shared(spark: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("drift.spark.prepare.shares_disk", lambda spark: False)
    lines = {"lines": drift.sources.text(HAMLET)}
    expected = drift.run(wordcount.graph, lines).finish().digest
    for given in (lines, {"lines": []}):
        digest = drift.run(wordcount.graph, given, engine="spark", spark=spark, partitions=2).finish().digest
        assert (digest == expected) == (given is lines)


def test_files_that_spark_reads_are_named_on_the_command_line(spark: Any, tmp_path: Path) -> None:
    path = tmp_path / "flights"
    rows_of_flights(spark).write.parquet(str(path))
    source = source_of(f"parquet:{path}", as_frames=True)
    report = drift.run(flights.graph, {"flights": source}, engine="spark", partitions=2).finish()
    assert report.digest == drift.run(flights.graph, {"flights": flights.departures()}).finish().digest
