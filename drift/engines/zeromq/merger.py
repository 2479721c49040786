"""A background process that merges snapshots of checkpoints: `python -m drift.engines.zeromq.merger`, started by the
engine.

Invariant: nothing waits for it, and it has no state of its own: if it dies, another one repeats its work.

Why: it runs at low priority, and writes new files; the merged files stay until the calling process knows the new one.
It gets the graph only for the classes of states.
"""

from __future__ import annotations

import contextlib
import gc
import os
import signal
import sys
from pathlib import Path

from drift.engines.shipping import rebuilt
from drift.engines.zeromq.control import Merged
from drift.engines.zeromq.process import FirstOrder, Orders, report_fatal
from drift.engines.zeromq.shelf import SnapshotFiles
from drift.machines.nodes.snapshots import NoRoom
from drift.machines.plan import Plan
from drift.machines.worker import timed_steps

_NICE = 19


def main() -> None:
    """Merge the given files, until the run is over."""
    folder, writer = sys.argv[2], sys.argv[3]
    orders = Orders(int(sys.argv[1]), folder)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    _be_nice()
    gc.disable()  # otherwise it would scan all entries of a merge again and again
    order: FirstOrder
    surroundings, order, work = orders.receive()
    try:
        dataflow = rebuilt(work, surroundings, "a process of the run")
        timed = timed_steps(Plan(dataflow, fused=order.settings.fused))
        shelf = SnapshotFiles(folder, writer, timed, lambda: orders.binding)
        while True:
            gc.collect()
            names: list[bytes] = orders.receive()
            try:
                orders.say(Merged(*shelf.merge(names)))
            except NoRoom:
                orders.say(Merged(b"", 0))
    except BaseException as error:
        report_fatal(orders, error)


def _be_nice() -> None:
    """Lower the priority; if Linux shares processors by sessions, as on desktops, a session has its own niceness."""
    os.setpriority(os.PRIO_PROCESS, 0, _NICE)
    with contextlib.suppress(OSError, AttributeError):
        os.sched_setscheduler(0, os.SCHED_IDLE, os.sched_param(0))
    with contextlib.suppress(OSError):
        Path("/proc/self/autogroup").write_text(str(_NICE))


if __name__ == "__main__":
    main()
