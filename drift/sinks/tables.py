"""Tables of a database: the common part of the sinks of Postgres and SQLite.

Invariant: the rows of the table are those of the items up to the position that is stored beside them.

Why: rows and position are committed in one transaction, which has the database or the position locked, and sees that
the position is the one this run left.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, closing, contextmanager
from typing import Any, ClassVar

import msgspec

from drift.sinks.refused import TABLE, Refused, Statements, kept, put_or_set_apart, refused_item
from drift.sinks.resuming import Found, Last, ResumingSink, refuse_existing
from drift.sinks.rows import OF_ITEMS, RowMaker, field_names
from drift_graph.errors import SinkError
from drift_graph.metas import Metas

#: What clients raise for values that they cannot send, such as a lone surrogate.
_REFUSALS = msgspec.MsgspecError, TypeError, ValueError, OverflowError


class TableSink(ResumingSink):
    """A sink of rows, which are hashed as they are read back, in the forms of the database.

    Items that the table refuses can be set apart in the table drift_errors, and put in again: a checkpoint before did
    not have them, so that a sum of rows passes them over.

    A subclass connects (`_connect`), and says how its database differs.

    Args:
        table: its name, which is also that of the position in drift_positions.
        statement: executed for each item in place of an insert.
        diverts: whether what the table refuses is set apart.
    """

    _errors: Statements
    _failures: tuple[type[Exception], ...]  # what the database raises
    _refusals: tuple[type[Exception], ...]  # the same where something is wrong with an item: a constraint, a type
    _bytes: ClassVar[str]  # the type of bytes
    _cannot_open: ClassVar[tuple[str, str]]  # in words, and what to do

    def __init__(
        self, target: str, table: str, columns: Sequence[str] | None, statement: str | None, resume: str, diverts: bool
    ) -> None:
        super().__init__(target, resume)
        self._rows = RowMaker(target, columns)
        self._table = table
        self._in_sql = quoted(table)
        self._statement = statement
        self._diverts = diverts
        self._connection: Any = None

    def _connect(self) -> Any:
        """Connect; each statement is a transaction but in `_transaction`."""
        raise NotImplementedError

    def _ask(self, sql: str, *values: Any) -> Any:
        """Execute a statement whose parameters are marked as in `_errors`; returns what has its rows."""
        raise NotImplementedError

    def _transaction(self, *, to_make: bool = False) -> AbstractContextManager[None]:
        """A context in which nobody else writes to the table; or, `to_make`, makes tables."""
        raise NotImplementedError

    def _savepoint(self) -> AbstractContextManager[None]:
        """A context in a transaction, whose statements are undone if it raises."""
        raise NotImplementedError

    def _has_table(self, name: str) -> bool:
        raise NotImplementedError

    def _names_of_columns(self) -> Iterable[str]:
        """The columns of the table as it is."""
        raise NotImplementedError

    def _insert(self, rows: list[tuple[Any, ...]]) -> None:
        """Insert rows into the table, which is made if it is not there."""
        raise NotImplementedError

    def _rows_of(self, positions: Sequence[int], metas: Metas, payloads: Sequence[Any]) -> list[tuple[Any, ...]]:
        return self._rows.rows(positions, metas, payloads)

    def _check_target(self) -> None:
        """Raises SinkError: what is connected to is no longer what the target names."""

    def _check_there(self) -> None:
        """Raises SinkError: there is no database any more."""

    def _text_of(self, error: Exception) -> str:
        return str(error).strip()

    def begin(self, resume: str) -> Last | None:
        try:
            self._connection = self._connect()
            with self._transaction(to_make=True):
                self._ask(
                    f"create table if not exists drift_positions (sink text primary key, position bigint, meta "
                    f"{self._bytes})"
                )
                if self._diverts:
                    self._ask(self._errors.create)
                last = self._stored()
                if resume == "error":
                    refuse_existing(self._target, last or self._exists())
                if resume == "replace":
                    self._ask(f"delete from drift_positions where sink = {self._errors.mark}", self._table)
                    if self._statement is None:
                        self._ask(f"drop table if exists {self._in_sql}")
                    if self._diverts:
                        self._ask(self._errors.delete_all, self._table)
                    return None
                if last and self._statement is None and not (self._exists() or self._refused()):
                    raise SinkError(
                        f"{self._target} is gone, and drift_positions says that it has the items up to position "
                        f"{last.position}; bring it back, or pass resume='replace' (--on-existing replace)"
                    )
                return last
        except self._failures as error:
            cannot, to_do = self._cannot_open
            why = self._text_of(error)
            raise SinkError(f"{self._target} {cannot}: {why}; nothing was written; {to_do}") from None

    def items_between(self, first: int, last: int) -> Found | None:
        if self._statement is not None:
            return None
        mark = self._errors.mark
        between = f"position >= {mark} and position <= {mark}"
        with self._looking(*self._failures):
            found = Found(0, None)
            if self._exists():
                sql = f"select count(*), min(position) from {self._in_sql} where {between}"
                found = Found(*self._ask(sql, first, last).fetchone())
            if not self._has_table(TABLE):
                return found
            sql = f"select count(*), min(position) from {TABLE} where sink = {mark} and error is not null and {between}"
            since = first if found.first is None else found.first
            refused = Found(*self._ask(sql, self._table, since, last).fetchone())
        return Found(found.items + refused.items, refused.first if found.first is None else found.first)

    def append(self, left: Last | None, positions: Sequence[int], metas: Metas, payloads: Sequence[Any]) -> Last | None:
        last, mark = Last(positions[-1], metas[-1]), self._errors.mark
        with self._taking(positions, *self._failures, *_REFUSALS):
            rows = None if self._diverts else self._rows_of(positions, metas, payloads)
            with self._transaction():
                self._check_target()
                if (found := self._stored()) != left:
                    return found
                if rows is not None:
                    self._insert(rows)
                else:
                    put_or_set_apart(self._put, self._set_apart, self._of_items, positions, metas, payloads)
                self._ask(
                    f"insert into drift_positions values ({mark}, {mark}, {mark}) on conflict (sink) do update "
                    f"set position = excluded.position, meta = excluded.meta",
                    self._table,
                    *last,
                )
        self._check_target()
        return left

    @property
    def _of_items(self) -> tuple[type[Exception], ...]:
        """What is wrong with an item and not with the database; a SinkError for a further field."""
        return (*self._refusals, *_REFUSALS, SinkError)

    def _put(self, positions: Sequence[int], metas: Metas, payloads: Sequence[Any]) -> None:
        """Insert items, or none of them if one is refused."""
        with self._savepoint():
            self._insert(self._rows_of(positions, metas, payloads))

    def _set_apart(self, position: int, meta: bytes, payload: Any, error: Exception) -> None:
        try:
            (row,) = self._rows_of([position], Metas([meta]), [payload])
        except (SinkError, *_REFUSALS):  # it has other fields, or what cannot be stored
            fields = None
        else:
            fields = {name: kept(value) for name, value in zip(self._rows.names or (), row[len(OF_ITEMS) :])}
        refused = refused_item(self._table, position, meta, payload, _why(error), fields, self._statement)
        self._ask(self._errors.insert, *refused)

    def _refused(self) -> list[Refused]:
        """The items that were set apart."""
        if not self._diverts:
            return []
        rows = self._ask(self._errors.select, self._table).fetchall()
        return [Refused(*row)._replace(meta=bytes(row[3])) for row in rows]

    def retry(self, positions: Collection[int] | None = None) -> tuple[int, int]:
        """Insert items that were set apart, each by itself, while no run writes to the table.

        Args:
            positions: of the items; None for all.

        Returns:
            How many are in the table now, and how many it still refuses.
        """
        taken = left = 0
        self._diverts = True
        names, statement = self._rows.names, self._statement
        try:
            self._connection = self._connect()
            with self._transaction():
                self._ask(self._errors.create)
                for each in self._refused():
                    if positions is not None and each.position not in positions:
                        continue
                    self._statement = statement or each.statement
                    self._rows.names = names or self._names_for(each)
                    try:
                        self._put([each.position], Metas([each.meta]), [each.value])
                    except self._of_items as error:
                        left += 1
                        self._ask(self._errors.explain, _why(error), self._table, each.position)
                    else:
                        taken += 1
                        self._ask(self._errors.take, self._table, each.position)
        except self._failures as error:
            raise SinkError(f"{self._target}: {self._text_of(error)}; it is as it was") from None
        finally:
            self._rows.names, self._statement = names, statement
            self.end()
        return taken, left

    def _names_for(self, refused: Refused) -> list[str] | None:
        """The columns for an item that is put in again."""
        if refused.fields is not None:
            return list(refused.value)
        return field_names(self._names_of_columns()) if self._exists() else None

    def commit(self) -> dict[str, Any]:
        return {**super().commit(), "columns": self._rows.names}

    def restore(self, committed: dict[str, Any]) -> None:
        super().restore(committed)
        self._rows.names = committed.get("columns") or self._rows.names

    def find_end(self) -> Last | None:
        self._check_target()
        with self._looking(*self._failures):
            return self._stored()

    def end(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.close()

    def _stored(self) -> Last | None:
        sql = f"select position, meta from drift_positions where sink = {self._errors.mark}"
        found = self._ask(sql, self._table).fetchone()
        return None if found is None else Last(found[0], bytes(found[1]))

    def _exists(self) -> bool:
        return self._statement is None and self._has_table(self._table)

    @contextmanager
    def to_compare(self) -> Iterator[None]:
        self._check_there()
        try:
            with closing(self._connect()) as self._connection:
                yield
        except self._failures as error:
            raise SinkError(f"{self._target} cannot be read: {self._text_of(error)}") from None
        finally:
            self._connection = None


def quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


def _why(error: Exception) -> str:
    """The reason, the same in each run: of Postgres without the line of a transfer."""
    diagnosis = getattr(error, "diag", None)
    if diagnosis is None or diagnosis.message_primary is None:
        return f"{type(error).__name__}: {error}"
    return ": ".join(filter(None, [type(error).__name__, diagnosis.message_primary, diagnosis.message_detail]))
