"""What a schedule decides, and the things under way that it decides about.

Invariant: every decision has a `Key` that says what it is about (the batch from worker 0 to worker 1 that begins with
item 3), not when it is met; so a decision about one thing means the same when others are taken away.

Why: a key's number is that of an input item, and those for which all else is equal are told apart by a count of their
own. `Schedule` itself is in order: what was sent first comes first, no input is read before the last is settled, and
batches are as large as they may be.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

from drift.machines.nodes.messages import Message
from drift.machines.nodes.node import CALLER


class Key(NamedTuple):
    """What a decision is about.

    Attributes:
        kind: a thing that comes, "batch", "ack", "heartbeat", "news", "pace", "break off", "read" or "wake"; "outbox"
            and "still", for which something else is held up; or a number, see `Schedule.choose`.
        place: "worker 0 > worker 1" for a batch, otherwise a receiver or sender, or "".
        source, number: the item it begins with, by its index in its source's input; for news, of minimal time.
        nth: tells apart those for which all else is equal.
    """

    kind: str
    place: str
    source: str
    number: int
    nth: int


class Pickled(NamedTuple):
    """Parts for one receiver, under way."""

    parts: bytes
    granule: bytes
    checksum: int


class Scheduled:
    """Something under way.

    Attributes:
        key: what it is.
        due: the turn at which it may come.
        born, came: the turns at which it was sent and came; -1 before that.
        to: whom it comes to: a worker's index, BARRIER, ACKER or CALLER.
        message: a batch; `carried` any other message.
        in_outbox_until: the turn at which it leaves the outbox of its sender.
        rank: of the source that is read, or whose heartbeat it brings.
        sender: who sent it.
        life: of which life it is, of whom it comes to: of a process that was replaced nothing comes to the next.
        generation: of who sent it, when it did.
        then: what it does, where it is no message between nodes.
    """

    __slots__ = (
        "key",
        "due",
        "born",
        "came",
        "to",
        "message",
        "carried",
        "in_outbox_until",
        "rank",
        "sender",
        "life",
        "generation",
        "then",
    )

    def __init__(self, key: Key, born: int, hold: int, to: int = 0) -> None:
        self.key = key
        self.born = born
        self.due = born + hold
        self.came = -1
        self.to = to
        self.message: Pickled | None = None
        self.carried: Message | None = None
        self.in_outbox_until = born
        self.rank = -1
        self.sender = CALLER
        self.life = self.generation = 0
        self.then: Callable[[], None] | None = None

    def __repr__(self) -> str:
        kind, place, source, number, _ = self.key
        return f"<{kind} {place} {source} {number}>".replace("  ", " ")


class Schedule:
    """In order. Others deviate from it."""

    def hold(self, key: Key) -> int:
        """For how many turns a thing is held up, 0 or more, when it is sent; a frame, in the outbox of who feeds it
        ("outbox"); and a node that stands still after a turn ("still").
        """
        return 0

    def choose(self, key: Key, count: int) -> int:
        """A number below `count`; 0 is the plainest.

        By kind: "cut", how many items fewer a batch of a source has than it could have; "split", whether a batch is
        too long to be carried, and goes in halves; "together", how many more of the messages that wait for a receiver
        it takes at once; "pause", whether a live source has nothing now; "clock", by how much its clock jumps; "skew",
        by how much a node's clock differs; "took", how long a turn took.
        """
        return 0

    def pick(self, things: Sequence[Scheduled], turn: int) -> int:
        """Which thing comes next, by its index; reads are the last."""
        for at, thing in enumerate(things):
            if thing.due <= turn:
                return at
        return min(range(len(things)), key=lambda at: things[at].due)

    def is_lost(self, key: Key) -> bool:
        """Whether a batch never comes."""
        return False

    def fired(self, thing: Scheduled) -> None:
        """A thing has come."""
