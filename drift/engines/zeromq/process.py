"""A process of a run, from its start to its end: `python -m drift.engines.zeromq.process`, run by the engine.

Invariant: it ends when it is told, when its loop fails, and when the process that started it is gone.

Why: two threads stand beside the loop. One gives signs of life, with the state of the loop as it sees it. The other
reads standard input, where orders come from; when that ends it ends the process at once, whatever the loop is doing.
"""

from __future__ import annotations

import gc
import os
import pickle
import shutil
import signal
import sys
import threading
import time
import traceback
from types import FrameType
from typing import NamedTuple

from drift.engines.base import Settings, peak_memory_bytes
from drift.engines.shipping import rebuilt
from drift.engines.zeromq.control import Fatal, Ready, read_block, write_upward
from drift.engines.zeromq.roles import Loop, Peers, make_loop
from drift.engines.zeromq.sockets import Transport
from drift_graph.errors import DriftBug, DriftError
from drift_graph.functions import is_ours

SIGN_INTERVAL_S = 0.25


class Order(NamedTuple):
    """What a process is told first."""

    role: str
    secret: int
    transport: Transport
    settings: Settings


class _Signs:
    """The thread that gives signs of life."""

    def __init__(self, number: int, loop: Loop) -> None:
        self._number = number
        self._loop = loop
        self._main = threading.main_thread().ident
        self._frame: FrameType | None = None
        self._frame_since_s = 0.0
        self._turns = 0

    def run(self) -> None:
        while True:
            time.sleep(SIGN_INTERVAL_S)  # a pace; nothing waits for it
            self.give()

    def give(self, *, last: bool = False) -> None:
        sign = self._loop.sign()
        sign.idle = self._loop.waits and self._loop.turns == self._turns
        self._turns = self._loop.turns
        sign.call = self._in_call()
        sign.peak_memory_bytes = peak_memory_bytes()
        sign.last = last
        write_upward(self._number, sign)

    def _in_call(self) -> tuple[float, str]:
        """Seconds that the loop's thread has been seen in one call of a user's function, and where."""
        frame = sys._current_frames().get(self._main or 0)
        user: FrameType | None = None
        while frame is not None:
            if not is_ours(frame.f_code.co_filename) and _called_by_us(frame):
                user = frame
            frame = frame.f_back
        if user is None or user is not self._frame:
            self._frame, self._frame_since_s = user, time.monotonic()
        if user is None:
            return 0.0, ""
        place = f"{user.f_code.co_name} ({user.f_code.co_filename}:{user.f_lineno})"
        return max(time.monotonic() - self._frame_since_s, 1e-9), place


def _called_by_us(frame: FrameType) -> bool:
    caller = frame.f_back
    if caller is None or not is_ours(caller.f_code.co_filename):
        return False
    return "/machines/" in caller.f_code.co_filename or "/purity/" in caller.f_code.co_filename


def _obey(signs: _Signs, folder: str) -> None:
    """The thread that waits for the end: an order, or the end of the pipe."""
    order = read_block(sys.stdin.buffer)
    try:
        if order == b"stop":
            signs.give(last=True)
        elif folder:  # the calling process is gone and cannot tidy up
            shutil.rmtree(folder, ignore_errors=True)
    finally:
        os._exit(0)


def main() -> None:
    """Read the order, bind, tell the address, read the others', and run."""
    number = int(sys.argv[1])
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    gc.set_threshold(100_000, 20, 100)
    block = read_block(sys.stdin.buffer)
    if block is None:
        return
    order: Order
    surroundings, order, work = pickle.loads(block)
    try:
        dataflow = rebuilt(work, surroundings, f"process {order.role!r} of the run")
        loop = make_loop(order.role, order.secret, order.transport, dataflow, order.settings)
        write_upward(number, Ready(loop.inbox.address))
        peers = read_block(sys.stdin.buffer)
        if peers is None:
            return
        loop.start(Peers(*pickle.loads(peers)))
        signs = _Signs(number, loop)
        threading.Thread(target=signs.run, daemon=True).start()
        threading.Thread(target=_obey, args=(signs, order.transport.folder), daemon=True).start()
        gc.freeze()
        loop.run()
    except BaseException as error:
        write_upward(number, _fatal(error))
        os._exit(1)


def _fatal(error: BaseException) -> Fatal:
    trace = traceback.format_exc()
    if not isinstance(error, DriftError):
        error = DriftBug(f"{type(error).__name__}: {error}")
    try:
        return Fatal(pickle.dumps(error), trace)
    except Exception:  # a user's error may raise anything here, and the run must still hear why it ends
        return Fatal(pickle.dumps(DriftBug(f"{type(error).__name__}: {error}")), trace)


if __name__ == "__main__":
    main()
