"""Rows of tables as payloads: the common part of sources of DataFrames and of Parquet files.

Invariant: every row before one that cannot be converted is returned before the error, which names the row, or the row
is diverted in its place; the payloads do not depend on how the table was cut into batches.

Why: if a batch cannot be converted, halves of it are, and at last the rows that cannot, each by itself.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

import msgspec

from drift.extras import is_installed, need
from drift.sources.frames import Payload
from drift.sources.polled import Undecodable
from drift.sources.positions import position_fields, position_lost, position_of
from drift_graph.diverted import diverted
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
        diverts_as: the source's name, if rows that cannot be converted are diverted.
    """

    def __init__(
        self,
        name: str,
        batches: Iterator[pa.RecordBatch],
        make: Maker,
        rows: int | None = None,
        close: Callable[[], None] = lambda: None,
        behind: Callable[[int], Iterator[pa.RecordBatch]] | None = None,
        diverts_as: str = "",
    ) -> None:
        self._diverts_as = diverts_as
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
            except InputError as error:
                self._error = InputError(f"{self._name}: {error}")
                raise self._error from None
            except Exception as error:  # of a file that is damaged, or of a query
                self._error = InputError(
                    f"{self._name} cannot be read behind row {self._returned}: {type(error).__name__}: {error}"
                )
                raise self._error from error
            if self._batch is None:
                return None
        rows = self._batch.slice(self._at, items_max)
        payloads: list[Any] = []
        for part in self._make.parts(rows):
            if type(part) is not Undecodable:
                payloads = part if len(part) == rows.num_rows else payloads + list(part)
                continue
            nth = self._returned + len(payloads) + 1
            if not self._diverts_as:
                self._error = InputError(f"{self._name}, row {nth}: {part.why}")
                if not payloads:
                    raise self._error
                break
            payloads.append(diverted(f"{self._diverts_as}, row {nth}", part.why, part.found))
        self._at += len(payloads)
        self._returned += len(payloads)
        return payloads

    def position(self) -> Any:
        """How many rows were returned."""
        return None if self._behind is None else position_of("rows", row=self._returned)

    def seek(self, position: Any) -> None:
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

    def backlog(self) -> tuple[int, str] | None:
        return (self._rows - self._returned, "{item}") if self._rows is not None else None

    def close(self) -> None:
        self._batch = None
        self._close()


def without(rows: int, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Batches without this many leading rows. Raises InputError: there are fewer."""
    left = rows
    for batch in batches:
        if left < batch.num_rows:
            yield batch.slice(left)
        left = max(left - batch.num_rows, 0)
    if left:
        raise InputError(f"it had {rows:,} rows when the state of this run was saved, and now has {rows - left:,}")


class Maker:
    """The function from batches with these columns to payloads.

    Args:
        kind: each payload is converted to it, for instance a dataclass or a msgspec Struct; None for the plain payload.
        has_texts: whether texts are known to be UTF-8.
    """

    def __init__(
        self, name: str, columns: Sequence[str], payload: Payload, kind: Any, *, has_texts: bool = False
    ) -> None:
        if payload == "value" and len(columns) != 1:
            raise InputError(f"{name}: payload='value' takes a table of one column, and this has {', '.join(columns)}")
        if payload in ("dict", "rows") and len(set(columns)) < len(columns):
            raise InputError(f"{name}: two columns have one name: {', '.join(columns)}; payload='tuple' takes them")
        if payload == "rows" and not columns:
            raise InputError(f"{name}: it has no columns, and so no rows to take as such; payload='dict' takes them")
        self._columns = columns
        self._payload: Payload = payload
        self._kind = kind
        self._has_texts = has_texts

    def plain(self, batch: pa.RecordBatch) -> list[Any]:
        """The payloads, not converted."""
        if self._payload == "rows":
            from drift.columns.rows import frame_of_batch

            return frame_of_batch(self._columns, batch, has_texts=self._has_texts)  # type: ignore[return-value]
        from drift.arrow import payloads_of

        return payloads_of(batch.columns, self._columns, self._payload, batch.num_rows)

    def __call__(self, batch: pa.RecordBatch) -> list[Any]:
        payloads = self.plain(batch)
        return payloads if self._kind is None else _converted(payloads, self._kind)

    def parts(self, batch: pa.RecordBatch) -> Iterator[Any]:
        """The payloads of a batch: at once, or in parts, with `Undecodable` in the place of each row that has none."""
        try:
            yield self(batch)
            return
        except InputError:
            parts = [(0, batch.num_rows)]
        while parts:
            start, count = parts.pop()
            rows = _alone(batch.slice(start, count))
            try:
                yield self(rows)
            except InputError as error:
                if count == 1:
                    yield Undecodable(str(error), self._shown(rows))
                else:
                    half = count // 2
                    parts += [(start + half, count - half), (start, half)]

    def _shown(self, row: pa.RecordBatch) -> Any:
        """A row that has no payload, for people: with texts in place of the values that Python has not."""
        from drift.arrow import shown

        values = list(map(shown, row.columns))
        if self._payload == "value":
            return values[0]
        return tuple(values) if self._payload == "tuple" else dict(zip(self._columns, values))


def resolved_payload(payload: Payload, kind: Any, schema: pa.Schema) -> Payload:
    """What `payload=` is for a table: dicts that are not converted are rows, if these have all its types.

    Why: a row is its dict, so nothing that is given of it differs; what takes columns takes a fraction of the time.
    """
    names = schema.names
    if payload != "dict" or kind is not None or not names or len(set(names)) < len(names):
        return payload
    if not is_installed("columns"):
        return payload
    import pyarrow as pa

    from drift.columns.rows import frame_of_batch

    try:
        empty = [each.combine_chunks() for each in schema.empty_table().columns]
        frame_of_batch(names, pa.RecordBatch.from_arrays(empty, schema=schema))
    except (InputError, pa.ArrowException):
        return "dict"
    return "rows"


def _alone(rows: pa.RecordBatch) -> pa.RecordBatch:
    """Rows without what other rows of their batch have in lists and structs, of which Arrow would cast all."""
    if not any(kind.num_fields for kind in rows.schema.types):
        return rows
    import pyarrow as pa

    written = pa.BufferOutputStream()
    with pa.ipc.new_stream(written, rows.schema) as stream:  # `take` knows no views of text
        stream.write_batch(rows)
    return pa.ipc.open_stream(written.getvalue()).read_next_batch()


def check_payload(function: str, payload: str, kind: Any) -> None:
    """Raises SettingsError: the arguments of a source of rows are not valid."""
    if payload not in ("dict", "tuple", "value", "rows"):
        raise SettingsError(f"{function} payload={payload!r:.80} is neither 'dict', 'tuple', 'value' nor 'rows'")
    if payload == "rows":
        need("columns", f"{function} with payload='rows'")
        if kind is not None:
            raise SettingsError(f"{function} with payload='rows' takes no type={kind!r:.80}: rows are dicts")
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
