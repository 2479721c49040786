"""Models of what a run reads, as `outside_sources`: a folder of files, the changes of a database, lines of connections,
messages of a socket. What the last two give they give once, so a run with state logs it.
"""

from __future__ import annotations

import gzip
import importlib
import json
import socket
import struct
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NamedTuple
from unittest import mock

import psycopg
import zmq
from outside import Schedule
from outside_sources import Broker, NobodyWrites, Posted, steady

import drift.sources.changes
import drift.sources.chunks
import drift.sources.paths
import drift.sources.polled
import drift.sources.sockets
from drift import sources
from drift.sources.followed import FollowedReader
from drift.sources.sockets import _TcpReader

ZEROMQ = importlib.import_module("drift.sources.zeromq")


def asked(partition: OnePartition, kind: type[Any]) -> Callable[..., Any]:
    """What makes readers of a kind on which something happens when they are asked, and that are asked again at once."""

    class Steady(kind):  # type: ignore[misc]
        def read(self, items_max: int) -> list[Any] | None:
            partition.happens()
            payloads: list[Any] | None = super().read(items_max)
            partition.returned(payloads or [])
            self._wake.set()
            if payloads or not partition.is_read:
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


class Form(NamedTuple):
    """How messages are written into files.

    Attributes:
        name: of the files.
        source: what reads them, of a pattern.
        line: of a message, without its end.
        ends: of lines.
        header: of a file.
    """

    name: str
    source: Callable[[str], Any]
    line: Callable[[Posted], bytes]
    ends: tuple[bytes, ...] = (b"\n", b"\r\n")
    header: bytes = b""


def _object(message: Posted) -> bytes:
    text = b'{"at_partition": 0, "number": %d, "at": %d}' % (message.number, message.at)
    return text if message.is_sound else text[:-1]


def _row(message: Posted) -> bytes:
    """A row of CSV, some on two lines; what cannot be decoded lacks a cell, or is not UTF-8."""
    if not message.is_sound:
        return b"0,%d" % message.number + b",\xff,1" * (message.at % 2)
    notes = (b"", b'"two\nlines, one cell"', b"plain")
    return b"0,%d,%d,%s" % (message.number, message.at, notes[message.at % 3])


_FIELDS = {"at_partition": int, "number": int, "at": int}
_HEADER = b"at_partition,number,at,note"
_FORMS = (
    Form("jsonl", partial(sources.jsonl, follow=True), lambda message: message.content),
    Form("jsonl", partial(sources.jsonl, follow=True, schema=_FIELDS), _object),
    Form(
        "txt",
        partial(sources.text, follow=True),
        lambda message: message.content + b"\xff" * (not message.is_sound),
        (b"\n", b"\r\n", b"\r"),
    ),
    Form("csv", partial(sources.csv, follow=True), _row, header=_HEADER),
    Form("csv", partial(sources.csv, follow=True, schema={**_FIELDS, "note": str}), _row, header=_HEADER),
    Form("jsonl.gz", partial(sources.jsonl, follow=True), lambda message: message.content),
)


