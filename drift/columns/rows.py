"""A batch of dicts with the same fields, stored as columns.

Invariant: row i *is* the dict with the i-th values: the same canonical form, and so the same tie, digest and record.
What asks for values gets these dicts, made once for a batch.

Why: forms are computed from the columns (`forms.py`) and dicts are made from them (`drift.arrow`), and a test compares
the two for every type.
"""

from __future__ import annotations

import io
from collections.abc import Iterator, Sequence
from typing import Any, Self, overload

import numpy as np
import polars as pl
import pyarrow as pa

from drift.arrow import common_column, payloads_of
from drift.columns.forms import forms_of_rows
from drift.strings import of_arrow
from drift_graph.errors import InputError
from drift_graph.payloads import Rows


class Frame(Rows):
    """The rows of a DataFrame of Polars.

    Attributes:
        frame: the rows; nobody changes it.
    """

    __slots__ = ("frame", "_whole", "_start", "_values", "_batch", "_forms")

    def __init__(self, frame: pl.DataFrame, whole: Frame | None = None, start: int = 0) -> None:
        self.frame = frame
        self._whole = whole  # these rows are consecutive ones of it, from `start` on: both are encoded at once
        self._start = start
        self._values: list[Any] | None = None
        self._batch: pa.RecordBatch | None = None
        self._forms: pa.Array | None = None

    def __len__(self) -> int:
        return self.frame.height

    @overload
    def __getitem__(self, at: int) -> Any: ...

    @overload
    def __getitem__(self, at: slice) -> Frame: ...

    def __getitem__(self, at: int | slice) -> Any:
        if isinstance(at, slice):
            start, end, step = at.indices(len(self))
            if step != 1:
                return Frame(self.frame[at])
            whole = (self, start) if self._whole is None else (self._whole, self._start + start)
            return Frame(self.frame.slice(start, max(end - start, 0)), *whole)
        if self._values is not None:
            return self._values[at]
        if not -len(self) <= at < len(self):
            raise IndexError(at)
        return Frame(self.frame.slice(at % len(self), 1)).values[0]

    def __iter__(self) -> Iterator[Any]:
        return iter(self.values)

    @property
    def nbytes(self) -> int:
        return int(self.frame.estimated_size())

    @property
    def values(self) -> list[Any]:
        """The rows as dicts."""
        if self._values is None:
            batch = self.batch
            self._values = payloads_of(batch.columns, batch.schema.names, "dict", batch.num_rows)
        return self._values

    @property
    def batch(self) -> pa.RecordBatch:
        """The same memory, to Arrow."""
        if self._batch is None:
            table = self.frame.to_arrow(compat_level=pl.CompatLevel.oldest()).combine_chunks()
            batches = table.to_batches()
            self._batch = batches[0] if batches else pa.RecordBatch.from_pylist([], table.schema)
        return self._batch

    def chosen(self, wanted: Sequence[int]) -> Self:
        mask = np.frombuffer(bytes(wanted), np.uint8).astype(bool)
        return type(self)(self.frame.filter(pl.Series(mask)))

    def in_order(self, order: Sequence[int]) -> Self:
        return type(self)(self.frame[np.fromiter(order, np.int64, len(order))])

    def joined(self, others: Sequence[Self]) -> Self | None:
        if any(each.frame.schema != self.frame.schema for each in others):
            return None
        return type(self)(pl.concat([self.frame, *(each.frame for each in others)], rechunk=True))

    def packed(self) -> bytes:
        written = io.BytesIO()
        self.frame.write_ipc_stream(written, compression="uncompressed")
        return written.getvalue()

    def encoded(self) -> bytes:
        return of_arrow(self._canonical()).joined().tobytes()

    def forms(self, *, stored: bool = False) -> list[bytes]:
        batch = self.batch
        found = self._canonical()
        if stored:
            found = forms_of_rows(batch.schema.names, batch.columns, batch.num_rows, in_order=False)
        return of_arrow(found).listed()

    def _canonical(self) -> pa.Array:
        if self._forms is None:
            if self._whole is not None:
                self._forms = self._whole._canonical().slice(self._start, len(self))
            else:
                self._forms = forms_of_rows(self.batch.schema.names, self.batch.columns, self.batch.num_rows)
        return self._forms

    def __reduce__(self) -> Any:
        return unpacked, (self.packed(),)

    def __eq__(self, other: object) -> bool:
        return (
            isinstance(other, Sequence) and len(self) == len(other) and all(one == two for one, two in zip(self, other))
        )

    __hash__ = None  # type: ignore[assignment]


def unpacked(data: bytes) -> Frame:
    """The inverse of `Frame.packed`; the columns are read where they are."""
    return Frame(pl.read_ipc_stream(data))


def frame_of_batch(names: Sequence[str], batch: pa.RecordBatch) -> Frame:
    """A batch of Arrow as rows, with the values of `drift.arrow`.

    Raises:
        InputError: Python has no value for one of the batch, or Polars no type.
    """
    columns = []
    for name, column in zip(names, batch.columns):
        if "\0" in name:
            raise InputError(f"the name of column {name!r} has a zero character, which Polars does not take; rename it")
        try:
            columns.append(pl.Series(name, common_column(column)))
        except (pa.ArrowException, ValueError, OverflowError, pl.exceptions.PolarsError) as error:
            raise InputError(
                f"column {name!r}, of type {column.type}, cannot be a column of rows: {error}; cast the column, or "
                f"take payload='dict'"
            ) from error
    return Frame(pl.DataFrame(columns))
