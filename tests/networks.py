"""Machines on a network that delays, loses and cuts, as tests want it: on this one.

Invariant: when a network is closed, its workers, namespaces and devices are gone.

Why: workers are started by `Network.join` alone, and a device goes with its last descriptor. Where this process may
make network namespaces, each machine is one, and a switch here passes packets on; elsewhere a machine is an address of
127.0.0.0/8, and its connection to the run leads through a proxy, which holds bytes back.
"""

from __future__ import annotations

import errno
import fcntl
import heapq
import itertools
import os
import random
import select
import socket
import struct
import subprocess
import sys
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

_TUNSETIFF, _TUN, _NO_INFO = 0x400454CA, 0x0001, 0x1000
_numbers = itertools.count(1)


class Network(ABC):
    """The run is machine 0; workers are on the others.

    Args:
        delay_s: of each packet, on its way.

    Attributes:
        address: of machine 0.
        workers: those that were started, by machine.
    """

    address: str

    def __init__(self, delay_s: float = 0.0) -> None:
        self.delay_s = delay_s
        self.cut: set[frozenset[int]] = set()  # pairs of machines that do not reach each other
        self.workers: dict[int, subprocess.Popen[str]] = {}

    def join(self, machine: int, port: int, key: Path, *options: str, folder: Path | None = None) -> None:
        """Start `drift worker` on a machine."""
        command = [sys.executable, "-m", "drift", "worker", self._address_for(machine, port), "--key", str(key)]
        self.workers[machine] = subprocess.Popen(
            [*self._on(machine), *command, *options], stderr=subprocess.PIPE, text=True, cwd=folder
        )

    def left(self, machine: int) -> tuple[int, str]:
        """Wait for the end of a machine's worker: exit code and standard error."""
        worker = self.workers.pop(machine)
        _, text = worker.communicate()
        return worker.returncode, text

    def close(self) -> None:
        for machine in list(self.workers):
            self.workers[machine].kill()
            self.left(machine)

    @abstractmethod
    def _on(self, machine: int) -> Sequence[str]:
        """What starts a command on a machine."""

    @abstractmethod
    def _address_for(self, machine: int, port: int) -> str:
        """Where the machine finds a port of machine 0."""


class Namespaces(Network):
    """A namespace for each machine, with a device whose packets this process passes on.

    Args:
        loss: the share of packets that is lost.
    """

    def __init__(self, machines: int, delay_s: float = 0.0, loss: float = 0.0) -> None:
        super().__init__(delay_s)
        self._loss = loss
        self._draw = random.Random(0)
        self._devices: list[int] = []
        self._names: list[str] = []
        self._woken, self._wakes = os.pipe()
        self._switch: threading.Thread | None = None
        try:
            self._add_first()
            for machine in range(1, machines + 1):
                self._add(machine)
        except BaseException:
            self.close()
            raise
        self._switch = threading.Thread(target=self._pass_on)
        self._switch.start()

    def _add_first(self) -> None:
        """Add machine 0, in a net that no other process has: its device has the name of the net."""
        for number in _numbers:
            self._net = f"10.{(os.getpid() + number // 256) % 199 + 50}.{number % 256}"
            self.address = f"{self._net}.1"
            try:
                return self._add(0)
            except OSError as error:
                if error.errno != errno.EBUSY:
                    raise

    def _add(self, machine: int) -> None:
        name = f"t{self._net.replace('.', '')[2:]}n{machine}"
        device = os.open("/dev/net/tun", os.O_RDWR | os.O_NONBLOCK | os.O_CLOEXEC)
        self._devices.append(device)
        fcntl.ioctl(device, _TUNSETIFF, struct.pack("16sH", name.encode(), _TUN | _NO_INFO))
        where: list[str] = []
        if machine:
            if Path("/run/netns", name).exists():  # of a process that was killed, or there were such a device
                _ip("netns", "delete", name)
            _ip("netns", "add", name)
            self._names.append(name)
            _ip("link", "set", name, "netns", name)
            where = ["-n", name]
            _ip(*where, "link", "set", "lo", "up")
        _ip(*where, "addr", "add", f"{self._net}.{machine + 1}/24", "dev", name)
        _ip(*where, "link", "set", name, "up")

    def _on(self, machine: int) -> Sequence[str]:
        return ["ip", "netns", "exec", self._names[machine - 1]]

    def _address_for(self, machine: int, port: int) -> str:
        return f"tcp://{self.address}:{port}"

    def _pass_on(self) -> None:
        waiting: list[tuple[float, int, int, bytes]] = []  # a heap: when, number, to and packet
        while True:
            left_s = max(waiting[0][0] - time.monotonic(), 0.0) if waiting else None
            ready, _, _ = select.select([*self._devices, self._woken], [], [], left_s)
            if self._woken in ready:
                return
            for device in ready:
                packet, machine = os.read(device, 65536), self._devices.index(device)
                to = packet[19] - 1 if packet[0] >> 4 == 4 else -1
                if to not in range(len(self._devices)) or self._draw.random() < self._loss:
                    continue
                if frozenset((machine, to)) not in self.cut:
                    heapq.heappush(waiting, (time.monotonic() + self.delay_s, next(_numbers), to, packet))
            while waiting and waiting[0][0] <= time.monotonic():
                _, _, to, packet = heapq.heappop(waiting)
                with suppress(OSError):  # its queue is full: a packet is lost
                    os.write(self._devices[to], packet)

    def close(self) -> None:
        super().close()
        if self._switch is not None:
            os.write(self._wakes, b"\0")
            self._switch.join()
        for name in self._names:
            _ip("netns", "delete", name)
        for number in (*self._devices, self._woken, self._wakes):
            os.close(number)