class Folder(OnePartition):
    """Files in a folder, of which the last one grows until there is another; those of gzip are there at once. Between
    two runs, and in one, the last may be cut, deleted, or replaced by a copy.
    """

    _half = b""  # of a line, which is not written yet
    _message: Posted  # of that line

    def __init__(self, choose: Schedule, most: int) -> None:
        super().__init__(choose, most)
        self._form = _FORMS[choose(len(_FORMS))]

    def source(self) -> Any:
        return self._form.source(str(self._folder / f"*.{self._form.name}"))

    @contextmanager
    def read_from(self) -> Iterator[None]:
        """See `Broker`."""
        with (
            tempfile.TemporaryDirectory() as folder,
            mock.patch.object(drift.sources.paths, "FollowedReader", asked(self, FollowedReader)),
            mock.patch.object(FollowedReader, "_wait_for_more", lambda reader: None),
            mock.patch.object(drift.sources.chunks, "_CHUNK_BYTES", 1 << (4 + 2 * self.choose(5))),
        ):
            self._folder, self._files = Path(folder), 0
            yield

    @property
    def is_read(self) -> bool:
        return self.is_quiet and not self._half and not self._may_go_on

    @property
    def _may_go_on(self) -> bool:
        """Whether the last line may go on with a newline, and is not read before."""
        return self._last.exists() and self._last.read_bytes().endswith(b"\r")

    @property
    def _last(self) -> Path:
        return self._folder / f"{self._files:04}.{self._form.name}"

    def _write(self, data: bytes) -> None:
        if not self._last.exists() and self._form.header:
            data = self._form.header + self._end() + data
        with self._last.open("ab") as file:
            file.write(data)

    def _end(self) -> bytes:
        return self._form.ends[self.choose(len(self._form.ends))]

    def happens(self) -> None:
        if self._half:
            self._write(self._half)
            self._half = b""
            self.log.append(self._message)
        elif self.is_quiet and self._may_go_on:
            self._write(b"\n")
        if not self.is_quiet and self.choose(30) == 29:
            self._befall()
        if self.is_quiet:
            return
        if self._form.name.endswith("gz"):
            self._add_file()
            return
        if self._last.exists() and self.choose(6) == 5:
            self._next_file()
        for message in self.new():
            self._write(self._form.line(message) + self._end())
            self.log.append(message)
        if self.begun < self.most and self.choose(4) == 3:
            self._message = self._next()
            data = self._form.line(self._message) + self._end()
            at = 1 + self.choose(len(data) - 1)
            self._write(data[:at])
            self._half = data[at:]

    def _add_file(self) -> None:
        messages = self.new()
        if messages:
            lines = [self._form.line(each) + self._end() for each in messages]
            (self._folder / "copy").write_bytes(gzip.compress(b"".join(lines), mtime=0))
            self._files += 1
            (self._folder / "copy").replace(self._last)
            self.log.extend(messages)

    def _next_file(self) -> None:
        """There is another from now on; the last line of this one may lack its end."""
        if self.begun < self.most and self.choose(3) == 2:
            message = self._next()
            self._write(self._form.line(message))
            self.log.append(message)
        self._files += 1
        self._write(b"")

    def maybe_shorter(self) -> None:
        """See `Broker`."""
        if self.choose(6) == 5:
            self._befall()

    def _befall(self) -> None:
        if not self._last.exists() or self._half:
            return
        self.may_fail = True
        data = self._last.read_bytes()
        kept = data[: self.choose(len(data) + 1)] if self.choose(2) else data
        match self.choose(3):
            case 0:  # replaced, by the same or by what is shorter
                copy = self._folder / "copy"
                copy.write_bytes(kept)
                copy.replace(self._last)
            case 1:
                self._last.write_bytes(kept)
            case _:
                self._last.unlink()
                kept = b""
        self.has_lost |= len(kept) < len(data)


class Changes(OnePartition):
    """A table of Postgres into which transactions write, as a client sees it that asks for its changes.

    Attributes:
        place: where its log ends.
        slots: how far each is.
    """

    forgets = True

    def __init__(self, choose: Schedule, most: int) -> None:
        super().__init__(choose, most)
        self.place = 8
        self.slots: dict[str, int] = {}
        self._commits: list[tuple[int, list[Posted]]] = []

    def source(self) -> Any:
        return sources.postgres_changes("postgresql:///model", "rows", slot="model")

    @contextmanager
    def read_from(self) -> Iterator[None]:
        """See `Broker`."""
        with (
            mock.patch("psycopg.connect", lambda *_, **__: ChangesConnection(self)),
            mock.patch.object(drift.sources.polled, "LiveReader", steady(self)),
            mock.patch.object(drift.sources.changes, "_AT_ONCE", 2),
        ):
            yield

    def kept(self) -> Any:
        """See `Broker`."""
        return {name: place for name, place in self.slots.items() if name == "model"}

    def put_back(self, kept: Any) -> None:
        """See `Broker`."""
        self.slots = kept

    def spoilt(self, content: bytes) -> bytes:
        return content + b"infinity"

    def happens(self) -> None:
        if self.is_quiet:
            return
        messages = self.new()
        self._commits.append((self.place, messages))
        self.place += 8
        self.log.extend(messages)

    def maybe_shorter(self) -> None:
        """It may come back without its last transactions."""
        if self._commits and self.choose(8) == 7:
            self.has_lost = True
            del self._commits[self.choose(len(self._commits)) :]
            self.place = self._commits[-1][0] + 8 if self._commits else 8
            self.slots = {name: min(place, self.place) for name, place in self.slots.items()}
            del self.log[sum(len(messages) for _, messages in self._commits) :]

    def taken(self, slot: str, most: int) -> Iterator[bytes]:
        """The messages behind the place of a slot, which moves: whole transactions, until they have so many changes."""
        found, changes = [_RELATION], 0
        for commit, messages in self._commits:
            if commit < self.slots[slot] or changes >= most:
                continue
            found.append(struct.pack(">cqqi", b"B", commit, 0, 1))
            for each in messages:
                day = "2013-01-01" if each.is_sound else "infinity"
                values = [str(value).encode() for value in (0, each.number, each.at, day)]
                row = b"".join(b"t" + struct.pack(">I", len(value)) + value for value in values)
                found.append(b"I" + struct.pack(">I", 1) + b"N" + struct.pack(">H", len(values)) + row)
            found.append(b"C" + bytes(25))
            changes += len(messages)
            self.slots[slot] = commit + 4
        return iter(found if len(found) > 1 else [])


