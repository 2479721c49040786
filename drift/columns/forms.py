"""The canonical bytes of rows, computed column by column: no Python object is made for a row.

Invariant: the form of row i is that of the dict with the row's values, as `drift_graph.canonical` defines it.

Why: a dict's form is its header and, for each entry, the forms of key and value. The keys are the same for all rows,
so they are constants; the values of a column of a common type are encoded at once. Neighbouring pieces that have one
length in all rows are filled into a template. It ends with the next piece that varies in length: what is too much of
it is overwritten by the next template of the same row, which is copied later. Where the rest of a row may be too short
for that, what varies is copied by itself, as many rows at once as have the same length. A column of any other type is
made into Python values first.
"""

from __future__ import annotations

import datetime
from collections.abc import Sequence
from functools import cache
from itertools import accumulate
from typing import Any, NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from drift.arrow import common_column, python_values
from drift.strings import Strings, of_list, of_step, offsets_of
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
_NIL, _FALSE, _FLOAT, _SHORT_TEXT, _SHORT_ARRAY = b"\xc0", 0xC2, b"\xcb", 0xA0, 0x90
_STRUCT = b"\x0e"  # the code of its extension
#: Integers whose forms are looked up: all of at most three bytes.
_SMALL_MIN, _SMALL_MAX = -(1 << 15), (1 << 16) - 1
#: A view of a short text: its length and its bytes.
VIEW = np.dtype({"names": ["length", "first", "rest"], "formats": ["<i4", "<u8", "<u4"], "offsets": [0, 4, 12]})
VIEW_MAX = 12


class _Field(NamedTuple):
    """A value for each row, all in one format."""

    format: str
    values: Numbers

    @property
    def size(self) -> int:
        return np.dtype(self.format).itemsize

    def part(self, start: int, end: int) -> _Field:
        return _Field(self.format, self.values[start:end])


class _Padded(NamedTuple):
    """Pieces of which only the first bytes count, as many as `lengths` says for each row."""

    pieces: Sequence[bytes | _Field]
    lengths: Numbers

    @property
    def size(self) -> int:
        return sum(map(_size, self.pieces))


class _Bodies(NamedTuple):
    """Byte strings: slices of `data`, for each row where its slice begins and how long it is."""

    data: Numbers
    starts: Numbers
    lengths: Numbers

    def part(self, start: int, end: int) -> _Bodies:
        return _Bodies(self.data, self.starts[start:end], self.lengths[start:end])


Piece: TypeAlias = bytes | _Field | _Padded | _Bodies


def _size(piece: bytes | _Field) -> int:
    return len(piece) if isinstance(piece, bytes) else piece.size


class _Template:
    """Pieces of one length, and the lengths of what counts of them; None if all of it does.

    Args:
        rows: how many are filled in at once, at most.
    """

    def __init__(self, pieces: Sequence[bytes | _Field], lengths: Numbers | None, fixed: int, rows: int) -> None:
        self.lengths = lengths
        self.fixed = fixed  # bytes before what varies
        constants = b"".join(piece if isinstance(piece, bytes) else bytes(piece.size) for piece in pieces)
        self.size = len(constants)
        places = accumulate(map(_size, pieces), initial=0)
        fields = [(at, piece) for at, piece in zip(places, pieces) if isinstance(piece, _Field)]
        self._values = [piece.values for _, piece in fields]
        self._names = [str(number) for number in range(len(fields))]
        self._made = np.empty(rows, f"V{self.size}")
        self._made[:] = np.frombuffer(constants, self._made.dtype)
        kind: dict[str, Any] = {"names": self._names, "formats": [piece.format for _, piece in fields]}
        kind |= {"offsets": [at for at, _ in fields], "itemsize": self.size}
        self._fields = self._made.view(np.dtype(kind)) if fields else self._made  # type: ignore[call-overload]

    def filled(self, start: int, end: int) -> Numbers:
        """The rows from `start` to `end`, until it is called again."""
        for name, values in zip(self._names, self._values):
            self._fields[name][: end - start] = values[start:end]
        return self._made[: end - start]


