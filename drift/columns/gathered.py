"""Rows chosen from frames, whose columns are gathered when somebody asks for them.

Invariant: row i is row `order[i]` of the frames one after the other.

Why: rows in event time are sorted, merged and cut before anybody looks at them, and then mostly at a few columns. So
what is sorted and cut is where the rows are; a column is copied once, if it is asked for, and one that nobody needs is
never copied.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import polars as pl

Places = npt.NDArray[np.int64]

#: Rows that are fewer than one of so many of those in their frames are copied: they would keep all of them in memory.
_FEW = 4


class Gathered:
    """See the module.

    Args:
        frames: one or more, with one schema; nobody changes them.
    """

    __slots__ = ("frames", "order", "_index", "_columns")

    def __init__(self, frames: Sequence[pl.DataFrame], order: Places) -> None:
        self.frames, self.order = frames, order
        self._index: pl.Series | None = None
        self._columns: dict[str, pl.Series] = {}

    def __len__(self) -> int:
        return len(self.order)

    @property
    def schema(self) -> pl.Schema:
        return self.frames[0].schema

    @property
    def nbytes(self) -> int:
        """About the size of the rows, once they are copied."""
        height = sum(each.height for each in self.frames)
        return sum(int(each.estimated_size()) for each in self.frames) * len(self) // max(height, 1)

    def column(self, name: str) -> pl.Series:
        """A column of the rows, gathered once."""
        found = self._columns.get(name)
        if found is None:
            if self._index is None:
                self._index = pl.Series(self.order.astype(np.uint32))  # without a sign it need not be looked at
            parts = [each.get_column(name) for each in self.frames]
            every = parts[0] if len(parts) == 1 else pl.concat(parts, rechunk=not self.are_few)
            found = self._columns[name] = every[self._index]
        return found

    def frame(self) -> pl.DataFrame:
        return pl.DataFrame([self.column(name) for name in self.schema])

    def at(self, places: Any) -> Gathered:
        """The rows at these places: indices, flags or a slice."""
        return Gathered(self.frames, self.order[places])

    def unless_few(self) -> Gathered | pl.DataFrame:
        """These; or all columns, if they are few of the rows in their frames."""
        return self.frame() if self.are_few else self

    @property
    def are_few(self) -> bool:
        """Whether they are few of the rows in their frames."""
        return len(self) * _FEW < sum(each.height for each in self.frames)


def joined(several: Sequence[Gathered]) -> Gathered:
    """The rows of several, one after the other; a frame that is in several of them is there once.

    Few rows of their frames are copied, unless more rows of these are among the others: else frames whose rows were
    nearly all taken out would be joined with others again and again.
    """
    whole = {id(frame) for each in several if not each.are_few for frame in each.frames}
    frames: list[pl.DataFrame] = []
    begins: dict[int, int] = {}  # of each frame its first row among all, by `id`: `frames` holds them
    end, orders = 0, []
    for each in several:
        if each.are_few and whole.isdisjoint(map(id, each.frames)):
            each = Gathered([each.frame()], np.arange(len(each)))
        firsts, shifts, first = [], [], 0
        for frame in each.frames:
            if id(frame) not in begins:
                begins[id(frame)] = end
                frames.append(frame)
                end += frame.height
            firsts.append(first)
            shifts.append(begins[id(frame)] - first)
            first += frame.height
        if len(shifts) == 1:
            orders.append(each.order + shifts[0] if shifts[0] else each.order)
        else:
            orders.append(each.order + np.array(shifts)[np.searchsorted(firsts, each.order, side="right") - 1])
    return Gathered(frames, np.concatenate(orders))
