"""The canonical bytes of rows, computed column by column: no Python object is made for a row.

Invariant: the form of row i is that of the dict with the row's values, as `drift_graph.canonical` defines it.

Why: a dict's form is its header and, for each entry, the forms of key and value. The keys are the same for all rows,
so they are constants; the values of a column of a common type are encoded at once. Neighbouring pieces that have one
length in all rows are filled into a template; what varies in length is copied behind it, as many rows at once as have
the same length. A column of any other type is made into Python values first.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import groupby
from typing import Any, NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from drift.arrow import common_column, python_values
from drift.strings import Strings, of_list, offsets_of
from drift_graph.canonical import canonical, canonical_each, stored_each

Numbers: TypeAlias = npt.NDArray[Any]
_kinds = pa.types

#: (least value, greatest value, format behind the mark, mark) of each form of integers; without a mark it is the value.
_INTEGERS = (
    (-(1 << 5), (1 << 7) - 1, "i1", b""),
    (1 << 7, (1 << 8) - 1, "u1", b"\xcc"),
    (1 << 8, (1 << 16) - 1, ">u2", b"\xcd"),
    (1 << 16, (1 << 32) - 1, ">u4", b"\xce"),
    (-(1 << 7), -(1 << 5) - 1, "i1", b"\xd0"),
    (-(1 << 15), -(1 << 7) - 1, ">i2", b"\xd1"),
    (-(1 << 31), -(1 << 15) - 1, ">i4", b"\xd2"),
    (-(1 << 63), -(1 << 31) - 1, ">i8", b"\xd3"),
    (1 << 32, (1 << 64) - 1, ">u8", b"\xcf"),
)
#: The forms of headers by length: (greatest length, format, mark).
_TEXT_HEADS = ((0xFF, "u1", b"\xd9"), (0xFFFF, ">u2", b"\xda"), (0xFFFF_FFFF, ">u4", b"\xdb"))
_BYTES_HEADS = ((0xFF, "u1", b"\xc4"), (0xFFFF, ">u2", b"\xc5"), (0xFFFF_FFFF, ">u4", b"\xc6"))
_NIL, _FALSE, _FLOAT, _SHORT_TEXT = b"\xc0", 0xC2, b"\xcb", 0xA0


class _Field(NamedTuple):
    """A value for each row, all in one format."""

    format: str
    values: Numbers


class _Bodies(NamedTuple):
    """Byte strings: slices of `data`, for each row where its slice begins and how long it is."""

    data: Numbers
    starts: Numbers
    lengths: Numbers


class _Classes(NamedTuple):
    """Pieces of one length in each class of rows: for each class the rows, and its pieces for these."""

    classes: Sequence[tuple[Numbers, Sequence[bytes | _Field]]]


_Piece: TypeAlias = bytes | _Field | _Bodies | _Classes


def forms_of_rows(names: Sequence[str], columns: Sequence[pa.Array], count: int, *, in_order: bool = True) -> Strings:
    """The form of each row.

    Args:
        names: of the columns, each once.
        columns: without chunks, of `count` values each.
        in_order: in the canonical order of the names; else as they are, see `drift_graph.canonical.stored`.

    Raises:
        NoCanonicalForm: a column has values without one.
    """
    order = sorted(range(len(names)), key=lambda at: canonical(names[at])) if in_order else range(len(names))
    head = canonical(dict.fromkeys(names, None))[: -sum(len(canonical(name)) + 1 for name in names) or None]
    pieces: list[_Piece] = [head]
    for at in order:
        pieces.append(canonical(names[at]))
        pieces += _pieces(columns[at], in_order) if count else ()
    parts = list(_parts(pieces, count))
    lengths = np.zeros(count, np.int64)
    for part in parts:
        lengths += part.lengths if isinstance(part, _Bodies) else _lengths(part, count)
    offsets = offsets_of(lengths)
    if len(parts) == 1 and isinstance(parts[0], np.ndarray):
        return Strings(parts[0].view(np.uint8), offsets)
    data = np.empty(int(offsets[-1]), np.uint8)
    _fill(data, offsets[:-1].copy(), parts)
    return Strings(data, offsets)


def _parts(pieces: Sequence[_Piece], count: int) -> Iterator[Numbers | _Bodies | _Classes]:
    """The pieces, with neighbours of fixed lengths filled into one template."""
    for _, some in groupby(pieces, lambda piece: isinstance(piece, (bytes, _Field))):
        neighbours = list(some)
        if isinstance(neighbours[0], (bytes, _Field)):
            yield _filled(neighbours, count)  # type: ignore[arg-type]
        else:
            yield from neighbours  # type: ignore[misc]


def _filled(pieces: Sequence[bytes | _Field], count: int) -> Numbers:
    """Byte strings of one length, as values of a type of this size."""
    template = bytearray()
    names, formats, places = [], [], []
    for at, piece in enumerate(pieces):
        if isinstance(piece, bytes):
            template += piece
        else:
            names.append(str(at))
            formats.append(piece.format)
            places.append(len(template))
            template += bytes(np.dtype(piece.format).itemsize)
    made = np.empty(count, f"V{len(template)}")
    made[:] = np.frombuffer(template, made.dtype)
    kind = np.dtype({"names": names, "formats": formats, "offsets": places, "itemsize": len(template)})
    fields = made.view(kind) if names else made
    for name in names:
        fields[name] = pieces[int(name)].values  # type: ignore[union-attr]
    return made


def _lengths(part: Numbers | _Classes, count: int) -> int | Numbers:
    if isinstance(part, np.ndarray):
        return part.itemsize
    lengths = np.zeros(count, np.int64)
    for rows, pieces in part.classes:
        lengths[rows] = sum(
            len(piece) if isinstance(piece, bytes) else np.dtype(piece.format).itemsize for piece in pieces
        )
    return lengths


def _fill(out: Numbers, at: Numbers, parts: Sequence[Numbers | _Bodies | _Classes]) -> None:
    """Write the parts of each row one behind the other.

    Args:
        at: where each row begins; it is moved.
    """
    for part in parts:
        if isinstance(part, np.ndarray):
            _slices(out, part.itemsize)[at] = part
            at += part.itemsize
        elif isinstance(part, _Classes):
            for rows, pieces in part.classes:
                made = _filled(pieces, len(rows))
                _slices(out, made.itemsize)[at[rows]] = made
                at[rows] += made.itemsize
        else:
            _copy(out, at, part)


def _copy(out: Numbers, at: Numbers, bodies: _Bodies) -> None:
    """Write byte strings of any lengths: each in slices of 1, 2, 4, 8 bytes and so on, as its length has these bits."""
    data, starts, lengths = bodies
    if (lengths == lengths[0]).all():
        if size := int(lengths[0]):
            _slices(out, size)[at] = _slices(data, size)[starts]
            at += size
        return
    starts = starts.copy()
    for bit in range(int(lengths.max()).bit_length()):
        size = 1 << bit
        rows = np.flatnonzero(lengths & size)
        if len(rows):
            _slices(out, size)[at[rows]] = _slices(data, size)[starts[rows]]
            at[rows] += size
            starts[rows] += size


def _slices(data: Numbers, size: int) -> Numbers:
    """All slices of so many bytes, one beginning at each byte: a view."""
    return np.ndarray((len(data) - size + 1,), f"V{size}", data, strides=(1,))


def _pieces(column: pa.Array, in_order: bool) -> Sequence[_Piece]:
    """What, joined row by row, is the forms of a column's values."""
    kind = column.type
    if _kinds.is_dictionary(kind):
        column = common_column(column)
        kind = column.type
    if _kinds.is_integer(kind):
        return _integers(column)
    if _kinds.is_floating(kind) and kind.bit_width >= 32:
        return _floats(column)
    if _kinds.is_boolean(kind):
        return _booleans(column)
    if _kinds.is_string(kind) or _kinds.is_large_string(kind) or kind == pa.string_view():
        return _with_lengths(column, _TEXT_HEADS, 32)
    if _kinds.is_binary(kind) or _kinds.is_large_binary(kind) or kind == pa.binary_view():
        return _with_lengths(column, _BYTES_HEADS, 0)
    values = python_values(column)
    forms = canonical_each(values) if in_order else stored_each(values)
    strings = of_list(forms)
    return [_Bodies(strings.data, strings.offsets[:-1], strings.lengths)]


