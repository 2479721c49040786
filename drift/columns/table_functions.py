"""Maps that call a function of Python with a table of rows.

Invariant: the result for a row depends on that row alone, as with an expression; the result's fields are those that
the step declares.

Why: nobody can see what a function does with a table, so the first row of each batch, and the last two, are computed
again by themselves.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import polars as pl

from drift.columns.expressions import Fields, frame_of
from drift.columns.possible import check_made
from drift.columns.rows import Frame
from drift.operators import GivesRows, _ByValue
from drift_graph.errors import ImpureStep
from drift_graph.functions import name_of


class OnTables(GivesRows, _ByValue, frozen=True):
    """The rows that a function makes of a table of rows.

    Attributes:
        schema: of the rows it takes: pairs of a name and a type.
        made: of the rows it gives.
    """

    schema: Fields
    made: Fields
    function: Callable[[pl.DataFrame], pl.DataFrame]

    @property
    def user_function(self) -> Callable[[pl.DataFrame], pl.DataFrame]:
        return self.function

    def each(self, payloads: Sequence[Any]) -> Any:
        """
        Raises:
            TypeError: the result is no table with the declared fields.
            InputError: a value is none of a row.
            ImpureStep: it has not as many rows, or parts of the table give something else than all of it.
        """
        frame = frame_of(payloads, self.schema)
        found = self._computed(frame)
        if frame.height > 1:
            parts = [frame[:1], frame[-2:]]
            if not pl.concat([found[:1], found[-2:]]).equals(pl.concat(map(self._computed, parts)), null_equal=True):
                raise ImpureStep(
                    f"{name_of(self.function)} is not row by row: of a table of {frame.height} rows it gives another "
                    f"result than of its first row, and of its last two, by themselves; for sums, ranks and rows "
                    f"before use windows, scan or at_end"
                )
        check_made(found)
        return Frame(found)

    def _computed(self, frame: pl.DataFrame) -> pl.DataFrame:
        found = self.function(frame.clone())  # what it sets in place, it sets in a copy
        if not isinstance(found, pl.DataFrame):
            raise TypeError(f"it returned a {type(found).__name__}; return a polars.DataFrame")
        if found.height != frame.height:
            raise ImpureStep(
                f"{name_of(self.function)} returned a table of {found.height} rows for one of {frame.height}; return a "
                f"row for each, in their order: filter before or behind the step"
            )
        if tuple(found.schema.items()) != self.made:
            raise TypeError(
                f"it returned {_shown(tuple(found.schema.items()))}, and schema= says {_shown(self.made)}; cast the "
                f"columns, or change schema="
            )
        return found


def _shown(fields: Fields) -> str:
    return ", ".join(f"{name}: {kind}" for name, kind in fields)
