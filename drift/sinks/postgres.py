"""A table of a Postgres database; see `drift.sinks.tables`."""

from __future__ import annotations

import datetime
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from decimal import Decimal
from typing import TYPE_CHECKING, Any, ClassVar, Literal
from uuid import UUID

import msgspec

from drift.extras import need
from drift.fields import check_names
from drift.guarantees import SinkGuarantee
from drift.sinks.refused import TABLE, OnError, Statements, check_on_error
from drift.sinks.resuming import check_resume
from drift.sinks.tables import TableSink, quoted
from drift.urls import checked_url, cleaned
from drift_graph.errors import SettingsError

if TYPE_CHECKING:
    import psycopg

_LOCK = 0x647269667473  # so that two runs do not create that table at once; not the one of state
#: A row as text is the same whatever the server and the user have set.
_FORMS = (
    "set local timezone = 'UTC'; set local datestyle = 'ISO'; set local intervalstyle = 'iso_8601'; "
    "set local bytea_output = 'hex'; set local extra_float_digits = 3"
)
_HASH = "('x' || substr(md5(t::text), 1, 16))::bit(64)::bigint::numeric"
_TYPES: dict[type, str] = {
    bool: "boolean",
    int: "bigint",
    float: "double precision",
    str: "text",
    bytes: "bytea",
    Decimal: "numeric",
    datetime.datetime: "timestamptz",
    datetime.date: "date",
    datetime.time: "time",
    datetime.timedelta: "interval",
    UUID: "uuid",
    type(None): "text",
}


def postgres(
    url: str,
    table: str,
    *,
    columns: Sequence[str] | Mapping[str, str] | None = None,
    statement: str | None = None,
    resume: Literal["continue", "replace", "error"] = "continue",
    on_error: OnError = "error",
) -> PostgresSink:
    """A row of a table for each item: position, time, and the fields of the payload.

    The table is created if it does not exist: numbers, text, bytes, Decimal, dates and UUIDs have the types of
    Postgres, a datetime is a timestamptz (without a zone a timestamp), anything else is jsonb. Items that were released
    together are committed together.

    >>> import drift
    >>> fares = drift.sinks.postgres("postgresql://drift@db/taxi", "fares", columns=["zone", "fare"])

    Args:
        url: postgresql://USER@HOST/DATABASE, or any other URL that libpq takes.
        table: its name, optionally SCHEMA.NAME; it is also the name of the position in the table drift_positions.
        columns: names of the fields, for tuples in their order, or their types by name; None for those of the first
            payloads.
        statement: executed for each item in place of an insert, with %(position)s, %(time)s and %(FIELD)s, for instance
            "insert into n values (%(word)s, %(n)s) on conflict (word) do update set n = excluded.n".
        resume: what to do if runs have written before: "continue" behind them, "replace" the table, or "error".
        on_error: what to do with an item that the table refuses (a constraint, a type): end the run with an "error", or
            "divert" it to the table drift_errors of the database, with its position and the reason; `drift errors`
            lists them, and puts them in again.

    Raises:
        SettingsError: `table`, `resume` or `on_error` is none of these.
    """
    need("postgres", "drift.sinks.postgres")
    check_resume(resume)
    if not isinstance(table, str) or not all(table.split(".")):
        raise SettingsError(f"postgres table={table!r:.80} is no name of a table")
    return PostgresSink(url, table, columns, statement, resume, check_on_error(on_error))


