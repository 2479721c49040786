"""Sockets of a run: ipc in a private folder, or tcp with CURVE keys, on loopback by default.

Invariant: nobody without the run's keys or the user's own rights can connect; every queue has a bound.
"""

from __future__ import annotations

import math
import os
import stat
import tempfile
import time
from collections import deque
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

import zmq

from drift.engines.zeromq.wire import FRAME_BYTES_MAX, Codec, Outdated, Refused
from drift.machines.nodes.messages import Message
from drift_graph.errors import ProcessError, SettingsError

#: Frames that wait in a socket, per peer and side. Further frames wait in the sender, and are bounded by credit.
QUEUE_FRAMES_MAX = 64
_HEARTBEATS = 5  # ZeroMQ heartbeats within `silence_max_s`


@dataclass(frozen=True)
class Transport:
    """How the sockets of a run are bound and connected.

    Attributes:
        folder: of the ipc sockets; "" for tcp.
        public_key, secret_key: the CURVE pair that every process of the run uses, for both sides; tcp only.
        host: address of the interface to bind to; tcp only.
        silence_max_s: a peer without a ZeroMQ heartbeat for so long is disconnected, which the outbox's monitor
            reports; 0 for no heartbeats, if something else watches the processes.
    """

    folder: str
    public_key: bytes = b""
    secret_key: bytes = field(default=b"", repr=False)
    host: str = "127.0.0.1"
    silence_max_s: float = 0.0

    def bind(self, socket: zmq.Socket[bytes], name: str) -> str:
        """Bind an inbox; returns the address to connect to."""
        if self.folder:
            have_private(Path(self.folder))
            address = f"ipc://{self.folder}/{name}"
            try:
                socket.bind(address)
            except zmq.ZMQError as error:
                raise _no_sockets_in(self.folder, error) from error
            return address
        socket.curve_server = True
        socket.curve_publickey, socket.curve_secretkey = self.public_key, self.secret_key
        socket.bind(f"tcp://{self.host}:*")
        return socket.getsockopt_string(zmq.LAST_ENDPOINT)

    def connect(self, socket: zmq.Socket[bytes], address: str) -> None:
        if not self.folder:
            socket.curve_serverkey = self.public_key
            socket.curve_publickey, socket.curve_secretkey = self.public_key, self.secret_key
        socket.connect(address)


def new_folder() -> str:
    """Path of a new folder, short enough for the path of a socket.

    A process of the run makes the folder, once it watches the process that started it, which may be killed at any
    moment.
    """
    name = f"drift-{os.urandom(8).hex()}"
    folder = Path(tempfile.gettempdir(), name)
    return str(folder if len(str(folder)) <= 80 else Path("/tmp", name))


def have_private(folder: Path) -> None:
    """Make a folder that only this user may enter, unless another process of the run already has.

    Raises:
        SettingsError: it cannot be made.
        ProcessError: it exists, and is not private to this user.
    """
    try:
        folder.mkdir(mode=0o700, exist_ok=True)
        found = folder.lstat()
    except OSError as error:
        raise _no_sockets_in(str(folder), error) from error
    if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.geteuid() or found.st_mode & 0o077:
        raise ProcessError(f"{folder}, for the sockets of a run, is not a folder of this user alone; run again")


def _no_sockets_in(folder: str, error: OSError | zmq.ZMQError) -> SettingsError:
    return SettingsError(
        f"the sockets and checkpoints of a run cannot be in {folder}: {error.strerror}; TMPDIR names another place for "
        f"them, which must be on a local disk and have room"
    )


def check_descriptors(wanted: int) -> None:
    """Check that this process may open so many more files and sockets: without one, libzmq aborts the process.

    Raises:
        SettingsError: it may not.
    """
    opened: list[int] = []
    try:
        opened.extend(os.open(os.devnull, os.O_RDONLY) for _ in range(wanted))
    except OSError as error:
        raise SettingsError(
            f"a run over zeromq with so many workers opens up to {wanted} files and sockets, and this process may open "
            f"{len(opened)} more: {error.strerror}; raise its limit (ulimit -n), or use fewer workers"
        ) from error
    finally:
        for number in opened:
            os.close(number)


