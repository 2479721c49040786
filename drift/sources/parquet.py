"""Parquet files.

Invariant: rows come in the order of the files, and in each in the order of the file; those before a place where a file
is damaged are returned before the error. A position is only taken by the file that it is of.

Why: a batch that cannot be read is read again in smaller ones, row by row at last. A file is known by its length and by
its end, which says where each column of each group of rows is, how long it is and, as a rule, between which values.
"""

from __future__ import annotations

import datetime
import glob
import os
import re
from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Literal, NamedTuple
from urllib.parse import unquote

import xxhash

from drift.extras import need
from drift.fields import check_names
from drift.guarantees import SourceGuarantee
from drift.places import Storage, is_named, storage_of
from drift.sources.ahead import Ahead
from drift.sources.base import OwnSource, Reader
from drift.sources.frames import Payload
from drift.sources.known import Mark, changed_of, content_of
from drift.sources.paths import PathSource
from drift.sources.polled import AsMade, FiniteReader
from drift.sources.positions import in_one_file, position_fields, position_lost
from drift.sources.rows import Maker, RowsPoller, check_payload, resolved_payload, without
from drift.urls import path_text, without_secrets
from drift_graph.errors import InputError

if TYPE_CHECKING:
    import pyarrow as pa

_BATCH_ROWS, _FIRST_ROWS = 1 << 14, 1 << 4
_BATCH_COLUMNS = 1 << 17  # rows that stay columns
#: Types of Parquet, as its schema names them, whose values Arrow gives as they are stored.
_IN_PARTS = {"Variant": "variants", "Interval": "intervals of months, days and milliseconds"}
_BATCH_BYTES = 1 << 24  # of a batch, if its rows have about the size of those before them


def parquet(
    path: str | os.PathLike[str],
    *,
    columns: Sequence[str] | None = None,
    payload: Literal["dict", "tuple", "value", "rows"] = "dict",
    type: Any = None,
    hive: bool | Mapping[str, pa.DataType] = False,
    follow: bool = False,
    storage_options: Mapping[str, Any] | None = None,
) -> PathSource:
    """Each row of a Parquet file is a payload, with values as from `drift.sources.table`.

    >>> import drift, polars
    >>> polars.DataFrame({"zone": ["JFK", "LGA"], "fare": [30.5, 9.0]}).write_parquet("fares.parquet")
    >>> graph = drift.Graph("fares")
    >>> graph.source("fares").sink("out")
    >>> fares = drift.sources.parquet("fares.parquet", columns=["fare"])
    >>> [item.payload for item in drift.run(graph, {"fares": fares})]
    [{'fare': 30.5}, {'fare': 9.0}]

    Args:
        path: a file, a folder of files, or a pattern such as "flights/*.parquet", or a URL of these such as
            "s3://BUCKET/flights/*.parquet" (extra `cloud`); files are read in the order of their names.
        columns: to read, in this order; None for all.
        payload: "dict" of column names and values, which stay columns until a function asks for one (extra `columns`);
            a "tuple" of the values, or the "value" of the only column. "rows": as "dict", or an error where a column
            has no such type, as a map has none.
        hive: whether the folders in which a file is, such as day=2013-01-01/, are further columns, behind its own:
            texts, or of the Arrow types given by name. Of a folder all files NAME.parquet are read, however deep.
        type: each row, as a dict, is converted to it, for instance a dataclass or a msgspec Struct.
        follow: whether the source is live: files that appear are read, in the order of their names; each must be
            complete when it appears: move it there.
        storage_options: of a URL, for the class of fsspec that reads it.
    """
    need("parquet", "drift.sources.parquet")
    check_payload("parquet", payload, type)
    storage, named = storage_of(path_text("parquet", path), storage_options)
    in_folders: _Folders | None = None
    if hive is not False:
        is_folder = not storage.is_pattern(named) if storage.remote else storage.is_folder(named)
        in_folders = _Folders(named.rstrip("/") if is_folder else "", {} if hive is True else dict(hive))
        if in_folders.root:
            named = f"{glob.escape(in_folders.root)}/**/[!_]*.parquet"

    def of_file(each: str) -> ParquetSource:
        return ParquetSource(storage, each, columns, payload, type, in_folders)

    return PathSource(storage, named, of_file(named), of_file, live=follow)


