"""Numbers in a unit become milliseconds; a run warns of lengths such as "10s" where times look like seconds."""

from __future__ import annotations

import math
import warnings
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from fractions import Fraction
from typing import Any

import numpy as np
import polars as pl
import pytest

import drift
from drift_graph.policies import EventTime

SECONDS = [1_700_000_000 + each for each in range(30)]
MILLISECONDS = [1000 * each for each in SECONDS]


def run(windows: Any, times: list[int]) -> list[int]:
    graph = drift.Graph("units")
    source = graph.source("times", time=drift.EventTime(time=int))
    source.window(windows).count().map(lambda window: window.value).sink("out")
    return [item.payload for item in drift.run(graph, {"times": times})]


@pytest.mark.parametrize(
    "windows",
    [
        drift.windows.tumbling("10s"),
        drift.windows.sliding(10_000, timedelta(seconds=10)),
        drift.windows.session("1m"),
        drift.windows.calendar("day"),
    ],
    ids=["tumbling", "sliding", "session", "calendar"],
)
def test_times_in_seconds_do_not_go_with_lengths_in_words(windows: Any) -> None:
    with pytest.warns(
        UserWarning, match=r"time 17\d+: that is 1970-01-20 in milliseconds, and 202[34]-1[01]-.. in seconds"
    ):
        run(windows, SECONDS)


@pytest.mark.parametrize(
    ("windows", "times", "counts"),
    [
        (drift.windows.tumbling(10), SECONDS, [10, 10, 10]),
        (drift.windows.tumbling("10 seconds"), MILLISECONDS, [10, 10, 10]),
        (drift.windows.tumbling("10s"), [each % 1000 for each in SECONDS], [30]),
    ],
    ids=["seconds by number", "milliseconds", "other numbers"],
)
def test_nothing_else_is_warned_of(windows: Any, times: list[int], counts: list[int]) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert run(windows, times) == counts


@pytest.mark.parametrize(
    ("unit", "value", "time"),
    [
        ("s", 1_700_000_000, 1_700_000_000_000),
        ("s", 1_700_000_000.007, 1_700_000_000_007),  # which is a little less in binary
        ("s", 1.001, 1001),  # times a million it is 1000999.9999999999
        ("s", 0.0019, 1),
        ("s", -0.0001, -1),
        ("s", Decimal("1700000000.0079"), 1_700_000_000_007),
        ("s", Fraction(1, 3), 333),
        ("s", np.int32(7), 7000),
        ("s", np.float32(0.5), 500),
        ("ms", 1_700_000_000_000.9, 1_700_000_000_000),
        ("ms", -7, -7),
        ("us", 1_700_000_000_000_999, 1_700_000_000_000),
        ("us", -1, -1),
        ("ns", 1_700_000_000_000_999_999, 1_700_000_000_000),
        ("ns", 1e9, 1000),
        ("s", "2023-11-14T22:13:20Z", 1_700_000_000_000),
        ("ns", datetime(2023, 11, 14, 22, 13, 20, tzinfo=UTC), 1_700_000_000_000),
        ("s", math.nan, None),
        ("s", math.inf, None),
        ("s", 1e30, None),
        ("s", True, None),
        ("s", "1700000000", None),
        ("s", None, None),
        (None, 1.5, None),
        (None, 1_700_000_000, 1_700_000_000),
    ],
)
def test_numbers_of_a_unit_become_milliseconds(unit: Any, value: Any, time: int | None) -> None:
    assert EventTime(bool, unit=unit).time_of(value) == time


@pytest.mark.parametrize("unit", ["s", "ms", "us", "ns"])
@pytest.mark.parametrize("kind", [float, int])
def test_rows_and_dicts_in_a_unit_have_the_same_times_and_the_window_does_not_warn(unit: Any, kind: Any) -> None:
    by_second = {"s": 1, "ms": 1000, "us": 10**6, "ns": 10**9}[unit]
    rows = [{"at": kind((1_700_000_000 + each / 8) * by_second), "n": each} for each in (*range(1500), 3, 3)]
    digests = set()
    for schema in (None, {"at": kind, "n": int}):
        for payloads in (rows, pl.DataFrame(rows)):
            graph = drift.Graph("units")
            time = drift.EventTime("at", unit=unit, lateness="10m")
            source: Any = graph.source("rows", time=time, **({} if schema is None else {"schema": schema}))
            source.window(drift.windows.tumbling("1m")).rows(n=drift.agg.count()).sink("out")
            with warnings.catch_warnings():
                warnings.simplefilter("error")
                run = drift.run(graph, {"rows": payloads})
                assert [item.payload["start"] for item in run][:2] == [1_699_999_980_000, 1_700_000_040_000]
            digests.add(run.digest)
    assert len(digests) == 1


def test_the_unit_of_a_time_is_one_that_there_is_and_is_named_where_a_time_is_a_float() -> None:
    with pytest.raises(drift.SettingsError, match="unit='sec' is not valid; it is one of 's', 'ms', 'us', 'ns'"):
        drift.EventTime("at", unit="sec")  # type: ignore[arg-type]
    graph = drift.Graph("units")
    graph.source("rows", time=drift.EventTime("at")).sink("out")
    with pytest.raises(drift.InputError, match=r"gave 1\.5 .*name its unit, EventTime\(\.\.\., unit='s'\)"):
        drift.run(graph, {"rows": [{"at": 1.5}]}).finish()
    assert drift.EventTime("at", unit="s") != drift.EventTime("at")
    assert drift.EventTime("at", unit="s").parameters["unit"] == "s"
    assert "unit" not in drift.EventTime("at").parameters
