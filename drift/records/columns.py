"""Byte strings as columns of a record: MessagePack values that follow each other, and metas as time, tie and path.

Invariant: time | tie | path of a row is its meta, byte for byte, and time | tie its global time; rows in the order of
(time, tie, path) are in the order of their metas.

Why: ties are prefix-free. Nothing is stored twice: times are numbers, also for other readers, and ties and paths are
mostly few, so a file holds the index of one in a dictionary. In memory a column has offsets of 64 bits: a few thousand
payloads can be more than those of 32 bits reach.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import msgspec
import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from drift.arrow import numbers_column
from drift_graph.metas import Metas

#: The columns that make a global time, and a meta.
GLOBAL_TIME = ("time", "tie")
META = ("time", "tie", "path")

_SIGN = np.uint64(1 << 63)
_TIME_BYTES = 8
_HEADS = ((0xFF, 2), (0xFFFF, 3), (0xFFFFFFFF, 5))  # up to which length a byte string has a header of how many bytes
_STRINGS = pa.large_binary()
_BETWEEN = pa.scalar(b"", _STRINGS)
_raws = msgspec.msgpack.Decoder(list[msgspec.Raw]).decode
_encode = msgspec.msgpack.Encoder().encode

Numbers = npt.NDArray[np.int64]


class Parts(NamedTuple):
    """Metas split into columns, and in MessagePack, each with its header."""

    bins: pa.Array
    times: pa.Array
    ties: pa.Array
    paths: pa.Array


def values(count: int, data: bytes) -> pa.Array:
    """The MessagePack values that follow each other in `data`, each with its header."""
    each = _raws(b"\xdd" + count.to_bytes(4, "big") + data)
    return _column(_ends(np.fromiter(map(len, each), np.int64, count)), data)


def split(count: int, data: bytes) -> Parts:
    """The parts of so many metas. Raises ValueError: these are no metas; one ends within its global time.

    Args:
        data: the metas in MessagePack, one behind the other.
    """
    metas = Metas.decoded(count, data)
    tie_ends, ties, path_ends, paths = metas.split()
    sizes = _TIME_BYTES + np.diff(np.asarray(tie_ends)) + np.diff(np.asarray(path_ends))
    heads = np.array([head for _, head in _HEADS])[np.searchsorted([most for most, _ in _HEADS], sizes)]
    bins = _column(_ends(sizes + heads), data)
    times = numbers_column(np.asarray(metas.times()), pa.int64())
    return Parts(bins, times, _column(tie_ends, ties), _column(path_ends, paths))


def _ends(sizes: Numbers) -> Numbers:
    """Where strings of these sizes end, from 0 on."""
    return np.concatenate([np.zeros(1, np.int64), np.cumsum(sizes)])


def _column(ends: Any, data: bytes) -> pa.Array:
    return pa.Array.from_buffers(_STRINGS, len(ends) - 1, [None, pa.py_buffer(ends), pa.py_buffer(data)])


def strings_of(column: pa.Array | pa.ChunkedArray) -> pa.Array:
    """A column of byte strings in one piece, and without a dictionary. Raises ValueError: a row has no value."""
    if column.null_count:
        raise ValueError("a row has no value")
    found = column.cast(_STRINGS)
    return found.combine_chunks() if isinstance(found, pa.ChunkedArray) else found


def ends_of(column: pa.Array) -> Numbers:
    """Where each of the strings ends in the memory of its column; in front of these, where the first begins."""
    if not len(column):
        return np.zeros(1, np.int64)
    return np.frombuffer(column.buffers()[1], np.int64, len(column) + 1, column.offset * 8)


def joined(column: pa.Array) -> memoryview:
    """The strings of a column, one behind the other, without a copy."""
    data, ends = column.buffers()[2], ends_of(column)
    return memoryview(data or b"").cast("B")[ends[0] : ends[-1]]


def metas_of(rows: Any, names: Sequence[str] = META) -> pa.Array:
    """The metas, or global times, of rows of a RecordBatch or a Table. `names`: META or GLOBAL_TIME."""
    return pc.binary_join_element_wise(*_parts_of(rows, names), _BETWEEN)


def bins_of(rows: Any, names: Sequence[str] = META) -> pa.Array:
    """What `metas_of` gives in MessagePack, each with its header."""
    parts = _parts_of(rows, names)
    sizes = _TIME_BYTES + sum((np.diff(ends_of(part)) for part in parts[1:]), np.zeros(len(parts[0]), np.int64))
    if sizes.max(initial=0) > _HEADS[0][0]:
        return pa.array(map(_encode, metas_of(rows, names).to_pylist()), _STRINGS)
    heads = np.stack([np.full(len(sizes), 0xC4), sizes], axis=1).astype(np.uint8)
    return pc.binary_join_element_wise(numbers_column(heads.view("u2"), pa.binary(2)).cast(_STRINGS), *parts, _BETWEEN)


def _parts_of(rows: Any, names: Sequence[str]) -> list[pa.Array]:
    times = (rows.column(names[0]).to_numpy().view(np.uint64) ^ _SIGN).astype(">u8")
    return [
        numbers_column(times, pa.binary(_TIME_BYTES)).cast(_STRINGS),
        *(strings_of(rows.column(name)) for name in names[1:]),
    ]
