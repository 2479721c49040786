"""Batches of items on their way to another process of the run, ready for pickle.

Invariant: `unpacked_columns` restores the arguments of `packed_columns`.

Why: payloads that MessagePack restores exactly are packed with it, in half the time of a pickle; all others are left
for pickle. Tuples of scalars are read back as tuples; no other payload packed so is a sequence. Rows, and windows
of rows, stay columns, as an IPC stream of Arrow.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import chain
from typing import Any

import msgspec

from drift_barrier.barrier import Released
from drift_barrier.digest import Encoded
from drift_graph.item import Columns
from drift_graph.metas import Metas
from drift_graph.payloads import are_rows, have_fields
from drift_graph.restore import plain_values

_pack = msgspec.msgpack.Encoder().encode
_unpack_bytes = msgspec.msgpack.Decoder(list[bytes]).decode
_scalars = frozenset({str, int, float, bool, type(None), bytes})

_unpack_payloads: dict[int, Callable[[Any], list[Any]]] = {
    1: msgspec.msgpack.Decoder(list[Any]).decode,
    2: msgspec.msgpack.Decoder(list[tuple[Any, ...]]).decode,
    3: lambda data: _rows(data),
}
#: How payloads are packed: 0 as they are, for pickle; as MessagePack 1 scalars, 2 tuples of them; 3 rows, as
#: Arrow's IPC.
Packed = tuple[Metas, int, Any, list[int] | None]


def packed_columns(metas: Metas, payloads: list[Any], diffs: list[int] | None) -> Packed:
    """Columns for pickle, in which payloads that MessagePack restores exactly are packed already."""
    if have_fields(payloads):
        return metas, 3, payloads.packed(), diffs
    if are_rows(payloads):
        return metas, 0, payloads, diffs
    kinds = set(map(type, payloads))
    form = 0
    if kinds <= _scalars:
        form = 1
    elif kinds == {tuple} and set(map(type, chain.from_iterable(payloads))) <= _scalars:
        form = 2
    try:
        return metas, form, _pack(payloads) if form else payloads, diffs
    except (OverflowError, UnicodeEncodeError):  # a huge int, or lone surrogates
        return metas, 0, payloads, diffs


def _rows(data: bytes) -> Any:
    from drift.columns.rows import unpacked  # imports Polars

    return unpacked(data)


def in_parts(released: Released, encoded: Sequence[Encoded]) -> Iterator[tuple[Released, Sequence[Encoded]]]:
    """Released items block by block, or as they are where there are no bytes of them.

    Args:
        encoded: the same items as bytes, in parts.
    """
    position, metas, payloads, sinks, error = released
    if len(encoded) < 2:
        yield released, encoded
        return
    start = 0
    for part in encoded:
        end = start + part.items
        its_sinks = sinks if isinstance(sinks, str) else sinks[start:end]
        last_error = error if end == len(metas) else None
        yield Released(position + start, metas[start:end], payloads[start:end], its_sinks, last_error), (part,)
        start = end


def packed_output(
    metas: Metas, payloads: list[Any], encoded: Sequence[Encoded]
) -> tuple[Sequence[Encoded], Packed | None]:
    """Released items for pickle: the bytes that went into the digest, or columns if these bytes are not enough."""
    if all(part.plain for part in encoded):
        return encoded, None
    return (), packed_columns(metas, payloads, None)


def unpacked_output(encoded: Sequence[Encoded], columns: Packed | None) -> Columns:
    if columns is not None:
        return unpacked_columns(*columns)
    return plain_columns(
        sum(part.items for part in encoded),
        b"".join([part.metas for part in encoded]),
        b"".join([part.payloads for part in encoded]),
    )


def plain_columns(count: int, metas: bytes, payloads: bytes) -> Columns:
    """Items from their joined canonical bytes; the payloads are scalars, tuples, or dicts of these."""
    return Columns(Metas.decoded(count, metas), plain_values(count, payloads), None)


def unpacked_columns(metas: Metas, form: int, payloads: Any, diffs: list[int] | None) -> Columns:
    return Columns(metas, _unpack_payloads[form](payloads) if form else payloads, diffs)
