"""The log of a border: what has left a segment for the next one, settled, in the order of metas.

Invariant: entries follow each other in time without a gap: each has what lies between where the one before ended and
where it ends. What is between two times that the log has is the same whoever wrote it, and whenever.

Why: only what lies below minimal time is written, which is final. So what a segment gives once more, after it went back
to a cut of its own, is passed over as far as the log goes; and where entries are lost, what comes behind them is too.
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
    """What has passed a border at once.

    Attributes:
        metas, payloads: in the order of metas.
        borders: by which it left: one name for all, or one for each.
        below: nothing below it comes any more.
    """

    metas: Sequence[bytes]
    payloads: list[Any]
    borders: str | Sequence[str]
    below: bytes

    def from_on(self, time: bytes) -> Passed:
        """What of it is at or above a time."""
        metas, payloads, borders, below = self
        at = bisect_left(metas, time)
        if not at:
            return self
        return Passed(metas[at:], payloads[at:], borders if isinstance(borders, str) else borders[at:], below)

    def up_to(self, time: bytes) -> Passed:
        """What of it is below a time."""
        metas, payloads, borders, below = self
        if below <= time:
            return self
        at = bisect_left(metas, time)
        return Passed(metas[:at], payloads[:at], borders if isinstance(borders, str) else borders[:at], time)


class BorderLog:
    """See the module.

    Args:
        folder: of this log alone.
        step: what the border is behind, for messages.

    Attributes:
        what: it is, for messages.
        begin, end: it has what is between these times.
    """

    def __init__(self, folder: Path, step: str, *, on_disk: bool = False) -> None:
        self.what = f"the log of durable step {step} in {folder}"
        self._entries = Entries(folder, f"durable step {step}", on_disk=on_disk)
        self._ends: list[tuple[int, bytes]] = []  # numbers of entries, and where they end, in order
        self.begin = self.end = BEGINNING
        self.broken = ""

    def look(self) -> None:
        """What is there: compared with the checks of its bytes, up to the first that is not as it was written."""
        try:
            for number, (begin, end, *_) in self._entries.read(self._entries.first_number):
                if not self._ends:
                    self.begin = begin
                self._ends.append((number, end))
                self.end = end
        except LogBroken as broken:
            self.broken = str(broken)

    def joins(self, before: bytes, behind: bytes) -> bool:
        """Whether with it the segment before can go on from one time, and the segment behind it from another."""
        return before <= behind or self._has(before, behind)

    def _has(self, before: bytes, behind: bytes) -> bool:
        return before <= self.end and (self.begin <= behind or self.end <= behind)

    def go_on(self, before: bytes, behind: bytes) -> None:
        """They go on from these times: what it has of use for that stays."""
        has = self._has(before, behind)
        if has and not self.broken:
            return
        kept = list(self.read(behind)) if has else []
        self._clear(behind if kept else before)
        for each in kept:
            self.write(each)

    def begin_anew(self) -> None:
        """Forget what is there of a run that has committed no cut."""
        self._clear(BEGINNING)

    def _clear(self, time: bytes) -> None:
        self._entries.clear()
        self._ends, self.broken = [], ""
        self.begin = self.end = time

    def read(self, begin: bytes) -> Iterator[Passed]:
        """What it has from a time on, as it was written; nothing that is written meanwhile."""
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
        """Take what comes behind what there is; the error of the first payload that could not be read again."""
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
        """All below this has been written."""
        if self.end < below:
            self.write(Passed([], [], "", below))

    def drop_below(self, time: bytes) -> None:
        """What is below it is not asked for any more; called by another thread than the others."""
        ends = list(self._ends)  # others may come meanwhile, behind these
        at = next((at for at, (_, end) in enumerate(ends) if end > time), None)
        if at is not None:
            self._entries.drop_below(ends[at][0])
            del self._ends[:at]

    def close(self) -> None:
        self._entries.close()

    # As a sink of the segment before.

    def commit(self) -> None:
        """Wait until the disk has it."""
        self._entries.flush()
