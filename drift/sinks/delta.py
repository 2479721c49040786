"""A table of Delta Lake.

Invariant: the rows of the table that a run wrote are its items up to the position that the log of the table names;
where the log names another than this run has left, nothing is appended.

Why: each version has rows and, as a transaction of the application "drift", the position of the last of them. Two
commits that have a transaction of one application, and do not know of each other, conflict: the later one is refused.
The meta of the last item is kept in the same way, in numbers of 7 bytes, since a log forgets all other notes.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar, Literal

from drift.extras import need
from drift.guarantees import SinkGuarantee
from drift.sinks.filling import limits_of
from drift.sinks.lake import LakeSink
from drift.sinks.part_files import check_columns, with_names
from drift.sinks.resuming import Last, check_resume
from drift.urls import path_text
from drift_graph.moments import Span

if TYPE_CHECKING:
    import pyarrow as pa

_APPLICATION = "drift"
_META = "drift meta"  # its length, and with a number behind it a part of it
_PART_BYTES = 7  # of a number without a sign in 64 bits
_NONE = -1  # the position before the first
_FLOAT_DIGITS = 15  # of a decimal, that a float keeps


def delta(
    path: str | os.PathLike[str],
    *,
    columns: Sequence[str] | Mapping[str, Any] | None = None,
    part_items: int = 1_000_000,
    part_bytes: int | str | None = None,
    part_every: Span | None = None,
    partition_by: str | Sequence[str] | None = None,
    merge_schema: bool = False,
    storage_options: Mapping[str, str] | None = None,
    resume: Literal["continue", "replace", "error"] = "continue",
) -> DeltaSink:
    """A Delta table with a row for each item: position, time, and typed columns of the payload's fields.

    Rows are only appended. A version of the table is written once one of the limits is reached, at each checkpoint of a
    run with state, and at the end. Others may append rows of their own and compact files meanwhile.

    >>> import drift
    >>> graph = drift.Graph("fares")
    >>> graph.source("fares").sink("out")
    >>> fares = [{"zone": "JFK", "fare": 30.5}, {"zone": "LGA", "fare": 9.0}]
    >>> report = drift.run(graph, {"fares": fares}, sinks={"out": drift.sinks.delta("fares")}).finish()
    >>> import deltalake
    >>> deltalake.DeltaTable("fares").to_pyarrow_table().column_names
    ['position', 'time', 'zone', 'fare']

    Args:
        path: the folder of the table, or its URL; it is created.
        columns: names of the fields, for tuples in their order, or their Arrow types by name; None for those of the
            payloads. A table that exists has its own types.
        part_items: a version has this many items, and what came with the last of them.
        part_bytes: a version takes about this much on the disk, such as "128 MB".
        part_every: an item is in the table at the latest after this time by the clock, such as "5 minutes".
        partition_by: a field, or several, by whose values the files are put into folders.
        merge_schema: whether a field that the table does not have becomes a further column; otherwise it is an error.
        storage_options: of the object store, for `deltalake`.
        resume: what to do if runs have written before: "continue" behind them, "replace" all rows, or "error".

    Raises:
        SettingsError: an argument is not valid, or a library is missing.
    """
    need("delta", "drift.sinks.delta")
    check_resume(resume)
    limits = limits_of(part_items, part_bytes, part_every)
    named = path_text("delta", path, "table")
    by = check_columns(partition_by)
    return DeltaSink(dict(storage_options or {}), named, columns, limits, by, merge_schema, resume)


class DeltaSink(LakeSink):
    guarantee: ClassVar = SinkGuarantee("exactly once", "the log of the table has the position with the rows")

    _how_to_bring_back = " (deltalake has restore)"
    _end_unknown = (
        "its log does not say up to which they were written; give each run its own table, and set no "
        "delta.setTransactionRetentionDuration; or"
    )

    def __init__(self, storage_options: dict[str, str], *arguments: Any) -> None:
        super().__init__(*arguments)
        self.writes_to = self._path
        self._options = storage_options

    def _remove_rows(self) -> None:
        from deltalake import CommitProperties, Transaction, write_deltalake

        none = CommitProperties(app_transactions=[Transaction(_APPLICATION, _NONE)])
        self._table.delete(commit_properties=none)
        if self._end_in_table() is not None:  # somebody emptied it: deleting no rows commits nothing
            write_deltalake(self._table, self._schema().empty_table(), mode="overwrite", commit_properties=none)
        self._overwrites = True

    def _find_table(self) -> None:
        from deltalake import DeltaTable

        is_there = DeltaTable.is_deltatable(self._path, self._options)
        self._table = DeltaTable(self._path, storage_options=self._options) if is_there else None

    def _partitioned_by(self) -> list[str]:
        return list(self._table.metadata().partition_columns)

    def _partitionable(self, rows: pa.Table, name: str) -> pa.Table:
        return with_names(rows, name)

    def _has_positions(self) -> bool:
        return bool(self._table.count())

    def _schema(self) -> pa.Schema:
        import pyarrow as pa

        return pa.schema(self._table.schema().to_arrow())

    def _end_in_table(self) -> Last | None:
        self._table.update_incremental()
        version = self._table.transaction_version
        position = version(_APPLICATION)
        if position is None or position == _NONE:
            return None
        length = version(_META)
        parts = range(0, length, _PART_BYTES)
        sizes = [min(_PART_BYTES, length - at) for at in parts]
        return Last(position, b"".join(version(f"{_META} {at}").to_bytes(size) for at, size in zip(parts, sizes)))

    def _append_table(self, rows: pa.Table, first: int, last: Last) -> None:
        from deltalake import CommitProperties, Transaction, write_deltalake

        parts = range(0, len(last.meta), _PART_BYTES)
        transactions = [Transaction(_APPLICATION, last.position), Transaction(_META, len(last.meta))]
        transactions += [Transaction(f"{_META} {at}", int.from_bytes(last.meta[at : at + _PART_BYTES])) for at in parts]
        merges = self._merge_schema and self._table is not None
        noted = {"drift": f"positions {first} to {last.position}"}
        write_deltalake(
            self._path if self._table is None else self._table,
            rows,
            partition_by=self._by or None,
            mode="overwrite" if self._overwrites else "error" if self._table is None else "append",
            schema_mode="overwrite" if self._overwrites else "merge" if merges else None,
            storage_options=self._options or None,
            configuration=_skipping(rows.schema) if self._table is None else None,
            commit_properties=CommitProperties(custom_metadata=noted, app_transactions=transactions),
        )

    def _positions_between(self, first: int, last: int) -> Iterable[pa.RecordBatch]:
        import pyarrow.compute as pc

        between = (pc.field("position") >= first) & (pc.field("position") <= last)
        return self._table.to_pyarrow_dataset().to_batches(columns=["position"], filter=between)  # type: ignore[no-any-return]


def _skipping(schema: pa.Schema) -> dict[str, str] | None:
    """The configuration of a new table by which filters find every row; None if no column needs one.

    Bounds of the columns of a file are in the log, as floats in JSON, and readers pass over files by them. A decimal of
    more than 15 digits may lie outside of its own bounds, which deltalake rounds to the nearest, and infinity is none:
    such columns get no bounds (findings/delta-decimals-behind-statistics.sh).
    """
    exact = [field.name for field in schema if _has_bounds(field.type)]
    if len(exact) == len(schema):
        return None
    names = (
        f"`{name}`" for name in exact if not set(name) & {"`", ","}
    )  # of which deltalake before 1.4 makes an error
    return {"delta.dataSkippingStatsColumns": ",".join(names)}


def _has_bounds(of: pa.DataType) -> bool:
    import pyarrow as pa

    if pa.types.is_struct(of):
        return all(_has_bounds(field.type) for field in of)
    return not pa.types.is_floating(of) and not (pa.types.is_decimal(of) and of.precision > _FLOAT_DIGITS)
