"""Rows of the two sides of a join, before it and behind it.

Invariant: value i of `SideRows` *is* the tuple of a row's side, its key and the row's dict, and value i of `PairRows`
the pair of the two rows' dicts: the same canonical form, digest and record.

Why: what asks for values gets them, made once for a batch; forms of pairs are those of an array of two dicts.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, Self

import numpy as np
import polars as pl

from drift.columns.aggregates import Array
from drift.columns.forms import pieces_of_rows, pieces_of_values
from drift.columns.rows import Frame, Tabular, arrow_columns, unpacked_frame
from drift_graph.payloads import Rows

if TYPE_CHECKING:
    from drift_kernel._kernel import Piece

_PAIR = b"\x92"  # an array of two


class Key(NamedTuple):
    """How the rows of a side have their keys.

    Attributes:
        names: of fields; of one the key is its value, of several a tuple.
        function: gives the key of a row.
    """

    names: tuple[str, ...]
    function: Callable[[Any], Any]


class SideRows(Rows):
    """Rows of two sides in one order.

    Args:
        sides: of each row, 0 for the left.
        places: of each row, in the frame of its side.
        frames: of both sides.
        keys: of both sides.
    """

    __slots__ = ("sides", "places", "frames", "keys", "_values")

    has_fields = False

    def __init__(
        self,
        sides: Array,
        places: Array,
        frames: tuple[pl.DataFrame | None, pl.DataFrame | None],
        keys: tuple[Key | None, Key | None],
    ) -> None:
        self.sides, self.places, self.frames, self.keys = sides, places, frames, keys
        self._values: list[Any] | None = None

    def rows_of(self, side: int) -> Frame:
        frame = self.frames[side]
        assert frame is not None
        places = self.places[self.sides == side]
        if len(places) == frame.height and (np.diff(places) == 1).all():
            return Frame(frame)
        return Frame(frame[places])

    @property
    def values(self) -> list[Any]:
        """The tuples, made once."""
        if self._values is None:
            each: list[Iterator[Any]] = []
            for side, key in enumerate(self.keys):
                rows = self.rows_of(side).values if key is not None else ()
                function = key.function if key is not None else None
                each.append(iter([(side, function(row), row) for row in rows]))  # type: ignore[misc]
            self._values = [next(each[side]) for side in self.sides.tolist()]
        return self._values

    def __len__(self) -> int:
        return len(self.sides)

    def __getitem__(self, at: Any) -> Any:
        if not isinstance(at, slice):
            return self.values[at]
        return self._of(at)

    def _of(self, at: Any) -> Self:
        return type(self)(self.sides[at], self.places[at], self.frames, self.keys)

    @property
    def nbytes(self) -> int:
        each = sum(int(frame.estimated_size()) // (frame.height or 1) for frame in self.frames if frame is not None)
        return len(self) * (each + 9)

    def chosen(self, wanted: Sequence[int]) -> Self:
        return self._of(np.frombuffer(bytes(wanted), np.bool_))

    def in_order(self, order: Sequence[int]) -> Self:
        return self._of(np.asarray(order, np.int64))

    def joined(self, others: Sequence[Self]) -> Self | None:
        every = [self, *others]
        frames: list[pl.DataFrame | None] = []
        keys: list[Key | None] = []
        starts: list[list[int]] = []
        for side in (0, 1):
            there = [each for each in every if type(each) is SideRows and each.frames[side] is not None]
            known: list[Any] = [each.frames[side] for each in there]
            functions = [each.keys[side] for each in there]
            if any(each.schema != known[0].schema for each in known) or any(each != functions[0] for each in functions):
                return None
            heights = [0 if each.frames[side] is None else each.frames[side].height for each in every]  # type: ignore[union-attr]
            starts.append((np.cumsum(heights) - heights).tolist())
            frames.append(pl.concat(known) if known else None)
            keys.append(functions[0] if functions else None)
        places = [each.places + np.where(each.sides == 0, left, right) for each, left, right in zip(every, *starts)]
        sides = np.concatenate([each.sides for each in every])
        return type(self)(sides, np.concatenate(places), (frames[0], frames[1]), (keys[0], keys[1]))

    def remainders(self, key: Sequence[str], count: int) -> bytes | None:
        found = np.empty(len(self), np.uint8)
        for side, of_side in enumerate(self.keys):
            if of_side is None:
                continue
            rows = self.rows_of(side)
            numbers = rows.remainders(of_side.names, count) if len(rows) else b""
            if numbers is None:
                return None
            found[self.sides == side] = np.frombuffer(numbers, np.uint8)
        return found.tobytes()

    def __reduce__(self) -> Any:
        sides = [None if key is None else (key, self.rows_of(side).packed()) for side, key in enumerate(self.keys)]
        return _sides_unpacked, (self.sides.tobytes(), *sides)


def _sides_unpacked(sides: bytes, *packed: tuple[Key, Any] | None) -> SideRows:
    of = np.frombuffer(sides, np.uint8)
    places = np.empty(len(of), np.int64)
    frames: list[pl.DataFrame | None] = []
    for side, each in enumerate(packed):
        frames.append(None if each is None else unpacked_frame(each[1]))
        own = of == side
        places[own] = np.arange(np.count_nonzero(own))
    keys = [None if each is None else each[0] for each in packed]
    return SideRows(of, places, (frames[0], frames[1]), (keys[0], keys[1]))


def of_side(side: int, key: Key, rows: Frame) -> SideRows:
    frames, keys = [None, None], [None, None]
    frames[side], keys[side] = rows.frame, key  # type: ignore[call-overload]
    count = len(rows)
    return SideRows(np.full(count, side, np.uint8), np.arange(count), tuple(frames), tuple(keys))  # type: ignore[arg-type]


class PairRows(Tabular):
    """Pairs of rows: those of a DataFrame, whose columns are numbered.

    Args:
        left, right: the names of the fields of either side.
        is_outer: whether the last column says if a pair has a right row; else each has.
    """

    __slots__ = ("left", "right", "_is_outer")

    has_fields = False

    def __init__(
        self,
        frame: pl.DataFrame,
        left: tuple[str, ...],
        right: tuple[str, ...],
        is_outer: bool,
        **place: Any,
    ) -> None:
        super().__init__(frame, left, right, is_outer, **place)
        self.left, self.right, self._is_outer = left, right, is_outer

    def sides(self) -> tuple[pl.DataFrame, pl.DataFrame]:
        """The rows of both sides; where there is no right one its fields are null."""
        columns = self.frame.get_columns()
        left, right = columns[: len(self.left)], columns[len(self.left) :]
        return (
            pl.DataFrame([each.alias(name) for each, name in zip(left, self.left)]),
            pl.DataFrame([each.alias(name) for each, name in zip(right, self.right)]),
        )

    def _made_values(self) -> list[Any]:
        left, right = (Frame(each).values if each.width else [None] * len(self) for each in self.sides())
        if self._is_outer:
            right = [row if is_there else None for row, is_there in zip(right, self.frame.to_series(-1))]
        return list(zip(left, right))

    def _pieces(self, in_order: bool) -> list[Piece]:
        if self._is_outer and not self.frame.to_series(-1).all():
            return pieces_of_values(self.values)
        columns, count, end = arrow_columns(self.frame.get_columns()), len(self), len(self.left)
        left = pieces_of_rows(self.left, columns[:end], count, in_order)
        right = pieces_of_rows(self.right, columns[end : end + len(self.right)], count, in_order)
        return [_PAIR, *left, *right]


def pairs_of(left: pl.DataFrame, right: pl.DataFrame, are_there: Array | None = None) -> PairRows:
    """Pairs of rows.

    Args:
        are_there: which pairs have a right row; None if all have.
    """
    every = [*left.get_columns(), *right.get_columns()]
    if are_there is not None:
        every.append(pl.Series(are_there))
    frame = pl.DataFrame([each.alias(str(at)) for at, each in enumerate(every)])
    return PairRows(frame, tuple(left.columns), tuple(right.columns), are_there is not None)
