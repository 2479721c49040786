"""Models of what a run reads, as `outside_sources`: the changes of a database, lines of connections, messages of a
socket. What the last two give they give once, so a run with state logs it.
"""

from __future__ import annotations

import importlib
import socket
import struct
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any
from unittest import mock

import psycopg
import zmq
from outside_sources import OnePartition, Posted, Schedule, asked, steady

import drift.sources.changes
import drift.sources.polled
import drift.sources.sockets
from drift import sources

ZEROMQ = importlib.import_module("drift.sources.zeromq")


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
        with (
            mock.patch("psycopg.connect", lambda *_, **__: ChangesConnection(self)),
            mock.patch.object(drift.sources.polled, "LiveReader", steady(self)),
            mock.patch.object(drift.sources.changes, "_AT_ONCE", 2),
        ):
            yield

    def kept(self) -> Any:
        return {name: place for name, place in self.slots.items() if name == "model"}

    def put_back(self, kept: Any) -> None:
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
    """A connection of psycopg: what the source asks for."""

    info = SimpleNamespace(backend_pid=1)

    def __init__(self, changes: Changes) -> None:
        self._changes = changes
        self._may_be_away()

    def _may_be_away(self) -> None:
        if self._changes.choose(30) == 29:
            self._changes.may_fail = True
            raise psycopg.OperationalError("the model is away")

    def execute(self, sql: bytes | str, values: Sequence[Any] | None = None) -> Any:
        self._may_be_away()
        found = self._answer(sql.decode() if isinstance(sql, bytes) else sql, *values or ())
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
        elif "from pg_type" in sql:  # there are no domains
            return []
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
        return sources.zmq_pull("tcp://model:1", decode="json", subscribe=(None, b"")[self.choose(2)])

    @contextmanager
    def read_from(self) -> Iterator[None]:
        with mock.patch("zmq.Context", self._opened), mock.patch.object(ZEROMQ, "LiveReader", steady(self)):
            yield

    def _opened(self) -> Any:
        if self.choose(3) == 2:
            self.waiting = []
        return SimpleNamespace(socket=lambda kind: self, destroy=lambda linger: None)

    # See `zmq.Socket`.

    def bind(self, address: str) -> None: ...

    def setsockopt(self, option: int, value: bytes) -> None: ...

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
        with (
            mock.patch.object(drift.sources.sockets.socket, "create_server", lambda *_, **__: Listener(self)),
            mock.patch.object(drift.sources.sockets, "LiveReader", asked(self, steady(self))),
        ):
            yield
        self.hang_up()

    @property
    def is_read(self) -> bool:
        return self.is_quiet and self._sender is None

    def returned(self, payloads: Sequence[Any]) -> None:
        """A line that nobody has sent is one that is not in the output."""
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
    """A socket that listens."""

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
