"""The acker and another node in one process: their messages to each other need no transport.

Invariant: after a turn no message between the two is left, and other nodes see the same as from two processes with a
fast connection.

Why one process: minimal time goes from the acker to the output barrier. Between processes that takes two hops, the last
ack and the notice, and each costs more than the work at its end.
"""

from __future__ import annotations

from collections.abc import Sequence

from drift.machines.nodes.acker import AckerNode
from drift.machines.nodes.messages import AckMessage, Message, TakeCheckpoint
from drift.machines.nodes.node import ACKER, Node, Send


class WithAcker(Node):
    """
    Args:
        number: the number by which the acker addresses that node.
        acker: the acker of the run.
    """

    def __init__(self, node: Node, number: int, acker: AckerNode) -> None:
        self.node = node
        self.acker = acker
        self._number = number
        self._now_s = 0.0
        own = (ACKER, number)
        self.receivers = [to for to in dict.fromkeys([*node.receivers, *acker.receivers]) if to not in own]
        self.messages_max = node.messages_max + acker.messages_max

    def part(self, role: int) -> Node:
        return self.acker if role == ACKER else self.node

    @property
    def wake_s(self) -> float:  # type: ignore[override]
        return min(self.node.wake_s, self.acker.wake_s)

    @property
    def halted(self) -> bool:  # type: ignore[override]
        return self.node.halted or self.acker.halted

    @property
    def tombstones(self) -> int:  # type: ignore[override]
        return self.node.tombstones

    @property
    def held_by_message(self) -> bool:  # type: ignore[override]
        return self.acker.held_by_message

    def stand_by(self) -> None:
        self.node.stand_by()
        self.acker.stand_by()

    def turn(self, messages: Sequence[Message], now_s: float, took_s: float = 0.0) -> list[Send]:
        self._now_s = now_s
        acks: list[Message] = [each for each in messages if isinstance(each, AckMessage | TakeCheckpoint)]
        others = [each for each in messages if not isinstance(each, AckMessage | TakeCheckpoint)]
        sends = self.node.turn(others, now_s, took_s) if others or now_s >= self.node.wake_s else []
        return self._between(sends, acks, now_s)

    def unsent(self, send: Send, error: Exception) -> list[Send]:
        return self.through(self.node.unsent(send, error), self._now_s)

    def through(self, sends: list[Send], now_s: float) -> list[Send]:
        return self._between(sends, [], now_s)

    def _between(self, sends: list[Send], acks: list[Message], now_s: float) -> list[Send]:
        """The messages of both nodes that go to others; messages between the two are handled here, turn by turn."""
        leaving: list[Send] = []
        answers: list[Send] = []  # of the acker to others; they are sent last
        while True:
            acks += [send.message for send in sends if send.to == ACKER]
            leaving += [send for send in sends if send.to not in (ACKER, self._number)]
            if not acks and now_s < self.acker.wake_s:
                return leaving + answers
            effects = self.acker.turn(acks, now_s)
            notices = [send.message for send in effects if send.to == self._number]
            acks, sends = [], self.node.turn(notices, now_s) if notices else []
            answers += [send for send in effects if send.to != self._number]
