"""A batch of dicts with the same fields, stored as columns.

Invariant: row i *is* the dict with the i-th values: the same canonical form, and so the same tie, digest and record.
What asks for values gets these dicts, made once for a batch.

Why: forms are computed from the columns (`forms.py`) and dicts are made from them (`drift.arrow`), and a test compares
the two for every type.
"""

from __future__ import annotations

import io
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any, Self, overload

import numpy as np
import polars as pl
import pyarrow as pa

from drift.arrow import check_values, common_column, payloads_of
from drift.columns.forms import forms_of_rows, pieces_of_rows, pieces_of_tuples
from drift.columns.gathered import Gathered, joined
from drift.columns.times import TimedRows, Times, times_of_column
from drift_graph.canonical import encode_many, hash64_each
from drift_graph.errors import InputError
from drift_graph.payloads import Rows, Timed
from drift_graph.policies import EventTime
from drift_kernel import kernel

if TYPE_CHECKING:
    from drift_kernel._kernel import Piece, RowForms

_AS_VIEWS, _TEXTS = pl.CompatLevel.newest(), (pl.String, pl.Binary)  # short texts are in the views, and not copied
_NOT_MADE = pl.DataFrame()
_KEY_TYPES = (pl.String, pl.Int8, pl.Int16, pl.Int32, pl.Int64, pl.UInt8, pl.UInt16, pl.UInt32, pl.UInt64)
#: Of one type in Polars, so that no common one has to be made of them before.
_TEXT_TYPES = (pa.string(), pa.large_string(), pa.string_view(), pa.binary(), pa.large_binary(), pa.binary_view())


class Tabular(Rows):
    """Values that are made from the rows of a DataFrame of Polars.

    Args:
        more: what else the values are made by; values of equal ones are joined.

    Attributes:
        sample: of the values as they were made, if they were made and are watched.
    """

    __slots__ = ("_frame", "_more", "_whole", "_start", "_values", "_forms", "_sampling", "sample")

    def __init__(self, frame: pl.DataFrame, *more: Any, whole: Self | None = None, start: int = 0) -> None:
        self._frame = frame
        self._more = more
        self._whole = whole  # these rows are consecutive ones of it, from `start` on: both are encoded at once
        self._start = start
        self._values: list[Any] | None = None
        self._forms: RowForms | None = None
        self._sampling: Callable[[list[Any]], Any] | None = None
        self.sample: Any = None

    def __len__(self) -> int:
        return self.frame.height

    @property
    def frame(self) -> pl.DataFrame:
        """The rows; nobody changes it."""
        return self._frame

    @overload
    def __getitem__(self, at: int) -> Any: ...

    @overload
    def __getitem__(self, at: slice) -> Self: ...

    def __getitem__(self, at: int | slice) -> Any:
        if isinstance(at, slice):
            start, end, step = at.indices(len(self))
            if step != 1:
                return self._of(self.frame[at])
            if start == 0 and end == len(self):
                return self  # with the values, if they were made
            rows = self._slice(start, max(end - start, 0))
            return self._of(rows, self if self._whole is None else self._whole, self._start + start)
        if self._values is not None:
            return self._values[at]
        if not -len(self) <= at < len(self):
            raise IndexError(at)
        return self._of(self._slice(at % len(self), 1)).values[0]

    @property
    def nbytes(self) -> int:
        return int(self.frame.estimated_size())

    def _slice(self, start: int, count: int) -> Any:
        """So many rows from `start` on, as `_of` takes them."""
        return self.frame.slice(start, count)

    def _of(self, frame: Any, whole: Self | None = None, start: int = 0) -> Self:
        """Other rows of the same kind."""
        return type(self)(frame, *self._more, whole=whole, start=start)

    @property
    def values(self) -> list[Any]:
        """The values, made once."""
        if self._values is None:
            self._values = self._made_values()
            if self._sampling is not None:
                self.sample = self._sampling(self._values)
        return self._values

    def watch(self, sample: Callable[[list[Any]], Any]) -> None:
        self._sampling = sample
        if self._values is not None and self.sample is None:
            self.sample = sample(self._values)

    def _made_values(self) -> list[Any]:
        raise NotImplementedError

    def _pieces(self, in_order: bool) -> list[Piece]:
        """The pieces of the forms of the rows; see `drift.columns.forms`."""
        raise NotImplementedError

    def chosen(self, wanted: Sequence[int]) -> Self:
        mask = np.frombuffer(bytes(wanted), np.bool_)
        return self._of(self.frame.filter(pl.Series(mask)))

    def in_order(self, order: Sequence[int]) -> Self:
        return self._of(self.frame[np.asarray(order, np.int64)])

    def joined(self, others: Sequence[Self]) -> Self | None:
        if any(type(each) is not type(self) or each._more != self._more for each in others):
            return None
        if any(each.frame.schema != self.frame.schema for each in others):
            return None
        return self._of(pl.concat([self.frame, *(each.frame for each in others)], rechunk=True))

    def packed(self) -> pa.RecordBatch | bytes:
        """The columns for another process of the run, see `unpacked_frame`."""
        return packed_frame(self.frame)

    def encoded(self, start: int = 0, stop: int | None = None) -> bytes:
        if kernel is None:
            return encode_many(self.values[start:stop])
        forms, first = self._canonical()
        return forms.joined(first + start, first + (len(self) if stop is None else stop))

    def forms(self, *, stored: bool = False) -> list[bytes]:
        if kernel is None:
            return super().forms(stored=stored)
        if stored:
            return forms_of_rows(self._pieces(False), len(self), False).each(0, len(self))
        forms, start = self._canonical()
        return forms.each(start, start + len(self))

    def for_turns(self) -> tuple[RowForms, int]:
        return self._canonical()

    def hashes(self) -> bytes:
        if kernel is None:
            return hash64_each(self.values)
        forms, start = self._canonical()
        return forms.hashes(start, start + len(self))

    def _canonical(self) -> tuple[RowForms, int]:
        """The forms of these rows among others, and the first of them."""
        whole = self if self._whole is None else self._whole
        if whole._forms is None:
            whole._forms = forms_of_rows(whole._pieces(True), len(whole), True)
        return whole._forms, self._start

    def __eq__(self, other: object) -> bool:
        return (
            isinstance(other, Sequence) and len(self) == len(other) and all(one == two for one, two in zip(self, other))
        )

    __hash__ = None  # type: ignore[assignment]

    def __reduce__(self) -> Any:
        return _unpacked, (type(self), self.packed(), *self._more)


