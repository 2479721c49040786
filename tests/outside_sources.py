"""Models of what a run reads, as `outside`: a topic of Kafka, a stream of Redis, a table of a database.

The sources on them are the real ones; in place of a client they get a model of it, and what is fetched in a thread of
its own is fetched when it is asked for, so that a schedule decides all.
"""

from __future__ import annotations

import importlib
import json
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any, NamedTuple
from unittest import mock

import redis
from confluent_kafka import KafkaError
from outside import Schedule

import drift.sources.polled
from drift import sources
from drift.sources import query
from drift.sources.polled import Decode, Poller, _Polled, decoded
from drift.sources.wake import Wake
from drift_graph.errors import InputError

KAFKA = importlib.import_module("drift.sources.kafka")  # the function has its name
REDIS = importlib.import_module("drift.sources.redis")


class NobodyWrites(InputError):
    """The end of a run that has read all."""


class Posted(NamedTuple):
    """A message of a partition, as a client of Kafka sees it."""

    at: int
    where: int
    number: int
    content: bytes

    def error(self) -> None:
        return None

    def timestamp(self) -> tuple[int, int]:
        return 1, self.at

    def partition(self) -> int:
        return self.where

    def offset(self) -> int:
        return self.number

    def value(self) -> bytes:
        return self.content

    @property
    def is_sound(self) -> bool:
        """Whether it can be decoded."""
        return self.content.endswith(b"]")


class Broker:
    """A topic of Kafka that is written to while it is read, as a consumer sees it; the source on it is the real one.

    A message is [partition, offset, timestamp], and some are no JSON. No two have one timestamp, so in event time the
    output does not depend on when what is read.

    Attributes:
        logs: the messages of each partition.
        partitions_max: they are added up to so many.
        most: so many are written; a source that has read all of them fails, or ends where the broker `heals`.
        now_s: the clock of its clients, which goes on where there is nothing to read any more.
        has_lost: whether a partition is shorter than it was.
        forgets: whether it lets go of what a run with state will not read again; where the state is lost, so is that.
        may_fail: whether anything has happened for which a run may end with an error of its input.
    """

    partitions_max = 3
    forgets = may_fail = False

    def __init__(self, choose: Schedule, most: int) -> None:
        self._choose = choose
        self.most = most
        self.logs: list[list[Posted]] = [[]]
        self.now = 0
        self.now_s = 0.0
        self.heals = self.has_lost = False
        self._consumer: Any = BrokersConsumer(self)

    def source(self) -> Any:
        return sources.kafka("model", "topic", decode="json")

    @contextmanager
    def read_from(self) -> Iterator[None]:
        """A context in which sources read from it."""
        with (
            mock.patch("confluent_kafka.Consumer", self.consumer),
            mock.patch.object(drift.sources.polled, "LiveReader", steady(self)),
            mock.patch.object(KAFKA, "_LOOK_S", -1.0),
            mock.patch.object(KAFKA, "time", SimpleNamespace(monotonic=lambda: self.now_s)),
        ):
            yield

    @property
    def is_read(self) -> bool:
        """Whether a consumer has had all there is, and nobody writes any more."""
        ended = self.heals or self.has_lost or self.written == self.most
        return ended and all(at == len(self.logs[each]) for each, at in self._consumer.offsets.items())

    @property
    def written(self) -> int:
        return sum(map(len, self.logs))

    def choose(self, count: int) -> int:
        return 0 if self.heals else self._choose(count)

    def happens(self) -> None:
        """Somebody writes, or adds a partition."""
        if self.has_lost or self.heals:
            return  # what was lost is never written again with another content: no client sees that
        if len(self.logs) < self.partitions_max and self.choose(6) == 5:
            self.logs.append([])
        for _ in range(min(self.choose(4), self.most - self.written)):
            partition = self.choose(len(self.logs))
            log = self.logs[partition]
            self.now += 1 + self.choose(3)
            content = json.dumps([partition, len(log), self.now]).encode()
            log.append(Posted(self.now, partition, len(log), content[:-1] if self.choose(5) == 4 else content))

    def is_away(self) -> bool:
        """Whether it does not answer."""
        away = self.choose(20) == 19
        self.may_fail |= away
        return away

    def kept(self) -> Any:
        """What a run has changed in it, for somebody who dies here."""

    def put_back(self, kept: Any) -> None:
        """As it was."""

    def maybe_shorter(self) -> None:
        """It may come back without the newest messages, or with another topic of the same name, which has fewer."""
        log = self.logs[self.choose(len(self.logs))]
        if log and self.choose(8) == 7:
            del log[self.choose(len(log)) :]
            self.has_lost = True

    def consumer(self, config: Any, **_: Any) -> Any:
        self._consumer = BrokersConsumer(self)
        return self._consumer


