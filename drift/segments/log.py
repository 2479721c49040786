"""The log of a border: what has left a segment for the next one, settled, in the order of metas.

Invariant: entries cover time without a gap: each holds the items from the end of its predecessor to its own end. The
items between two times are the same whoever wrote them, and whenever.

Why: only items below minimal time are written, which are final. So items that a segment produces again, after it
resumed from a checkpoint, are skipped as far as the log reaches; and if entries are lost, later ones are dropped too.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from drift.engines.entries import Entries, LogBroken
from drift_graph.errors import PayloadError
from drift_graph.meta import BEGINNING


class Passed(NamedTuple):
    """Items that left at a border at once.

    Attributes:
        metas, payloads: in the order of metas.
        borders: by which each left: one name for all, or a list.
        below: no further item comes below this time.
    """

    metas: Sequence[bytes]
    payloads: list[Any]
    borders: str | Sequence[str]
    below: bytes

    def from_on(self, time: bytes) -> Passed:
        metas, payloads, borders, below = self
        at = bisect_left(metas, time)
        if not at:
            return self
        return Passed(metas[at:], payloads[at:], borders if isinstance(borders, str) else borders[at:], below)

    def up_to(self, time: bytes) -> Passed:
        metas, payloads, borders, below = self
        if below <= time:
            return self
        at = bisect_left(metas, time)
        return Passed(metas[:at], payloads[:at], borders if isinstance(borders, str) else borders[:at], time)


class BorderLog:
    """The settled items that have left one segment for the next, in files.

    Args:
        folder: of this log alone.
        step: in front of the border, for messages: "durable step 'x'".

    Attributes:
        what: its description, for messages.
        begin, end: the range of times it covers.
    """

    def __init__(self, folder: Path, step: str, *, on_disk: bool = False) -> None:
        self.what = f"the log of {step} in {folder}"
        self._entries = Entries(folder, step, on_disk=on_disk)
        self._ends: list[tuple[int, bytes]] = []  # numbers of entries and their ends, in order
        self.begin = self.end = BEGINNING
        self.broken = ""

    def open_to_read(self) -> None:
        """Read which entries there are, up to the first whose checksum is wrong."""
        try:
            for number, (begin, end, *_) in self._entries.read(self._entries.first_number):
                if not self._ends:
                    self.begin = begin
                self._ends.append((number, end))
                self.end = end
        except LogBroken as broken:
            self.broken = str(broken)

    def joins(self, before: bytes, after: bytes) -> bool:
        """Whether the segment before the log can resume from time `before`, and the segment after it from `after`."""
        return before <= after or self._has(before, after)

    def _has(self, before: bytes, after: bytes) -> bool:
        return before <= self.end and (self.begin <= after or self.end <= after)

    def resume(self, before: bytes, after: bytes) -> None:
        """Both segments resume from these times; retain the entries that are needed."""
        has = self._has(before, after)
        if has and not self.broken:
            return
        retained = list(self.read(after)) if has else []
        self.begin_at(after if retained else before)
        for each in retained:
            self.write(each)

    def clear(self) -> None:
        """Remove entries of a run that has committed no checkpoint."""
        self.begin_at(BEGINNING)

    def begin_at(self, time: bytes) -> None:
        """Have nothing, of what is below a time and above."""
        self._entries.clear()
        self._ends, self.broken = [], ""
        self.begin = self.end = time

    def read(self, begin: bytes) -> Iterator[Passed]:
        """The entries from a time on; not those written meanwhile."""
        from_on = [number for number, end in list(self._ends) if end > begin]
        if not from_on:
            return
        first, last = from_on[0], from_on[-1]
        for number, (_, end, names, which, metas, _, data) in self._entries.read(first):
            borders = names[0] if len(names) == 1 else [names[at] for at in which]
            yield Passed(metas, self._entries.payloads(data), borders, end).from_on(begin)
            if number == last:
                return

    def write(self, passed: Passed) -> PayloadError | None:
        """Write items after the present end; returns the error of the first payload that could not be restored."""
        metas, payloads, borders, below = passed
        data, bad = self._entries.stored(payloads)
        if bad is not None:
            return bad[1]
        names = [borders] if isinstance(borders, str) else sorted(set(borders))
        index = {name: at for at, name in enumerate(names)}
        which = bytes(map(index.__getitem__, borders)) if len(names) > 1 else b""
        self._ends.append((self._entries.next_number, below))
        self._entries.append([self.end, below, names, which, list(metas)], data)
        self.end = below
        return None

    def reach(self, below: bytes) -> None:
        """Everything below this time has been written."""
        if self.end < below:
            self.write(Passed([], [], "", below))

    def drop_below(self, time: bytes) -> None:
        """Entries below this time are not needed any more; called by another thread than the other methods."""
        ends = list(self._ends)  # others may be appended meanwhile
        at = next((at for at, (_, end) in enumerate(ends) if end > time), None)
        if at is not None:
            self._entries.drop_below(ends[at][0])
            del self._ends[:at]

    def close(self) -> None:
        self._entries.close()

    # As a sink of the segment before.

    def commit(self) -> None:
        """Wait until it is on the disk."""
        self._entries.flush()


class Unlogged(BorderLog):
    """The place of a log in a run without state: items pass, and nothing is kept."""

    def __init__(self) -> None:
        self.what = "no log"
        self.begin = self.end = BEGINNING
        self.broken = ""

    def read(self, begin: bytes) -> Iterator[Passed]:
        return iter(())

    def write(self, passed: Passed) -> PayloadError | None:
        self.end = passed.below
        return None

    def close(self) -> None:
        pass