def _valid(column: pa.Array) -> npt.NDArray[np.bool_] | None:
    """Which values are not null; None where all are."""
    return column.is_valid().to_numpy(zero_copy_only=False) if column.null_count else None


def _classes(classes: Sequence[tuple[Numbers, Sequence[bytes | _Field]]], count: int) -> Sequence[_Piece]:
    """Classes of rows; their pieces alone where all rows are of one class."""
    filled = [each for each in classes if len(each[0])]
    if len(filled) == 1 and len(filled[0][0]) == count:
        return filled[0][1]
    return [_Classes(filled)]


def _nulls(valid: npt.NDArray[np.bool_] | None) -> list[tuple[Numbers, Sequence[bytes | _Field]]]:
    return [] if valid is None else [(np.flatnonzero(~valid), [_NIL])]


def _integers(column: pa.Array) -> Sequence[_Piece]:
    valid = _valid(column)
    values = (column if valid is None else column.fill_null(0)).to_numpy(zero_copy_only=False)
    least, greatest = int(values.min()), int(values.max())
    forms = [form for form in _INTEGERS if form[0] <= greatest and least <= form[1]]
    if valid is None and len(forms) == 1:
        return [forms[0][3], _Field(forms[0][2], values)]
    classes = _nulls(valid)
    for first, last, kind, mark in forms:
        are = (values >= max(first, least)) & (values <= min(last, greatest))
        rows = np.flatnonzero(are if valid is None else are & valid)
        classes.append((rows, [mark, _Field(kind, values[rows])]))
    return _classes(classes, len(values))