class Frame(Tabular):
    """Dicts: the rows of a DataFrame, by the names of its columns.

    Args:
        frame: the rows; or where they are, so that columns are gathered when they are asked for.
        values: of the rows, if they are known.
    """

    __slots__ = ("_gathered", "_batch")

    def __init__(
        self,
        frame: pl.DataFrame | Gathered,
        *,
        whole: Self | None = None,
        start: int = 0,
        values: list[Any] | None = None,
    ) -> None:
        self._gathered: Gathered | None = None
        if isinstance(frame, Gathered):
            self._gathered, frame = frame, _NOT_MADE
        super().__init__(frame, whole=whole, start=start)
        self._values = values
        self._batch: pa.RecordBatch | None = None

    def __len__(self) -> int:
        gathered = self._gathered
        return self._frame.height if gathered is None else len(gathered)

    @property
    def frame(self) -> pl.DataFrame:
        gathered, whole = self._gathered, self._whole
        if gathered is not None:
            if whole is not None and whole._gathered is None:
                self._frame = whole._frame.slice(self._start, len(gathered))
            else:
                self._frame = gathered.frame()
            self._gathered = None  # last: another thread may ask for columns meanwhile
        return self._frame

    @property
    def schema(self) -> pl.Schema:
        """The names of the fields, and their types as columns."""
        gathered = self._gathered
        return self._frame.schema if gathered is None else gathered.schema

    def part(self, names: Sequence[str]) -> pl.DataFrame:
        """The rows with these of their fields only."""
        return pl.DataFrame([self._column(name) for name in names])

    def _column(self, name: str) -> pl.Series:
        gathered = self._gathered
        return self._frame.get_column(name) if gathered is None else gathered.column(name)

    @property
    def nbytes(self) -> int:
        gathered = self._gathered
        return super().nbytes if gathered is None else gathered.nbytes

    def _slice(self, start: int, count: int) -> pl.DataFrame | Gathered:
        gathered = self._gathered
        return self._frame.slice(start, count) if gathered is None else gathered.at(slice(start, start + count))

    def _where(self) -> Gathered:
        gathered = self._gathered
        return Gathered([self._frame], np.arange(len(self))) if gathered is None else gathered

    def chosen(self, wanted: Sequence[int]) -> Self:
        return self._of(self._where().at(np.frombuffer(bytes(wanted), np.bool_)).unless_few())

    def in_order(self, order: Sequence[int]) -> Self:
        gathered, places = self._gathered, np.asarray(order, np.int64)
        made = Gathered([self._frame], places) if gathered is None else gathered.at(places)
        found = self._of(made.unless_few())
        if self._values is not None:
            found._values = list(map(self._values.__getitem__, places.tolist()))
        return found

    def joined(self, others: Sequence[Self]) -> Self | None:
        every = [self, *others]
        if any(type(each) is not Frame or each.schema != self.schema for each in every):
            return None
        if all(each._gathered is None for each in every):
            return super().joined(others)
        return self._of(joined([each._where() for each in every]))

    def _made_values(self) -> list[Any]:
        batch = self.batch
        return payloads_of(batch.columns, batch.schema.names, "dict", batch.num_rows)

    @property
    def batch(self) -> pa.RecordBatch:
        """The rows to Arrow, in the memory where they are."""
        if self._batch is None:
            self._batch = _one_batch(self.frame.to_arrow(compat_level=pl.CompatLevel.oldest()))
        return self._batch

    def with_columns(self, columns: Sequence[pl.Series]) -> Self:
        """These rows with further columns, or others in place of some."""
        return type(self)(self.frame.with_columns(columns))

    def field(self, name: str) -> list[Any] | None:
        batch = self.batch
        at = batch.schema.get_field_index(name)
        return None if at < 0 else payloads_of([batch.column(at)], [name], "value", batch.num_rows)

    def remainders(self, key: Sequence[str], count: int) -> bytes | None:
        if kernel is None or any(self.schema.get(name) not in _KEY_TYPES for name in key):
            return None
        columns = [each.rechunk() for each in map(self._column, key)]
        pieces = pieces_of_tuples(arrow_columns(columns))
        return forms_of_rows(pieces, len(self), True).remainders(0, len(self), count)

    def has_nulls(self, names: Sequence[str]) -> bool:
        """Whether one of these fields has a null, or there is no such field."""
        columns = [self.column(name) for name in names]
        return any(each is None or each.null_count() > 0 for each in columns)

    def column(self, of: Any) -> pl.Series | None:
        """A field by its name, or what something computes of the rows; None if they have no such, or it raises."""
        if type(of) is str:
            return self._column(of) if of in self.schema else None
        try:
            return of.column(self)  # type: ignore[no-any-return]
        except (InputError, pl.exceptions.PolarsError):  # raised again where it is of single rows
            return None

    def timed(self, time: Any, tie: Any, policy: EventTime) -> Timed | None:
        column = self.column(time)
        times = None if column is None else times_of_column(column, policy)
        return None if times is None else self.timed_at(times, tie)

    def timed_at(self, times: Times, tie: Any) -> TimedRows | None:
        """The rows with their times, one or more, and their ties; None if these are in no column."""
        ties = None if tie is None else self.column(tie)
        return None if ties is None and tie is not None else TimedRows(times, self, ties)

    def _pieces(self, in_order: bool) -> list[Piece]:
        if self._batch is not None or not in_order:
            return pieces_of_rows(self.batch.schema.names, self.batch.columns, len(self), in_order)
        return pieces_of_rows(self.frame.columns, arrow_columns(self.frame.get_columns()), len(self), in_order)


