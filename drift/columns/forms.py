"""The canonical bytes of rows, computed column by column: no Python object is made for a row.

Invariant: the form of row i is that of the dict with the row's values, as `drift_graph.canonical` defines it.

Why: a dict's form is its header and, for each entry, the forms of key and value. The keys are the same for all rows,
so they are constants; the values of a column of a common type are encoded at once, into one array of byte strings; and
Arrow joins the arrays row by row. A column of any other type is made into Python values first.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import groupby
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from drift.arrow import common_column, python_values
from drift.strings import Bytes, Numbers, Strings, of_arrow, of_step, offsets_of, to_arrow
from drift_graph.canonical import canonical, canonical_each, stored_each

#: A byte string that is the same for all rows, a matrix of byte strings of one length, or an array of any.
Piece: TypeAlias = Any
_EMPTY = np.zeros(0, np.uint8)
_kinds = pa.types

#: (least value, greatest value, bytes behind the mark, mark) of each form of integers; without a mark it is the value.
_INTEGERS = (
    (-(1 << 5), (1 << 7) - 1, 0, None),
    (1 << 7, (1 << 8) - 1, 1, 0xCC),
    (1 << 8, (1 << 16) - 1, 2, 0xCD),
    (1 << 16, (1 << 32) - 1, 4, 0xCE),
    (-(1 << 7), -(1 << 5) - 1, 1, 0xD0),
    (-(1 << 15), -(1 << 7) - 1, 2, 0xD1),
    (-(1 << 31), -(1 << 15) - 1, 4, 0xD2),
    (-(1 << 63), -(1 << 31) - 1, 8, 0xD3),
    (1 << 32, (1 << 64) - 1, 8, 0xCF),
)
_NIL, _FALSE = 0xC0, 0xC2
_NAN = np.frombuffer(canonical(float("nan")), np.uint8)


def forms_of_rows(names: Sequence[str], columns: Sequence[pa.Array], count: int, *, in_order: bool = True) -> pa.Array:
    """The form of each row, as binary values.

    Args:
        names: of the columns, each once.
        columns: without chunks, of `count` values each.
        in_order: in the canonical order of the names; else as they are, see `drift_graph.canonical.stored`.

    Raises:
        NoCanonicalForm: a column has values without one.
    """
    order = sorted(range(len(names)), key=lambda at: canonical(names[at])) if in_order else range(len(names))
    head = canonical(dict.fromkeys(names, None))[: -sum(len(canonical(name)) + 1 for name in names) or None]
    pieces: list[Piece] = [np.frombuffer(head, np.uint8)]
    for at in order:
        pieces.append(np.frombuffer(canonical(names[at]), np.uint8))
        pieces += _pieces(columns[at], in_order)
    strings = list(_strings(pieces, count))
    return strings[0] if len(strings) == 1 else pc.binary_join_element_wise(*strings, pa.scalar(b"", pa.binary()))


def _strings(pieces: Sequence[Piece], count: int) -> Iterator[pa.Array]:
    """The pieces as byte strings; neighbours of fixed lengths are put together, which is cheaper than joining them."""
    for is_varying, some in groupby(pieces, lambda piece: isinstance(piece, pa.Array)):
        if is_varying:
            yield from some
            continue
        parts = [piece for piece in some if isinstance(piece, np.ndarray)]
        matrix = np.empty((count, sum(part.shape[-1] for part in parts)), np.uint8)
        start = 0
        for part in parts:
            end = start + part.shape[-1]
            matrix[:, start:end] = part
            start = end
        yield _of_length(matrix)


def _pieces(column: pa.Array, in_order: bool) -> Sequence[Piece]:
    """What, joined row by row, is the forms of a column's values."""
    kind = column.type
    if _kinds.is_dictionary(kind):
        column = common_column(column)
        kind = column.type
    if _kinds.is_integer(kind):
        return [_integers(column)]
    if _kinds.is_floating(kind) and kind.bit_width >= 32:
        return [_floats(column)]
    if _kinds.is_boolean(kind):
        return [_booleans(column)]
    for are, encode in _texts:
        if are(kind):
            return encode(column)
    values = python_values(column)
    return [pa.array(canonical_each(values) if in_order else stored_each(values), pa.binary())]


def _valid(column: pa.Array) -> npt.NDArray[np.bool_] | None:
    """Which values are not null; None where all are."""
    return column.is_valid().to_numpy(zero_copy_only=False) if column.null_count else None


