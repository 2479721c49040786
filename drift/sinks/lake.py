"""Tables of a lake: Delta Lake and Iceberg.

Invariant: the rows of the table that a run wrote are its items up to the position that the table names; where it names
another than this run has left, nothing is appended.

Why: rows and position come into a table in one commit, which is refused if another came in between.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from drift.sinks.filling import GatheringSink, Limits
from drift.sinks.resuming import Found, Last, refuse_existing
from drift_graph.errors import PayloadError, SinkError

if TYPE_CHECKING:
    import pyarrow as pa

    from drift.sinks.typed import Gathered


class LakeSink(GatheringSink):
    """A sink that gathers items and appends them to a table, in one commit with the position of the last.

    A subclass finds the table (`_find_table`), appends to it (`_append_table`), and says what it has.
    """

    _compared_by = ", by their positions"
    _end_unknown = ""  # why a table with rows may not say where they end, and what to do

    def __init__(
        self,
        path: str,
        columns: Sequence[str] | Mapping[str, Any] | None,
        limits: Limits,
        partition_by: list[str],
        merge_schema: bool,
        resume: str,
    ) -> None:
        super().__init__(path, columns, limits, resume)
        self._by = partition_by
        self._merge_schema = merge_schema
        self._table: Any = None  # once there is one
        self._overwrites = False  # what is appended replaces all there is

    def _find_table(self) -> None:
        """Set `_table`, to None if there is none."""
        raise NotImplementedError

    def _end_in_table(self) -> Last | None:
        """What the table says of its end, as it is now."""
        raise NotImplementedError

    def _partitioned_by(self) -> list[str]:
        """The columns by whose values the table is partitioned."""
        raise NotImplementedError

    def _partitionable(self, rows: pa.Table, name: str) -> pa.Table:
        """The rows, which the table can keep by the values of this column. Raises PayloadError: it cannot."""
        raise NotImplementedError

    def _has_positions(self) -> bool:
        """Whether a table with a column `position` has rows that a run wrote."""
        raise NotImplementedError

    def _remove_rows(self) -> None:
        """Remove all rows of the table, and what it says of their end."""
        raise NotImplementedError

    def _schema(self) -> pa.Schema:
        """Of the table."""
        raise NotImplementedError

    def _append_table(self, rows: pa.Table, first: int, last: Last) -> None:
        """Append rows and the position of the last in one commit; the first ones to a table that is made."""
        raise NotImplementedError

    def _positions_between(self, first: int, last: int) -> Iterable[pa.RecordBatch]:
        """The column `position` of the rows with these positions, and those between."""
        raise NotImplementedError

    def begin(self, resume: str) -> Last | None:
        self._overwrites = False
        with self._looking(Exception):
            self._find_table()
            last = self.find_end()
        if self._table is None:
            return None
        if resume == "error":
            refuse_existing(self._path, last)
        if resume == "replace":
            with self._taking([0], Exception):
                self._remove_rows()
            return None
        self._check_table(last)
        return last

    def find_end(self) -> Last | None:
        if self._table is None:
            self._find_table()
            if self._table is None:
                return None
        with self._looking(Exception):
            return self._end_in_table()

    def items_between(self, first: int, last: int) -> Found:
        import pyarrow.compute as pc

        with self._looking(Exception):
            found = [batch for batch in self._positions_between(first, last) if batch.num_rows]
            least = min((pc.min(batch["position"]).as_py() for batch in found), default=None)
        return Found(sum(batch.num_rows for batch in found), least)

    def _check_table(self, last: Last | None) -> None:
        """Raises SinkError: the table is none that this sink writes."""
        by = self._partitioned_by()
        if self._by and by != self._by:
            raise SinkError(f"{self._path} is partitioned by {by}, and partition_by is {self._by}; leave that away")
        if last is None and "position" in self._schema().names and self._has_positions():
            raise SinkError(
                f"{self._path} has rows with positions, and {self._end_unknown} pass resume='replace' "
                f"(--on-existing replace)"
            )

    def commit(self) -> dict[str, Any]:
        """What was written comes into the table."""
        self._flush()
        return super().commit()

    def complete(self) -> None:
        """Raises SinkError: more is stored than this run produced, or less than it has written."""
        self._flush()
        super().complete()

    def end(self) -> None:
        self._flush()
        self._table = None

    def _flush(self) -> None:
        """Everything gathered comes into the table."""
        if not self._items:
            return
        items, self._items = self._items, None
        self._filling.clear()
        self._check_end()
        first, last = items.first, Last(items.end, items.last)
        with self._taking([first, last.position], Exception):
            rows = self._typed(items)
            is_new = self._table is None or self._overwrites
            for name in self._by if is_new else self._partitioned_by():
                rows = self._partitionable(rows, name)
            self._append_table(rows, first, last)
        self._overwrites = False
        self._last = last

    def _typed(self, items: Gathered) -> pa.Table:
        """Items as a table of the types that the table in the lake has. Raises PayloadError: it does not have these."""
        import pyarrow as pa

        from drift.sinks.typed import Tables

        has = {} if self._table is None or self._overwrites else {field.name: field.type for field in self._schema()}
        tables = Tables(self._path, self._columns, has)
        tables.add(*items.take())
        made = tables.table()
        columns = {}
        for name, column in zip(made.column_names, made.columns):
            if pa.types.is_null(column.type):
                continue  # in a table that has no such column it is left out
            if has and name not in has and not self._merge_schema:
                raise PayloadError(
                    f"the table has no column {name!r}; it has {', '.join(map(repr, has))}; map the payloads, or pass "
                    f"merge_schema=True"
                )
            columns[name] = column
        for name in has.keys() - columns.keys():
            columns[name] = pa.nulls(made.num_rows, has[name])
        return pa.table({name: columns[name] for name in [*has, *(each for each in columns if each not in has)]})

    @contextmanager
    def to_compare(self) -> Iterator[None]:
        with self._looking(Exception):
            self._find_table()
        yield

    def sum_of_rows(self, above: int, last: int) -> tuple[int, int]:
        """The number of the rows, and the sum of their positions: values are not compared."""
        import pyarrow.compute as pc

        count = total = 0
        with self._looking(Exception):
            for batch in self._positions_between(above + 1, last) if self._table is not None else ():
                count += batch.num_rows
                total += pc.sum(batch["position"]).as_py() or 0
        return count, total