class Inbox:
    """The socket where a process receives messages.

    Frames from outside its run are refused and counted; those of earlier generations are skipped.
    """

    def __init__(
        self,
        context: zmq.Context[zmq.Socket[bytes]],
        transport: Transport,
        name: str,
        codec: Codec,
    ) -> None:
        self._codec = codec
        self.refused = 0
        self.last_refusal = ""
        self.socket = context.socket(zmq.PULL)
        self.socket.rcvhwm = QUEUE_FRAMES_MAX
        self.socket.maxmsgsize = 2 * FRAME_BYTES_MAX  # beyond this zmq itself drops the peer
        self.address = transport.bind(self.socket, name)

    def receive(self, frames_max: int) -> Iterator[Message]:
        """The messages that have arrived, at most `frames_max`."""
        for _ in range(frames_max):
            try:
                frames = self.socket.recv_multipart(zmq.NOBLOCK, copy=False)
            except zmq.Again:
                return
            try:
                if len(frames) != 1:
                    raise Refused(f"a message of {len(frames)} frames")
                message = self._codec.decode(frames[0].buffer)
            except Outdated:
                continue
            except Refused as refused:
                self.refused += 1
                self.last_refusal = str(refused)
            else:
                yield message


class Outbox:
    """Sends to one process without blocking; frames beyond the socket's queue wait here, in order.

    Attributes:
        monitor: reports when the connection is made and when it ends, if the transport has heartbeats.
    """

    def __init__(self, context: zmq.Context[zmq.Socket[bytes]], transport: Transport, address: str) -> None:
        self.socket = context.socket(zmq.PUSH)
        self.socket.sndhwm = QUEUE_FRAMES_MAX
        self.socket.linger = 0
        self._waiting: deque[bytes] = deque()
        self.lost = False
        self._connect_until_s = time.monotonic() + transport.silence_max_s  # unless it is connected
        self.monitor: zmq.Socket[bytes] | None = None
        if transport.silence_max_s:
            self.socket.heartbeat_timeout = int(transport.silence_max_s * 1000)
            self.socket.heartbeat_ivl = int(transport.silence_max_s * 1000 / _HEARTBEATS)
            self.monitor = self.socket.get_monitor_socket(zmq.EVENT_HANDSHAKE_SUCCEEDED | zmq.EVENT_DISCONNECTED)
        transport.connect(self.socket, address)

    def close(self, linger_ms: int) -> None:
        """Close the socket; sent frames have `linger_ms` to leave."""
        if self.monitor is not None:
            self.socket.disable_monitor()
            self.monitor.close(linger=0)
        self.socket.close(linger=linger_ms)

    def events(self) -> Iterator[int]:
        """What the monitor has reported."""
        from zmq.utils.monitor import recv_monitor_message  # here: it loads asyncio and ssl, 40 ms of each process

        while self.monitor is not None and self.monitor.poll(0):
            yield recv_monitor_message(self.monitor, zmq.NOBLOCK)["event"]

    def check(self) -> bool:
        """Whether frames may have been lost: the connection has ended, or could not be made for `silence_max_s`."""
        for event in self.events():
            self._connect_until_s = math.inf
            self.lost |= event == zmq.EVENT_DISCONNECTED
        if self.monitor is not None and time.monotonic() > self._connect_until_s:
            self.lost = True
        return self.lost

    def send(self, frame: bytes) -> None:
        if self._waiting:
            self._waiting.append(frame)
            self.flush()
            return
        try:
            self.socket.send(frame, zmq.NOBLOCK, copy=False)
        except zmq.Again:
            self._waiting.append(frame)

    def flush(self) -> None:
        """Send waiting frames, as far as the queue takes them."""
        while self._waiting:
            try:
                self.socket.send(self._waiting[0], zmq.NOBLOCK, copy=False)
            except zmq.Again:
                return
            self._waiting.popleft()

    @property
    def waiting(self) -> int:
        """Number of frames that the queue has not taken."""
        return len(self._waiting)


def drop_all(outboxes: Iterable[Outbox], poller: zmq.Poller) -> None:
    """Close outboxes, and drop the frames that wait in them."""
    for outbox in dict.fromkeys(outboxes):
        if outbox.socket in poller:
            poller.unregister(outbox.socket)
        outbox.close(linger_ms=0)


def flush_all(outboxes: Iterable[Outbox], poller: zmq.Poller) -> None:
    """Flush outboxes, and register exactly those that still have waiting frames with the poller."""
    for outbox in outboxes:
        if outbox.waiting:
            outbox.flush()
        known = outbox.socket in poller
        if outbox.waiting and not known:
            poller.register(outbox.socket, zmq.POLLOUT)
        elif known and not outbox.waiting:
            poller.unregister(outbox.socket)
