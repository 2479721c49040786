"""Cuts on a Redis server.

Invariant: as for `Backend`.

Why: a cut is written in one transaction, which checks that this process still holds the lock. The lock names a
connection: a process that finds it asks the server whether that is open, so the lock ends with its process, even if it
is killed. How durable the cuts are is the server's business (appendonly).

    drift:{NAME}:cuts        a hash: number of a cut, manifest
    drift:{NAME}:snapshots      a hash: name, bytes
    drift:{NAME}:blocks      hashes of the full blocks of the output
    drift:{NAME}:folded      the cut that the base is as of
    drift:{NAME}:base:STEP   a hash: key, row
    drift:{NAME}:timed:STEP  a set: the keys that come with timers
    drift:{NAME}:later       a list: later items
    drift:{NAME}:lock        a secret of its holder, the ID of its connection, and the run ID of the server
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING, Any

import msgspec

from drift.extras import need
from drift.state.backend import Away, Changes, ServerBackend, named
from drift.state.snapshots import LaterForm
from drift.urls import without_secrets
from drift_graph.errors import SettingsError

if TYPE_CHECKING:
    import redis

_KEYS_PER_QUERY = 5000
_TIMEOUT_S = 10.0
_as_bytes = msgspec.msgpack.Encoder().encode
_as_later = msgspec.msgpack.Decoder(LaterForm).decode


class RedisReader:
    """See `Reader`.

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

    def numbers(self) -> list[int]:
        """See `Reader`."""
        return sorted(map(int, self._ask(lambda client: client.hkeys(f"{self._names}cuts"))))

    def manifest(self, number: int) -> bytes | None:
        """See `Reader`."""
        found: bytes | None = self._ask(lambda client: client.hget(f"{self._names}cuts", str(number)))
        return found

    def snapshots(self) -> dict[str, int]:
        """See `Reader`."""

        def query(client: redis.Redis) -> dict[str, int]:
            found: Any = client.hkeys(f"{self._names}snapshots")
            with client.pipeline(transaction=False) as pipe:
                for name in found:
                    pipe.hstrlen(f"{self._names}snapshots", name)
                return {name.decode(): size for name, size in zip(found, pipe.execute())}

        sizes: dict[str, int] = self._ask(query)
        return sizes

    def snapshot(self, name: str) -> bytes | None:
        """See `Reader`."""
        found: bytes | None = self._ask(lambda client: client.hget(f"{self._names}snapshots", name))
        return found

    def blocks(self) -> bytes:
        """See `Reader`."""
        return self._ask(lambda client: client.get(f"{self._names}blocks")) or b""

    def folded(self) -> int:
        """See `Reader`."""
        return int(self._ask(lambda client: client.get(f"{self._names}folded")) or 0)

    def find(self, step: str, keys: Sequence[bytes]) -> Iterator[tuple[bytes, bytes]]:
        """See `Reader`."""
        base = f"{self._names}base:{step}"
        for start in range(0, len(keys), _KEYS_PER_QUERY):
            some = keys[start : start + _KEYS_PER_QUERY]
            rows = self._ask(partial(_found, base, some))
            yield from ((key, row) for key, row in zip(some, rows) if row is not None)

    def rows(self, step: str, *, timed: bool) -> Iterable[tuple[bytes, bytes]]:
        """See `Reader`."""
        if not timed:
            return self.find(step, sorted(self._ask(lambda client: client.hkeys(f"{self._names}base:{step}"))))
        return self.find(step, sorted(self._ask(lambda client: client.smembers(f"{self._names}timed:{step}"))))

    def later(self) -> list[LaterForm]:
        """See `Reader`."""
        return [_as_later(each) for each in self._ask(lambda client: client.lrange(f"{self._names}later", 0, -1))]

    def close(self) -> None:
        """See `Reader`."""
        self._client.close()


