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
from math import isfinite
from operator import index
from typing import Any, Literal, get_args

from drift_graph.errors import DriftError
from drift_graph.functions import LibraryFunction, field_of
from drift_graph.meta import TIME_MAX, TIME_MIN
from drift_graph.payloads import are_rows

#: A length of time: an int in the unit of the items' time; or, where that is milliseconds, a timedelta or "1h 30m".
Span = int | timedelta | str
#: A moment: an int in the unit of the items' time; or, where that is milliseconds since 1970, a datetime with a zone or
#: ISO text with one.
Moment = int | datetime | str

#: How a moment without a zone is read that the clocks of its zone show twice: as an error, or as one of the two.
Ambiguous = Literal["error", "earliest", "latest", "fold"]
AMBIGUOUS = get_args(Ambiguous)
#: What a number is that is a time in milliseconds since 1970 in another unit.
Unit = Literal["s", "ms", "us", "ns"]
UNITS = get_args(Unit)
_IN_MS = {"s": (1000, 1), "ms": (1, 1), "us": (1, 1000), "ns": (1, 1_000_000)}  # (times, divided by)
_IN_US = {"s": (1e6, 1.0), "ms": (1000.0, 1.0), "us": (1.0, 1.0), "ns": (1.0, 1000.0)}
#: What texts are moments, for errors.
MOMENT_TEXTS = (
    "a moment is a text such as 2024-01-31T23:59:59.999999, with Z or +01:00 behind it if it has a zone: hours are "
    "00 to 23, seconds 00 to 59"
)

_NO_NUMBERS = ("bool", "bool_", "ndarray", "Series")
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
_HOUR_24 = re.compile(r"(?:[0-9-]{8,10}|[0-9]{4}-?[Ww][0-9-]{2,4})[^0-9-]24").match
_SECOND_60 = re.compile(r"[0-9]:?[0-9]{2}:?60(?![0-9])").search
#: Whether the digits of a clock go on behind its seconds without a point, which Python takes for a fraction.
_TOO_MANY_DIGITS = re.compile(r"[^0-9.,][0-9]{7}").search

_SPAN = re.compile(r"([+-])?P(?:{0}W)?(?:{0}D)?(?:T(?:{0}H)?(?:{0}M)?(?:{0}S)?)?".format(r"([0-9]+(?:[.,][0-9]+)?)"))
_SPAN_US = (604_800_000_000, 86_400_000_000, 3_600_000_000, 60_000_000, 1_000_000)
#: Whether a text has more of a second than microseconds.
is_too_exact = re.compile(r"[.,][0-9]{6}0*[1-9]").search


def time_from(
    value: Any, zone: tzinfo | None = None, ambiguous: Ambiguous = "error", unit: Unit | None = None
) -> int | None:
    """A moment as an int, of whatever class of whole numbers, moments or texts it is; None for what is no time.

    Args:
        value: as a user's function gave it.
        zone: of moments that have none.
        ambiguous: of these, which of two a moment is that the clocks of the zone show twice.
        unit: of numbers, which then become milliseconds, rounded down. One with a fraction is rounded to microseconds
            before that, as in `datetime.fromtimestamp`: what is written 0.007 is a little less than that in binary.
    """
    if unit is not None and type(value).__name__ not in _NO_NUMBERS:
        if hasattr(type(value), "__index__"):
            by, divided = _IN_MS[unit]
            value = index(value) * by // divided
        elif hasattr(type(value), "__float__"):
            factor, parts = _IN_US[unit]
            micros = float(value) * factor / parts
            value = round(micros) // 1000 if isfinite(micros) else None
    if isinstance(value, str):
        value = _parsed(value)
    elif type(value).__name__ == "datetime64":
        value = _of_numpy(value)
    if isinstance(value, datetime):
        value = _in_ms(value, zone, ambiguous)
    if isinstance(value, bool) or not hasattr(type(value), "__index__"):
        return None
    try:
        number = index(value)
    except TypeError:  # some of numpy's say so only now
        return None
    return number if TIME_MIN <= number <= TIME_MAX else None


def why_no_moment(value: Any, zone: tzinfo | None) -> str:
    """Why a text or moment, of which there is no time, is none: what it is, and what to do; "" for all other values."""
    if isinstance(value, str):
        if not _ISO.match(value):
            return ""
        try:
            value = moment_of_text(value)
        except ValueError as error:
            return f"{error}: {MOMENT_TEXTS}"
    elif type(value).__name__ == "datetime64":
        value = _of_numpy(value)
    if not isinstance(value, datetime) or value != value:
        return ""
    try:
        if value.utcoffset() is None:
            if zone is None:
                return "this one has no zone; name it, EventTime(..., zone='Europe/Berlin'), or give it one"
            first, second = _readings(value, zone)
            if first < second:
                return (
                    f"clocks in {zone} show this time twice, at {first.isoformat()} and at {second.isoformat()}: write "
                    f"times with their offset, or say which is meant, EventTime(..., ambiguous='earliest'), 'latest', "
                    f"or 'fold' for that of the datetime"
                )
            if first > second:
                return (
                    f"clocks in {zone} never show this time, they are put forward over it; name the zone in which it "
                    f"was written, or write times with their offset"
                )
    except (OverflowError, TypeError, ValueError):
        pass
    return "it is beyond what datetime holds"


