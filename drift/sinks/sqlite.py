"""A table of an SQLite file; see `drift.sinks.tables`."""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, ClassVar, Literal

import msgspec
import xxhash

from drift.guarantees import SinkGuarantee
from drift.sinks.refused import TABLE, OnError, Statements, check_on_error
from drift.sinks.resuming import Last, check_resume
from drift.sinks.tables import TableSink, quoted
from drift.urls import path_text
from drift_graph.errors import SettingsError, SinkError
from drift_graph.metas import Metas

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

    Numbers, text, bytes and None are stored unchanged, but for NaN, of which SQLite makes NULL; True as 1, anything
    else as `drift.sinks.jsonl` writes it. The table is created if it does not exist. Items that were released together
    are committed together.

    >>> import drift
    >>> graph = drift.Graph("fares")
    >>> graph.source("fares").sink("out")
    >>> fares = [{"zone": "JFK", "fare": 30.5}, {"zone": "LGA", "fare": 9.0}]
    >>> report = drift.run(graph, {"fares": fares}, sinks={"out": drift.sinks.sqlite("taxi.db", "fares")}).finish()
    >>> import sqlite3
    >>> sqlite3.connect("taxi.db").execute("select * from fares").fetchall()
    [(0, 0, 'JFK', 30.5), (1, 1, 'LGA', 9.0)]

    Args:
        table: its name, which is also the name of the position in the table drift_positions.
        columns: names of the fields, for tuples in their order; None for those of the first payloads.
        statement: executed for each item in place of an insert, with :position, :time and :FIELD, for instance "insert
            into n values (:word, :n) on conflict (word) do update set n = excluded.n".
        resume: what to do if runs have written before: "continue" behind them, "replace" the table, or "error".
        on_error: what to do with an item that the table refuses (a constraint, a value SQLite cannot hold): end the run
            with an "error", or "divert" it to the table drift_errors of the file, with its position and the reason;
            `drift errors` lists them, and puts them in again.

    Raises:
        SettingsError: `table`, `resume` or `on_error` is none of these.
    """
    check_resume(resume)
    if not isinstance(table, str) or not table or "\0" in table:
        raise SettingsError(f"sqlite table={table!r:.80} is no name of a table")
    return SqliteSink(path_text("sqlite", path), table, columns, statement, resume, check_on_error(on_error))


class SqliteSink(TableSink):
    guarantee: ClassVar = SinkGuarantee("exactly once", "the position is committed with the rows")

    _errors = Statements("?", "blob")
    _bytes = "blob"
    _failures = (sqlite3.Error,)
    _refusals = sqlite3.IntegrityError, sqlite3.DataError
    _cannot_open = (
        "cannot be opened as an SQLite file",
        "check the path, who may write there, and that no other program holds it",
    )

    def __init__(
        self,
        path: str,
        table: str,
        columns: Sequence[str] | None,
        statement: str | None,
        resume: str,
        diverts: bool = False,
    ) -> None:
        super().__init__(f"table {table!r} of {path}", table, columns, statement, resume, diverts)
        self._path = path
        self.writes_to = f"{path}, table {table!r}"
        self._file: tuple[int, int] | None = None

    def _connect(self) -> Any:
        return sqlite3.connect(self._path, timeout=30, isolation_level=None, check_same_thread=False)

    def _ask(self, sql: str, *values: Any) -> Any:
        return self._connection.execute(sql, values)

    def begin(self, resume: str) -> Last | None:
        last = super().begin(resume)
        self._file = _file_of(self._path)
        return last

    def _rows_of(self, positions: Sequence[int], metas: Metas, payloads: Sequence[Any]) -> list[tuple[Any, ...]]:
        return [tuple(map(_storable, row)) for row in self._rows.rows(positions, metas, payloads)]

    def sum_of_rows(self, above: int, last: int) -> tuple[int, int] | None:
        if self._statement is not None:
            return None
        with self._looking(sqlite3.Error):
            if not self._exists():
                return 0, 0
            sql = f"select * from {self._in_sql} where position > ? and position <= ?"
            if self._has_table(TABLE):
                sql += f" and position not in ({self._errors.taken})"
            return _sum_of(self._ask(sql, above, last, *[self._table] * sql.count(TABLE)).fetchall())

    def _check_there(self) -> None:
        if not Path(self._path).exists():  # to connect would make it
            raise SinkError(f"{self._path} is gone; bring it back, or start anew with another state")

    def _check_target(self) -> None:
        if _file_of(self._path) != self._file:
            raise SinkError(
                f"{self._path} is another file than the one that this run has opened: it was replaced or removed while "
                f"the run wrote to it; what this run wrote is in the other one; leave the file, and run again"
            )

    def _insert(self, rows: list[tuple[Any, ...]]) -> None:
        columns = self._rows.columns
        if self._statement is not None:
            self._connection.executemany(self._statement, (dict(zip(columns, row)) for row in rows))
            return
        table, names = self._in_sql, ", ".join(map(quoted, columns))
        if self._last is None or self._diverts:
            made = ", ".join(["position integer primary key", "time integer", *map(quoted, columns[2:])])
            self._ask(f"create table if not exists {table} ({made})")
        marks = ", ".join("?" * len(columns))
        self._connection.executemany(f"insert into {table} ({names}) values ({marks})", rows)

    def _names_of_columns(self) -> Iterator[str]:
        return (name for _, name, *_ in self._ask(f"pragma table_info({self._in_sql})").fetchall())

    def _has_table(self, name: str) -> bool:
        return self._ask("select 1 from sqlite_master where type = 'table' and name = ?", name).fetchone() is not None

    @contextmanager
    def _transaction(self, *, to_make: bool = False) -> Iterator[None]:
        self._ask("begin immediate")
        try:
            yield
            self._ask("commit")
        except BaseException:
            if self._connection.in_transaction:  # a constraint may say that it ends the transaction
                self._ask("rollback")
            raise

    @contextmanager
    def _savepoint(self) -> Iterator[None]:
        self._ask("savepoint items")
        try:
            yield
        except BaseException:
            self._ask("rollback to items")
            raise
        finally:
            if self._connection.in_transaction:
                self._ask("release items")


def _sum_of(rows: list[tuple[Any, ...]]) -> tuple[int, int]:
    """The number of rows, and the sum of their hashes."""
    forms = list(map(msgspec.msgpack.encode, rows))
    together = b"".join(forms)
    if any(nan in together for nan in _NANS):  # SQLite has none
        forms = [msgspec.msgpack.encode([None if value != value else value for value in row]) for row in rows]
    return len(rows), sum(map(xxhash.xxh3_64_intdigest, forms))


def _file_of(path: str) -> tuple[int, int] | None:
    try:
        found = Path(path).stat()
    except OSError:
        return None
    return found.st_dev, found.st_ino


def _storable(value: Any) -> Any:
    if type(value) in _PLAIN:
        return value
    if type(value) is bool:
        return int(value)
    plain = msgspec.to_builtins(value, str_keys=True, order="deterministic")
    return plain if isinstance(plain, str) else msgspec.json.encode(plain).decode()
