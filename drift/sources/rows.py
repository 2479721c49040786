"""Rows of tables as payloads: the common part of sources of DataFrames and of Parquet files.

Invariant: every row before one that cannot be converted is returned before the error, which names the row, or the row
is diverted in its place; the payloads do not depend on how the table was cut into batches.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

import msgspec

from drift.extras import is_installed, need
from drift.sources.frames import Payload
from drift.sources.halved import made_of
from drift.sources.polled import Fetched, Poller, Undecodable
from drift.sources.positions import position_fields, position_lost, position_of
from drift_graph.errors import InputError, SettingsError
from drift_graph.functions import safe_text

if TYPE_CHECKING:
    import pyarrow as pa


class RowsPoller(Poller):
    """Gives the rows of batches of Arrow; the mark of a row is its number, from 1.

    Args:
        name: of the table, for errors.
        batches: in the order of the table.
        make: from a batch its payloads.
        rows: their number, if known.
        close: releases what the batches are read from.
        behind: returns the batches behind a number of rows; None if the table can be read only once.
    """

    to_do = ""

    def __init__(
        self,
        name: str,
        batches: Iterator[pa.RecordBatch],
        make: Maker,
        rows: int | None,
        close: Callable[[], None],
        behind: Callable[[int], Iterator[pa.RecordBatch]] | None,
    ) -> None:
        self.name = name
        self._close = close
        self._batches = batches
        self._make = make
        self._rows = rows
        self._batches_behind = behind
        self._batch: pa.RecordBatch | None = None
        self._at = 0  # in it
        self._fetched = self._returned = 0

    def fetch(self, items_max: int, wait_s: float) -> Fetched | None:
        while self._batch is None or self._at >= self._batch.num_rows:
            try:
                self._batch, self._at = next(self._batches, None), 0
            except InputError as error:
                raise InputError(f"{self.name}: {error}") from None
            except Exception as error:  # of a file that is damaged, or of a query
                raise InputError(
                    f"{self.name} cannot be read behind row {self._fetched}: {type(error).__name__}: {error}"
                ) from error
            if self._batch is None:
                return None
        payloads = self._make.made(self._batch.slice(self._at, items_max))
        self._at += len(payloads)
        self._fetched += len(payloads)
        return Fetched(payloads, range(self._fetched - len(payloads) + 1, self._fetched + 1))

    def behind(self, marks: Sequence[int]) -> None:
        self._returned = marks[-1]

    def location(self, mark: Any) -> str:
        return f"row {mark}"

    def position(self) -> Any:
        """How many rows were returned."""
        return None if self._batches_behind is None else position_of("rows", row=self._returned)

    def seek(self, position: Any) -> None:
        (row,) = position_fields(position, "rows", self.name, "row")
        if self._batches_behind is None:
            raise InputError(f"{self.name} can be read once only, and not from row {row}; give a table")
        if self._rows is not None and row > self._rows:
            raise position_lost(self.name, f"row {row}", f"it has {self._rows}")
        self._batches, self._fetched, self._returned, self._batch = self._batches_behind(row), row, row, None

    def close(self) -> None:
        self._close()

    def fraction(self) -> float | None:
        return self._returned / self._rows if self._rows else None

    def backlog(self) -> tuple[int, str] | None:
        return (self._rows - self._returned, "{item}") if self._rows is not None else None


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

    def made(self, batch: pa.RecordBatch) -> Any:
        """The payloads of a batch, with `Undecodable` in the place of each row that has none."""
        try:
            return self(batch)
        except InputError:
            return made_of(
                lambda rows: self(_alone(rows)),
                batch,
                lambda at, error: Undecodable(str(error), self._shown(_alone(batch.slice(at, 1)))),
            )[0]

    def in_columns(self, batch: pa.RecordBatch) -> Any:
        """As `made`, of a batch whose types are known no earlier; dicts stay columns, see `resolved_payload`."""
        if resolved_payload(self._payload, self._kind, batch.schema) == "rows":
            try:
                return Maker("", self._columns, "rows", None).plain(batch)
            except InputError:  # said below, of the row that it is about
                pass
        return self.made(batch)

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
