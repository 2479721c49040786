"""A stream of a Redis server.

Invariant: the entry that position n became has the ID n+1-0, so the stream is a prefix of the output.

Why: Redis refuses an ID that is not above the last, and entries are added in the order of positions.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, ClassVar, Literal

import msgspec

from drift.extras import need
from drift.guarantees import SinkGuarantee
from drift.sinks.lines import as_json
from drift.sinks.resuming import Last, ResumingSink, check_resume, refuse_existing
from drift_graph.errors import SettingsError, SinkError
from drift_graph.meta import time_of
from drift_graph.metas import Metas

if TYPE_CHECKING:
    import redis as redis_client


def redis(
    url: str,
    stream: str,
    *,
    maxlen: int | None = None,
    resume: Literal["continue", "replace", "error"] = "continue",
) -> RedisSink:
    """An entry of a Redis stream for each item: time, meta and the payload as JSON; its ID contains the position.

    Args:
        url: redis://HOST:PORT/DATABASE, or any other URL that redis-py takes.
        stream: its key.
        maxlen: approximate number of entries that are kept; None for all.
        resume: what to do if runs have written before: "continue" behind them, "replace" the stream, or "error".
    """
    need("redis", "drift.sinks.redis")
    check_resume(resume)
    if maxlen is not None and (type(maxlen) is not int or maxlen < 1):
        raise SettingsError(f"maxlen={maxlen!r} is not an int of 1 or more")
    return RedisSink(url, stream, maxlen, resume)


class RedisSink(ResumingSink):
    """See `redis`."""

    guarantee: ClassVar = SinkGuarantee("exactly once", "the ID of an entry is its position")

    def __init__(self, url: str, stream: str, maxlen: int | None, resume: str) -> None:
        super().__init__(f"stream {stream!r} of Redis", resume)
        self._url = url
        self._stream = stream
        self._maxlen = maxlen
        self._client: redis_client.Redis | None = None

    def _begin(self, resume: str) -> Last | None:
        import redis

        try:
            self._client = redis.Redis.from_url(self._url)
            if resume == "replace":
                self._client.delete(self._stream)
            found: Any = self._client.xrevrange(self._stream, count=1)
        except (redis.RedisError, ValueError) as error:
            raise SinkError(f"{self._target} cannot be opened: {error}; nothing was written; check the URL") from error
        last = None
        for entry, fields in found:
            if b"meta" not in fields or not entry.endswith(b"-0"):
                raise SinkError(f"{self._target} has entries that no run wrote; give the sink a stream of its own")
            last = Last(int(entry.partition(b"-")[0]) - 1, bytes.fromhex(fields[b"meta"].decode()))
        if resume == "error":
            refuse_existing(self._target, last)
        return last

    def _store(self, positions: Sequence[int], metas: Metas, payloads: Sequence[Any]) -> Last:
        import redis

        assert self._client is not None
        refusals = redis.RedisError, msgspec.MsgspecError, TypeError
        with (
            self._taking(positions, *refusals, perhaps="another run may write there too; "),
            self._client.pipeline(transaction=True) as pipe,
        ):
            for position, meta, payload in zip(positions, metas, payloads):
                fields: dict[Any, Any] = {"time": time_of(meta), "meta": meta.hex(), "payload": as_json(payload)}
                pipe.xadd(self._stream, fields, id=f"{position + 1}-0", maxlen=self._maxlen)
            pipe.execute()
        return Last(positions[-1], metas[-1])

    def _end(self) -> None:
        client, self._client = self._client, None
        if client is not None:
            client.close()