_INT, _DATE = 23, 1082
_COLUMNS = (("at_partition", _INT), ("number", _INT), ("at", _INT), ("day", _DATE))
_RELATION = b"R" + struct.pack(">I", 1) + b"public\0rows\0d" + struct.pack(">H", len(_COLUMNS))
_RELATION += b"".join(b"\0" + name.encode() + b"\0" + struct.pack(">Ii", kind, -1) for name, kind in _COLUMNS)


class ChangesConnection:
    """See `psycopg.Connection`: what the source asks for."""

    info = SimpleNamespace(backend_pid=1)

    def __init__(self, changes: Changes) -> None:
        self._changes = changes
        self._may_be_away()

    def _may_be_away(self) -> None:
        if self._changes.choose(30) == 29:
            self._changes.may_fail = True
            raise psycopg.OperationalError("the model is away")

    def execute(self, sql: bytes, values: Sequence[Any] | None = None) -> Any:
        self._may_be_away()
        found = self._answer(sql.decode(), *values or ())
        return SimpleNamespace(fetchall=lambda: found)

    def _answer(self, sql: str, *values: Any) -> list[tuple[Any, ...]]:
        slots = self._changes.slots
        if "pg_create_logical" in sql:
            slots[values[0]] = self._changes.place
        elif "pg_copy_logical" in sql:
            slots[values[1]] = slots[values[0]]
        elif "pg_drop" in sql:
            slots.pop(values[0], None)
        elif "advance" in sql:
            high, low = (int(part, 16) for part in values[0].split("/"))
            place = min(high << 32 | low, self._changes.place)
            slots[values[1]] = max(slots[values[1]], place)
        elif "pg_current_wal" in sql:
            return [(self._changes.place,)]
        elif "confirmed_flush_lsn" in sql:
            return [(slots[values[0]], "pgoutput", True)] if values[0] in slots else []
        elif "from pg_replication_slots" in sql:
            return [(1,)] if values[0] in slots else []
        return [(1,)]

    @contextmanager
    def cursor(self) -> Iterator[Any]:
        yield self

    def stream(self, sql: bytes, values: Sequence[Any]) -> Iterator[tuple[bytes]]:
        self._may_be_away()
        self._changes.happens()
        slot, _, most, _ = values
        for message in self._changes.taken(slot, most):
            if self._changes.choose(40) == 39:
                self._changes.may_fail = True
                raise psycopg.OperationalError("the model went away")
            yield (message,)

    def close(self) -> None:
        """A temporary slot goes with its connection."""
        for slot in [each for each in self._changes.slots if each != "model"]:
            del self._changes.slots[slot]


