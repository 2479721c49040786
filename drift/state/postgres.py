"""Cuts in a Postgres database.

Invariant: as for `Backend`.

Why: a cut is written in one transaction, which checks that this process still holds the run. The lock is one of the
session: it is released with the connection, and so with the process, even if that is killed.

    drift_state_runs     for each run the cut that its base is as of, and a secret of the lock's holder
    drift_state_cuts     manifests
    drift_state_snapshots   what changed between two cuts
    drift_state_blocks   hashes of the full blocks of the output, in parts
    drift_state_base     rows by key
    drift_state_later    later items
"""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from drift.extras import need
from drift.state.backend import Away, Changes, Locked, ServerBackend, named
from drift.state.snapshots import LaterForm
from drift.urls import without_secrets
from drift_graph.errors import SettingsError

if TYPE_CHECKING:
    import psycopg

_SCHEMA = """
create table if not exists drift_state_runs (run text primary key, folded bigint not null, owner text not null);
create table if not exists drift_state_cuts (run text, number bigint, manifest bytea, primary key (run, number));
create table if not exists drift_state_snapshots (run text, name text, data bytea, primary key (run, name));
create table if not exists drift_state_blocks (run text, at bigint, data bytea, primary key (run, at));
create table if not exists drift_state_base (
    run text, step text, id bytea, key bytea, value bytea, timed boolean, primary key (run, step, id)
);
create index if not exists drift_state_timed on drift_state_base (run, step) where timed;
create table if not exists drift_state_later (
    run text, origin bytea, target text, meta bytea, payload bytea, diff bigint
);
create index if not exists drift_state_later_runs on drift_state_later (run, meta);
"""
_LOCK = 0x6472696674
_TIMEOUT_S = 10
#: Longer keys do not go into an index of Postgres; their hashes do, after a byte that begins no canonical form.
_KEY_BYTES_MAX = 1000