def arrow_columns(columns: Iterable[pl.Series]) -> list[pa.Array]:
    """Columns as arrays of Arrow, for their forms."""
    return [
        each.to_arrow(compat_level=_AS_VIEWS if each.dtype in _TEXTS else pl.CompatLevel.oldest()) for each in columns
    ]


def _one_batch(table: pa.Table) -> pa.RecordBatch:
    batches = table.combine_chunks().to_batches()
    return batches[0] if batches else pa.RecordBatch.from_pylist([], table.schema)


def packed_frame(frame: pl.DataFrame) -> pa.RecordBatch | bytes:
    """The columns for another process of the run: of Arrow, whose memory a pickle may leave where it is."""
    try:
        return _one_batch(frame.to_arrow(compat_level=_AS_VIEWS))
    except pa.ArrowException:  # it has no integers of 128 bits
        written = io.BytesIO()
        frame.write_ipc_stream(written, compression="uncompressed")
        return written.getvalue()


def unpacked_frame(packed: pa.RecordBatch | bytes) -> pl.DataFrame:
    """The inverse of `packed_frame`; the columns are read where they are."""
    if isinstance(packed, bytes):
        return pl.read_ipc_stream(packed)
    return pl.DataFrame(pl.from_arrow(packed))


def _unpacked(kind: type[Tabular], packed: pa.RecordBatch | bytes, *more: Any) -> Tabular:
    return kind(unpacked_frame(packed), *more)


def frame_of_batch(names: Sequence[str], batch: pa.RecordBatch, *, has_texts: bool = False) -> Frame:
    """A batch of Arrow as rows, with the values of `drift.arrow`.

    Args:
        has_texts: whether its texts are known to be UTF-8.

    Raises:
        InputError: Python has no value for one of the batch, or Polars no type.
    """
    columns = []
    for name, column in zip(names, batch.columns):
        if not name or "\0" in name:
            raise InputError(f"a column of rows cannot have the name {name!r}; rename it, or take payload='dict'")
        try:
            common = column if column.type in _TEXT_TYPES else common_column(column)
            if not (has_texts and common.type in _TEXT_TYPES):
                check_values(common)
            columns.append(pl.Series(name, common))
        except (pa.ArrowException, ValueError, OverflowError, pl.exceptions.PolarsError) as error:
            raise InputError(
                f"column {name!r}, of type {column.type}, cannot be a column of rows: {error}; cast the column, or "
                f"take payload='dict'"
            ) from error
    return Frame(pl.DataFrame(columns))
