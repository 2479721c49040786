"""Parquet files.

Invariant: rows come in the order of the files, and in each in the order of the file.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, ClassVar, Literal

from drift.extras import need
from drift.guarantees import SourceGuarantee
from drift.sources.base import Reader
from drift.sources.followed import FollowedSource
from drift.sources.frames import Payload
from drift.sources.many import reader_of
from drift.sources.rows import RowsReader, check_payload, maker, without
from drift_graph.errors import InputError, SettingsError

if TYPE_CHECKING:
    import pyarrow as pa

_BATCH_ROWS = 1 << 14


def parquet(
    path: str | os.PathLike[str],
    *,
    columns: Sequence[str] | None = None,
    payload: Literal["dict", "tuple", "value"] = "dict",
    type: Any = None,
    follow: bool = False,
) -> ParquetSource | FollowedSource:
    """Each row of a Parquet file is a payload, with values as from `drift.sources.table`.

    Args:
        path: a file, a folder of files, or a pattern such as "flights/*.parquet"; files are read in the order of their
            names.
        columns: to read, in this order; None for all.
        payload: "dict" of column names and values, a "tuple" of the values, or the "value" of the only column.
        type: each row, as a dict, is converted to it, for instance a dataclass or a msgspec Struct.
        follow: whether the source is live: files that appear are read, in the order of their names; each must be
            complete when it appears: move it there.
    """
    need("parquet", "drift.sources.parquet")
    check_payload("parquet", payload, type)
    try:
        named = os.fsdecode(path)
    except TypeError:
        raise SettingsError(f"parquet({path!r:.80}): the path of a file is a text or a pathlib.Path") from None
    source = ParquetSource(named, columns, payload, type)
    if not follow:
        return source
    return FollowedSource(named, source, lambda each: ParquetSource(each, columns, payload, type))


class ParquetSource:
    """See `parquet`."""

    live = False
    guarantee: ClassVar = SourceGuarantee("from a position", "the number of a row, as long as the files are there")

    def __init__(self, path: str, columns: Sequence[str] | None, payload: Payload, kind: Any) -> None:
        self._path = path
        self._columns = None if columns is None else list(columns)
        self._payload = payload
        self._kind = kind

    def open(self) -> Reader:
        return reader_of(self._path, self._open_one)

    def _open_one(self, path: str) -> Reader:
        import pyarrow as pa
        import pyarrow.parquet as pq

        try:
            file = pq.ParquetFile(path)
        except (OSError, pa.ArrowException) as error:
            raise InputError(f"{path} cannot be read as Parquet: {error}; check the path and the file") from None
        names = file.schema_arrow.names
        missing = [name for name in self._columns or () if name not in names]
        if missing:
            file.close()
            raise InputError(f"{path} has no column {missing[0]!r}; it has {', '.join(map(repr, names))}")
        wanted = names if self._columns is None else self._columns

        def behind(rows: int) -> Iterator[pa.RecordBatch]:
            """Row groups before this row are not read."""
            group, groups = 0, file.metadata.num_row_groups
            while group < groups and rows >= file.metadata.row_group(group).num_rows:
                rows -= file.metadata.row_group(group).num_rows
                group += 1
            found = file.iter_batches(_BATCH_ROWS, row_groups=list(range(group, groups)), columns=self._columns)
            batches = without(rows, found)
            return (batch.select(wanted) for batch in batches) if self._columns is not None else batches

        make = maker(path, wanted, self._payload, self._kind)
        return RowsReader(path, behind(0), make, file.metadata.num_rows, file.close, behind)

    def __repr__(self) -> str:
        return f"parquet({self._path!r})"
