"""Lines over TCP.

Invariant: a line is returned completely or not at all, lines of one connection in their order; at most one line and a
few receives of each connection are buffered. A run that was refused before it has read leaves the source as it was, and
of one that ends before, the lines that were received are `left`.

Why: nothing is received while enough lines wait to be taken, so TCP slows down a sender that is faster than the run.
Nothing is accepted before the first `read`, and a connection that was made for a reader which did not read serves the
next one.
"""

from __future__ import annotations

import selectors
import socket
from typing import Any, ClassVar, Self

from drift.guarantees import SourceGuarantee
from drift.sources.base import OwnSource, Reader
from drift.sources.polled import AsMade, Fetched, LiveReader, Poller, Undecodable
from drift_graph.errors import InputError, SettingsError
from drift_graph.numbers import check_int

_RECEIVE_BYTES = 1 << 16


def tcp_lines(
    host: str = "127.0.0.1",
    port: int = 0,
    *,
    connect: bool = False,
    until_closed: bool = True,
    line_bytes_max: int = 1 << 20,
    connections_max: int = 64,
) -> TcpLines:
    """Each line received over TCP is a payload: UTF-8, ended by a newline (or by "\\r\\n"), which is removed.

    The socket listens from this call on; its `address` and `port` are known at once.

    >>> import drift, socket
    >>> lines = drift.sources.tcp_lines()
    >>> with socket.create_connection(lines.address) as sender:
    ...     sender.sendall(b"to be\\nor not\\n")
    >>> graph = drift.Graph("lengths")
    >>> graph.source("lines").map(len).sink("out")
    >>> [item.payload for item in drift.run(graph, {"lines": lines})]
    [5, 6]

    Args:
        host, port: where to listen; by default only for this machine; port 0 takes a free one.
        connect: connect there when the run starts, in place of listening; the input ends with the connection.
        until_closed: the input ends when every connection is closed and one of them has sent something; so a mere port
            check does not end it.
        line_bytes_max: a longer line ends the run with an InputError.
        connections_max: served at a time; others wait.

    Raises:
        SettingsError: it cannot listen there.
    """
    check_int("line_bytes_max", line_bytes_max)
    check_int("connections_max", connections_max)
    if connect and not port:
        raise SettingsError("tcp_lines(connect=True) needs the port to connect to")
    return TcpLines(host, port, connect, until_closed, line_bytes_max, connections_max)


class TcpLines(OwnSource):
    """It serves one run that reads; `close` it if none comes.

    Attributes:
        address: (host, port) where it listens, or will connect to.
        port: the port of it.
    """

    live = True
    guarantee: ClassVar = SourceGuarantee("not at all", "a connection gives each line once")

    def __init__(
        self, host: str, port: int, connect: bool, until_closed: bool, line_bytes_max: int, connections_max: int
    ) -> None:
        self._settings = (until_closed or connect, line_bytes_max, connections_max)
        self._listener: socket.socket | None = None
        self._connection: socket.socket | None = None  # of a reader that has not read
        self._used = False
        self.address = (host, port)
        if not connect:
            try:
                family = socket.AF_INET6 if ":" in host else socket.AF_INET
                self._listener = socket.create_server((host, port), family=family)
            except (OSError, OverflowError) as error:
                raise SettingsError(
                    f"tcp_lines cannot listen at {host}:{port}: {error}; take an address of this machine and a port "
                    f"that nobody uses, or port=0 for any"
                ) from None
            self._listener.setblocking(False)
            self.address = self._listener.getsockname()[:2]

    @property
    def port(self) -> int:
        return self.address[1]

    def diverting(self, name: str) -> Self:
        """Lines that cannot be decoded, and connections that end within a line, leave others unaffected."""
        self._diverts_as = name
        return self

    def open(self) -> Reader:
        if self._used:
            raise SettingsError(f"{self!r} has served its run; make a new one for another")
        self._used = True
        try:
            if self._listener is None and self._connection is None:
                self._connection = socket.create_connection(self.address, timeout=10)
        except (OSError, OverflowError) as error:
            raise InputError(
                f"tcp_lines cannot connect to {self.address[0]}:{self.address[1]}: {error}; see that the sender "
                f"listens there"
            ) from None
        lines = _Lines(self, self._listener, self._connection, *self._settings)
        return LiveReader(lines, AsMade(), self._diverts_as)

    def leave(self) -> None:
        """A reader has read nothing: another may be opened."""
        self._used = False

    def close(self) -> None:
        """Stop listening."""
        self._used = True
        for each in (self._listener, self._connection):
            if each is not None:
                each.close()

    def __repr__(self) -> str:
        return f"tcp_lines({self.address[0]!r}, {self.address[1]})"


class _Peer:
    """One connection."""

    def __init__(self, connection: socket.socket, address: Any) -> None:
        self.connection = connection
        self.name = f"{address[0]}:{address[1]}"
        self.has_sent = False
        self.lines = 0
        self.unended: list[bytes] = []  # the parts of an incomplete line
        self.unended_bytes = 0


