"""Models of what is outside of a run, whose faults are decisions of a schedule; what talks to them has the real logic.

A `Schedule` decides everything: when something is stored, acknowledged, refused, lost, or when a connection breaks.
What befalls the store of a run's state is decided call by call, since a thread of its own writes there. Each model
keeps its content as the real server would, and says whether it has ever lost what it had acknowledged.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any, NamedTuple, Protocol
from unittest import mock

from confluent_kafka import KafkaError

import drift.state.opened
import drift.state.run_checkpoints
import drift.state.store
import drift_barrier.digest
from drift.sinks.delivering import DeliveringSink, End
from drift.sinks.kafka import producer_settings
from drift.sinks.lines import as_json
from drift.sinks.refused import put_or_set_apart
from drift.sinks.resuming import AppendingSink, Last
from drift.sources.polled import Decode, Poller, _Polled, decoded
from drift.sources.wake import Wake
from drift.state.backend import Away, Changes, Expected, older_error
from drift_graph.errors import InputError, SinkError, StorageError
from drift_graph.metas import Metas

#: What may befall a call of the store. "older N" goes back by N writes; the answer to a write that is "lost" does not
#: come, though it has succeeded.
FAULTS = ("away", "lost", "full", "older 1", "older 2", "older 5", "older 99", "slow")

#: A decision: of so many possibilities one, by its number; 0 is what happens without faults.
Schedule = Callable[[int], int]

STALL_MS = 400  # message.timeout.ms of the model's producers


class Far(Protocol):
    """What a sink writes to.

    Attributes:
        heals: whether no fault is drawn any more.
        has_lost: whether it has lost what it had acknowledged.
    """

    heals: bool
    has_lost: bool

    def sink(self) -> Any:
        """A new sink on it, as a new run makes one."""

    def parts(self) -> list[list[int]]:
        """The positions that it has, in the order in which it has them, of each partition."""

    def shares(self, length: int) -> list[list[int]]:
        """The positions that it should have of so many, of each partition."""


class Rows:
    """A server with transactions: Redis, Postgres or SQLite.

    Args:
        diverts: whether the sink sets apart what is refused.

    Attributes:
        stored: the items that are in the table or set apart, in the order in which they came there.
    """

    def __init__(self, choose: Schedule, *, diverts: bool = False) -> None:
        self._choose = choose
        self._diverts = diverts
        self._refused = {choose(10) for _ in range(choose(3))}
        self.heals = self.has_lost = False
        self.stored: list[Last] = []

    def choose(self, count: int) -> int:
        return 0 if self.heals else self._choose(count)

    def sink(self) -> Any:
        return RowsSink(self)

    def parts(self) -> list[list[int]]:
        return [[each.position for each in self.stored]]

    def shares(self, length: int) -> list[list[int]]:
        return [list(range(length))]

    def maybe_older(self) -> None:
        """It may come back with what it had some time ago."""
        if self.stored and self.choose(8) == 7:
            del self.stored[self.choose(len(self.stored)) :]
            self.has_lost = True

    @property
    def last(self) -> Last | None:
        return self.stored[-1] if self.stored else None

    def append(self, left: Last | None, items: Sequence[Last]) -> Last | None:
        """A transaction, as a client calls it that calls again where the answer is lost."""
        self.maybe_older()
        match self.choose(12):
            case 9:
                raise ConnectionError("before the transaction")
            case 10:
                self._transact(left, items)
                raise ConnectionError("behind the transaction")
            case 11:
                self._transact(left, items)
                self.maybe_older()
        found = self._transact(left, items)
        self.maybe_older()
        return found

    def _transact(self, left: Last | None, items: Sequence[Last]) -> Last | None:
        """All of it or nothing, but for what is set apart."""
        found = self.last
        if found != left:
            return found
        stored: list[Last] = []

        def put(positions: Sequence[int], metas: Metas, payloads: Sequence[Any]) -> None:
            if not self.heals and any(position % 10 in self._refused for position in positions):
                raise ValueError("there is one that is refused")
            stored.extend(payloads)

        def set_apart(position: int, meta: bytes, payload: Any, error: Exception) -> None:
            assert position % 10 in self._refused, f"the item at {position} is set apart, and was not refused"
            stored.append(payload)

        positions, metas = zip(*items, strict=True)
        if self._diverts:
            put_or_set_apart(put, set_apart, (ValueError,), positions, metas, items)
        else:
            put(positions, metas, items)
        assert stored == list(items), "the position is stored, so each item is in the table or set apart"
        self.stored += stored
        return found


class RowsSink(AppendingSink):
    _calls_again = True

    def __init__(self, far: Rows) -> None:
        super().__init__("the model", "continue")
        self._far = far

    def _begin(self, resume: str) -> Last | None:
        return self._far.last

    def _append(
        self, left: Last | None, positions: Sequence[int], metas: Metas, payloads: Sequence[Any]
    ) -> Last | None:
        with self._taking(positions, ConnectionError, ValueError):
            return self._far.append(left, list(map(Last, positions, metas)))

    def _find_end(self) -> Last | None:
        return self._far.last


class Message(NamedTuple):
    last: Last
    meant: int
    partitions: int | None


class Sent(NamedTuple):
    """A message on its way."""

    at_s: float
    partition: int
    message: Message
    tracked: bool


class Topic:
    """A topic of Kafka, and librdkafka's producer as its documents describe it, with the settings that it is given.

    Attributes:
        logs: the messages of each partition.
        now_s: the clock of the producers.
    """

    def __init__(self, choose: Schedule, partitions: int, key: Callable[[Any], str | bytes] | None) -> None:
        self._choose = choose
        self.key = key
        self.heals = self.has_lost = False
        self.is_down = False
        self.logs: list[list[Message]] = [[] for _ in range(partitions)]
        self.now_s = 0.0

    def choose(self, count: int) -> int:
        return 0 if self.heals else self._choose(count)

    def sink(self) -> Any:
        if self.heals:
            self.is_down = False
        return TopicSink(self)

    def parts(self) -> list[list[int]]:
        return [[each.last.position for each in log] for log in self.logs]

    def shares(self, length: int) -> list[list[int]]:
        found: list[list[int]] = [[] for _ in self.logs]
        for position in range(length):
            found[0 if self.key is None else partition_for(position, len(found))].append(position)
        return found


def partition_for(position: int, count: int) -> int:
    from drift.sinks.delivering import partition_of

    return partition_of(str(position % 5).encode(), count)


class TopicSink(DeliveringSink):
    """Kafka's sink, with a model of its producer."""

    def __init__(self, topic: Topic) -> None:
        self._settings, patience_s = producer_settings({"message.timeout.ms": STALL_MS})
        super().__init__("the model", as_json, topic.key, "continue", patience_s)
        self._topic = topic
        self._queue: list[Sent] = []
        self._reports: list[tuple[Sent, int | None]] = []  # with the offset, or None for a failure
        self._fatal = False

    def _open(self) -> list[End]:
        if self._topic.is_down and self._topic.choose(2) == 0:
            raise SinkError("the model cannot be opened")
        ends = []
        for log in self._topic.logs:
            last = log[-1] if log else None
            meant = (None, None) if last is None else (last.meant, last.partitions)
            ends.append(End(len(log), None if last is None else last.last, meant))
        return ends

    def _send(
        self,
        partition: int,
        offset: int,
        positions: Sequence[int],
        metas: Metas,
        keys: Sequence[bytes] | None,
        values: Sequence[bytes],
    ) -> tuple[int, Exception | None]:
        count = None if keys is None else len(self._topic.logs)
        for at, (position, meta) in enumerate(zip(positions, metas)):
            match 0 if self._topic.heals else self._topic.choose(30):
                case 28:
                    return at, None  # the queue is full
                case 29:
                    return at, ValueError("too large")
            if self._fatal:
                self._fail_delivery(partition, "fatal")
                return at, None
            message = Message(Last(position, meta), offset + at, count)
            self._queue.append(Sent(self._topic.now_s, partition, message, at == len(positions) - 1))
        return len(positions), None

    def _serve(self, wait_s: float, *, hurry: bool) -> int:
        topic = self._topic
        topic.now_s += 0.1 * (1 + topic.choose(3))
        match topic.choose(10):
            case 7:
                topic.is_down = True
            case 8:
                topic.is_down = False
            case 9:
                self._lose()
        if topic.heals:
            topic.is_down = False
        self._expire()
        if not topic.is_down:
            self._deliver()
        self._report()
        return len(self._queue) + len(self._reports)

    def _lose(self) -> None:
        """The broker comes back without the newest messages of a partition, all of which it may have acknowledged."""
        log = self._topic.logs[self._topic.choose(len(self._topic.logs))]
        if log:
            del log[self._topic.choose(len(log)) :]
            self._topic.has_lost = True

    def _expire(self) -> None:
        """Each message expires on its own, after a time."""
        limit_s = self._settings["message.timeout.ms"] / 1000
        while limit_s and self._queue and self._topic.now_s - self._queue[0].at_s > limit_s:
            self._reports.append((self._queue.pop(0), None))

    def _deliver(self) -> None:
        """What is in the queue is stored in its order; where one is refused, all behind it are, if there are to be no
        gaps."""
        rest = self._topic.choose(len(self._queue) + 1)  # so many are not stored yet
        for _ in range(len(self._queue) - rest):
            sent = self._queue.pop(0)
            if self._topic.choose(25) == 24:
                self._reports.append((sent, None))
                if self._settings["enable.gapless.guarantee"]:
                    self._fatal = True
                    self._reports += [(each, None) for each in self._queue]
                    self._queue.clear()
                    break
                continue
            log = self._topic.logs[sent.partition]
            log.append(sent.message)
            self._reports.append((sent, len(log) - 1))

    def _report(self) -> None:
        """Some of what is known is reported, not in order among the partitions."""
        late = self._topic.choose(len(self._reports) + 1)
        served, self._reports = self._reports[: len(self._reports) - late], self._reports[len(self._reports) - late :]
        for sent, offset in sorted(served, key=lambda each: each[0].partition, reverse=self._topic.choose(2) == 1):
            if offset is None:
                self._fail_delivery(sent.partition, "it was not stored")
            elif sent.tracked:
                self._acknowledge(sent.partition, sent.message.meant, offset)

    def _drop(self) -> None:
        """Some of it may have been on its way: that is stored all the same, in its order."""
        for sent in self._queue[: self._topic.choose(len(self._queue) + 1)]:
            if not self._fatal:
                self._topic.logs[sent.partition].append(sent.message)
        self._queue.clear()
        self._reports.clear()

    def _offsets_at_end(self) -> list[int]:
        if self._topic.choose(4) == 3:
            self._lose()
        return list(map(len, self._topic.logs))

    def _end(self) -> None:
        self._drop()

    def _now_s(self) -> float:
        return self._topic.now_s


