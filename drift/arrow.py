"""Arrow columns as Python values, and their rows as payloads, for every kind of table.

Invariant: equal data give equal values, and so one digest, whatever wrote the table: pandas, Polars, Spark, Parquet.
Timestamps are in microseconds, those with a zone in UTC; a column of categories has their values; missing values are
None.

Why: each column is first cast to a common type for its kind, and a cast that would lose something is an error.
"""

from __future__ import annotations

import datetime
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from drift_graph.errors import InputError
from drift_kernel import kernel

_kinds = pa.types
_DAY_US = 24 * 3600 * 10**6
_TEXTS = (pa.string(), pa.large_string(), pa.string_view())
_VIEWS = (_kinds.is_list_view, _kinds.is_large_list_view)
_HELD_OTHERWISE = (*_VIEWS, _kinds.is_run_end_encoded)
_LISTS = (_kinds.is_list, _kinds.is_large_list, _kinds.is_fixed_size_list, *_VIEWS)
_FIRST, _LAST = (day - datetime.date(1970, 1, 1) for day in (datetime.date.min, datetime.date.max))
#: From where to where, and not beyond, values are that Python has, in the unit of their type.
_BOUNDS: tuple[tuple[Callable[[pa.DataType], bool], tuple[tuple[int, int], str]], ...] = (
    (_kinds.is_time, ((0, _DAY_US), "a time of a day is from 00:00:00 to 23:59:59.999999")),
    (_kinds.is_date, ((_FIRST.days, _LAST.days + 1), "a date is of the years 1 to 9999")),
    (
        _kinds.is_timestamp,
        ((_FIRST.days * _DAY_US, (_LAST.days + 1) * _DAY_US), "a timestamp is of the years 1 to 9999"),
    ),
)
#: Extension types of pandas whose numbers alone say nothing.
_NUMBERED = {
    "pandas.period": "periods of pandas: make them timestamps, .dt.to_timestamp(), or text, .astype(str)",
    "pandas.interval": "intervals of pandas: make them two columns, .array.left and .right, or text, .astype(str)",
}


def numbers_column(numbers: npt.NDArray[Any], kind: pa.DataType) -> pa.Array:
    """Numbers as a column; `pa.array` would import pandas, which takes a third of a second."""
    numbers = np.ascontiguousarray(numbers)
    return pa.Array.from_buffers(kind, len(numbers), [None, pa.py_buffer(numbers)])


def payloads_of(
    columns: Sequence[pa.Array], names: Sequence[str], payload: Literal["dict", "tuple", "value", "rows"], count: int
) -> list[Any]:
    """The rows of a table as payloads. Raises InputError: Python has no value for one of the table."""
    values = [_named(name, column) for name, column in zip(names, columns)]
    if payload == "value":
        return values[0]
    if payload == "tuple":
        return list(zip(*values)) if values else [()] * count
    if kernel is not None:
        return kernel.dicts_of([*names], values, count)
    return [dict(zip(names, row)) for row in zip(*values)] if values else [{} for _ in range(count)]


def _named(name: str, column: pa.Array) -> list[Any]:
    try:
        return python_values(column)
    except (pa.ArrowException, ValueError, OverflowError, KeyError, TypeError) as found:  # a key that is a dict
        error = _reason(column, found)
        raise InputError(
            f"column {name!r}, of type {column.type}, has a value that Python has not: {error}; cast the column, for "
            f"instance nanoseconds to microseconds or to a number, or a map to a list of its entries"
        ) from error


def _reason(column: pa.Array, error: Exception) -> Exception:
    """What is wrong with a value of a column of which no values could be made."""
    try:
        check_values(_cast(column, common(column.type)))
    except (pa.ArrowException, ValueError) as why:
        return why
    return error


def python_values(column: pa.Array) -> list[Any]:
    """The values of a column: as `to_pylist(maps_as_pydicts="strict")` after a cast; most types ten times faster."""
    kind = common(column.type)
    column = _cast(column, kind)
    if _kinds.is_string(kind) or _kinds.is_binary(kind):
        return _listed(column)
    if _kinds.is_integer(kind) or _kinds.is_floating(kind) or _kinds.is_boolean(kind):
        if not column.null_count:
            return _listed(column)
        values = _listed(column.fill_null(False if _kinds.is_boolean(kind) else 0))
        for at in column.is_null().to_numpy(zero_copy_only=False).nonzero()[0]:
            values[at] = None
        return values
    found: list[Any] = column.to_pylist(maps_as_pydicts="strict")
    return list(map(_with_utc, found)) if has_zone(kind) else found


