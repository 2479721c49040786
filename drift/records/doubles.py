"""Finds two items of a source with one global time.

Invariant: an item with the global time of an earlier one is found, at the latest at the end, unless it is below its
source's heartbeat, which is reported separately. Memory holds what the source had not settled, at most twice, and some
ten thousand items more.

Why: an item above all before it is no duplicate, so for a source in order nothing is compared: its items are only held,
in order, in case later ones are not above them. An item that is not above all goes into a pool, together with the held
items of its time. The pool is sorted whenever it has doubled since the last time, so an item is sorted about twice,
however much is unsettled. Sorted are hashes of 64 bits of the global times. If several items have one hash, the input
is read again and the items themselves are compared.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from drift.records import columns
from drift.records.columns import BIN_HEAD_BYTES, Numbers, Strings, first_not_increasing, words_of
from drift.records.format import Manifest
from drift.records.metas import GLOBAL_TIME, bins_of
from drift.records.tables import batches_in
from drift_graph.meta import TIME_MIN, pack_time

Keys = npt.NDArray[np.uint64]
Flags = npt.NDArray[np.bool_]
Codes = npt.NDArray[np.int32]

_POOL_MIN = 1 << 16
_ABOVE_ALL = b"\xff" * 28  # above any global time, behind the time
_HALF = np.uint64(32)
_MIX = np.uint64(0x9E3779B97F4A7C15)  # odd, and without a pattern in its bits
_NONE: Keys = np.zeros(0, np.uint64)


class Items(NamedTuple):
    """Some items of a source, by their global times.

    Attributes:
        bins: canonical bytes of global times, including those of these items.
        rows: their indices.
    """

    times: Numbers
    bins: Strings
    rows: Numbers

    def which(self, wanted: Flags) -> Items:
        indexes = np.flatnonzero(wanted)
        return Items(self.times[indexes], self.bins, self.rows[indexes])

    def at(self, index: int) -> bytes:
        """The global time of one item."""
        row = int(self.rows[index])
        return self.bins.slice(row, row + 1).joined().tobytes()[BIN_HEAD_BYTES:]

    def keys(self) -> Keys:
        """A hash for each, the same for the same global time."""
        words, offsets = words_of(self.bins.data), self.bins.offsets
        starts, ends = offsets[self.rows] + BIN_HEAD_BYTES, offsets[self.rows + 1]
        lengths = ends - starts
        keys = _mixed(self.times.view(np.uint64), words[ends - 8])
        for at in range(8, int(lengths.max(initial=0)) - 8, 8):  # bytes between the time and the last eight
            between = lengths > at + 8
            keys[between] = _mixed(keys[between], words[starts[between] + at])
        return keys


def _mixed(keys: Keys, words: Keys) -> Keys:
    keys = (keys * _MIX ^ words) * _MIX
    keys ^= keys >> _HALF
    return keys


class Source:
    """What has come from one source."""

    def __init__(self) -> None:
        self._highest: int | None = None
        self._last = b""  # the greatest global time, or a bound above it and below those of later times
        self._held: list[Items] = []  # in order
        self._pool: list[tuple[Numbers, Keys]] = []
        self._pooled = 0
        self._sort_at = _POOL_MIN

    def add(self, items: Items, heartbeat: int) -> Keys:
        """Add the next items, one or more; returns hashes that several checked items have.

        Args:
            heartbeat: the source's heartbeat, as a time, when the last of them came.
        """
        late = self._late(items)
        if late is None:
            self._held.append(items)
        else:
            self._held.append(items.which(~late))
            self._move(items.which(late))
        self._held = [each for each in self._held if len(each.times) and each.times[-1] >= heartbeat]
        return self._repeated(heartbeat) if self._pooled >= self._sort_at else _NONE

    def end(self) -> Keys:
        """Hashes that several of the remaining items have."""
        return self._repeated(None)

    def _late(self, items: Items) -> Flags | None:
        """Which of the next items may not be above all before them; None if all are."""
        times, before = items.times, self._highest
        highest = int(times.max())
        self._highest = highest if before is None else max(before, highest)
        if self._are_above(items, before):
            self._last = items.at(-1)
            return None
        self._last = pack_time(self._highest) + _ABOVE_ALL
        late = np.zeros(len(times), bool)
        late[1:] = times[1:] <= np.maximum.accumulate(times)[:-1]
        if before is not None:
            late |= times <= before
        return late if 2 * int(late.sum()) < len(late) else np.ones(len(late), bool)

    def _are_above(self, items: Items, before: int | None) -> bool:
        """Whether each is clearly above all before it."""
        times, rows = items.times, items.rows
        if (before is None or times[0] > before) and (times[1:] > times[:-1]).all():
            return True
        if (times[1:] < times[:-1]).any() or items.at(0) <= self._last or rows[-1] - rows[0] != len(rows) - 1:
            return False
        return first_not_increasing(items.bins.slice(rows[0], rows[-1] + 1), BIN_HEAD_BYTES) is None

    def _move(self, late: Items) -> None:
        """Move items into the pool, with the held items of their times."""
        self._add_to_pool(late)
        for index, run in enumerate(self._held):
            if not len(run.times):
                continue
            times = late.times[(late.times >= run.times[0]) & (late.times <= run.times[-1])]
            starts, ends = (np.searchsorted(run.times, times, side) for side in ("left", "right"))
            begun, ended = (np.bincount(indexes, minlength=len(run.times) + 1) for indexes in (starts, ends))
            same = np.cumsum(begun - ended)[:-1] > 0
            if same.any():
                self._add_to_pool(run.which(same))
                self._held[index] = run.which(~same)

    def _add_to_pool(self, items: Items) -> None:
        self._pool.append((items.times, items.keys()))
        self._pooled += len(items.times)

    def _repeated(self, heartbeat: int | None) -> Keys:
        """Hashes that several in the pool have; items below the heartbeat leave it."""
        if not self._pool:
            return _NONE
        times, keys = (np.concatenate(parts) for parts in zip(*self._pool))
        ordered = np.sort(keys)
        if heartbeat is not None:
            left = times >= heartbeat
            times, keys = times[left], keys[left]
        self._pool, self._pooled = [(times, keys)], len(times)
        self._sort_at = max(_POOL_MIN, 2 * self._pooled)
        repeated: Keys = ordered[1:][ordered[1:] == ordered[:-1]]
        return repeated


class Double(NamedTuple):
    """An input item with the global time of an earlier one.

    Attributes:
        row, batch: of the item.
        first_row, first_batch: of the earlier one.
        is_equal: whether their payloads are the same.
    """

    row: int
    batch: int
    first_row: int
    first_batch: int
    is_equal: bool


class Doubles:
    """Finds the duplicates in the input of a record."""

    def __init__(self, path: Path, manifest: Manifest) -> None:
        self._path = path
        self._manifest = manifest
        self._sources = [Source() for _ in manifest.sources]
        self._heartbeats = [TIME_MIN] * len(manifest.sources)
        self._rows = 0
        self._reported: set[int] = set()

    def pass_over(self, count: int) -> None:
        """Skip rows whose global times are not readable."""
        self._rows += count

    def add(self, times: Numbers, bins: Strings, codes: Codes, floors: Numbers | None) -> Iterator[Double]:
        """Add the next rows, one or more; returns the duplicates found.

        Args:
            bins: canonical bytes of global times.
            codes: the source of each.
            floors: for each, the time of its source's heartbeat; None if unknown.
        """
        self._rows += len(times)
        repeated = []
        for code in np.flatnonzero(np.bincount(codes)).tolist():
            rows = np.arange(len(times)) if len(self._sources) == 1 else np.flatnonzero(codes == code)
            if floors is not None:
                self._heartbeats[code] = int(floors[rows[-1]])
            items = Items(times if len(rows) == len(times) else times[rows], bins, rows)
            repeated.append(self._sources[code].add(items, self._heartbeats[code]))
        yield from self._compared(np.concatenate(repeated))

    def end(self) -> Iterator[Double]:
        """The remaining duplicates."""
        yield from self._compared(np.concatenate([_NONE, *(source.end() for source in self._sources)]))

    def _compared(self, keys: Keys) -> Iterator[Double]:
        """Which items with these hashes have one global time and were not reported yet; reads the input again."""
        if not len(keys):
            return
        found: dict[bytes, tuple[int, int, bytes]] = {}
        row = 0
        paths = [self._path / file.path for file in self._manifest.of("input")]
        for rows in batches_in(paths, "input", ["batch", *GLOBAL_TIME, "payload"]):
            rows = rows.slice(0, self._rows - row)
            times, bins = columns.numbers(rows.column("time")), bins_of(rows, GLOBAL_TIME)
            items = Items(times, bins, np.arange(len(times)))
            for at in np.flatnonzero(np.isin(items.keys(), keys)).tolist():
                item = row + at, rows.column("batch")[at].as_py(), rows.column("payload")[at].as_py()
                first = found.setdefault(items.at(at), item)
                if first is not item and item[0] not in self._reported:
                    self._reported.add(item[0])
                    yield Double(*item[:2], *first[:2], first[2] == item[2])
            row += len(rows)
            if row == self._rows:
                return
