"""Windows of calendars beside the local dates of Python's datetime."""

from __future__ import annotations

from datetime import UTC, date, datetime, timedelta
from typing import Any
from zoneinfo import ZoneInfo

import flows
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import drift
from drift.flow.calendars import WEEKDAYS, calendar_from
from drift_graph.meta import TIME_MAX, TIME_MIN
from drift_graph.moments import moment_from, span_from

HOUR_MS = 3_600_000
ZONES = ["UTC", "Europe/Berlin", "America/Sao_Paulo", "Asia/Kathmandu", "Australia/Lord_Howe", "Pacific/Apia"]
ZONES += [
    "America/Toronto",
    "Antarctica/Troll",
]  # clocks that skip from half past eleven to half past twelve; two hours


def ms(zone: str, *parts: int) -> int:
    return int((datetime(*parts, tzinfo=ZoneInfo(zone)) - datetime(1970, 1, 1, tzinfo=UTC)) / timedelta(milliseconds=1))  # type: ignore[arg-type,misc]


def hours(every: str, zone: str, *parts: int) -> float:
    calendar = calendar_from(every, zone)
    assert calendar is not None
    start, end = calendar.bounds(ms(zone, *parts))
    return (end - start) / HOUR_MS


@pytest.mark.parametrize("unit", ["day", "week", "month", "year"])
@given(units=st.integers(1, 100), at=st.integers(-(10**14), 3 * 10**14), zone=st.sampled_from(ZONES))
def test_ranges_of_any_length_follow_each_other_at_any_time(unit: str, units: int, at: int, zone: str) -> None:
    calendar = calendar_from(f"{units * (1 if unit == 'year' else 12)} {unit}", zone)
    assert calendar is not None
    start, end = calendar.bounds(at)
    assert start <= at < end
    assert start == TIME_MIN or calendar.bounds(start - 1)[1] == start
    assert end == TIME_MAX + 1 or calendar.bounds(end)[0] == end
    assert calendar.bounds(start) == calendar.bounds(end - 1) == (start, end)


@given(at=st.integers(-(10**13), 10**13), zone=st.sampled_from(ZONES), day=st.sampled_from(WEEKDAYS))
@settings(max_examples=30)
def test_weeks_begin_on_the_day_that_is_said(at: int, zone: str, day: str) -> None:
    calendar, fortnights = calendar_from("1w", zone, day), calendar_from("2w", zone, day)
    assert calendar is not None and fortnights is not None
    start, end = calendar.bounds(at)
    first, last = (moment_from(each).astimezone(ZoneInfo(zone)).date() for each in (start, end))
    assert start <= at < end and last - first == timedelta(days=7) and WEEKDAYS[first.weekday()] == day
    assert fortnights.bounds(0)[0] <= 0 <= fortnights.bounds(0)[1] and calendar.bounds(start) == (start, end)
    assert start in (fortnights.bounds(at)[0], calendar.bounds(fortnights.bounds(at)[0])[1])


def test_days_have_as_many_hours_as_they_have() -> None:
    assert hours("1d", "Europe/Berlin", 2024, 3, 31, 12) == 23
    assert hours("day", "Europe/Berlin", 2024, 10, 27, 12) == 25
    assert hours("day", "Europe/Berlin", 2024, 5, 5) == 24
    assert hours("day", "America/Sao_Paulo", 2018, 11, 4, 5) == 23  # it has no midnight
    assert hours("day", "Australia/Lord_Howe", 2024, 4, 7, 5) == 24.5
    assert hours("day", "Pacific/Apia", 2011, 12, 29, 5) == 24  # the zone has no day after it
    assert hours("week", "Europe/Berlin", 2024, 3, 31) == 7 * 24 - 1
    assert hours("2 months", "UTC", 2024, 2, 29) == 24 * (31 + 29)
    assert hours("quarter", "UTC", 2023, 6, 30) == 24 * (30 + 31 + 30)
    assert hours("year", "UTC", 2024, 2, 29) == 24 * 366


