"""Many byte strings as two arrays, and what is asked of all of them at once: without a Python object for each.

Invariant: string i of a `Strings` is data[offsets[i]:offsets[i + 1]]; offsets never decrease.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import msgspec
import numpy as np
import numpy.typing as npt
import pyarrow as pa

from drift_graph.meta import NumberedMetas

Bytes = npt.NDArray[np.uint8]
Numbers = npt.NDArray[np.int64]

_SIGN = np.uint64(1 << 63)
_MARK = 0xC4  # MessagePack: a byte string shorter than 256
_ONE_BYTE_MAX = 0xF7  # of a varint; see `drift_graph.meta`
_split = msgspec.msgpack.Decoder(list[msgspec.Raw]).decode
_byte_strings = msgspec.msgpack.Decoder(list[bytes]).decode


@dataclass(frozen=True, slots=True)
class Strings:
    """Byte strings, one after the other.

    Attributes:
        step: the length of every one of them, where that is known to be one; else 0.
    """

    data: Bytes
    offsets: Numbers
    step: int = 0

    def __len__(self) -> int:
        return len(self.offsets) - 1

    @property
    def lengths(self) -> Numbers:
        return np.diff(self.offsets)

    def slice(self, start: int, end: int) -> Strings:
        return Strings(self.data, self.offsets[start : end + 1], self.step)

    def joined(self) -> memoryview:
        """All of them, without a copy."""
        return self.data[self.offsets[0] : self.offsets[-1]].data

    def listed(self) -> list[bytes]:
        whole, ends = self.joined().tobytes(), (self.offsets - self.offsets[0]).tolist()
        return [whole[start:end] for start, end in pairwise(ends)]


def of_fixed(matrix: Bytes) -> Strings:
    """The rows of a matrix."""
    count, length = matrix.shape
    offsets = np.arange(count + 1, dtype=np.int64) * length
    return Strings(np.ascontiguousarray(matrix).reshape(-1), offsets, length)


def of_lengths(data: bytes, lengths: Numbers) -> Strings:
    return Strings(np.frombuffer(data, np.uint8), _offsets(lengths))


def joined(several: list[Strings]) -> Strings:
    """One after the other; copied, where they are more than one."""
    if len(several) == 1:
        return several[0]
    steps = {strings.step for strings in several}
    data = np.concatenate([np.frombuffer(strings.joined(), np.uint8) for strings in several])
    if len(steps) == 1 and 0 not in steps:
        return of_fixed(data.reshape(-1, steps.pop()))
    return Strings(data, _offsets(np.concatenate([strings.lengths for strings in several])))


def _offsets(lengths: Numbers) -> Numbers:
    offsets = np.zeros(len(lengths) + 1, np.int64)
    np.cumsum(lengths, out=offsets[1:])
    return offsets


def of_list(strings: list[bytes]) -> Strings:
    return of_lengths(b"".join(strings), np.fromiter(map(len, strings), np.int64, len(strings)))


def values(count: int, data: bytes) -> Strings:
    """The MessagePack values that follow each other in `data`, each with its header."""
    parts = _split(_array_header(count) + data)
    return of_lengths(data, np.fromiter(map(len, parts), np.int64, count))


def byte_strings(count: int, data: bytes) -> Strings:
    """What the MessagePack byte strings that follow each other in `data` hold."""
    if count == 0:
        return of_lengths(b"", np.zeros(0, np.int64))
    row = len(data) // count
    if row * count == len(data) and 2 <= row < 258:
        matrix = np.frombuffer(data, np.uint8).reshape(count, row)
        if (matrix[:, 0] == _MARK).all() and (matrix[:, 1] == row - 2).all():
            return of_fixed(matrix[:, 2:])
    return of_list(_byte_strings(_array_header(count) + data))


def numbered(metas: NumberedMetas) -> Strings:
    """Metas of consecutive numbers."""
    count, ending = len(metas), np.frombuffer(metas.ending, np.uint8)
    matrix = np.empty((count, 8 + len(ending)), np.uint8)
    matrix[:, :8] = packed_times(np.arange(metas.first_time, metas.first_time + count, dtype=np.int64))
    matrix[:, 8:] = ending
    return of_fixed(matrix)


def packed_times(times: Numbers) -> Bytes:
    """`drift_graph.meta.pack_time` of each, as the rows of a matrix."""
    return (times.view(np.uint64) ^ _SIGN).astype(">u8").view(np.uint8).reshape(len(times), 8)


def _array_header(count: int) -> bytes:
    return b"\xdd" + count.to_bytes(4, "big")


def plain(numbers: npt.NDArray[Any], kind: pa.DataType) -> pa.Array:
    """Numbers as a column; `pa.array` would load pandas for it, which takes a third of a second."""
    numbers = np.ascontiguousarray(numbers)
    return pa.Array.from_buffers(kind, len(numbers), [None, pa.py_buffer(numbers)])


def to_arrow(strings: Strings) -> pa.Array:
    """As a column; the bytes are not copied."""
    start, end = int(strings.offsets[0]), int(strings.offsets[-1])
    offsets = (strings.offsets - start).astype(np.int32)
    data = strings.data[start:end]
    return pa.Array.from_buffers(pa.binary(), len(strings), [None, pa.py_buffer(offsets), pa.py_buffer(data)])


def of_arrow(column: pa.Array | pa.ChunkedArray) -> Strings:
    """A column's byte strings, not copied where it is one piece.

    Raises:
        ValueError: there is none in some row.
    """
    if isinstance(column, pa.ChunkedArray):
        column = column.combine_chunks() if column.num_chunks != 1 else column.chunk(0)
    if isinstance(column, pa.ChunkedArray):  # of several pieces of more than 2 GB
        return of_list(column.to_pylist())
    if column.null_count:
        raise ValueError("a row has no value")
    _, offsets, data = column.buffers()
    numbers = np.frombuffer(offsets, np.int32, len(column) + 1, column.offset * 4)
    step = int(numbers[1] - numbers[0]) if len(column) else 0
    if int(numbers[-1] - numbers[0]) != step * len(column) or (np.diff(numbers) != step).any():
        step = 0
    whole = np.frombuffer(data, np.uint8) if data is not None else np.zeros(0, np.uint8)
    return Strings(whole, numbers.astype(np.int64), step)


def numbers(column: pa.Array | pa.ChunkedArray) -> npt.NDArray[Any]:
    """A column of integers without nulls, not copied where it is one piece."""
    if isinstance(column, pa.ChunkedArray):
        column = pa.concat_arrays(column.chunks) if column.num_chunks != 1 else column.chunk(0)
    data, kind = column.buffers()[1], np.dtype(f"i{column.type.bit_width // 8}")
    if data is None:
        return np.zeros(0, kind)
    return np.frombuffer(data, kind, len(column), column.offset * kind.itemsize)


def times_of(metas: Strings) -> Numbers:
    """The times that metas begin with; each is 8 bytes or longer."""
    step = _common_length(metas)
    if step is not None:
        packed = np.ndarray((len(metas),), np.dtype(">u8"), metas.data, int(metas.offsets[0]), (step,))
    else:
        packed = _words_at(metas, np.zeros(len(metas), np.int64)).view(">u8")
    times = packed.astype(np.uint64)
    times ^= _SIGN
    return times.view(np.int64)


def _at(strings: Strings, length: int) -> Bytes:
    """The first bytes of each, as a matrix."""
    step = _common_length(strings)
    if step is not None:
        start, end = int(strings.offsets[0]), int(strings.offsets[-1])
        return np.ascontiguousarray(strings.data[start:end].reshape(-1, step)[:, :length])
    matrix: Bytes = strings.data[strings.offsets[:-1, None] + np.arange(length)]
    return matrix


def _common_length(strings: Strings) -> int | None:
    """The length of every one of them; None where they differ, or there is none."""
    if strings.step:
        return strings.step if len(strings) else None
    lengths = strings.lengths
    return int(lengths[0]) if len(lengths) and lengths[0] > 0 and (lengths == lengths[0]).all() else None


def global_times(metas: Strings) -> Strings:
    """What each meta begins with: time, and three varints.

    Raises:
        IndexError: a meta ends before that.
    """
    end = _end_of_all(metas)
    if end is not None:
        return of_fixed(_at(metas, end))
    return beginnings(metas, _lengths_of_global_times(metas))


def _lengths_of_global_times(metas: Strings) -> Numbers:
    """
    Raises:
        IndexError: a meta ends before that.
    """
    starts, data = metas.offsets[:-1], metas.data
    ends = starts + 8
    for _ in range(3):
        if len(ends) and (ends >= metas.offsets[1:]).any():
            raise IndexError("a meta ends within its global time")
        first = data[ends].astype(np.int64)
        ends = ends + 1 + np.maximum(first - _ONE_BYTE_MAX, 0)
    if len(ends) and (ends > metas.offsets[1:]).any():
        raise IndexError("a meta ends within its global time")
    return ends - starts


def begin_with_global_times(metas: Strings, given: Strings) -> bool:
    """Whether those given are the global times of these metas.

    Raises:
        IndexError: a meta ends before that.
    """
    end = _end_of_all(metas)
    if end is None or given.step != end:
        return _begin_with(metas, _lengths_of_global_times(metas), given)
    if given is metas:
        return True
    words = [*range(0, end - 8, 8), end - 8]  # the last two may overlap
    return len(metas) == len(given) and all((_words(metas, at) == _words(given, at)).all() for at in words)


def _begin_with(metas: Strings, lengths: Numbers, given: Strings) -> bool:
    """Whether so many bytes at the beginning of each, 8 or more, are those given."""
    if not np.array_equal(lengths, given.lengths):
        return False
    if given is metas:
        return True
    for at in range(0, int(lengths.max(initial=0)), 8):
        places = np.minimum(at, lengths - 8)
        if (_words_at(metas, places) != _words_at(given, places)).any():
            return False
    return True


def _words_at(strings: Strings, places: Numbers) -> npt.NDArray[np.uint64]:
    """Eight bytes of each, from a place in it on."""
    words = np.ndarray((max(len(strings.data) - 7, 0),), np.uint64, strings.data, 0, (1,))
    found: npt.NDArray[np.uint64] = words[strings.offsets[:-1] + places]
    return found


def _words(strings: Strings, at: int) -> npt.NDArray[np.uint64]:
    """Eight bytes of each of some of one length."""
    return np.ndarray((len(strings),), np.uint64, strings.data, int(strings.offsets[0]) + at, (strings.step,))


def _end_of_all(strings: Strings) -> int | None:
    """Where the global times in metas end; None where that is not in one place, or they are not of one length.

    Raises:
        IndexError: a meta ends before that.
    """
    step = _common_length(strings)
    if step is None:
        return None
    metas = _at(strings, step)
    end = 8
    for _ in range(3):
        if end >= step:
            raise IndexError("a meta ends within its global time")
        most = int(metas[:, end].max())
        if most > _ONE_BYTE_MAX and int(metas[:, end].min()) != most:
            return None
        end += 1 + max(most - _ONE_BYTE_MAX, 0)
    if end > step:
        raise IndexError("a meta ends within its global time")
    return end


def beginnings(strings: Strings, lengths: Numbers) -> Strings:
    """The first bytes of each, as many as given."""
    step = _common_length(strings)
    if len(lengths) and step is not None and (lengths == lengths[0]).all():
        return of_fixed(_at(strings, int(lengths[0])))
    offsets = _offsets(lengths)
    shift = strings.offsets[:-1] - offsets[:-1]
    return Strings(strings.data[np.arange(int(offsets[-1])) + np.repeat(shift, lengths)], offsets)


def sums(strings: Strings) -> Bytes:
    """Of each, the sum of its bytes modulo 256."""
    step = _common_length(strings)
    start, end = int(strings.offsets[0]), int(strings.offsets[-1])
    if step is not None:
        matrix = strings.data[start:end].reshape(-1, step)
        found: Bytes = np.einsum("ij->i", matrix) if step < 64 else matrix.sum(axis=1, dtype=np.uint8)
    elif len(strings) and int(strings.lengths.min()) > 0:
        found = np.add.reduceat(strings.data[:end], strings.offsets[:-1], dtype=np.uint8)
    else:  # `reduceat` has no sum of nothing
        sums_so_far = np.zeros(end - start + 1, np.uint8)
        np.cumsum(strings.data[start:end], dtype=np.uint8, out=sums_so_far[1:])
        found = np.diff(sums_so_far[strings.offsets - start])
    return found


def bins(strings: Strings, encoded: bytes | None = None) -> tuple[memoryview, Numbers]:
    """The canonical bytes of each, joined: with the header that says its length; and where each begins and ends.

    Args:
        encoded: the same bytes, where they are at hand.
    """
    if encoded is not None and len(encoded) == int(strings.offsets[-1] - strings.offsets[0]) + 2 * len(strings):
        heads = 2 * np.arange(len(strings) + 1)
        return memoryview(encoded), strings.offsets - strings.offsets[0] + heads
    step = _common_length(strings)
    if step is not None and step < 256:
        matrix = np.empty((len(strings), step + 2), np.uint8)
        matrix[:, 0], matrix[:, 1] = _MARK, step
        start, end = int(strings.offsets[0]), int(strings.offsets[-1])
        matrix[:, 2:] = strings.data[start:end].reshape(-1, step)
        return matrix.reshape(-1).data, np.arange(len(strings) + 1) * (step + 2)
    lengths = strings.lengths
    if len(lengths) == 0 or int(lengths.max()) >= 256:
        listed = list(map(msgspec.msgpack.encode, strings.listed()))
        return memoryview(b"".join(listed)), of_list(listed).offsets
    offsets = _offsets(lengths + 2)
    out = np.empty(int(offsets[-1]), np.uint8)
    heads = offsets[:-1]
    body = np.ones(len(out), bool)
    out[heads], out[heads + 1] = _MARK, lengths
    body[heads] = body[heads + 1] = False
    out[body] = strings.data[strings.offsets[0] : strings.offsets[-1]]
    return out.data, offsets


def first_not_increasing(strings: Strings) -> int | None:
    """Index of the first string that is not above the one before it, as bytes compare; None where all are."""
    count = len(strings)
    if count < 2:
        return None
    lengths = strings.lengths
    width = -(-int(lengths.max()) // 8) * 8
    if width > 256:
        listed = strings.listed()
        return next((index for index in range(1, count) if listed[index] <= listed[index - 1]), None)
    words = _padded(strings, width).view(">u8")
    above = np.zeros(count - 1, bool)
    equal = np.ones(count - 1, bool)
    for column in range(width // 8):
        here, before = words[1:, column], words[:-1, column]
        above |= equal & (here > before)
        equal &= here == before
        if not equal.any():
            break
    above |= equal & (lengths[1:] > lengths[:-1])  # zeros at the end: the longer one is above
    bad = np.flatnonzero(~above)
    return int(bad[0]) + 1 if len(bad) else None


def _padded(strings: Strings, width: int) -> Bytes:
    """Each followed by zeros, as the rows of a matrix."""
    matrix = np.zeros((len(strings), width), np.uint8)
    step = _common_length(strings)
    if step is not None:
        matrix[:, :step] = _at(strings, step)
        return matrix
    matrix[np.arange(width) < strings.lengths[:, None]] = strings.data[strings.offsets[0] : strings.offsets[-1]]
    return matrix
