"""Where a source is to be read from again, so that what is at or above a time comes again as it came before.

Invariant: a reading that begins where `at(cut)` says, with the machine as it says, gives every item at or above the
cut the meta that it had, in the same order, with the heartbeats of the first reading, which judged what is
late in the same way.

Why: it begins before a batch of the first reading, with what judged that batch; and every batch before it lies below
the cut as a whole, late items and all. What a machine knows beside, how many items came at each place, matters for one
place at most: where all items of a place are on one side of the cut, those before are passed over, or none were before.
So only of the place that the cut lies in is it told how many came before.
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
    reader: what a reader is to seek, as the reader gave it; None for the beginning.
    entry: of the log of a source that cannot be read again: the number of the first entry to be taken.
    judging: what the machine of the source knew there.
    place: the place that the cut lies in, and how many came there before.
    """

    reader: Any
    entry: int | None
    judging: Judging
    place: Place | None


class _Batch(NamedTuple):
    """A batch that was read.

    Attributes:
        before: where it was read from; it has no place.
        metas: of its items; in the order of arrival.
        seen: the greatest time that had come with it, or None where its metas are in order.
        late: the greatest heartbeat that a late item in it was behind.
    """

    before: Position
    metas: Metas
    seen: bytes | None
    late: bytes

    def reaches(self, cut: bytes) -> bool:
        """Whether something in it is at or above a time; perhaps also where only a batch before it did."""
        if self.late >= cut:
            return True
        if self.seen is None:
            return bool(self.metas) and self.metas[-1] >= cut
        return self.seen > cut[:8] or (self.seen == cut[:8] and max(self.metas, default=b"") >= cut)


class Rereading:
    """The batches of one source that may have to be read again; as few as the cuts that are asked for allow.

    Args:
        machine: of the source.
    """

    def __init__(self, machine: SourceMachine) -> None:
        self._machine = machine
        self._batches: deque[_Batch] = deque()

    def here(self, reader: Any, entry: int | None = None) -> Position:
        """Where the machine stands, and its reader."""
        return Position(reader, entry, self._machine.judging, None)

    def add(self, before: Position, arrived: Arrived) -> None:
        """A batch was read, behind a position that `here` gave."""
        seen = None
        if isinstance(self._machine.policy, EventTime):
            greatest = self._machine.judging.greatest
            seen = b"" if greatest is None else pack_time(greatest)
        late = max((pack_time(each.heartbeat) for each in arrived.late), default=b"")
        self._batches.append(_Batch(before, arrived.metas, seen, late))

    def at(self, cut: bytes, here: Position) -> Position:
        """Where to read again for everything at or above a cut; cuts may not go back from call to call.

        Args:
            here: where the reader and the machine stand now.
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
    """The other direction.

    Raises:
        InputError: another version wrote it, or nobody.
    """
    try:
        if not isinstance(plain, Mapping) or plain["v"] != _FORM:
            raise ValueError(f"its form is none of {_FORM}")
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
            f"go on with the version that saved it, or begin anew"
        ) from None
