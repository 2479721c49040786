"""The messages of one writer in a partition of a topic that has several.

Invariant: what was found are the writer's items of the partition in the order of positions; but for the oldest, which
may go, none is left out.

Why: each message says which position is before it. So one that is missing is noticed at the next one, and two runs with
one name at the first message of the second. A topic loses its newest messages, so reading begins with the last one that
was found: where it is there, all before it are. No client of Kafka is imported here.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from drift.sinks.delivering import End
from drift.sinks.resuming import Last, from_committed
from drift_graph.errors import SinkBehind, SinkError

POSITION, META, PARTITIONS = "drift.position", "drift.meta", "drift.partitions"
WRITER, AFTER = "drift.writer", "drift.after"


def own_messages(target: str, writer: bytes, committed: Any, partitions: int) -> list[OwnMessages]:
    """Of each partition those of a writer, before they are read.

    Args:
        target: the topic, for errors.
        committed: what `commit` of the sink returned; None without a checkpoint.

    Raises:
        SinkError: `committed` is of another version or sink.
    """
    found: list[tuple[int, Last | None]] = []
    if committed is not None:
        found += zip(committed.get("offsets", ()), from_committed(target, committed))
    found += [(0, None)] * (partitions - len(found))
    return [OwnMessages(f"partition {at} of {target}", writer, *known) for at, known in enumerate(found)]


class OwnMessages:
    """What is found of them.

    Args:
        name: of the partition, for errors.
        offset: of the last message, or, if there is none, where reading begins.
        last: the item of that message.

    Attributes:
        last: the last item that was found.
        partitions: how many there were when the last message was written; None where it does not say.
        resumed_from: the offset of the last message; 0 before the first one, since a topic that has lost the messages
            of others may have it anywhere.
        begun: where the partition ended when the run began.
        count: so many messages were found since then.
    """

    def __init__(self, name: str, writer: bytes, offset: int, last: Last | None) -> None:
        self._name, self._writer = name, writer
        self._offset = self.resumed_from = self.begun = offset
        self._awaits_last = self._has_skipped = False
        self.last = last
        self.partitions: int | None = None
        self.count = 0

    def begin(self) -> End:
        """The run begins here, where it has read to."""
        self.begun, self.count = self._offset, 0
        return End(self.begun, self.last, (None, self.partitions))

    def begin_reading(self, first: int, end: int) -> int:
        """The offset to read from, in a partition that has these offsets, the last one excluded.

        Raises:
            SinkBehind: the last message is gone.
        """
        self._awaits_last = self.last is not None and self.resumed_from >= first
        if self._awaits_last:
            if self.resumed_from >= end:
                raise self._lost()
            return self.resumed_from
        self._has_skipped = self._offset < first
        return min(max(self._offset, first), end)

    def end_reading(self, offset: int) -> None:
        self._offset = offset

    def take(self, offset: int, headers: Mapping[str, bytes]) -> None:
        """The next message of the partition.

        Raises:
            SinkError: it, or one before it, should not be there, or one is missing.
        """
        is_own = headers.get(WRITER) == self._writer
        if self._awaits_last:
            self._awaits_last = False
            if not is_own or offset != self.resumed_from or self._last_of(headers) != self.last:
                raise self._lost()
        elif is_own:
            self._add(offset, headers)
        elif WRITER not in headers and POSITION in headers:
            raise SinkError(
                f"{self._name} has at offset {offset} a message of a sink without writer=, which takes the topic to be "
                f"its own; give all sinks of the topic names, from its first message on, or this one another topic"
            )

    def _add(self, offset: int, headers: Mapping[str, bytes]) -> None:
        last, after = self._last_of(headers), int(headers[AFTER])
        before = -1 if self.last is None else self.last.position
        if after != before and not (self._has_skipped and after > before):
            raise SinkError(
                f"{self._name} has at offset {offset} the item at position {last.position}, written behind that at "
                f"{after}, and before it is that at {before}: two runs have written with "
                f"writer={self._writer.decode()!r}, or the topic has lost messages; give each sink a name of its own, "
                f"and this one another topic, with a run from the beginning of the input"
            )
        self.last, self.resumed_from, self._has_skipped = last, offset, False
        self.partitions = int(headers[PARTITIONS]) if PARTITIONS in headers else None
        self.count += 1

    @staticmethod
    def _last_of(headers: Mapping[str, bytes]) -> Last:
        return Last(int(headers[POSITION]), headers[META])

    def _lost(self) -> SinkBehind:
        assert self.last is not None
        return SinkBehind(
            f"{self._name} had the item at position {self.last.position} at offset {self.resumed_from}, and has not "
            f"now: the topic has lost messages that it had acknowledged, was made anew, or is compacted; run again "
            f"from the beginning of the input, and what is missing is written"
        )
