"""Many byte strings as two arrays, with operations on all at once: no Python object for each.

Invariant: string i of a `Strings` is data[offsets[i]:offsets[i + 1]]; offsets never decrease.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

#: Strings below this length are listed by their lengths, if there are so many for each length.
_LENGTH_MAX, _ROWS_OF_LENGTH = 1 << 10, 64

Bytes = npt.NDArray[np.uint8]
Numbers = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Strings:
    """Byte strings, one after the other.

    Attributes:
        step: their length, if it is known to be the same for all; else 0.
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
        if self.step:
            found: list[bytes] = np.frombuffer(self.joined(), f"V{self.step}").tolist()
            return found
        every = np.empty(len(self), object)
        for rows, strings in self._by_length():
            every[rows] = strings
        made: list[bytes] = every.tolist()
        return made

    def _by_length(self) -> Iterator[tuple[Numbers, list[bytes]]]:
        """The places of the strings of each length, and these strings: numpy lists them twice as fast as slices."""
        starts, lengths = self.offsets[:-1], self.lengths
        counts = np.bincount(lengths, minlength=1) if lengths.max(initial=0) < _LENGTH_MAX else np.ones(1)
        sizes = np.flatnonzero(counts).tolist()
        if counts[0] or _ROWS_OF_LENGTH * len(sizes) > len(self):  # of no bytes there is no type
            data, ends = self.joined().tobytes(), (self.offsets - self.offsets[0]).tolist()
            yield np.arange(len(self)), [data[start:end] for start, end in pairwise(ends)]
            return
        for size in sizes:
            rows = np.flatnonzero(lengths == size)
            slices = np.ndarray((len(self.data) - size + 1,), f"V{size}", self.data, strides=(1,))
            yield rows, slices[starts[rows]].tolist()


def of_step(data: Bytes, count: int, step: int) -> Strings:
    """Strings of one length above 0."""
    return Strings(data, np.arange(0, (count + 1) * step, step), step)


def of_lengths(data: bytes, lengths: Numbers) -> Strings:
    return Strings(np.frombuffer(data, np.uint8), offsets_of(lengths))


def joined(several: list[Strings]) -> Strings:
    """One after the other; copied if there are several."""
    if len(several) == 1:
        return several[0]
    steps = {strings.step for strings in several}
    data = np.concatenate([np.frombuffer(strings.joined(), np.uint8) for strings in several])
    if len(steps) == 1 and 0 not in steps:
        return of_step(data, sum(map(len, several)), steps.pop())
    return Strings(data, offsets_of(np.concatenate([strings.lengths for strings in several])))


def offsets_of(lengths: Numbers) -> Numbers:
    """The start offsets of strings with these lengths, and the end of the last one."""
    offsets = np.zeros(len(lengths) + 1, np.int64)
    np.cumsum(lengths, out=offsets[1:])
    return offsets


def of_list(strings: list[bytes]) -> Strings:
    return of_lengths(b"".join(strings), np.fromiter(map(len, strings), np.int64, len(strings)))


def plain(numbers: npt.NDArray[Any], kind: pa.DataType) -> pa.Array:
    """Numbers as a column; `pa.array` would import pandas, which takes a third of a second."""
    numbers = np.ascontiguousarray(numbers)
    return pa.Array.from_buffers(kind, len(numbers), [None, pa.py_buffer(numbers)])


def to_arrow(strings: Strings) -> pa.Array:
    """As a column; the bytes are not copied."""
    start, end = int(strings.offsets[0]), int(strings.offsets[-1])
    offsets = (strings.offsets - start).astype(np.int32)
    data = strings.data[start:end]
    return pa.Array.from_buffers(pa.binary(), len(strings), [None, pa.py_buffer(offsets), pa.py_buffer(data)])