class PostgresSink(TableSink):
    guarantee: ClassVar = SinkGuarantee("exactly once", "the position is committed with the rows")
    _errors = Statements("%s", "bytea")
    _bytes = "bytea"
    _cannot_open = "cannot be opened", "check the URL, and what the user may do there"

    def __init__(
        self,
        url: str,
        table: str,
        columns: Sequence[str] | Mapping[str, str] | None,
        statement: str | None,
        resume: str,
        diverts: bool = False,
    ) -> None:
        import psycopg

        self._failures = (psycopg.Error,)
        self._refusals = psycopg.IntegrityError, psycopg.DataError, psycopg.errors.RaiseException
        check_names(columns)
        names = None if columns is None else list(columns)
        super().__init__(f"table {table!r} of Postgres", table, names, statement, resume, diverts)
        self._in_sql = _quoted(table)
        self._url = checked_url(url)
        self._types = dict(columns) if isinstance(columns, Mapping) else {}
        self._kinds: tuple[list[str], list[str]] | None = None  # columns and their types, once the table exists

    def _connect(self) -> Any:
        import psycopg

        return psycopg.connect(self._url, autocommit=True)

    def _ask(self, sql: str, *values: Any) -> Any:
        return self._connection.execute(sql.encode(), values or None)

    def _text_of(self, error: Exception) -> str:
        return str(cleaned(error, self._url)).strip()

    @contextmanager
    def _transaction(self, *, to_make: bool = False) -> Iterator[None]:
        with self._connection.transaction():
            if to_make:
                self._ask("select pg_advisory_xact_lock(%s)", _LOCK)
            else:
                self._ask("select pg_advisory_xact_lock(hashtextextended(%s, %s))", self._table, _LOCK)
            yield

    @contextmanager
    def _savepoint(self) -> Iterator[None]:
        kinds = self._kinds
        try:
            with self._connection.transaction():
                yield
        except BaseException:
            self._kinds = kinds  # the table may have been made in vain
            raise

    def _names_of_columns(self) -> Iterator[str]:
        sql = "select attname from pg_attribute where attrelid = to_regclass(%s) and attnum > 0 order by attnum"
        return (name for (name,) in self._ask(sql, self._in_sql).fetchall())

    def _has_table(self, name: str) -> bool:
        return tuple(self._ask("select to_regclass(%s)", _quoted(name)).fetchone()) != (None,)

    def sum_of_rows(self, above: int, last: int) -> tuple[int, int] | None:
        if self._statement is not None:
            return None
        with self._looking(*self._failures), self._connection.transaction():
            if not self._exists():
                return 0, 0
            self._ask(_FORMS)
            sql = f"select count(*), coalesce(sum({_HASH}), 0) from {self._in_sql} t"
            sql += " where position > %s and position <= %s"
            if self._has_table(TABLE):
                sql += f" and position not in ({self._errors.taken})"
            count, total = self._ask(sql, above, last, *[self._table] * sql.count(TABLE)).fetchone()
        return int(count), int(total)

    def _insert(self, rows: list[tuple[Any, ...]]) -> None:
        columns = self._rows.columns
        with self._connection.cursor() as cursor:
            if self._statement is not None:
                named = [{name: _value(value) for name, value in zip(columns, row)} for row in rows]
                cursor.executemany(self._statement.encode(), named)
                return
            if self._kinds is None or self._kinds[0] != columns:
                self._kinds = columns, self._make_table(cursor, columns, rows)
            kinds = self._kinds[1]
            _check_zones(columns, kinds, rows)
            in_json = {at for at, kind in enumerate(kinds) if kind == "jsonb"}
            names = ", ".join(map(quoted, columns))
            with cursor.copy(f"copy {self._in_sql} ({names}) from stdin".encode()) as copy:
                for row in rows:
                    values = [_json(value) if at in in_json else value for at, value in enumerate(row)]
                    copy.write_row(values)

    def _make_table(self, cursor: psycopg.Cursor[Any], columns: list[str], rows: list[tuple[Any, ...]]) -> list[str]:
        """Create the table if it does not exist; returns the types of its columns."""
        table = self._in_sql
        values = list(zip(*rows))
        kinds = [self._types.get(name) or _type_of(values[at]) for at, name in enumerate(columns)]
        made = [f"{quoted(name)} {kind}" for name, kind in zip(columns[1:], kinds[1:])]
        made.insert(0, "position bigint primary key")
        cursor.execute(f"create table if not exists {table} ({', '.join(made)})".encode())
        sql = "select attname, atttypid::regtype::text from pg_attribute where attrelid = to_regclass(%s)"
        found = dict(cursor.execute(sql, (table,)).fetchall())
        return [found.get(name, "") for name in columns]


def _check_zones(columns: Sequence[str], kinds: Sequence[str], rows: Sequence[tuple[Any, ...]]) -> None:
    """Raises:
    ValueError: a time with a zone is for a column without one, where Postgres would drop the zone, or the other way.
    """
    for at, (name, kind) in enumerate(zip(columns, kinds)):
        if kind.startswith("time"):
            zoned = kind.endswith("with time zone")
            for row in rows:
                value = row[at]
                if isinstance(value, (datetime.datetime, datetime.time)) and (value.tzinfo is not None) != zoned:
                    has, column = ("no", "a") if zoned else ("a", "no")
                    raise ValueError(
                        f"the item at position {row[0]} has {value!r} in {name!r}, with {has} zone, and the column has "
                        f"{column} zone ({kind}); convert the times in a map, or declare columns={{{name!r}: ...}}"
                    )


def _type_of(values: Sequence[Any]) -> str:
    kinds = {type(value) for value in values} - {type(None)}
    if kinds == {int, float}:
        return "double precision"
    if kinds == {datetime.datetime}:
        zoned = {value.tzinfo is not None for value in values if value is not None}
        return "timestamptz" if True in zoned else "timestamp"
    if len(kinds) > 1:
        return "jsonb"
    return _TYPES.get(next(iter(kinds), type(None)), "jsonb")


def _value(value: Any) -> Any:
    """For a statement: unchanged, or as JSON."""
    from psycopg.types.json import Jsonb

    return value if type(value) in _TYPES else Jsonb(msgspec.to_builtins(value, str_keys=True, order="deterministic"))


def _json(value: Any) -> str | None:
    if value is None:
        return None
    return msgspec.json.encode(msgspec.to_builtins(value, str_keys=True, order="deterministic")).decode()


def _quoted(table: str) -> str:
    return ".".join(map(quoted, table.split(".")))
