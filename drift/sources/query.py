"""Rows of a query of Postgres or SQLite, in the order of a key.

Invariant: each row that existed from the beginning is returned once, in the order of the key, whenever it was read; one
with a value that Python has no type for ends the input there, or is diverted in its place.

Why: the next rows are those whose key is above that of the last one, so no cursor has to stay open, and a position is a
key. The last row is read again, so that another one with its key is detected, and refused.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar, Literal

from drift.extras import need
from drift.guarantees import SourceGuarantee
from drift.sources.base import Diverting, Reader
from drift.sources.frames import Payload
from drift.sources.pgvalues import connected
from drift.sources.positions import position_fields, position_of
from drift.urls import checked_url, cleaned
from drift_graph.diverted import diverted
from drift_graph.errors import InputError, SettingsError

if TYPE_CHECKING:
    from drift.columns.expressions import Fields

_ROWS = 4096


def postgres(
    url: str,
    query: str,
    *,
    key: str,
    payload: Literal["dict", "tuple"] = "dict",
    schema: Mapping[str, Any] | None = None,
    rows_at_once: int = _ROWS,
) -> QuerySource:
    """Each row of a query of Postgres is a payload, in the order of a key.

    Values do not depend on the settings of the server, the role and the URL: the session's zone is UTC, so moments with
    a zone come in UTC, and a query computes days and hours there. An interval with months or years, `infinity`, a year
    before 1 and 24:00:00 have no value in Python: such a row is an error, or diverted.

    Args:
        url: postgresql://USER@HOST/DATABASE, or what else libpq takes.
        query: a table, or "select ...".
        key: a column of it that differs in each row and is never null: an integer or text. An index makes it fast.
            Text is compared byte by byte (collation "C").
        payload: "dict" of column names and values, or a "tuple" of the values.
        schema: names and types of all columns, as of `Graph.source`: then the rows stay columns until a function asks
            for one (extra `columns`).
        rows_at_once: are fetched.
    """
    need("postgres", "drift.sources.postgres")
    return QuerySource("postgres", checked_url(url), query, key, payload, rows_at_once, schema)


def sqlite(
    path: str,
    query: str,
    *,
    key: str,
    payload: Literal["dict", "tuple"] = "dict",
    schema: Mapping[str, Any] | None = None,
    rows_at_once: int = _ROWS,
) -> QuerySource:
    """Each row of a query of an SQLite file is a payload, in the order of a key; arguments as of `postgres`."""
    return QuerySource("sqlite", path, query, key, payload, rows_at_once, schema)


class QuerySource(Diverting):
    """The rows of a query, read in the order of a key."""

    live = False
    guarantee: ClassVar = SourceGuarantee("from a position", "a key, as long as the rows are there")

    def __init__(
        self,
        kind: str,
        database: str,
        query: str,
        key: str,
        payload: Payload,
        rows_at_once: int,
        schema: Mapping[str, Any] | None = None,
    ) -> None:
        if payload not in ("dict", "tuple"):
            raise SettingsError(f"{kind} payload={payload!r:.80} is neither 'dict' nor 'tuple'")
        if type(rows_at_once) is not int or rows_at_once < 1:
            raise SettingsError(f"{kind} rows_at_once={rows_at_once!r} is not an int of 1 or more")
        self._kind = kind
        self._database = str(database)
        words = query.split(None, 1)
        self._query = query.rstrip("; \n") if words and words[0].lower() in ("select", "with", "values") else None
        self._table = query
        self._key = key
        self._payload = payload
        self._rows_at_once = rows_at_once
        self._fields: Fields | None = None
        if schema is not None:
            need("columns", f"{kind} with schema=")
            if payload != "dict":
                raise SettingsError(f"{kind} takes payload={payload!r} or a schema=, not both")
            from drift.columns.read import checked_schema

            self._fields = checked_schema(kind, schema)

    def open(self) -> Reader:
        opening = _Postgres if self._kind == "postgres" else _Sqlite
        source_rows = f"({self._query})" if self._query else ".".join(map(_quoted, self._table.split(".")))
        rows = f"{source_rows} as rows_of_query"
        database = opening(repr(self), self._database, rows, _quoted(self._key))
        payload, rows_at_once = self._payload, self._rows_at_once
        return _QueryReader(repr(self), database, self._key, payload, rows_at_once, self._diverts_as, self._fields)

    def __repr__(self) -> str:
        return f"{self._kind}({self._table!r:.60})"


class _Unreadable(Exception):
    """A row has a value that Python has no type for, or that the database cannot compute."""


class _Database:
    """Runs the query; a subclass opens a database and asks it (`_asked`).

    Attributes:
        close: ends the connection.
    """

    close: Callable[[], None]
    _mark: ClassVar[str]  # stands for a value

    def __init__(self, source: str, rows: str, key: str) -> None:
        self._source = source
        self._rows = rows
        self._key = self._by = key  # what rows are ordered by may name an order of texts as well

    def fetch(self, last: Any, count: int) -> tuple[list[str], list[tuple[Any, ...]]]:
        """Names of the columns, and the first so many rows whose key is that or above it; None for all keys."""
        return self._behind("*", last, count)

    def keys(self, last: Any, count: int) -> list[Any]:
        """The keys of those rows."""
        return [key for (key,) in self._behind(self._key, last, count)[1]]

    def row(self, key: Any) -> tuple[list[str], list[tuple[Any, ...]]]:
        """Names of the columns, and the rows with this key."""
        return self._asked(f"select * from {self._rows} where {self._by} = {self._mark}", (key,))

    def text(self, key: Any) -> str:
        """The first row with this key as text, in the words of the database."""
        raise NotImplementedError

    def _behind(self, what: str, last: Any, count: int) -> tuple[list[str], list[tuple[Any, ...]]]:
        behind = "" if last is None else f"where {self._by} >= {self._mark}"
        sql = f"select {what} from {self._rows} {behind} order by {self._by} limit {count}"
        return self._asked(sql, () if last is None else (last,))

    def _asked(self, sql: str, values: tuple[Any, ...]) -> tuple[list[str], list[tuple[Any, ...]]]:
        """Names of the columns, and the rows.

        Raises:
            _Unreadable: a row cannot be read.
            InputError: the database does not answer.
        """
        raise NotImplementedError


class _QueryReader:
    def __init__(
        self,
        source: str,
        database: _Database,
        key: str,
        payload: str,
        rows_at_once: int,
        diverts_as: str,
        fields: Fields | None = None,
    ) -> None:
        self._source = source
        self._database = database
        self._key = key
        self._payload = payload
        self._rows_at_once = rows_at_once
        self._diverts_as = diverts_as
        self._fields = fields
        self._last: Any = None  # the key of the last row that was given
        self._error: InputError | None = None

    def read(self, items_max: int) -> list[Any] | None:
        if self._error is not None:
            raise self._error
        count = min(items_max, self._rows_at_once)
        keys, payloads = self._fetched(count + 1)
        if keys and self._last is not None and keys[0] == self._last:
            keys, payloads = keys[1:], payloads[1:]  # that was given; another one with its key is refused
        keys, payloads = keys[:count], payloads[:count]
        for number, key in enumerate(keys):
            if type(key) not in (int, str) or (self._last is not None and not _above(key, self._last)):
                self._error = InputError(
                    f"{self._source}: a row has {key!r:.80} as its {self._key!r}, behind {self._last!r:.80}; a key is "
                    f"an int or a text, differs in each row, and is of one type"
                )
                payloads = payloads[:number]
                break
            self._last = key
        if not payloads and self._error is not None:
            raise self._error
        return payloads or None

    def _fetched(self, count: int) -> tuple[list[Any], list[Any]]:
        """Keys and payloads of rows, one by one where one of them cannot be read; sets the error of that one."""
        try:
            names, rows = self._database.fetch(self._last, count)
        except _Unreadable:
            return self._one_by_one(count)
        at = names.index(self._key)
        keys = [row[at] for row in rows]
        return self._in_columns(names, keys, rows) if self._fields is not None else (keys, self._payloads(names, rows))

    def _in_columns(self, names: list[str], keys: list[Any], rows: list[tuple[Any, ...]]) -> tuple[list[Any], Any]:
        """Keys, and rows as columns, up to the first that is not of the schema; dicts where such ones are diverted."""
        from drift.columns.read import of_tuples, up_to_fault

        assert self._fields is not None
        wanted = [name for name, _ in self._fields]
        if names != wanted:
            raise InputError(
                f"{self._source} has the columns {', '.join(map(repr, names))}, and schema= says "
                f"{', '.join(map(repr, wanted))}; name them in that order, in the schema or in the query"
            )
        make = of_tuples(self._fields)
        made: list[Any] = []
        while True:
            found, fault = up_to_fault(make, rows[len(made) :])
            if not fault and not made:
                return keys, found
            made += found
            if not fault:
                return keys, made
            where = f"the row with {self._key} {keys[len(made)]!r:.80}"
            if not self._diverts_as:
                self._error = InputError(f"{self._source}: {where} is not of the schema: {fault}")
                return keys[: len(made)], found
            made.append(diverted(f"{self._diverts_as}, {where}", fault, self._payloads(names, rows[len(made) :])[0]))

    def _one_by_one(self, count: int) -> tuple[list[Any], list[Any]]:
        keys: list[Any] = []
        payloads: list[Any] = []
        for key in self._database.keys(self._last, count):
            try:
                names, rows = self._database.row(key)
            except _Unreadable as error:
                where = f"the row with {self._key} {key!r:.80}"
                if not self._diverts_as:
                    self._error = InputError(
                        f"{self._source}: {where} cannot be read: {error}; correct it, select what can be read, or "
                        f"divert such rows: on_error='divert'"
                    )
                    break
                keys.append(key)
                payloads.append(diverted(f"{self._diverts_as}, {where}", str(error), self._database.text(key)))
            else:
                if not rows:  # deleted since its key was read
                    continue
                if self._fields is None:
                    keys.append(key)
                    payloads += self._payloads(names, rows[:1])
                    continue
                good, made = self._in_columns(names, [key], rows[:1])
                keys += good
                payloads += made
                if self._error is not None:
                    break
        return keys, payloads

    def _payloads(self, names: list[str], rows: list[tuple[Any, ...]]) -> list[Any]:
        return rows if self._payload == "tuple" else [dict(zip(names, row)) for row in rows]

    def filenos(self) -> Sequence[int]:
        return ()

    def position(self) -> Any:
        """The key of the last row."""
        return position_of("query", behind=self._last)

    def seek(self, position: Any) -> None:
        (self._last,) = position_fields(position, "query", self._source, "behind")

    def close(self) -> None:
        self._database.close()


def _above(key: Any, last: Any) -> bool:
    if type(key) is not type(last):
        return False
    return bool(key.encode() > last.encode() if isinstance(key, str) else key > last)


class _Postgres(_Database):
    _mark = "%s"

    def __init__(self, source: str, url: str, rows: str, key: str) -> None:
        import psycopg

        super().__init__(source, rows, key)
        self._url = url
        try:
            self._connection = connection = connected(url)
            found = connection.execute(f"select pg_typeof({key})::text from {rows} limit 1".encode()).fetchone()
            null = connection.execute(f"select 1 from {rows} where {key} is null limit 1".encode()).fetchone()
        except psycopg.Error as error:
            raise InputError(
                f"{source} cannot be read: {str(cleaned(error, url)).strip()}; check the URL, the query and the key"
            ) from None
        self.close = connection.close
        _refuse_null(source, key, null, connection.close)
        is_text = found is not None and found[0] in ("text", "character varying", "character")
        if is_text:
            self._by = f'{key} collate "C"'

    def text(self, key: Any) -> str:
        return str(self._asked(f"select rows_of_query::text from {self._rows} where {self._by} = %s", (key,))[1][0][0])

    def _asked(self, sql: str, values: tuple[Any, ...]) -> tuple[list[str], list[tuple[Any, ...]]]:
        import psycopg

        try:
            cursor = self._connection.execute(sql.encode(), values)
            return [column.name for column in cursor.description or ()], cursor.fetchall()
        except (psycopg.DataError, OverflowError, ValueError) as error:
            raise _Unreadable(str(error).strip()) from None
        except psycopg.Error as error:
            raise InputError(f"{self._source} cannot be read: {str(cleaned(error, self._url)).strip()}") from None


class _Sqlite(_Database):
    _mark = "?"

    def __init__(self, source: str, path: str, rows: str, key: str) -> None:
        import sqlite3

        super().__init__(source, rows, key)
        try:
            self._connection = connection = sqlite3.connect(f"file:{path}?mode=ro", uri=True, check_same_thread=False)
            null = connection.execute(f"select 1 from {rows} where rows_of_query.{key} is null limit 1").fetchone()
        except sqlite3.Error as error:
            raise InputError(f"{source} cannot be read: {error}; check the path, the query and the key") from None
        self.close = connection.close
        _refuse_null(source, key, null, connection.close)

    def text(self, key: Any) -> str:
        self._connection.text_factory = bytes
        try:
            return repr(self.row(key)[1][0])
        finally:
            self._connection.text_factory = str

    def _asked(self, sql: str, values: tuple[Any, ...]) -> tuple[list[str], list[tuple[Any, ...]]]:
        import sqlite3

        try:
            cursor = self._connection.execute(sql, values)
            return [column[0] for column in cursor.description], cursor.fetchall()
        except sqlite3.OperationalError as error:
            if "decode" not in str(error):
                raise InputError(f"{self._source} cannot be read: {error}") from None
            raise _Unreadable(str(error).partition(" with text")[0]) from None
        except sqlite3.Error as error:
            raise InputError(f"{self._source} cannot be read: {error}") from None


def _refuse_null(source: str, key: str, null: object, close: Callable[[], None]) -> None:
    if null is not None:
        close()
        raise InputError(
            f"{source} has a row without {key}, which would come nowhere; leave it out: where {key} is not null"
        )


def _quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'
