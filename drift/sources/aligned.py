"""Messages of several partitions, in the order of their timestamps where they are read at different speeds.

Invariant: each message is given once, those of a partition in their order; one is given only when every partition that
has more to read has been read up to its timestamp, unless such a partition has given nothing for `patience_s`.

Why: a source in event time has one heartbeat. If one partition were read to its end before another, all items of the
other would be late, although none came late to Kafka. A partition that is read to its end holds nothing back, so a
message of a topic without a backlog is given at once.

Where a reading has an end (`Merged`), each partition with more to read is waited for, however long: the order is that
of the timestamps, of equal ones that of the partitions, and hangs on nothing but the messages. A partition's timestamps
may go back; then its next message is compared as it is, so that the order goes on from offsets alone.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import deque
from collections.abc import Iterable, Mapping
from heapq import heapify, heappop, heapreplace
from operator import itemgetter
from typing import Any, NamedTuple

_BEFORE_ALL = -(2**63)


class Message(NamedTuple):
    """Attributes:
    timestamp: of the message; within `Aligned`, the greatest of its partition up to it.
    """

    timestamp: int
    partition: int
    offset: int
    value: Any


_timestamp = itemgetter(0)


class _Part:
    """One partition.

    Attributes:
        waiting: the messages that were not given yet.
        read: the greatest timestamp that was read.
        next: the offset behind what was read.
        read_s: when it was read last.
    """

    def __init__(self, offset: int, now_s: float) -> None:
        self.waiting: list[Message] = []
        self.read = _BEFORE_ALL
        self.next = offset
        self.read_s = now_s


class Aligned:
    """Args:
    offsets: of each partition, where reading begins.
    patience_s: how long a partition that is not at its end and gives nothing is waited for.
    most: where so many messages of a partition wait for others, it is not read on.
    """

    def __init__(self, offsets: Mapping[int, int], now_s: float, *, patience_s: float, most: int) -> None:
        self._parts = {partition: _Part(offset, now_s) for partition, offset in offsets.items()}
        self._patience_s = patience_s
        self._most = most

    def add(self, partition: int, offset: int, now_s: float) -> None:
        """A partition is read too."""
        self._parts[partition] = _Part(offset, now_s)

    def reach(self, partition: int, offset: int) -> None:
        """A partition has been read up to an offset, maybe without messages: those of transactions have no value."""
        part = self._parts[partition]
        part.next = max(part.next, offset)

    def put(self, messages: Iterable[Message], now_s: float) -> None:
        """Messages that were read, those of a partition in their order."""
        for message in messages:
            timestamp, partition, offset, _ = message
            part = self._parts[partition]
            if timestamp < part.read:
                message = message._replace(timestamp=part.read)
            else:
                part.read = timestamp
            part.next, part.read_s = offset + 1, now_s
            part.waiting.append(message)

    def take(self, ends: Mapping[int, int], now_s: float) -> list[Message]:
        """The messages that need not wait.

        Args:
            ends: of each partition the offset behind its last message; without those for which it is not known.
        """
        bound: int | None = None
        for partition, part in self._parts.items():
            has_more = part.next < ends.get(partition, part.next + 1)
            if has_more and (part.waiting or now_s - part.read_s < self._patience_s):
                bound = part.read if bound is None else min(bound, part.read)
        pieces = []
        for part in self._parts.values():
            waiting = part.waiting
            fitting = len(waiting) if bound is None else bisect_right(waiting, bound, key=_timestamp)
            if fitting:
                pieces.append(waiting[:fitting])
                del waiting[:fitting]
        taken = [message for piece in pieces for message in piece]
        if len(pieces) > 1:
            taken.sort(key=_timestamp)  # stable: a partition keeps its order
        return taken

    @property
    def full(self) -> set[int]:
        """The partitions that are not to be read on now."""
        return {partition for partition, part in self._parts.items() if len(part.waiting) >= self._most}


class Merged:
    """Messages up to the ends of the partitions, in one order.

    Args:
        offsets: of each partition, where reading begins.
        ends: the offsets behind the last messages that are given.
        most: where so many messages of a partition wait for others, it is not read on.
    """

    def __init__(self, offsets: Mapping[int, int], ends: Mapping[int, int], *, most: int) -> None:
        self._next = {partition: offset for partition, offset in sorted(offsets.items()) if offset < ends[partition]}
        self._waiting: dict[int, deque[Message]] = {partition: deque() for partition in self._next}
        self._ends = ends
        self._most = most

    @property
    def partitions(self) -> list[int]:
        """Those that are read."""
        return list(self._waiting)

    def reach(self, partition: int, offset: int) -> None:
        """A partition has been read up to an offset, maybe without messages: those of transactions have no value."""
        self._next[partition] = max(self._next[partition], offset)

    def put(self, messages: Iterable[Message]) -> None:
        """Messages that were read, those of a partition in their order; those behind the ends are passed over."""
        for message in messages:
            partition, offset = message.partition, message.offset
            if offset < self._ends[partition]:
                self._waiting[partition].append(message)
            self._next[partition] = offset + 1

    def take(self, most: int) -> list[Message]:
        """At most so many messages that come next, as far as that is known."""
        waiting = self._waiting
        if any(not each and self._has_more(partition) for partition, each in waiting.items()):
            return []
        firsts = [(each[0].timestamp, partition) for partition, each in waiting.items() if each]
        heapify(firsts)
        taken: list[Message] = []
        while firsts and len(taken) < most:
            _, partition = firsts[0]
            each = waiting[partition]
            taken.append(each.popleft())
            if each:
                heapreplace(firsts, (each[0].timestamp, partition))
            elif self._has_more(partition):
                break
            else:
                heappop(firsts)
        return taken

    @property
    def ended(self) -> bool:
        """Whether all was given."""
        return not any(each or self._has_more(partition) for partition, each in self._waiting.items())

    @property
    def full(self) -> set[int]:
        """The partitions that are not to be read on now."""
        return {
            partition
            for partition, each in self._waiting.items()
            if len(each) >= self._most or not self._has_more(partition)
        }

    def _has_more(self, partition: int) -> bool:
        return self._next[partition] < self._ends[partition]
