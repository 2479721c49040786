"""The output of a run as one table, with a typed column for each field of the payloads.

Invariant: row i is the i-th item of the output (of one sink, if one is named), in the order of positions.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from drift.sinks.typed import Tables
from drift_graph.meta import TIME_MIN
from drift_graph.metas import Metas, numbers_of

if TYPE_CHECKING:
    from drift_barrier.barrier import Released

_GATHERED_ITEMS = 1 << 16  # items in one chunk of a column


def table_of(
    batches: Iterable[Released],
    of: str | None,
    columns: Sequence[str] | Mapping[str, pa.DataType] | None,
) -> pa.Table:
    """See `Run.to_arrow`."""
    rows = _Rows(Tables(of or "output", columns))
    for position, metas, payloads, sinks, _ in batches:
        if of is None or sinks == of:
            rows.add(range(position, position + len(payloads)), metas, payloads, sinks)
        elif not isinstance(sinks, str):
            at = [index for index, sink in enumerate(sinks) if sink == of]
            chosen = [metas[index] for index in at]
            rows.add([position + index for index in at], chosen, [payloads[index] for index in at], of)
    return rows.table()


class _Rows:
    """Gathers items of several batches into one chunk of the table."""

    def __init__(self, tables: Tables) -> None:
        self._tables = tables
        self._items: list[tuple[pa.Array, pa.Array, pa.Array]] = []
        self._payloads: list[Any] = []

    def add(self, positions: Sequence[int], metas: Metas, payloads: Sequence[Any], sinks: str | Sequence[str]) -> None:
        if not payloads:
            return
        numbers = np.arange(positions.start, positions.stop) if isinstance(positions, range) else positions
        names = pa.repeat(sinks, len(payloads)) if isinstance(sinks, str) else pa.array(sinks, pa.string())
        self._items.append((pa.array(numbers, pa.int64()), names, _times(metas)))
        self._payloads += payloads
        if len(self._payloads) >= _GATHERED_ITEMS:
            self._hand_over()

    def table(self) -> pa.Table:
        if self._payloads or not self._tables.batches:
            self._hand_over()
        return self._tables.table()

    def _hand_over(self) -> None:
        kinds = (pa.int64(), pa.string(), pa.int64())
        columns = zip(*self._items) if self._items else ((), (), ())
        arrays = [pa.chunked_array(list(each), kind).combine_chunks() for each, kind in zip(columns, kinds)]
        self._tables.add(dict(zip(("position", "sink", "time"), arrays)), self._payloads)
        self._items, self._payloads = [], []


def _times(metas: Metas) -> pa.Array:
    numbers = numbers_of(metas)
    if numbers is not None:
        return pa.array(np.arange(numbers[0], numbers[0] + len(metas)))
    packed = np.frombuffer(b"".join([meta[:8] for meta in metas]), ">u8").astype(np.uint64)
    return pa.array((packed ^ np.uint64(-TIME_MIN)).view(np.int64))