def check_schema(name: str, schema: pa.Schema) -> None:
    """Of a table. Raises InputError: of the type of a column Python has no value, or no more than its numbers."""
    for field in schema:
        is_known = isinstance(field.type, pa.BaseExtensionType)
        of = (
            field.type.extension_name if is_known else (field.metadata or {}).get(b"ARROW:extension:name", b"").decode()
        )
        if of in _NUMBERED:
            raise InputError(f"column {field.name!r} of {name} has {_NUMBERED[of]}")
        if any(map(_kinds.is_interval, inside(field.type))):
            raise InputError(
                f"column {field.name!r} of {name} has intervals of months, days and nanoseconds (INTERVAL in SQL), of "
                f"which Python has no value: cast it to text, or to a number, as epoch(column) is one in DuckDB"
            )


def common_column(column: pa.Array) -> pa.Array:
    """The column in the common type of all types that hold the same values.

    Raises:
        pa.ArrowInvalid: a value is lost, or the type is one that only Python values can stand for.
    """
    kind = common(column.type)
    if any(_kinds.is_map(each) for each in inside(kind)):
        raise pa.ArrowInvalid("a map is a dict of any keys, and rows have fields")
    if any(_kinds.is_decimal256(each) for each in inside(kind)):
        raise pa.ArrowInvalid("rows have decimals of at most 38 digits")
    return _cast(column, kind)


def inside(kind: pa.DataType) -> list[pa.DataType]:
    """A type and those of its parts."""
    return [kind, *(each for at in range(kind.num_fields) for each in inside(kind.field(at).type))]


def _cast(column: pa.Array, kind: pa.DataType) -> pa.Array:
    if isinstance(column, pa.ExtensionArray) and column.type != kind:
        return _cast(column.storage.cast(kind) if _kinds.is_boolean(kind) else column.storage, kind)
    if _kinds.is_dictionary(column.type):
        return _cast(column.dictionary, kind).take(column.indices)  # `dictionary_decode` takes no views of text
    found = column if column.type == kind else plainly_held(column).cast(kind)
    if any(map(_kinds.is_time, inside(kind))):
        check_values(found)
    return found


def plainly_held(column: pa.Array) -> pa.Array:
    """The column with lists where it has views of lists, and values where it has runs of them, at any depth; a cast by
    Arrow loses elements of views, and knows no runs.
    """
    if not any(is_held(each) for each in inside(column.type) for is_held in _HELD_OTHERWISE):
        return column
    if _kinds.is_run_end_encoded(column.type):  # whose ends and values are those of all rows, also of a slice
        rows = np.arange(column.offset, column.offset + len(column))
        run_of_each = np.searchsorted(column.run_ends.to_numpy(), rows, side="right")
        return _cast(column.values, common(column.type)).take(numbers_column(run_of_each, pa.int64()))
    is_null = column.is_null()
    if _kinds.is_struct(column.type):
        names = [field.name for field in column.type]
        return pa.StructArray.from_arrays(list(map(plainly_held, column.flatten())), names, mask=is_null)
    if _kinds.is_map(column.type):
        keys, items = map(plainly_held, parts_of(column))
        bounds = pc.subtract(column.offsets, column.offsets[0])
        return pa.MapArray.from_arrays(bounds, keys, items, mask=is_null)
    elements = plainly_held(pc.list_flatten(column))
    lengths = pc.list_value_length(column).fill_null(0).cast(pa.int64())
    bounds = pa.concat_arrays([pa.array([0]), pc.cumulative_sum(lengths)])
    return pa.LargeListArray.from_arrays(bounds, elements, mask=is_null)


