"""What an expression of Polars gives of each row, in place of the field of a name.

Invariant: the value of a row is the one that `with_columns` would give it as a field, in columns and of dicts.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import polars as pl

from drift.arrow import python_values
from drift.columns.expressions import Fields, expressions, frame_of, tried
from drift.operators import MapsEach
from drift_graph.errors import GraphError


@dataclass(frozen=True)
class Computed(MapsEach):
    """A function of a row that Polars computes.

    Attributes:
        schema: of the rows it takes: pairs of a name and a type.
        computed: the expression, serialized by Polars.
        kind: the type of its values.
        text: the expression as Polars writes it.
    """

    schema: Fields
    computed: bytes
    kind: Any
    text: str
    is_column: ClassVar = True
    is_field: ClassVar = True  # it has no line of its own for messages

    def __post_init__(self) -> None:
        object.__setattr__(self, "__qualname__", self.text)

    def each(self, payloads: Sequence[Any]) -> list[Any]:
        return python_values(self.column(payloads).to_arrow(compat_level=pl.CompatLevel.oldest()))

    def column(self, payloads: Any) -> pl.Series:
        """The values of rows.

        Raises:
            InputError: a payload is no row of this schema, or a value none of a row.
            PolarsError: it cannot be computed of one.
        """
        return tried(frame_of(payloads, self.schema), [("select", (self.computed,))]).rows.to_series()


def computed(fields: Fields, given: pl.Expr, where: str) -> Computed:
    """The function for an expression.

    Raises:
        GraphError: it is not row by row, gives several values, or names a field that the rows do not have.
    """
    function, made = expressions(fields, [given], {}, "select", where)
    if len(made) != 1:
        raise GraphError(f"{function.text} (at {where}) gives {len(made)} values of a row; give an expression of one")
    return Computed(fields, function.computed[0], made[0][1], function.text)