def moment_of_text(text: str) -> datetime:
    """A text of ISO 8601 as a moment, with or without a zone; what is behind microseconds is cut off.

    Raises:
        ValueError: it is none; the error says why.
    """
    if _HOUR_24(text):  # which some versions of Python take, and others do not
        raise ValueError("24:00 is the 00:00 of the day behind it, and is written so")
    check_digits(text)
    try:
        return datetime.fromisoformat(text.upper())
    except ValueError as error:
        if _SECOND_60(text):
            raise ValueError("a second 60 is a leap second, which no moment of Python has") from None
        raise ValueError(str(error)) from None


def check_digits(text: str) -> None:
    """Refuse a text with a clock of more than six digits in a row, such as T20240131.

    Raises:
        ValueError: it is one.
    """
    if _TOO_MANY_DIGITS(text):
        raise ValueError("a part of a second stands behind a point: 235959.5")


def span_of_text(text: str) -> timedelta:
    """A text of ISO 8601, such as P1DT2H30M0.5S, as a duration.

    Raises:
        ValueError: it is none, or has parts of a microsecond.
    """
    found = _SPAN.fullmatch(text.upper())
    if found is None or not any(found.groups()[1:]):
        raise ValueError("a duration is a text such as P1DT2H30M0.5S, with a minus sign in front if it is negative")
    parts = zip(_SPAN_US, found.groups()[1:])
    total = sum((Fraction(part.replace(",", ".")) * unit for unit, part in parts if part), Fraction())
    if total.denominator != 1:
        raise ValueError("it has parts of a microsecond")
    return timedelta(microseconds=int(total)) * (-1 if found[1] == "-" else 1)


def _parsed(text: str) -> datetime | None:
    """ISO text only; digits alone are refused, since they may be a number as well as a date."""
    if not _ISO.match(text):
        return None
    try:
        return moment_of_text(text)
    except ValueError:
        return None


def _of_numpy(value: Any) -> datetime | None:
    """A numpy time has no zone, and may be NaT or beyond what datetime holds."""
    found = value.astype("datetime64[us]").item()
    return found if isinstance(found, datetime) else None


def _in_ms(moment: datetime, zone: tzinfo | None, ambiguous: Ambiguous) -> Any:
    try:
        if moment.utcoffset() is None:
            if zone is None:
                return None
            first, second = _readings(moment, zone)
            if first > second or (first < second and ambiguous == "error" and not moment.fold):
                return None
            by_fold = ambiguous in ("error", "fold")
            moment = second if (moment.fold if by_fold else ambiguous == "latest") else first
        return (moment - _EPOCH) // _MS
    except (OverflowError, TypeError, ValueError):  # beyond what datetime holds; pandas' NaT too
        return None


def _readings(moment: datetime, zone: tzinfo) -> tuple[datetime, datetime]:
    """The moments in UTC that a time of the clocks of a zone is, before a change of them and behind it: they are equal,
    but for a time that the clocks show twice, or never: then the first is behind the second.
    """
    if type(moment) is not datetime:  # such as pandas', which has its own ways
        moment = datetime(*moment.timetuple()[:6], moment.microsecond, fold=moment.fold)
    first, second = (_in_utc(moment.replace(tzinfo=zone, fold=fold)) for fold in (0, 1))
    return first, second


def _in_utc(moment: datetime) -> datetime:
    offset = moment.utcoffset()
    assert offset is not None
    return (moment.replace(tzinfo=None) - offset).replace(tzinfo=UTC)


def moment_from(time: int) -> datetime:
    """The moment of a time in milliseconds since 1970. Raises OverflowError: datetime has no such year."""
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
        name = getattr(value, "zone", None) if type(value).__module__.startswith("pytz") else None
        return zone_from(name) if name else value  # a moment cannot be given one of pytz by `replace`
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
    """`map(function, payloads)`; of a field of rows, without making their dicts, and in one call where there is one.

    A call for all that raises is made again one by one, so what it raises comes at the payload that it is about.
    """
    if are_rows(payloads) and type(function) is Field:
        column = payloads.field(function.path)
        if column is not None:
            return iter(column)
    each = field_of(function, "each")
    if each is not None:
        try:
            return iter(each(payloads))
        except Exception as error:
            if isinstance(error, DriftError) and error.ends_the_run:
                raise
    return map(function, payloads)


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
        """Raises LookupError: the payload has no such field."""
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
