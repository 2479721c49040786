"""The log of a source that cannot be read again: its payloads, and the decisions of clocks about them.

Invariant: what the dataflow was given is in the log before it was; and a log that is repeated gives the same payloads,
the same stamps and the same heartbeats in the same order, up to the last entry that is whole.

Why: `Entries` has an entry when `append` returns, and nothing was made of it before; what the source's machine makes
of it depends on both alone.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import quote

from drift.engines.entries import Entries
from drift.guarantees import why_not_again, why_otherwise
from drift.sources.base import Positioned, Reader, Source
from drift_graph.errors import PayloadError
from drift_graph.policies import TimePolicy

_ITEMS, _HEARTBEAT, _END = range(3)


def why_logged(source: Source, policy: TimePolicy, reader: Reader) -> str:
    """Why a run can go on only with a log of what a source gave; "" where reading it again has the same effect."""
    if isinstance(reader, Positioned) and reader.position() is not None:
        return why_otherwise(source, policy)
    return why_not_again(source, policy) or "it has no position to be read from"


class Entry(NamedTuple):
    """Attributes:
    number: from 0.
    payloads: that came; None where the source ended, empty for a heartbeat.
    at_ms: what they were stamped with, if they were.
    heartbeat: below which an idle policy has decided that nothing comes; or None.
    reader: where the source went on from behind it, if it told.
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
        name: of the source.
        on_disk: wait for the disk with each entry, so that it is there after a machine lost power, too.
    """

    def __init__(self, folder: Path, name: str, *, on_disk: bool = False) -> None:
        super().__init__(folder / quote(name, safe=""), f"source {name!r}", on_disk=on_disk)

    def items(self, payloads: list[Any], at_ms: int, reader: Any) -> tuple[list[Any], PayloadError | None]:
        """Write that these came; those that could be written, and the error of the first that could not."""
        data, bad = self.stored(payloads)
        kept = payloads if bad is None else payloads[: bad[0]]
        if kept:
            self.append([_ITEMS, at_ms, reader], data)
        return kept, None if bad is None else bad[1]

    def heartbeat(self, time: int) -> None:
        """Write what the idle policy has decided."""
        self.append([_HEARTBEAT, time])

    def end(self) -> None:
        """Write that the source has ended."""
        self.append([_END])

    def repeat(self, first: int) -> Iterator[Entry]:
        """The entries from one on, which may be behind the last; then the log goes on behind them.

        Raises:
            LogBroken: one of them is not there, or damaged.
        """
        for number, (kind, *rest) in self.read(first):
            if kind == _END:
                yield Entry(number, None, 0, None, None)
            elif kind == _HEARTBEAT:
                yield Entry(number, [], 0, rest[0], None)
            else:
                at_ms, reader, _, data = rest
                yield Entry(number, self.payloads(data), at_ms, None, reader)
