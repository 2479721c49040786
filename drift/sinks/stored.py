"""Python values as a column of Arrow that holds just them.

Invariant: what is stored reads back equal and of the same kind, at any depth, with its zone, its fold, its sign and all
its digits. A tuple, an object and an Enum read back as what `_plain` makes of them, a declared type of moments holds
numbers of its unit, and a declared zone moments of any zone.

Why: the values and the column are taken apart together, lists into their items, and structs into their fields, so at
the bottom are flat values; where their types are such that Arrow stores them as they are, no further look is needed,
and otherwise each is compared with what was stored.
"""

from __future__ import annotations

import datetime
from bisect import bisect_left
from collections.abc import Callable, Sequence
from decimal import Decimal
from enum import Enum
from itertools import chain
from math import copysign
from operator import attrgetter
from typing import Any, NamedTuple
from uuid import UUID

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from drift.arrow import is_list
from drift.fields import fields_of
from drift_graph.canonical import canonical
from drift_graph.functions import safe_text

_kinds = pa.types
_DOUBLE = pa.float64()
#: What Arrow raises for values that a type does not hold, and Python for those that do not read back.
REFUSED = (pa.ArrowException, ArithmeticError, TypeError, ValueError)
_SHOWN_CHARACTERS = 120
_FIRST_US, _LAST_US = (
    (datetime.datetime(year, 1, 1) - datetime.datetime(1970, 1, 1)) // datetime.timedelta(microseconds=1)
    for year in (datetime.MINYEAR + 1, datetime.MAXYEAR)
)
_NESTED = frozenset({list, tuple, dict})
_FLAT = frozenset({
    type(None), bool, int, float, str, bytes, bytearray, Decimal, UUID, datetime.datetime, datetime.date, datetime.time,
    datetime.timedelta,
})  # fmt: skip
#: Values of different families are never the same; a class that is in two is of the first.
_FAMILIES: dict[str, tuple[type, ...]] = {
    "bool": (bool, np.bool_),
    "span": (datetime.timedelta, np.timedelta64),
    "number": (int, float, Decimal, np.number),
    "text": (str,),
    "bytes": (bytes, bytearray),
    "moment": (datetime.datetime, np.datetime64),
    "date": (datetime.date,),
    "time": (datetime.time,),
    "UUID": (UUID,),
}


#: The types that hold values of one type as they are; what is too great for one is refused by Arrow.
_EXACT: dict[type, Callable[[pa.DataType], bool]] = {
    bool: lambda kind: _kinds.is_boolean(kind),
    int: lambda kind: kind == _DOUBLE or not _kinds.is_floating(kind),
    float: lambda kind: kind == _DOUBLE,
    str: lambda kind: _kinds.is_string(kind) or _kinds.is_large_string(kind),
    bytes: lambda kind: _kinds.is_binary(kind) or _kinds.is_large_binary(kind),
    datetime.date: lambda kind: _kinds.is_date(kind),
    datetime.timedelta: lambda kind: kind == pa.duration("us"),
}


class _Rules(NamedTuple):
    """What a column may hold: moments of other zones, if its type is declared; floats, if it is of integers."""

    declared: bool
    takes_floats: bool


def stored(values: list[Any], kind: pa.DataType | None = None, *, takes_floats: bool = True) -> pa.Array:
    """Values as a column, of a declared type or the one that Arrow finds for them.

    Args:
        takes_floats: whether integers, at any depth, may come as floats that equal them.

    Raises:
        One of `REFUSED`: the column does not hold them.
    """
    if not _kinds_in(values) <= _FLAT | _NESTED:
        values = list(map(_plain, values))
    try:
        column = pa.array(values, kind)
    except REFUSED as error:
        count = bisect_left(range(len(values)), True, key=lambda end: not _is_taken(values[:end], kind))
        raise TypeError(f"{_shown(values[count - 1])} is refused: {error}") from None
    _check(values, column, _Rules(kind is not None, takes_floats))
    return column


def _is_taken(values: list[Any], kind: pa.DataType | None) -> bool:
    try:
        pa.array(values, kind)
    except REFUSED:
        return False
    return True


