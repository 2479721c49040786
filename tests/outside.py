"""Models of what is outside of a run, whose faults are decisions of a schedule; what talks to them has the real logic.

A `Schedule` decides everything: when something is stored, acknowledged, refused, lost, or when a connection breaks.
What befalls the store of a run's state is decided call by call, since a thread of its own writes there. Each model
keeps its content as the real server would, and says whether it has ever lost what it had acknowledged.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple, Protocol
from unittest import mock

import drift.state.open_block
import drift.state.settings
import drift.state.store
import drift_barrier.digest
from drift.sinks.beside import AFTER, META, PARTITIONS, POSITION, WRITER, own_messages
from drift.sinks.delivering import DeliveringSink, End
from drift.sinks.kafka import producer_settings
from drift.sinks.lines import as_json
from drift.sinks.refused import put_or_set_apart
from drift.sinks.resuming import Last, ResumingSink
from drift.state.backend import Away, Changes, Expected, older_error
from drift_graph.errors import SinkError, StorageError
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


class RowsSink(ResumingSink):
    calls_again = True

    def __init__(self, far: Rows) -> None:
        super().__init__("the model", "continue")
        self._far = far

    def begin(self, resume: str) -> Last | None:
        return self._far.last

    def append(self, left: Last | None, positions: Sequence[int], metas: Metas, payloads: Sequence[Any]) -> Last | None:
        with self._taking(positions, ConnectionError, ValueError):
            return self._far.append(left, list(map(Last, positions, metas)))

    def find_end(self) -> Last | None:
        return self._far.last


class Message(NamedTuple):
    last: Last
    meant: int
    partitions: int | None
    before: int  # the position before it

    def headers(self) -> dict[str, bytes]:
        more = {} if self.partitions is None else {PARTITIONS: b"%d" % self.partitions}
        position, before = b"%d" % self.last.position, b"%d" % self.before
        return {POSITION: position, META: self.last.meta, AFTER: before, WRITER: b"ours", **more}


class Sent(NamedTuple):
    """A message on its way."""

    at_s: float
    partition: int
    message: Message
    tracked: bool


class Topic:
    """A topic of Kafka, and librdkafka's producer as its documents describe it, with the settings that it is given.

    Attributes:
        logs: the messages of each partition; None for one of another writer.
        now_s: the clock of the producers.
    """

    def __init__(
        self, choose: Schedule, partitions: int, key: Callable[[Any], str | bytes] | None, *, is_shared: bool = False
    ) -> None:
        self._choose = choose
        self.key = key
        self._sink = SharedTopicSink if is_shared else TopicSink
        self.heals = self.has_lost = False
        self.is_down = False
        self.logs: list[list[Message | None]] = [[] for _ in range(partitions)]
        self.now_s = 0.0

    def choose(self, count: int) -> int:
        return 0 if self.heals else self._choose(count)

    def sink(self) -> Any:
        if self.heals:
            self.is_down = False
        return self._sink(self)

    def parts(self) -> list[list[int]]:
        return [[each.last.position for each in log if each is not None] for log in self.logs]

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
        self._mine: set[int] = set()  # the positions that this producer has stored
        self._refused: set[int] = set()  # partitions whose broker misses some of those

    def _open(self) -> list[End]:
        if self._topic.is_down and self._topic.choose(2) == 0:
            raise SinkError("the model cannot be opened")
        return self._found_ends()

    def _found_ends(self) -> list[End]:
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
        befores = [self._deliveries[partition].handed_over, *positions]
        for at, (position, meta) in enumerate(zip(positions, metas)):
            match 0 if self._topic.heals else self._topic.choose(30):
                case 28:
                    return at, None  # the queue is full
                case 29:
                    return at, ValueError("too large")
            if self._fatal:
                self._fail_delivery(partition, "fatal")
                return at, None
            message = Message(Last(position, meta), offset + at, count, befores[at])
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
        partition = self._topic.choose(len(self._topic.logs))
        log = self._topic.logs[partition]
        if log:
            begin = self._topic.choose(len(log))
            self._miss(partition, [each.last.position for each in log[begin:] if each is not None])
            del log[begin:]
            self._topic.has_lost = True

    def _miss(self, partition: int, positions: list[int]) -> None:
        """The broker has lost these."""

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
            if self._topic.choose(25) == 24 or sent.partition in self._refused:
                self._reports.append((sent, None))
                if self._settings["enable.gapless.guarantee"]:
                    self._fatal = True
                    self._reports += [(each, None) for each in self._queue]
                    self._queue.clear()
                    break
                continue
            log = self._topic.logs[sent.partition]
            log.append(sent.message)
            self._mine.add(sent.message.last.position)
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
            if not self._fatal and sent.partition not in self._refused:
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


class SharedTopicSink(TopicSink):
    """A sink beside other writers. A broker refuses messages of an idempotent producer behind some that it has lost,
    since they are numbered."""

    def __init__(self, topic: Topic) -> None:
        super().__init__(topic)
        self._beside_others = True

    def _found_ends(self) -> list[End]:
        committed = None if self._checkpoint is None else self._checkpoint[1]
        self._own = own_messages(self._target, b"ours", committed, len(self._topic.logs))
        self._read()
        return [own.begin() for own in self._own]

    def _read(self) -> None:
        for own, log in zip(self._own, self._topic.logs):
            offset = own.begin_reading(0, len(log))
            for at, message in enumerate(log[offset:], offset):
                own.take(at, {} if message is None else message.headers())
            own.end_reading(max(offset, len(log)))

    def _miss(self, partition: int, positions: list[int]) -> None:
        if not self._mine.isdisjoint(positions):
            self._refused.add(partition)

    def _serve(self, wait_s: float, *, hurry: bool) -> int:
        for _ in range(self._topic.choose(3)):
            self._topic.logs[self._topic.choose(len(self._topic.logs))].append(None)
        return super()._serve(wait_s, hurry=hurry)

    def commit(self) -> dict[str, Any]:
        return {**super().commit(), "offsets": [own.resumed_from for own in self._own]}

    def _offsets_at_end(self) -> list[int]:
        super()._offsets_at_end()
        self._read()
        return [own.begun + own.count for own in self._own]


# What keeps the state of a run.

Tables = Mapping[str, Mapping[bytes, bytes]]


class Server:
    """Tables, and what they were after each write.

    Attributes:
        faults: by the number of the call.
        has_lost: whether it came back with older data.
        is_slow: whether a write waits for the run to go on.
        is_waited_for: whether the run waits for what is written: then no write waits for the run.
    """

    def __init__(self) -> None:
        self.history: list[Tables] = [{}]
        self.calls = 0
        self.faults: Mapping[int, str] = {}
        self.going_on = threading.Event()
        self.pausing = threading.Event()
        self.has_lost = self.is_slow = self.is_waited_for = False

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

    @contextmanager
    def waited_for(self) -> Iterator[None]:
        """A context in which slow writes end."""
        before, self.is_waited_for = self.is_waited_for, True
        self.going_on.set()
        try:
            yield
        finally:
            self.is_waited_for = before
            if not before:
                self.going_on.clear()
                self.is_slow = False

    def write(self, changes: Changes, expected: Sequence[Expected]) -> None:
        fault = self.befalls()
        if fault == "full":
            raise StorageError("no room in the model; run again")
        if fault == "slow" and threading.current_thread() is not threading.main_thread():  # the run's own cannot wait
            self.is_slow = True
            self.pausing.set()
            self.going_on.wait()
            if not self.is_waited_for:
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
        mock.patch.dict(drift.state.settings._SERVERS, kinds),  # type: ignore[arg-type]
        mock.patch.object(drift.state.store, "_FOLDED_BYTES", 1),
        mock.patch.object(drift.state.open_block, "ROW_BYTES", 20),
        mock.patch.object(drift_barrier.digest, "BLOCK_ITEMS", 7),
    ):
        yield "model://"
