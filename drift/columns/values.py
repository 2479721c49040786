"""One reading of a value of each type, from a text and from JSON.

Invariant: a text, or a value of JSON, is one value of a type or none, whichever reader has it: nothing of it is
rounded, cut off or taken for something else. Of a number with a point or an exponent, a 64-bit float is the nearest.

Why: what is read is decided by `of_text` and `of_json`, which take values one by one. Where Polars or Arrow make a
whole column at once (`at_once`), a look at that column shows that it is what they would give, or it is not taken.
"""

from __future__ import annotations

import binascii
import datetime
import decimal
import math
import re
import struct
from collections.abc import Callable, Sequence
from typing import Any

import polars as pl
import pyarrow as pa

from drift_graph.moments import MOMENT_TEXTS, check_digits, is_too_exact, moment_of_text, span_of_text

#: The value of a text, or of JSON; it raises ValueError, with the reason, if there is none.
Reading = Callable[[Any], Any]


class Number(str):
    """A number of JSON with a point or an exponent, as it is written."""

    __slots__ = ()


BOOLEANS = {"true": True, "false": False, "True": True, "False": False}
FLOAT_INTEGERS = 2**53  # of those up to here a 64-bit float holds each

_SIGNED, _UNSIGNED = (pl.Int8, pl.Int16, pl.Int32, pl.Int64), (pl.UInt8, pl.UInt16, pl.UInt32, pl.UInt64)
_BITS: dict[Any, tuple[int, int]] = {}
for _bits, _kind, _other in zip((8, 16, 32, 64), _SIGNED, _UNSIGNED):
    _BITS |= {_kind: (-(1 << _bits - 1), (1 << _bits - 1) - 1), _other: (0, (1 << _bits) - 1)}
_PACKED: dict[Any, str] = {pl.Float32: "f", **({pl.Float16: "e"} if hasattr(pl, "Float16") else {})}
_UNIT_US = {"ms": 1000, "us": 1, "ns": 1}
_NS_US = 2**63 // 1000  # microseconds on either side of 1970 that 64 bits hold as nanoseconds
_UNIT_NAMES = {"ms": "milliseconds", "us": "microseconds"}
_EXACT = decimal.Context(prec=100)
_EPOCH = datetime.datetime(1970, 1, 1)
_MICROSECOND = datetime.timedelta(microseconds=1)

_integer = re.compile(r"[+-]?[0-9]+").fullmatch
_number = re.compile(r"[+-]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?").fullmatch
_infinite = re.compile(r"[+-]?(?:inf|infinity|nan)", re.IGNORECASE).fullmatch
_DATE = r"[0-9]{4}-[0-9]{2}-[0-9]{2}"
_CLOCK = r"(?:[01][0-9]|2[0-3]):[0-5][0-9]:[0-5][0-9](?:\.[0-9]{1,6})?"


def bounds_of(kind: Any) -> tuple[int, int] | None:
    """The least and the greatest integer of a type of integers; None for other types."""
    return _BITS.get(type(kind) if not isinstance(kind, type) else kind)


def is_read_as_text(kind: Any) -> bool:
    """Whether JSON has the values of a type as texts that are read as those of CSV."""
    return kind in (pl.Date, pl.Time, pl.Binary) or isinstance(kind, (pl.Datetime, pl.Duration))


def of_text(kind: Any) -> Reading | None:
    """What a text is as a value of a type; None if no text is one."""
    if (bounds := bounds_of(kind)) is not None:
        return lambda text: _within(int(_matched(_integer, text, "an integer")), *bounds)
    if kind.is_float():
        return lambda text: _float_of_text(text, kind)
    if kind == pl.String or isinstance(kind, (pl.Categorical, pl.Enum)):
        return of_json(kind)
    if kind == pl.Boolean:
        return _boolean
    if kind == pl.Date:
        return _date
    if kind == pl.Time:
        return _clock
    if isinstance(kind, pl.Datetime):
        return lambda text: _moment(text, kind)
    if isinstance(kind, pl.Duration):
        return lambda text: _span(text, kind)
    if isinstance(kind, pl.Decimal):
        return lambda text: as_decimal(decimal.Decimal(_matched(_number, text, "a number")), kind)
    if kind == pl.Binary:
        return _bytes
    return None


def of_json(kind: Any) -> Reading:
    """What a value of JSON is as one of a type: as Python has it, but for `Number`."""
    if (bounds := bounds_of(kind)) is not None:
        return lambda value: _within(_of_class(value, int), *bounds)
    if kind == pl.Boolean:
        return lambda value: _of_class(value, bool)
    if kind.is_float():
        return lambda value: (
            _float_of_text(value, kind) if type(value) is Number else _float(_of_class(value, int), kind)
        )
    if isinstance(kind, pl.Enum):
        known = frozenset(kind.categories)
        return lambda value: _known(_of_class(value, str), known)
    if kind == pl.String or isinstance(kind, pl.Categorical):
        return lambda value: _of_class(value, str)
    if isinstance(kind, pl.Decimal):
        read = _known_of_text(kind)
        return lambda value: read(str(value) if type(value) is int else _of_class(value, str, Number))
    if isinstance(kind, (pl.List, pl.Array)):
        return _of_list(kind)
    if isinstance(kind, pl.Struct):
        return _of_struct(kind)
    if kind == pl.Null:
        return _null
    read = _known_of_text(kind)
    return lambda value: read(_of_class(value, str))