def _kinds_in(values: Sequence[Any]) -> set[type]:
    """The types of values, at any depth."""
    found = set(map(type, values))
    for kind in found & _NESTED:
        of_kind: list[Any] = [value for value in values if type(value) is kind]
        found = found | _kinds_in([each for value in of_kind for each in (value.values() if kind is dict else value)])
    return found


def _plain(value: Any) -> Any:
    """A value that Arrow knows, at any depth."""
    if isinstance(value, Enum):
        return _plain(value.value)
    if isinstance(value, (set, frozenset)):
        return list(map(_plain, sorted(value, key=canonical)))
    if isinstance(value, dict):
        return {name: _plain(each) for name, each in value.items()}
    if type(value) in (list, tuple):
        return type(value)(map(_plain, value))
    names = fields_of(value)
    return value if names is None else {name: _plain(getattr(value, name)) for name in names}


def _check(values: list[Any], column: pa.Array, rules: _Rules) -> None:
    """Raises TypeError: a value is not what was stored."""
    if _kinds.is_dictionary(column.type):
        column = column.dictionary_decode()
    if column.null_count:
        there = [value for value in values if value is not None]
        column_there = column.drop_null()
        if len(there) > len(column_there):
            lost = next(value for value, at in zip(values, column) if value is not None and not at.is_valid)
            raise TypeError(f"{_shown(lost)} would be stored as None")
        values, column = there, column_there
    kind = column.type
    if _kinds.is_struct(kind):
        _check_structs(values, column, rules)
    elif _kinds.is_map(kind):
        _check_kinds(values, {dict, list, tuple}, kind)
        pairs = [pair for value in values for pair in (value.items() if type(value) is dict else value)]
        _check([key for key, _ in pairs], column.keys, rules)
        _check([each for _, each in pairs], column.items, rules)
    elif is_list(kind):
        _check_kinds(values, {list, tuple}, kind)
        _check(list(chain.from_iterable(values)), column.flatten(), rules)
    else:
        _check_flat(values, column, rules)


def _check_flat(values: list[Any], column: pa.Array, rules: _Rules) -> None:
    if _kinds.is_integer(column.type) and not rules.takes_floats and set(map(type, values)) - {int}:
        for value in values:
            if isinstance(value, (float, np.floating)):
                raise TypeError(f"{_shown(value)}, a float")
    if not _is_exact(values, column, declared=rules.declared):
        for value, other in zip(values, column.to_pylist()):
            if not _is_same(value, other, declared=rules.declared):
                raise TypeError(f"{_shown(value)} would be stored as {_shown(other)}")


def _check_kinds(values: list[Any], kinds: set[type], kind: pa.DataType) -> None:
    for value in values if set(map(type, values)) - kinds else ():
        if type(value) not in kinds:
            raise TypeError(f"{_shown(value)} would be stored as {kind}")


def _check_structs(values: list[Any], column: pa.StructArray, rules: _Rules) -> None:
    """Dicts lack fields, which are None, but have no others; tuples have all."""
    _check_kinds(values, {dict, tuple}, column.type)
    names = column.type.names
    for name in dict.fromkeys(chain.from_iterable(each for each in values if type(each) is dict)):
        if name not in names:
            raise TypeError(f"the field {_shown(name)} would not be stored")
    for at, name in enumerate(names):
        inside = [value.get(name) if type(value) is dict else value[at] for value in values]
        _check(inside, column.field(at), rules)


def _shown(value: Any) -> str:
    return safe_text(repr, value, _SHOWN_CHARACTERS)


def _is_exact(values: list[Any], column: pa.Array, *, declared: bool) -> bool:
    """Whether the types alone say that Arrow has stored flat values as they are; that is for speed."""
    found, kind = set(map(type, values)), column.type
    if len(found) != 1:
        return not found or (found == {int, float} and kind == _DOUBLE)  # Arrow refuses an int that is no double
    (of,) = found
    if of is datetime.datetime:
        return _kinds.is_timestamp(kind) and kind.unit == "us" and _are_exact_moments(values, column, declared=declared)
    if of is datetime.time:
        return kind == pa.time64("us") and not any(value.tzinfo or value.fold for value in values)
    if of is Decimal:
        return _kinds.is_decimal(kind) and all(value or not value.is_signed() for value in values)
    return of in _EXACT and _EXACT[of](kind)


