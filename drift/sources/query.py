"""Rows of a query of Postgres or SQLite, in the order of a key.

Invariant: each row that existed from the beginning is returned once, in the order of the key, whenever it was read.

Why: the next rows are those whose key is above that of the last one, so no cursor has to stay open, and a position is a
key. The last row is read again, so that another one with its key is detected, and refused.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, ClassVar, Literal

from drift.extras import need
from drift.guarantees import SourceGuarantee
from drift.sources.base import Reader
from drift.sources.frames import Payload
from drift.sources.positions import position_fields, position_of
from drift.urls import without_secrets
from drift_graph.errors import InputError, SettingsError

_ROWS = 4096

#: A query for rows behind a key, or for the first ones, and a function that runs it and gives names of columns and
#: rows.
Fetch = Callable[[Any, int], tuple[list[str], list[tuple[Any, ...]]]]


def postgres(
    url: str, query: str, *, key: str, payload: Literal["dict", "tuple"] = "dict", rows_at_once: int = _ROWS
) -> QuerySource:
    """Each row of a query of Postgres is a payload, in the order of a key.

    Args:
        url: postgresql://USER@HOST/DATABASE, or what else libpq takes.
        query: a table, or "select ...".
        key: a column of it that differs in each row and is never null: an integer or text. An index makes it fast.
            Text is compared byte by byte (collation "C").
        payload: "dict" of column names and values, or a "tuple" of the values.
        rows_at_once: are fetched.
    """
    need("postgres", "drift.sources.postgres")
    return QuerySource("postgres", url, query, key, payload, rows_at_once)


def sqlite(
    path: str, query: str, *, key: str, payload: Literal["dict", "tuple"] = "dict", rows_at_once: int = _ROWS
) -> QuerySource:
    """Each row of a query of an SQLite file is a payload, in the order of a key; arguments as of `postgres`."""
    return QuerySource("sqlite", path, query, key, payload, rows_at_once)


class QuerySource:
    """See `postgres` and `sqlite`."""

    live = False
    guarantee: ClassVar = SourceGuarantee("from a position", "a key, as long as the rows are there")

    def __init__(self, kind: str, database: str, query: str, key: str, payload: Payload, rows_at_once: int) -> None:
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

    def open(self) -> Reader:
        opening = _open_postgres if self._kind == "postgres" else _open_sqlite
        source_rows = f"({self._query})" if self._query else ".".join(map(_quoted, self._table.split(".")))
        rows = f"{source_rows} as rows_of_query"
        fetch, close = opening(repr(self), self._database, rows, _quoted(self._key))
        return _QueryReader(repr(self), fetch, close, self._key, self._payload, self._rows_at_once)

    def __repr__(self) -> str:
        return f"{self._kind}({self._table!r:.60})"


class _QueryReader:
    def __init__(
        self, source: str, fetch: Fetch, close: Callable[[], None], key: str, payload: str, rows_at_once: int
    ) -> None:
        self._source = source
        self._fetch = fetch
        self._close = close
        self._key = key
        self._payload = payload
        self._rows_at_once = rows_at_once
        self._last: Any = None  # the key of the last row that was given
        self._error: InputError | None = None

    def read(self, items_max: int) -> list[Any] | None:
        if self._error is not None:
            raise self._error
        names, rows = self._fetch(self._last, min(items_max, self._rows_at_once) + 1)
        at = names.index(self._key)
        if rows and self._last is not None and rows[0][at] == self._last:
            rows = rows[1:]  # that was given; another one with its key is refused
        rows = rows[: min(items_max, self._rows_at_once)]
        for number, row in enumerate(rows):
            key = row[at]
            if type(key) not in (int, str) or (self._last is not None and not _above(key, self._last)):
                self._error = InputError(
                    f"{self._source}: a row has {key!r:.80} as its {self._key!r}, behind {self._last!r:.80}; a key is "
                    f"an int or a text, differs in each row, and is of one type"
                )
                rows = rows[:number]
                break
            self._last = key
        if not rows and self._error is not None:
            raise self._error
        if not rows:
            return None
        return rows if self._payload == "tuple" else [dict(zip(names, row)) for row in rows]

    def filenos(self) -> Sequence[int]:
        return ()

    def position(self) -> Any:
        """See `Positioned`: the key of the last row."""
        return position_of("query", behind=self._last)

    def seek(self, position: Any) -> None:
        """See `Positioned`."""
        (self._last,) = position_fields(position, "query", self._source, "behind")

    def close(self) -> None:
        self._close()


def _above(key: Any, last: Any) -> bool:
    if type(key) is not type(last):
        return False
    return bool(key.encode() > last.encode() if isinstance(key, str) else key > last)


def _open_postgres(source: str, url: str, rows: str, key: str) -> tuple[Fetch, Callable[[], None]]:
    import psycopg

    try:
        connection = psycopg.connect(url, autocommit=True)
        found = connection.execute(f"select pg_typeof({key})::text from {rows} limit 1".encode()).fetchone()
        null = connection.execute(f"select 1 from {rows} where {key} is null limit 1".encode()).fetchone()
    except psycopg.Error as error:
        raise InputError(
            f"{source} cannot be read: {without_secrets(str(error).strip())}; check the URL, the query and the key"
        ) from None
    _refuse_null(source, key, null, connection.close)
    by = f'{key} collate "C"' if found is not None and found[0] in ("text", "character varying", "character") else key

    def fetch(last: Any, count: int) -> tuple[list[str], list[tuple[Any, ...]]]:
        behind = "" if last is None else f"where {by} >= %s"
        try:
            cursor = connection.execute(
                f"select * from {rows} {behind} order by {by} limit {count}".encode(), () if last is None else (last,)
            )
            return [column.name for column in cursor.description or ()], cursor.fetchall()
        except psycopg.Error as error:
            raise InputError(f"{source} cannot be read behind {last!r:.80}: {str(error).strip()}") from None

    return fetch, connection.close


def _open_sqlite(source: str, path: str, rows: str, key: str) -> tuple[Fetch, Callable[[], None]]:
    import sqlite3

    try:
        connection = sqlite3.connect(f"file:{path}?mode=ro", uri=True, check_same_thread=False)
        null = connection.execute(f"select 1 from {rows} where rows_of_query.{key} is null limit 1").fetchone()
    except sqlite3.Error as error:
        raise InputError(f"{source} cannot be read: {error}; check the path, the query and the key") from None
    _refuse_null(source, key, null, connection.close)

    def fetch(last: Any, count: int) -> tuple[list[str], list[tuple[Any, ...]]]:
        behind = "" if last is None else f"where {key} >= ?"
        try:
            cursor = connection.execute(
                f"select * from {rows} {behind} order by {key} limit {count}", () if last is None else (last,)
            )
            return [column[0] for column in cursor.description], cursor.fetchall()
        except sqlite3.Error as error:
            raise InputError(f"{source} cannot be read behind {last!r:.80}: {error}") from None

    return fetch, connection.close


def _refuse_null(source: str, key: str, null: object, close: Callable[[], None]) -> None:
    if null is not None:
        close()
        raise InputError(
            f"{source} has a row without {key}, which would come nowhere; leave it out: where {key} is not null"
        )


def _quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'
