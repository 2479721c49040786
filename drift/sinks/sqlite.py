"""A table of an SQLite file.

Invariant: the rows of the table are those of the items up to the position that is stored beside them.

Why: rows and position are committed in one transaction, which also sees that the position is the one this run left.
"""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Collection, Iterator, Sequence
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any, ClassVar, Literal

import msgspec
import xxhash

from drift.guarantees import SinkGuarantee
from drift.sinks.refused import TABLE, OnError, Refused, Statements, check_on_error, put_or_set_apart, refused_item
from drift.sinks.resuming import Last, TableSink, check_resume, refuse_existing
from drift.sinks.rows import RowMaker, field_names
from drift_graph.errors import SettingsError, SinkError
from drift_graph.metas import Metas

_POSITIONS = "create table if not exists drift_positions (sink text primary key, position integer, meta blob)"
_ERRORS = Statements("?", "blob")
#: What is wrong with an item and not with the database: a constraint, a lone surrogate, a further field.
_REFUSALS = msgspec.MsgspecError, TypeError, ValueError, OverflowError
_OF_ITEMS = (*_REFUSALS, sqlite3.IntegrityError, sqlite3.DataError, SinkError)
_NANS = b"\xcb\x7f\xf8", b"\xcb\xff\xf8"  # as MessagePack
_PLAIN = (int, float, str, bytes, type(None))


def sqlite(
    path: str | os.PathLike[str],
    table: str,
    *,
    columns: Sequence[str] | None = None,
    statement: str | None = None,
    resume: Literal["continue", "replace", "error"] = "continue",
    on_error: OnError = "error",
) -> SqliteSink:
    """A row of a table for each item: position, time, and the fields of the payload.

    Numbers, text, bytes and None are stored unchanged, True as 1, anything else as `drift.sinks.jsonl` writes it. The
    table is created if it does not exist. Items that were released together are committed together.

    Args:
        table: its name, which is also the name of the position in the table drift_positions.
        columns: names of the fields, for tuples in their order; None for those of the first payloads.
        statement: executed for each item in place of an insert, with :position, :time and :FIELD, for instance "insert
            into n values (:word, :n) on conflict (word) do update set n = excluded.n".
        resume: what to do if runs have written before: "continue" behind them, "replace" the table, or "error".
        on_error: what to do with an item that the table refuses (a constraint, a value SQLite cannot hold): end the run
            with an "error", or "divert" it to the table drift_errors of the file, with its position and the reason;
            `drift errors` lists them, and puts them in again.
    """
    check_resume(resume)
    if not isinstance(table, str) or not table or "\0" in table:
        raise SettingsError(f"sqlite table={table!r:.80} is no name of a table")
    try:
        return SqliteSink(os.fsdecode(path), table, columns, statement, resume, check_on_error(on_error))
    except TypeError:
        raise SettingsError(f"sqlite({path!r:.80}): the path of a file is a text or a pathlib.Path") from None