class _Folders(NamedTuple):
    """The folders NAME=VALUE in which files are.

    Attributes:
        root: those below this folder count; all that are named in the path if it is "".
        types: of the columns, by name; others are texts.
    """

    root: str
    types: Mapping[str, pa.DataType]

    def columns(self, path: str) -> dict[str, pa.Scalar]:
        """The columns of a file. Raises InputError: a value is not of its type, or there is no such folder."""
        import pyarrow as pa
        import pyarrow.dataset as ds

        inside = path[len(self.root) :] if self.root else path
        named = [part.split("=", 1) for part in inside.split("/")[:-1] if "=" in part[1:] and part[0] != "="]
        names = [unquote(name) for name, _ in named]
        if unknown := [name for name in self.types if name not in names]:
            raise InputError(f"{path} is in no folder {unknown[0]}=VALUE, for which hive has a type; check the path")
        kinds = [self.types.get(name, pa.string()) for name in names]
        # by numbers: Arrow decodes the names of folders, and then finds no column of the name that is there
        schema = pa.schema([(str(at), _as_text(kind)) for at, kind in enumerate(kinds)])
        folder = "/".join(f"{at}={value}" for at, (_, value) in enumerate(named))
        try:
            found = ds.get_partition_keys(ds.partitioning(schema, flavor="hive").parse(f"{folder}/"))
            values = [pa.scalar(found.get(field.name), field.type) for field in schema]
            return {name: value.cast(kind) for name, value, kind in zip(names, values, kinds)}
        except (pa.ArrowException, ValueError, TypeError) as error:
            raise InputError(f"{path}: its folders are not of the types that hive has: {error}") from None


def _as_text(kind: pa.DataType) -> pa.DataType:
    """The type in which the value of a folder is read: that of its column, or text, of which Arrow makes a decimal."""
    import pyarrow as pa

    return pa.string() if pa.types.is_decimal(kind) else kind


