"""Released items on their way to another process of the run, ready for pickle.

Invariant: `unpacked_output` restores the items of `packed_output`, from the bytes that went into the digest where these
are enough.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from drift_barrier.barrier import Released
from drift_barrier.digest import Encoded
from drift_graph.item import Columns
from drift_graph.metas import Metas
from drift_graph.restore import plain_values


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
) -> tuple[Sequence[Encoded], Columns | None]:
    """Released items for pickle: the bytes that went into the digest, or columns if these bytes are not enough."""
    if all(part.plain for part in encoded):
        return encoded, None
    return (), Columns(metas, payloads, None)


def unpacked_output(encoded: Sequence[Encoded], columns: Columns | None) -> Columns:
    if columns is not None:
        return columns
    return plain_columns(
        sum(part.items for part in encoded),
        b"".join([part.metas for part in encoded]),
        b"".join([part.payloads for part in encoded]),
    )


def plain_columns(count: int, metas: bytes, payloads: bytes) -> Columns:
    """Items from their joined canonical bytes; the payloads are scalars, tuples, or dicts of these."""
    return Columns(Metas.decoded(count, metas), plain_values(count, payloads), None)