class RowForms:
    """The form of each row of a batch, computed for some rows at a time.

    Args:
        pieces: what, joined row by row, is the forms of `count` rows.
        at_once: how many rows are asked for at a time, at most.
    """

    def __init__(self, pieces: Sequence[Piece], count: int, at_once: int) -> None:
        self._parts = list(_parts(pieces, min(at_once, count)))
        varying = [each.lengths for each in self._parts if each.lengths is not None]
        fixed = sum(each.fixed for each in self._parts if isinstance(each, _Template))
        self._step = 0 if varying else fixed
        if varying:
            lengths = np.full(count, fixed, np.int64)
            for each in varying:
                lengths += each
            self._offsets = offsets_of(lengths)
        self._data = np.empty(0, np.uint8)

    def part(self, start: int, end: int) -> Strings:
        """The forms of the rows from `start` to `end`, until it is called again: the memory is used again."""
        if self._step:
            (template,) = self._parts
            assert isinstance(template, _Template)
            return of_step(template.filled(start, end).view(np.uint8), end - start, self._step)
        offsets = self._offsets[start : end + 1] - self._offsets[start]
        if start == end:
            return Strings(np.empty(0, np.uint8), offsets)
        size = int(offsets[-1])
        if len(self._data) < size:
            self._data = np.empty(size + size // 8, np.uint8)
        data, at = self._data[:size], offsets[:-1].copy()
        for each in self._parts:
            if isinstance(each, _Template):
                _slices(data, each.size)[at] = each.filled(start, end)
                at += each.fixed
                if each.lengths is not None:
                    at += each.lengths[start:end]
            else:
                _copy(data, at, each.part(start, end))
        return Strings(data, offsets)


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
        pieces.append(canonical(names[at]))
        pieces += _pieces(columns[at], in_order) if count else ()
    return pieces


def pieces_of_tuples(columns: Sequence[pa.Array]) -> list[Piece]:
    """The pieces of a tuple of each row's values, of one value or more; None where there are no columns."""
    pieces: list[Piece] = [] if len(columns) == 1 else [bytes([_SHORT_ARRAY | len(columns)]) if columns else _NIL]
    for column in columns:
        pieces += _pieces(column, True)
    return pieces


def pieces_of_structs(name: str, fields: Sequence[tuple[str, Sequence[Piece]]], count: int) -> list[Piece]:
    """The pieces of instances of a msgspec Struct: names of fields, and the pieces of their values."""
    pieces: list[Piece] = [canonical(name)]
    for field, values in fields:
        pieces += (canonical(field), *values)
    lengths = np.full(count, sum(_size(piece) for piece in pieces if isinstance(piece, (bytes, _Field))), np.uint64)
    for piece in pieces:
        if not isinstance(piece, (bytes, _Field)):
            lengths += piece.lengths.astype(np.uint64)
    if int(lengths.max(initial=0)) <= 0xFF:
        return [b"\xc7", _Field("u1", lengths.astype(np.uint8)), _STRUCT, *pieces]
    is_8, is_16 = lengths <= 0xFF, lengths <= 0xFFFF
    marks = np.where(is_8, 0xC7, np.where(is_16, 0xC8, 0xC9)).astype(np.uint8)
    sizes = np.where(is_8, 1, np.where(is_16, 2, 4)).astype(np.uint64)
    rest = (lengths << np.uint64(8) | np.uint64(_STRUCT[0])) << (np.uint64(56) - np.uint64(8) * sizes)
    return [_Padded([_Field("u1", marks), _Field(">u8", rest)], (sizes + np.uint64(2)).astype(np.uint8)), *pieces]


def _parts(pieces: Sequence[Piece], rows: int) -> list[_Template | _Bodies]:
    """The pieces as templates and what is copied by itself."""
    rests = list(accumulate(map(_least, reversed(pieces)), initial=0))[::-1][1:]  # least bytes of a row behind each
    parts: list[_Template | _Bodies] = []
    open_pieces: list[bytes | _Field] = []

    def close(padded: _Padded | None = None) -> None:
        fixed = sum(map(_size, open_pieces))
        if padded is not None:
            open_pieces.extend(padded.pieces)
        if open_pieces:
            parts.append(_Template(list(open_pieces), None if padded is None else padded.lengths, fixed, rows))
        open_pieces.clear()

    for piece, rest in zip(pieces, rests):
        if isinstance(piece, (bytes, _Field)):
            open_pieces.append(piece)
        elif isinstance(piece, _Padded) and piece.size - _least(piece) <= rest:
            close(piece)
        else:
            close()
            parts.append(_exact(piece) if isinstance(piece, _Padded) else piece)
    close()
    return parts


def _least(piece: Piece) -> int:
    """Of how many bytes it is in each row, at least."""
    return _size(piece) if isinstance(piece, (bytes, _Field)) else int(piece.lengths.min())


def _exact(padded: _Padded) -> _Bodies:
    count = len(padded.lengths)
    made = _Template(padded.pieces, None, padded.size, count).filled(0, count)
    return _Bodies(made.view(np.uint8), np.arange(0, count * padded.size, padded.size), padded.lengths)


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


def _pieces(column: pa.Array, in_order: bool) -> Sequence[Piece]:
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
    if _kinds.is_timestamp(kind):
        column = common_column(column)
        moments = _moments(column)
        if moments is not None:
            return moments
    places = None
    if _kinds.is_temporal(kind) or _kinds.is_decimal(kind):  # each different value is encoded once
        encoded = column.dictionary_encode(null_encoding="encode")
        column, places = encoded.dictionary, encoded.indices.to_numpy(zero_copy_only=False)
    (forms,) = pieces_of_values(python_values(column), in_order)
    return [forms if places is None else _Bodies(forms.data, forms.starts[places], forms.lengths[places])]


def pieces_of_values(values: Sequence[Any], in_order: bool) -> list[_Bodies]:
    """The pieces of any values, which are made one by one."""
    strings = of_list(canonical_each(values) if in_order else stored_each(values))
    return [_Bodies(strings.data, strings.offsets[:-1], strings.lengths)]


def _valid(column: pa.Array) -> npt.NDArray[np.bool_] | None:
    """Which values are not null; None where all are."""
    return column.is_valid().to_numpy(zero_copy_only=False) if column.null_count else None


def _first_bytes(pieces: Sequence[_Field], lengths: Numbers, valid: npt.NDArray[np.bool_] | None) -> _Padded:
    """Byte strings with a first byte, the first piece, which for null is the only one; lengths are of all bytes."""
    if valid is not None:
        pieces[0].values[~valid] = _NIL[0]
        lengths[~valid] = 1
    return _Padded(pieces, lengths)


def _integers(column: pa.Array) -> Sequence[Piece]:
    valid = _valid(column)
    values = (column if valid is None else column.fill_null(0)).to_numpy(zero_copy_only=False)
    least, greatest = int(values.min()), int(values.max())
    forms = [form for form in _INTEGERS if form[0] <= greatest and least <= form[1]]
    if valid is None and len(forms) == 1:
        return [forms[0][3], _Field(forms[0][2], values)]
    if least >= _SMALL_MIN and greatest <= _SMALL_MAX and len(values) > 1000:
        codes, known = _small_forms()
        places = values.astype(np.int64)
        return [_first_bytes([_Field("<u4", codes[places])], known[places], valid)]
    return [_marked(values, forms, valid)]


def _marked(values: Numbers, forms: Sequence[Any], valid: npt.NDArray[np.bool_] | None, base: int = 0) -> _Padded:
    """Integers in several forms; `base` is added to those without a mark."""
    marks, lengths = np.empty(len(values), np.uint8), np.empty(len(values), np.uint8)
    rest = np.zeros(len(values), np.uint64)
    least, greatest = int(values.min()), int(values.max())
    for first, last, kind, mark in forms:
        rows = np.flatnonzero((values >= max(first, least)) & (values <= min(last, greatest)))
        some = values[rows].astype(np.int64 if first < 0 else np.uint64).view(np.uint64)
        size = np.dtype(kind).itemsize
        if mark:
            marks[rows] = mark[0]
            rest[rows] = some << np.uint64(64 - 8 * size)
        else:
            marks[rows] = some.astype(np.uint8) + np.uint8(base)
        lengths[rows] = len(mark) + size
    behind = _Field(">u8", rest)
    if max(np.dtype(kind).itemsize for _, _, kind, _ in forms) <= 4:
        behind = _Field(">u4", (rest >> np.uint64(32)).astype(np.uint32))
    return _first_bytes([_Field("u1", marks), behind], lengths, valid)


@cache
def _small_forms() -> tuple[Numbers, Numbers]:
    """The forms of small integers, each in four bytes, and their lengths; those below 0 are counted from the end."""
    values = np.concatenate([np.arange(_SMALL_MAX + 1), np.arange(_SMALL_MIN, 0)])
    forms = [form for form in _INTEGERS if form[0] <= _SMALL_MAX and form[1] >= _SMALL_MIN]
    (marks, rest), lengths = _marked(values, forms, None)
    assert isinstance(marks, _Field) and isinstance(rest, _Field)
    codes = marks.values.astype(np.uint32) << np.uint32(24) | rest.values >> np.uint32(8)
    return codes.astype("<u4").byteswap(), lengths


def _floats(column: pa.Array) -> Sequence[Piece]:
    valid = _valid(column)
    values = column if column.type == pa.float64() else column.cast(pa.float64())
    values = (values if valid is None else values.fill_null(0.0)).to_numpy(zero_copy_only=False)
    if np.isnan(values).any():
        values = np.where(np.isnan(values), np.nan, values)  # NaN has one form, whatever its bits
    if valid is None:
        return [_FLOAT, _Field(">f8", values)]
    marks, lengths = np.full(len(values), _FLOAT[0], np.uint8), np.full(len(values), 9, np.uint8)
    return [_first_bytes([_Field("u1", marks), _Field(">f8", values)], lengths, valid)]


def _moments(column: pa.Array) -> Sequence[Piece] | None:
    """Timestamps in microseconds; None if one may be beyond what Python holds, which is an error elsewhere."""
    valid = _valid(column)
    since = np.asarray((column if valid is None else column.fill_null(0)).cast(pa.int64()))
    days, rest = np.divmod(since, 86_400_000_000)
    least, greatest = int(days.min()) + _DAY_0, int(days.max()) + _DAY_0
    if least < 1 or greatest > datetime.date.max.toordinal():
        return None
    different, at = np.unique(days, return_inverse=True)
    dates = "".join([datetime.date.fromordinal(day + _DAY_0).isoformat() for day in different.tolist()])
    seconds, micros = np.divmod(rest, 1_000_000)
    text = np.empty((len(since), len(_MOMENT)), np.uint8)
    text[:] = np.frombuffer(_MOMENT, np.uint8)
    text[:, :10] = np.frombuffer(dates.encode(), np.uint8).reshape(-1, 10)[at]
    for place, number in ((11, seconds // 3600), (14, seconds // 60 % 60), (17, seconds % 60)):
        text[:, place : place + 2] = _DIGITS[number]
    for place, unit in ((20, 10_000), (22, 100), (24, 1)):
        text[:, place : place + 2] = _DIGITS[micros // unit % 100]
    zone = None if column.type.tz is None else datetime.UTC
    is_whole = micros == 0
    forms = [_around(text[:, :shown], shown, zone) for shown in (19, len(_MOMENT))]
    if valid is None and (is_whole.all() or not is_whole.any()):
        form = forms[0 if is_whole[0] else 1]
        return [_Field(f"V{form.shape[1]}", form.view(f"V{form.shape[1]}").ravel())]
    (whole, exact), rows = forms, np.arange(len(since))
    lengths = np.array([exact.shape[1], whole.shape[1]])[is_whole.astype(np.intp)]
    starts = rows * lengths
    starts[~is_whole] += whole.size
    if valid is not None:
        lengths[~valid], starts[~valid] = 1, whole.size + exact.size
    return [_Bodies(np.concatenate([whole.ravel(), exact.ravel(), np.frombuffer(_NIL, np.uint8)]), starts, lengths)]


def _around(text: Numbers, shown: int, zone: datetime.tzinfo | None) -> Numbers:
    """The forms of moments, by their texts without a zone, which have so many characters."""
    sample = datetime.datetime(2000, 1, 1, microsecond=0 if shown == 19 else 1, tzinfo=zone)
    form = canonical(sample)
    start = form.index(b"2000-01-01T")
    made = np.empty((len(text), len(form)), np.uint8)
    made[:] = np.frombuffer(form, np.uint8)
    made[:, start : start + shown] = text
    return made


_DAY_0 = datetime.date(1970, 1, 1).toordinal()
_MOMENT = b"0000-00-00T00:00:00.000000"
_DIGITS = np.frombuffer(b"".join(b"%02d" % number for number in range(100)), np.uint8).reshape(-1, 2)


def _booleans(column: pa.Array) -> Sequence[Piece]:
    valid = _valid(column)
    values = (column if valid is None else column.fill_null(False)).to_numpy(zero_copy_only=False).view(np.uint8)
    codes = values + np.uint8(_FALSE)
    if valid is not None:
        codes[~valid] = _NIL[0]
    return [_Field("u1", codes)]


def _with_lengths(column: pa.Array, heads: Sequence[tuple[int, str, bytes]], short: int) -> Sequence[Piece]:
    """Headers by length, and the values behind them.

    Args:
        short: lengths below it are one byte, with the mark of short texts.
    """
    valid = _valid(column)
    is_view = column.type in (pa.string_view(), pa.binary_view())
    if not is_view and not _kinds.is_large_string(column.type):  # which has the same buffers
        column = column.cast(pa.large_binary())
    bodies = None if is_view else _bodies(column, valid)
    if bodies is None:
        lengths = _views(column)["length"]
        lengths = lengths if valid is None else np.where(valid, lengths, 0)
    else:
        lengths = bodies.lengths
    least, greatest = int(lengths.min()), int(lengths.max())
    is_exact = least == greatest and valid is None
    if greatest <= VIEW_MAX:
        return _short(column, lengths, b"" if short else heads[0][2], is_exact, valid)
    if bodies is None:
        bodies = _bodies(column.cast(pa.large_binary()), valid)
    forms = [(0, short - 1, "u1", b"")] if short else []
    for last, kind, mark in heads:
        forms.append((forms[-1][1] + 1 if forms else 0, last, kind, mark))
    forms = [form for form in forms if form[0] <= greatest and least <= form[1]]
    body: Piece = bodies
    if is_exact:
        body = _Field(f"V{least}", _slices(bodies.data, least)[bodies.starts])
    if valid is None and len(forms) == 1:
        base = 0 if forms[0][3] else _SHORT_TEXT
        return [forms[0][3], _Field(forms[0][2], lengths + base), body]
    return [_marked(lengths, forms, valid, _SHORT_TEXT), body]


def _short(
    column: pa.Array, lengths: Numbers, mark: bytes, is_exact: bool, valid: npt.NDArray[np.bool_] | None
) -> Sequence[Piece]:
    """Texts of few bytes, which views have in them; a header is one byte behind the mark, if there is one."""
    if column.type not in (pa.string_view(), pa.binary_view()):
        column = column.cast(pa.string_view() if _kinds.is_large_string(column.type) else pa.binary_view())
    views, base = _views(column), 0 if mark else _SHORT_TEXT
    if is_exact:
        length = int(lengths[0])
        kind = f"<u{length}" if length in (1, 2, 4, 8) else f"V{length}"
        header = mark + bytes([length + base])
        data = views.view(np.uint8)
        return [header, _Field(kind, np.ndarray(len(views), kind, data, 4, (16,)))] if length else [header]
    headers = (lengths + base).astype(np.uint8)
    pieces = [_Field("u1", headers), _Field("<u8", views["first"])]
    if int(lengths.max()) > 8:
        pieces.append(_Field("<u4", views["rest"]))
    if mark:
        pieces.insert(0, _Field("u1", np.full(len(lengths), mark[0], np.uint8)))
    return [_first_bytes(pieces, (lengths + len(mark) + 1).astype(np.uint8), valid)]


def _views(column: pa.Array) -> Numbers:
    return np.frombuffer(column.buffers()[1], VIEW, len(column), column.offset * VIEW.itemsize)


def _bodies(strings: pa.Array, valid: npt.NDArray[np.bool_] | None = None) -> _Bodies:
    _, offsets, data = strings.buffers()
    places = np.frombuffer(offsets, np.int64, len(strings) + 1, strings.offset * 8)
    lengths = np.diff(places)
    if valid is not None:
        lengths[~valid] = 0
    return _Bodies(np.frombuffer(data if data is not None else b"", np.uint8), places[:-1], lengths)
