"""Times of clocks without an offset, where the clocks are put back or forward."""

from __future__ import annotations

import datetime
import zoneinfo
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pytest

import drift
from drift_graph.errors import InputError, SettingsError

BERLIN = zoneinfo.ZoneInfo("Europe/Berlin")
START = datetime.datetime(2024, 10, 26, 23, tzinfo=datetime.UTC)
MOMENTS = [START + datetime.timedelta(minutes=30 * at) for at in range(8)]
CLOCKS = [moment.astimezone(BERLIN).replace(tzinfo=None) for moment in MOMENTS]  # with fold

FORMS: dict[str, Any] = {
    "text": lambda moment: moment.replace(fold=0).isoformat(),
    "datetime": lambda moment: moment.replace(fold=0),
    "pandas": lambda moment: pd.Timestamp(moment.replace(fold=0)),
    "numpy": lambda moment: np.datetime64(moment, "us"),
}


def times(rows: Any, zone: str = "Europe/Berlin", on_error: str = "error", **more: Any) -> list[Any]:
    graph = drift.Graph("local")
    schema = more.pop("schema", None)
    policy = drift.EventTime("at", lateness="1d", zone=zone, **more)
    graph.source("s", time=policy, on_error=on_error, **({"schema": schema} if schema else {})).sink("out")
    return [item.time if item.sink == "out" else "diverted" for item in drift.run(graph, {"s": rows})]


def ms(moments: list[datetime.datetime]) -> list[int]:
    return [int(moment.timestamp() * 1000) for moment in moments]


@pytest.mark.parametrize("form", FORMS)
def test_a_time_that_clocks_show_twice_is_an_error_or_the_one_that_is_named(form: str) -> None:
    rows = [{"n": at, "at": FORMS[form](clock)} for at, clock in enumerate(CLOCKS)]
    with pytest.raises(InputError, match=r"twice, at 2024-10-27T00:00:00\+00:00 and at 2024-10-27T01:00:00\+00:00"):
        times(rows)
    assert times(rows, on_error="divert").count("diverted") == 4
    first, last = ms(MOMENTS[2:4]), ms(MOMENTS[4:6])
    around = ms(MOMENTS[:2]), ms(MOMENTS[6:])
    for named, twice in (("earliest", first), ("fold", first), ("latest", last)):
        assert times(rows, ambiguous=named) == sorted([*around[0], *twice, *twice, *around[1]])


def test_the_fold_of_a_datetime_says_which_it_is() -> None:
    rows = [{"n": at, "at": clock} for at, clock in enumerate(CLOCKS)]
    assert times(rows, ambiguous="fold") == ms(MOMENTS)
    assert times(rows, on_error="divert").count("diverted") == 2  # of fold 0, which is that of datetimes without


def test_rows_in_columns_are_read_as_their_dicts() -> None:
    frame = pl.DataFrame({"n": range(8), "at": [clock.replace(fold=0) for clock in CLOCKS]})
    with pytest.raises(InputError, match="twice"):
        times(frame)
    assert times(frame, ambiguous="latest") == times(frame.to_dicts(), ambiguous="latest")
    assert times(frame, on_error="divert") == times(frame.to_dicts(), on_error="divert")


def test_a_time_that_clocks_never_show_is_an_error() -> None:
    rows = [{"at": "2024-03-31T02:30:00"}, {"at": "2024-03-31T03:15:00"}]
    for ambiguous in ("error", "earliest", "latest", "fold"):
        with pytest.raises(InputError, match="clocks in Europe/Berlin never show this time"):
            times(rows, ambiguous=ambiguous)
    assert times(rows, on_error="divert").count("diverted") == 1
    assert times(rows, zone="UTC") == [1711852200000, 1711854900000]


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("2024-02-29T24:00:00Z", "24:00 is the 00:00 of the day behind it"),
        ("2024-02-29 24:00", "24:00 is the 00:00 of the day behind it"),
        ("2024-02-29T23:59:60Z", "a second 60 is a leap second"),
        ("2024-02-30T00:00:00Z", "day is out of range"),
        ("2024-02-29T23595950Z", "a part of a second stands behind a point"),
    ],
)
def test_a_text_that_is_no_moment_is_refused_with_the_forms_that_are_taken(text: str, says: str) -> None:
    with pytest.raises(InputError, match=f"{says}.*a moment is a text such as 2024-01-31T23:59:59.999999"):
        times([{"at": text}])


def test_a_zone_of_pytz_is_that_of_its_name() -> None:
    pytz = pytest.importorskip("pytz")
    policy = drift.EventTime("at", zone=pytz.timezone("Europe/Berlin"))
    assert policy.time_of("2024-01-01T00:00:00") == policy.time_of("2024-01-01T00:00:00+01:00")


def test_what_ambiguous_may_be_is_said() -> None:
    with pytest.raises(SettingsError, match="'error', 'earliest', 'latest', 'fold'"):
        drift.EventTime("at", ambiguous="raise")  # type: ignore[arg-type]
