"""When what a sink has gathered is written: by number, by size on the disk, and by the clock.

Invariant: it is due at the latest `every_s` after the first item of it came, or after the sink was opened if an earlier
run has left it.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from drift.fields import check_names
from drift.sinks.resuming import Last, Resuming, ResumingSink
from drift_graph.errors import SettingsError
from drift_graph.metas import Metas
from drift_graph.moments import Span, span_from
from drift_graph.numbers import check_int
from drift_graph.sizes import about_bytes, bytes_in

if TYPE_CHECKING:
    from drift.sinks.typed import Gathered

_MEASURED_BYTES = 1 << 14  # smaller files have little but what any file has


class Limits(NamedTuple):
    """What a part has at most; None for any."""

    items: int
    bytes: int | None
    every_s: float | None


def limits_of(part_items: int, part_bytes: int | str | None, part_every: Span | None) -> Limits:
    """The arguments of a sink. Raises SettingsError: one is not valid."""
    check_int("part_items", part_items)
    size = None if part_bytes is None else bytes_in(part_bytes) or 0
    if size is not None and size < 1:
        raise SettingsError(f"part_bytes={part_bytes!r} is neither a number of bytes nor a text such as '128 MB'")
    every_ms = None if part_every is None else span_from(part_every) or 0
    if every_ms is not None and every_ms < 1:
        raise SettingsError(f"part_every={part_every!r} is no length of time, such as '5 minutes'")
    return Limits(part_items, size, None if every_ms is None else every_ms / 1000)


class Filling:
    """What has been gathered since the last part."""

    def __init__(self, limits: Limits) -> None:
        self._limits = limits
        self._on_disk = 1.0  # bytes on the disk for each byte in memory, as of the last file
        self.clear()

    def clear(self) -> None:
        self._items = self._stored_bytes = self._bytes = 0
        self._due_s: float | None = None

    def add(self, payloads: Sequence[Any]) -> None:
        """Items that are in memory."""
        self._items += len(payloads)
        if self._limits.bytes is not None:
            self._bytes += about_bytes(payloads)
        self._expect()

    def measure(self, size: int) -> None:
        """Items that were in memory, and no others, take so many bytes on the disk."""
        if self._bytes and size >= _MEASURED_BYTES:
            self._on_disk = size / self._bytes

    def store(self, items: int, size: int) -> None:
        """There are so many items on the disk, and none in memory, before the next come."""
        self._items, self._bytes = items, 0
        self._stored_bytes += size
        self._expect()

    @property
    def is_full(self) -> bool:
        size = self._bytes * self._on_disk + self._stored_bytes
        return self._items >= self._limits.items or (self._limits.bytes is not None and size >= self._limits.bytes)

    @property
    def is_due(self) -> bool:
        return self._due_s is not None and self.now_s() >= self._due_s

    def _expect(self) -> None:
        if self._due_s is None and self._limits.every_s is not None:
            self._due_s = self.now_s() + self._limits.every_s

    def now_s(self) -> float:
        return time.monotonic()


class GatheringSink(ResumingSink):
    """A sink that gathers items, and writes them (`_flush`) once a limit is reached or it is time.

    Args:
        path: of what is written to.
        columns: names of the fields, or their types by name; None for those of the payloads.
    """

    def __init__(
        self, path: str, columns: Sequence[str] | Mapping[str, Any] | None, limits: Limits, resume: str
    ) -> None:
        super().__init__(path, resume)
        check_names(columns)
        self._path = path
        self._columns = columns
        self._filling = Filling(limits)
        self._items: Gathered | None = None  # that are not written yet

    def _flush(self) -> None:
        """Write all that is gathered."""
        raise NotImplementedError

    def _begin_resuming(self, resume: str) -> Sequence[Resuming]:
        self._items = None
        self._filling.clear()
        return super()._begin_resuming(resume)

    def store(self, positions: Sequence[int], metas: Metas, payloads: Sequence[Any]) -> Last | None:
        if self._items is None:
            from drift.sinks.typed import Gathered

            self._items = Gathered()
        self._items.add(positions, metas, payloads)
        self._filling.add(payloads)
        if self._filling.is_full:
            self._flush()
        self.tick()
        return self._last

    def tick(self) -> None:
        """Items that are due are written."""
        if self._filling.is_due:
            self._flush()