class Messages(OnePartition):
    """Messages to a socket of ZeroMQ. Those that a run has not taken when it ends are lost, or wait.

    Attributes:
        waiting: for the run.
    """

    def __init__(self, choose: Schedule, most: int) -> None:
        super().__init__(choose, most)
        self.waiting: list[Posted] = []

    def source(self) -> Any:
        return sources.zmq_pull("tcp://model:1", decode="json")

    @contextmanager
    def read_from(self) -> Iterator[None]:
        """See `Broker`."""
        with mock.patch("zmq.Context", self._opened), mock.patch.object(ZEROMQ, "LiveReader", steady(self)):
            yield

    def _opened(self) -> Any:
        if self.choose(3) == 2:
            self.waiting = []
        return SimpleNamespace(socket=lambda kind: self, destroy=lambda linger: None)

    # See `zmq.Socket`.

    def bind(self, address: str) -> None: ...

    def getsockopt_string(self, option: int) -> str:
        return "tcp://model:1"

    def poll(self, timeout: float) -> None:
        self.waiting += self.new()

    def recv_multipart(self, flags: int) -> list[bytes]:
        if self.choose(20) == 19:
            self.may_fail = True
            raise zmq.ZMQError(zmq.ETERM)
        if not self.waiting or self.choose(6) == 5:
            raise zmq.Again
        self.log.append(self.waiting.pop(0))
        return [self.log[-1].content]

    @property
    def is_read(self) -> bool:
        return self.is_quiet and not self.waiting


class Lines(OnePartition):
    """Lines over connections, one connection after the other; some break, or end within a line. Those that a run has
    not returned when it ends are lost.
    """

    def __init__(self, choose: Schedule, most: int) -> None:
        super().__init__(choose, most)
        self._sender: socket.socket | None = None
        self._half = b""
        self._sent: dict[bytes, Posted] = {}
        self._opened: list[tuple[socket.socket, tuple[str, int]]] = []

    def source(self) -> Any:
        return sources.tcp_lines(until_closed=False)

    @contextmanager
    def read_from(self) -> Iterator[None]:
        """See `Broker`."""
        with (
            mock.patch.object(drift.sources.sockets.socket, "create_server", lambda *_, **__: Listener(self)),
            mock.patch.object(drift.sources.sockets, "_TcpReader", asked(self, _TcpReader)),
        ):
            yield
        self.hang_up()

    @property
    def is_read(self) -> bool:
        return self.is_quiet and self._sender is None

    def returned(self, payloads: Sequence[Any]) -> None:
        """See `OnePartition`; a line that nobody has sent is one that is not in the output."""
        contents = [payload.encode() if isinstance(payload, str) else b"" for payload in payloads]
        self.log.extend(self._sent.get(content, Posted(0, 0, 0, content)) for content in contents)

    def spoilt(self, content: bytes) -> bytes:
        return content[:-1] + b"\xff"

    def accept(self) -> tuple[socket.socket, tuple[str, int]]:
        if not self._opened:
            raise BlockingIOError
        return self._opened.pop()

    def hang_up(self) -> None:
        """The end of a connection: of the run, or of the sender."""
        if self._sender is not None:
            self._sender.close()
        for connection, _ in self._opened:
            connection.close()
        self._sender, self._half, self._opened = None, b"", []

    def happens(self) -> None:
        if self._sender is None and not self.is_quiet:
            self._sender, connection = socket.socketpair()
            self._opened.append((connection, ("model", 1)))
        if self._sender is None:
            return
        messages = self.new()
        self._sent.update((message.content, message) for message in messages)
        data = self._half + b"".join(message.content + b"\n" for message in messages)
        at = len(data) - self.choose(len(data) + 1) if self.choose(3) == 2 else len(data)
        self._sender.sendall(data[:at])
        self._half = data[at:]
        if (self.is_quiet and not self._half) or self.choose(8) == 7:
            self._sender.close()
            self._sender, self._half = None, b""


class Listener:
    """See `socket.socket`, as it listens."""

    def __init__(self, lines: Lines) -> None:
        lines.hang_up()
        self._quiet = socket.socketpair()
        self.accept = lines.accept

    def fileno(self) -> int:
        return self._quiet[0].fileno()

    def setblocking(self, blocks: bool) -> None: ...

    def getsockname(self) -> tuple[str, int]:
        return "model", 1

    def close(self) -> None:
        for each in self._quiet:
            each.close()
