"""The machines that have joined a run, as seen by the calling process: what they start, bring and kill for it.

Invariant: a process of another machine is used like one of this machine (`drift.engines.zeromq.child.Place`); when its
machine cannot be reached any more, it counts as ended.

Why: a `drift worker` there starts the same process, and carries its messages over one connection. If the connection
ends, it kills the process; and the run sends something to each machine several times a second, which fails if there is
no connection. A machine whose process has ended offers itself again.
"""

from __future__ import annotations

import logging
import time
from collections import deque
from collections.abc import Iterator, Sequence
from pathlib import Path

import msgspec
import zmq

from drift.engines.zeromq.remote import (
    PROTOCOL,
    File,
    FromRun,
    Join,
    Key,
    Kill,
    Ping,
    Start,
    Stop,
    ToRun,
    Write,
    Wrote,
    decode_to_run,
    encode,
)
from drift.engines.zeromq.shelf import PART_BYTES
from drift.records.environment import differences, environment
from drift_graph.errors import SettingsError

_LOG = logging.getLogger("drift")
_PING_INTERVAL_S = 0.25
_LINGER_MS = 2000
_HEARTBEATS = 5  # ZeroMQ heartbeats within `silence_max_s`
#: What decides how functions compute, are sent, and are compared: equal on all machines of a run.
_EQUAL = ("drift", "cloudpickle", "msgspec", "numpy", "polars", "pyarrow", "xxhash")


class _Machine:
    """A machine that has joined."""

    def __init__(self, identity: bytes, host: str) -> None:
        self.identity = identity
        self.host = host
        self.started = 0
        self.process: RemoteProcess | None = None


class RemoteProcess:
    """A process on another machine; a `Place`."""

    numbers: list[int]

    def __init__(self, hosts: Hosts, machine: _Machine, number: int) -> None:
        self._hosts = hosts
        self._machine = machine
        self._number = number
        self._unread: list[bytes] = []
        self._how = ""
        self.has_ended = False
        self.numbers = []
        self.pid = 0

    @property
    def name(self) -> str:
        return f"on {self._machine.host}"

    def write(self, body: bytes) -> None:
        self._hosts.send(self._machine, Write(self._number, body))

    def bring(self, folder: Path, names: Sequence[bytes]) -> None:
        """The parts of a file go ahead of what is written next."""
        for name in map(bytes.decode, names):
            with (folder / name).open("rb") as file:
                data, is_first = file.read(PART_BYTES), True
                while data or is_first:
                    self._hosts.send(self._machine, File(self._number, name, is_first, data))
                    data, is_first = file.read(PART_BYTES), False

    def read(self) -> list[bytes]:
        self._hosts.listen()
        bodies, self._unread = self._unread, []
        return bodies

    def wrote(self, body: bytes) -> None:
        self._unread.append(body)

    def wait_for_more(self, timeout_s: float) -> None:
        self._hosts.wait(timeout_s)

    def how_it_ended(self) -> str:
        return self._how

    def note_end(self, how: str) -> None:
        self.has_ended, self._how = True, how

    def end(self, reason: str) -> None:
        """Whether the machine can be reached or not."""
        if not self.has_ended:
            self._hosts.send(self._machine, Kill(self._number, reason))