def _integers(column: pa.Array) -> Piece:
    valid = _valid(column)
    values = (column if valid is None else column.fill_null(0)).to_numpy(zero_copy_only=False)
    count = len(values)
    least, greatest = (int(values.min()), int(values.max())) if count else (0, 0)
    forms = [form for form in _INTEGERS if form[0] <= greatest and least <= form[1]]
    if valid is None and len(forms) == 1:
        return _integers_of(values, *forms[0][2:])
    width = 1 + max((form[2] for form in forms), default=0)
    matrix, lengths = np.zeros((count, width), np.uint8), np.ones(count, np.int64)
    for first, last, size, mark in forms:
        rows = np.flatnonzero((values >= max(first, least)) & (values <= min(last, greatest)))
        matrix[rows, : size + 1] = _integers_of(values[rows], size, mark)
        lengths[rows] = size + 1
    if valid is not None:
        matrix[~valid, 0], lengths[~valid] = _NIL, 1
    return _of_lengths(matrix, lengths)


def _integers_of(values: npt.NDArray[Any], size: int, mark: int | None) -> Bytes:
    """Rows of the forms of integers that all have `size` bytes behind their mark."""
    if mark is None:
        return values.astype(np.int8).view(np.uint8).reshape(-1, 1)
    rows = np.empty((len(values), size + 1), np.uint8)
    rows[:, 0] = mark
    sign = "i" if mark >= 0xD0 else "u"
    rows[:, 1:] = values.astype(f">{sign}{size}").view(np.uint8).reshape(-1, size)
    return rows


def _floats(column: pa.Array) -> Piece:
    valid = _valid(column)
    values = column.cast(pa.float64()).fill_null(0.0).to_numpy(zero_copy_only=False)
    rows = np.empty((len(values), 9), np.uint8)
    rows[:, 0] = 0xCB
    rows[:, 1:] = values.astype(">f8").view(np.uint8).reshape(-1, 8)
    rows[np.isnan(values)] = _NAN
    if valid is None:
        return rows
    rows[~valid, 0] = _NIL
    return _of_lengths(rows, np.where(valid, 9, 1))


def _booleans(column: pa.Array) -> Piece:
    valid = _valid(column)
    rows = column.fill_null(False).to_numpy(zero_copy_only=False).astype(np.uint8) + _FALSE
    if valid is not None:
        rows[~valid] = _NIL
    return rows.reshape(-1, 1)


def _texts_of(column: pa.Array) -> Sequence[Piece]:
    return _with_lengths(column, column.cast(pa.binary()), _text_head)


def _binaries_of(column: pa.Array) -> Sequence[Piece]:
    return _with_lengths(column, column.cast(pa.binary()), _bytes_head)


def _with_lengths(column: pa.Array, values: pa.Array, head: Callable[[int], bytes]) -> Sequence[Piece]:
    """Headers by length, and the values behind them."""
    valid = _valid(column)
    lengths = pc.binary_length(values).fill_null(0).to_numpy(zero_copy_only=False)
    if valid is None and len(values) and (lengths == lengths[0]).all():
        size = int(lengths[0])
        rows = np.frombuffer(of_arrow(values).joined(), np.uint8).reshape(-1, size) if size else _EMPTY
        return [np.frombuffer(head(size), np.uint8), rows]
    known = np.unique(lengths)
    heads = [head(int(length)) for length in known]
    found = np.searchsorted(known, lengths)
    matrix = np.zeros((len(known) + 1, 5), np.uint8)
    for at, each in enumerate(heads):
        matrix[at, : len(each)] = np.frombuffer(each, np.uint8)
    sizes = np.array([*map(len, heads), 1], np.int64)
    matrix[-1, 0] = _NIL
    if valid is not None:
        found = np.where(valid, found, len(known))
    is_short = (sizes[found] == 1).all()
    made = matrix[found, :1] if is_short else _of_lengths(matrix[found], sizes[found])
    return [made, values if valid is None else values.fill_null(b"")]


def _text_head(length: int) -> bytes:
    if length < 32:
        return bytes((0xA0 | length,))
    return _head(length, 0xD9, 0xDA, 0xDB)


def _bytes_head(length: int) -> bytes:
    return _head(length, 0xC4, 0xC5, 0xC6)


def _head(length: int, one: int, two: int, four: int) -> bytes:
    for mark, size in ((one, 1), (two, 2)):
        if length < 1 << 8 * size:
            return bytes((mark,)) + length.to_bytes(size, "big")
    return bytes((four,)) + length.to_bytes(4, "big")


def _of_length(rows: Bytes) -> pa.Array:
    """Byte strings of one length, from a matrix of them."""
    return to_arrow(of_step(rows.ravel(), *rows.shape))


def _of_lengths(rows: Bytes, lengths: Numbers) -> pa.Array:
    """Byte strings, from a matrix that has each at the beginning of its row."""
    return to_arrow(Strings(rows[np.arange(rows.shape[1]) < lengths[:, None]], offsets_of(lengths)))


_texts: tuple[tuple[Callable[[pa.DataType], bool], Callable[[pa.Array], Sequence[Piece]]], ...] = (
    (lambda kind: _kinds.is_string(kind) or _kinds.is_large_string(kind) or kind == pa.string_view(), _texts_of),
    (lambda kind: _kinds.is_binary(kind) or _kinds.is_large_binary(kind) or kind == pa.binary_view(), _binaries_of),
)