class BrokersConsumer:
    """A consumer of Kafka: what the source calls of it.

    Attributes:
        offsets: of each partition that is read, of the next message.
    """

    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self.offsets: dict[int, int] = {}
        self._paused: set[int] = set()
        self._known: dict[int, int] = {}  # ends, as last heard of

    def list_topics(self, topic: str, timeout: float) -> Any:
        partitions = dict.fromkeys(range(len(self._broker.logs)))
        return SimpleNamespace(topics={topic: SimpleNamespace(error=None, partitions=partitions)})

    def get_watermark_offsets(self, part: Any, timeout: float = 0.0, cached: bool = False) -> tuple[int, int]:
        return 0, self._known[part.partition] if cached else len(self._broker.logs[part.partition])

    def assign(self, parts: Sequence[Any]) -> None:
        self.offsets, self._paused = {}, set()
        self.incremental_assign(parts)

    def incremental_assign(self, parts: Sequence[Any]) -> None:
        for each in parts:
            self.offsets[each.partition] = self._known[each.partition] = each.offset

    def pause(self, parts: Sequence[Any]) -> None:
        self._paused |= {each.partition for each in parts}

    def resume(self, parts: Sequence[Any]) -> None:
        self._paused -= {each.partition for each in parts}

    def consume(self, count: int, timeout: float) -> list[Any]:
        broker, found = self._broker, list[Any]()
        broker.happens()
        if broker.is_away():
            return [Refused(KafkaError._TRANSPORT)]
        for partition in sorted(self.offsets.keys() - self._paused, reverse=broker.choose(2) == 1):
            log, at = broker.logs[partition], self.offsets[partition]
            if at > len(log):
                return [Refused(KafkaError._AUTO_OFFSET_RESET)]
            self._known[partition] = len(log)
            most = min(len(log) - at, count - len(found))
            messages = log[at : at + most - broker.choose(most + 1)]
            self.offsets[partition] += len(messages)
            found += messages
        return found

    def close(self) -> None: ...


class Refused(NamedTuple):
    code: int

    def error(self) -> KafkaError:
        return KafkaError(self.code)


def steady(broker: Broker) -> Callable[[Poller, Decode, str], Any]:
    """What makes live readers that fetch when they are asked, and not in a thread, so that a schedule decides all."""

    class Steady(_Polled):
        def __init__(self, *arguments: Any) -> None:
            super().__init__(*arguments)
            self._wake = Wake()
            self._wake.set()
            self._error: InputError | None = None
            self._quiet_s = 0.0

        def read(self, items_max: int) -> list[Any] | None:
            if self._error is not None:
                raise self._error
            fetched = self._poller.fetch(items_max, 0.0)
            assert fetched is not None
            payloads, self._error = decoded(self._poller, fetched, self._decode, self._diverts_as)
            if payloads:
                self._poller.behind(fetched.marks[: len(payloads)])
            self._quiet_s = 0.0 if payloads or not broker.is_read else self._quiet_s + 1.0
            broker.now_s += self._quiet_s > 0.0
            if self._quiet_s > 20.0:  # longer than a partition is waited for
                if broker.heals:
                    return None
                raise NobodyWrites("nobody writes any more")
            return payloads

        def filenos(self) -> Sequence[int]:
            return (self._wake.fileno(),)

        def close(self) -> None:
            self._wake.close()
            self._poller.close()

    return Steady


def asked(partition: OnePartition, kind: type[Any]) -> Callable[..., Any]:
    """What makes readers of a kind on which something happens when they are asked, and that are asked again at once."""

    class Steady(kind):  # type: ignore[misc]
        def read(self, items_max: int) -> list[Any] | None:
            partition.happens()
            payloads: list[Any] | None = super().read(items_max)
            partition.returned(payloads or [])
            if hasattr(self, "_wake"):  # it is asked by turns
                self._wake.set()
            if payloads or (payloads is not None and not partition.is_read):
                return payloads
            if partition.heals:
                return None
            raise NobodyWrites("nobody writes any more")

    return Steady


class OnePartition(Broker):
    """One partition, whose messages are written one after the other.

    Attributes:
        begun: the messages that were written, or are being written.
    """

    partitions_max = 1

    def __init__(self, choose: Schedule, most: int) -> None:
        super().__init__(choose, most)
        self.begun = 0

    @property
    def log(self) -> list[Posted]:
        return self.logs[0]

    @property
    def is_quiet(self) -> bool:
        """Whether nobody writes any more."""
        return self.heals or self.has_lost or self.begun == self.most

    @property
    def is_read(self) -> bool:
        """Of a source that has just given nothing."""
        return self.is_quiet

    def new(self) -> list[Posted]:
        """Messages that are written now."""
        count = 0 if self.is_quiet else min(self.choose(4), self.most - self.begun)
        return [self._next() for _ in range(count)]

    def _next(self) -> Posted:
        self.now += 1 + self.choose(3)
        self.begun += 1
        content = json.dumps([0, self.begun - 1, self.now]).encode()
        return Posted(self.now, 0, self.begun - 1, self.spoilt(content) if self.choose(5) == 4 else content)

    def spoilt(self, content: bytes) -> bytes:
        """What cannot be decoded."""
        return content[:-1]

    def returned(self, payloads: Sequence[Any]) -> None:
        """What a reader has just given."""


