"""A table of Iceberg.

Invariant: the rows of the table that a run wrote are its items up to the position that its snapshots name; where they
name another than this run has left, nothing is appended.

Why: a snapshot has rows and, in its summary, the position and the meta of the last of them, and is committed only if
no other one came in between. The newest snapshot with a position, from the current one back, is the end; so a table
that was rolled back is seen. Snapshots expire, so both are among the properties of the table as well, where they count
if the table has that row.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar, Literal

from drift.extras import need
from drift.guarantees import SinkGuarantee
from drift.sinks.filling import limits_of
from drift.sinks.lake import LakeSink
from drift.sinks.part_files import check_columns
from drift.sinks.resuming import Last, check_resume
from drift_graph.errors import PayloadError, SettingsError
from drift_graph.moments import Span

if TYPE_CHECKING:
    import pyarrow as pa

_POSITION, _META = "drift.position", "drift.meta"
_NONE = -1  # the position before the first
_ATTEMPTS_MAX = 20


def iceberg(
    table: str,
    *,
    catalog: str | Mapping[str, str] = "default",
    columns: Sequence[str] | Mapping[str, Any] | None = None,
    part_items: int = 1_000_000,
    part_bytes: int | str | None = None,
    part_every: Span | None = None,
    partition_by: str | Sequence[str] | None = None,
    merge_schema: bool = False,
    resume: Literal["continue", "replace", "error"] = "continue",
) -> IcebergSink:
    """An Iceberg table with a row for each item: position, time, and typed columns of the payload's fields.

    Rows are only appended. A snapshot is written once one of the limits is reached, at each checkpoint of a run with
    state, and at the end. Others may append rows of their own, compact files and expire snapshots meanwhile.

    >>> import drift
    >>> catalog = {"type": "sql", "uri": "sqlite:///catalog.db", "warehouse": "file:///data/warehouse"}
    >>> counts = drift.sinks.iceberg("taxi.counts", catalog=catalog, partition_by="day", part_every="1 minute")

    Args:
        table: its namespace and name, "trips.counts"; both are created.
        catalog: its name in the configuration of PyIceberg, or its properties, such as {"type": "rest", "uri": ...}.
        columns: names of the fields, for tuples in their order, or their Arrow types by name; None for those of the
            payloads. A table that exists has its own types.
        part_items: a snapshot has this many items, and what came with the last of them.
        part_bytes: a snapshot takes about this much on the disk, such as "128 MB".
        part_every: an item is in the table at the latest after this time by the clock, such as "5 minutes".
        partition_by: a field, or several, by whose values a table that is created is partitioned.
        merge_schema: whether a field that the table does not have becomes a further column; otherwise it is an error.
        resume: what to do if runs have written before: "continue" behind them, "replace" all rows (the table keeps its
            types), or "error".

    Raises:
        SettingsError: an argument is not valid, or a library is missing.
    """
    need("iceberg", "drift.sinks.iceberg")
    check_resume(resume)
    limits = limits_of(part_items, part_bytes, part_every)
    if not isinstance(table, str) or not all(table.split(".")) or "." not in table:
        raise SettingsError(f"iceberg({table!r:.80}): a table has a namespace and a name, such as 'trips.counts'")
    properties = {"name": catalog} if isinstance(catalog, str) else dict(catalog)
    return IcebergSink(properties, table, columns, limits, check_columns(partition_by), merge_schema, resume)


class IcebergSink(LakeSink):
    guarantee: ClassVar = SinkGuarantee("exactly once", "each snapshot has the position with the rows")

    _how_to_bring_back = " (a snapshot before has it)"
    _end_unknown = "no snapshot says up to which they were written; give each run its own table, or"

    def __init__(self, catalog: dict[str, str], *arguments: Any) -> None:
        super().__init__(*arguments)
        self._properties = catalog
        self._catalog: Any = None

    def _find_table(self) -> None:
        from pyiceberg.catalog import load_catalog
        from pyiceberg.exceptions import NoSuchTableError

        if self._catalog is None:
            properties = {**self._properties}
            self._catalog = load_catalog(properties.pop("name", "default"), **properties)
        try:
            self._table = self._catalog.load_table(self._path)
        except NoSuchTableError:
            self._table = None

    def _partitioned_by(self) -> list[str]:
        schema = self._table.schema()
        return [schema.find_column_name(field.source_id) for field in self._table.spec().fields]

    def _partitionable(self, rows: pa.Table, name: str) -> pa.Table:
        import pyarrow as pa

        if name not in rows.column_names or not pa.types.is_floating(kind := rows.schema.field(name).type):
            return rows
        if pa.types.is_float64(kind):
            raise PayloadError(
                f"partition_by has {name!r}, which is double: PyIceberg reads the values of such partitions with 32 "
                f"bits, and its filters do not find the rows; map it to text or whole numbers"
            )
        for value in rows[name].unique().to_pylist():
            if str(value) in ("-0.0", "nan"):
                raise PayloadError(
                    f"partition_by has {name!r}, which is {value}: PyIceberg takes partitions by their bits and the "
                    f"rows of each by ==, so it writes -0.0 with 0.0 twice, and NaN not at all; map it to another value"
                )
        return rows

    def _has_positions(self) -> bool:
        return self._has_row("position >= 0")

    def _schema(self) -> pa.Schema:
        return self._table.schema().as_arrow()

    def _end_in_table(self) -> Last | None:
        self._table.refresh()
        metadata = self._table.metadata
        snapshots = {each.snapshot_id: each for each in metadata.snapshots}
        at = metadata.current_snapshot_id
        while at is not None and at in snapshots:
            summary = snapshots[at].summary
            if summary is not None and summary[_POSITION] is not None:
                return _last_in(summary)
            at = snapshots[at].parent_snapshot_id
        last = _last_in(metadata.properties) if _POSITION in metadata.properties else None
        return last if last is not None and self._has_row(f"position = {last.position}") else None

    def _has_row(self, which: str) -> bool:
        return bool(self._table.scan(which, selected_fields=("position",), limit=1).to_arrow().num_rows)

    def _remove_rows(self) -> None:
        from pyiceberg.expressions import AlwaysTrue

        noted = {_POSITION: str(_NONE), _META: ""}
        with self._table.transaction() as transaction:
            if self._table.scan(limit=1).to_arrow().num_rows:
                transaction.delete(AlwaysTrue(), snapshot_properties=noted)
            else:  # somebody emptied it: deleting no rows makes no snapshot
                transaction.append(self._schema().empty_table(), snapshot_properties=noted)
            transaction.set_properties(noted)

    def _append_table(self, rows: pa.Table, first: int, last: Last) -> None:
        from pyiceberg.exceptions import CommitFailedException

        noted = {_POSITION: str(last.position), _META: last.meta.hex()}
        if self._table is None:
            self._catalog.create_namespace_if_not_exists(self._path.rpartition(".")[0])
            transaction = self._catalog.create_table_transaction(self._path, rows.schema)
            with transaction.update_spec() as spec:
                for name in self._by:
                    spec.add_identity(name)
            self._commit(transaction, rows, noted)
            self._find_table()
            return
        for _ in range(_ATTEMPTS_MAX):
            # PyIceberg would repeat a commit by itself, behind rows of another run too
            properties = {**self._table.metadata.properties, "commit.retry.num-retries": "0"}
            self._table.metadata = self._table.metadata.model_copy(update={"properties": properties})
            transaction = self._table.transaction()
            if self._merge_schema:
                with transaction.update_schema() as schema:
                    schema.union_by_name(rows.schema)
            try:
                self._commit(transaction, rows, noted)
                return
            except CommitFailedException as failed:  # others have committed
                refused = failed
            if (found := self.find_end()) != self._last:
                raise self._moved(found)
        raise refused

    def _commit(self, transaction: Any, rows: pa.Table, noted: dict[str, str]) -> None:
        transaction.append(rows, snapshot_properties=noted)
        transaction.set_properties(noted)
        transaction.commit_transaction()

    def _positions_between(self, first: int, last: int) -> Iterable[pa.RecordBatch]:
        scan = self._table.scan(f"position >= {first} and position <= {last}", selected_fields=("position",))
        return scan.to_arrow_batch_reader()  # type: ignore[no-any-return]


def _last_in(noted: Any) -> Last | None:
    position = int(noted[_POSITION])
    return None if position == _NONE else Last(position, bytes.fromhex(noted[_META]))