# What keeps the state of a run.

Tables = Mapping[str, Mapping[bytes, bytes]]


class Server:
    """Tables, and what they were after each write.

    Attributes:
        faults: by the number of the call.
        has_lost: whether it came back with older data.
        is_slow: whether a write waits for the run to go on.
    """

    def __init__(self) -> None:
        self.history: list[Tables] = [{}]
        self.calls = 0
        self.faults: Mapping[int, str] = {}
        self.going_on = threading.Event()
        self.pausing = threading.Event()
        self.has_lost = self.is_slow = False

    @property
    def tables(self) -> Tables:
        return self.history[-1]

    def befalls(self) -> str:
        """What befalls this call; the past is what is left after a restart."""
        fault = self.faults.get(self.calls, "")
        self.calls += 1
        if fault == "away":
            raise Away("no route")
        if fault.startswith("older"):
            del self.history[max(len(self.history) - int(fault.split()[1]), 1) :]
            self.has_lost = True
        return fault

    def write(self, changes: Changes, expected: Sequence[Expected]) -> None:
        fault = self.befalls()
        if fault == "full":
            raise StorageError("no room in the model; run again")
        if fault == "slow":
            self.is_slow = True
            self.pausing.set()
            self.going_on.wait()
            self.going_on.clear()
        for each in expected:
            if not is_there(self.tables, each):
                raise older_error("the model", each)
        tables = {name: dict(its_rows) for name, its_rows in self.tables.items()}
        for name, changed in changes.items():
            for key, value in changed.items():
                if value is None:
                    tables.get(name, {}).pop(key, None)
                else:
                    tables.setdefault(name, {})[key] = value
        self.history.append(tables)
        if fault == "lost":
            raise Away("the connection was lost")


