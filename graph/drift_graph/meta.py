"""Meta: the place of an item in the total order, as bytes.

Invariant: comparing two metas with `<` on bytes compares their items, and what an item causes comes right after it
and before the next item.

Why: every part is either of fixed length or an order-preserving varint, so no part is a prefix of another value of
the same part; and an operator only ever appends.

    meta        = global_time | path
    global_time = time (8 bytes, big-endian, sign bit flipped) | source rank | tie | ordinal
    path        = for each operator passed, oldest first: operator rank, then for a map the child index

Ranks, ties, ordinals and indices are varints. The tie separates items of one time (0 in arrival time), the ordinal
counts the items that still share it, so a global time is unique per input item and can be cut off any meta.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence

TIME_MIN = -(2**63)
TIME_MAX = 2**63 - 1

#: Below every global time, and above every global time: the heartbeats of a source before its start and after its end.
BEGINNING = b""
END_OF_TIME = b"\xff" * 9

_ONE_BYTE_MAX = 0xF7
_varints = [bytes((value,)) for value in range(_ONE_BYTE_MAX + 1)]


def varint(value: int) -> bytes:
    """Order-preserving bytes of an integer, 0 <= value < 2**64: one byte up to 247, else a length byte and the value.

    The length byte is 0xF8 for one byte that follows, up to 0xFF for eight.
    """
    if value <= _ONE_BYTE_MAX:
        return _varints[value]
    length = (value.bit_length() + 7) >> 3
    return bytes((_ONE_BYTE_MAX + length,)) + value.to_bytes(length, "big")


def read_varint(data: bytes, start: int) -> tuple[int, int]:
    """The value of the varint at `start`, and the index after it."""
    first = data[start]
    if first <= _ONE_BYTE_MAX:
        return first, start + 1
    end = start + 1 + first - _ONE_BYTE_MAX
    return int.from_bytes(data[start + 1 : end], "big"), end


def _skip_varint(data: bytes, start: int) -> int:
    first = data[start]
    return start + 1 if first <= _ONE_BYTE_MAX else start + 1 + first - _ONE_BYTE_MAX


def pack_time(time: int) -> bytes:
    """The 8 bytes of a time, TIME_MIN <= time <= TIME_MAX, in the order of the integers."""
    return (time + 2**63).to_bytes(8, "big")


def time_of(meta: bytes) -> int:
    """The time in a meta or global time, in the unit its source uses."""
    return int.from_bytes(meta[:8], "big") - 2**63


def global_time(time: int, source_rank: int, tie: int, ordinal: int) -> bytes:
    """The global time of an input item; `tie` and `ordinal` are 0 <= n < 2**64."""
    return pack_time(time) + varint(source_rank) + varint(tie) + varint(ordinal)


def global_time_of(meta: bytes) -> bytes:
    """The global time that a meta starts with."""
    end = _skip_varint(meta, 8)
    end = _skip_varint(meta, end)
    return meta[: _skip_varint(meta, end)]


class MetaParts:
    """A meta taken apart, for people: time, source rank, tie, ordinal, and the numbers of the path."""

    __slots__ = ("time", "source_rank", "tie", "ordinal", "path")

    def __init__(self, meta: bytes) -> None:
        self.time = time_of(meta)
        self.source_rank, at = read_varint(meta, 8)
        self.tie, at = read_varint(meta, at)
        self.ordinal, at = read_varint(meta, at)
        path: list[int] = []
        while at < len(meta):
            number, at = read_varint(meta, at)
            path.append(number)
        self.path = tuple(path)

    def __str__(self) -> str:
        tie = f" tie {self.tie:x}" if self.tie else ""
        ordinal = f" #{self.ordinal}" if self.ordinal else ""
        return f"time {self.time} source {self.source_rank}{tie}{ordinal} path {'.'.join(map(str, self.path)) or '-'}"


_low_halves = [struct.pack(">H", value) for value in range(0x10000)]


def numbered_metas(first_time: int, count: int, source_rank: int) -> list[bytes]:
    """Global times of `count` items at times first_time, first_time + 1, ... of one source, tie and ordinal 0."""
    tail = varint(source_rank) + b"\x00\x00"
    metas: list[bytes] = []
    at, end = first_time + 2**63, first_time + 2**63 + count
    while at < end:
        high = (at >> 16).to_bytes(6, "big")
        low = at & 0xFFFF
        upto = min(low + end - at, 0x10000)
        metas += [high + half + tail for half in _low_halves[low:upto]]
        at += upto - low
    return metas


def child_suffixes(rank: int, count: int) -> Sequence[bytes]:
    """What a map of this rank appends to the metas of its first `count` children."""
    head = varint(rank)
    return [head + varint(index) for index in range(count)]
