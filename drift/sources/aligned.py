"""Messages of several partitions, in the order of their timestamps where they are read at different speeds.

Invariant: each message is given once, those of a partition in their order; one is given only when every partition that
has more to read has been read up to its timestamp, unless such a partition has given nothing for `patience_s`.

Why: a source in event time has one heartbeat. If one partition were read to its end before another, all items of the
other would be late, although none came late to Kafka. A partition that is read to its end holds nothing back, so a
message of a topic without a backlog is given at once.

Where a reading has an end, each partition with more to read is waited for, however long: the order is that of the
timestamps, of equal ones that of the partitions, and hangs on nothing but the messages. A partition's timestamps may go
back; then its next message is compared as it is, so that the order goes on from offsets alone.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Mapping
from heapq import heapify, heappop, heapreplace
from itertools import islice
from typing import Any, NamedTuple


class Message(NamedTuple):
    """What a partition holds at an offset."""

    timestamp: int
    partition: int
    offset: int
    value: Any


class _Part:
    """One partition.

    Attributes:
        waiting: the messages that were not given yet.
        next: the offset behind what was read.
        read_s: when it was read last.
    """

    def __init__(self, offset: int, now_s: float) -> None:
        self.waiting: deque[Message] = deque()
        self.next = offset
        self.read_s = now_s


class Aligned:
    """Messages of several partitions, given out in the order of their times.

    Args:
        offsets: of each partition, where reading begins.
        ends: of each partition, the offset behind its last message, or behind the last that is given; without those for
            which it is not known. Of a live reading they grow.
        most: where so many messages of a partition wait for others, it is not read on.
        patience_s: of a live reading, how long a partition that is not at its end and gives nothing is waited for; None
            for a reading that ends.
    """

    def __init__(
        self,
        offsets: Mapping[int, int],
        ends: Mapping[int, int],
        *,
        most: int,
        patience_s: float | None = None,
        now_s: float = 0.0,
    ) -> None:
        self._ends = ends
        self._most = most
        self._patience_s = patience_s
        self._parts = {
            partition: _Part(offset, now_s)
            for partition, offset in sorted(offsets.items())
            if patience_s is not None or offset < ends[partition]
        }

    @property
    def partitions(self) -> list[int]:
        return list(self._parts)

    def add(self, partition: int, offset: int, now_s: float) -> None:
        self._parts[partition] = _Part(offset, now_s)

    def reach(self, partition: int, offset: int) -> None:
        """A partition has been read up to an offset, maybe without messages: those of transactions have no value."""
        part = self._parts[partition]
        part.next = max(part.next, offset)

    def put(self, messages: Iterable[Message], now_s: float = 0.0) -> None:
        """Messages that were read, those of a partition in their order; a reading that ends passes over later ones."""
        for message in messages:
            part = self._parts[message.partition]
            if self._patience_s is not None or message.offset < self._ends[message.partition]:
                part.waiting.append(message)
            part.next, part.read_s = message.offset + 1, now_s

    def take(self, most: int, now_s: float = 0.0) -> list[Message]:
        """At most so many messages that come next, and need not wait."""
        if any(not part.waiting and self._is_waited_for(each, now_s) for each, part in self._parts.items()):
            return []
        firsts = [(part.waiting[0].timestamp, each) for each, part in self._parts.items() if part.waiting]
        heapify(firsts)
        taken: list[Message] = []
        while firsts and len(taken) < most:
            _, partition = firsts[0]
            waiting = self._parts[partition].waiting
            if len(firsts) == 1:
                several = min(len(waiting), most - len(taken))
                taken += islice(waiting, several)
                self._parts[partition].waiting = deque(islice(waiting, several, None))
                break
            taken.append(waiting.popleft())
            if waiting:
                heapreplace(firsts, (waiting[0].timestamp, partition))
            elif self._is_waited_for(partition, now_s):
                break
            else:
                heappop(firsts)
        return taken

    @property
    def ended(self) -> bool:
        """Whether all was given, of a reading that ends."""
        return self._patience_s is None and not any(
            part.waiting or self._has_more(partition) for partition, part in self._parts.items()
        )

    @property
    def full(self) -> set[int]:
        """The partitions that are not to be read on now."""
        return {
            partition
            for partition, part in self._parts.items()
            if len(part.waiting) >= self._most or (self._patience_s is None and not self._has_more(partition))
        }

    def _is_waited_for(self, partition: int, now_s: float) -> bool:
        patient = self._patience_s is None or now_s - self._parts[partition].read_s < self._patience_s
        return patient and self._has_more(partition)

    def _has_more(self, partition: int) -> bool:
        part = self._parts[partition]
        return part.next < self._ends.get(partition, part.next + 1)
