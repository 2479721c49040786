"""A stream of a Redis server.

Invariant: the entry that position n became has the ID n+1-0, so the stream is a prefix of the output.

Why: entries are added by a script, in the order of positions, and only if the stream ends with the entry that this run
left there. So nothing is added behind a gap where a server comes back with older data, and nothing twice where the
client repeats a call whose answer was lost.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, ClassVar, Literal

import msgspec

from drift.extras import need
from drift.guarantees import SinkGuarantee
from drift.sinks.lines import as_json
from drift.sinks.resuming import Found, Last, ResumingSink, check_resume, refuse_existing
from drift.urls import checked_url, cleaned, client_of_redis
from drift_graph.errors import SinkError
from drift_graph.meta import time_of
from drift_graph.metas import Metas
from drift_graph.numbers import check_int

if TYPE_CHECKING:
    import redis as redis_client


#: Adds entries if the stream ends with the given one (which may be deleted since); otherwise returns its end.
_ADD = """
local found = redis.call('XREVRANGE', KEYS[1], '+', '-', 'COUNT', 1)
local last, meta = '0-0', ''
if found[1] then
  last = found[1][1]
  for at = 1, #found[1][2], 2 do
    if found[1][2][at] == 'meta' then meta = found[1][2][at + 1] end
  end
end
if last ~= ARGV[1] or last == '0-0' then
  local info = redis.pcall('XINFO', 'STREAM', KEYS[1])
  local newest = '0-0'
  for at = 1, #info, 2 do
    if info[at] == 'last-generated-id' then newest = info[at + 1] end
  end
  if newest ~= ARGV[1] then return {newest, found} end
elseif meta ~= ARGV[2] then
  return {last, found}
end
for at = 4, #ARGV, 4 do
  local fields = {'time', ARGV[at + 1], 'meta', ARGV[at + 2], 'payload', ARGV[at + 3]}
  if ARGV[3] == '' then
    redis.call('XADD', KEYS[1], ARGV[at], unpack(fields))
  else
    redis.call('XADD', KEYS[1], 'MAXLEN', '~', ARGV[3], ARGV[at], unpack(fields))
  end
end
return false
"""


def redis(
    url: str,
    stream: str,
    *,
    maxlen: int | None = None,
    resume: Literal["continue", "replace", "error"] = "continue",
) -> RedisSink:
    """An entry of a Redis stream for each item: time, meta and the payload as JSON; its ID contains the position.

    >>> import drift
    >>> counts = drift.sinks.redis("redis://localhost:6379/0", "counts", maxlen=100_000)

    Args:
        url: redis://HOST:PORT/DATABASE, or any other URL that redis-py takes.
        stream: its key.
        maxlen: approximate number of entries that are kept; None for all.
        resume: what to do if runs have written before: "continue" behind them, "replace" the stream, or "error".

    Raises:
        SettingsError: the URL is none of Redis, or `maxlen` or `resume` is none of these.
    """
    need("redis", "drift.sinks.redis")
    check_resume(resume)
    if maxlen is not None:
        check_int("maxlen", maxlen)
    return RedisSink(url, stream, maxlen, resume)


class RedisSink(ResumingSink):
    calls_again: ClassVar = True
    guarantee: ClassVar = SinkGuarantee("exactly once", "the ID of an entry is its position")

    def __init__(self, url: str, stream: str, maxlen: int | None, resume: str) -> None:
        super().__init__(f"stream {stream!r} of Redis", resume)
        self._url = checked_url(url)
        self._stream = stream
        self._maxlen = maxlen
        self._client: redis_client.Redis | None = None
        self._add: Any = None

    def begin(self, resume: str) -> Last | None:
        import redis

        try:
            self._client = client_of_redis(self._url)
            self._add = self._client.register_script(_ADD)
            if resume == "replace":
                self._client.delete(self._stream)
            last = self._add_behind(None, [])
        except (redis.RedisError, ValueError) as error:
            cleaned(error, self._url)
            raise SinkError(f"{self._target} cannot be opened: {error}; nothing was written; check the URL") from error
        if resume == "error":
            refuse_existing(self._target, last)
        return last

    def find_end(self) -> Last | None:
        import redis

        with self._looking(redis.RedisError):
            return self._add_behind(self._last, [])

    def items_between(self, first: int, last: int) -> Found:
        import redis

        assert self._client is not None
        with self._looking(redis.RedisError):
            entries: Any = self._client.xrange(
                self._stream, f"{first + 1}-0", f"{last + 1}-0", 1 if first == 0 else None
            )
            count: Any = self._client.xlen(self._stream) if first == 0 else len(entries)  # only the first is read
        return Found(count, _position_of(entries[0][0]) if entries else None)

    def append(self, left: Last | None, positions: Sequence[int], metas: Metas, payloads: Sequence[Any]) -> Last | None:
        import redis

        entries: list[Any] = []
        with self._taking(positions, redis.RedisError, msgspec.MsgspecError, TypeError, ValueError):
            for position, meta, payload in zip(positions, metas, payloads):
                entries += (f"{position + 1}-0", time_of(meta), meta.hex(), as_json(payload))
            return self._add_behind(left, entries)

    def _add_behind(self, left: Last | None, entries: list[Any]) -> Last | None:
        """Add entries if the stream ends with that item; returns the one that it ended with."""
        behind = ("0-0", "") if left is None else (f"{left.position + 1}-0", left.meta.hex())
        answer: Any = self._add(keys=[self._stream], args=[*behind, self._maxlen or "", *entries])
        if answer is None:
            return left
        newest, found = answer
        if newest == b"0-0":  # there is no stream, or one that never had an entry
            return None
        if not found or found[0][0] != newest:
            raise SinkError(
                f"the last entry of {self._target} was deleted, so where the output ended is not known; let the last "
                f"entry stay, take another stream, or pass resume='replace' (--on-existing replace)"
            )
        entry, listed = found[0]
        fields = dict(zip(listed[::2], listed[1::2]))
        if b"meta" not in fields or not entry.endswith(b"-0"):
            raise SinkError(f"{self._target} has entries that no run wrote; give the sink a stream of its own")
        return Last(_position_of(entry), bytes.fromhex(fields[b"meta"].decode()))

    def end(self) -> None:
        client, self._client = self._client, None
        if client is not None:
            client.close()


def _position_of(entry: bytes) -> int:
    return int(entry.partition(b"-")[0]) - 1
