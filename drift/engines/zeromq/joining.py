"""A machine that takes part in a run of another one: `drift worker`.

Invariant: its processes do not outlive its connection to the run, and they leave nothing behind; nothing is done for
anyone without the key.

Why: there is one connection, and whatever ends it ends the process, whose own pipe ends with this process, too. What
such a process has sent to others, the run does not count on: it goes back to a checkpoint when it replaces it. A new
connection is a new machine for the run, so an old order never reaches it.
"""

from __future__ import annotations

import contextlib
import platform
import shutil
import socket as sockets
import time
from collections.abc import Callable
from pathlib import Path

import msgspec
import zmq
from zmq.utils.monitor import recv_monitor_message

from drift.engines.zeromq.child import LocalProcess
from drift.engines.zeromq.remote import (
    PROTOCOL,
    File,
    FromRun,
    Gone,
    Join,
    Key,
    Kill,
    Start,
    Stop,
    ToRun,
    Write,
    Wrote,
    decode_from_run,
    encode,
)
from drift.engines.zeromq.settings import port_of
from drift.engines.zeromq.sockets import have_private, new_folder
from drift.records.environment import environment
from drift_graph.errors import ProcessError, SettingsError

_POLL_MS = 1000
_HEARTBEAT_MS, _SILENCE_MAX_MS = 1000, 5000
_FAILED = zmq.EVENT_HANDSHAKE_FAILED_NO_DETAIL | zmq.EVENT_HANDSHAKE_FAILED_PROTOCOL | zmq.EVENT_HANDSHAKE_FAILED_AUTH
_LEAVES_MS = 500


class Left(Exception):
    """The run is over."""


