"""The node of the acker: folds acks into the table, and sends notices of minimal time.

Invariant: the barrier gets every new minimal time at once, and so does the calling process, which has both. Workers
that feed themselves get every change within the notice's interval, and so do workers for which it matters; other
workers somewhat later. All get the end of the run at once. After a recovery the table is new, and begins below the
checkpoint if a replaced process starts there; nodes that knew a greater minimal time keep it.

Why not all at once: one notice stands for many acks. Workers that get a few items at a time and have no later items
only use it to free memory: each notice would cost them as much as such a batch.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from drift.machines.nodes.messages import AckMessage, Halt, Halted, Message, MinimalTime, Pace, Rewind, TakeCheckpoint
from drift.machines.nodes.node import CALLER, Node, Send
from drift.machines.nodes.pacing import Pacing
from drift.machines.worker import BARRIER
from drift_acker.table import Ack, AckTable
from drift_graph.meta import BEGINNING

#: How often the acker sends notices to nodes except the barrier; and to workers that hold no waiting items.
_NOTICE_INTERVAL_S, _IDLE_INTERVAL_S = 0.001, 0.05
#: Workers that are fed fewer items at once hold none back while older ones are in flight.
_FEW_ITEMS = 100


class _Hearers:
    """Nodes that get the same notices at the same time."""

    def __init__(self, who: Sequence[int], *, feeds: bool) -> None:
        self.who = who
        self.feeds = feeds
        self.is_here = CALLER in who
        self.forget()

    def forget(self) -> None:
        """Treat the nodes as if they had got no notice yet."""
        self.sent: tuple[Sequence[bytes], bytes, int] = (), BEGINNING, 0
        self.sent_s = -math.inf


class AckerNode(Node):
    """
    Args:
        sources: how many sources, or workers that feed themselves, send heartbeats.
        others: the nodes besides the barrier that get notices of minimal time, in this order.
        feeders: the nodes that feed items, and get the pace.
        pacing: for cycles that have to be fed at a pace.
        levels: how many there are; see `drift.machines.levels`.
    """

    def __init__(
        self,
        sources: int,
        others: Sequence[int],
        feeders: Sequence[int],
        *,
        pacing: Pacing | None = None,
        levels: int = 1,
    ) -> None:
        self._levels = levels
        self.table = AckTable(range(sources), levels=levels)
        self._sources = sources
        self._workers = [other for other in others if other >= 0]
        self.receivers = [*others, BARRIER]
        self._feeders = feeders
        idle = [other for other in others if other not in feeders]
        self._hearers = [_Hearers(who, feeds=feeds) for who, feeds in ((idle, False), (feeders, True)) if who]
        self._fed_at_once = 0  # items, the last time
        self._pacing = pacing
        self._checkpoint = 0  # the number of a checkpoint to take, or 0
        self._reached = BEGINNING  # before the last rewind
        self._batches = 0  # of the input
        self._tombstones = 0
        self._mapped = 0, 0.0  # input items, and how long it took
        self._notices = 0

    def turn(self, messages: Sequence[Message], now_s: float, took_s: float = 0.0) -> list[Send]:
        table = self.table
        before = table.minimal_time
        for message in messages:
            if isinstance(message, AckMessage):
                self._fold(message)
            elif isinstance(message, TakeCheckpoint):
                self._checkpoint = message.number
        sends: list[Send] = []
        if self._pacing is not None and self._pacing.judge(table.least_in_flight):
            sends += [Send(feeder, Pace(self._pacing.batch_items)) for feeder in self._feeders]
        news = table.frontiers, table.least_in_flight, self._batches
        self.wake_s = math.inf
        if not self._checkpoint and all(each.sent == news for each in self._hearers):
            return sends
        held_by = table.held_by()
        self.held_by_message = held_by is None and not table.quiet
        rank = -1 if held_by is None or held_by >= self._sources else held_by
        self._notices += 1
        notice = MinimalTime(
            table.minimal_time,
            table.least_in_flight,
            rank,
            self._batches,
            table.frontiers,
            self._tombstones,
            self._checkpoint,
            *self._mapped,
            self._notices,
        )
        if table.minimal_time != before or self._checkpoint:
            sends.append(Send(BARRIER, notice))
        at_once = table.quiet or bool(self._checkpoint)
        few = self._fed_at_once < _FEW_ITEMS and not table.waits
        for each in self._hearers:
            due_s = each.sent_s + (_IDLE_INTERVAL_S if few and not each.feeds else _NOTICE_INTERVAL_S)
            if at_once or (each.sent != news and (each.is_here or now_s >= due_s)):
                each.sent, each.sent_s = news, now_s
                sends += [Send(other, notice) for other in each.who]
            elif each.sent != news:
                self.wake_s = min(self.wake_s, due_s)
        self._checkpoint = 0
        return sends

    def halt(self, order: Halt) -> Halted:
        return Halted(order.generation, max(self.table.minimal_time, self._reached))

    def rewind(self, order: Rewind) -> None:
        """Start a new table. Each worker also gives a heartbeat, once it has sent its stored items again."""
        self.table = AckTable(range(self._sources + len(self._workers)), order.since, self._levels)
        self._reached, self._checkpoint = order.checkpoint, 0
        for each in self._hearers:
            each.forget()
        self._batches = self._tombstones = 0
        self._mapped = 0, 0.0
        self.held_by_message = False
        if self._pacing is not None:
            self._pacing = self._pacing.anew()

    def _fold(self, message: AckMessage) -> None:
        self.table.handle(Ack(message.cells, message.heartbeats, message.waiting))
        self._batches += message.items > 0
        self._fed_at_once = message.items or self._fed_at_once
        self._tombstones += message.tombstones
        self._mapped = self._mapped[0] + message.mapped_items, self._mapped[1] + message.mapped_s
        if self._pacing is not None:
            granule = message.cells[0][0] if message.items else BEGINNING
            self._pacing.count(message.items, message.tombstones, granule)