class Proxies(Network):
    """Each machine an address; what it says to the run, and is told, goes through a proxy."""

    address = "127.0.0.1"

    def __init__(self, machines: int, delay_s: float = 0.0) -> None:
        super().__init__(delay_s)
        self._ended = False
        self._threads: list[threading.Thread] = []
        self._sockets: list[socket.socket] = []

    def join(self, machine: int, port: int, key: Path, *options: str, folder: Path | None = None) -> None:
        super().join(machine, port, key, "--here", f"127.0.0.{machine + 1}", *options, folder=folder)

    def _on(self, machine: int) -> Sequence[str]:
        return []

    def _address_for(self, machine: int, port: int) -> str:
        listener = socket.create_server(("127.0.0.1", 0))
        self._sockets.append(listener)
        self._do(self._accept, listener, machine, port)
        return f"tcp://127.0.0.1:{listener.getsockname()[1]}"

    def _do(self, target: Any, *arguments: Any) -> None:
        thread = threading.Thread(target=target, args=arguments)
        self._threads.append(thread)
        thread.start()

    def _accept(self, listener: socket.socket, machine: int, port: int) -> None:
        with suppress(OSError):
            while True:
                here, _ = listener.accept()
                there = socket.create_connection(("127.0.0.1", port))
                self._sockets += [here, there]
                self._do(self._carry, here, there, machine)
                self._do(self._carry, there, here, machine)

    def _carry(self, one: socket.socket, other: socket.socket, machine: int) -> None:
        with suppress(OSError):
            while data := one.recv(65536):
                time.sleep(self.delay_s)
                while any(machine in pair for pair in self.cut) and not self._ended:
                    time.sleep(0.01)
                other.sendall(data)
        for each in (one, other):
            with suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        self._ended = True
        super().close()
        for each in self._sockets:
            with suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)
        for thread in self._threads:
            thread.join()
        for each in self._sockets:
            each.close()


def _ip(*arguments: str) -> None:
    subprocess.run(["ip", *arguments], check=True, capture_output=True)


def _has_namespaces() -> bool:
    try:
        with network(Namespaces, 1):
            return True
    except (OSError, subprocess.CalledProcessError):
        return False


@contextmanager
def network(kind: Any, machines: int, **settings: float) -> Iterator[Any]:
    made = kind(machines, **settings)
    try:
        yield made
    finally:
        made.close()


#: What this machine has.
KINDS: list[type[Network]] = [Proxies, *([Namespaces] if _has_namespaces() else [])]