class SqliteSink(TableSink):
    """See `sqlite`."""

    guarantee: ClassVar = SinkGuarantee("exactly once", "the position is committed with the rows")

    def __init__(
        self,
        path: str,
        table: str,
        columns: Sequence[str] | None,
        statement: str | None,
        resume: str,
        diverts: bool = False,
    ) -> None:
        self._rows = RowMaker(f"table {table!r} of {path}", columns)
        super().__init__(f"table {table!r} of {path}", resume, self._rows)
        self._path = path
        self._table = table
        self._statement = statement
        self._diverts = diverts
        self._connection: sqlite3.Connection | None = None
        self._file: tuple[int, int] | None = None
        self._converts: bool | None = None  # whether the types of the table may change values

    def _begin(self, resume: str) -> Last | None:
        try:
            self._connection = connection = sqlite3.connect(
                self._path, timeout=30, isolation_level=None, check_same_thread=False
            )
            connection.execute("begin immediate")
            connection.execute(_POSITIONS)
            if self._diverts:
                connection.execute(_ERRORS.create)
            last = self._stored(connection)
            if resume == "error":
                refuse_existing(self._target, last or self._exists(connection))
            if resume == "replace":
                connection.execute("delete from drift_positions where sink = ?", (self._table,))
                if self._statement is None:
                    connection.execute(f"drop table if exists {_quoted(self._table)}")
                if self._diverts:
                    connection.execute(_ERRORS.delete_all, (self._table,))
                last = None
            elif last and self._statement is None and not (self._exists(connection) or self._refused(connection)):
                raise self._has_no_table(last)
            connection.execute("commit")
            self._file = _file_of(self._path)
        except sqlite3.Error as error:
            raise SinkError(
                f"{self._path} cannot be opened as an SQLite file: {error}; nothing was written; check the path, who "
                f"may write there, and that no other program holds it"
            ) from error
        return last

    def _append(
        self, left: Last | None, positions: Sequence[int], metas: Metas, payloads: Sequence[Any]
    ) -> Last | None:
        rows = None
        if not self._diverts:
            with self._taking(positions, *_REFUSALS):
                rows = self._rows_of(positions, metas, payloads)
        last = Last(positions[-1], metas[-1])
        connection = self._connection
        assert connection is not None
        with self._taking(positions, sqlite3.Error, *_REFUSALS), _transaction(connection):
            found = self._stored(connection)
            if found == left and _file_of(self._path) == self._file:
                if rows is not None:
                    self._insert(connection, rows)
                    self._sum_up(connection, rows)
                else:
                    put_or_set_apart(self._put, self._set_apart, _OF_ITEMS, positions, metas, payloads)
                connection.execute("insert or replace into drift_positions values (?, ?, ?)", (self._table, *last))
        self._check_file()
        return found

    def _rows_of(self, positions: Sequence[int], metas: Metas, payloads: Sequence[Any]) -> list[tuple[Any, ...]]:
        return [tuple(map(_storable, row)) for row in self._rows.rows(positions, metas, payloads)]

    def _put(self, positions: Sequence[int], metas: Metas, payloads: Sequence[Any]) -> None:
        """Insert items, or none of them if one is refused."""
        assert self._connection is not None
        with _savepoint(self._connection):
            self._insert(self._connection, self._rows_of(positions, metas, payloads))

    def _set_apart(self, position: int, meta: bytes, payload: Any, error: Exception) -> None:
        assert self._connection is not None
        item = refused_item(self._table, position, meta, payload, f"{type(error).__name__}: {error}")
        self._connection.execute(_ERRORS.insert, item)

    def _refused(self, connection: sqlite3.Connection) -> list[Refused]:
        """The items that were set apart."""
        if not self._diverts:
            return []
        return [Refused(*row) for row in connection.execute(_ERRORS.select, (self._table,))]

    def retry(self, positions: Collection[int] | None = None) -> tuple[int, int]:
        """Insert items that were set apart, each by itself, while no run writes to the table.

        Args:
            positions: of the items; None for all.

        Returns:
            How many are in the table now, and how many it still refuses.
        """
        connection = sqlite3.connect(self._path, timeout=30, isolation_level=None)
        self._connection, self._diverts = connection, True
        taken = left = 0
        try:
            with self._taking([0], sqlite3.Error), _transaction(connection):
                connection.execute(_ERRORS.create)
                if self._rows.names is None and self._exists(connection):
                    found = connection.execute(f"pragma table_info({_quoted(self._table)})")
                    self._rows.names = field_names(name for _, name, *_ in found)
                for each in self._refused(connection):
                    if positions is not None and each.position not in positions:
                        continue
                    try:
                        self._put([each.position], [each.meta], [each.value])
                    except _OF_ITEMS as error:
                        left += 1
                        why = f"{type(error).__name__}: {error}"
                        connection.execute(_ERRORS.explain, (why, self._table, each.position))
                    else:
                        taken += 1
                        connection.execute(_ERRORS.take, (self._table, each.position))
        finally:
            self._end()
        return taken, left

    def _find_end(self) -> Last | None:
        self._check_file()
        assert self._connection is not None
        with self._looking(sqlite3.Error):
            return self._stored(self._connection)

    def _sum_up(self, connection: sqlite3.Connection, rows: list[tuple[Any, ...]]) -> None:
        """Add rows to the sum without reading them back, once there is one, where SQLite has them as they are."""
        up_to = -1 if self._last is None else self._last.position
        if not self._commits or self._statement is not None or self._summed is None or self._summed[0] != up_to:
            return
        if self._converts is None:
            sql = f"pragma table_info({_quoted(self._table)})"
            types = [(name, kind.lower()) for _, name, kind, *_ in connection.execute(sql)]
            made = [("position", "integer"), ("time", "integer"), *((name, "") for name in self._rows.columns[2:])]
            self._converts = types != made
        if not self._converts:
            count, total = _sum_of(rows)
            self._summed = rows[-1][0], self._summed[1] + count, self._summed[2] + total

    def _sum_of_rows(self, above: int, last: int) -> tuple[int, int] | None:
        connection = self._connection
        assert connection is not None
        if self._statement is not None:
            return None
        with self._looking(sqlite3.Error):
            if not self._exists(connection):
                return 0, 0
            sql = f"select * from {_quoted(self._table)} where position > ? and position <= ?"
            if _has_table(connection, TABLE):
                sql += f" and position not in ({_ERRORS.taken})"
            found = connection.execute(sql, (above, last, *[self._table] * sql.count(TABLE)))
            return _sum_of(found.fetchall())

    @contextmanager
    def _opened_to_read(self) -> Iterator[None]:
        if not Path(self._path).exists():
            raise SinkError(f"{self._path} is gone; bring it back, or start anew with another state")
        with self._looking(sqlite3.Error), closing(sqlite3.connect(self._path, timeout=30)) as self._connection:
            yield
        self._connection = None

    def _check_file(self) -> None:
        if _file_of(self._path) != self._file:
            raise SinkError(
                f"{self._path} is another file than the one that this run has opened: it was replaced or removed while "
                f"the run wrote to it; what this run wrote is in the other one; leave the file, and run again"
            )

    def _end(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.close()

    def _insert(self, connection: sqlite3.Connection, rows: list[tuple[Any, ...]]) -> None:
        columns = self._rows.columns
        if self._statement is not None:
            connection.executemany(self._statement, (dict(zip(columns, row)) for row in rows))
            return
        table, names = _quoted(self._table), ", ".join(map(_quoted, columns))
        if self._last is None or self._diverts:
            made = ", ".join(["position integer primary key", "time integer", *map(_quoted, columns[2:])])
            connection.execute(f"create table if not exists {table} ({made})")
        marks = ", ".join("?" * len(columns))
        connection.executemany(f"insert into {table} ({names}) values ({marks})", rows)

    def _stored(self, connection: sqlite3.Connection) -> Last | None:
        sql = "select position, meta from drift_positions where sink = ?"
        found = connection.execute(sql, (self._table,)).fetchone()
        return None if found is None else Last(*found)

    def _exists(self, connection: sqlite3.Connection) -> bool:
        return self._statement is None and _has_table(connection, self._table)


def _sum_of(rows: list[tuple[Any, ...]]) -> tuple[int, int]:
    """The number of rows, and the sum of their hashes."""
    forms = list(map(msgspec.msgpack.encode, rows))
    together = b"".join(forms)
    if any(nan in together for nan in _NANS):  # SQLite has none
        forms = [msgspec.msgpack.encode([None if value != value else value for value in row]) for row in rows]
    return len(rows), sum(map(xxhash.xxh3_64_intdigest, forms))


def _has_table(connection: sqlite3.Connection, name: str) -> bool:
    sql = "select 1 from sqlite_master where type = 'table' and name = ?"
    return connection.execute(sql, (name,)).fetchone() is not None


@contextmanager
def _transaction(connection: sqlite3.Connection) -> Iterator[None]:
    connection.execute("begin immediate")
    try:
        yield
        connection.execute("commit")
    except BaseException:
        if connection.in_transaction:  # a constraint may say that it ends the transaction
            connection.execute("rollback")
        raise


@contextmanager
def _savepoint(connection: sqlite3.Connection) -> Iterator[None]:
    connection.execute("savepoint items")
    try:
        yield
    except BaseException:
        connection.execute("rollback to items")
        raise
    finally:
        if connection.in_transaction:
            connection.execute("release items")


def _file_of(path: str) -> tuple[int, int] | None:
    """Which file has this path now."""
    try:
        found = Path(path).stat()
    except OSError:
        return None
    return found.st_dev, found.st_ino


def _quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


def _storable(value: Any) -> Any:
    if type(value) in _PLAIN:
        return value
    if type(value) is bool:
        return int(value)
    plain = msgspec.to_builtins(value, str_keys=True, order="deterministic")
    return plain if isinstance(plain, str) else msgspec.json.encode(plain).decode()
