"""Columns of Arrow as lists of Python values.

Invariant: what `python_values` gives is what `to_pylist(maps_as_pydicts="strict")` gives, for most types ten times
sooner; times of day with a zone are in UTC, whatever the zone of the session is.

Why UTC: an instant is one value then, with one digest, on every cluster; and the same that `frame.toArrow()` has.
"""

from __future__ import annotations

from typing import Any

import pyarrow as pa

_kinds = pa.types


def python_values(column: pa.Array) -> list[Any]:
    """The values of a column; maps as dicts."""
    if _kinds.is_dictionary(column.type):
        column = column.dictionary_decode()
    kind = column.type
    if _kinds.is_string(kind) or _kinds.is_binary(kind) or _kinds.is_large_string(kind) or _kinds.is_large_binary(kind):
        return _listed(column)
    if _kinds.is_integer(kind) or _kinds.is_float32(kind) or _kinds.is_float64(kind) or _kinds.is_boolean(kind):
        if not column.null_count:
            return _listed(column)
        values = _listed(column.fill_null(False if _kinds.is_boolean(kind) else 0))
        for at in column.is_null().to_numpy(zero_copy_only=False).nonzero()[0]:
            values[at] = None
        return values
    zoned = _in_utc(kind)
    if zoned != kind:
        column = column.cast(zoned)
    found: list[Any] = column.to_pylist(maps_as_pydicts="strict")
    return found


def _in_utc(kind: pa.DataType) -> pa.DataType:
    """A type with UTC for every zone in it."""
    if _kinds.is_timestamp(kind):
        return kind if kind.tz is None else pa.timestamp(kind.unit, "UTC")
    if _kinds.is_struct(kind):
        return pa.struct([field.with_type(_in_utc(field.type)) for field in kind.fields])
    if _kinds.is_map(kind):
        item = kind.item_field
        return pa.map_(_in_utc(kind.key_type), item.with_type(_in_utc(item.type)))
    if _kinds.is_list(kind):
        return pa.list_(kind.value_field.with_type(_in_utc(kind.value_type)))
    return kind


def _listed(column: pa.Array) -> list[Any]:
    found: list[Any] = column.to_numpy(zero_copy_only=False).tolist()
    return found
