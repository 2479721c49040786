"""The process of a worker, from start to end: `python -m drift.engines.zeromq.process`, started by the engine.

Invariant: it ends on order, and when its parent process has ended; the parent gets the error of a failing loop.

Why: two threads run next to the loop. One sends signs of life, with the state of the loop. The other reads orders from
standard input, from the first moment on; when the input ends, it removes the folder of the sockets and ends the process
at once, whatever the loop is doing. Every process does so, and so the last one leaves nothing behind.
"""

from __future__ import annotations

import gc
import math
import os
import pickle
import platform
import shutil
import signal
import sys
import threading
import time
import traceback
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Any, NamedTuple

from drift.engines.memory import peak_memory_bytes
from drift.engines.shipping import rebuilt, unpacked
from drift.engines.zeromq.calls import is_called_by_us
from drift.engines.zeromq.control import STOP, Answered, Awake, Fatal, Ready, Upward, encode_upward
from drift.engines.zeromq.roles import Assignment, Loop, Peers, make_loop
from drift.engines.zeromq.settings import ZeromqSettings
from drift.engines.zeromq.shelf import SnapshotFiles
from drift.engines.zeromq.sockets import Transport, have_private
from drift.parent import Parent
from drift_graph.errors import DriftBug, DriftError, GraphError
from drift_graph.graph import Dataflow

if TYPE_CHECKING:
    from drift.records.fingerprint import Fingerprint

SIGN_INTERVAL_S = 0.25
#: A longer time between two signs was spent suspended, or waiting for a processor, and not in a call.
_STEP_MAX_S = 5.0


class FirstOrder(NamedTuple):
    """The first order to a process: prepare to be any worker.

    Attributes:
        states: the shipped location of the states that the run resumes from; None if it begins, or if they are sent.
        fingerprint: of the graph, if this process may be on a machine with other modules.
    """

    transport: Transport
    settings: ZeromqSettings
    states: bytes | None
    fingerprint: Fingerprint | None = None


class Role(NamedTuple):
    """The second order: the index of its worker, the name of its inbox, and the secret of its frames."""

    worker: int
    address: str
    secret: int


class _Signs:
    """The thread that sends signs of life."""

    def __init__(self, orders: Orders, loop: Loop) -> None:
        self._orders = orders
        self._loop = loop
        self._main = threading.main_thread().ident
        self._frame: FrameType | None = None
        self._frame_since_s = 0.0
        self._awake = Awake(_STEP_MAX_S)
        self._turns = 0

    def run(self) -> None:
        while True:
            time.sleep(SIGN_INTERVAL_S)  # a pace; nothing waits for it
            self.give()

    def give(self, *, last: bool = False) -> None:
        sign = self._loop.sign()
        waits = self._loop.waits and self._loop.node.wake_s == math.inf
        sign.idle = waits and self._loop.turns == self._turns
        self._turns = self._loop.turns
        sign.call = self._in_call()
        sign.peak_memory_bytes = peak_memory_bytes()
        sign.last = last
        self._orders.say(sign)

    def _in_call(self) -> tuple[float, str]:
        """Seconds for which the loop's thread has been in the same call of a user's function, and its location."""
        frame = sys._current_frames().get(self._main or 0)
        now_s = self._awake.now_s()
        user: FrameType | None = None
        while frame is not None:
            if is_called_by_us(frame):
                user = frame
            frame = frame.f_back
        if user is None or user is not self._frame:
            self._frame, self._frame_since_s = user, now_s
        if user is None:
            return 0.0, ""
        function = f"{user.f_code.co_name} ({user.f_code.co_filename}:{user.f_lineno})"
        return max(now_s - self._frame_since_s, 1e-9), function


class Orders(Parent):
    """What the calling process orders; if that has ended, this process cleans up and ends.

    Attributes:
        binding: held while a socket is bound or a file is made, and for ever once the folder is removed, so that
            nothing is created in it afterwards.
        before_the_end: called when the run is over.
    """

    def __init__(self, number: int, folder: str) -> None:
        self._folder = folder
        self.binding = threading.Lock()
        self.before_the_end: Callable[[], None] = lambda: None
        super().__init__(number, self._clean_up, urgent=self._stop)

    def hand_on(self, taker: Callable[[Any], None]) -> None:
        """From now on pass orders to `taker`, one after the other."""
        threading.Thread(target=self._hand_on, args=(taker,), daemon=True).start()

    def _hand_on(self, taker: Callable[[Any], None]) -> None:
        while True:
            taker(self.receive())

    def say(self, message: Upward) -> None:
        """Write a message to the calling process."""
        self.write(encode_upward(message))

    def _stop(self, order: bytearray) -> bool:
        if order == STOP:
            try:
                self.before_the_end()
            finally:
                os._exit(0)
        return False

    def _clean_up(self) -> None:
        try:
            if self._folder:
                self.binding.acquire()
                shutil.rmtree(self._folder, ignore_errors=True)
        finally:
            os._exit(0)


def main() -> None:
    """Read the order, bind, report the address, read the addresses of the others, and run.

    The third argument is the address of this machine for the others; "" if all are on one.
    """
    folder, here = sys.argv[2], sys.argv[3]
    orders = Orders(int(sys.argv[1]), folder)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    gc.set_threshold(100_000, 20, 100)
    order: FirstOrder
    surroundings, order, work = orders.receive()
    try:
        if here:
            sys.path.append(str(Path.cwd()))  # where `drift worker` was started
        dataflow = rebuilt(work, surroundings, "a process of the run", same_machine=not here)
        transport = replace(order.transport, host=here) if here else order.transport
        if order.fingerprint is not None:
            _check_code(order.fingerprint, dataflow)
        role: Role = orders.receive()
        base = None
        if order.states is not None:
            from drift.state.run_checkpoints import states_at  # here, since a run that begins does not need its imports

            base = states_at(unpacked(order.states), dataflow).lookup
        with orders.binding:
            have_private(Path(folder))
            shelf = SnapshotFiles(folder, role.address, (), lambda: orders.binding)
            loop = make_loop(*role, transport, dataflow, order.settings, shelf, base)
        orders.say(Ready(loop.inbox.address))
        begins = orders.receive()
        if isinstance(begins, Assignment):  # a replacement
            loop.node.stand_by()
            loop.assign(begins)
        else:
            loop.start(Peers(*begins))
        orders.hand_on(loop.assign)
        signs = _Signs(orders, loop)
        orders.before_the_end = lambda: signs.give(last=True)
        threading.Thread(target=signs.run, daemon=True).start()
        gc.freeze()
        loop.run(lambda answer: orders.say(Answered(answer)))
    except BaseException as error:
        report_fatal(orders, error)


def _check_code(wanted: Fingerprint, dataflow: Dataflow) -> None:
    """Raises GraphError: the graph computes something else here, since modules differ."""
    from drift.records.changes import compare  # here, since processes of one machine do not need these imports
    from drift.records.fingerprint import fingerprint

    changes = [change for change in compare(wanted, fingerprint(dataflow)) if change.matters]
    steps = {repr(change.step) if change.step else "its structure" for change in changes}
    if steps:
        raise GraphError(
            f"the graph has other code on {platform.node()} than in the calling process, in "
            f"{', '.join(sorted(steps))}: a module that it imports is another version there; install the same"
        )


def report_fatal(orders: Orders, error: BaseException) -> None:
    """Report why this process ends, and wait until the calling process confirms it, or has ended."""
    orders.say(_fatal(error))
    threading.Event().wait()


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
