"""Where a topic of Kafka is read: the offsets of its partitions, without Kafka.

Invariant: each message at or above the offset that its partition began with is returned once, also in partitions that
are added later: those are read from their beginning.

Why: the next offset of a partition is one above the last message that was returned, and a position is these offsets.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any, NamedTuple

from drift.sources.positions import position_fields, position_lost, position_of
from drift_graph.errors import InputError


class Range(NamedTuple):
    """The offsets that a partition has: of its first message, and behind its last."""

    first: int
    end: int


class Offsets:
    """The range of each partition, and the offsets returned so far.

    Args:
        start: "earliest", "latest", or the offset in each partition (others from the earliest).
        live: whether the reading does not end; then its positions have no ends.

    Attributes:
        next: of each partition, the offset of the first message that was not returned.
        ends: of each partition, where a reading that ends does so.
    """

    def __init__(
        self, topic: str, found: Mapping[int, Range], start: str | Mapping[int, int], *, live: bool = False
    ) -> None:
        self.topic = topic
        self._has_no_end = live
        self._found = dict(sorted(found.items()))
        self.ends = self._present_ends
        self.next = {
            partition: each.end if start == "latest" else each.first for partition, each in self._found.items()
        }
        if isinstance(start, Mapping):
            requested = {int(partition): offset for partition, offset in start.items()}
            unknown = sorted(requested.keys() - self.next.keys())
            if unknown:
                raise InputError(f"topic {topic!r} of Kafka has no partition {unknown[0]}; it has {len(self.next)}")
            self.next |= requested

    @property
    def _present_ends(self) -> dict[int, int]:
        return {partition: each.end for partition, each in self._found.items()}

    def behind(self, marks: Sequence[tuple[int, int]]) -> None:
        """Messages with these partitions and offsets were returned."""
        for partition, offset in dict(marks).items():  # the last of each partition
            self.next[partition] = offset + 1

    def has(self, partition: int, offset: int) -> bool:
        """Whether the partition had this offset when it was opened."""
        found = self._found.get(partition)
        return found is not None and found.first <= offset < found.end

    def added(self, partitions: Collection[int]) -> list[int]:
        """The partitions of the topic that were not there when it was opened."""
        return sorted(set(partitions) - self._found.keys())

    def add(self, partition: int, found: Range) -> None:
        """A partition is read too. A position has it as soon as one of its messages was returned."""
        self._found[partition] = found

    def position(self) -> Any:
        offsets = {
            str(partition): [offset, None if self._has_no_end else self.ends.get(partition, offset)]
            for partition, offset in self.next.items()
        }
        return position_of("kafka", offsets=offsets)

    def seek(self, position: Any) -> None:
        """A reading that ends does so where it would have ended, after a live one at the present
        ends.
        """
        topic = f"topic {self.topic!r} of Kafka"
        (by_partition,) = position_fields(position, "kafka", topic, "offsets")
        for name, (offset, end) in by_partition.items():
            partition = int(name)
            found = self._found.get(partition)
            if found is None or not found.first <= offset <= found.end:
                now = "there is no such partition"
                if found is not None:
                    now = f"it begins at {found.first}" if offset < found.first else f"it ends at {found.end}"
                raise position_lost(topic, f"offset {offset} of partition {partition}", now)
            self.next[partition] = offset
            self.ends[partition] = found.end if end is None else end
        has_ends = any(end is not None for _, end in by_partition.values())
        for partition in self.next.keys() - set(map(int, by_partition)):  # partitions added since
            found = self._found[partition]
            self.next[partition], self.ends[partition] = found.first, found.first if has_ends else found.end

    def end_anew(self) -> None:
        self.ends, self._has_no_end = self._present_ends, True
