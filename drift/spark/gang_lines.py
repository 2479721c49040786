"""Detects that another task of a gang is lost.

Invariant: a task that loses another before the level is done fails within seconds, and with it the attempt, so that
Spark can start a new one; it does not wait for messages that will not come.

Why: ZeroMQ's own thread answers heartbeats, whatever a function does, so a connection ends only when a process dies, is
stopped, or cannot be reached. Messages in flight may then be lost, so a connection that ended is not used again.
A task that is done closes its connections, too: so a closed connection counts as a loss only after some time, in which
the other tasks learn that the level is done.
"""

from __future__ import annotations

import time

import zmq

from drift.engines.zeromq.sockets import Outbox
from drift_graph.errors import ProcessError

_CONNECT_MAX_S = 30.0
_DONE_MAX_S = 2.0
_CHECK_INTERVAL_S = 0.2


class TaskLost(ProcessError):
    """Another task of the gang is gone."""


class Lines:
    """The connections of one task to the others.

    Args:
        boxes: by the number of the task they lead to.
    """

    def __init__(self, boxes: dict[int, Outbox], addresses: list[str]) -> None:
        self._boxes = boxes
        self._addresses = addresses
        self._waiting = dict.fromkeys(boxes, time.monotonic())  # for the first connection
        self._lost: dict[int, float] = {}
        self._next_check_s = 0.0

    def check(self) -> None:
        """
        Raises:
            TaskLost: a task is gone, or cannot be reached.
        """
        now_s = time.monotonic()
        if now_s < self._next_check_s:
            return
        self._next_check_s = now_s + _CHECK_INTERVAL_S
        for task, box in self._boxes.items():
            for event in box.events():
                if event == zmq.EVENT_HANDSHAKE_SUCCEEDED:
                    self._waiting.pop(task, None)
                else:
                    self._lost.setdefault(task, now_s)
        for task, since_s in self._lost.items():
            if now_s - since_s >= _DONE_MAX_S:
                raise TaskLost(
                    f"task {task} of the worker gang, at {self._addresses[task]}, is gone: its connection has ended "
                    f"before the level was done; Spark begins the stage again. If it happens again and again, look "
                    f"whether executors are killed for their memory"
                )
        for task, since_s in self._waiting.items():
            if now_s - since_s >= _CONNECT_MAX_S:
                raise TaskLost(
                    f"task {task} of the worker gang cannot be reached at {self._addresses[task]}; the tasks of a gang "
                    f"connect to each other, so the network has to let executors through to each other on any port"
                )
