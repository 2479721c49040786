"""The log of a source that cannot be read again: its payloads, and the decisions of clocks about them.

Invariant: input is in the log before the dataflow gets it; and a replay of the log gives the same payloads, the same
stamps and the same heartbeats in the same order, up to the last complete entry.

Why: an entry is stored when `append` returns, and is processed only then; the output of the source's machine depends
only on payloads and decisions.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import quote

import xxhash

from drift.engines.entries import Entries
from drift.guarantees import why_effect_differs, why_not_reread
from drift.sources.base import Reader, Source
from drift_graph.errors import PayloadError
from drift_graph.policies import TimePolicy

_ITEMS, _HEARTBEAT, _END = range(3)
_NAME_BYTES_MAX = 200  # of a folder, but for a hash behind it; disks take 255


def why_logged(source: Source, policy: TimePolicy, reader: Reader) -> str:
    """Why a run needs a log of this source to resume; "" if reading the source again has the same effect."""
    if reader.position() is not None:
        return why_effect_differs(source, policy)
    return why_not_reread(source, policy) or "it has no position to be read from"


class Entry(NamedTuple):
    """Attributes:
    number: from 0.
    payloads: of the batch; None at the end of the source, empty for a heartbeat.
    at_ms: the stamp of the payloads, if the clock stamps them.
    heartbeat: the time below which, by decision of an idle policy, nothing comes; or None.
    reader: the position of the source's reader after the entry, if it has one.
    """

    number: int
    payloads: list[Any] | None
    at_ms: int
    heartbeat: int | None
    reader: Any


class ArrivalLog(Entries):
    """The log of one source, in a folder of its own.

    Args:
        folder: of the logs of a run.
        on_disk: flush each entry to the disk, so that it also survives a power failure.
    """

    def __init__(self, folder: Path, name: str, *, on_disk: bool = False) -> None:
        super().__init__(folder / _folder_of(name), f"source {name!r}", on_disk=on_disk)

    def items(self, payloads: list[Any], at_ms: int, reader: Any) -> tuple[list[Any], PayloadError | None]:
        """Write a batch, which may be empty; returns the payloads before the first that could not be written, and its
        error.
        """
        data, bad = self.stored(payloads)
        logged = payloads if bad is None else payloads[: bad[0]]
        if bad is None or logged:
            self.append([_ITEMS, at_ms, reader], data)
        return logged, None if bad is None else bad[1]

    def heartbeat(self, time: int) -> None:
        """Write a decision of the idle policy."""
        self.append([_HEARTBEAT, time])

    def end(self) -> None:
        """Write that the source has ended."""
        self.append([_END])

    def repeat(self, first: int) -> Iterator[Entry]:
        """All entries from `first` on; afterwards entries are appended after them.

        Args:
            first: may be the number after the last entry.

        Raises:
            LogBroken: one of them is missing or damaged.
        """
        for number, (kind, *rest) in self.read(first):
            if kind == _END:
                yield Entry(number, None, 0, None, None)
            elif kind == _HEARTBEAT:
                yield Entry(number, [], 0, rest[0], None)
            else:
                at_ms, reader, _, data = rest
                yield Entry(number, self.payloads(data), at_ms, None, reader)


def _folder_of(name: str) -> str:
    """The name of the folder of a source, which no other source has, and any disk takes."""
    quoted = quote(name, safe="") if name.strip(".") else name.replace(".", "%2E")
    if len(quoted) <= _NAME_BYTES_MAX:
        return quoted
    return f"{quoted[:_NAME_BYTES_MAX]}~{xxhash.xxh3_128_hexdigest(name.encode())}"
