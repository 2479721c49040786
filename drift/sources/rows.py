"""Rows of tables as payloads: the common part of sources of DataFrames and of Parquet files.

Invariant: every row before one that cannot be converted is returned before the error, which names the row; the payloads
do not depend on how the table was cut into batches.

Why: if a batch cannot be converted, its rows are taken one by one up to the bad one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

import msgspec

from drift.sources.frames import Payload
from drift.sources.positions import position_fields, position_lost, position_of
from drift_graph.errors import InputError, SettingsError
from drift_graph.functions import safe_text

if TYPE_CHECKING:
    import pyarrow as pa


class RowsReader:
    """Reads batches of Arrow.

    Args:
        name: of the table, for errors.
        batches: in the order of the table.
        make: from a batch its payloads.
        rows: their number, if known.
        close: releases what the batches are read from.
        behind: returns the batches behind a number of rows; None if the table can be read only once.
    """

    def __init__(
        self,
        name: str,
        batches: Iterator[pa.RecordBatch],
        make: Callable[[pa.RecordBatch], list[Any]],
        rows: int | None = None,
        close: Callable[[], None] = lambda: None,
        behind: Callable[[int], Iterator[pa.RecordBatch]] | None = None,
    ) -> None:
        self._behind = behind
        self._name = name
        self._batches = batches
        self._make = make
        self._rows = rows
        self._close = close
        self._batch: pa.RecordBatch | None = None
        self._at = 0
        self._returned = 0
        self._error: Exception | None = None

    def read(self, items_max: int) -> list[Any] | None:
        if self._error is not None:
            raise self._error
        while self._batch is None or self._at >= self._batch.num_rows:
            try:
                self._batch, self._at = next(self._batches, None), 0
            except Exception as error:  # of a file that is damaged, or of a query
                self._error = InputError(
                    f"{self._name} cannot be read behind row {self._returned}: {type(error).__name__}: {error}"
                )
                raise self._error from error
            if self._batch is None:
                return None
        rows = self._batch.slice(self._at, items_max)
        try:
            payloads = self._make(rows)
        except InputError:
            payloads = self._up_to_the_fault(rows)
            if not payloads and self._error is not None:
                raise self._error from None
        self._at += len(payloads)
        self._returned += len(payloads)
        return payloads

    def _up_to_the_fault(self, rows: pa.RecordBatch) -> list[Any]:
        payloads: list[Any] = []
        for at in range(rows.num_rows):
            try:
                payloads += self._make(rows.slice(at, 1))
            except InputError as error:
                self._error = InputError(f"{self._name}, row {self._returned + at + 1}: {error}")
                self._error.__cause__ = error.__cause__
                break
        return payloads

    def position(self) -> Any:
        """See `Positioned`: how many rows were returned."""
        return None if self._behind is None else position_of("rows", row=self._returned)

    def seek(self, position: Any) -> None:
        """See `Positioned`."""
        (row,) = position_fields(position, "rows", self._name, "row")
        if self._behind is None:
            raise InputError(f"{self._name} can be read once only, and not from row {row}; give a table")
        if self._rows is not None and row > self._rows:
            raise position_lost(self._name, f"row {row}", f"it has {self._rows}")
        self._batches, self._returned = self._behind(row), row

    def filenos(self) -> Sequence[int]:
        return ()

    def fraction(self) -> float | None:
        """How much of the table has been read, 0 to 1."""
        return self._returned / self._rows if self._rows else None

    def close(self) -> None:
        self._batch = None
        self._close()


def without(rows: int, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Batches without this many leading rows."""
    for batch in batches:
        if rows < batch.num_rows:
            yield batch.slice(rows)
        rows = max(rows - batch.num_rows, 0)


def maker(name: str, columns: Sequence[str], payload: Payload, kind: Any) -> Callable[[pa.RecordBatch], list[Any]]:
    """The function from batches with these columns to payloads.

    Args:
        kind: each payload is converted to it, for instance a dataclass or a msgspec Struct; None for the plain payload.
    """
    from drift.arrow import payloads_of

    if payload == "value" and len(columns) != 1:
        raise InputError(f"{name}: payload='value' takes a table of one column, and this has {', '.join(columns)}")
    if payload == "dict" and len(set(columns)) < len(columns):
        raise InputError(f"{name}: two columns have one name: {', '.join(columns)}; payload='tuple' takes them")

    def make(batch: pa.RecordBatch) -> list[Any]:
        payloads = payloads_of(batch.columns, columns, payload, batch.num_rows)
        return payloads if kind is None else _converted(payloads, kind)

    return make


def check_payload(function: str, payload: str, kind: Any) -> None:
    """Raises:
    SettingsError: the arguments of a source of rows are not valid.
    """
    if payload not in ("dict", "tuple", "value"):
        raise SettingsError(f"{function} payload={payload!r:.80} is neither 'dict', 'tuple' nor 'value'")
    try:
        msgspec.json.Decoder(Any if kind is None else kind)
    except TypeError as error:
        raise SettingsError(f"{function} type={kind!r:.80}: {error}") from None


def _converted(payloads: list[Any], kind: Any) -> list[Any]:
    try:
        return msgspec.convert(payloads, list[kind])
    except msgspec.ValidationError as error:
        shown = safe_text(repr, payloads[0], 200)
        raise InputError(f"it is no {getattr(kind, '__qualname__', kind)}: {error}; it is {shown}") from None