class RedisBackend(ServerBackend):
    """See `Backend`."""

    def __init__(self, url: str) -> None:
        need("redis", "state= on a Redis server")
        super().__init__(url)
        self._names = f"drift:{{{self._name}}}:"
        self._client: redis.Redis | None = None
        self._holder: redis.Redis | None = None  # its connection is the lock's
        self._own_lock = b""  # the content of the lock

    def exists(self) -> bool:
        """See `Backend`."""
        with self._connected() as client, _answers(self.where):
            return bool(client.exists(f"{self._names}cuts"))

    @contextmanager
    def _connected(self) -> Iterator[redis.Redis]:
        client = _connected(self._server, self.where)
        try:
            yield client
        finally:
            client.close()

    def open(self) -> None:
        """See `Backend`."""
        try:
            with self._opened(), _answers(self.where):
                self._client = _connected(self._server, self.where)
                if not self._is_deputy:
                    self._holder = _connected(self._server, self.where, single_connection_client=True)
                    self._lock(taking=True)
        except BaseException:
            self.close()
            raise

    def _lock(self, *, taking: bool = False) -> None:
        """Take the lock, or renew it for the connection that is open now."""
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
                self._judge(found, info["run_id"], taking=taking)
                pipe.multi()
                pipe.set(f"{self._names}lock", own)
                pipe.execute()
            except redis.WatchError:
                raise self._locked_error() from None
        self._own_lock = own

    def _judge(self, found: bytes | None, run_id: str, *, taking: bool) -> None:
        """Check that the lock found may be taken, or is that of this process; raises if not."""
        if not taking:
            if found is not None and not self._is_own(found):
                raise self._taken_over_error()
            return
        if found is None or self._client is None:
            return
        _, connection, of_server = found.decode().split()
        if of_server == run_id and self._client.client_list(client_id=[connection]):
            raise self._locked_error()

    def _is_own(self, lock: bytes | None) -> bool:
        return lock is not None and lock.startswith(self._token.encode())

    def reader(self) -> RedisReader:
        """See `Backend`."""
        return RedisReader(self._url)

    def commit(self, number: int, snapshots: Mapping[str, bytes], at: int, blocks: bytes, manifest: bytes) -> None:
        """See `Backend`."""
        with self._writing() as pipe:
            if snapshots:
                pipe.hset(f"{self._names}snapshots", mapping=dict(snapshots))
            if blocks:
                pipe.setrange(f"{self._names}blocks", at, blocks)
            pipe.hset(f"{self._names}cuts", str(number), manifest)

    def forget(self, numbers: Collection[int], snapshots: Collection[str]) -> None:
        """See `Backend`."""
        if not numbers and not snapshots:
            return
        with self._writing() as pipe:
            if numbers:
                pipe.hdel(f"{self._names}cuts", *map(str, numbers))
            if snapshots:
                pipe.hdel(f"{self._names}snapshots", *snapshots)

    def fold(self, number: int, changes: Changes) -> None:
        """See `Backend`."""
        assert self._client is not None
        with _answers(self.where):
            stored: Any = self._client.lrange(f"{self._names}later", 0, -1)
        with self._writing() as pipe:
            for step, rows in changes.states.items():
                base, timed = f"{self._names}base:{step}", f"{self._names}timed:{step}"
                reader = {key: row for key, (row, _) in rows.items() if row is not None}
                keys = list(rows)
                for start in range(0, len(keys), _KEYS_PER_QUERY):
                    some = keys[start : start + _KEYS_PER_QUERY]
                    pipe.srem(timed, *some)
                    if deleted := [key for key in some if key not in reader]:
                        pipe.hdel(base, *deleted)
                    if new := {key: reader[key] for key in some if key in reader}:
                        pipe.hset(base, mapping=new)
                    if with_timers := [key for key in some if key in reader and rows[key][1]]:
                        pipe.sadd(timed, *with_timers)
            later = [each for each in map(_as_later, stored) if each.meta >= changes.at]
            pipe.delete(f"{self._names}later")
            for each in (*later, *changes.later):
                pipe.rpush(f"{self._names}later", _as_bytes(each))
            pipe.set(f"{self._names}folded", number)

    @contextmanager
    def _writing(self) -> Iterator[Any]:
        """A transaction that succeeds only while this process holds the lock."""
        import redis

        assert self._client is not None
        with _answers(self.where):
            if not self._is_deputy:
                self._lock()
            with self._client.pipeline(transaction=True) as pipe:
                try:
                    pipe.watch(f"{self._names}lock")  # type: ignore[no-untyped-call]
                    found: Any = pipe.get(f"{self._names}lock")
                    if not self._is_own(found):
                        raise self._taken_over_error()
                    pipe.multi()
                    yield pipe
                    pipe.execute()
                except redis.WatchError:
                    raise Away("its lock was written meanwhile") from None

    def close(self) -> None:
        """See `Backend`."""
        for each in (self._holder, self._client):
            if each is not None:
                each.close()
        self._holder = self._client = None


def _found(base: str, keys: Sequence[bytes], client: redis.Redis) -> Any:
    return client.hmget(base, keys)


def _connected(server: str, where: str, **more: Any) -> redis.Redis:
    import redis

    try:
        with _answers(where):
            options = {"socket_timeout": _TIMEOUT_S, "socket_connect_timeout": _TIMEOUT_S, **more}
            return redis.Redis.from_url(server, **options)
    except ValueError as error:
        raise SettingsError(f"{where!r} is no URL of a Redis server: {error}") from error


@contextmanager
def _answers(where: str) -> Iterator[None]:
    """Raise errors of the client as those of a backend."""
    import redis

    try:
        yield
    except (redis.ConnectionError, redis.TimeoutError) as error:
        raise Away(str(error)) from error
    except redis.RedisError as error:
        raise SettingsError(f"the state in {where} cannot be read or written: {error}") from error
