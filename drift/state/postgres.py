"""Checkpoints in a Postgres database.

Invariant: as for `Backend`.

Why: changes are written in one transaction, which checks that this process still holds the run, and the expected row.
The lock is one of the session: it is released with the connection, and so with the process, even if that is killed.

    drift_state_runs   for each run a secret of the lock's holder
    drift_state_rows   the rows of all tables
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from typing import TYPE_CHECKING, Any

from drift.extras import need
from drift.state.backend import Away, Changes, Expected, Locked, ServerBackend, named, older_error
from drift.urls import cleaned, without_secrets
from drift_graph.errors import StorageError

if TYPE_CHECKING:
    import psycopg

_SCHEMA = """
create table if not exists drift_state_runs (run text primary key, owner text not null);
create table if not exists drift_state_rows (
    run text, name text, id bytea, key bytea, value bytea, primary key (run, name, id)
);
"""
_LOCK = 0x6472696674
_TIMEOUT_S = 10
_ROWS_PER_QUERY = 5000
#: Longer keys do not go into an index of Postgres; their hashes do, after a byte that begins no canonical form.
_KEY_BYTES_MAX = 1000


class PostgresReader:
    """
    Args:
        url: of the database, followed by #NAME.
    """

    def __init__(self, url: str) -> None:
        self.where = without_secrets(url)
        self._connection = _Connection(url, self.where)
        self._run = named(url)[1]

    def _all(self, sql: str, *arguments: Any) -> list[Any]:
        with self._connection.used() as connection:
            return connection.execute(sql.encode(), (self._run, *arguments), binary=True).fetchall()

    def sizes(self, table: str) -> dict[bytes, int]:
        sql = "select coalesce(key, id), length(value) from drift_state_rows where run = %s and name = %s order by id"
        return dict(self._all(sql, table))

    def read(self, table: str, keys: Sequence[bytes]) -> list[bytes | None]:
        ids = list(map(_id_of, keys))
        sql = "select id, value from drift_state_rows where run = %s and name = %s and id = any(%b)"
        found = dict(self._all(sql, table, ids)) if ids else {}
        return [found.get(each) for each in ids]

    def close(self) -> None:
        self._connection.close()


class PostgresBackend(ServerBackend):
    def __init__(self, url: str) -> None:
        need("postgres", "state= in a Postgres database")
        super().__init__(url)
        self._run = self._name
        self._connection: _Connection | None = None
        self._locked_in = 0  # the server process that has the lock

    def exists(self) -> bool:
        with closing(_Connection(self._url, self.where)) as connection, connection.used() as used:
            reader = used.execute("select to_regclass('drift_state_runs')").fetchone()
            if reader is None or reader[0] is None:
                return False
            return bool(used.execute("select 1 from drift_state_runs where run = %s", (self._run,)).fetchall())

    def is_locked(self) -> bool:
        """The lock taken for the look ends with its connection."""
        with closing(_Connection(self._url, self.where)) as connection, connection.used() as used:
            sql = "select pg_try_advisory_lock_shared(hashtextextended(%s, %s))"
            return used.execute(sql, (self._run, _LOCK)).fetchone() == (False,)

    def open(self) -> None:
        self._connection = _Connection(self._url, self.where)
        if self._is_deputy:
            return
        try:
            with self._opened(), self._connection.used() as used:
                used.execute("select pg_advisory_lock(%s)", (_LOCK,))  # two that make the tables at once
                used.execute(_SCHEMA)
                used.execute("select pg_advisory_unlock(%s)", (_LOCK,))
                self._lock(used)
                used.execute(
                    "insert into drift_state_runs values (%s, %s) on conflict (run) do update "
                    "set owner = excluded.owner",
                    (self._run, self._token),
                )
        except BaseException:
            self.close()
            raise

    def _lock(self, used: psycopg.Connection[Any]) -> None:
        """Take the lock, if this session does not have it yet; a lost connection gets a new session."""
        server_process = used.info.backend_pid
        if server_process == self._locked_in or self._is_deputy:
            return
        found = used.execute("select pg_try_advisory_lock(hashtextextended(%s, %s))", (self._run, _LOCK)).fetchone()
        if found is None or not found[0]:
            raise self._locked_error()
        self._locked_in = server_process

    def reader(self) -> PostgresReader:
        return PostgresReader(self._url)

    @contextmanager
    def _writing(self, expected: Sequence[Expected]) -> Iterator[psycopg.Connection[Any]]:
        """A transaction that succeeds only while this process holds the run and the expected rows are there."""
        assert self._connection is not None
        with self._connection.used() as used:
            try:
                self._lock(used)
            except Locked as held:
                found = used.execute("select owner from drift_state_runs where run = %s", (self._run,)).fetchone()
                if found == (self._token,):  # the session before is still ending
                    raise Away("its connection was lost, and the server has not noticed yet") from held
                raise self._taken_over_error() from held
            with used.transaction():
                sql = "select owner from drift_state_runs where run = %s for update"
                if used.execute(sql, (self._run,)).fetchone() != (self._token,):
                    raise self._taken_over_error()
                for each in expected:
                    sql = "select value from drift_state_rows where run = %s and name = %s and id = %s"
                    row = used.execute(sql, (self._run, each.table, _id_of(each.key)), binary=True).fetchone()
                    if not each.is_met(row and row[0]):
                        raise older_error(self.where, each)
                yield used

    def write(self, changes: Changes, expected: Sequence[Expected] = ()) -> None:
        with self._writing(expected) as used:
            for table, rows in changes.items():
                deleted = [_id_of(key) for key, value in rows.items() if value is None]
                if deleted:
                    sql = "delete from drift_state_rows where run = %s and name = %s and id = any(%b)"
                    used.execute(sql, (self._run, table, deleted))
                stored = [(key, value) for key, value in rows.items() if value is not None]
                for start in range(0, len(stored), _ROWS_PER_QUERY):
                    share = stored[start : start + _ROWS_PER_QUERY]
                    used.execute(
                        "insert into drift_state_rows select %s, %s, * from unnest(%b::bytea[], %b::bytea[], "
                        "%b::bytea[]) on conflict (run, name, id) do update set value = excluded.value",
                        (
                            self._run,
                            table,
                            [_id_of(key) for key, _ in share],
                            [key if len(key) > _KEY_BYTES_MAX else None for key, _ in share],
                            [value for _, value in share],
                        ),
                    )

    def close(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None


class _Connection:
    """One connection, opened again if it was lost. `url`: of the database, followed by #NAME."""

    def __init__(self, url: str, where: str) -> None:
        self._server = named(url)[0]
        self._where = where
        self._connection: psycopg.Connection[Any] | None = None

    @contextmanager
    def used(self) -> Iterator[psycopg.Connection[Any]]:
        """The open connection; its errors are raised as those of a backend."""
        import psycopg

        try:
            if self._connection is None or self._connection.closed:
                self._connection = psycopg.connect(self._server, autocommit=True, connect_timeout=_TIMEOUT_S)
            yield self._connection
        except (psycopg.OperationalError, psycopg.InterfaceError) as error:
            self.close()
            raise Away(str(cleaned(error, self._server)).strip()) from error
        except psycopg.Error as error:
            raise StorageError(
                f"the state in {self._where} cannot be read or written: {str(cleaned(error, self._server)).strip()}"
            ) from None

    def close(self) -> None:
        if self._connection is not None:
            self._connection.close()


def _id_of(key: bytes) -> bytes:
    """The form of a key in the index."""
    return key if len(key) <= _KEY_BYTES_MAX else b"\xc1" + hashlib.sha256(key).digest()
