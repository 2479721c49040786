"""Rows of a query of Postgres or SQLite, in the order of a key.

Invariant: each row that existed from the beginning is returned once, in the order of the key, whenever it was read; one
with a value that Python has no type for ends the input there, or is diverted in its place. A position is only taken by
the rows that it is of.

Why: the next rows are those whose key is above that of the last one, so no cursor has to stay open, and a position is a
key. The last row is read again, so that another one with its key is detected, and refused. A position has a hash of it:
where the rows were deleted and put in anew, another row has its key, or none while others are before it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar, Literal

from drift.extras import need
from drift.guarantees import SourceGuarantee
from drift.sources.frames import Payload
from drift.sources.halved import made_of
from drift.sources.pgvalues import connected
from drift.sources.polled import AsMade, Fetched, PolledSource, Poller, Undecodable
from drift.sources.positions import LastRead, mark_of, position_fields, position_lost, position_of
from drift.urls import checked_url, cleaned
from drift_graph.errors import InputError, SettingsError
from drift_graph.numbers import check_int

if TYPE_CHECKING:
    from drift.columns.expressions import Fields

_ROWS = 4096
_GUARANTEE = SourceGuarantee("from a position", "a key, as long as the rows are there")


def postgres(
    url: str,
    query: str,
    *,
    key: str,
    payload: Literal["dict", "tuple"] = "dict",
    schema: Mapping[str, Any] | None = None,
    rows_at_once: int = _ROWS,
) -> PolledSource:
    """Each row of a query of Postgres is a payload, in the order of a key.

    Values do not depend on the settings of the server, the role and the URL: the session's zone is UTC, so moments with
    a zone come in UTC, and a query computes days and hours there. An interval with months or years, `infinity`, a year
    before 1 and 24:00:00 have no value in Python: such a row is an error, or diverted.

    >>> import drift
    >>> fares = drift.sources.postgres("postgresql://drift@db/taxi", "select id, fare from fares", key="id")

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
    return _source("postgres", checked_url(url), query, key, payload, rows_at_once, schema)


def sqlite(
    path: str,
    query: str,
    *,
    key: str,
    payload: Literal["dict", "tuple"] = "dict",
    schema: Mapping[str, Any] | None = None,
    rows_at_once: int = _ROWS,
) -> PolledSource:
    """Each row of a query of an SQLite file is a payload, in the order of a key; arguments as of `postgres`.

    >>> import drift, sqlite3
    >>> connection = sqlite3.connect("shop.db")
    >>> made = connection.executescript("create table fares (id, fare); insert into fares values (1, 30.5), (2, 9.0)")
    >>> connection.close()
    >>> graph = drift.Graph("fares")
    >>> graph.source("fares").sink("out")
    >>> fares = drift.sources.sqlite("shop.db", "select id, fare from fares", key="id")
    >>> [item.payload for item in drift.run(graph, {"fares": fares})]
    [{'id': 1, 'fare': 30.5}, {'id': 2, 'fare': 9.0}]
    """
    return _source("sqlite", path, query, key, payload, rows_at_once, schema)


def _source(
    kind: str,
    database: str,
    query: str,
    key: str,
    payload: Payload,
    rows_at_once: int,
    schema: Mapping[str, Any] | None,
) -> PolledSource:
    if payload not in ("dict", "tuple"):
        raise SettingsError(f"{kind} payload={payload!r:.80} is neither 'dict' nor 'tuple'")
    check_int(f"{kind} rows_at_once", rows_at_once)
    words = query.split(None, 1)
    is_query = bool(words) and words[0].lower() in ("select", "with", "values")
    rows = "(" + query.rstrip("; \n") + ")" if is_query else ".".join(map(_quoted, query.split(".")))
    fields: Fields | None = None
    if schema is not None:
        need("columns", f"{kind} with schema=")
        if payload != "dict":
            raise SettingsError(f"{kind} takes payload={payload!r} or a schema=, not both")
        from drift.columns.read import checked_schema

        fields = checked_schema(kind, schema)
    shown, by = f"{kind}({query!r:.60})", _quoted(key)
    opening = _Postgres if kind == "postgres" else _Sqlite

    def poll() -> Poller:
        opened = opening(shown, str(database), f"{rows} as rows_of_query", by)
        return _Poller(shown, opened, key, payload, rows_at_once, fields)

    return PolledSource(shown, _GUARANTEE, poll, AsMade(), live=False)


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