def _known_of_text(kind: Any) -> Reading:
    read = of_text(kind)
    assert read is not None, kind
    return read


def at_once(kind: Any, texts: pl.Series) -> pl.Series | None:
    """A column of texts, or None, as `of_text` reads them; None if some may have to be read by it."""
    if bounds_of(kind) is not None or isinstance(kind, (pl.Categorical, pl.Enum)):
        return _cast(texts, kind)
    if kind.is_float():
        return _floats_at_once(kind, texts)
    if kind == pl.String:
        return texts
    if kind == pl.Boolean:
        known = bool(texts.is_in(list(BOOLEANS)).all())
        return texts.replace_strict(BOOLEANS, return_dtype=pl.Boolean) if known else None
    if kind == pl.Date:
        return _times_at_once(texts, rf"^{_DATE}$", pa.date32())
    if not isinstance(kind, pl.Datetime):
        return None
    found = _times_at_once(texts, rf"^{_DATE}[T ]{_CLOCK}{'Z' if kind.time_zone else ''}$", pa.timestamp("us"))
    if found is None:
        return None
    if kind.time_unit != "us":
        in_us, found = found, found.cast(pl.Datetime(kind.time_unit), strict=False)
        if not found.cast(pl.Datetime("us")).equals(in_us):
            return None
    zone = kind.time_zone
    return found if zone is None else found.dt.replace_time_zone("UTC").dt.convert_time_zone(zone)


def floats_at_once(kind: Any, values: Sequence[Any]) -> pl.Series | None:
    """A column of floats, integers and None as `of_json` reads them; None if one is none of the type."""
    try:
        if int in set(map(type, values)):
            values = [_float(value, kind) if type(value) is int else value for value in values]
    except ValueError:
        return None
    found = pl.Series(values, dtype=pl.Float64)
    return found if kind == pl.Float64 else _narrowed(found, kind)


def as_decimal(value: decimal.Decimal, kind: pl.Decimal) -> decimal.Decimal:
    """A number with the digits that it has in a column of the type.

    Raises:
        ValueError: it has others.
    """
    if not value.is_finite():
        raise ValueError("it is no finite number")
    if value and value.adjusted() >= (kind.precision or 38) - kind.scale:
        raise ValueError(f"it has more than {(kind.precision or 38) - kind.scale} digits before the point")
    found = value.quantize(decimal.Decimal(1).scaleb(-kind.scale), context=_EXACT)
    if found != value:
        raise ValueError(f"it has more than {kind.scale} digits behind the point")
    return found if found else found.copy_abs()  # a column has one zero


def _matched(matches: Callable[[str], object], text: str, what: str) -> str:
    if matches(text) is None:
        raise ValueError(f"it is not {what} as digits")
    return text


def _of_class(value: Any, *classes: type) -> Any:
    if type(value) not in classes:
        raise ValueError(f"it is {_SHOWN.get(type(value), type(value).__name__)}")
    return value


_SHOWN = {
    Number: "a number with a point or an exponent", int: "an integer", str: "a text", bool: "true or false",
    list: "an array", dict: "an object", type(None): "null",
}  # fmt: skip


def _within(value: int, least: int, greatest: int) -> int:
    if not least <= value <= greatest:
        raise ValueError(f"it is from {least} to {greatest}")
    return value


def _known(text: str, known: frozenset[str]) -> str:
    if text not in known:
        raise ValueError("it is not one of the categories")
    return text


def _boolean(text: str) -> bool:
    if text not in BOOLEANS:
        raise ValueError("it is true or false")
    return BOOLEANS[text]


def _null(value: Any) -> None:
    raise ValueError("it is null and nothing else")


def _float_of_text(text: str, kind: Any) -> float:
    if _infinite(text):
        return float(text)
    value = float(_matched(_number, text, "a number"))
    return _float(value if "." in text or "e" in text or "E" in text or not value else int(text), kind)


def _float(number: float, kind: Any) -> float:
    """A number as a float of a type: an integer if it is one, and what was read as a 64-bit float if it is in a smaller
    type."""
    try:
        value = float(number)
    except OverflowError:
        value = math.inf
    if math.isinf(value):
        raise ValueError(f"it is beyond the greatest of {kind}")
    if type(number) is int and int(value) != number:
        raise ValueError("no float is this integer: the nearest is " + str(int(value)))
    packed = _PACKED.get(type(kind) if not isinstance(kind, type) else kind)
    if packed is not None:
        try:
            (narrow,) = struct.unpack(packed, struct.pack(packed, value))
        except OverflowError:
            narrow = math.inf
        if math.isinf(narrow):
            raise ValueError(f"it is beyond the greatest of {kind}")
        if narrow != value:
            raise ValueError(f"no {kind} is this number: the nearest is {narrow!r}; Float64 has it")
    return value


