"""A table of a Postgres database.

Invariant: the rows of the table are those of the items up to the position that is stored beside them.

Why: rows and position are committed in one transaction, which holds the row of the position locked and sees that it is
the one this run left.
"""

from __future__ import annotations

import datetime
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from decimal import Decimal
from typing import TYPE_CHECKING, Any, ClassVar, Literal
from uuid import UUID

import msgspec

from drift.extras import need
from drift.guarantees import SinkGuarantee
from drift.sinks.refused import TABLE, OnError, Refused, Statements, check_on_error, put_or_set_apart, refused_item
from drift.sinks.resuming import Last, TableSink, check_resume, refuse_existing
from drift.sinks.rows import RowMaker, field_names
from drift.urls import checked_url, cleaned
from drift_graph.errors import SettingsError, SinkError
from drift_graph.metas import Metas

if TYPE_CHECKING:
    import psycopg

_POSITIONS = "create table if not exists drift_positions (sink text primary key, position bigint, meta bytea)"
_LOCK = 0x647269667473  # so that two runs do not create that table at once; not the one of state
_ERRORS = Statements("%s", "bytea")
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
    """
    need("postgres", "drift.sinks.postgres")
    check_resume(resume)
    if not isinstance(table, str) or not all(table.split(".")):
        raise SettingsError(f"postgres table={table!r:.80} is no name of a table")
    return PostgresSink(url, table, columns, statement, resume, check_on_error(on_error))


class PostgresSink(TableSink):
    """See `postgres`."""

    guarantee: ClassVar = SinkGuarantee("exactly once", "the position is committed with the rows")

    def __init__(
        self,
        url: str,
        table: str,
        columns: Sequence[str] | Mapping[str, str] | None,
        statement: str | None,
        resume: str,
        diverts: bool = False,
    ) -> None:
        target = f"table {table!r} of Postgres"
        self._rows = RowMaker(target, None if columns is None else list(columns))
        super().__init__(target, resume, self._rows)
        self._url = checked_url(url)
        self._table = table
        self._types = dict(columns) if isinstance(columns, Mapping) else {}
        self._statement = statement
        self._diverts = diverts
        self._connection: psycopg.Connection[Any] | None = None
        self._kinds: list[str] | None = None  # the type of each column, once the table exists

    def _begin(self, resume: str) -> Last | None:
        import psycopg

        try:
            self._connection = connection = psycopg.connect(self._url, autocommit=True)
            with connection.transaction():
                connection.execute("select pg_advisory_xact_lock(%s)", (_LOCK,))
                connection.execute(_POSITIONS)
                if self._diverts:
                    connection.execute(_ERRORS.create.encode())
                last = self._stored(connection)
                if resume == "error":
                    refuse_existing(self._target, last or self._exists(connection))
                of_table = resume == "continue" and self._statement is None
                if of_table and last and not (self._exists(connection) or self._refused(connection)):
                    raise self._has_no_table(last)
                if resume == "replace":
                    connection.execute("delete from drift_positions where sink = %s", (self._table,))
                    if self._statement is None:
                        connection.execute(f"drop table if exists {_quoted(self._table)}".encode())
                    if self._diverts:
                        connection.execute(_ERRORS.delete_all.encode(), (self._table,))
                    last = None
        except psycopg.Error as error:
            raise SinkError(
                f"{self._target} cannot be opened: {str(cleaned(error, self._url)).strip()}; nothing was written; "
                f"check the URL, and what the user may do there"
            ) from None
        return last

    def _append(
        self, left: Last | None, positions: Sequence[int], metas: Metas, payloads: Sequence[Any]
    ) -> Last | None:
        import psycopg

        rows = None if self._diverts else self._rows.rows(positions, metas, payloads)
        refused = psycopg.Error, msgspec.MsgspecError, TypeError, ValueError, OverflowError  # a lone surrogate, say
        last = Last(positions[-1], metas[-1])
        connection = self._connection
        assert connection is not None
        with self._taking(positions, *refused), connection.transaction():
            connection.execute("select pg_advisory_xact_lock(hashtextextended(%s, %s))", (self._table, _LOCK))
            found = self._stored(connection)
            if found != left:
                return found
            if rows is not None:
                self._insert(connection, rows)
            else:
                put_or_set_apart(self._put, self._set_apart, _of_items(), positions, metas, payloads)
            connection.execute(
                "insert into drift_positions values (%s, %s, %s) on conflict (sink) do update "
                "set position = excluded.position, meta = excluded.meta",
                (self._table, *last),
            )
        return left

    def _put(self, positions: Sequence[int], metas: Metas, payloads: Sequence[Any]) -> None:
        """Insert items, or none of them if one is refused."""
        assert self._connection is not None
        kinds = self._kinds
        try:
            with self._connection.transaction():
                self._insert(self._connection, self._rows.rows(positions, metas, payloads))
        except BaseException:
            self._kinds = kinds  # the table may have been made in vain
            raise

    def _set_apart(self, position: int, meta: bytes, payload: Any, error: Exception) -> None:
        assert self._connection is not None
        item = refused_item(self._table, position, meta, payload, _why(error))
        self._connection.execute(_ERRORS.insert.encode(), item)

    def _refused(self, connection: psycopg.Connection[Any]) -> list[Refused]:
        """The items that were set apart."""
        if not self._diverts:
            return []
        return refused_in(connection.execute(_ERRORS.select.encode(), (self._table,)).fetchall())

    def retry(self, positions: Collection[int] | None = None) -> tuple[int, int]:
        """Insert items that were set apart, each by itself, while no run writes to the table.

        Args:
            positions: of the items; None for all.

        Returns:
            How many are in the table now, and how many it still refuses.
        """
        import psycopg

        taken = left = 0
        try:
            self._connection = connection = psycopg.connect(self._url, autocommit=True)
            self._diverts = True
            with connection.transaction():
                connection.execute("select pg_advisory_xact_lock(hashtextextended(%s, %s))", (self._table, _LOCK))
                connection.execute(_ERRORS.create.encode())
                if self._rows.names is None and self._exists(connection):
                    sql = "select attname from pg_attribute where attrelid = to_regclass(%s) and attnum > 0"
                    found = connection.execute(f"{sql} order by attnum".encode(), (_quoted(self._table),)).fetchall()
                    self._rows.names = field_names(name for (name,) in found)
                for each in self._refused(connection):
                    if positions is not None and each.position not in positions:
                        continue
                    try:
                        self._put([each.position], [each.meta], [each.value])
                    except _of_items() as error:
                        left += 1
                        connection.execute(_ERRORS.explain.encode(), (_why(error), self._table, each.position))
                    else:
                        taken += 1
                        connection.execute(_ERRORS.take.encode(), (self._table, each.position))
        except psycopg.Error as error:
            raise SinkError(f"{self._target}: {str(cleaned(error, self._url)).strip()}; it is as it was") from None
        finally:
            self._end()
        return taken, left

    def _find_end(self) -> Last | None:
        import psycopg

        assert self._connection is not None
        with self._looking(psycopg.Error):
            return self._stored(self._connection)

    def _sum_of_rows(self, above: int, last: int) -> tuple[int, int] | None:
        import psycopg

        connection = self._connection
        assert connection is not None
        if self._statement is not None:
            return None
        with self._looking(psycopg.Error), connection.transaction():
            if not self._exists(connection):
                return 0, 0
            connection.execute(_FORMS)
            sql = f"select count(*), coalesce(sum({_HASH}), 0) from {_quoted(self._table)} t"
            sql += " where position > %s and position <= %s"
            if connection.execute("select to_regclass(%s)", (TABLE,)).fetchone() != (None,):
                sql += f" and position not in ({_ERRORS.taken})"
            found = connection.execute(sql.encode(), (above, last, *[self._table] * sql.count(TABLE))).fetchone()
        assert found is not None
        return int(found[0]), int(found[1])

    @contextmanager
    def _opened_to_read(self) -> Iterator[None]:
        import psycopg

        try:
            with psycopg.connect(self._url, autocommit=True) as self._connection:
                yield
        except psycopg.Error as error:
            raise SinkError(f"{self._target} cannot be read: {str(cleaned(error, self._url)).strip()}") from None
        finally:
            self._connection = None

    def _end(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.close()

    def _insert(self, connection: psycopg.Connection[Any], rows: list[tuple[Any, ...]]) -> None:
        columns = self._rows.columns
        with connection.cursor() as cursor:
            if self._statement is not None:
                named = [{name: _value(value) for name, value in zip(columns, row)} for row in rows]
                cursor.executemany(self._statement.encode(), named)
                return
            if self._kinds is None:
                self._kinds = self._make_table(cursor, columns, rows)
            _check_zones(columns, self._kinds, rows)
            in_json = {at for at, kind in enumerate(self._kinds) if kind == "jsonb"}
            names = ", ".join(map(_quoted_name, columns))
            with cursor.copy(f"copy {_quoted(self._table)} ({names}) from stdin".encode()) as copy:
                for row in rows:
                    values = [_json(value) if at in in_json else value for at, value in enumerate(row)]
                    copy.write_row(values)

    def _make_table(self, cursor: psycopg.Cursor[Any], columns: list[str], rows: list[tuple[Any, ...]]) -> list[str]:
        """Create the table if it does not exist; returns the types of its columns."""
        table = _quoted(self._table)
        values = list(zip(*rows))
        kinds = [self._types.get(name) or _type_of(values[at]) for at, name in enumerate(columns)]
        made = [f"{_quoted_name(name)} {kind}" for name, kind in zip(columns[1:], kinds[1:])]
        made.insert(0, "position bigint primary key")
        cursor.execute(f"create table if not exists {table} ({', '.join(made)})".encode())
        sql = "select attname, atttypid::regtype::text from pg_attribute where attrelid = to_regclass(%s)"
        found = dict(cursor.execute(sql, (table,)).fetchall())
        return [found.get(name, "") for name in columns]

    def _stored(self, connection: psycopg.Connection[Any]) -> Last | None:
        sql = "select position, meta from drift_positions where sink = %s"
        found = connection.execute(sql, (self._table,)).fetchone()
        return None if found is None else Last(found[0], bytes(found[1]))

    def _exists(self, connection: psycopg.Connection[Any]) -> bool:
        found = connection.execute("select to_regclass(%s)", (_quoted(self._table),)).fetchone()
        return self._statement is None and found is not None and found[0] is not None


def refused_in(rows: Iterable[Sequence[Any]]) -> list[Refused]:
    """Rows of drift_errors."""
    return [Refused(*row)._replace(meta=bytes(row[3])) for row in rows]


def _of_items() -> tuple[type[Exception], ...]:
    """What is wrong with an item and not with the database: a constraint, a type, a lone surrogate, a further field."""
    import psycopg

    of_postgres = psycopg.IntegrityError, psycopg.DataError, psycopg.errors.RaiseException
    return (*of_postgres, msgspec.MsgspecError, TypeError, ValueError, OverflowError, SinkError)


def _why(error: Exception) -> str:
    """The reason, the same in each run: without the line of a transfer."""
    diagnosis = getattr(error, "diag", None)
    if diagnosis is None or diagnosis.message_primary is None:
        return f"{type(error).__name__}: {error}"
    return ": ".join(filter(None, [type(error).__name__, diagnosis.message_primary, diagnosis.message_detail]))


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
    """The type of a column with these values."""
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
    return ".".join(map(_quoted_name, table.split(".")))


def _quoted_name(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'
