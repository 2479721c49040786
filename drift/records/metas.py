"""Metas in the columns of a record: time, tie and path.

Invariant: time | tie | path of a row is its meta, byte for byte, and time | tie its global time; rows in the order of
(time, tie, path) are in the order of their metas.

Why: ties are prefix-free. Nothing is stored twice: times are numbers, also for other readers, and ties and paths are
mostly few, so a row holds the index of one in a dictionary.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import msgspec
import numpy as np
import numpy.typing as npt
import pyarrow as pa

from drift.records.columns import BIN_HEAD_BYTES, BIN_MARK, BIN_MAX
from drift.strings import Bytes, Numbers, Strings, cut, numbers, of_arrow, of_list, offsets_of, words_of

#: The columns that make a global time, and a meta.
GLOBAL_TIME = ("time", "tie")
META = ("time", "tie", "path")

_SIGN = np.uint64(1 << 63)
_TIME_BYTES = 8
_ONE_BYTE_MAX = 0xF7  # of a varint; see `drift_graph.meta`
_TIE_VARINTS = 3  # source rank, tie, ordinal
_encode = msgspec.msgpack.Encoder().encode


class Parts(NamedTuple):
    """Metas split into columns."""

    times: Numbers
    ties: Strings
    paths: Strings


def split(metas: Strings, head: int = 0) -> Parts:
    """The parts of metas.

    Args:
        head: number of bytes in front of each.

    Raises:
        ValueError: a meta ends within its global time.
    """
    lengths = metas.lengths
    behind = head + _TIME_BYTES
    if len(metas) and int(lengths.min()) < behind:
        raise ValueError("a meta ends within its time")
    ends = ties_in(metas, behind)
    if (ends < 0).any():
        raise ValueError("a meta ends within its global time")
    ties = cut(metas, np.full(len(metas), behind), ends - behind)
    return Parts(_times_in(metas, head), ties, cut(metas, ends, lengths - ends))


def _times_in(metas: Strings, at: int) -> Numbers:
    if metas.step:
        packed = np.ndarray((len(metas),), ">u8", metas.data, int(metas.offsets[0]) + at, (metas.step,))
    else:
        packed = words_of(metas.data)[metas.offsets[:-1] + at].view(">u8")
    times: npt.NDArray[np.uint64] = packed.astype(np.uint64)
    times ^= _SIGN
    return times.view(np.int64)


def packed_times(times: Numbers) -> npt.NDArray[np.uint64]:
    """`drift_graph.meta.pack_time` of each, as arrays of eight bytes."""
    return (times.view(np.uint64) ^ _SIGN).astype(">u8").view(np.uint64)


def ties_in(strings: Strings, at: int = 0) -> Numbers:
    """For each string, the end of the tie that begins at `at`; -1 if the string ends before."""
    common = _tie_of_all(strings, at)
    if common is not None:
        return np.full(len(strings), common)
    if not len(strings.data):
        return np.full(len(strings), -1)
    starts, lengths = strings.offsets[:-1], strings.lengths
    ends = np.full(len(strings), at)
    for _ in range(_TIE_VARINTS):
        there = ends < lengths
        heads = strings.data[np.where(there, starts + ends, 0)].astype(np.int64)
        ends = np.where(there, ends + 1 + np.maximum(heads - _ONE_BYTE_MAX, 0), lengths + 1)
    return np.where(ends <= lengths, ends, -1)


def _tie_of_all(strings: Strings, at: int) -> int | None:
    """The end of all ties, if it is easily seen to be the same."""
    if not strings.step or not len(strings):
        return None
    rows = np.frombuffer(strings.joined(), np.uint8).reshape(-1, strings.step)
    for _ in range(_TIE_VARINTS):
        if at >= strings.step:
            return None
        most = int(rows[:, at].max())
        if most > _ONE_BYTE_MAX and int(rows[:, at].min()) != most:
            return None
        at += 1 + max(most - _ONE_BYTE_MAX, 0)
    return at if at <= strings.step else None


def metas_of(rows: Any, names: Sequence[str] = META) -> Strings:
    """The metas, or global times, of rows of a RecordBatch or a Table. `names`: META or GLOBAL_TIME."""
    return _joined(rows, names, 0)


def bins_of(rows: Any, names: Sequence[str] = META) -> Strings:
    """The canonical bytes of the result of `metas_of`."""
    found = _joined(rows, names, BIN_HEAD_BYTES)
    count, step, starts = len(found), found.step, found.offsets[:-1]
    most = int(found.lengths.max(initial=0)) - BIN_HEAD_BYTES
    if most > BIN_MAX:
        return of_list(list(map(_encode, metas_of(rows, names).listed())))
    if step:
        np.ndarray((count,), "<u2", found.data, 0, (step,))[:] = BIN_MARK | most << 8
    else:
        found.data[starts], found.data[starts + 1] = BIN_MARK, found.lengths - BIN_HEAD_BYTES
    return found


class _Coded(NamedTuple):
    """A column of strings: an index into a list for each; or without indices, the list itself."""

    values: Strings
    codes: npt.NDArray[Any] | None

    @staticmethod
    def of(column: pa.Array | pa.ChunkedArray) -> _Coded:
        if isinstance(column, pa.ChunkedArray):
            column = column.unify_dictionaries().combine_chunks()
            column = column.chunk(0) if isinstance(column, pa.ChunkedArray) else column
        if not pa.types.is_dictionary(column.type):
            return _Coded(of_arrow(column), None)
        return _Coded(of_arrow(column.dictionary), numbers(column.indices))

    @property
    def lengths(self) -> Any:
        """The length of each; one number if all have it."""
        if self.values.step:
            return self.values.step
        return self.values.lengths if self.codes is None else self.values.lengths[self.codes]

    def words(self, at: int) -> Any:
        """Eight bytes of each from `at` on, with arbitrary bytes behind its end; one word if all are the same."""
        start, end = int(self.values.offsets[0]), int(self.values.offsets[-1])
        data = np.concatenate([self.values.data[start:end], np.zeros(8 + at, np.uint8)])
        found = words_of(data)[self.values.offsets[:-1] - start + at]
        if self.codes is None:
            return found
        return found[0] if len(found) == 1 else found[self.codes]


def _joined(rows: Any, names: Sequence[str], room: int) -> Strings:
    """Metas with `room` bytes in front of each.

    Bytes are copied in words of eight; surplus bytes are overwritten by what belongs there: columns are written from
    left to right, and the times, of eight bytes, last.
    """
    times = numbers(rows.column(names[0]))
    parts = [_Coded.of(rows.column(name)) for name in names[1:]]
    size = sum((part.lengths for part in parts), room + _TIME_BYTES)
    step = size if isinstance(size, int) else 0
    offsets = np.arange(0, (len(times) + 1) * step, step) if step else offsets_of(size)
    out = np.empty(int(offsets[-1]) + 8, np.uint8)
    at: Any = room + _TIME_BYTES
    for part in parts:
        lengths = part.lengths
        for done in range(0, int(np.max(lengths, initial=0)), 8):
            words, targets = part.words(done), offsets[:-1] + (at + done)
            if step:
                _each(out, at + done, step, len(times))[:] = words
            elif np.all(longer := lengths > done):
                words_of(out)[targets] = words
            else:
                words_of(out)[targets[longer]] = words[longer]
        at = at + lengths
    if step:
        _each(out, room, step, len(times))[:] = packed_times(times)
    else:
        words_of(out)[offsets[:-1] + room] = packed_times(times)
    return Strings(out[:-8], offsets, step)


def _each(out: Bytes, at: int, step: int, count: int) -> npt.NDArray[np.uint64]:
    """Views of eight bytes of each row; rows have one length."""
    return np.ndarray((count,), np.uint64, out, at, (step,))