def test_hours_are_those_that_clocks_show() -> None:
    assert [hours("6h", "Europe/Berlin", 2024, 3, 31, hour) for hour in (0, 6, 12, 18)] == [5, 6, 6, 6]
    assert [hours("6h", "Europe/Berlin", 2024, 10, 27, hour) for hour in (0, 6, 12, 18)] == [7, 6, 6, 6]
    assert [hours("hour", "Europe/Berlin", 2024, 10, 27, hour) for hour in (1, 2, 3)] == [1, 2, 1]
    assert [hours("1h", "Europe/Berlin", 2024, 3, 31, hour) for hour in (1, 3)] == [1, 1]
    assert [hours("12 hours", "Asia/Kathmandu", 2024, 5, 5, hour) for hour in (0, 12)] == [12, 12]
    assert hours("2h", "Antarctica/Troll", 2024, 3, 31, 4) == 2, "what is skipped begins where it would end"
    assert [hours("6h", "Pacific/Apia", 2011, 12, day, hour) for day, hour in ((29, 18), (31, 0))] == [6, 6]
    weeks = calendar_from("2 weeks", "UTC", "friday")
    assert weeks is not None and weeks.bounds(0)[0] == ms("UTC", 1969, 12, 26), "the first range has 1970-01-01"
    calendar = calendar_from("day", "America/Toronto")
    assert calendar is not None
    change = ms("America/Toronto", 1919, 3, 30, 23) + HOUR_MS // 2
    assert calendar.bounds(change - 1)[1] == calendar.bounds(change)[0] == change, "clocks went from 23:30 to 0:30"


@pytest.mark.parametrize("every", ["5h", "0h", "24h", "90s", "1.5h"])
def test_hours_that_no_day_is_made_of_are_refused(every: str) -> None:
    with pytest.raises(drift.GraphError, match="or 1, 2, 3, 4, 6, 8 or 12 hours"):
        drift.windows.calendar(every)


@given(
    st.sampled_from(["1h", "6h", "12h", "1d", "3 days", "week", "month", "5 months", "year"]),
    st.sampled_from(ZONES),
    st.datetimes(datetime(1900, 1, 1), datetime(2100, 1, 1), timezones=st.just(UTC)),
)
@settings(max_examples=200)
def test_every_moment_is_in_the_range_of_its_local_date(every: str, zone: str, moment: datetime) -> None:
    calendar = calendar_from(every, zone)
    assert calendar is not None
    time = (moment - datetime(1970, 1, 1, tzinfo=UTC)) // timedelta(milliseconds=1)
    start, end = calendar.bounds(time)
    assert start <= time < end
    assert calendar.bounds(start) == calendar.bounds(end - 1) == (start, end)
    assert calendar.bounds(end)[0] == end and calendar.bounds(start - 1)[1] == start
    local = drift.Window(None, start, end, 0).between(zone)
    assert local[0].date() <= moment.astimezone(ZoneInfo(zone)).date() <= local[1].date()
    if every in ("week", "month", "year") and zone == "UTC":
        assert {"week": local[0].weekday() == 0, "month": local[0].day == 1, "year": local[0].timetuple().tm_yday == 1}[
            every
        ]


@given(
    days=st.sampled_from([1, 2, 400, 800]).flatmap(lambda year: st.integers(0, 2000).map(lambda day: (year, day))),
    zone=st.sampled_from(ZONES),
)
def test_the_first_years_and_the_last_have_days_and_years_as_others(days: tuple[int, int], zone: str) -> None:
    first = date(days[0], 1, 1).toordinal() + days[1]
    for number in (first, date.max.toordinal() - days[1] - 1, date.max.toordinal()):  # from year 1, and up to 9999
        day, year = date.fromordinal(number), date.fromordinal(number).year
        noon = datetime(day.year, day.month, day.day, 12)
        offset = noon.replace(tzinfo=ZoneInfo(zone)).utcoffset()
        assert offset is not None
        time = (noon - datetime(1970, 1, 1) - offset) // timedelta(milliseconds=1)
        a_day, a_year = calendar_from("1d", zone), calendar_from("1y", zone)
        assert a_day is not None and a_year is not None
        start, end = a_day.bounds(time)
        assert abs(end - start - 24 * HOUR_MS) <= 2 * HOUR_MS
        assert abs(time - start - 12 * HOUR_MS) <= 2 * HOUR_MS
        start, end = a_year.bounds(time)
        assert abs((end - start) / 24 / HOUR_MS - (date(year, 12, 31) - date(year, 1, 1)).days - 1) < 0.1
        assert abs((time - start) / 24 / HOUR_MS - 0.5 - (day - date(year, 1, 1)).days) < 0.1