class Stream(Broker):
    """A stream of Redis, written to while it is read: one partition, whose messages are entries."""

    partitions_max = 1

    def __init__(self, choose: Schedule, most: int) -> None:
        super().__init__(choose, most)
        self._consumer = StreamsClient(self)

    def source(self) -> Any:
        return sources.redis("redis://model", "stream", decode="json")

    @contextmanager
    def read_from(self) -> Iterator[None]:
        with (
            mock.patch.object(REDIS, "client_of_redis", self.consumer),
            mock.patch.object(drift.sources.polled, "LiveReader", steady(self)),
        ):
            yield

    def consumer(self, *_: Any, **__: Any) -> Any:
        self._consumer = StreamsClient(self)
        return self._consumer


class StreamsClient:
    """A client of Redis: what the source calls of it.

    Attributes:
        offsets: as of `BrokersConsumer`.
    """

    def __init__(self, stream: Stream) -> None:
        self._stream = stream
        self.offsets = {0: 0}

    def _entries(self) -> list[tuple[bytes, dict[bytes, bytes]]]:
        if self._stream.is_away():
            raise redis.ConnectionError("the model is away")
        fields = [b"payload" if each.number % 4 or each.is_sound else b"other" for each in self._stream.logs[0]]
        return [(b"%d-0" % each.at, {name: each.content}) for name, each in zip(fields, self._stream.logs[0])]

    def xrevrange(self, name: str, count: int) -> Any:
        return self._entries()[::-1][:count]

    def xrange(self, name: str, least: str, most: str) -> Any:
        assert least == most
        return [each for each in self._entries() if each[0] == least.encode()]

    def xread(self, streams: Any, count: int, block: int) -> Any:
        self._stream.happens()
        (behind,) = (int(each.partition("-")[0]) for each in streams.values())
        entries = self._entries()
        unread = [each for each in entries if int(each[0].partition(b"-")[0]) > behind]
        most = min(len(unread), count)
        found = unread[: most - self._stream.choose(most + 1)]
        self.offsets = {0: len(self._stream.logs[0]) - len(unread) + len(found)}
        return [[b"stream", found]] if found else []

    def xinfo_stream(self, name: str) -> Any:
        self._entries()
        log = self._stream.logs[0]
        return {"max-deleted-entry-id": b"0-0", "last-generated-id": b"%d-0" % log[-1].at if log else b"0-0"}

    def register_script(self, text: str) -> Any:
        """Counts what is left to read: it is not known."""
        return lambda *_: [0, b"0", -1]

    def close(self) -> None: ...


class Table(Broker):
    """A table of a database, to which rows are added while it is read: one partition, whose messages are rows."""

    partitions_max = 1

    def source(self) -> Any:
        return sources.sqlite("model", "rows", key="number", payload="tuple", rows_at_once=4)

    @contextmanager
    def read_from(self) -> Iterator[None]:
        with mock.patch.object(query, "_Sqlite", lambda *arguments: TablesDatabase(self, *arguments)):
            yield


class TablesDatabase(query._Database):
    """A `_Database` that is away in place of the end of the rows, unless the table `heals`."""

    def __init__(self, table: Table, source: str, path: str, rows: str, key: str) -> None:
        super().__init__(source, rows, key)
        self._table = table

    def _found(self, first: int, count: int) -> list[Posted]:
        self._table.happens()
        log = self._table.logs[0]
        if self._table.is_away():
            raise InputError("the model is away")
        if len(log) <= first + 1 and not self._table.heals:
            raise NobodyWrites("nobody writes any more")
        return log[first : first + count]

    def _behind(self, what: str, last: Any, count: int) -> Any:
        return self._rows_of(self._found(last or 0, count), what)

    def row(self, key: Any) -> Any:
        return self._rows_of(self._found(key, 1), "*")

    def text(self, key: Any) -> str:
        return repr(self._found(key, 1)[0].content)

    def _rows_of(self, found: Sequence[Posted], what: str) -> tuple[list[str], list[tuple[Any, ...]]]:
        if what != "*":
            return ["number"], [(each.number,) for each in found]
        if not all(each.is_sound for each in found):
            raise query._Unreadable("the model cannot read it")
        return ["at_partition", "number", "at"], [(each.where, each.number, each.at) for each in found]

    def close(self) -> None: ...
