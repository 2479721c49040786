"""The decisions of a schedule, and the events in flight that they are about.

Invariant: every decision has a `Key` that names its subject (the batch from worker 0 to worker 1 that begins with item
3), not its moment; so a decision about one event has the same effect when others are removed.

Why: the number in a key is that of an input item, and keys that are otherwise equal are distinguished by a count.
`Schedule` itself is the plain order: first sent, first received; no input is read before the last is settled; and
batches are as large as allowed.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

from drift.machines.nodes.messages import Message
from drift.machines.nodes.node import CALLER


class Key(NamedTuple):
    """The subject of a decision.

    Attributes:
        kind: of an event: "batch", "ack", "heartbeat", "news", "pace", "break off", "read" or "wake"; "outbox" and
            "still" for delays of others; or a number to choose, see `Schedule.choose`.
        link: "worker 0 > worker 1" for a batch, otherwise a receiver or sender, or "".
        source, number: the first item of the event, by its index in its source's input; for news, of minimal time.
        nth: distinguishes keys that are otherwise equal.
    """

    kind: str
    link: str
    source: str
    number: int
    nth: int


class Pickled(NamedTuple):
    """Parts for one receiver, in flight."""

    parts: bytes
    granule: bytes
    checksum: int
    level: int


class Scheduled:
    """An event in flight.

    Attributes:
        due: the first turn at which it may come.
        sent_turn, arrival_turn: the turns at which it was sent and arrived; -1 before that.
        to: its receiver: a worker's index, BARRIER, ACKER or CALLER.
        message: a batch; `carried` is any other message.
        in_outbox_until: the turn at which it leaves the outbox of its sender.
        rank: of the source that is read, or whose heartbeat it has.
        life: the life of its receiver; messages to a process that was replaced do not reach the successor.
        generation: of its sender, when it was sent.
        action: its effect, if it is not a message between nodes.
    """

    __slots__ = (
        "key",
        "due",
        "sent_turn",
        "arrival_turn",
        "to",
        "message",
        "carried",
        "in_outbox_until",
        "rank",
        "sender",
        "life",
        "generation",
        "action",
    )

    def __init__(self, key: Key, sent_turn: int, hold: int, to: int = 0) -> None:
        self.key = key
        self.sent_turn = sent_turn
        self.due = sent_turn + hold
        self.arrival_turn = -1
        self.to = to
        self.message: Pickled | None = None
        self.carried: Message | None = None
        self.in_outbox_until = sent_turn
        self.rank = -1
        self.sender = CALLER
        self.life = self.generation = 0
        self.action: Callable[[], None] | None = None

    def __repr__(self) -> str:
        kind, link, source, number, _ = self.key
        return f"<{kind} {link} {source} {number}>".replace("  ", " ")


class Schedule:
    """The plain order; other schedules deviate from it."""

    def hold(self, key: Key) -> int:
        """For how many turns, 0 or more, an event is delayed when it is sent, a frame in the outbox of the feed node
        ("outbox"), or a node after a turn ("still").
        """
        return 0

    def choose(self, key: Key, count: int) -> int:
        """A number below `count`; 0 is the plainest.

        By kind: "cut", how many items a batch of a source is smaller than it could be; "split", whether a batch is too
        long for a frame and is halved; "together", how many more waiting messages a receiver takes at once; "pause",
        whether a live source has no items now; "clock", how far its clock jumps; "skew", how much a node's clock
        differs; "took", how long a turn took.
        """
        return 0

    def pick(self, events: Sequence[Scheduled], turn: int) -> int:
        """The index of the event that comes next; reads are at the end of the list."""
        for at, event in enumerate(events):
            if event.due <= turn:
                return at
        return min(range(len(events)), key=lambda at: events[at].due)

    def is_lost(self, key: Key) -> bool:
        return False

    def fired(self, event: Scheduled) -> None:
        """Called when an event has come."""