class _Poller(Poller):
    """The mark of a row is its key, and the row, or its text where it cannot be read."""

    to_do = "correct it, select what can be read, or divert such rows: on_error='divert'"

    def __init__(
        self, source: str, database: _Database, key: str, payload: str, rows_at_once: int, fields: Fields | None
    ) -> None:
        self.name = source
        self._database = database
        self._key = key
        self._payload = payload
        self._rows_at_once = rows_at_once
        self._fields = fields
        self._fetched: Any = None  # the key of the last row
        self._returned: Any = None
        self._last = LastRead()  # row that was returned

    def fetch(self, items_max: int, wait_s: float) -> Fetched | None:
        count = min(items_max, self._rows_at_once)
        marks, payloads = self._rows(count + 1)
        if marks and self._fetched is not None and marks[0][0] == self._fetched:
            marks, payloads = marks[1:], payloads[1:]  # that was given; another one with its key is refused
        marks, payloads = marks[:count], payloads[:count]
        for number, (key, _) in enumerate(marks):
            if type(key) not in (int, str) or (self._fetched is not None and not _above(key, self._fetched)):
                if number:  # the next call meets it again
                    return Fetched(payloads[:number], marks[:number])
                raise InputError(
                    f"{self.name}: a row has {key!r:.80} as its {self._key!r}, behind {self._fetched!r:.80}; a key is "
                    f"an int or a text, differs in each row, and is of one type"
                )
            self._fetched = key
        return Fetched(payloads, marks) if marks else None

    def _rows(self, count: int) -> tuple[list[tuple[Any, Any]], Any]:
        """Marks and payloads of rows, which are read one by one where one of them cannot be."""
        try:
            names, rows = self._database.fetch(self._fetched, count)
        except _Unreadable:
            return self._one_by_one(count)
        at = names.index(self._key)
        return [(row[at], row) for row in rows], self._payloads(names, rows)

    def _one_by_one(self, count: int) -> tuple[list[tuple[Any, Any]], list[Any]]:
        marks: list[tuple[Any, Any]] = []
        payloads: list[Any] = []
        for key in self._database.keys(self._fetched, count):
            rows: Sequence[Any]
            try:
                names, rows = self._database.row(key)
                payloads += self._payloads(names, rows)[:1]  # none if it was deleted since
            except _Unreadable as error:
                rows = [self._database.text(key)]
                payloads.append(Undecodable(str(error), rows[0]))
            marks += [(key, row) for row in rows[:1]]
        return marks, payloads

    def _payloads(self, names: list[str], rows: list[tuple[Any, ...]]) -> Any:
        """Payloads, as columns where there is a schema, with `Undecodable` in the place of rows that are not of it."""
        if self._payload == "tuple":
            return rows
        if self._fields is None:
            return [dict(zip(names, row)) for row in rows]
        from drift.columns.read import of_tuples

        wanted = [name for name, _ in self._fields]
        if names != wanted:
            raise InputError(
                f"{self.name} has the columns {', '.join(map(repr, names))}, and schema= says "
                f"{', '.join(map(repr, wanted))}; name them in that order, in the schema or in the query"
            )

        def refused(at: int, error: InputError) -> Undecodable:
            return Undecodable(f"it is not of the schema: {error}", dict(zip(names, rows[at])))

        return made_of(of_tuples(self._fields), rows, refused)[0]

    def behind(self, marks: Sequence[Any]) -> None:
        self._returned, row = marks[-1]
        self._last.note([row])

    def position(self) -> Any:
        """The key of the last row, and its hash."""
        return position_of("query", behind=self._returned, mark=self._last.mark)

    def seek(self, position: Any) -> None:
        (behind,) = position_fields(position, "query", self.name, "behind")
        self._last.seek(position.get("mark", ""))  # older states have none
        if self._last.mark:
            self._check(behind)
        self._fetched = self._returned = behind

    def _check(self, behind: Any) -> None:
        """Raises InputError: the rows are others than those that were read up to this key."""
        self._fetched, now = behind, ""
        marks, _ = self._rows(1)
        if marks and marks[0][0] == behind:
            now = "" if mark_of([marks[0][1]]) == self._last.mark else "that row is another one, or was changed"
        else:
            self._fetched = None
            if (first := self._database.keys(None, 1)) and not _above(first[0], behind):
                now = f"there is no such row, and there are others before it, such as {first[0]!r:.80}"
        if now:
            why = "rows that are put in anew, with keys from the beginning, would not be read"
            raise position_lost(self.name, f"the row with {self._key} {behind!r:.80}", f"{now}: {why}")

    def location(self, mark: Any) -> str:
        return f"the row with {self._key} {mark[0]!r:.80}"

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
