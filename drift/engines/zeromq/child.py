"""A process of a run over ZeroMQ, as seen by the calling process: its pipes, its signs of life, its end.

Invariant: when `kill` or `end` returns, the process does not run any more, and its descriptors are closed.

Why: `drift.children` starts it, notices its end and kills it; whether it is alive is decided here alone, and nobody
waits longer than `silence_max_s` for a sign of life.
"""

from __future__ import annotations

import os
import pickle
import time
from collections import deque

import zmq

from drift.children import Child, main_of
from drift.engines.observed import Bar
from drift.engines.zeromq.control import Answered, Awake, Fatal, Merged, Ready, SignOfLife, UpwardReader, block_of
from drift.engines.zeromq.settings import ZeromqSettings
from drift.machines.nodes.messages import Answer
from drift_graph.errors import ProcessError, StepError

_STOP_S = 2.0
#: Bars of a process's timeline that are stored until somebody takes them; the oldest go first.
_BARS_MAX = 1000


class EngineChild:
    """A process of the run, and its last known state.

    Attributes:
        role: of a worker's process, once it has been given one.
        inbox: the name of its inbox, if it has a role; "" before.
        is_new: it replaces another process, and has not reported to be ready.
    """

    role: int

    def __init__(self, name: str, graph: str, folder: str, awake: Awake, module: str, *more: str) -> None:
        self.name = name
        self._awake = awake
        down, up = os.pipe()
        program, arguments = main_of(f"drift.engines.zeromq.{module}", str(up), folder, *more)
        try:
            self.process = Child(
                f"drift {name} of {graph}",
                program,
                arguments,
                environment={"PYTHONUNBUFFERED": "1"},
                stdout=2,  # prints of users' functions do not mix with the caller's output
                hand_on=(up,),
            )
        except BaseException:
            os.close(down)
            raise
        finally:
            os.close(up)
        self.reader = UpwardReader(down)
        self.inbox = ""
        self.address = ""
        self.is_new = False
        self.sign = SignOfLife()
        self.bars: deque[Bar] = deque(maxlen=_BARS_MAX)
        self.last_sign_s = awake.now_s()
        self.fatal: Fatal | None = None
        self.answers: list[Answer] = []
        self.merged: list[Merged] = []
        self._end = self.process.watched()
        self.numbers = [self.reader.number, *([] if self._end is None else [self._end])]

    def order(self, block: bytes) -> None:
        self.process.write(block_of(block))

    def listen(self) -> None:
        """Read its messages."""
        for message in self.reader.read():
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

    @property
    def has_ended(self) -> bool:
        """Whether it has ended; the pipe shows it first, unless a function has forked, and the fork holds the pipe."""
        return self.reader.ended or self.process.poll() is not None

    def death(self, settings: ZeromqSettings) -> ProcessError | None:
        """An error if it has died, gives no sign of life, or is in a call for too long; it may be replaced."""
        if self.has_ended:
            return ProcessError(
                f"{self.name} (pid {self.process.pid}) {self.process.how_it_ended()}; everything released before it "
                f"stands. Run again; if it was killed for memory, lower in_flight_max or use fewer workers"
            )
        call_s, function = self.sign.call
        if settings.call_max_s is not None and call_s > settings.call_max_s:
            return ProcessError(
                f"{self.name} (pid {self.process.pid}) is hung: it has been in one call of {function} for {call_s:.1f} "
                f"s; everything released before it stands. If the function needs so long, raise call_max_s"
            )
        if self._awake.now_s() - self.last_sign_s > settings.silence_max_s:
            self.listen()  # the caller may have been late, and not the process
        silent_s = self._awake.now_s() - self.last_sign_s
        if silent_s > settings.silence_max_s:
            return ProcessError(
                f"{self.name} (pid {self.process.pid}) is hung: no sign of life for {silent_s:.1f} s; everything "
                f"released before it stands. If a function holds the interpreter that long, raise silence_max_s"
            )
        return None

    def end(self) -> None:
        """After the order to stop: wait for at most two seconds, then kill."""
        deadline = time.monotonic() + _STOP_S
        while not self.has_ended and time.monotonic() < deadline:
            zmq.select([self.reader.number], [], [], 0.05)
            self.listen()
        self.listen()  # it may have ended since, after its last sign
        self.kill()

    def kill(self) -> None:
        """Kill it at once, and wait until it has ended."""
        self.process.end()
        for number in self.numbers:
            os.close(number)
