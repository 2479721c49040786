"""Hours, days, weeks, months and years of a time zone, as ranges of milliseconds since 1970.

Invariant: the ranges of a calendar follow each other without gaps, and every time is in exactly one, which is a pure
function of the time, and of the machine's database of time zones.

Why: a range begins at the first instant at which the clocks of the zone show its first hour, or more, which never goes
back from one range to the next: an hour that a zone skips begins at the instant of the change, and one that it has
twice at the first. Days and dates are whole numbers, so years have no end: beyond those that datetime has, clocks are
as they were in the last of them.
"""

from __future__ import annotations

import functools
import re
from datetime import UTC, date, datetime, timedelta
from typing import Literal, NamedTuple

from drift_graph.meta import TIME_MAX, TIME_MIN
from drift_graph.moments import moment_from, zone_from

#: A week of Monday is called that; others have the names of their first days.
Unit = Literal["hour", "day", "week", "month", "tuesday", "wednesday", "thursday", "friday", "saturday", "sunday"]

WEEKDAYS: tuple[str, ...] = ("monday", "tuesday", "wednesday", "thursday", "friday", "saturday", "sunday")

_UNITS: dict[str, tuple[Unit, int]] = {
    "h": ("hour", 1), "hour": ("hour", 1), "hours": ("hour", 1),
    "d": ("day", 1), "day": ("day", 1), "days": ("day", 1),
    "w": ("week", 1), "week": ("week", 1), "weeks": ("week", 1),
    "month": ("month", 1), "months": ("month", 1),
    "quarter": ("month", 3), "quarters": ("month", 3),
    "y": ("month", 12), "year": ("month", 12), "years": ("month", 12),
}  # fmt: skip
_PARTS_OF_DAY = (1, 2, 3, 4, 6, 8, 12)
_TEXT = re.compile(r"\s*(\d*)\s*([a-z]+)\s*")

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MS = timedelta(milliseconds=1)
_HOUR_MS, _DAY_MS = 3_600_000, 86_400_000
#: Within these a zone's clocks can be asked for, in UTC and as they show it; beyond, they go on as they are there.
_FIRST_MS, _LAST_MS = ((datetime(*day, tzinfo=UTC) - _EPOCH) // _MS for day in ((1, 1, 2), (9999, 12, 31)))
_FIRST_MONDAY = date(1969, 12, 29).toordinal()
_THURSDAY = 3  # on which 1970 began
_FIRST_DAY = date(1970, 1, 1).toordinal()
_DAYS_OF_400_YEARS = 146_097  # after which the same days have the same dates


class Calendar(NamedTuple):
    """Ranges of `units` units each.

    Attributes:
        zone: its name.
    """

    unit: Unit
    units: int
    zone: str

    def bounds(self, time: int) -> tuple[int, int]:
        """The first time of the range around a time, and the first time after the range."""
        index = self._number_of(time + _offset_at(self.zone, time))
        while time < start_of(self, index):
            index -= 1
        while time >= start_of(self, index + 1):
            index += 1
        return max(start_of(self, index), TIME_MIN), min(start_of(self, index + 1), TIME_MAX + 1)

    def _number_of(self, local: int) -> int:
        """The number of the range that has a moment, in milliseconds since 1970 as the clocks show it."""
        if self.unit == "hour":
            return local // (_HOUR_MS * self.units)
        day = local // _DAY_MS + _FIRST_DAY
        if self.unit == "month":
            cycles, within = divmod(day - 1, _DAYS_OF_400_YEARS)
            found = date.fromordinal(within + 1)
            return ((cycles * 400 + found.year) * 12 + found.month - 1) // self.units
        first, days = self._first
        return (day - first) // days

    @property
    def _first(self) -> tuple[int, int]:
        """The first day of range 0, of days or weeks, and how many days a range has."""
        if self.unit == "day":
            return _FIRST_DAY, self.units
        weekday = WEEKDAYS.index(self.unit) if self.unit in WEEKDAYS else 0
        return _FIRST_MONDAY + (weekday - 7 if weekday > _THURSDAY else weekday), 7 * self.units

    def first_hour(self, number: int) -> int:
        """The first hour of a range, in milliseconds since 1970 as the clocks show it."""
        if self.unit == "hour":
            return number * self.units * _HOUR_MS
        if self.unit == "month":
            year, month = divmod(number * self.units, 12)
            cycles, within = divmod(year, 400)
            day = date(within + 400, month + 1, 1).toordinal() + (cycles - 1) * _DAYS_OF_400_YEARS
        else:
            first, days = self._first
            day = first + number * days
        return (day - _FIRST_DAY) * _DAY_MS


def calendar_from(text: object, zone: object, start: str = "monday") -> Calendar | None:
    """The calendar of a text such as "1d" or "3 months"; None if it is no whole number of units, or the zone is none.

    >>> calendar_from("2 weeks", "UTC"), calendar_from("quarter", "Europe/Berlin"), calendar_from("90s", "UTC")
    (Calendar(unit='week', units=2, zone='UTC'), Calendar(unit='month', units=3, zone='Europe/Berlin'), None)
    """
    part = _TEXT.fullmatch(text) if isinstance(text, str) else None
    if part is None or part[2] not in _UNITS or not isinstance(zone, str) or zone_from(zone) is None:
        return None
    unit, times = _UNITS[part[2]]
    if unit == "week" and start != "monday":
        unit = start  # type: ignore[assignment]
    count = int(part[1] or 1) * times
    fits = count in _PARTS_OF_DAY if unit == "hour" else 1 <= count <= 1200
    return Calendar(unit, count, zone) if fits else None


@functools.lru_cache(maxsize=4096)
def start_of(calendar: Calendar, number: int) -> int:
    """The first time of a range."""
    zone, first = _zone(calendar.zone), calendar.first_hour(number)
    shown = moment_from(_within(first)).replace(tzinfo=zone)
    instant, before = (first - _offset_of(shown.replace(fold=fold)) for fold in (0, 1))
    while before < instant:  # the clocks skip it: the change is between these
        middle = (before + instant) // 2
        if middle + _offset_at(calendar.zone, middle) < first:
            before = middle + 1
        else:
            instant = middle
    return instant


def _offset_at(zone: str, time: int) -> int:
    """How far the clocks of a zone are before UTC, in whole milliseconds, at a time."""
    return _offset_of(moment_from(_within(time)).astimezone(_zone(zone)))


def _offset_of(moment: datetime) -> int:
    offset = moment.utcoffset()
    assert offset is not None
    return offset // _MS


def _within(time: int) -> int:
    return min(max(time, _FIRST_MS), _LAST_MS)


_zone = functools.cache(zone_from)
