"""A table of Delta Lake.

Invariant: the rows of the table that a run wrote are its items up to the position that the log of the table names;
where the log names another than this run has left, nothing is appended.

Why: each version has rows and, as a transaction of the application "drift", the position of the last of them. Two
commits that have a transaction of one application, and do not know of each other, conflict: the later one is refused.
The meta of the last item is kept in the same way, in numbers of 7 bytes, since a log forgets all other notes.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar, Literal

from drift.extras import need
from drift.guarantees import SinkGuarantee
from drift.sinks.filling import Filling, Limits, limits_of
from drift.sinks.parts import check_columns, with_names
from drift.sinks.resuming import AppendingSink, Last, check_resume, from_committed, refuse_existing
from drift_graph.errors import PayloadError, SettingsError, SinkError
from drift_graph.metas import Metas
from drift_graph.moments import Span

if TYPE_CHECKING:
    import pyarrow as pa

    from drift.sinks.typed import Gathered

_APPLICATION = "drift"
_META = "drift meta"  # its length, and with a number behind it a part of it
_PART_BYTES = 7  # of a number without a sign in 64 bits
_NONE = -1  # the position before the first


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
    try:
        named = os.fsdecode(path)
    except TypeError:
        raise SettingsError(f"delta({path!r:.80}): the path of a table is a text or a pathlib.Path") from None
    by = check_columns(partition_by)
    return DeltaSink(named, columns, limits, by, merge_schema, dict(storage_options or {}), resume)


class DeltaSink(AppendingSink):
    """See `delta`."""

    guarantee: ClassVar = SinkGuarantee("exactly once", "the log of the table has the position with the rows")

    def __init__(
        self,
        path: str,
        columns: Sequence[str] | Mapping[str, Any] | None,
        limits: Limits,
        partition_by: list[str],
        merge_schema: bool,
        storage_options: dict[str, str],
        resume: str,
    ) -> None:
        super().__init__(path, resume)
        self._path = path
        self._columns = columns
        self._by = partition_by
        self._merge_schema = merge_schema
        self._options = storage_options
        self._filling = Filling(limits)
        self._items: Gathered | None = None  # that no version has yet
        self._table: Any = None  # of deltalake, once there is one
        self._overwrites = False

    def _begin(self, resume: str) -> Last | None:
        from deltalake import CommitProperties, Transaction

        self._items = None
        self._filling.clear()
        self._overwrites = False
        with self._looking(Exception):
            self._find_table()
            last = self._find_end()
        if self._table is None:
            return None
        if resume == "error":
            refuse_existing(self._path, last)
        if resume == "replace":
            with self._taking([0], Exception):
                none = CommitProperties(app_transactions=[Transaction(_APPLICATION, _NONE)])
                self._table.delete(commit_properties=none)
            self._overwrites = True
            return None
        self._check_table(last)
        return last

    def _find_table(self) -> None:
        from deltalake import DeltaTable

        is_there = DeltaTable.is_deltatable(self._path, self._options)
        self._table = DeltaTable(self._path, storage_options=self._options) if is_there else None

    def _check_table(self, last: Last | None) -> None:
        """
        Raises:
            SinkError: the table is none that this sink writes.
        """
        by = list(self._table.metadata().partition_columns)
        if self._by and by != self._by:
            raise SinkError(f"{self._path} is partitioned by {by}, and partition_by is {self._by}; leave that away")
        if last is None and "position" in self._schema().names and self._table.count():
            raise SinkError(
                f"{self._path} has rows with positions, and its log does not say up to which they were written; give "
                f"each run its own table, and set no delta.setTransactionRetentionDuration; or pass resume='replace' "
                f"(--on-existing replace)"
            )

    def _partitions(self) -> list[str]:
        if self._table is None or self._overwrites:
            return self._by
        return list(self._table.metadata().partition_columns)

    def _schema(self) -> pa.Schema:
        import pyarrow as pa

        return pa.schema(self._table.schema().to_arrow())

    def _find_end(self) -> Last | None:
        if self._table is None:
            self._find_table()
            if self._table is None:
                return None
        with self._looking(Exception):
            self._table.update_incremental()
            version = self._table.transaction_version
            position = version(_APPLICATION)
            if position is None or position == _NONE:
                return None
            length = version(_META)
            parts = range(0, length, _PART_BYTES)
            sizes = [min(_PART_BYTES, length - at) for at in parts]
            return Last(position, b"".join(version(f"{_META} {at}").to_bytes(size) for at, size in zip(parts, sizes)))

    def _store(self, positions: Sequence[int], metas: Metas, payloads: Sequence[Any]) -> Last | None:  # type: ignore[override]
        if self._items is None:
            from drift.sinks.typed import Gathered

            self._items = Gathered()
        self._items.add(positions, metas, payloads)
        self._filling.add(payloads)
        if self._filling.is_full:
            self._flush()
        self.tick()
        return self._last

    def tick(self) -> None:
        """See `Ticking`: items that are due come into the table."""
        if self._filling.is_due:
            self._flush()

    def commit(self) -> dict[str, Any]:
        """See `Committing`: what was written comes into the table."""
        self._flush()
        committed = super().commit()
        with self._looking(Exception):
            return {**committed, "rows": self._rows_up_to(self._last)}

    def complete(self) -> None:
        """Raises:
        SinkError: more is stored than this run produced, or less than it has written.
        """
        self._flush()
        super().complete()

    def _end(self) -> None:
        self._flush()
        self._table = None

    def _flush(self) -> None:
        """Everything gathered becomes a version."""
        if not self._items:
            return
        from deltalake import CommitProperties, Transaction, write_deltalake

        items, self._items = self._items, None
        self._filling.clear()
        if (found := self._find_end()) != self._last:
            raise self._moved(found)
        first, last = items.first, Last(items.end, items.last)
        with self._taking([first, last.position], Exception):
            table = self._typed(items)
            for name in self._partitions():
                table = with_names(table, name)
            parts = range(0, len(last.meta), _PART_BYTES)
            transactions = [Transaction(_APPLICATION, last.position), Transaction(_META, len(last.meta))]
            transactions += [
                Transaction(f"{_META} {at}", int.from_bytes(last.meta[at : at + _PART_BYTES])) for at in parts
            ]
            merges = self._merge_schema and self._table is not None
            noted = {"drift": f"positions {first} to {last.position}"}
            write_deltalake(
                self._path if self._table is None else self._table,
                table,
                partition_by=self._by or None,
                mode="overwrite" if self._overwrites else "error" if self._table is None else "append",
                schema_mode="overwrite" if self._overwrites else "merge" if merges else None,
                storage_options=self._options or None,
                commit_properties=CommitProperties(custom_metadata=noted, app_transactions=transactions),
            )
        self._overwrites = False
        self._last = last

    def _typed(self, items: Gathered) -> pa.Table:
        """Items as a table of the types that the table in the lake has.

        Raises:
            PayloadError: it does not have these.
        """
        import pyarrow as pa

        from drift.sinks.typed import Tables

        tables = Tables(self._path, self._columns)
        tables.add(*items.take())
        made = tables.table()
        has = {} if self._table is None or self._overwrites else {field.name: field.type for field in self._schema()}
        columns = {}
        for name, column in zip(made.column_names, made.columns):
            if pa.types.is_null(column.type):
                continue  # in a table that has no such column it is left out, and so is null
            if has and name not in has and not self._merge_schema:
                raise PayloadError(
                    f"the table has no column {name!r}; it has {', '.join(map(repr, has))}; map the payloads, or pass "
                    f"merge_schema=True"
                )
            columns[name] = column if name not in has else _as(name, column, has[name])
        for name in has.keys() - columns.keys():
            columns[name] = pa.nulls(made.num_rows, has[name])
        return pa.table({name: columns[name] for name in [*has, *(each for each in columns if each not in has)]})

    def compare(self, committed: Any) -> str:
        """See `Comparing`: that each row below the checkpoint is there, once; values are not compared."""
        (last,) = from_committed(self._target, committed)
        with self._looking(Exception):
            self._find_table()
            found = self._rows_up_to(last)
        if found != committed["rows"]:
            then, now = committed["rows"][0], found[0]
            has = f"now it has {now:,}" if now != then else "now it has others"
            raise SinkError(
                f"{self._path} had {then:,} rows as of the checkpoint, and {has}: what this run had written was "
                f"changed; bring it back (deltalake has restore), or start anew with "
                f"another state and resume='replace' (--on-existing replace)"
            )
        return f"{self._path} has its {found[0]:,} rows as of the checkpoint, by their positions"

    def _rows_up_to(self, last: Last | None) -> list[int]:
        """The number of the rows up to a position, and the sum of their positions."""
        import pyarrow.compute as pc

        if last is None or self._table is None:
            return [0, 0]
        count = total = 0
        dataset = self._table.to_pyarrow_dataset()
        for batch in dataset.to_batches(columns=["position"], filter=pc.field("position") <= last.position):
            count += batch.num_rows
            total += pc.sum(batch["position"]).as_py() or 0
        return [count, total]


def _as(name: str, column: pa.ChunkedArray, kind: pa.DataType) -> pa.ChunkedArray:
    """A column as one of the type that a table has, if that holds the same values.

    Raises:
        PayloadError: it does not.
    """
    import pyarrow as pa

    try:
        if _fits(column.type, kind):
            return column.cast(kind)
        why = ""
    except pa.ArrowException as error:
        why = f" ({error})"
    raise PayloadError(
        f"the table has {name!r} as {kind}, and the payloads as {column.type}{why}; map them, or name the type where "
        f"the table is made: columns={{{name!r}: pyarrow type}}"
    )


def _fits(of: pa.DataType, into: pa.DataType) -> bool:
    """Whether a value of one type can be one of another without being another value."""
    import pyarrow as pa

    if pa.types.is_null(of) or of == into:
        return True
    if pa.types.is_struct(of) and pa.types.is_struct(into):
        by_name = {field.name: field.type for field in into}
        return all(field.name in by_name and _fits(field.type, by_name[field.name]) for field in of)
    if _family(of) == _family(into) == "list":
        return _fits(of.value_type, into.value_type)
    if pa.types.is_integer(of) and pa.types.is_floating(into):
        return True  # Arrow refuses an int that is no float
    if pa.types.is_floating(of) and pa.types.is_floating(into):
        return bool(of.bit_width <= into.bit_width)
    return _family(of) == _family(into)


def _family(kind: pa.DataType) -> str:
    """The name of types that differ in how they hold their values, where Arrow refuses what one cannot hold."""
    import pyarrow as pa

    known = {
        "int": pa.types.is_integer,
        "text": lambda each: (
            pa.types.is_string(each) or pa.types.is_large_string(each) or pa.types.is_string_view(each)
        ),
        "bytes": lambda each: (
            pa.types.is_binary(each) or pa.types.is_large_binary(each) or pa.types.is_binary_view(each)
        ),
        "list": lambda each: pa.types.is_list(each) or pa.types.is_large_list(each) or pa.types.is_list_view(each),
        "moment": lambda each: pa.types.is_timestamp(each) and each.tz is None,
        "moment with a zone": lambda each: pa.types.is_timestamp(each) and each.tz is not None,
    }
    return next((name for name, is_of in known.items() if is_of(kind)), str(kind))
