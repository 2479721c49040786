"""Checks that the columns of a record agree with each other.

Invariant: in rows that pass, every column except metas and payloads has the value that follows from the metas, the
manifest and the arrivals: ties end where paths begin and name the source, positions count up, metas increase, sinks and
sources are those of the graph. The input consists of the batches that arrived; none of its items is below its source's
heartbeat or has the global time of another one.

Why: hashes show that a record was not edited, unless somebody recomputed them all. Then a single column can only be
forged if no other column implies it. Not implied are: payloads; times and ties of input items, within the limits of
heartbeats and uniqueness; clock times; payloads of late items and why they were late; and the checks of the items in
the blocks, which only locate differences.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
import numpy as np
import numpy.typing as npt
import pyarrow as pa

from drift.records import columns
from drift.records.columns import BIN_HEAD_BYTES, BIN_MAX, Numbers, Strings, first_of
from drift.records.doubles import Double, Doubles
from drift.records.format import Manifest
from drift.records.metas import GLOBAL_TIME, META, bins_of, metas_of, wrong_rank, wrong_tie
from drift.records.tables import batches_in
from drift_graph.meta import BEGINNING, END_OF_TIME, time_of

Codes = npt.NDArray[np.int32]

#: A count in a record may be any number; larger ones are cut to this, so that sums do not overflow.
_COUNT_MAX = 1 << 31


class Wrong(NamedTuple):
    """The first row whose column does not agree; "order" means that a meta is not above the one before."""

    column: str
    text: str
    row: int


class OutputRows:
    """Checks rows of the output, from the first on.

    Attributes:
        names: of the columns it needs.
    """

    names = ("position", "sink", *META, "payload")

    def __init__(self, manifest: Manifest) -> None:
        self._sinks = manifest.sinks
        self._last = b""

    def at_end(self) -> Iterator[Wrong]:
        """Disagreements found after the last row; none for the output."""
        return iter(())

    def wrongs(self, rows: Any, bins: Strings, first: int, expected: int | None = None) -> Iterator[Wrong]:
        """Disagreements in the next rows.

        Args:
            rows: a RecordBatch or a Table.
            bins: the canonical bytes of their metas.
            first: index of the first of them.
            expected: how many rows there should be; some may be missing.
        """
        if not len(rows):
            return
        if (at := wrong_tie(rows)) is not None:
            yield Wrong("tie", f"the tie at position {first + at:,} is none", first + at)
        positions = columns.numbers(rows.column("position"))
        if (at := first_of(positions != np.arange(first, first + len(rows)))) is not None:
            yield Wrong("position", f"the row of position {first + at:,} says position {positions[at]:,}", first + at)
        if (at := self._out_of_order(rows, bins)) is not None:
            yield Wrong("order", f"the meta at position {first + at:,} is not above the one before", first + at)
        unknown = _unknown("sink", self._sinks, rows, _codes(rows.column("sink"), self._sinks), first)
        if unknown is not None:
            yield unknown

    def _out_of_order(self, rows: Any, bins: Strings) -> int | None:
        metas, head = bins, BIN_HEAD_BYTES
        if int(bins.lengths.max()) > BIN_HEAD_BYTES + BIN_MAX:  # longer ones have another header
            metas, head = metas_of(rows), 0
        first, last = (metas.slice(at, at + 1).joined().tobytes()[head:] for at in (0, len(rows) - 1))
        before, self._last = self._last, last
        if first <= before:
            return 0
        times = columns.numbers(rows.column("time"))
        return None if (times[1:] > times[:-1]).all() else columns.first_not_increasing(metas, head)


class InputRows:
    """Checks rows of the input, from the first on; see `OutputRows`."""

    names = ("batch", "source", *GLOBAL_TIME, "payload")

    def __init__(self, path: Path, manifest: Manifest) -> None:
        self._sources = [source.name for source in manifest.sources]
        self._arrived: ArrivedRows | None = ArrivedRows(path, manifest, "items")
        self._doubles: Doubles | None = Doubles(path, manifest)

    def wrongs(self, rows: Any, bins: Strings, first: int, expected: int | None = None) -> Iterator[Wrong]:
        """See `OutputRows`."""
        arrived = self._taken(len(rows) if expected is None else expected)
        if not len(rows):
            return
        no_tie = wrong_tie(rows)
        if no_tie is not None:
            yield Wrong("tie", f"the tie at input row {first + no_tie:,} is none", first + no_tie)
        codes = _codes(rows.column("source"), self._sources)
        unknown = _unknown("source", self._sources, rows, codes, first)
        if unknown is not None:
            yield unknown
        wrong: Wrong | None = None
        floors: Numbers | None = None
        if arrived is not None and expected in (None, len(rows)):
            wrong = self._not_as_arrived(rows, codes, bins, arrived, first)
            if wrong is None:
                floors = arrived.floors
            else:
                self._arrived = None  # later rows would disagree too
        if no_tie is None and unknown is None:
            yield from self._twice(columns.numbers(rows.column("time")), bins, codes, floors)
        elif self._doubles is not None:
            self._doubles.pass_over(len(rows))
        if wrong is not None:
            yield wrong
        elif unknown is None and (at := wrong_rank(rows, codes)) is not None:
            yield Wrong("tie", f"the tie at input row {first + at:,} is that of another source", first + at)

    def at_end(self) -> Iterator[Wrong]:
        """Disagreements found after the last row."""
        if self._doubles is not None:
            yield from map(_twice, self._doubles.end())

    def _twice(self, times: Numbers, bins: Strings, codes: Codes, floors: Numbers | None) -> Iterator[Wrong]:
        """Duplicates of a global time, as long as the arrivals agree: their heartbeats bound what must be held."""
        if self._doubles is not None:
            yield from map(_twice, self._doubles.add(times, bins, codes, floors))
        if self._arrived is None:
            yield from self.at_end()
            self._doubles = None

    def _taken(self, count: int) -> ArrivedPart | None:
        try:
            return self._arrived.take(count) if self._arrived is not None else None
        except (OSError, pa.ArrowException, ValueError):
            self._arrived = None  # reported by the check of the arrivals
            return None

    def _not_as_arrived(self, rows: Any, codes: Codes, bins: Strings, arrived: ArrivedPart, first: int) -> Wrong | None:
        count = len(arrived.batches)
        times = columns.numbers(rows.column("time"))
        batches = columns.numbers(rows.column("batch"))
        if (at := first_of(batches[:count] != arrived.batches)) is not None:
            text = f"input row {first + at:,} says batch {batches[at]}, and the arrivals say {arrived.batches[at]}"
            return Wrong("batch", text, first + at)
        if count < len(times):
            return Wrong("arrivals", f"the arrivals end before input row {first + count:,}", first + count)
        if (at := first_of(codes != arrived.sources)) is not None:
            text = f"input row {first + at:,} says another source than the arrivals say of its batch, {batches[at]}"
            return Wrong("source", text, first + at)
        if (at := first_of(times < arrived.floors)) is None:
            at = self._below_within_a_time(bins, np.flatnonzero(times == arrived.floors), arrived.batches)
        if at is not None:
            text = f"input row {first + at:,} has time {times[at]}, below its source's heartbeat"
            return Wrong("heartbeat", f"{text}, {arrived.floors[at]}", first + at)
        return None

    def _below_within_a_time(self, bins: Strings, rows: Numbers, batches: Numbers) -> int | None:
        """The first row that is below a heartbeat which ends within its time."""
        assert self._arrived is not None
        for row in rows.tolist() if self._arrived.within else ():
            floor = self._arrived.within.get(int(batches[row]))
            if floor is not None and msgspec.msgpack.decode(bins.slice(row, row + 1).joined()) < floor:
                return int(row)
        return None


class ArrivedPart(NamedTuple):
    """For rows: the batch, the source's rank (-1: not in the graph), and the time of the source's heartbeat."""

    batches: Numbers
    sources: Codes
    floors: Numbers


class ArrivedRows:
    """What the arrivals imply for every row of a table, in order.

    Args:
        counts: "items" for the input, "late" for the late items.

    Attributes:
        within: by batch, its source's heartbeat, if that ends within a time.
    """

    def __init__(self, path: Path, manifest: Manifest, counts: str) -> None:
        self.within: dict[int, bytes] = {}
        self._parts = self._read(path, manifest, counts)
        self._left = ArrivedPart(np.zeros(0, np.int64), np.zeros(0, np.int32), np.zeros(0, np.int64))
        self._counts = np.zeros(0, np.int64)

    def take(self, count: int) -> ArrivedPart:
        """The next rows; fewer if the arrivals end."""
        while int(self._counts.sum()) < count and (following := next(self._parts, None)) is not None:
            part, counts = following
            left = self._left
            self._left = ArrivedPart(
                np.concatenate([left.batches, part.batches]),
                np.concatenate([left.sources, part.sources]),
                np.concatenate([left.floors, part.floors]),
            )
            self._counts = np.concatenate([self._counts, counts])
        ends = np.cumsum(self._counts)
        taken = np.minimum(self._counts, np.maximum(count - (ends - self._counts), 0))
        batches, sources, floors = self._left
        rows = ArrivedPart(np.repeat(batches, taken), np.repeat(sources, taken), np.repeat(floors, taken))
        complete = int(np.searchsorted(ends, count, "right"))
        self._counts = (self._counts - taken)[complete:]
        self._left = ArrivedPart(batches[complete:], sources[complete:], floors[complete:])
        return rows

    def _read(self, path: Path, manifest: Manifest, counts: str) -> Iterator[tuple[ArrivedPart, Numbers]]:
        sources = [source.name for source in manifest.sources]
        heartbeats = dict.fromkeys(range(-1, len(sources)), BEGINNING)
        for rows in _rows(path, manifest, "arrivals", ["batch", "source", counts, "heartbeat"]):
            batches = columns.numbers(rows.column("batch"))
            codes = _codes(rows.column("source"), sources)
            floors = []
            for batch, code, heartbeat in zip(batches.tolist(), codes.tolist(), rows.column("heartbeat").to_pylist()):
                floors.append(_time_of_heartbeat(heartbeats[code]))
                if len(heartbeats[code]) > 8:
                    self.within[batch] = heartbeats[code]
                heartbeats[code] = heartbeat
            part = ArrivedPart(batches, codes, np.array(floors, np.int64))
            yield part, np.clip(columns.numbers(rows.column(counts)), 0, _COUNT_MAX)


def wrong_in_arrivals(path: Path, manifest: Manifest) -> Wrong | None:
    """Disagreements among the arrivals, and with the manifest; rows are batches."""
    sources = [source.name for source in manifest.sources]
    heartbeats = [BEGINNING] * len(sources)
    first = items = late = 0
    for rows in _rows(path, manifest, "arrivals"):
        batches = columns.numbers(rows.column("batch"))
        if (at := first_of(batches != np.arange(first, first + len(batches)))) is not None:
            return Wrong("batch", f"the arrival of batch {first + at:,} says batch {batches[at]:,}", first + at)
        codes = _codes(rows.column("source"), sources)
        if (unknown := _unknown("source", sources, rows, codes, first)) is not None:
            return unknown
        for batch, (code, heartbeat) in enumerate(zip(codes.tolist(), rows.column("heartbeat").to_pylist()), first):
            if not heartbeats[code] <= heartbeat <= END_OF_TIME:
                below, before = (each[:40].hex() for each in (heartbeat, heartbeats[code]))
                problem = f"the heartbeat of source {sources[code]!r}, {below}, is below the one before, {before}"
                return Wrong("heartbeat", f"after batch {batch:,} {problem}", batch)
            heartbeats[code] = heartbeat
        for name in ("items", "late"):
            counts = columns.numbers(rows.column(name))
            if (at := first_of(counts < 0)) is not None:
                return Wrong(name, f"batch {first + at:,} has {counts[at]:,} {name}", first + at)
        items += sum(columns.numbers(rows.column("items")).tolist())
        late += sum(columns.numbers(rows.column("late")).tolist())
        first += len(batches)
    if manifest.outcome.state == "finished":
        for name, heartbeat in zip(sources, heartbeats):
            if heartbeat != END_OF_TIME:
                text = f"the manifest says that the run finished, and source {name!r} has no heartbeat at its end"
                return Wrong("heartbeat", text, first)
    if (items, late) != (manifest.items_in, manifest.late_items):
        in_manifest = f"the manifest of {manifest.items_in:,} and {manifest.late_items:,}"
        return Wrong("items", f"the arrivals have {items:,} items and {late:,} late ones, and {in_manifest}", first)
    return None


def wrong_in_input(path: Path, manifest: Manifest) -> Wrong | None:
    """Disagreements in the input, except its payloads."""
    agreement = InputRows(path, manifest)
    first = 0
    for rows in _rows(path, manifest, "input", ["batch", "source", *GLOBAL_TIME], coded=True):
        for wrong in agreement.wrongs(rows, bins_of(rows, GLOBAL_TIME), first):
            return wrong
        first += len(rows)
    return next(agreement.at_end(), None)


def wrong_in_late(path: Path, manifest: Manifest) -> Wrong | None:
    """Disagreements in the late items, with each other and with the arrivals."""
    sources = [source.name for source in manifest.sources]
    arrived = ArrivedRows(path, manifest, "late")
    first = 0
    for rows in _rows(path, manifest, "late"):
        expected = arrived.take(len(rows))
        batches, codes = columns.numbers(rows.column("batch")), _codes(rows.column("source"), sources)
        count = len(expected.batches)
        if (at := first_of(batches[:count] != expected.batches)) is not None:
            text = f"late item {first + at:,} says batch {batches[at]:,}, and the arrivals {expected.batches[at]:,}"
            return Wrong("batch", text, first + at)
        if count < len(rows):
            return Wrong("batch", f"the arrivals end before late item {first + count:,}", first + count)
        if (at := first_of(codes != expected.sources)) is not None:
            return Wrong("source", f"late item {first + at:,} says another source than the arrivals", first + at)
        times, heartbeats = columns.numbers(rows.column("time")), columns.numbers(rows.column("heartbeat"))
        if (at := first_of(times >= heartbeats)) is not None:
            text = f"late item {first + at:,} has time {times[at]}, which is not below the heartbeat, {heartbeats[at]}"
            return Wrong("time", text, first + at)
        first += len(rows)
    return None


def _rows(
    path: Path, manifest: Manifest, table: str, names: list[str] | None = None, *, coded: bool = False
) -> Iterator[pa.RecordBatch]:
    return batches_in([path / file.path for file in manifest.of(table)], table, names, coded=coded)


def _twice(double: Double) -> Wrong:
    that = f"of row {double.first_row:,}, of batch {double.first_batch:,}"
    item = f"input row {double.row:,}, of batch {double.batch:,}, has the global time {that}"
    if double.is_equal:
        return Wrong("item", f"{item}, and the same payload: the item is there twice", double.row)
    return Wrong("global time", f"{item}, and another payload", double.row)


def _time_of_heartbeat(heartbeat: bytes) -> int:
    """The time in a heartbeat: no later item of the source has a lower time."""
    return time_of(heartbeat[:8].ljust(8, b"\0"))


def _unknown(column: str, names: list[str], rows: Any, codes: Codes, first: int) -> Wrong | None:
    """The error for the first row with an unknown name; `codes` are those of the column."""
    at = first_of(codes < 0)
    if at is None:
        return None
    name = rows.column(column)[at].as_py()
    return Wrong(column, f"a {column} is named {name!r:.80}, and the graph has {', '.join(names)}", first + at)


def _codes(column: Any, names: list[str]) -> Codes:
    """The index of each in a list of names; -1 for unknown ones."""
    if isinstance(column, pa.ChunkedArray):
        column = column.unify_dictionaries()
        column = pa.concat_arrays(column.chunks) if column.num_chunks != 1 else column.chunk(0)
    indexes = {name: index for index, name in enumerate(names)}
    known = np.array([indexes.get(name, -1) for name in column.dictionary.to_pylist()], np.int32)
    codes: Codes = columns.numbers(column.indices)
    return codes if np.array_equal(known, np.arange(len(known))) else known[codes]