class ParquetSource(OwnSource):
    """A file; see `parquet`."""

    guarantee: ClassVar = SourceGuarantee("from a position", "the number of a row, as long as the files are there")

    def __init__(
        self,
        storage: Storage,
        path: str,
        columns: Sequence[str] | None,
        payload: Payload,
        kind: Any,
        folders: _Folders | None,
    ) -> None:
        self._storage = storage
        self._path = path
        check_names(columns)
        self._columns = None if columns is None else list(columns)
        self._payload = payload
        self._kind = kind
        self._folders = folders

    def open(self) -> Reader:
        import pyarrow as pa
        import pyarrow.parquet as pq

        from drift.arrow import check_schema

        path = without_secrets(self._path)
        etag = ""

        def of_unit(unit: str | None) -> pq.ParquetFile:
            """The file, with moments of its INT96 in a unit; Arrow's own is nanoseconds, which end in 2262."""
            nonlocal etag
            if not self._storage.remote:
                return pq.ParquetFile(self._path, coerce_int96_timestamp_unit=unit)
            opened = self._storage.open(self._path)
            etag = opened.etag
            return pq.ParquetFile(opened.file, pre_buffer=True, coerce_int96_timestamp_unit=unit)

        try:
            file = of_unit("us")
            physical = [file.schema.column(at) for at in range(len(file.schema))]
            int96 = {each.path.partition(".")[0] for each in physical if each.physical_type == "INT96"}
            exact = of_unit(None) if int96 else None
        except (OSError, pa.ArrowException) as error:
            hint = "cast them to decimals or text where it is written" if "64 bits" in str(error) else "check the file"
            raise InputError(f"{path} cannot be read as Parquet: {error}; {hint}") from None
        try:
            check_schema(path, file.schema_arrow)
        except InputError:
            file.close()
            raise
        own = file.schema_arrow.names
        further = {} if self._folders is None else self._folders.columns(self._path)
        both = {name: value for name, value in further.items() if name in own}
        further = {name: value for name, value in further.items() if name not in own}
        names = [*own, *further]
        missing = [name for name in self._columns or () if name not in names]
        if missing:
            file.close()
            raise InputError(f"{path} has no column {missing[0]!r}; it has {', '.join(map(repr, names))}")
        wanted = names if self._columns is None else self._columns
        read = None if self._columns is None else [name for name in self._columns if name in own]
        kinds = dict(zip(own, file.schema_arrow.types)) | {name: value.type for name, value in further.items()}
        payload = resolved_payload(self._payload, self._kind, pa.schema([(name, kinds[name]) for name in wanted]))
        in_parts = _in_parts(file.schema)
        if stored := [name for name in (own if read is None else read) if name in in_parts]:
            file.close()
            raise InputError(
                f"column {stored[0]!r} of {path} has {in_parts[stored[0]]}, of which Arrow gives the bytes alone; cast "
                f"it where the file is written, for instance to text, or leave it out with columns="
            )
        is_old = any(name.startswith(b"org.apache.spark.legacy") for name in file.metadata.metadata or ())

        def behind(rows: int) -> Iterator[pa.RecordBatch]:
            """Row groups before this row are not read."""
            group, groups, passed = 0, file.metadata.num_row_groups, 0
            size, is_damaged = _FIRST_ROWS, False
            most = _BATCH_COLUMNS if payload == "rows" else _BATCH_ROWS
            while True:
                while group < groups and rows >= passed + file.metadata.row_group(group).num_rows:
                    passed += file.metadata.row_group(group).num_rows
                    group += 1
                rest = list(range(group, groups))
                found: Iterator[pa.RecordBatch] = file.iter_batches(size, row_groups=rest, columns=read)
                moments = [name for name in own if name in int96 and (read is None or name in read)]
                if exact is not None and moments:
                    found = _in_microseconds(found, exact.iter_batches(size, row_groups=rest, columns=moments))
                try:
                    for batch in without(rows - passed, found):
                        others = [_another_value(batch, both), _of_an_old_calendar(batch) if is_old else None]
                        other = min(filter(None, others), default=None)
                        if other is not None:
                            batch = batch.slice(0, other[0])
                        for name, value in further.items():
                            batch = batch.append_column(name, pa.repeat(value, batch.num_rows))
                        yield batch.select(wanted) if self._columns is not None else batch
                        rows += batch.num_rows
                        if other is not None:
                            raise InputError(f"row {rows} of {path} has {other[1]}")
                        fitting = min(max(_BATCH_BYTES * batch.num_rows // (batch.nbytes or 1), 1), most)
                        if fitting < size // 4 or (fitting > 8 * size and not is_damaged):
                            size = fitting
                            break
                    else:
                        return
                except (OSError, pa.ArrowException):
                    if size == 1:
                        raise
                    size, is_damaged = _FIRST_ROWS if size > _FIRST_ROWS else 1, True

        make = Maker(path, wanted, payload, self._kind)

        ahead = Ahead(behind)

        def close() -> None:
            ahead.wait()
            file.close()
            if exact is not None:
                exact.close()

        where, rows = (self._storage, self._path, etag), file.metadata.num_rows
        poller = _ParquetPoller(*where, path, ahead.behind(0), make, rows, close, ahead.behind)
        return FiniteReader(poller, AsMade(), self._diverts_as)

    def reads(self, file: Path) -> bool:
        return is_named(self._storage, self._path, file)

    def __repr__(self) -> str:
        return f"parquet({without_secrets(self._path)!r})"


def _another_value(batch: pa.RecordBatch, folders: Mapping[str, pa.Scalar]) -> tuple[int, str] | None:
    """The first row whose own column has another value than the name of the file's folder, and what is wrong with it.

    Why it is refused: of two values neither is known to be right, and other readers take the folder's.
    """
    import pyarrow as pa
    import pyarrow.compute as pc

    found = []
    for name in sorted(folders.keys() & set(batch.schema.names)):
        column, said = batch.column(name), folders[name]
        try:
            alike = pc.equal(column, said.cast(column.type)) if said.is_valid else column.is_null()
        except pa.ArrowException:  # no value of the column's type
            alike = pa.array([False] * batch.num_rows)
        if (row := pc.index(alike.fill_null(False), False).as_py()) >= 0:
            said_twice = f"{name}={column[row].as_py()!r}, and its folder's name another value"
            hint = "move the file, or take the column out of it, or read it without hive="
            found.append((row, f"{said_twice}; {hint}"))
    return min(found, default=None)


def _in_parts(schema: Any) -> dict[str, str]:
    """Columns that Arrow gives as they are stored, and of what."""
    found, column = {}, ""
    for indent, name, of in re.findall(r"(?m)^( +)\w+ \S+ field_id=\S+ (.+?)(?: \((\w+).*)?[;{ ]*$", str(schema)):
        column = name if len(indent) == 2 else column
        if of in _IN_PARTS:
            found[column] = _IN_PARTS[of]
    return found


def _of_an_old_calendar(batch: pa.RecordBatch) -> tuple[int, str] | None:
    """The first row with a date before 1582-10-15, or a moment before 1900, and what is wrong with it.

    Why: the file says that Spark counted its days in the calendar of Julius Caesar, up to where the Gregorian begins,
    and moments from the local mean time of a place.
    """
    columns = zip(batch.schema.names, batch.columns)
    found = [(at, name) for name, column in columns for at in range(len(column)) if _is_old(column.slice(at, 1))]
    what = "a date before 1582-10-15, or a moment before 1900, in the calendar of Spark 2"
    hint = "write the file anew with Spark, which knows it, with spark.sql.parquet.*RebaseModeInWrite=CORRECTED"
    return next(((at, f"in column {name!r} {what}; {hint}") for at, name in sorted(found)), None)


def _is_old(column: pa.Array) -> bool:
    import pyarrow as pa
    import pyarrow.compute as pc

    from drift.arrow import parts_of

    kind = column.type
    if not pa.types.is_date32(kind) and not pa.types.is_timestamp(kind):
        return any(map(_is_old, parts_of(column)))
    first = datetime.date(1582, 10, 15) if pa.types.is_date32(kind) else datetime.datetime(1900, 1, 1)
    return bool(pc.any(pc.less(column, pa.scalar(first, kind))).as_py())


def _in_microseconds(found: Iterator[pa.RecordBatch], exact: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Batches whose columns of INT96 are in microseconds; where one has a part of a microsecond it is as in `exact`.

    Args:
        exact: these columns in nanoseconds, which wrap where there are none of 64 bits.
    """
    for batch, moments in zip(found, exact, strict=True):
        for name, column in zip(moments.schema.names, moments.columns):
            at = batch.schema.get_field_index(name)
            if not _are_equal(batch.column(at), column):
                batch = batch.set_column(at, name, column)
        yield batch


def _are_equal(micros: pa.Array, nanos: pa.Array) -> bool:
    """Whether moments in microseconds, at any depth, are those in nanoseconds, modulo 2**64 of these."""
    import numpy as np
    import pyarrow as pa

    from drift.arrow import parts_of

    kinds = pa.types
    if kinds.is_timestamp(micros.type) and micros.type != nanos.type:
        left, right = (
            each.drop_null().view(pa.int64()).to_numpy(zero_copy_only=False).view(np.uint64) for each in (micros, nanos)
        )
        return bool(np.array_equal(left * np.uint64(1000), right))
    return all(map(_are_equal, parts_of(micros), parts_of(nanos)))


def identity_of(file: Any) -> str:
    """The hash of a file's length and of its end, which has the places, sizes and statistics of all columns."""
    length = file.seek(-8, os.SEEK_END) + 8
    of_end = int.from_bytes(file.read(4), "little")
    file.seek(max(length - 8 - of_end, 0))
    return xxhash.xxh3_128_hexdigest(length.to_bytes(8, "little") + file.read())


class _ParquetPoller(RowsPoller):
    """Gives the rows of a file, known again by its length, end and content; an object in a store by its ETag."""

    def __init__(self, storage: Storage, path: str, etag: str, *args: Any) -> None:
        super().__init__(*args)
        self._storage = storage
        self._path = path
        self._etag = etag

    @cached_property
    def _identity(self) -> str:
        if self._etag:
            return self._etag
        with self._storage.open(self._path).file as file:
            return identity_of(file)

    def position(self) -> Any:
        """How many rows were returned, and of which file."""
        return {**super().position(), "file": self._identity, "mark": [*self._mark]}

    @cached_property
    def _mark(self) -> Sequence[str]:
        return () if self._storage.remote else Mark(changed_of(self._path), content_of(self._path))

    def seek(self, position: Any) -> None:
        position = in_one_file(position)
        if position == {}:
            return
        (identity,) = position_fields(position, "rows", self.name, "file")
        mark = position.get("mark")
        if identity != self._identity or (mark and not Mark(*mark).is_of(self._path)):
            raise position_lost(self.name, f"row {position['row']}", "it is another file")
        super().seek(position)
