"""DataFrames as sources and as output: any names and types of columns, or an error that says what to do."""

from __future__ import annotations

import datetime
import functools
from types import SimpleNamespace
from typing import Any
from zoneinfo import ZoneInfo

import pytest
from pyspark.sql import DataFrame
from test_spark_laws import configured

import drift
from drift.spark import frames
from drift.spark.sessions import use_this_python
from drift_graph.moments import time_from

MOMENT = datetime.datetime(1850, 1, 1, 5, 0, 0, 123456, tzinfo=datetime.UTC)
MOMENTS = "at timestamp, list array<timestamp>, by_name map<string, timestamp>, row struct<at: timestamp>"


def rows_to_output(time: Any = None) -> drift.Graph:
    graph = drift.Graph("rows")
    graph.source("rows", time=time).sink("out")
    return graph


def same_time(row: Any) -> int:
    return 0


@pytest.mark.parametrize("zone", ["UTC", "America/New_York"])
def test_moments_are_columns_of_the_output_in_any_zone_of_the_session(spark: Any, zone: str) -> None:
    feed = {"rows": [(MOMENT, [MOMENT, None], {"a": MOMENT}, {"at": MOMENT})]}
    with configured(spark, **{"spark.sql.session.timeZone": zone}):
        frame = drift.spark.dataframe(rows_to_output(), feed, spark=spark, columns=MOMENTS)
        in_micros = frame.selectExpr(
            "array(unix_micros(at), unix_micros(list[0]), unix_micros(by_name['a']), unix_micros(row.at)) AS all"
        )
        since = MOMENT - datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC)
        assert in_micros.first()["all"] == [since // datetime.timedelta(microseconds=1)] * 4


@pytest.mark.parametrize("zone", [None, "Europe/Berlin", datetime.timezone(datetime.timedelta(hours=-3, minutes=-30))])
def test_times_without_a_zone_are_in_that_of_the_policy_and_not_of_the_session(spark: Any, zone: Any) -> None:
    texts = ["1850-01-01 00:00:00.123456", "2024-03-31 03:30:00", "2024-10-27 03:30:00.999999", "2024-07-01 12:00:00"]
    frame = spark.createDataFrame([(text,) for text in texts], "text string").selectExpr(
        "cast(text AS timestamp_ntz) AS at"
    )
    timed = drift.spark.source(frame, time="at")
    rows = [{"at": datetime.datetime.fromisoformat(text)} for text in texts]
    expected = drift.run(
        rows_to_output(drift.EventTime("at", zone=zone or "UTC", lateness="9000 days")), {"rows": sorted(rows, key=str)}
    )
    times = [(item.time, item.payload) for item in expected]
    with configured(spark, **{"spark.sql.session.timeZone": "Asia/Tokyo"}):
        run = drift.run(rows_to_output(drift.EventTime("at", zone=zone)), {"rows": timed}, engine="spark")
        assert [(item.time, item.payload) for item in run] == times


def test_what_clocks_show_twice_or_never_is_on_spark_what_it_is_elsewhere(spark: Any) -> None:
    def around(text: str) -> list[datetime.datetime]:
        return [
            datetime.datetime.fromisoformat(text) + datetime.timedelta(minutes=each) for each in range(-1500, 1501, 15)
        ]

    shown = {
        "Europe/Berlin": [*around("2024-10-27 02:30"), *around("2024-03-31 02:30"), *around("1893-04-01 00:03")],
        "Australia/Lord_Howe": [*around("2024-04-07 01:45"), *around("2024-10-06 02:15")],
        "Pacific/Apia": around("2011-12-30 12:00"),
        "America/St_Johns": around("2006-10-29 00:00"),
        "Asia/Kolkata": around("2024-01-01 00:00"),
    }
    kinds = ("error", "earliest", "latest", "fold")
    found, expected = [], []
    for zone, moments in shown.items():
        millis = [(int(moment.replace(tzinfo=datetime.UTC).timestamp()) * 1000,) for moment in moments]
        frame = spark.createDataFrame(millis, "shown long").coalesce(1)
        found.append(frame.select(*(frames._of_clocks(frame["shown"], zone, kind).alias(kind) for kind in kinds)))
        expected += [tuple(time_from(moment, ZoneInfo(zone), kind) for kind in kinds) for moment in moments]
    assert [tuple(row) for row in functools.reduce(DataFrame.union, found).coalesce(1).collect()] == expected
    frame = spark.sql("SELECT timestamp_ntz '2024-10-27 02:30:00' AS at")
    graph = rows_to_output(drift.EventTime("at", zone="Europe/Berlin"))
    with pytest.raises(drift.InputError, match=r"is null, or what clocks in Europe/Berlin .* show twice .*ambiguous="):
        drift.run(graph, {"rows": drift.spark.source(frame, time="at")}, engine="spark").finish()


def test_columns_may_have_any_names(spark: Any) -> None:
    names = ["trip.fare", "a`b", "", "c0"]
    values = [(number, number, number, number) for number in range(3)]
    frame = spark.createDataFrame(values, " long, ".join(f"c{at}" for at in range(4)) + " long").toDF(*names)
    rows = {"rows": [dict(zip(names, row)) for row in values]}
    graph = rows_to_output(drift.EventTime(same_time))
    expected = drift.run(graph, rows, engine="reference").finish().digest
    assert drift.run(graph, {"rows": frame}, engine="spark", partitions=2).finish().digest == expected
    for more in ({"time": "`trip.fare`"}, {"order_by": ["`trip.fare`"]}):
        found = list(drift.run(graph, {"rows": drift.spark.source(frame, **more)}, engine="spark", partitions=2))
        assert [item.payload for item in found] == rows["rows"]
    twice = drift.spark.source(frame.toDF("a", "a", "b", "a"), payload="tuple", time="b")
    assert [item.payload for item in drift.run(graph, {"rows": twice}, engine="spark")] == values


def test_a_dataframe_that_tasks_cannot_get_is_refused(spark: Any) -> None:
    graph = rows_to_output(drift.EventTime(same_time))
    for frame, message in (
        (spark.range(3).select(), "has no columns"),
        (spark.range(3).toDF("__Drift_time"), "is drift's own; rename it"),
        (spark.range(3).selectExpr("array(make_ym_interval(1, 2)) AS s"), "'s' is of type array<interval year"),
        (drift.spark.source(spark.range(3), time="nope"), "time='nope' is no column or expression here: .*UNRESOLVED"),
    ):
        with pytest.raises(drift.SettingsError, match=message):
            drift.run(graph, {"rows": frame}, engine="spark", spark=spark).finish()


def test_a_session_that_was_stopped_is_refused() -> None:
    stopped = SimpleNamespace(_jsparkSession=None, sparkContext=SimpleNamespace(_jsc=None))
    with pytest.raises(drift.SettingsError, match="the Spark session was stopped"):
        use_this_python(stopped)
