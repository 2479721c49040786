"""Tables in memory: DataFrames of pandas and Polars, tables of Arrow, relations of DuckDB.

Invariant: a table gives its rows in their order, and equal tables equal payloads, whichever library made them; what
else is done with the library meanwhile, for instance another query on its connection, changes none of them.

Why: every table is read as batches of Arrow, through the one way from its columns to Python values. A table that is
computed is computed whole when it is opened: some libraries end its stream early, without an error, if their connection
is used for something else (DuckDB 1.5.4 to 1.5.6).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, Literal

from drift.extras import need
from drift.guarantees import SourceGuarantee
from drift.sources.base import OwnSource, Reader
from drift.sources.frames import Payload
from drift.sources.polled import AsMade, Fetched, FiniteReader, Undecodable
from drift.sources.positions import LastRead, position_lost
from drift.sources.rows import Maker, RowsPoller, check_payload, resolved_payload, without
from drift_graph.errors import InputError, SettingsError
from drift_graph.payloads import are_rows

if TYPE_CHECKING:
    import pyarrow as pa


def table(frame: Any, *, payload: Literal["dict", "tuple", "value", "rows"] = "dict", type: Any = None) -> TableSource:
    """A table as a source: each row is a payload, in the order of the table. DataFrames can also be passed directly.

    A relation of DuckDB, as each table that its library computes when it is asked for, is computed when the run begins,
    and is in memory from then on; what does not fit there is read from a file, or as a `pyarrow.RecordBatchReader`,
    which belongs to the run until it ends.

    Timestamps become datetimes in microseconds, in UTC if they have a zone; missing values (null, and NaN and NaT of
    pandas) become None; categories become their values; structs become dicts. The index of a pandas DataFrame is no
    column: one with a name, or of anything but integers, is refused.

    >>> import drift, pyarrow
    >>> graph = drift.Graph("fares")
    >>> graph.source("fares").sink("out")
    >>> fares = drift.sources.table(pyarrow.table({"fare": [30.5, 9.0]}), payload="value")
    >>> [item.payload for item in drift.run(graph, {"fares": fares})]
    [30.5, 9.0]

    Args:
        frame: a DataFrame of pandas or Polars, a table or batch of PyArrow, a relation of DuckDB, or anything else with
            Arrow's stream interface. For a DataFrame of Spark pass `frame.toArrow()`.
        payload: "dict" of column names and values, which stay columns until a function asks for one (extra `columns`);
            a "tuple" of the values, or the "value" of the only column. "rows": as "dict", or an error where a column
            has no such type, as a map has none.
        type: each row, as a dict, is converted to it, for instance a dataclass or a msgspec Struct.

    Raises:
        SettingsError: `frame` has no rows that Arrow can read, or `type` is given for payloads that are no dicts.
    """
    need("tables", "drift.sources.table")
    check_payload("table", payload, type)
    if not is_table(frame):
        raise SettingsError(
            f"drift.sources.table({frame!r:.80}) is given neither a DataFrame of pandas or Polars nor a table of Arrow"
        )
    return TableSource(frame, payload, type)


def is_table(values: Any) -> bool:
    """Whether it has rows that Arrow can read."""
    kind = type(values)
    has_columns = hasattr(kind, "columns") or hasattr(kind, "schema")
    return has_columns and any(hasattr(kind, name) for name in ("__arrow_c_stream__", "__arrow_c_array__"))


class TableSource(OwnSource):
    """The rows of a table, or of what has rows that Arrow can read; `table` makes it."""

    guarantee = SourceGuarantee("from a position", "the number of a row, as long as the table is there")

    def __init__(self, frame: Any, payload: Payload, kind: Any) -> None:
        if _is_read_once(frame):
            self.guarantee = SourceGuarantee("not at all", f"a {type(frame).__name__} is read once")
        self.read_once = frame if _is_read_once(frame) else None
        self._frame = frame
        self._payload = payload
        self._kind = kind

    def open(self) -> Reader:
        name = f"the {type(self._frame).__name__}"
        stream = _Stream(name, self._frame)
        payload = resolved_payload(self._payload, self._kind, stream.schema)
        make = Maker(name, stream.schema.names, payload, self._kind, has_texts=_has_texts(self._frame))
        behind = None if _is_read_once(self._frame) else stream.behind
        poller = _TablePoller(name, stream.batches(), make, stream.rows, stream.close, behind)
        return FiniteReader(poller, AsMade(), self._diverts_as)

    def __repr__(self) -> str:
        return f"table({type(self._frame).__name__})"


class _TablePoller(RowsPoller):
    """Gives the rows of a table, which is known again by all rows in front of a position.

    Why of rows, and not of buffers: equal tables have one hash, however they are cut, and whatever types hold a value.
    """

    _given: Sequence[Any] = ()

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self._read = LastRead()

    def fetch(self, items_max: int, wait_s: float) -> Fetched | None:
        fetched = super().fetch(items_max, wait_s)
        self._given = () if fetched is None else fetched.values
        return fetched

    def behind(self, marks: Sequence[int]) -> None:
        super().behind(marks)
        self._read.note(_as_found(self._given[: len(marks)]))

    def position(self) -> Any:
        """How many rows were returned, and hashes of the last and of all."""
        found = super().position()
        return found and {**found, **self._read.known(found["row"])}

    def seek(self, position: Any) -> None:
        """The rows in front of a position are read again, as its hash is of all of them."""
        super().seek(position)
        row = position["row"]
        super().seek({**position, "row": 0 if position.get("content") else max(row - 1, 0)})
        while self._fetched < row:
            fetched = self.fetch(row - self._fetched, 0.0)
            if fetched is None:
                raise position_lost(self.name, f"row {row}", f"it has {self._fetched}")
            self.behind(fetched.marks)
            self.position()
        self._read.check(position, self.name, row)


def _as_found(rows: Any) -> Any:
    """Rows with what was found in the place of those that have no payload."""
    if are_rows(rows) or Undecodable not in set(map(type, rows)):
        return rows
    return [each.found if type(each) is Undecodable else each for each in rows]


def _has_texts(frame: Any) -> bool:
    """Whether its library takes no bytes as texts that are not UTF-8."""
    return type(frame).__module__.partition(".")[0] in ("polars", "pandas", "duckdb", "_duckdb")


def _is_read_once(frame: Any) -> bool:
    return type(frame).__name__ == "RecordBatchReader"


class _Stream:
    """The batches of a table.

    Attributes:
        rows: how many there are, if that is known.
    """

    def __init__(self, name: str, frame: Any) -> None:
        self._name = name
        self._frame = frame
        self._open()

    def _open(self) -> None:
        import pyarrow as pa

        from drift.arrow import check_schema

        frame = self._frame
        if hasattr(frame, "itertuples"):
            _check_index(frame.index)
        try:
            if hasattr(frame, "itertuples"):  # of pandas
                frame = pa.Table.from_pandas(frame, preserve_index=False)
            elif type(frame).__module__.startswith("polars."):
                frame = _with_texts(frame)
            if isinstance(frame, pa.RecordBatch):
                frame = pa.Table.from_batches([frame])
            if hasattr(frame, "to_arrow_table"):  # of DuckDB
                self._frame = frame = frame.to_arrow_table()
            elif not isinstance(frame, pa.Table) and not _is_read_once(frame) and not hasattr(frame, "iter_rows"):
                self._frame = frame = pa.table(frame)
            # the stream of a table would cut its names at a zero character
            self._reader = frame.to_reader() if isinstance(frame, pa.Table) else pa.RecordBatchReader.from_stream(frame)
        except Exception as error:
            hint = "cast its columns, each to one type that Arrow has"
            if "connection has an open result" in str(error):
                hint = "take all rows of that result first, or make the relation with a connection.cursor() of its own"
            raise InputError(f"{self._name} is no table to Arrow: {str(error).rstrip('. ')}; {hint}") from error
        self.schema = self._reader.schema
        check_schema(self._name, self.schema)
        rows = getattr(frame, "num_rows", getattr(frame, "height", None))
        self.rows = rows if type(rows) is int else None

    def batches(self) -> Iterator[pa.RecordBatch]:
        return iter(self._reader)

    def behind(self, rows: int) -> Iterator[pa.RecordBatch]:
        """The batches behind so many rows, from the beginning again."""
        self.close()
        self._open()
        return without(rows, self.batches())

    def close(self) -> None:
        self._reader.close()


def _check_index(index: Any) -> None:
    """Raises InputError: the index of a DataFrame of pandas has more than the numbers of rows."""
    names = [name for name in index.names if name is not None]
    if len(index) and (names or index.nlevels > 1 or index.dtype.kind not in "iu"):
        of = f"{type(index).__name__} of {index.dtype}" + (f" named {', '.join(map(repr, names))}" if names else "")
        raise InputError(
            f"the DataFrame has an index ({of}), which is no column, so its rows would lose it: "
            f"frame.reset_index() makes it a column, frame.reset_index(drop=True) takes it away"
        )


def _with_texts(frame: Any) -> Any:
    """A DataFrame of Polars whose lists and structs have texts in place of categories, which Arrow does not cast there.

    Raises:
        TypeError: a column holds objects, or its name a zero character, at which Arrow cuts it off.
    """
    import polars as pl

    def text_of(kind: Any) -> Any:
        if kind == pl.Object:
            raise TypeError("a column holds objects of Python, which are not in memory as values")
        if isinstance(kind, (pl.Categorical, pl.Enum)):
            return pl.String()
        if isinstance(kind, pl.List):
            return pl.List(text_of(kind.inner))
        if isinstance(kind, pl.Array):
            return pl.Array(text_of(kind.inner), kind.size)
        if isinstance(kind, pl.Struct):
            return pl.Struct({field.name: text_of(field.dtype) for field in kind.fields})
        return kind

    for name in frame.columns:
        if "\0" in name:
            raise TypeError(f"the name of column {name!r} has a zero character; rename it")
    kinds = {name: text_of(kind) for name, kind in frame.schema.items()}
    others = {name: kind for name, kind in kinds.items() if kind.is_nested() and kind != frame.schema[name]}
    return frame.cast(others) if others else frame