class Joined:
    """One connection to a run, and the process that runs for it here.

    Args:
        address: tcp://HOST:PORT of the run.
        here: the address of this machine at which the other ones reach it; "" for that of the interface that leads to
            HOST.
        say: called with what happens, in words.
    """

    def __init__(self, address: str, key: Key, here: str, say: Callable[[str], None]) -> None:
        where = port_of(address)
        if where is None or where[1] == 0:
            raise SettingsError(f"{address!r} is not tcp://HOST:PORT, the address at which a run waits for workers")
        self._address = address
        self._here = here or _address_towards(*where)
        self._say = say
        self._number = 0
        self._process: LocalProcess | None = None
        self._folder = Path()
        self._is_connected = False
        self._context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
        self._socket = self._context.socket(zmq.DEALER)
        self._socket.sndhwm = self._socket.rcvhwm = 0
        self._socket.heartbeat_ivl, self._socket.heartbeat_timeout = _HEARTBEAT_MS, _SILENCE_MAX_MS
        self._socket.curve_serverkey = key.public
        self._socket.curve_publickey, self._socket.curve_secretkey = key
        self._monitor = self._socket.get_monitor_socket(
            zmq.EVENT_HANDSHAKE_SUCCEEDED | zmq.EVENT_DISCONNECTED | _FAILED
        )
        self._poller = zmq.Poller()
        for each in (self._socket, self._monitor):
            self._poller.register(each, zmq.POLLIN)
        self._socket.connect(address)
        self._send(Join(PROTOCOL, f"{platform.node()} ({self._here})", environment()))

    def work(self) -> str:
        """Do what the run orders, until it is over; returns why, in words.

        Raises:
            ProcessError: the connection to the run was lost.
            SettingsError: the run does not take this machine, or has another key.
        """
        try:
            while True:
                self._poller.poll(_POLL_MS)
                self._check_connection()
                self._obey()
                self._carry()
        except Left as left:
            return str(left)
        finally:
            self._end_process()
            self._socket.disable_monitor()
            self._monitor.close(linger=0)
            self._socket.close(linger=_LEAVES_MS)
            self._context.term()

    def _check_connection(self) -> None:
        while self._monitor.poll(0):
            event = recv_monitor_message(self._monitor, zmq.NOBLOCK)["event"]
            if event == zmq.EVENT_HANDSHAKE_SUCCEEDED:
                self._is_connected = True
            elif self._is_connected:
                self._obey()  # the last order may be to leave
                raise ProcessError(
                    f"the connection to the run at {self._address} is lost: the run has died or cannot be reached, or "
                    f"went on without this machine, which was silent for too long; its process here has been ended. "
                    f"Start `drift worker` again to join again, or use --stay"
                )
            elif event & _FAILED:
                raise SettingsError(
                    f"{self._address} has another key, or is not a run of drift: nothing was sent to it"
                )

    def _obey(self) -> None:
        while True:
            try:
                data = self._socket.recv(zmq.NOBLOCK)
            except zmq.Again:
                return
            try:
                order = decode_from_run(data)
            except msgspec.MsgspecError as error:
                raise SettingsError(f"{self._address} speaks another version of drift: {error}") from error
            self._do(order)

    def _do(self, order: FromRun) -> None:
        if isinstance(order, Stop):
            if order.refused:
                raise SettingsError(f"the run at {self._address} does not take this machine: {order.reason}")
            raise Left(order.reason)
        if isinstance(order, Start):
            self._number = order.number
            self._folder = Path(new_folder())
            self._process = LocalProcess(f"drift {order.title}", str(self._folder), "process", self._here)
            for number in self._process.numbers:
                self._poller.register(number, zmq.POLLIN)
            self._say(f"runs {order.title}")
        elif isinstance(order, (Write, File, Kill)) and order.number == self._number and self._process is not None:
            if isinstance(order, Write):
                with contextlib.suppress(BrokenPipeError):  # that it has ended is found in `_carry`
                    self._process.write(order.body)
            elif isinstance(order, File):
                have_private(self._folder)
                with (self._folder / Path(order.name).name).open("wb" if order.is_first else "ab") as file:
                    file.write(order.data)
            else:
                self._report_end(f"was told to end it: {order.reason}")

    def _carry(self) -> None:
        """Carry the messages of the process to the run."""
        process = self._process
        if process is None:
            return
        has_ended = process.poll() is not None
        for body in process.read():
            self._send(Wrote(self._number, body))
        if has_ended:
            self._report_end(f"its process {process.how_it_ended()}")

    def _report_end(self, why: str) -> None:
        """End the process, so that this machine is idle."""
        self._say(why)
        if (gone := self._end_process()) is not None:
            self._send(gone)

    def _end_process(self) -> Gone | None:
        """Kill the process, if there is one, and remove its folder; returns what is to be said of it."""
        process, self._process = self._process, None
        if process is None:
            return None
        for number in process.numbers:
            self._poller.unregister(number)
        process.end()
        calls = {path.name: path.read_bytes() for path in sorted(self._folder.glob("*.call"))}
        shutil.rmtree(self._folder, ignore_errors=True)
        return Gone(self._number, process.how_it_ended(), calls)

    def _send(self, message: ToRun) -> None:
        self._socket.send(encode(message))


def join(address: str, key: Key, here: str, say: Callable[[str], None], *, stay: bool = False) -> None:
    """Take part in the run at an address; with `stay` in the next one, too, and again after a lost connection.

    Raises:
        ProcessError, SettingsError: see `Joined.work`.
    """
    while True:
        say(f"waits for a run at {address}")
        try:
            say(f"left: {Joined(address, key, here, say).work()}")
        except ProcessError as error:
            if not stay:
                raise
            say(str(error))
        if not stay:
            return
        time.sleep(1.0)  # a pace: the run that is over may still listen


def _address_towards(host: str, port: int) -> str:
    """The address of this machine's interface that leads to another one; nothing is sent.

    Raises:
        SettingsError: there is no way to it.
    """
    try:
        with sockets.socket(sockets.AF_INET, sockets.SOCK_DGRAM) as probe:
            probe.connect((host, port))
            return str(probe.getsockname()[0])
    except OSError as error:
        raise SettingsError(f"there is no way to {host}: {error.strerror or error}") from error