class _Lines(Poller):
    """Accepts and receives; the mark of a line is its sender and its number."""

    to_do = ""

    def __init__(
        self,
        source: TcpLines,
        listener: socket.socket | None,
        connection: socket.socket | None,
        until_closed: bool,
        line_bytes_max: int,
        connections_max: int,
    ) -> None:
        self._source = source
        self._has_fetched = False
        self._listener = listener
        self._until_closed = until_closed
        self._line_bytes_max = line_bytes_max
        self._connections_max = connections_max
        self._selector: Any = selectors.DefaultSelector()
        if listener is not None:
            self._selector.register(listener, selectors.EVENT_READ, None)
        self._peers: list[_Peer] = []
        self._served = connection is not None  # a peer has sent something, or the caller asked for this connection
        self._found: Fetched = Fetched([], [])
        self._error: InputError | None = None
        if connection is not None:
            self._add(connection, connection.getpeername())

    def fetch(self, items_max: int, wait_s: float) -> Fetched | None:
        """One receive from every connection that has something."""
        self._has_fetched = True
        if self._error is not None:
            raise self._error
        if self._until_closed and self._served and not self._peers:
            if self._listener is not None:  # later connections are refused
                self._selector.unregister(self._listener)
                self._listener.close()
                self._listener = None
            return None
        found = self._found = Fetched([], [])
        for key, _ in self._selector.select(wait_s):
            if key.data is not None:
                self._receive_from(key.data)
        self._accept()  # also those that came while the last of the others closed
        return found

    def location(self, mark: Any) -> str:
        return f"connection from {mark[0]}, line {mark[1]}"

    def close(self) -> None:
        if self._has_fetched:
            for peer in self._peers:
                peer.connection.close()
            if self._listener is not None:
                self._listener.close()
        else:
            self._source.leave()
        self._selector.close()

    def _accept(self) -> None:
        while self._listener is not None and len(self._peers) < self._connections_max:
            try:
                self._add(*self._listener.accept())
            except BlockingIOError:
                return
            except OSError as error:
                self._error = InputError(
                    f"tcp_lines at port {self._listener.getsockname()[1]} cannot accept another connection: {error}"
                )
                return

    def _add(self, connection: socket.socket, address: Any) -> None:
        connection.setblocking(False)
        peer = _Peer(connection, address)
        self._peers.append(peer)
        self._selector.register(connection, selectors.EVENT_READ, peer)
        if len(self._peers) == self._connections_max and self._listener is not None:
            self._selector.unregister(self._listener)

    def _remove(self, peer: _Peer) -> None:
        if len(self._peers) == self._connections_max and self._listener is not None:
            self._selector.register(self._listener, selectors.EVENT_READ, None)
        self._selector.unregister(peer.connection)
        self._peers.remove(peer)
        peer.connection.close()

    def _receive_from(self, peer: _Peer) -> None:
        try:
            data = peer.connection.recv(_RECEIVE_BYTES)
        except BlockingIOError:
            return
        except OSError as error:
            self._remove(peer)
            if peer.has_sent or self._listener is None:
                why = f"the connection broke ({error}), so lines may be missing; see what became of the sender"
                self._take(peer, Undecodable(why, b"".join(peer.unended)))
            return
        if not data:
            self._remove(peer)
            if peer.unended_bytes:
                why = (
                    f"the connection was closed {peer.unended_bytes} bytes into the line; send a newline after the "
                    f"last line too"
                )
                self._take(peer, Undecodable(why, b"".join(peer.unended)))
            return
        self._served = peer.has_sent = True
        lines = data.split(b"\n")
        peer.unended.append(lines[0])
        if len(lines) > 1:
            lines[0] = b"".join(peer.unended)
            peer.unended = [lines.pop()]
            peer.unended_bytes = 0
            for line in lines:
                self._take(peer, self._text_of(line.removesuffix(b"\r")))
        peer.unended_bytes += len(peer.unended[-1])
        if peer.unended_bytes > self._line_bytes_max:
            self._take(peer, self._too_long(b"".join(peer.unended)))
            self._remove(peer)

    def _take(self, peer: _Peer, line: str | Undecodable) -> None:
        peer.lines += 1
        self._found.values.append(line)
        self._found.marks.append((peer.name, peer.lines))  # type: ignore[attr-defined]

    def _text_of(self, line: bytes) -> str | Undecodable:
        if len(line) > self._line_bytes_max:
            return self._too_long(line)
        try:
            return line.decode()
        except UnicodeDecodeError as error:
            bad = line[error.start : error.end]
            return Undecodable(f"{bad!r} is not UTF-8 ({error.reason}); send UTF-8", line)

    def _too_long(self, line: bytes) -> Undecodable:
        most = self._line_bytes_max
        why = f"the line is longer than {most} bytes; end each line with a newline, or raise line_bytes_max"
        return Undecodable(why, line[:most])
