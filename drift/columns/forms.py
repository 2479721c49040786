"""The canonical bytes of rows, from their columns: no Python object is made for a row.

Invariant: the form of row i is that of the dict with the row's values, as `drift_graph.canonical` defines it.

Why: a dict's form is its header and, for each entry, the forms of key and value. The keys are the same for all rows, so
they are constants; the kernel writes the values of columns of common types from Arrow's memory (`arrow.pyx`), and those
of other types from Python values. Without the kernel the values are made, and encoded one by one.
"""

from __future__ import annotations

import datetime
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc

from drift.arrow import common_column, python_values
from drift_graph.canonical import CANONICAL, STORED, canonical, canonical_each, stored_each
from drift_kernel import kernel

if TYPE_CHECKING:
    from drift_kernel._kernel import Column, Piece, RowForms

_kinds = pa.types
_NIL, _SHORT_ARRAY = b"\xc0", 0x90
_STRUCT = 14  # the code of its extension
_DAY_US, _EPOCH = 24 * 3600 * 10**6, datetime.date(1970, 1, 1).toordinal()
_MOMENTS_MIN = (1 - _EPOCH) * _DAY_US
_MOMENTS_MAX = (datetime.date.max.toordinal() + 1 - _EPOCH) * _DAY_US - 1


def forms_of_rows(pieces: Sequence[Piece], count: int, in_order: bool) -> RowForms:
    assert kernel is not None
    return kernel.RowForms(pieces, count, *(CANONICAL if in_order else STORED))


def pieces_of_rows(names: Sequence[str], columns: Sequence[pa.Array], count: int, in_order: bool) -> list[Piece]:
    """The pieces of dicts.

    Args:
        names: of the columns, each once.
        columns: without chunks, of `count` values each.
        in_order: in the canonical order of the names; else as they are, see `drift_graph.canonical.stored`.

    Raises:
        NoCanonicalForm: a column has values without one.
    """
    order = sorted(range(len(names)), key=lambda at: canonical(names[at])) if in_order else range(len(names))
    head = canonical(dict.fromkeys(names, None))[: -sum(len(canonical(name)) + 1 for name in names) or None]
    pieces: list[Piece] = [head]
    for at in order:
        pieces += (canonical(names[at]), _column(columns[at], in_order))
    return pieces


def pieces_of_tuples(columns: Sequence[pa.Array]) -> list[Piece]:
    """The pieces of a tuple of each row's values, of one value or more; None where there are no columns."""
    pieces: list[Piece] = [] if len(columns) == 1 else [bytes([_SHORT_ARRAY | len(columns)]) if columns else _NIL]
    return [*pieces, *(_column(column, True) for column in columns)]


def pieces_of_structs(name: str, fields: Sequence[tuple[str, Sequence[Piece]]]) -> list[Piece]:
    """The pieces of instances of a msgspec Struct: names of fields, and the pieces of their values."""
    pieces: list[Piece] = [canonical(name)]
    for field, values in fields:
        pieces += (canonical(field), *values)
    return [(_STRUCT, pieces)]


def pieces_of_values(values: list[Any]) -> list[Piece]:
    """The pieces of any values, which are encoded one by one."""
    assert kernel is not None
    return [kernel.values_column(values)]


def _column(column: pa.Array, in_order: bool) -> Column:
    """What the kernel makes the forms of a column's values of."""
    assert kernel is not None
    if _kinds.is_dictionary(column.type) or _kinds.is_timestamp(column.type):
        column = common_column(column)
    kind = column.type
    buffers: list[Any] = []
    valid, *buffers = column.buffers() if kind.num_fields == 0 else [None]
    rows = column.offset, len(column), valid if column.null_count else None
    if _kinds.is_integer(kind):
        name = "integer" if _kinds.is_signed_integer(kind) else "natural"
        return kernel.Column(name, kind.bit_width // 8, *rows, *buffers)
    if _kinds.is_floating(kind) and kind.bit_width >= 32:
        return kernel.Column("real", kind.bit_width // 8, *rows, *buffers)
    if _kinds.is_boolean(kind):
        return kernel.Column("boolean", 1, *rows, *buffers)
    if kind in _TEXTS:
        name, width = _TEXTS[kind]
        return kernel.Column(name, width, *rows, buffers[0], [b"" if each is None else each for each in buffers[1:]])
    if _kinds.is_timestamp(kind) and _are_of_python(column):
        return kernel.Column("moment" if kind.tz is None else "moment in UTC", 8, *rows, *buffers)
    if _kinds.is_temporal(kind) or _kinds.is_decimal(kind):  # each different value is encoded once
        encoded = column.dictionary_encode(null_encoding="encode")
        forms = (canonical_each if in_order else stored_each)(python_values(encoded.dictionary))
        _, codes = encoded.indices.buffers()
        return kernel.coded_column(forms, pa.py_buffer(codes)[4 * encoded.indices.offset :], len(column))
    return kernel.values_column(python_values(column))


#: Texts by their types: the kind of column, and the size of an offset or a view.
_TEXTS = {
    pa.string(): ("text", 4),
    pa.large_string(): ("text", 8),
    pa.string_view(): ("text view", 16),
    pa.binary(): ("binary", 4),
    pa.large_binary(): ("binary", 8),
    pa.binary_view(): ("binary view", 16),
}


def _are_of_python(moments: pa.Array) -> bool:
    """Whether Python holds all of them; where it does not, that is an error elsewhere."""
    bounds = pc.min_max(moments.cast(pa.int64()))
    least, greatest = bounds["min"].as_py(), bounds["max"].as_py()
    return least is None or _MOMENTS_MIN <= least <= greatest <= _MOMENTS_MAX