def check_values(column: pa.Array) -> None:
    """Of a column in its common type.

    Raises:
        pa.ArrowInvalid: Python does not have one of its values: a time of a day such as 24:00:00, which DuckDB has, a
            year before 1 or beyond 9999, bytes in a text that are not UTF-8.
    """
    kind = column.type
    if kind in _TEXTS:
        try:
            column.validate(full=True)
        except pa.ArrowInvalid:
            raise pa.ArrowInvalid("a text has bytes that are not UTF-8") from None
    elif kind.num_fields:
        for part in parts_of(column):
            check_values(part)
    else:
        bounds, what = next((value for is_of, value in _BOUNDS if is_of(kind)), (None, ""))
        if bounds is None:
            return
        of = pc.min_max(column.cast(pa.int32() if _kinds.is_date(kind) else pa.int64()))
        least, greatest = of["min"].as_py(), of["max"].as_py()
        if least is not None and not bounds[0] <= least <= greatest < bounds[1]:
            raise pa.ArrowInvalid(what)


def parts_of(column: pa.Array) -> list[pa.Array]:
    """What the values of a column consist of: fields, elements, keys and values of maps; [] if they have no parts."""
    if _kinds.is_map(column.type):  # whose keys are those of all rows, also of a slice
        bounds = column.offsets.to_pylist()
        return [each.slice(bounds[0], bounds[-1] - bounds[0]) for each in (column.keys, column.items)]
    parts = column.flatten() if column.type.num_fields else []
    return parts if isinstance(parts, list) else [parts]


def shown(column: pa.Array) -> Any:
    """The only value of a column, for people: as a text, or as bytes, where Python has no such value."""
    with suppress(InputError):
        return payloads_of([column], ["value"], "value", 1)[0]
    if column.type in _TEXTS:
        return column.cast(pa.large_binary())[0].as_py()
    for kind in (pa.string(), pa.int64()):
        with suppress(pa.ArrowException, ValueError, OverflowError):
            text = str(column.cast(kind)[0].as_py())
            if not text.startswith("<"):  # <value out of range: ...>
                return text
    return str(column)


def is_list(kind: pa.DataType) -> bool:
    """Whether a value is a list of others, however they are held."""
    return any(is_of(kind) for is_of in _LISTS)


def common(kind: pa.DataType) -> pa.DataType:
    """The common type of all types that hold the same values."""
    if isinstance(kind, pa.BaseExtensionType):
        return pa.bool_() if kind.extension_name == "arrow.bool8" else common(kind.storage_type)
    if _kinds.is_dictionary(kind) or _kinds.is_run_end_encoded(kind):
        return common(kind.value_type)
    if _kinds.is_timestamp(kind):
        return pa.timestamp("us", None if kind.tz is None else "UTC")
    if _kinds.is_duration(kind):
        return pa.duration("us")
    if _kinds.is_time(kind):
        return pa.time64("us")
    if _kinds.is_date64(kind):
        return pa.date32()
    if _kinds.is_float16(kind):
        return pa.float32()
    if _kinds.is_large_string(kind) or kind == pa.string_view():
        return pa.string()
    if _kinds.is_large_binary(kind) or _kinds.is_fixed_size_binary(kind) or kind == pa.binary_view():
        return pa.binary()
    if is_list(kind):
        return pa.list_(common(kind.value_type))
    if _kinds.is_map(kind):
        return pa.map_(common(kind.key_type), common(kind.item_type))
    if _kinds.is_struct(kind):
        return pa.struct([(field.name, common(field.type)) for field in kind])
    return kind


def has_zone(kind: pa.DataType) -> bool:
    """Whether a type contains timestamps with a zone."""
    return any(_kinds.is_timestamp(each) and each.tz is not None for each in inside(kind))


def _with_utc(value: Any) -> Any:
    """A value whose zone is Python's own UTC, whichever zone library Arrow uses."""
    if isinstance(value, datetime.datetime):
        return value if value.tzinfo is None else value.replace(tzinfo=datetime.UTC)
    if isinstance(value, list):
        return list(map(_with_utc, value))
    if isinstance(value, dict):
        return {_with_utc(key): _with_utc(each) for key, each in value.items()}
    return value


def _listed(column: pa.Array) -> list[Any]:
    found: list[Any] = column.to_numpy(zero_copy_only=False).tolist()
    return found