def _floats(column: pa.Array) -> Sequence[_Piece]:
    valid = _valid(column)
    values = column if column.type == pa.float64() else column.cast(pa.float64())
    values = (values if valid is None else values.fill_null(0.0)).to_numpy(zero_copy_only=False)
    if np.isnan(values).any():
        values = np.where(np.isnan(values), np.nan, values)  # NaN has one form, whatever its bits
    if valid is None:
        return [_FLOAT, _Field(">f8", values)]
    rows = np.flatnonzero(valid)
    return _classes([*_nulls(valid), (rows, [_FLOAT, _Field(">f8", values[rows])])], len(values))


def _booleans(column: pa.Array) -> Sequence[_Piece]:
    valid = _valid(column)
    values = (column if valid is None else column.fill_null(False)).to_numpy(zero_copy_only=False).view(np.uint8)
    codes = values + np.uint8(_FALSE)
    if valid is not None:
        codes[~valid] = _NIL[0]
    return [_Field("u1", codes)]


def _with_lengths(column: pa.Array, heads: Sequence[tuple[int, str, bytes]], short: int) -> Sequence[_Piece]:
    """Headers by length, and the values behind them.

    Args:
        short: lengths below it are one byte, with the mark of short texts.
    """
    valid = _valid(column)
    if not _kinds.is_large_string(column.type):  # which has the same buffers
        column = column.cast(pa.large_binary())
    bodies = _bodies(column, valid)
    lengths = bodies.lengths
    least, greatest = int(lengths.min()), int(lengths.max())
    forms = [(0, short - 1, "u1", b"")] if short else []
    for last, kind, mark in heads:
        forms.append((forms[-1][1] + 1 if forms else 0, last, kind, mark))
    forms = [form for form in forms if form[0] <= greatest and least <= form[1]]
    base = _SHORT_TEXT if forms[0][3] == b"" else 0
    body: _Piece = bodies
    if least == greatest and valid is None and least:
        body = _Field(f"V{least}", _slices(bodies.data, least)[bodies.starts])
    if valid is None and len(forms) == 1:
        return [forms[0][3], _Field(forms[0][2], lengths + base), body]
    classes = _nulls(valid)
    for first, last, kind, mark in forms:
        are = (lengths >= first) & (lengths <= last)
        rows = np.flatnonzero(are if valid is None else are & valid)
        classes.append((rows, [mark, _Field(kind, lengths[rows] + (0 if mark else _SHORT_TEXT))]))
    return [*_classes(classes, len(lengths)), body]


def _bodies(strings: pa.Array, valid: npt.NDArray[np.bool_] | None = None) -> _Bodies:
    _, offsets, data = strings.buffers()
    places = np.frombuffer(offsets, np.int64, len(strings) + 1, strings.offset * 8)
    lengths = np.diff(places)
    if valid is not None:
        lengths[~valid] = 0
    return _Bodies(np.frombuffer(data if data is not None else b"", np.uint8), places[:-1], lengths)
