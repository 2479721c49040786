"""The output of a run as one table, with a typed column for each field of the payloads.

Invariant: row i is the i-th item of the output (of one sink, if one is named), in the order of positions.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from drift.sinks.typed import Gathered, Tables
from drift_graph.metas import Metas

if TYPE_CHECKING:
    from drift_barrier.barrier import Released

_GATHERED_ITEMS = 1 << 16  # items in one chunk of a column


def table_of(
    batches: Iterable[Released],
    of: str | None,
    columns: Sequence[str] | Mapping[str, pa.DataType] | None,
) -> pa.Table:
    rows = _Rows(Tables(of or "output", columns))
    for batch in batches:
        position, metas, payloads, sinks, _ = batch
        if of is None:
            rows.add(range(position, position + len(payloads)), metas, payloads, sinks)
        else:
            rows.add(*batch.of(of), of)
    return rows.table()


class _Rows:
    """Gathers items of several batches into one chunk of the table."""

    def __init__(self, tables: Tables) -> None:
        self._tables = tables
        self._gathered = Gathered()
        self._sinks: list[pa.Array] = []

    def add(self, positions: Sequence[int], metas: Metas, payloads: Any, sinks: str | Sequence[str]) -> None:
        if not len(payloads):
            return
        self._gathered.add(positions, metas, payloads)
        names = pa.repeat(sinks, len(payloads)) if isinstance(sinks, str) else pa.array(sinks, pa.string())
        self._sinks.append(names)
        if len(self._gathered) >= _GATHERED_ITEMS:
            self._hand_over()

    def table(self) -> pa.Table:
        if len(self._gathered) or not self._tables.batches:
            self._hand_over()
        return self._tables.table()

    def _hand_over(self) -> None:
        items, payloads = self._gathered.take()
        names = pa.chunked_array(self._sinks, pa.string()).combine_chunks()
        self._tables.add({"position": items["position"], "sink": names, "time": items["time"]}, payloads)
        self._sinks = []
