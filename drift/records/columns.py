"""The byte strings in a buffer of MessagePack values, without an object for each.

Invariant: the strings, joined, are the buffer.
"""

from __future__ import annotations

import msgspec
import numpy as np

from drift.strings import Strings, of_lengths, of_step

#: The longest byte string with a header of two bytes in MessagePack: a mark and its length.
BIN_MARK, BIN_MAX = 0xC4, 255
BIN_HEAD_BYTES = 2
_split = msgspec.msgpack.Decoder(list[msgspec.Raw]).decode


def values(count: int, data: bytes) -> Strings:
    """The MessagePack values that follow each other in `data`, each with its header."""
    parts = _split(_array_header(count) + data)
    return of_lengths(data, np.fromiter(map(len, parts), np.int64, count))


def read_bins(count: int, data: bytes) -> Strings:
    """The MessagePack byte strings that follow each other in `data`, each with its header."""
    row = len(data) // count if count else 0
    if row * count == len(data) and BIN_HEAD_BYTES < row <= BIN_HEAD_BYTES + BIN_MAX:
        heads = np.frombuffer(data, np.uint8).reshape(count, row)
        if (heads[:, 0] == BIN_MARK).all() and (heads[:, 1] == row - BIN_HEAD_BYTES).all():
            return of_step(np.frombuffer(data, np.uint8), count, row)
    return values(count, data)


def _array_header(count: int) -> bytes:
    return b"\xdd" + count.to_bytes(4, "big")
