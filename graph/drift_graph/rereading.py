"""The position from which a source is read again, so that every item at or above a cut comes again as before.

Invariant: a reading that begins at the position `at(cut)`, with a machine in the state given there, gives every item at
or above the cut its former meta, in the same order, with the heartbeats of the first reading and the same judgement of
what is late.

Why: the position is in front of a batch of the first reading, with the state that judged that batch; every batch before
it lies entirely below the cut, late items included. The machine's counts of items with one time and tie matter for one
pair at most, the one that the cut lies in: for others all items are on one side of the cut, so they are either all
skipped or all read again.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from typing import Any, NamedTuple

from drift_graph.errors import InputError
from drift_graph.meta import pack_time, read_varint
from drift_graph.metas import Metas
from drift_graph.policies import EventTime
from drift_graph.times import Arrived, Judging, Place, SourceMachine

_FORM = 1


class Position(NamedTuple):
    """Attributes:
    reader: the position of the reader, in the reader's form; None for the beginning.
    entry: for a source that is logged because it cannot be read again: the number of the first log entry to read.
    judging: the state of the source's machine there.
    place: the pair of time and tie that the cut lies in, and how many of its items came before.
    """

    reader: Any
    entry: int | None
    judging: Judging
    place: Place | None


class _Batch(NamedTuple):
    """A batch that was read.

    Attributes:
        before: the position in front of it, without `place`.
        metas: of its items, in the order of arrival.
        seen: the greatest time so far when it had come, or None if its metas are in order.
        late: the greatest heartbeat that a late item in it was behind.
    """

    before: Position
    metas: Metas
    seen: bytes | None
    late: bytes

    def reaches(self, cut: bytes) -> bool:
        """Whether the batch has something at or above a time; may also be true if only an earlier batch has."""
        if self.late >= cut:
            return True
        if self.seen is None:
            return bool(self.metas) and self.metas[-1] >= cut
        return self.seen > cut[:8] or (self.seen == cut[:8] and max(self.metas, default=b"") >= cut)


class Rereading:
    """The batches of one source that may have to be read again; only those that a later cut may need.

    Args:
        machine: of the source.
    """

    def __init__(self, machine: SourceMachine) -> None:
        self._machine = machine
        self._batches: deque[_Batch] = deque()

    def here(self, reader: Any, entry: int | None = None) -> Position:
        """The state of the machine and the position of its reader now."""
        return Position(reader, entry, self._machine.judging, None)

    def add(self, before: Position, arrived: Arrived) -> None:
        """A batch was read, behind the position that `here` gave."""
        seen = None
        if isinstance(self._machine.policy, EventTime):
            greatest = self._machine.judging.greatest
            seen = b"" if greatest is None else pack_time(greatest)
        late = max((pack_time(each.heartbeat) for each in arrived.late), default=b"")
        self._batches.append(_Batch(before, arrived.metas, seen, late))

    def at(self, cut: bytes, here: Position) -> Position:
        """The position to read from for everything at or above a cut; cuts must not decrease between calls.

        Args:
            here: the position of the reader and the machine now.
        """
        batches = self._batches
        while batches and not batches[0].reaches(cut):
            batches.popleft()
        before = batches[0].before if batches else here
        return before._replace(place=self._place(cut))

    def _place(self, cut: bytes) -> Place | None:
        place = self._machine.place_in(cut)
        if place is None:
            return None
        for batch in self._batches:
            for meta in batch.metas:
                if meta.startswith(place):
                    return self._machine.place_before(place, read_varint(meta, len(place))[0])
        return self._machine.place_before(place, None)


def as_plain(position: Position) -> dict[str, Any]:
    """For JSON."""
    judging, place = position.judging, position.place
    return {
        "v": _FORM,
        "reader": position.reader,
        "entry": position.entry,
        "judging": {**judging._asdict(), "heartbeat": judging.heartbeat.hex()},
        "place": None if place is None else [place.first.hex(), place.came, place.payload.hex()],
    }


def from_plain(name: str, plain: Any) -> Position:
    """The inverse of `as_plain`.

    Raises:
        InputError: another version wrote it, or it is damaged.
    """
    try:
        if not isinstance(plain, Mapping) or plain["v"] != _FORM:
            raise ValueError(f"its format is not one of {_FORM}")
        judging, place = plain["judging"], plain["place"]
        return Position(
            plain["reader"],
            plain["entry"],
            Judging(**{**judging, "heartbeat": bytes.fromhex(judging["heartbeat"])}),
            None if place is None else Place(bytes.fromhex(place[0]), place[1], bytes.fromhex(place[2])),
        )
    except (KeyError, TypeError, ValueError, IndexError) as error:
        raise InputError(
            f"source {name!r} cannot go on from {plain!r:.200}: {error}; another version saved it, or it is damaged; "
            f"continue with the version that saved it, or start a new run"
        ) from None
