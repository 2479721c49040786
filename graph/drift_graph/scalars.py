"""Scalars of numpy and pandas as plain values, and back.

Invariant: two scalars have equal parts exactly when they have one type and one value: np.int64(1), np.int32(1) and 1
are three values; a datetime64 has its number, unit and zone.

Neither library is imported before a scalar of it is met.
"""

from __future__ import annotations

import datetime
from importlib import import_module
from typing import Any

_NUMBERS = (
    *("bool", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64"),
    *("float16", "float32", "float64", "complex64", "complex128"),
)
_SINGLE = {"NaTType": "NaT", "NAType": "NA"}


def parts_of(kind: type, value: Any) -> tuple[Any, ...] | None:
    """The name of a scalar's type and its value in plain form; None for all other values."""
    library = kind.__module__.partition(".")[0]
    if library == "numpy":
        return _of_numpy(value) if issubclass(kind, import_module("numpy").generic) else None
    if library == "pandas":
        return _of_pandas(kind.__qualname__, value)
    return None


def _of_numpy(value: Any) -> tuple[Any, ...] | None:
    letter, name = value.dtype.kind, value.dtype.name
    if name in _NUMBERS:
        return f"numpy.{name}", value.item()
    if letter == "U":
        return "numpy.str_", str(value)
    if letter == "S":
        return "numpy.bytes_", bytes(value)
    if letter in "Mm":
        unit, count = import_module("numpy").datetime_data(value.dtype)
        return "numpy.datetime64" if letter == "M" else "numpy.timedelta64", value.astype("int64").item(), unit, count
    return None  # its size depends on the machine, or it has several fields


def _of_pandas(name: str, value: Any) -> tuple[Any, ...] | None:
    if name in _SINGLE:
        return (f"pandas.{_SINGLE[name]}",)
    if name not in ("Timestamp", "Timedelta"):
        return None
    number = value.asm8.astype("int64").item()
    if name == "Timedelta":
        return "pandas.Timedelta", number, value.unit
    zone = _zone(value.tzinfo)
    return None if zone is None else ("pandas.Timestamp", number, value.unit, *zone)


def _zone(zone: Any) -> tuple[str | int, ...] | None:
    """A zone as its library and key, or as an offset in seconds; () for none, None for an unsupported zone."""
    kind = type(zone)
    if zone is None:
        return ()
    if kind is datetime.timezone:
        offset = zone.utcoffset(None)
        seconds = int(offset.total_seconds())
        plain = datetime.timedelta(seconds=seconds) == offset and str(zone) == str(datetime.timezone(offset))
        return ("datetime", seconds) if plain else None
    from zoneinfo import ZoneInfo  # here: it takes long to import, and few moments have one

    if kind is ZoneInfo and zone.key is not None:
        return "zoneinfo", zone.key
    if kind.__module__.partition(".")[0] == "pytz" and isinstance(getattr(zone, "zone", None), str):
        return "pytz", zone.zone
    return None


def _zone_of(library: str, key: Any) -> Any:
    if library == "datetime":
        return datetime.timezone(datetime.timedelta(seconds=key)) if key else datetime.UTC
    return import_module("zoneinfo").ZoneInfo(key) if library == "zoneinfo" else import_module("pytz").timezone(key)


def scalar_of(name: str, rest: list[Any]) -> Any:
    """The scalar that has these parts.

    Raises:
        ImportError: its library is not installed.
        ValueError: the name is not one of a supported scalar.
    """
    library, _, kind = name.partition(".")
    if library == "numpy" and kind in (*_NUMBERS, "str_", "bytes_"):
        numpy = import_module("numpy")
        return getattr(numpy, "bool_" if kind == "bool" else kind)(*rest)
    if library == "numpy" and kind in ("datetime64", "timedelta64"):
        number, unit, count = rest
        return getattr(import_module("numpy"), kind)(number, (unit, count))
    if library == "pandas" and kind in _SINGLE.values():
        return getattr(import_module("pandas"), kind)
    if library == "pandas" and kind in ("Timestamp", "Timedelta"):
        number, unit, *zone = rest
        pandas = import_module("pandas")
        found = getattr(pandas, kind)(number, unit=unit).as_unit(unit)
        return found.tz_localize("UTC").tz_convert(_zone_of(*zone)) if zone else found
    raise ValueError(f"{name!r} is no scalar of numpy or pandas that has a canonical form")