def is_there(tables: Tables, expected: Expected) -> bool:
    return expected.is_met(tables.get(expected.table, {}).get(expected.key))


class OnServer:
    """See `Backend`."""

    logs = ""
    where = "the model"
    is_behind = False

    def __init__(self, server: Server) -> None:
        self._server = server

    def exists(self) -> bool:
        return True

    def open(self) -> None: ...

    def reader(self) -> OnServer:
        return self

    def sizes(self, table: str) -> dict[bytes, int]:
        self._server.befalls()
        return {key: len(value) for key, value in self._server.tables.get(table, {}).items()}

    def read(self, table: str, keys: Sequence[bytes]) -> list[bytes | None]:
        self._server.befalls()
        return [self._server.tables.get(table, {}).get(key) for key in keys]

    def write(self, changes: Changes, expected: Sequence[Expected] = ()) -> None:
        self._server.write(changes, expected)

    def close(self) -> None: ...


@contextmanager
def states_on(server: Server) -> Iterator[str]:
    """A context in which the state of a run may be on the server, whose snapshots are merged at once; its URL.

    Blocks of the digest are of few items, so local runs have another digest there.
    """
    kinds = {"model": lambda _: OnServer(server)}
    with (
        mock.patch.dict(drift.state.run_checkpoints._SERVERS, kinds),  # type: ignore[arg-type]
        mock.patch.object(drift.state.store, "_FOLDED_BYTES", 1),
        mock.patch.object(drift.state.opened, "ROW_BYTES", 20),
        mock.patch.object(drift_barrier.digest, "BLOCK_ITEMS", 7),
    ):
        yield "model://"