class Hosts:
    """
    Args:
        address: tcp://HOST:PORT, where machines join; port 0 is any that is free.
        folder: of the run, for files that ended processes have left.
        silence_max_s: a machine that does not answer ZeroMQ's heartbeats for so long is not connected any more.
        graph: its name, for messages.

    Attributes:
        socket: readable if a machine has sent something.
        idle: machines that run no process now, in the order in which they came.
    """

    def __init__(self, address: str, key: Key, folder: str, silence_max_s: float, graph: str) -> None:
        self._context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
        self._folder = Path(folder)
        self._graph = graph
        self._machines: dict[bytes, _Machine] = {}
        self._environment = environment()
        self._missing = 0
        self._next_ping_s = 0.0
        self.idle: deque[_Machine] = deque()
        self.socket = self._context.socket(zmq.ROUTER)
        self.socket.router_mandatory = True
        self.socket.sndhwm = self.socket.rcvhwm = 0  # nothing is dropped; each machine is sent what it is about to use
        self.socket.heartbeat_timeout = int(silence_max_s * 1000)
        self.socket.heartbeat_ivl = int(silence_max_s * 1000 / _HEARTBEATS)
        self.socket.curve_server = True
        self.socket.curve_publickey, self.socket.curve_secretkey = key
        try:
            self.socket.bind(address if not address.endswith(":0") else f"{address[:-1]}*")
        except zmq.ZMQError as error:
            self.close("it did not begin")
            raise SettingsError(
                f"listen={address!r}: {error.strerror}; it is an address of this machine, and a port that is free"
            ) from error
        self.address = self.socket.getsockopt_string(zmq.LAST_ENDPOINT)

    def start(self, name: str) -> RemoteProcess:
        """A new process, on the machine that has been idle for longest; there is one."""
        machine = self.idle.popleft()
        machine.started += 1
        process = machine.process = RemoteProcess(self, machine, machine.started)
        self.send(machine, Start(machine.started, f"{name} of {self._graph}"))
        return process

    def send(self, machine: _Machine, message: FromRun) -> None:
        try:
            self.socket.send_multipart([machine.identity, encode(message)], zmq.NOBLOCK)
        except zmq.ZMQError:
            self._lose(machine)

    def _lose(self, machine: _Machine) -> None:
        if self._machines.pop(machine.identity, None) is None:
            return
        if machine in self.idle:
            self.idle.remove(machine)
        if machine.process is not None:
            machine.process.note_end("cannot be reached any more: its machine has left, or the network is broken")
        _LOG.info("graph %r: %s has left", self._graph, machine.host)

    def listen(self) -> None:
        """Take what the machines have sent; notice which cannot be reached."""
        while True:
            try:
                identity, data = self.socket.recv_multipart(zmq.NOBLOCK)
            except zmq.Again:
                break
            try:
                message = decode_to_run(data)
            except msgspec.MsgspecError:  # another version's, and no answer is expected before `Join`
                message = Join(0, "a machine", self._environment)
            self._take(identity, message)
        now_s = time.monotonic()
        if now_s >= self._next_ping_s:
            self._next_ping_s = now_s + _PING_INTERVAL_S
            for machine in list(self._machines.values()):
                self.send(machine, Ping())

    def _take(self, identity: bytes, message: ToRun) -> None:
        machine = self._machines.get(identity)
        if isinstance(message, Join):
            machine = _Machine(identity, message.host)
            if reason := self._why_not(message):
                _LOG.warning("graph %r: %s was refused: %s", self._graph, message.host, reason)
                self.send(machine, Stop(reason, refused=True))
                return
            self._machines[identity] = machine
            self.idle.append(machine)
            _LOG.info("graph %r: %s has joined", self._graph, message.host)
        elif machine is None or machine.process is None or message.number != machine.started:
            return  # of a process that is not used any more
        elif isinstance(message, Wrote):
            machine.process.wrote(message.body)
        else:
            for name, content in message.files.items():
                (self._folder / name).write_bytes(content)
            machine.process.note_end(message.how)
            machine.process = None
            self.idle.append(machine)

    def _why_not(self, join: Join) -> str:
        """Why a machine cannot take part; "" if it can."""
        if join.protocol != PROTOCOL:
            return f"it has another version of drift, and the run has {self._environment['drift']}"
        differing = differences(self._environment, join.environment)
        wrong = [
            f"{name} {theirs}, and the run has {ours}"
            for name, ours, theirs in differing
            if name in _EQUAL or (name == "python" and _minor(ours) != _minor(theirs))
        ]
        if wrong:
            return f"{join.host} has {'; '.join(wrong)}: functions may compute something else there; install the same"
        others = [name for name, _, _ in differing if name not in ("python", "platform")]
        if others:
            _LOG.warning(
                "graph %r: %s has other versions of %s than the calling process; where steps use them, their results "
                "may differ",
                self._graph, join.host, ", ".join(others),
            )  # fmt: skip
        return ""

    def wait(self, timeout_s: float) -> None:
        """Wait until a machine has sent something."""
        self.socket.poll(max(int(timeout_s * 1000), 1))
        self.listen()

    def awaited(self, wanted: int) -> Iterator[str]:
        """Until so many machines are idle: in words what is waited for, several times a second."""
        while (missing := wanted - len(self.idle)) > 0:
            yield self.missing(missing)
            self.wait(0.1)
        self.found()

    def missing(self, count: int) -> str:
        """What is waited for, in words; logged once for each number of machines."""
        text = f"{count} {'worker' if count == 1 else 'workers'} to join at {self.address}"
        if count != self._missing:
            _LOG.warning("graph %r: waits for %s (drift worker %s --key FILE)", self._graph, text, self.address)
        self._missing = count
        return text

    def found(self) -> None:
        """Note that a machine has been found, so that others that are missing later are logged."""
        self._missing = 0

    def close(self, reason: str) -> None:
        """Have all machines leave."""
        for machine in list(self._machines.values()):
            self.send(machine, Stop(reason))
        self.socket.close(linger=_LINGER_MS)
        self._context.term()


def _minor(python: str) -> str:
    """Implementation and version of a Python without the last number."""
    return python.rpartition(".")[0]