class PostgresReader:
    """See `Reader`.

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

    def numbers(self) -> list[int]:
        """See `Reader`."""
        return [number for (number,) in self._all("select number from drift_state_cuts where run = %s order by number")]

    def manifest(self, number: int) -> bytes | None:
        """See `Reader`."""
        found = self._all("select manifest from drift_state_cuts where run = %s and number = %s", number)
        return found[0][0] if found else None

    def snapshots(self) -> dict[str, int]:
        """See `Reader`."""
        return dict(self._all("select name, length(data) from drift_state_snapshots where run = %s"))

    def snapshot(self, name: str) -> bytes | None:
        """See `Reader`."""
        found = self._all("select data from drift_state_snapshots where run = %s and name = %s", name)
        return found[0][0] if found else None

    def blocks(self) -> bytes:
        """See `Reader`."""
        found = self._all("select data from drift_state_blocks where run = %s order by at")
        return b"".join(data for (data,) in found)

    def folded(self) -> int:
        """See `Reader`."""
        found = self._all("select folded from drift_state_runs where run = %s")
        return found[0][0] if found else 0

    def find(self, step: str, keys: Sequence[bytes]) -> Iterable[tuple[bytes, bytes]]:
        """See `Reader`."""
        by_id = {_id_of(key): key for key in keys}
        if not by_id:
            return []
        sql = "select id, value from drift_state_base where run = %s and step = %s and id = any(%s)"
        return [(by_id[each], value) for each, value in self._all(sql, step, list(by_id))]

    def rows(self, step: str, *, timed: bool) -> Iterable[tuple[bytes, bytes]]:
        """See `Reader`."""
        sql = "select coalesce(key, id), value from drift_state_base where run = %s and step = %s and (timed or not %s)"
        return self._all(sql, step, timed)

    def later(self) -> list[LaterForm]:
        """See `Reader`."""
        sql = "select origin, target, meta, payload, diff from drift_state_later where run = %s"
        return [LaterForm(*row) for row in self._all(sql)]

    def close(self) -> None:
        """See `Reader`."""
        self._connection.close()


class PostgresBackend(ServerBackend):
    """See `Backend`."""

    def __init__(self, url: str) -> None:
        need("postgres", "state= in a Postgres database")
        super().__init__(url)
        self._run = self._name
        self._connection: _Connection | None = None
        self._locked_in = 0  # the server process that has the lock

    def exists(self) -> bool:
        """See `Backend`."""
        connection = _Connection(self._url, self.where)
        try:
            with self._opened(), connection.used() as used:
                reader = used.execute("select to_regclass('drift_state_runs')").fetchone()
                if reader is None or reader[0] is None:
                    return False
                return bool(used.execute("select 1 from drift_state_runs where run = %s", (self._run,)).fetchall())
        finally:
            connection.close()

    def open(self) -> None:
        """See `Backend`."""
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
                    "insert into drift_state_runs values (%s, 0, %s) on conflict (run) do update "
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
        """See `Backend`."""
        return PostgresReader(self._url)

    @contextmanager
    def _writing(self) -> Iterator[psycopg.Connection[Any]]:
        """A transaction that succeeds only while this process holds the run."""
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
                yield used

    def commit(self, number: int, snapshots: Mapping[str, bytes], at: int, blocks: bytes, manifest: bytes) -> None:
        """See `Backend`."""
        with self._writing() as used:
            for name, data in snapshots.items():
                used.execute(
                    "insert into drift_state_snapshots values (%s, %s, %b) on conflict (run, name) do update "
                    "set data = excluded.data",
                    (self._run, name, data),
                )
            if blocks:
                used.execute("delete from drift_state_blocks where run = %s and at >= %s", (self._run, at))
                used.execute("insert into drift_state_blocks values (%s, %s, %b)", (self._run, at, blocks))
            used.execute(
                "insert into drift_state_cuts values (%s, %s, %b) on conflict (run, number) do update "
                "set manifest = excluded.manifest",
                (self._run, number, manifest),
            )

    def forget(self, numbers: Collection[int], snapshots: Collection[str]) -> None:
        """See `Backend`."""
        if not numbers and not snapshots:
            return
        with self._writing() as used:
            used.execute("delete from drift_state_cuts where run = %s and number = any(%s)", (self._run, list(numbers)))
            used.execute(
                "delete from drift_state_snapshots where run = %s and name = any(%s)", (self._run, list(snapshots))
            )

    def fold(self, number: int, changes: Changes) -> None:
        """See `Backend`."""
        with self._writing() as used:
            used.execute(
                "create temporary table drift_fold (id bytea, key bytea, value bytea, timed boolean) on commit drop"
            )
            for step, rows in changes.states.items():
                self._fold_step(used, step, rows)
            used.execute("delete from drift_state_later where run = %s and meta < %s", (self._run, changes.at))
            with used.cursor().copy("copy drift_state_later from stdin (format binary)") as copy:
                copy.set_types(["text", "bytea", "text", "bytea", "bytea", "int8"])
                for each in changes.later:
                    copy.write_row((self._run, *each))
            used.execute("update drift_state_runs set folded = %s where run = %s", (number, self._run))

    def _fold_step(
        self, used: psycopg.Connection[Any], step: str, rows: Mapping[bytes, tuple[bytes | None, bool]]
    ) -> None:
        with used.cursor().copy("copy drift_fold from stdin (format binary)") as copy:
            copy.set_types(["bytea", "bytea", "bytea", "bool"])
            for key, (row, timed) in rows.items():
                copy.write_row((_id_of(key), key if len(key) > _KEY_BYTES_MAX else None, row, timed))
        used.execute(
            "delete from drift_state_base as base using drift_fold as fold "
            "where base.run = %s and base.step = %s and base.id = fold.id and fold.value is null",
            (self._run, step),
        )
        used.execute(
            "insert into drift_state_base select %s, %s, id, key, value, timed from drift_fold where value is not null "
            "on conflict (run, step, id) do update set value = excluded.value, timed = excluded.timed",
            (self._run, step),
        )
        used.execute("truncate drift_fold")

    def close(self) -> None:
        """See `Backend`."""
        if self._connection is not None:
            self._connection.close()
            self._connection = None


class _Connection:
    """One connection, opened again if it was lost.

    Args:
        url: of the database, followed by #NAME.
    """

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
            raise Away(without_secrets(str(error).strip())) from error
        except psycopg.Error as error:
            raise SettingsError(
                f"the state in {self._where} cannot be read or written: {without_secrets(str(error).strip())}"
            ) from None

    def close(self) -> None:
        if self._connection is not None:
            self._connection.close()


def _id_of(key: bytes) -> bytes:
    """The form of a key in the index."""
    return key if len(key) <= _KEY_BYTES_MAX else b"\xc1" + hashlib.sha256(key).digest()