def test_the_last_day_of_all_is_a_day_and_not_all_time_behind_it() -> None:
    graph = drift.Graph("edges")
    source = graph.source("moments", time=drift.EventTime("at"))
    source.window(drift.windows.calendar("1d")).rows(n=drift.agg.count()).sink("days")
    moments = [
        datetime(1, 1, 1),
        datetime(1, 1, 2),
        datetime(9997, 5, 1),
        datetime(9999, 12, 30),
        datetime(9999, 12, 31, 23),
    ]
    run = drift.run(graph, {"moments": [{"at": each.replace(tzinfo=UTC)} for each in moments]})
    found = [(item.payload["start"], item.payload["end"], item.payload["n"]) for item in run]
    starts = [ms("UTC", each.year, each.month, each.day) for each in moments]
    assert found == [(start, start + 24 * HOUR_MS, 1) for start in starts]


@pytest.mark.parametrize("time", [TIME_MIN, TIME_MIN + 1, -(10**15), 10**15, TIME_MAX - 1, TIME_MAX])
def test_times_that_datetime_does_not_have_are_in_a_range_too(time: int) -> None:
    calendar = calendar_from("month", "Europe/Berlin")
    assert calendar is not None
    start, end = calendar.bounds(time)
    assert start <= time < end and calendar.bounds(start) == calendar.bounds(min(end - 1, TIME_MAX)) == (start, end)


def at(item: flows.Timed) -> int:
    return item[0] * HOUR_MS + ms("Europe/Berlin", 2024, 10, 25)


@given(st.lists(st.tuples(st.integers(0, 120), st.integers(0, 2)), max_size=30))
@settings(max_examples=10)
def test_a_window_of_a_calendar_has_the_items_of_its_day(drawn: list[tuple[int, int]]) -> None:
    items = [(hour, number, key) for number, (hour, key) in enumerate(sorted(drawn))]

    def steps(stream: drift.Stream[Any]) -> drift.Stream[Any]:
        days = drift.windows.calendar("day", zone="Europe/Berlin")
        return stream.key_by(lambda item: item[2]).window(days).collect()

    graph = flows.flow(steps, "in", time=drift.EventTime(time=at, tie=flows.number_of))
    expected: dict[tuple[date, int], list[flows.Timed]] = {}
    for item in items:
        day = datetime.fromtimestamp(at(item) / 1000, ZoneInfo("Europe/Berlin")).date()
        expected.setdefault((day, item[2]), []).append(item)
    found = {}
    for window in flows.outputs(graph, {"in": items}):
        start, end = window.between("Europe/Berlin")
        assert (start.hour, end.hour, end.date() - start.date()) == (0, 0, timedelta(days=1))
        found[start.date(), window.key] = list(window.value)
    assert found == expected


def test_a_day_has_early_results() -> None:
    early = drift.windows.every(time="6 hours")
    graph = flows.flow(
        lambda stream: stream.window(drift.windows.calendar("day"), early=early).count(),
        "in",
        time=drift.EventTime(int),
    )
    found = flows.outputs(graph, {"in": [0, HOUR_MS, 23 * HOUR_MS]})
    assert [(each.value, each.early) for each in found] == [(2, True), (2, True), (2, True), (3, False)]


@pytest.mark.parametrize(
    "arguments", [("90s",), ("0d",), ("day", "Europe/Nowhere"), (3,), ("1.5 days",), ("9999999 years",), ("day", None)]
)
def test_what_is_no_calendar_is_refused(arguments: tuple[Any, ...]) -> None:
    with pytest.raises(drift.GraphError, match=r"calendar takes days.*test_flow_calendars"):
        drift.windows.calendar(*arguments)


def test_bounds_that_are_no_moments_are_refused() -> None:
    with pytest.raises(ValueError, match="no time zone"):
        drift.Window(None, 0, 1, 0).between("Mars")
    with pytest.raises(ValueError, match="beyond the years"):
        drift.Window(None, 0, drift.END, 0).between()


def test_spans_are_words_too() -> None:
    assert [span_from(text) for text in ("5 minutes", "1 hour 30 mins", "2 days", "1 week", "20 milliseconds")] == [
        300_000, 5_400_000, 172_800_000, 604_800_000, 20,
    ]  # fmt: skip