def _are_exact_moments(values: list[datetime.datetime], column: pa.Array, *, declared: bool) -> bool:
    zones = list(set(map(attrgetter("tzinfo"), values)))
    if column.type.tz is None:
        return zones == [None] and not any(map(attrgetter("fold"), values))
    if declared or len(zones) > 1 or _zone_text(zones[0]) != _zone_text(column[0].as_py().tzinfo):
        return False
    if not _are_in_years(column):
        return False
    if type(zones[0]) is datetime.timezone:
        return True
    try:
        local = pc.local_timestamp(column)  # what a clock shows where it is put forward is no moment
    except pa.ArrowException:
        return False
    return bool(local.equals(pa.array([value.replace(tzinfo=None) for value in values], local.type)))


def _are_in_years(moments: pa.Array) -> bool:
    """Whether all read back: in UTC, a moment of the first or the last year may be in no year."""
    ends = pc.min_max(moments.cast(pa.timestamp("us")).cast(pa.int64())).as_py()
    return bool(_FIRST_US < ends["min"] <= ends["max"] < _LAST_US)


def _zone_text(zone: datetime.tzinfo | None) -> str | None:
    """The key of a zone that has rules (pytz calls it `zone`), or the name of a fixed one."""
    if named := getattr(zone, "key", None) or getattr(zone, "zone", None):
        return str(named)
    fixed = None if zone is None or type(zone) is datetime.timezone else zone.utcoffset(None)  # pytz has its own class
    return None if zone is None else str(zone if fixed is None else datetime.timezone(fixed))


def _is_same(value: Any, other: Any, *, declared: bool) -> bool:
    """Whether a flat value is what was stored, and read back."""
    family = _family(value)
    if family != _family(other):
        return False
    if family in ("bool", "number") and isinstance(value, np.generic):
        value = value.item()
    if isinstance(value, datetime.datetime) and isinstance(other, datetime.datetime):
        return _is_same_moment(value, other, declared=declared)
    if value != other:
        return bool(value != value and other != other)
    if isinstance(value, datetime.time):
        return bool(value.fold == other.fold)
    return not isinstance(value, (float, Decimal)) or bool(value) or copysign(1, value) == copysign(1, other)


def _family(value: Any) -> str:
    return next((name for name, kinds in _FAMILIES.items() if isinstance(value, kinds)), str(type(value)))


def _is_same_moment(value: datetime.datetime, other: datetime.datetime, *, declared: bool) -> bool:
    if value.tzinfo is None or other.tzinfo is None:
        return value.tzinfo is other.tzinfo and value == other and value.fold == other.fold
    if value.astimezone(datetime.UTC) != other.astimezone(datetime.UTC):
        return False
    same_clock = value.replace(tzinfo=None) == other.replace(tzinfo=None)
    return declared or (same_clock and _zone_text(value.tzinfo) == _zone_text(other.tzinfo))


def alike(one: pa.DataType, other: pa.DataType) -> bool:
    """Whether a column of a type that holds both has the values of both as they are, where Arrow can make it."""
    if one == other or _kinds.is_null(one) or _kinds.is_null(other):
        return True
    if _kinds.is_struct(one) and _kinds.is_struct(other):
        types = {field.name: field.type for field in one}
        return all(alike(types[field.name], field.type) for field in other if field.name in types)
    if _kinds.is_list(one) and _kinds.is_list(other):
        return alike(one.value_type, other.value_type)
    return any(
        is_of(one) and is_of(other)
        for is_of in (
            lambda kind: _kinds.is_signed_integer(kind) or _kinds.is_floating(kind),
            _kinds.is_decimal,
            lambda kind: _kinds.is_string(kind) or _kinds.is_large_string(kind),
            lambda kind: _kinds.is_binary(kind) or _kinds.is_large_binary(kind),
        )
    )