def _date(text: str) -> datetime.date:
    return datetime.date.fromisoformat(text.upper())


def _clock(text: str) -> datetime.time:
    if text.upper().removeprefix("T").startswith("24"):
        raise ValueError("a time of a day is from 00:00:00 to 23:59:59.999999")
    check_digits(f"T{text}")
    found = datetime.time.fromisoformat(text)
    if found.tzinfo is not None:
        raise ValueError("a time of a day has no zone")
    if is_too_exact(text):
        raise ValueError("it has more of a second than microseconds")
    return found


def _moment(text: str, kind: pl.Datetime) -> datetime.datetime:
    try:
        found = moment_of_text(text)
    except ValueError as error:
        raise ValueError(f"{error}: {MOMENT_TEXTS}") from None
    if (found.tzinfo is not None) != (kind.time_zone is not None):
        raise ValueError("it has no zone" if kind.time_zone is not None else "it has a zone, and the type has none")
    if is_too_exact(text):
        raise ValueError("it has more of a second than microseconds; take it as text, and round it in a step")
    try:
        utc = found.astimezone(datetime.UTC) if kind.time_zone is not None else found
    except OverflowError:
        raise ValueError("it is beyond the years 1 to 9999 in UTC") from None
    _check_unit((utc.replace(tzinfo=None) - _EPOCH) // _MICROSECOND, kind.time_unit)
    return utc


def _span(text: str, kind: pl.Duration) -> datetime.timedelta:
    found = span_of_text(text)
    _check_unit(found // _MICROSECOND, kind.time_unit)
    return found


def _check_unit(number_us: int, unit: str) -> None:
    if number_us % _UNIT_US[unit]:
        raise ValueError(f"it is not in whole {_UNIT_NAMES[unit]}")
    if unit == "ns" and not -_NS_US < number_us < _NS_US:
        raise ValueError("nanoseconds in 64 bits do not reach so far")
    if not -(1 << 63) <= number_us < 1 << 63:
        raise ValueError("microseconds in 64 bits do not reach so far")


def _bytes(text: str) -> bytes:
    try:
        found = binascii.a2b_base64(text.encode("ascii"), strict_mode=True)
    except (binascii.Error, UnicodeEncodeError):
        found = b""
    if binascii.b2a_base64(found, newline=False).decode() != text:
        raise ValueError("bytes are in base64")
    return found


def _of_list(kind: pl.List | pl.Array) -> Reading:
    if isinstance(kind, pl.Array) and len(kind.shape) > 1:
        item, size = of_json(pl.Array(kind.inner, kind.shape[1:])), kind.shape[0]
    else:
        item, size = of_json(kind.inner), kind.shape[0] if isinstance(kind, pl.Array) else -1

    def read(value: Any) -> list[Any]:
        found = [None if each is None else item(each) for each in _of_class(value, list)]
        if size >= 0 and len(found) != size:
            raise ValueError(f"it has {len(found)} members, and the type {size}")
        return found

    return read


def _of_struct(kind: pl.Struct) -> Reading:
    items = {field.name: of_json(field.dtype) for field in kind.fields}

    def read(value: Any) -> dict[str, Any]:
        if _of_class(value, dict).keys() != items.keys():
            raise ValueError(f"it has other fields than {', '.join(map(repr, items))}")
        return {name: None if value[name] is None else item(value[name]) for name, item in items.items()}

    return read


def _cast(texts: pl.Series, kind: Any) -> pl.Series | None:
    try:
        return texts.cast(kind, strict=True)
    except pl.exceptions.PolarsError:
        return None


def _floats_at_once(kind: Any, texts: pl.Series) -> pl.Series | None:
    found = _cast(texts, pl.Float64)
    if found is None:
        return None
    greatest = found.abs().max()
    try:
        if greatest is not None and greatest >= FLOAT_INTEGERS:  # type: ignore[operator]
            for text in texts.filter((found.abs() >= FLOAT_INTEGERS).fill_null(False)):
                _float_of_text(text, kind)
    except ValueError:
        return None
    return found if kind == pl.Float64 else _narrowed(found, kind)


def _narrowed(found: pl.Series, kind: Any) -> pl.Series | None:
    narrow = found.cast(kind, strict=False)
    same = (narrow.cast(pl.Float64) == found) | found.is_nan()
    return narrow if same.all() else None


def _times_at_once(texts: pl.Series, pattern: str, kind: pa.DataType) -> pl.Series | None:
    if not texts.str.contains(pattern).all():
        return None
    try:
        found = pl.Series(texts.str.strip_suffix("Z").to_arrow(compat_level=pl.CompatLevel.oldest()).cast(kind))
    except pa.ArrowInvalid:  # no such day
        return None
    return None if (found.dt.year() == 0).any() else found
