"""Times and durations as people write them, converted to ints.

Invariant: a time or a duration becomes one int, the same whatever the machine's time zone is; input that would depend
on it is refused.

Why: times are whole milliseconds since 1970 in UTC, rounded down, and durations whole milliseconds, in integers
throughout. A datetime without a zone is accepted only if the user has named one.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta, tzinfo
from fractions import Fraction
from operator import index
from typing import Any

from drift_graph.functions import LibraryFunction, field_of
from drift_graph.meta import TIME_MAX, TIME_MIN
from drift_graph.payloads import are_rows

#: A length of time: an int in the unit of the items' time; or, where that is milliseconds, a timedelta or "1h 30m".
Span = int | timedelta | str
#: A moment: an int in the unit of the items' time; or, where that is milliseconds since 1970, a datetime with a zone or
#: ISO text with one.
Moment = int | datetime | str

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MS = timedelta(milliseconds=1)
_UNITS_MS = {
    name: ms
    for ms, names in (
        (1, "ms millisecond milliseconds"),
        (1000, "s sec secs second seconds"),
        (60_000, "m min mins minute minutes"),
        (3_600_000, "h hour hours"),
        (86_400_000, "d day days"),
        (604_800_000, "w week weeks"),
    )
    for name in names.split()
}
_PART = re.compile(r"\s*(\d+(?:\.\d+)?)\s*([a-z]+)\s*")
_INTEGER = re.compile(r"[+-]?[0-9]+")
_ISO = re.compile(r"\d{4}-\d{2}-\d{2}")


def time_from(value: Any, zone: tzinfo | None = None) -> int | None:
    """A moment as an int, of whatever class of whole numbers, moments or texts it is; None for what is no time.

    Args:
        value: as a user's function gave it.
        zone: of moments that have none.
    """
    if isinstance(value, str):
        value = _parsed(value)
    elif type(value).__name__ == "datetime64":
        value = _of_numpy(value)
    if isinstance(value, datetime):
        value = _in_ms(value, zone)
    if isinstance(value, bool) or not hasattr(type(value), "__index__"):
        return None
    try:
        number = index(value)
    except TypeError:  # some of numpy's say so only now
        return None
    return number if TIME_MIN <= number <= TIME_MAX else None


def _parsed(text: str) -> datetime | None:
    """ISO text only; digits alone are refused, since they may be a number as well as a date."""
    if not _ISO.match(text):
        return None
    try:
        return datetime.fromisoformat(text)
    except ValueError:
        return None


def _of_numpy(value: Any) -> datetime | None:
    """A numpy time has no zone, and may be NaT or beyond what datetime holds."""
    found = value.astype("datetime64[us]").item()
    return found if isinstance(found, datetime) else None


def _in_ms(moment: datetime, zone: tzinfo | None) -> Any:
    try:
        if moment.utcoffset() is None:
            if zone is None:
                return None
            moment = moment.replace(tzinfo=zone)
        return (moment - _EPOCH) // _MS
    except (OverflowError, TypeError, ValueError):  # beyond what datetime holds; pandas' NaT too
        return None


def moment_from(time: int) -> datetime:
    """The moment of a time in milliseconds since 1970.

    Raises:
        OverflowError: datetime has no such year.
    """
    return _EPOCH + time * _MS


def span_from(value: Any) -> int | None:
    """A duration as an int; None for what is none, or has a part of a millisecond.

    >>> span_from(30), span_from("10s"), span_from("1h 30m"), span_from(timedelta(days=1)), span_from("5 minutes")
    (30, 10000, 5400000, 86400000, 300000)
    """
    if type(value) is int:
        return value
    if isinstance(value, timedelta):
        return value // _MS if not value % _MS else None
    if not isinstance(value, str):
        return None
    if _INTEGER.fullmatch(value):
        return int(value)
    sign, text = (-1, value[1:]) if value.startswith("-") else (1, value)
    total, at = Fraction(0), 0
    while at < len(text):
        part = _PART.match(text, at)
        if part is None or part[2] not in _UNITS_MS:
            return None
        total += Fraction(part[1]) * _UNITS_MS[part[2]]
        at = part.end()
    return sign * int(total) if at and total.denominator == 1 else None


def zone_from(value: Any) -> tzinfo | None:
    """A time zone from itself or its name; None for anything else."""
    if isinstance(value, tzinfo):
        return value
    if not isinstance(value, str):
        return None
    if value == "UTC":
        return UTC
    from zoneinfo import ZoneInfo  # here: it takes long to import, and few times are in one

    try:
        return ZoneInfo(value)
    except (KeyError, OSError, ValueError):  # no zone has this name, or it is not a name
        return None


def results_of(function: Callable[[Any], Any], payloads: Sequence[Any]) -> Iterator[Any]:
    """`map(function, payloads)`; of a field of rows, without making their dicts, and in one call where there is one."""
    if are_rows(payloads) and type(function) is Field:
        column = payloads.field(function.path)
        if column is not None:
            return iter(column)
    each = field_of(function, "each")
    return map(function, payloads) if each is None else iter(each(payloads))


def column_of(function: object) -> Any:
    """What a function reads that is a column of rows: a field's name, or what computes one; None if it does more."""
    if type(function) is Field:
        return function.path
    return function if field_of(function, "is_column", False) else None


@dataclass(frozen=True)
class Field(LibraryFunction):
    """A function that reads a field of a payload: "at", "trip.at"; for tuples and lists "0"."""

    #: It has no line of its own for messages.
    is_field = True

    path: str

    @property
    def paths(self) -> tuple[str, ...]:
        """The fields that it reads."""
        return (self.path,)

    def __post_init__(self) -> None:
        object.__setattr__(self, "__qualname__", f"field {self.path}")

    def __call__(self, payload: Any) -> Any:
        """
        Raises:
            LookupError: the payload has no such field.
        """
        if type(payload) is dict:  # asking for a Mapping takes half as long again as a function of the user
            try:
                return payload[self.path]
            except KeyError:
                pass
        if isinstance(payload, Mapping) and self.path in payload:
            return payload[self.path]
        found = payload
        for part in self.path.split("."):
            try:
                if isinstance(found, Mapping):
                    found = found[part]
                elif _INTEGER.fullmatch(part):
                    found = found[int(part)]
                else:
                    found = getattr(found, part)
            except (LookupError, TypeError, AttributeError):
                raise LookupError(f"the payload has no field {self.path!r}") from None
        return found
