"""The position from which a source is read again, so that every item at or above a checkpoint comes again as before.

Invariant: a reading that begins at the position `at(checkpoint)`, with a machine in the state given there, gives every
item at or above the checkpoint its former meta, in the same order, with the heartbeats of the first reading and the
same judgement of what is late.

Why: the position is in front of a batch of the first reading, with the state that judged that batch; every batch before
it lies entirely below the checkpoint, late items included. Items that a batch leaves with the machine, to be judged
later, are given with a batch that is read after it: so both are one batch here. The machine's counts of items with one
time and tie matter for one pair at most, the one that the checkpoint lies in: for others all items are on one side of
the checkpoint, so they are either all skipped or all read again.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from typing import Any, NamedTuple

from drift_graph.errors import InputError
from drift_graph.meta import pack_time, read_varint
from drift_graph.metas import Metas
from drift_graph.times import Arrived, Judging, SourceMachine, StampCount

_FORM = 1


class Position(NamedTuple):
    """Attributes:
    reader: the position of the reader, in the reader's form; None for the beginning.
    entry: for a source that is logged because it cannot be read again: the number of the first log entry to read.
    judging: the state of the source's machine there.
    stamp_count: how many items had the time and tie in which the checkpoint lies, if it lies in one.
    """

    reader: Any
    entry: int | None
    judging: Judging
    stamp_count: StampCount | None


class _Batch(NamedTuple):
    """A batch that was read.

    Attributes:
        before: the position in front of it, without `stamp_count`.
        metas: of its items, in the order of arrival.
        greatest: the greatest time up to the end of the batch, or None if its metas are in order.
        late: the greatest heartbeat that a late item in it was below.
    """

    before: Position
    metas: Metas
    greatest: bytes | None
    late: bytes

    def reaches(self, checkpoint: bytes) -> bool:
        """Whether the batch has something at or above a time; may also be true if only an earlier batch has."""
        if self.late >= checkpoint:
            return True
        if self.greatest is None:
            return bool(self.metas) and self.metas[-1] >= checkpoint
        return self.greatest > checkpoint[:8] or (
            self.greatest == checkpoint[:8] and max(self.metas, default=b"") >= checkpoint
        )


class Rereading:
    """The batches of one source that may have to be read again; only those that a later checkpoint may need."""

    def __init__(self, machine: SourceMachine) -> None:
        self._machine = machine
        self._batches: deque[_Batch] = deque()
        self._goes_on = False  # the machine holds items of the last batch

    def here(self, reader: Any, entry: int | None = None) -> Position:
        """The state of the machine and the position of its reader now."""
        return Position(reader, entry, self._machine.judging, None)

    def add(self, before: Position, arrived: Arrived) -> None:
        """Add a batch that was read after the position `before`."""
        greatest = None
        if self._machine.policy.reads_payloads:
            time = self._machine.judging.greatest
            greatest = b"" if time is None else pack_time(time)
        metas, late = arrived.metas, max((pack_time(each.heartbeat) for each in arrived.late), default=b"")
        if self._goes_on:
            last = self._batches.pop()
            before, late = last.before, max(late, last.late)
            metas = Metas.joined([last.metas, metas])
        self._batches.append(_Batch(before, metas, greatest, late))
        self._goes_on = self._machine.has_held

    def end(self, arrived: Arrived) -> None:
        """Add what the machine still held when the input ended."""
        if self._batches:
            self.add(self._batches[-1].before, arrived)

    def at(self, checkpoint: bytes, here: Position) -> Position:
        """The position to read from for everything at or above a checkpoint; checkpoints must not decrease between
        calls.

        Args:
            here: the position of the reader and the machine now.
        """
        batches = self._batches
        while len(batches) > self._goes_on and not batches[0].reaches(checkpoint):
            batches.popleft()
        before = batches[0].before if batches else here
        return before._replace(stamp_count=self._stamp_count_at(checkpoint))

    def _stamp_count_at(self, checkpoint: bytes) -> StampCount | None:
        prefix = self._machine.prefix_in(checkpoint)
        if prefix is None:
            return None
        for batch in self._batches:
            for meta in batch.metas:
                if meta.startswith(prefix):
                    return self._machine.count_before(prefix, read_varint(meta, len(prefix))[0])
        return self._machine.count_before(prefix, None)


def as_plain(position: Position) -> dict[str, Any]:
    judging, counted = position.judging, position.stamp_count
    return {
        "v": _FORM,
        "reader": position.reader,
        "entry": position.entry,
        "judging": {**judging._asdict(), "heartbeat": judging.heartbeat.hex()},
        "stamp_count": None if counted is None else [counted.first.hex(), counted.items, counted.payload.hex()],
    }


def from_plain(name: str, plain: Any) -> Position:
    """The inverse of `as_plain`. Raises InputError: another version wrote it, or it is damaged."""
    try:
        if not isinstance(plain, Mapping) or plain["v"] != _FORM:
            raise ValueError(f"its format is not one of {_FORM}")
        judging, counted = plain["judging"], plain["stamp_count"]
        return Position(
            plain["reader"],
            plain["entry"],
            Judging(**{**judging, "heartbeat": bytes.fromhex(judging["heartbeat"])}),
            None if counted is None else StampCount(bytes.fromhex(counted[0]), counted[1], bytes.fromhex(counted[2])),
        )
    except (KeyError, TypeError, ValueError, IndexError) as error:
        raise InputError(
            f"source {name!r} cannot resume from {plain!r:.200}: {error}; another version saved it, or it is damaged; "
            f"continue with the version that saved it, or start a new run"
        ) from None
