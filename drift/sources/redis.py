"""A stream of a Redis server.

Invariant: what is read is what lies behind the ID that it began with, each entry once, in the order of IDs. A position
is only taken by the stream that it is of.

Why: a position has a hash of the entry in front of it, and how many were added up to that: the last that was read, or
the last that was there when the reading began. A stream that was deleted and begun anew has another one there, or has
fewer, or more behind it than were added since.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, Literal

from drift.extras import need
from drift.guarantees import SourceGuarantee
from drift.sources.polled import Fetched, PolledSource, Poller, Undecodable, decoder
from drift.sources.positions import LastRead, mark_of, position_fields, position_lost, position_of
from drift.urls import checked_url, cleaned, client_of_redis
from drift_graph.errors import InputError, SettingsError

if TYPE_CHECKING:
    import redis as redis_client


_GUARANTEE = SourceGuarantee("from a position", "the ID of an entry, as long as the stream keeps it")


def redis(
    url: str,
    stream: str,
    *,
    decode: Literal["fields", "bytes", "text", "json"] = "fields",
    field: str = "payload",
    type: Any = None,
    start: str = "0",
    until_end: bool = False,
) -> PolledSource:
    """Each entry of a Redis stream is a payload.

    Entries that are removed before they are read, as by `XADD ... MAXLEN`, end the run with an InputError, if the
    server is 7.0 or newer; where entries are deleted by their IDs at the same time, only some such removals are seen.

    >>> import drift
    >>> clicks = drift.sources.redis("redis://localhost:6379/0", "clicks", until_end=True)

    Args:
        url: redis://HOST:PORT/DATABASE, or any other URL that redis-py takes.
        stream: its key.
        decode: "fields" for a dict of text of all fields; else one field, as bytes, text (UTF-8) or JSON.
        field: the one field.
        type: each JSON value is converted to it, for instance a dataclass or a msgspec Struct.
        start: begin behind this ID; "$" for new entries only.
        until_end: end with the entries that exist when the run begins, also if it goes on from a live run; without it
            the source is live, and does not end.

    Raises:
        SettingsError: the URL is none of Redis, or `type` is given for payloads that are no JSON.
    """
    need("redis", "drift.sources.redis")
    if decode == "fields" and type is not None:
        raise SettingsError("redis type= is for decode='json', not for 'fields'")
    name = None if decode == "fields" else field.encode()
    as_payload = _fields if decode == "fields" else decoder("redis", decode, type)
    poll = partial(_opened, checked_url(url), stream, name, start, until_end)
    return PolledSource(f"redis({stream!r})", _GUARANTEE, poll, as_payload, live=not until_end)


def _opened(url: str, stream: str, field: bytes | None, start: str, until_end: bool) -> _Poller:
    import redis

    try:
        client = client_of_redis(url)
        found: Any = client.xrevrange(stream, count=1)
        info = _info(client, stream)
    except (redis.RedisError, ValueError) as error:
        raise InputError(f"stream {stream!r} of Redis cannot be read: {cleaned(error, url)}; check the URL") from None
    newest, removals, last = found[0][0].decode() if found else "0", _Removals(), LastRead()
    if start == "0":
        removals.begin(info)
    elif start == "$" and found:
        last.note([[found[0][0], *found[0][1].items()]])
        removals.begin_behind(info, newest)
    behind, end = newest if start == "$" else start, newest if until_end else None
    added = info.get("entries-added", 0 if not info else None)
    return _Poller(client, stream, field, behind, end, removals, last, added)


def _info(client: redis_client.Redis, stream: str) -> dict[str, Any]:
    """What the server says of a stream; nothing if there is none."""
    import redis

    try:
        info: Any = client.xinfo_stream(stream)
    except redis.ResponseError:
        return {}
    return dict(info)


class _Removals:
    """Entries that were removed before they were read, as `XADD ... MAXLEN` removes the oldest ones.

    The server (from 7.0 on) counts what was ever added. Where the entry that was read last is gone, and so all before
    it, what was added behind it is there, or was read, or was removed unread. An entry that is deleted by its ID is in
    no such count, so it is begun anew where all is read.

    Attributes:
        passed: how many were ever added up to the entry that was read last; None where that is not known.
    """

    def __init__(self) -> None:
        self.passed: int | None = None
        self._deleted: Any = None

    def begin(self, info: dict[str, Any]) -> None:
        """Reading begins with the first entry that there is."""
        self._deleted = info.get("max-deleted-entry-id")
        if not info:
            self.passed = 0
        elif "entries-added" in info:
            self.passed = info["entries-added"] - info["length"]

    def begin_behind(self, info: dict[str, Any], newest: str) -> None:
        """Reading begins behind the newest entry, which is that of `info` unless others were added meanwhile."""
        self._deleted = info.get("max-deleted-entry-id")
        if info.get("last-generated-id", b"").decode() == newest:
            self.passed = info.get("entries-added")

    def unread(self, info: dict[str, Any], last: str, marks: Sequence[str]) -> int:
        """How many entries were removed unread. `last`: the entry that was read last before those of the marks.

        A stream that is not there any more was deleted since; what was read of it tells the next one from it.
        """
        if not info and self.passed is not None:
            self.passed += len(marks)
            return 0
        if "entries-added" not in info:
            self.passed = None
            return 0
        added, left, lost = info["entries-added"], info["length"], 0
        if self._deleted not in (None, info["max-deleted-entry-id"]):
            self.passed = None
        self._deleted = info["max-deleted-entry-id"]
        first = _number(info["recorded-first-entry-id"].decode())
        if self.passed is not None:
            if not left or first > _number(last):
                read = sum(not left or _number(mark) < first for mark in marks)
                lost = added - self.passed - left - read
            self.passed += len(marks)
        if marks and info["last-generated-id"].decode() == marks[-1]:
            self.passed = added
        return max(lost, 0)


class _Poller(Poller):
    """Reads entries behind an ID, up to another ID if there is one."""

    def __init__(
        self,
        client: redis_client.Redis,
        stream: str,
        field: bytes | None,
        start: str,
        end: str | None,
        removals: _Removals,
        last: LastRead,
        added: int | None,
    ) -> None:
        self._client = client
        self._stream = stream
        self._field = field
        self._fetched = self._returned = start
        self._entries_returned = 0
        self._unreturned: deque[tuple[bytes, Any]] = deque()  # entries that were fetched, with their fields
        self._last = last  # entry in front of the next
        self._removals = removals
        self._added = self._present_added = added  # how many entries were ever added, up to the end
        self._reached: tuple[int | None, int] = removals.passed, 0  # `passed`, and how many entries were fetched
        self._end = self._present_end = self._lasting_end = end

    def fetch(self, items_max: int, wait_s: float) -> Fetched | None:
        import redis

        try:
            if self._end is not None:
                entries: Any = self._client.xrange(self._stream, f"({self._fetched}", self._end, count=items_max)
                if not entries:
                    if _number(self._fetched) < _number(self._end):
                        raise self._removed(f"entry {self._end} was")
                    return None
            else:
                streams: Any = {self._stream: self._fetched}
                answer: Any = self._client.xread(streams, count=items_max, block=int(wait_s * 1000))
                pairs = list(answer.items()) if isinstance(answer, dict) else answer or []
                entries = [entry for _, found in pairs for entry in found]
                entries = entries[0] if entries and isinstance(entries[0], list) else entries
            if not entries:
                return Fetched([], [])
            marks = [entry.decode() for entry, _ in entries]
            info = _info(self._client, self._stream)
            known, unread = self._removals.passed, self._removals.unread(info, self._fetched, marks)
        except redis.RedisError as error:
            raise InputError(f"stream {self._stream!r} of Redis cannot be read: {error}") from None
        if known is not None and info.get("entries-added", known) < known:
            raise self._lost(self._fetched, _begun_anew(info, known))
        if unread:
            raise self._removed(f"{unread:,} {'entry' if unread == 1 else 'entries'} behind {self._fetched} were")
        self._fetched = marks[-1]
        self._unreturned.extend(entries)
        self._reached = self._removals.passed, self._reached[1] + len(marks)
        name = self._field
        if name is None:
            return Fetched([fields for _, fields in entries], marks)
        return Fetched([fields[name] if name in fields else _without(name, fields) for _, fields in entries], marks)

    def _lost(self, behind: str, now: str) -> InputError:
        return position_lost(f"stream {self._stream!r} of Redis", f"entry {behind}", now)

    def _removed(self, what: str) -> InputError:
        return InputError(
            f"stream {self._stream!r} of Redis: {what} removed before it was read, by XTRIM, XDEL or MAXLEN; keep more "
            f"entries (XADD ... MAXLEN), or start behind them with another state"
        )

    def behind(self, marks: Sequence[Any]) -> None:
        self._returned = marks[-1]
        self._entries_returned += len(marks)
        for _ in marks:
            name, fields = self._unreturned.popleft()
        self._last.note([[name, *fields.items()]])

    def _passed(self) -> int | None:
        """How many entries were ever added up to the last that was returned; None where that is not known."""
        passed, fetched = self._reached
        return None if passed is None else passed - (fetched - self._entries_returned)

    def backlog(self) -> tuple[int, str] | None:
        """Not known of a server before 7.0, nor, until all is read, behind an ID to begin at, or a deleted one."""
        import redis

        passed, added = self._passed(), self._added
        try:
            if self._end is None:
                added = _info(self._client, self._stream).get("entries-added")
        except redis.RedisError:  # which reading tells of
            return None
        return None if passed is None or added is None else (max(added - passed, 0), "{item}")

    def position(self) -> Any:
        end, passed, mark = self._lasting_end, self._passed(), self._last.mark
        return position_of("redis", behind=self._returned, end=end, passed=passed, added=self._added, mark=mark)

    def seek(self, position: Any) -> None:
        """A reading that ends does so where it would have ended; one that did not end, where the stream ends now."""
        import redis

        behind, end = position_fields(position, "redis", f"stream {self._stream!r} of Redis", "behind", "end")
        try:
            info = _info(self._client, self._stream)
            here: Any = self._client.xrange(self._stream, behind, behind) if position.get("mark") else []
            deleted = info.get("max-deleted-entry-id", b"").decode()
            if info and not deleted:  # a server before 7.0: entries before the first one may have been deleted
                deleted = "0" if self._client.xrange(self._stream, count=1) else "18446744073709551615-0"
        except redis.RedisError as error:
            raise InputError(f"stream {self._stream!r} of Redis cannot be read: {error}") from None
        newest = info["last-generated-id"].decode() if info else "0"
        if _number(newest) < _number(behind):
            raise self._lost(behind, f"its newest was {newest}")
        if behind != "0" and (not info or _number(deleted) > _number(behind)):
            raise self._lost(behind, f"entries up to {deleted} are deleted" if info else "there is no such stream")
        known = max(position.get("passed") or 0, position.get("added") or 0)
        if info and info.get("entries-added", known) < known:
            raise self._lost(behind, _begun_anew(info, known))
        if position.get("mark") and (other := _another(info, behind, position, here)):
            raise self._lost(behind, f"it is another, deleted and begun anew: {other}")
        self._last.seek(position.get("mark", ""))
        self._removals.passed = position.get("passed")  # older states have none
        self._reached = self._removals.passed, 0
        self._fetched = self._returned = behind
        if self._end is not None:
            self._end = self._lasting_end = end or self._present_end
            self._added = position.get("added") if end else self._added

    def end_anew(self) -> None:
        self._end, self._lasting_end = self._present_end, None
        self._added = self._present_added

    def location(self, mark: Any) -> str:
        return f"stream {self._stream!r}, entry {mark}"

    def close(self) -> None:
        self._client.close()


def _begun_anew(info: dict[str, Any], known: int) -> str:
    """What has become of a stream in which fewer entries were ever added than were known to be."""
    return (
        f"it is another, deleted and begun anew: it counts {info['entries-added']:,} entries that were ever added, and "
        f"counted {known:,}; what came between may be lost"
    )


def _another(info: dict[str, Any], behind: str, position: Any, here: Sequence[tuple[bytes, Any]]) -> str:
    """Why a stream is another than that of a position behind an entry; "" if nothing says so.

    Args:
        here: the entry that has that ID now, if there is one.
    """
    if here:
        name, fields = here[0]
        return "" if mark_of([[name, *fields.items()]]) == position["mark"] else f"entry {behind} has other fields"
    first, passed = info.get("recorded-first-entry-id"), position.get("passed")
    if not info.get("length") or first is None:
        return ""
    if _number(first.decode()) < _number(behind):  # so it was not trimmed
        is_deleted = _number(info["max-deleted-entry-id"].decode()) >= _number(behind)
        return "" if is_deleted else f"it has entries before {behind}, and not that one"
    if passed is not None and info["length"] > (since := info["entries-added"] - passed):
        return f"it has {info['length']:,} entries behind that, and {since:,} could have been added since"
    return ""


def _number(entry: str) -> tuple[int, int]:
    time, _, ordinal = entry.partition("-")
    return int(time), int(ordinal or 0)


def _without(name: bytes, fields: dict[bytes, bytes]) -> Undecodable:
    return Undecodable(f"it has no field {name.decode()!r}; it has {', '.join(map(repr, fields))}", fields)


def _fields(fields: dict[bytes, bytes]) -> dict[str, str]:
    return {name.decode(): value.decode() for name, value in fields.items()}