def of_arrow(column: pa.Array | pa.ChunkedArray) -> Strings:
    """A column's byte strings, not copied if it has one chunk. Raises ValueError: a row is null."""
    if isinstance(column, pa.ChunkedArray):
        column = column.combine_chunks() if column.num_chunks != 1 else column.chunk(0)
    if isinstance(column, pa.ChunkedArray):  # chunks of more than 2 GB
        return of_list(column.to_pylist())
    if column.null_count:
        raise ValueError("a row has no value")
    _, offsets, data = column.buffers()
    numbers = np.frombuffer(offsets, np.int32, len(column) + 1, column.offset * 4)
    step = int(numbers[1] - numbers[0]) if len(column) else 0
    if int(numbers[-1] - numbers[0]) != step * len(column) or (np.diff(numbers) != step).any():
        step = 0
    array = np.frombuffer(data, np.uint8) if data is not None else np.zeros(0, np.uint8)
    return Strings(array, numbers.astype(np.int64), step)


def numbers(column: pa.Array | pa.ChunkedArray) -> npt.NDArray[Any]:
    """A column of integers without nulls, not copied if it has one chunk."""
    if isinstance(column, pa.ChunkedArray):
        column = pa.concat_arrays(column.chunks) if column.num_chunks != 1 else column.chunk(0)
    data, kind = column.buffers()[1], np.dtype(f"i{column.type.bit_width // 8}")
    if data is None:
        return np.zeros(0, kind)
    return np.frombuffer(data, kind, len(column), column.offset * kind.itemsize)


def _common_length(strings: Strings) -> int | None:
    """The length of every one of them; None if they differ, or there are none."""
    if strings.step:
        return strings.step if len(strings) else None
    lengths = strings.lengths
    return int(lengths[0]) if len(lengths) and lengths[0] > 0 and (lengths == lengths[0]).all() else None


def sums(strings: Strings) -> Bytes:
    """For each, the sum of its bytes modulo 256."""
    step = _common_length(strings)
    start, end = int(strings.offsets[0]), int(strings.offsets[-1])
    if step is not None:
        matrix = strings.data[start:end].reshape(-1, step)
        found: Bytes = np.einsum("ij->i", matrix) if step < 64 else matrix.sum(axis=1, dtype=np.uint8)
    elif len(strings) and int(strings.lengths.min()) > 0:
        found = np.add.reduceat(strings.data[:end], strings.offsets[:-1], dtype=np.uint8)
    else:  # `reduceat` cannot sum empty ranges
        sums_so_far = np.zeros(end - start + 1, np.uint8)
        np.cumsum(strings.data[start:end], dtype=np.uint8, out=sums_so_far[1:])
        found = np.diff(sums_so_far[strings.offsets - start])
    return found


def cut(strings: Strings, starts: Numbers, lengths: Numbers) -> Strings:
    """A part of each, by its start in the string and its length."""
    if not len(strings):
        return of_lengths(b"", lengths)
    start, step = int(starts[0]), int(lengths[0])
    same = bool((lengths == step).all())
    if same and step and strings.step and (starts == start).all():
        rows = np.ndarray((len(strings),), f"V{step}", strings.data, int(strings.offsets[0]) + start, (strings.step,))
        return of_step(np.ascontiguousarray(rows).view(np.uint8), len(strings), step)
    offsets = offsets_of(lengths)
    out = np.empty(int(offsets[-1]), np.uint8)
    _copy(out, offsets[:-1], strings.data, strings.offsets[:-1] + starts, lengths)
    return Strings(out, offsets, step if same else 0)


def _copy(out: Bytes, to: Numbers, data: Bytes, origins: Numbers, lengths: Numbers) -> None:
    """Copy many ranges: eight bytes of each at once; the last eight overlap those before."""
    if not len(lengths):
        return
    least, most = int(lengths.min()), int(lengths.max())
    if least >= 8:
        read, written = words_of(data), words_of(out)
        for at in range(0, most, 8):
            shift = np.minimum(at, lengths - 8)
            written[to + shift] = read[origins + shift]
        return
    for at in range(min(most, 8)):
        if at < least:
            out[to + at] = data[origins + at]
        else:
            rows = lengths > at
            out[to[rows] + at] = data[origins[rows] + at]
    if most > 8:
        rows = lengths > 8
        _copy(out, to[rows], data, origins[rows], lengths[rows])


def words_of(data: Bytes) -> npt.NDArray[np.uint64]:
    """The eight bytes from every byte on."""
    return np.ndarray((max(len(data) - 7, 0),), np.uint64, data, 0, (1,))
