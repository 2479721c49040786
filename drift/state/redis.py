"""Checkpoints on a Redis server.

Invariant: as for `Backend`.

Why: changes are written in one transaction, which checks that this process still holds the lock, and the expected row.
The lock names a connection: a process that finds it asks the server whether that is open, so the lock ends with its
process, even if it is killed. How durable the checkpoints are is the server's business (appendonly).

    drift:{NAME}:TABLE       a hash for each table: its rows by key
    drift:{NAME}:lock        a secret of its holder, the ID of its connection, and the run ID of the server
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING, Any

from drift.extras import need
from drift.state.backend import Away, Changes, Expected, ServerBackend, named, older_error
from drift.urls import cleaned, client_of_redis, without_secrets
from drift_graph.errors import SettingsError, StorageError

if TYPE_CHECKING:
    import redis

_KEYS_PER_QUERY = 5000
_TIMEOUT_S = 10.0


class RedisReader:
    """
    Args:
        url: of the server, followed by #NAME.
    """

    def __init__(self, url: str) -> None:
        self.where = without_secrets(url)
        self._url, name = named(url)
        self._names = f"drift:{{{name}}}:"
        self._client = _connected(self._url, self.where)

    def _ask(self, query: Callable[[redis.Redis], Any]) -> Any:
        with _answers(self.where):
            return query(self._client)

    def sizes(self, table: str) -> dict[bytes, int]:
        def query(client: redis.Redis) -> dict[bytes, int]:
            found: Any = sorted(client.hkeys(f"{self._names}{table}"))
            with client.pipeline(transaction=False) as pipe:
                for key in found:
                    pipe.hstrlen(f"{self._names}{table}", key)
                return dict(zip(found, pipe.execute()))

        sizes: dict[bytes, int] = self._ask(query)
        return sizes

    def read(self, table: str, keys: Sequence[bytes]) -> list[bytes | None]:
        found: list[bytes | None] = []
        for start in range(0, len(keys), _KEYS_PER_QUERY):
            found += self._ask(partial(_values, f"{self._names}{table}", keys[start : start + _KEYS_PER_QUERY]))
        return found

    def close(self) -> None:
        self._client.close()


class RedisBackend(ServerBackend):
    def __init__(self, url: str) -> None:
        need("redis", "state= on a Redis server")
        super().__init__(url)
        self._names = f"drift:{{{self._name}}}:"
        self._client: redis.Redis | None = None
        self._holder: redis.Redis | None = None  # its connection is the lock's
        self._own_lock = b""  # the content of the lock
        self._lock_before: bytes | None = None  # its content when it was taken

    def exists(self) -> bool:
        with self._connected() as client, _answers(self.where):
            return bool(client.exists(f"{self._names}cuts"))

    def is_locked(self) -> bool:
        with self._connected() as client, _answers(self.where):
            info: Any = client.info("server")
            found: Any = client.get(f"{self._names}lock")
            return _is_held(client, found, info["run_id"])

    @contextmanager
    def _connected(self) -> Iterator[redis.Redis]:
        client = _connected(self._server, self.where)
        try:
            yield client
        finally:
            client.close()

    def open(self) -> None:
        try:
            with self._opened(), _answers(self.where):
                self._client = _connected(self._server, self.where)
                if not self._is_deputy:
                    self._holder = _connected(self._server, self.where, single_connection_client=True)
                    self._lock(taking=True)
        except BaseException:
            self.close()
            raise

    def _lock(self, *, taking: bool = False, has_checkpoints: bool = False) -> None:
        """Take the lock, or renew it for the connection that is open now.

        Args:
            has_checkpoints: a row of this run is expected there, and is looked at before anything is written.
        """
        import redis

        client, holder = self._client, self._holder
        assert client is not None and holder is not None
        info: Any = client.info("server")
        own = f"{self._token} {holder.client_id()} {info['run_id']}".encode()
        if own == self._own_lock:
            return
        with client.pipeline(transaction=True) as pipe:
            try:
                pipe.watch(f"{self._names}lock")  # type: ignore[no-untyped-call]
                found: Any = pipe.get(f"{self._names}lock")
                self._judge(found, info["run_id"], taking=taking, has_checkpoints=has_checkpoints)
                if taking:
                    self._lock_before = found
                pipe.multi()
                pipe.set(f"{self._names}lock", own)
                pipe.execute()
            except redis.WatchError:  # another process has written it, or the connection was lost: the next look tells
                raise self._locked_error() if taking else Away("its lock was written meanwhile") from None
        self._own_lock = own

    def _judge(self, found: bytes | None, run_id: str, *, taking: bool, has_checkpoints: bool) -> None:
        """Check that the lock found may be taken, or is that of this process; raises if not.

        A server that was restarted with older data may have no lock, or that of an earlier run: nobody has renewed it
        since. If this run has checkpoints, the row that it expects tells whether they are there.
        """
        assert self._client is not None
        of_server = None if found is None else found.decode().split()[2]
        if taking:
            if _is_held(self._client, found, run_id):
                raise self._locked_error()
        elif not self._is_own(found) and not (has_checkpoints and of_server != run_id):
            if found in (None, self._lock_before) and of_server != run_id:
                raise older_error(self.where, Expected("locks", b"of this run"))
            raise self._taken_over_error()

    def _is_own(self, lock: bytes | None) -> bool:
        return lock is not None and lock.startswith(self._token.encode())

    def reader(self) -> RedisReader:
        return RedisReader(self._url)

    def write(self, changes: Changes, expected: Sequence[Expected] = ()) -> None:
        with self._writing(expected) as pipe:
            for table, rows in changes.items():
                deleted = [key for key, value in rows.items() if value is None]
                stored = [(key, value) for key, value in rows.items() if value is not None]
                for start in range(0, len(deleted), _KEYS_PER_QUERY):
                    pipe.hdel(f"{self._names}{table}", *deleted[start : start + _KEYS_PER_QUERY])
                for start in range(0, len(stored), _KEYS_PER_QUERY):
                    pipe.hset(f"{self._names}{table}", mapping=dict(stored[start : start + _KEYS_PER_QUERY]))

    @contextmanager
    def _writing(self, expected: Sequence[Expected]) -> Iterator[Any]:
        """A transaction that succeeds only while this process holds the lock and the expected rows are there."""
        import redis

        assert self._client is not None
        with _answers(self.where):
            if not self._is_deputy:
                self._lock(has_checkpoints=bool(expected))
            with self._client.pipeline(transaction=True) as pipe:
                try:
                    pipe.watch(f"{self._names}lock")  # type: ignore[no-untyped-call]
                    found: Any = pipe.get(f"{self._names}lock")
                    if not self._is_own(found):
                        raise self._taken_over_error()
                    for each in expected:
                        pipe.watch(f"{self._names}{each.table}")  # type: ignore[no-untyped-call]
                        row: Any = pipe.hget(f"{self._names}{each.table}", each.key)
                        if not each.is_met(row):
                            raise older_error(self.where, each)
                    pipe.multi()
                    yield pipe
                    pipe.execute()
                except redis.WatchError:
                    raise Away("its lock was written meanwhile") from None

    def close(self) -> None:
        for each in (self._holder, self._client):
            if each is not None:
                each.close()
        self._holder = self._client = None


def _values(table: str, keys: Sequence[bytes], client: redis.Redis) -> Any:
    return client.hmget(table, keys)


def _connected(server: str, where: str, **more: Any) -> redis.Redis:
    try:
        with _answers(where):
            options = {"socket_timeout": _TIMEOUT_S, "socket_connect_timeout": _TIMEOUT_S, **more}
            client: redis.Redis = client_of_redis(server, **options)
            return client
    except ValueError as error:
        raise SettingsError(f"{where!r} is no URL of a Redis server: {cleaned(error, server)}") from error


@contextmanager
def _answers(where: str) -> Iterator[None]:
    """Raise errors of the client as those of a backend."""
    import redis

    try:
        yield
    except (redis.ConnectionError, redis.TimeoutError) as error:
        raise Away(str(cleaned(error))) from error
    except redis.RedisError as error:
        raise StorageError(f"the state in {where} cannot be read or written: {cleaned(error)}") from error


def _is_held(client: redis.Redis, lock: bytes | None, run_id: str) -> bool:
    """Whether a lock is of a connection that is open. `run_id`: of the server."""
    if lock is None:
        return False
    _, connection, of_server = lock.decode().split()
    return of_server == run_id and bool(client.client_list(client_id=[connection]))