# What is read.


class Posted(NamedTuple):
    """A message of a partition, as a client sees it."""

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


class Broker:
    """A topic of Kafka that is written to while it is read, as a consumer sees it; the source on it is the real one.

    A message is [partition, offset, timestamp], and some are no JSON. No two have one timestamp, so in event time the
    output does not depend on when what is read.

    Attributes:
        logs: the messages of each partition.
        most: so many are written; a source that has read all of them fails, or ends where the broker `heals`.
        now_s: the clock of its clients, which goes on where there is nothing to read any more.
        has_lost: whether a partition is shorter than it was.
    """

    def __init__(self, choose: Schedule, most: int) -> None:
        self._choose = choose
        self.most = most
        self.logs: list[list[Posted]] = [[]]
        self.now = 0
        self.now_s = 0.0
        self.heals = self.has_lost = False
        self._consumer = BrokersConsumer(self)

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
        if len(self.logs) < 3 and self.choose(6) == 5:
            self.logs.append([])
        for _ in range(min(self.choose(4), self.most - self.written)):
            partition = self.choose(len(self.logs))
            log = self.logs[partition]
            self.now += 1 + self.choose(3)
            content = json.dumps([partition, len(log), self.now]).encode()
            log.append(Posted(self.now, partition, len(log), content[:-1] if self.choose(5) == 4 else content))

    def maybe_shorter(self) -> None:
        """It may come back without the newest messages, or with another topic of the same name, which has fewer."""
        log = self.logs[self.choose(len(self.logs))]
        if log and self.choose(8) == 7:
            del log[self.choose(len(log)) :]
            self.has_lost = True

    def consumer(self, config: Any, **_: Any) -> BrokersConsumer:
        self._consumer = BrokersConsumer(self)
        return self._consumer


class BrokersConsumer:
    """See `confluent_kafka.Consumer`: what the source calls of it.

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
        if broker.choose(20) == 19:
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
            self._poller.behind(fetched.marks[: len(payloads)])
            self._quiet_s = 0.0 if payloads or not broker.is_read else self._quiet_s + 1.0
            broker.now_s += self._quiet_s > 0.0
            if self._quiet_s > 20.0:  # longer than a partition is waited for
                if broker.heals:
                    return None
                raise InputError("nobody writes any more")
            return payloads

        def filenos(self) -> Sequence[int]:
            return (self._wake.fileno(),)

        def close(self) -> None:
            self._wake.close()
            self._poller.close()

    return Steady
