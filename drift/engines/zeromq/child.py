"""A process of a run over ZeroMQ, as seen by the calling process: its messages, its signs of life, its end.

Invariant: when `kill` or `end` returns, a process of this machine does not run any more, and its descriptors are
closed; one of another machine is ordered to end, and what it still sends is refused.

Why: `drift.children` starts it, notices its end and kills it, here or for `drift worker` on the other machine; whether
it is alive is decided here alone, and nobody waits longer than `silence_max_s` for a sign of life. Frames carry the
secret of their generation, which those that count as dead do not get.
"""

from __future__ import annotations

import contextlib
import pickle
import time
from collections import deque
from collections.abc import Sequence
from pathlib import Path
from typing import Protocol

import zmq

from drift.children import Channel
from drift.engines.observed import Bar
from drift.engines.zeromq.control import Answered, Awake, Fatal, Merged, Ready, SignOfLife, decode_upward
from drift.engines.zeromq.settings import ZeromqSettings
from drift.machines.nodes.messages import Answer
from drift_graph.errors import ProcessError, StepError

_STOP_S = 2.0
#: Bars of a process's timeline that are stored until somebody takes them; the oldest go first.
_BARS_MAX = 1000


class Place(Protocol):
    """Where a process of the run is, and the messages to it and from it.

    Attributes:
        numbers: descriptors that are readable when it has sent something, or ended; none if others tell.
        pid: of the process, there.
        name: the process in messages.
        has_ended: whether nothing more will come from it, but what can be read.
    """

    numbers: list[int]

    @property
    def pid(self) -> int: ...
    @property
    def name(self) -> str: ...
    @property
    def has_ended(self) -> bool: ...

    def write(self, body: bytes) -> None:
        """Write a message. Raises BrokenPipeError: it has ended."""

    def bring(self, folder: Path, names: Sequence[bytes]) -> None:
        """Have it find these files in its folder of the run."""

    def read(self) -> list[bytes]:
        """The messages that have arrived, without waiting."""

    def wait_for_more(self, timeout_s: float) -> None:
        """Wait until it has sent something, or ended."""

    def how_it_ended(self) -> str: ...

    def end(self, reason: str) -> None:
        """Kill it, and close its pipes."""


class LocalProcess(Channel):
    """A process on this machine; a `Place`.

    Args:
        module: whose `main` it runs, with the number of its pipe, the folder and `more`.
    """

    def __init__(self, title: str, folder: str, module: str, *more: str) -> None:
        super().__init__(
            title,
            f"drift.engines.zeromq.{module}",
            (folder, *more),
            environment={"PYTHONUNBUFFERED": "1"},
            stdout=2,  # prints of users' functions do not mix with the caller's output
        )

    @property
    def name(self) -> str:
        return f"pid {self.pid}"

    def bring(self, folder: Path, names: Sequence[bytes]) -> None:
        """It shares the folder."""

    def wait_for_more(self, timeout_s: float) -> None:
        zmq.select(self.numbers, [], [], timeout_s)

    def end(self, reason: str = "") -> None:
        super().end()


class EngineChild:
    """A process of the run, and its last known state.

    Attributes:
        role: of a worker's process, once it has been given one.
        inbox: the name of its inbox, if it has a role; "" before.
        is_new: it replaces another process, and has not reported to be ready.
    """

    role: int

    def __init__(self, name: str, process: Place, awake: Awake) -> None:
        self.name = name
        self.process = process
        self._awake = awake
        self.inbox = ""
        self.address = ""
        self.is_new = False
        self.sign = SignOfLife()
        self.bars: deque[Bar] = deque(maxlen=_BARS_MAX)
        self.last_sign_s = awake.now_s()
        self.fatal: Fatal | None = None
        self.answers: list[Answer] = []
        self.merged: list[Merged] = []
        self.numbers = list(process.numbers)

    def order(self, body: bytes) -> None:
        """Send it an order; that it has ended is found elsewhere."""
        with contextlib.suppress(BrokenPipeError):
            self.process.write(body)

    def listen(self) -> None:
        for message in map(decode_upward, self.process.read()):
            self.last_sign_s = self._awake.now_s()
            if isinstance(message, Ready):
                self.address = message.address
            elif isinstance(message, SignOfLife):
                self.sign = message
                self.bars.extend(message.bars)
            elif isinstance(message, Answered):
                self.answers.append(message.answer)
            elif isinstance(message, Merged):
                self.merged.append(message)
            else:
                self.fatal = message

    def failure(self) -> Exception | None:
        """The error that the process reported, which ends the run; None if there is none."""
        if self.fatal is not None:
            error: Exception = pickle.loads(self.fatal.error)
            if not isinstance(error, StepError):
                error.add_note(f"In {self.name}:\n{self.fatal.trace.rstrip()}")
            return error
        return None

    def death(self, settings: ZeromqSettings) -> ProcessError | None:
        """An error if it has died, gives no sign of life, or is in a call for too long; it may be replaced."""
        if self.process.has_ended:
            return ProcessError(
                f"{self.name} ({self.process.name}) {self.process.how_it_ended()}; everything released before it "
                f"stands. Run again; if it was killed for memory, lower in_flight_max or use fewer workers"
            )
        call_s, function = self.sign.call
        if settings.call_max_s is not None and call_s > settings.call_max_s:
            return ProcessError(
                f"{self.name} ({self.process.name}) is hung: it has been in one call of {function} for {call_s:.1f} "
                f"s; everything released before it stands. If the function needs so long, raise call_max_s"
            )
        if self._awake.now_s() - self.last_sign_s > settings.silence_max_s:
            self.listen()  # the caller may have been late, and not the process
        silent_s = self._awake.now_s() - self.last_sign_s
        if silent_s > settings.silence_max_s:
            return ProcessError(
                f"{self.name} ({self.process.name}) is hung: no sign of life for {silent_s:.1f} s; everything "
                f"released before it stands. If a function holds the interpreter that long, raise silence_max_s"
            )
        return None

    def end(self) -> None:
        """After the order to stop: wait for at most two seconds, then kill."""
        deadline = time.monotonic() + _STOP_S
        while not self.process.has_ended and time.monotonic() < deadline:
            self.process.wait_for_more(0.05)
            self.listen()
        self.listen()  # it may have ended since, after its last sign
        self.kill("the run is over")

    def kill(self, reason: str) -> None:
        """Kill it at once; see the module."""
        self.process.end(reason)
