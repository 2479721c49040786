"""Batches of items on their way to another process of the run, ready for pickle.

Invariant: `unpacked_columns` gives what `packed_columns` was given.

Why: payloads that MessagePack gives back as they were are packed with it, which takes half the time of a pickle; all
others are left for pickle. A tuple of scalars is read back as a tuple, and nothing else that it reads is a sequence.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Sequence
from itertools import chain
from typing import Any

import msgpack
import msgspec

from drift_barrier.digest import Encoded
from drift_graph.item import Columns
from drift_graph.meta import ComputedMetas, Metas, NumberedMetas

_pack = msgspec.msgpack.Encoder().encode
_unpack_metas = msgspec.msgpack.Decoder(list[bytes]).decode
_unbounded = dict.fromkeys(("max_array_len", "max_str_len", "max_bin_len"), 2**31 - 1)
_unpack_payloads: dict[int, Callable[[Any], list[Any]]] = {
    1: msgspec.msgpack.Decoder(list[Any]).decode,
    2: msgspec.msgpack.Decoder(list[tuple[Any, ...]]).decode,
    3: lambda data: list(msgpack.unpackb(data, use_list=False, strict_map_key=False, **_unbounded)),
}
_scalars = frozenset({str, int, float, bool, type(None), bytes})

_length = struct.Struct(">BI")  # of an array of MessagePack
_LENGTH_BYTES = _length.size

#: How payloads are packed: 0 as they are, for pickle; as MessagePack 1 scalars, 2 tuples of them, 3 tuples in tuples.
Packed = tuple[bytes | ComputedMetas, int, Any, list[int] | None]


def packed_columns(metas: Metas, payloads: list[Any], diffs: list[int] | None) -> Packed:
    """Columns for pickle, with what MessagePack gives back as it was packed already: that takes half the time."""
    packed = metas if isinstance(metas, ComputedMetas) else _pack(metas)
    kinds = set(map(type, payloads))
    form = 0
    if kinds <= _scalars:
        form = 1
    elif kinds == {tuple} and set(map(type, chain.from_iterable(payloads))) <= _scalars:
        form = 2
    try:
        return packed, form, _pack(payloads) if form else payloads, diffs
    except (OverflowError, UnicodeEncodeError):  # a huge int, or lone surrogates
        return packed, 0, payloads, diffs


def packed_release(metas: Metas, payloads: list[Any], encoded: Sequence[Encoded]) -> Packed:
    """Released items for pickle: as the bytes that went into the digest, where those say all."""
    if not encoded or not all(piece.plain for piece in encoded):
        return packed_columns(metas, payloads, None)
    length = _length.pack(0xDD, len(metas))
    packed = metas if type(metas) is NumberedMetas else b"".join([length, *(piece.metas for piece in encoded)])
    return packed, 3, b"".join([length, *(piece.payloads for piece in encoded)]), None


def packed_pieces(
    metas: Metas, payloads: list[Any], encoded: Sequence[Encoded]
) -> tuple[Sequence[Encoded], Packed | None]:
    """Released items for pickle: the bytes that went into the digest, or columns where these do not say all."""
    if all(piece.plain for piece in encoded):
        return encoded, None
    return (), packed_columns(metas, payloads, None)


def unpacked_pieces(encoded: Sequence[Encoded], columns: Packed | None) -> Columns:
    if columns is not None:
        return unpacked_columns(*columns)
    return plain_columns(
        sum(piece.items for piece in encoded),
        b"".join([piece.metas for piece in encoded]),
        b"".join([piece.payloads for piece in encoded]),
    )


def plain_columns(count: int, metas: bytes, payloads: bytes) -> Columns:
    """Items from their canonical bytes, joined, where their payloads are scalars, tuples, or dicts of these."""
    length = _length.pack(0xDD, count)
    return Columns(_unpack_metas(length + metas), _unpack_payloads[3](length + payloads), None)


def metas_of(count: int, metas: bytes) -> list[bytes]:
    """So many metas from their canonical bytes, joined."""
    return _unpack_metas(_length.pack(0xDD, count) + metas)


def encoded_release(metas: bytes | ComputedMetas, form: int, payloads: Any, _: list[int] | None) -> tuple[Encoded, ...]:
    """The bytes of what `packed_release` has packed, as one piece; nothing where they do not say all."""
    if form != 3:
        return ()
    count = _length.unpack_from(payloads)[1]
    meta_bytes = b"" if isinstance(metas, ComputedMetas) else metas[_LENGTH_BYTES:]
    return (Encoded(count, meta_bytes, payloads[_LENGTH_BYTES:], True),)


def unpacked_columns(metas: bytes | ComputedMetas, form: int, payloads: Any, diffs: list[int] | None) -> Columns:
    return Columns(
        metas if isinstance(metas, ComputedMetas) else _unpack_metas(metas),
        _unpack_payloads[form](payloads) if form else payloads,
        diffs,
    )
