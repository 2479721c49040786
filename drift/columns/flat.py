"""Joined rows: the fields of the left row, and those of the right one behind them.

Invariant: a row joined in columns is the dict of the two rows' dicts, by the names that were found when the step was
written; and that is what it is on every engine.

Why: rows of either side are checked against the fields of their stream before they are put side by side.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import polars as pl

from drift.columns.aggregates import Array
from drift.columns.expressions import Fields, frame_of
from drift.columns.rows import Frame
from drift.columns.sided import PairRows
from drift.operators import GivesRows, _ByValue
from drift_graph.errors import GraphError

_SUFFIX = "_right"


class Names(_ByValue, frozen=True):
    """How the fields of two sides are named in their joined row.

    Attributes:
        left, right: the fields of the sides.
        taken: of the right, the names of those that are in the row, and what they are there.
    """

    left: Fields
    right: Fields
    taken: tuple[tuple[str, str], ...]

    @property
    def fields(self) -> Fields:
        kinds = dict(self.right)
        return (*self.left, *((name, kinds[of]) for of, name in self.taken))

    def joined(self, left: pl.DataFrame, right: pl.DataFrame) -> Frame:
        """The rows of both sides, which are as many, side by side."""
        return Frame(left.with_columns([right.get_column(of).alias(name) for of, name in self.taken]))


def names_of_both(left: Fields, right: Fields, left_out: Sequence[str], what: str) -> Names:
    """The names of joined rows: a field of the right that the left has too is called as in Polars, `name_right`.

    Args:
        left_out: fields of the right that are not in the row.
        what: the step, for errors.

    Raises:
        GraphError: two fields would have one name.
    """
    used = {name for name, _ in left}
    taken = []
    for of, _ in right:
        if of in left_out:
            continue
        name = of + _SUFFIX if of in used else of
        if name in used:
            raise GraphError(f"{what} would have two fields {name!r}; rename one of them with select before the join")
        used.add(name)
        taken.append((of, name))
    return Names(left, right, tuple(taken))


class FlatPair(GivesRows, _ByValue, frozen=True):
    """A pair of rows, of which one may be None, as one row."""

    names: Names

    def each(self, payloads: Sequence[Any]) -> Any:
        """
        Raises:
            InputError: a row has not the fields of its side.
        """
        if isinstance(payloads, PairRows):
            left, right = payloads.sides()
            if left.schema == pl.Schema(self.names.left) and right.schema == pl.Schema(self.names.right):
                return self.names.joined(left, right)
        lefts, rights = zip(*payloads)
        return self.names.joined(_side(lefts, self.names.left), _side(rights, self.names.right))


def _side(rows: Sequence[Any], fields: Fields) -> pl.DataFrame:
    """The rows of one side; of None all fields are null."""
    there = [row for row in rows if row is not None]
    frame = frame_of(there, fields)
    if len(there) == len(rows):
        return frame
    are_there = np.array([row is not None for row in rows], np.bool_)
    return rows_at(frame, np.where(are_there, np.cumsum(are_there) - 1, -1))


def rows_at(frame: pl.DataFrame, places: Array) -> pl.DataFrame:
    """The rows at these places; at -1 all fields are null."""
    if not (places < 0).any():
        return frame[places]
    at = pl.Series(places)
    return frame.select(pl.all().gather(at.set(at < 0, None)))
