"""Simulated runs whose sources give rows in columns."""

from __future__ import annotations

from typing import Any

import polars as pl

from drift.columns.rows import Frame
from drift.engines.simulated.simulation import Simulation

#: Of the rows; `n` is another one in each row of a source.
SCHEMA = {"zone": str, "code": int, "at": int, "n": int, "fare": float}


class InRows(Simulation):
    """What sources give comes in columns."""

    def _in_columns(self, payloads: list[Any]) -> bool:
        return True

    def __init__(self, *given: Any, **settings: Any) -> None:
        super().__init__(*given, **settings)
        give = self.intake.give

        def in_rows(rank: int, payloads: list[Any] | None, *now: Any) -> Any:
            if payloads and self._in_columns(payloads):
                payloads = Frame(pl.DataFrame(payloads, schema=SCHEMA))  # type: ignore[assignment]
            return give(rank, payloads, *now)

        self.intake.give = in_rows  # type: ignore[assignment]

    def _know(self, name: str, read: list[tuple[Any, int]], arrived: Any) -> None:
        by_row = {row["n"]: number for row, number in read}
        self._items.update((meta, (name, by_row[row["n"]])) for meta, row in zip(arrived.metas, arrived.payloads))


class InBoth(InRows):
    """Some batches come in columns, and some do not."""

    def _in_columns(self, payloads: list[Any]) -> bool:
        return bool(payloads[0]["n"] % 3 != 1)
