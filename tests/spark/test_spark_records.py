"""Records on Spark: replayed, audited, and read as DataFrames and streams."""

from __future__ import annotations

import random
import sys
from collections.abc import Iterator
from operator import itemgetter
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import drift

EXAMPLES = Path(__file__).parents[2] / "examples"
sys.path.insert(0, str(EXAMPLES))

import flights  # noqa: E402


def numbered() -> drift.Graph:
    graph = drift.Graph("numbered")
    left, right = graph.source("left"), graph.source("right")
    left.merge(right).count(key=tenth).sink("counts")
    return graph


def tenth(number: int) -> int:
    return number // 10


@pytest.fixture(scope="module")
def monday(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A record of the flights."""
    path = tmp_path_factory.mktemp("records") / "monday"
    drift.run(flights.graph, {"flights": flights.departures()}, record=path).finish()
    return path


def test_a_replay_gives_the_recorded_digest(spark: Any, monday: Path) -> None:
    record = drift.Record(monday)
    report = drift.replay(monday, engine="spark", spark=spark, partitions=3).finish()
    assert (report.digest, report.items_in, report.items_out) == (
        record.manifest.digest,
        record.manifest.items_in,
        record.manifest.items_out,
    )
    run = drift.replay(monday, engine="spark", spark=spark, partitions=2, until=500)
    assert list(run) == list(record.items(0, 500))


def test_a_record_in_arrival_time_of_two_sources_is_replayed(spark: Any, tmp_path: Path) -> None:
    sources = {"left": range(5000), "right": range(3000)}
    digest = drift.run(numbered(), sources, record=tmp_path / "record").finish().digest
    replayed = drift.replay(tmp_path / "record", numbered(), engine="spark", spark=spark, partitions=2)
    assert replayed.finish().digest == digest


def test_a_run_over_dataframes_is_recorded_and_replays_anywhere(spark: Any, tmp_path: Path) -> None:
    """Of two DataFrames and a list: what was computed from is what is recorded, however often Spark reads."""

    def drawn(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Rows that are others each time they are asked for."""
        for batch in batches:
            values = [random.SystemRandom().randrange(100) for _ in range(batch.num_rows)]
            yield batch.append_column("value", pa.array(values, pa.int64()))

    graph = drift.Graph("mixed")
    rows = graph.source("rows", time=drift.EventTime(time=itemgetter("id")))
    numbers, words = graph.source("numbers"), graph.source("words")
    rows.map(itemgetter("value")).merge(numbers, words).count(key=lambda value: value).sink("counts")
    frame = spark.range(5000).selectExpr("id div 2 as id").mapInArrow(drawn, "id long, value long")
    ordered = spark.range(4000).selectExpr("cast(id % 90 as long) as value", "id as at").repartition(3, "at")
    sources = {
        "rows": frame,
        "numbers": drift.spark.source(ordered.drop("at"), payload="value", order_by=ordered["at"]),
        "words": ["to", "be"] * 500,
    }
    run = drift.run(graph, sources, engine="spark", partitions=2, record=tmp_path / "record")
    items = list(run)
    manifest = drift.Record(tmp_path / "record").manifest
    assert (manifest.items_in, manifest.items_out, manifest.digest) == (10_000, 10_000, run.digest)
    assert manifest.sources[1].policy["time"] == "arrival"
    assert list(drift.replay(tmp_path / "record", graph)) == items
    assert drift.audit(tmp_path / "record", graph, engines=["reference"]).ok
    batches = list(drift.Record(tmp_path / "record").arrivals())
    heartbeats = [batch.heartbeat for batch in batches if batch.source == "rows"]
    assert heartbeats == sorted(heartbeats) and len(set(heartbeats)) > 1, "a replay can go on while it reads"


def test_a_row_that_ends_a_recorded_run_ends_its_replay_too(spark: Any, tmp_path: Path) -> None:
    graph = drift.Graph("nulls")
    graph.source("rows").count(key=itemgetter("value")).sink("counts")
    frame = spark.sql("select id as value, case when id = 7 then null else id end as at from range(20)")
    timed = drift.spark.source(frame, time="at")
    with pytest.raises(drift.InputError, match="is null for payload") as ended:
        drift.run(graph, {"rows": timed}, engine="spark", partitions=2, record=tmp_path / "record").finish()
    outcome = drift.Record(tmp_path / "record").manifest.outcome
    assert (outcome.state, outcome.by_input) == ("failed", True)
    with pytest.raises(drift.InputError) as again:
        drift.replay(tmp_path / "record", graph).finish()
    assert str(again.value) == str(ended.value)


def test_late_items_and_what_ends_a_run_are_repeated(spark: Any, tmp_path: Path) -> None:
    rows = [(time - random.Random(time).randrange(20), time) for time in range(2000)]
    graph = drift.Graph("late")
    policy = drift.EventTime(time=first, lateness=5, late="divert")
    graph.source("rows", time=policy).map(inverted).count(key=none).sink("counts")
    run = drift.run(graph, {"rows": rows}, record=tmp_path / "record")
    with pytest.raises(drift.StepError) as raised:
        run.finish()
    again = drift.replay(tmp_path / "record", graph, engine="spark", spark=spark, partitions=2)
    with pytest.raises(drift.StepError) as replayed:
        again.finish()
    assert str(replayed.value) == str(raised.value)
    assert (again.digest, again.report.late_items) == (run.digest, run.report.late_items)
    assert sorted(again.late) == sorted(run.late) != []


def first(row: tuple[int, int]) -> int:
    return row[0]


def inverted(row: tuple[int, int]) -> float:
    return 1 / (row[0] - 1990)


def none(number: float) -> None:
    return None


def test_an_audit_on_spark_says_whether_a_record_is_reproduced(spark: Any, monday: Path, tmp_path: Path) -> None:
    (check,) = [each for each in drift.audit(monday, engines=("spark",)).checks if each.what == "engine spark"]
    assert check.result == "ok"
    edited = tmp_path / "flights_edited_for_spark.py"
    text = Path(flights.__file__).read_text()
    edited.write_text(text.replace('delays[1] + int(flight["dep_delay"])', 'delays[1] + int(flight["dep_delay"]) + 1'))
    assert not drift.audit(monday, f"{edited}:graph", engines=("spark",)).ok


MEANS = "airport string, flight string, flights int, mean double"


def test_the_output_of_a_graph_is_a_dataframe_with_typed_columns(spark: Any) -> None:
    feed = {"flights": flights.departures()}
    expected = list(drift.run(flights.graph, feed))
    frame = drift.spark.dataframe(flights.graph, feed, spark=spark, columns=MEANS, partitions=3)
    assert frame.columns == ["position", "time", "global_time", "meta", "airport", "flight", "flights", "mean"]
    rows = frame.orderBy("position").collect()
    assert [(row.position, row.time, bytes(row.meta), tuple(row)[4:]) for row in rows] == [
        (item.position, item.time, item.meta, item.payload) for item in expected
    ]
    plain = drift.spark.dataframe(flights.graph, feed, spark=spark, partitions=2)
    assert plain.columns == ["position", "time", "global_time", "meta", "sink", "payload"]
    first_five = plain.where("position < 5").orderBy("position").collect()
    assert [drift.restored(bytes(row.payload)) for row in first_five] == [item.payload for item in expected[:5]]


def test_a_dataframe_says_what_does_not_fit(spark: Any) -> None:
    feed = {"flights": flights.departures()[:50]}
    with pytest.raises(drift.SettingsError, match="has no sink 'means'"):
        drift.spark.dataframe(flights.graph, feed, spark=spark, sink="means")
    frame = drift.spark.dataframe(flights.graph, feed, spark=spark, columns="airport int, b string, c int, d int")
    with pytest.raises(Exception, match=r"column 'airport' is int32, and a payload has something else"):
        frame.collect()


def test_a_record_is_parquet_that_spark_reads(spark: Any, monday: Path) -> None:
    record = drift.Record(monday)
    rows = spark.read.parquet(*record.files("output")).orderBy("position").collect()
    assert [(row.position, row.time, record.restored(bytes(row.payload))) for row in rows] == [
        (item.position, item.time, item.payload) for item in record.items()
    ]
    assert spark.read.parquet(*record.files("input")).count() == record.manifest.items_in
