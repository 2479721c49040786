"""The log of a stage: batches that it processed in order and may have to correct, until they are settled.

Invariant: there is one copy of every unsettled item, in the log or in the history drawn from it. The items drawn for a
key are in the order of their metas. Memory is proportional to the number of unsettled items, in any distribution.

Why: a segment is a batch whose items are above all logged items of their keys; drawing a key's history takes its items
out. A segment is dropped when its last item is settled, and cut each time half of the rest is: so one item far ahead
holds only itself in memory. A draw searches each segment; so small batches in order are appended to the last segment
if it consists of small batches too, since a cycle logs item by item.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Iterator, Mapping, Sequence
from heapq import heappop, heappush
from itertools import compress
from operator import not_
from typing import Any, NamedTuple, Protocol, TypeVar

from drift_graph.meta import BEGINNING
from drift_graph.metas import Metas, count_upto

_CUT_ITEMS_MIN = 16  # a shorter segment is not cut, and small batches are appended to it
_ABOVE_ITEMS_MIN = 64  # items above a batch that are searched for keys, plus four times as many as it has
_HISTORIES_RETAINED_MIN = 256  # histories that may stay, settled or not, before they are searched for settled ones


class Keyed(NamedTuple):
    """A batch of items in the order of their metas, with the identities of their keys."""

    metas: Metas
    keys: Sequence[Any]
    payloads: list[Any]


class History(Protocol):
    """The items drawn from the log for one key, with later changes.

    Attributes:
        metas: of its items.
        drawn_to: number of the first segment that was not searched for it.
    """

    metas: list[bytes]
    drawn_to: int


H = TypeVar("H", bound=History)


class _Segment:
    """The rest of a batch: all items that are neither settled nor drawn, and some that are."""

    __slots__ = ("number", "metas", "keys", "columns", "_indices")

    def __init__(self, number: int, metas: Metas, keys: Sequence[Any], columns: tuple[Sequence[Any], ...]) -> None:
        self.number = number
        self.metas = metas
        self.keys = keys
        self.columns = columns
        self._indices: dict[Any, list[int]] | None = None  # by key: the indices of items that were not drawn

    def extend(self, metas: Metas, keys: Sequence[Any], columns: tuple[Sequence[Any], ...]) -> None:
        """Append items above all others of the segment, whose columns are lists."""
        if self._indices is not None:
            for index, key in enumerate(keys, len(self.metas)):
                self._indices.setdefault(key, []).append(index)
        for own, added in zip((self.metas, self.keys, *self.columns), (metas, keys, *columns)):
            own += added  # type: ignore[operator]

    def take(self, key: Any) -> Sequence[int]:
        """Take the items of a key out of the segment; their indices."""
        if self._indices is None:
            self._indices = {}
            for index, each in enumerate(self.keys):
                self._indices.setdefault(each, []).append(index)
        return self._indices.pop(key, ())

    def cut(self, settled: bytes) -> None:
        """Drop items that are settled or were drawn."""
        self._retain(bisect_left(self.metas, settled), len(self.metas))

    def truncate(self, cut: bytes) -> None:
        """Drop items that are at or above a cut or were drawn."""
        self._retain(0, bisect_left(self.metas, cut))

    def _retain(self, start: int, end: int) -> None:
        """Drop the items outside of this range of indices, and those that were drawn."""
        if self._indices is None:
            self.metas, self.keys = self.metas[start:end], self.keys[start:end]
            self.columns = tuple(column[start:end] for column in self.columns)
            return
        left = sorted(index for indices in self._indices.values() for index in indices if start <= index < end)
        self._indices = None
        self.metas, self.keys = [self.metas[index] for index in left], [self.keys[index] for index in left]
        self.columns = tuple([column[index] for index in left] for column in self.columns)

    def above(self, cut: bytes) -> Iterator[tuple[Any, ...]]:
        """The items at or above a cut that were not drawn, those of a key in order: (key, its value in each column)."""
        start = bisect_left(self.metas, cut)
        if self._indices is None:
            yield from zip(self.keys[start:], *(column[start:] for column in self.columns))
            return
        for key, indices in self._indices.items():
            for index in indices:
                if index >= start:
                    yield key, *(column[index] for column in self.columns)

    def held(self, settled: bytes) -> int:
        if self._indices is None:
            return len(self.metas) - bisect_left(self.metas, settled)
        return sum(self.metas[index] >= settled for indices in self._indices.values() for index in indices)


class Log:
    """The segments of one stage.

    Attributes:
        settled: the last minimal time passed to the stage.
    """

    def __init__(self) -> None:
        self.settled = BEGINNING
        self._segments: dict[int, _Segment] = {}  # by number, in the order of these
        self._numbered = 0
        self._open = -1  # number of the last segment, where batches may be added to it
        self._open_last = BEGINNING  # the last meta that was added to it
        self._lasts: list[tuple[bytes, int]] = []  # the last meta of each segment, sorted
        self._lasts_dropped = 0  # from the front of them
        self._cuts: list[tuple[bytes, int]] = []  # a heap: when to cut a segment
        self._last = BEGINNING
        self._histories_max = _HISTORIES_RETAINED_MIN

    def __len__(self) -> int:
        return len(self._segments)

    def append(self, metas: Metas, keys: Sequence[Any], *columns: Sequence[Any]) -> None:
        """Log a batch whose items are above all logged items of their keys."""
        if len(metas) < _CUT_ITEMS_MIN:
            open_segment = self._segments.get(self._open)
            if open_segment is not None and metas[0] > self._open_last:
                self._add_to(open_segment, metas, keys, columns)
                return
            self._open, self._open_last = self._numbered, metas[-1]
            metas, keys, columns = list(metas), list(keys), tuple(map(list, columns))
        else:
            self._open = -1
        number = self._numbered
        self._numbered += 1
        segment = self._segments[number] = _Segment(number, metas, keys, columns)
        insort(self._lasts, (metas[-1], number), self._lasts_dropped)
        self._cut_later(segment)

    def _add_to(self, segment: _Segment, metas: Metas, keys: Sequence[Any], columns: tuple[Sequence[Any], ...]) -> None:
        before = len(segment.metas)
        del self._lasts[bisect_left(self._lasts, (self._open_last, segment.number), self._lasts_dropped)]
        segment.extend(metas, keys, columns)
        self._open_last = metas[-1]
        insort(self._lasts, (metas[-1], segment.number), self._lasts_dropped)
        if before < _CUT_ITEMS_MIN:
            self._cut_later(segment)

    def is_above(self, meta: bytes) -> bool:
        """Whether a meta is above all that was logged or noted."""
        return meta > self._last

    def parted(self, batch: Keyed, histories: Mapping[Any, History]) -> tuple[Keyed, Keyed]:
        """Split a batch: the items that may be below others of their key, and those above all of theirs."""
        metas, keys, payloads = batch
        at = count_upto(metas, self._last)
        self._last = max(self._last, metas[-1])
        if not at:
            return Keyed([], [], []), batch
        ahead = self._keys_above(metas[0], _ABOVE_ITEMS_MIN + 4 * at)
        if ahead is None:
            return Keyed(metas[:at], keys[:at], payloads[:at]), Keyed(metas[at:], keys[at:], payloads[at:])
        for key in histories.keys() & set(keys):
            if histories[key].metas and histories[key].metas[-1] >= metas[0]:
                ahead.add(key)
        below = list(map(ahead.__contains__, keys[:at])) + [False] * (len(metas) - at)
        if not any(below):
            return Keyed([], [], []), batch
        above = list(map(not_, below))
        first, second = (
            Keyed(list(compress(metas, chosen)), list(compress(keys, chosen)), list(compress(payloads, chosen)))
            for chosen in (below, above)
        )
        return first, second

    def note(self, metas: Metas) -> None:
        """Note items and tombstones that did not go through `parted`."""
        self._last = max(self._last, metas[-1])

    def _keys_above(self, meta: bytes, items_max: int) -> set[Any] | None:
        """Keys of the items at a meta or above, and perhaps others; None if there are too many items to search."""
        keys: set[Any] = set()
        for index in range(len(self._lasts) - 1, self._lasts_dropped - 1, -1):
            last, number = self._lasts[index]
            if last < meta:
                break
            segment = self._segments.get(number)
            if segment is None:
                continue
            at = bisect_left(segment.metas, meta)
            items_max -= len(segment.metas) - at
            if items_max < 0:
                return None
            keys.update(segment.keys[at:])
        return keys

    def draw(self, key: Any, history: History) -> Iterator[tuple[Any, ...]]:
        """The items of a key that are not settled and were not drawn before: (meta, its value in each column)."""
        found = []
        for segment in reversed(self._segments.values()):
            if segment.number < history.drawn_to:
                break
            found.append(segment)
        history.drawn_to = self._open if self._open >= 0 else self._numbered
        for segment in reversed(found):
            for index in segment.take(key):
                if segment.metas[index] >= self.settled:
                    yield segment.metas[index], *(column[index] for column in segment.columns)

    def settle(self, minimal_time: bytes) -> None:
        """Drop items below minimal time, since none will change any more."""
        self.settled = minimal_time
        lasts, dropped = self._lasts, self._lasts_dropped
        while dropped < len(lasts) and lasts[dropped][0] < minimal_time:
            self._segments.pop(lasts[dropped][1], None)
            dropped += 1
        if 2 * dropped > len(lasts):
            del lasts[:dropped]
            dropped = 0
        self._lasts_dropped = dropped
        while self._cuts and self._cuts[0][0] < minimal_time:
            segment = self._segments.get(heappop(self._cuts)[1])
            if segment is not None:
                segment.cut(minimal_time)
                self._cut_later(segment)

    def above(self, cut: bytes) -> Iterator[tuple[Any, ...]]:
        """The items at or above a cut that are only here, those of a key in order: (key, its value in each column)."""
        first = bisect_left(self._lasts, (cut, -1), self._lasts_dropped)
        for number in sorted(number for _, number in self._lasts[first:]):
            if number in self._segments:
                yield from self._segments[number].above(cut)

    def rewind(self, cut: bytes) -> None:
        """Drop items at or above a cut, which is not below `settled`."""
        first = bisect_left(self._lasts, (cut, -1), self._lasts_dropped)
        self._open = -1
        cut_through = [number for _, number in self._lasts[first:]]
        del self._lasts[first:]
        self._last = min(self._last, cut)
        for number in cut_through:
            segment = self._segments.get(number)
            if segment is None:
                continue
            segment.truncate(cut)
            if segment.metas:
                insort(self._lasts, (segment.metas[-1], number), self._lasts_dropped)
            else:
                del self._segments[number]

    def _cut_later(self, segment: _Segment) -> None:
        items = len(segment.metas)
        if items >= _CUT_ITEMS_MIN:
            heappush(self._cuts, (segment.metas[items // 2], segment.number))
        elif not items:
            del self._segments[segment.number]

    def unsettled(self, histories: dict[Any, H]) -> dict[Any, H]:
        """The histories without the settled ones; these are searched for only once there are many histories.

        The items of the removed histories are lost.
        """
        if self._last < self.settled:
            return {}
        if len(histories) <= self._histories_max:
            return histories
        left = {
            key: history for key, history in histories.items() if history.metas and history.metas[-1] >= self.settled
        }
        self._histories_max = max(_HISTORIES_RETAINED_MIN, 2 * len(left))
        return left

    def held(self, histories: Mapping[Any, History]) -> int:
        """How many items are unsettled, in the log and in histories."""
        in_histories = sum(
            len(history.metas) - bisect_left(history.metas, self.settled) for history in histories.values()
        )
        return in_histories + sum(segment.held(self.settled) for segment in self._segments.values())
