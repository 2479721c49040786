"""The log of a stage: batches that it processed in order and may have to correct, until they are settled.

Invariant: there is one copy of every unsettled row, in the log or in the history drawn from it. Memory is proportional
to the number of unsettled rows, in any distribution.

Why: a segment is a batch whose rows are above all logged rows of their keys, with the states of these keys before it;
drawing a key's history takes its rows out. A segment is dropped when its last row is settled. Where dropped rows would
have been most of what is stored, segments are cut: the states before them are then those before their first
unsettled row, computed again. So one row far ahead holds only itself in memory. A draw searches each segment; so small
batches in order are appended to the last segment if it is small too, since a cycle logs item by item.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right, insort
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import compress
from operator import not_
from typing import Any, NamedTuple

from drift_graph.meta import BEGINNING
from drift_graph.metas import Metas

_SMALL_ITEMS_MAX = (
    16  # a batch of fewer rows is appended to the last segment, if that has no more than four times as many
)
_ROWS_RETAINED_MIN = 512  # rows that may be stored before settled ones are searched for
_ABOVE_ITEMS_MIN = 64  # items above a batch that are searched for keys, plus four times as many as it has
_HISTORIES_RETAINED_MIN = 256  # histories that may stay, settled or not, before they are searched for settled ones


class Keyed(NamedTuple):
    """A batch of items in the order of their metas, with the identities of their keys."""

    metas: Metas
    keys: Sequence[Any]
    payloads: list[Any]

    def chosen(self, chosen: bytes) -> Keyed:
        return Keyed(
            self.metas.chosen(chosen), list(compress(self.keys, chosen)), list(compress(self.payloads, chosen))
        )

    def after(self, count: int) -> Keyed:
        """The items after so many."""
        return self.slice(count, len(self.keys))

    def slice(self, start: int, stop: int) -> Keyed:
        """The items from one index up to another."""
        return Keyed(self.metas[start:stop], self.keys[start:stop], self.payloads[start:stop])


class LoggedRow(NamedTuple):
    """An item or a timer that a stage processed, in the order of metas.

    Attributes:
        subject: the payload, or the timer.
        outputs: what the logic gave for it; `drift.machines.keyed` says in which form.
    """

    meta: bytes
    subject: Any
    outputs: Any


#: (key, state before, rows) -> state after them.
Replay = Callable[[Any, Any, Sequence[LoggedRow]], Any]


class History:
    """The rows of one key that were drawn from the log, with later changes, and states between them.

    Attributes:
        rows: in the order of their metas, which `metas` repeats.
        kept: states before the first row at or above the places in `kept_at`, in order; there is one at or below the
            first row.
        drawn_to: number of the first segment that was not searched for it.
    """

    __slots__ = ("drawn_to", "kept", "kept_at", "metas", "rows")

    def __init__(self) -> None:
        self.metas: list[bytes] = []
        self.rows: list[LoggedRow] = []
        self.kept_at: list[bytes] = []
        self.kept: list[Any] = []
        self.drawn_to = 0

    def add(self, before: Any, rows: Sequence[LoggedRow]) -> None:
        """Add rows, and the state before them; a segment of timers may be between those of an earlier one."""
        first = rows[0].meta
        if self.metas and first < self.metas[-1]:
            self.rows = sorted([*self.rows, *rows], key=_meta_of)
            self.metas = [row.meta for row in self.rows]
        else:
            self.rows += rows
            self.metas += [row.meta for row in rows]
        at = bisect_left(self.kept_at, first)
        if at == len(self.kept_at) or self.kept_at[at] != first:
            self.kept_at.insert(at, first)
            self.kept.insert(at, before)

    def clear(self) -> None:
        self.metas, self.rows, self.kept_at, self.kept = [], [], [], []

    def drop_places(self) -> None:
        """Drop the states that were kept above all rows."""
        at = bisect_right(self.kept_at, self.metas[-1]) if self.metas else 0
        del self.kept_at[at:], self.kept[at:]

    def place_before(self, meta: bytes) -> int:
        """The last place of which the state is stored, and which is at or below a meta: its index. There are rows."""
        return max(bisect_right(self.kept_at, meta) - 1, 0)

    def state_at(self, checkpoint: bytes, key: Any, replay: Replay) -> Any:
        """The state before the first row at or above a checkpoint, of which there is one."""
        at = self.place_before(checkpoint)
        start = bisect_left(self.metas, self.kept_at[at])
        return replay(key, self.kept[at], self.rows[start : bisect_left(self.metas, checkpoint)])

    def truncate(self, checkpoint: bytes) -> None:
        """Drop the rows at or above a checkpoint."""
        at = bisect_left(self.metas, checkpoint)
        del self.metas[at:], self.rows[at:]
        self.drop_places()

    def drop(self, settled: bytes) -> None:
        """Drop settled rows, except those since the last place of which the state is stored."""
        at = bisect_right(self.kept_at, settled) - 1
        if at > 0:
            start = bisect_left(self.metas, self.kept_at[at])
            del self.metas[:start], self.rows[:start], self.kept_at[:at], self.kept[:at]


def _listed(column: Sequence[Any]) -> list[Any]:
    """The column as a list: of rows in columns all are made at once, since to take one by itself costs 100 us."""
    return column if type(column) is list else list(column)


def _meta_of(row: LoggedRow) -> bytes:
    return row.meta


@dataclass(slots=True, eq=False)
class _Segment:
    """The rest of a batch: all rows that are neither settled nor drawn, and some that are."""

    number: int
    metas: Sequence[bytes]
    keys: Sequence[Any]
    payloads: Sequence[Any]
    outputs: Sequence[Any]
    befores: dict[Any, Any]  # of each key the state before its first row that is here
    _indices: dict[Any, list[int]] | None = field(default=None, init=False)  # by key: of rows that were not drawn

    def extend(
        self, metas: Sequence[bytes], keys: Sequence[Any], payloads: Any, outputs: Any, befores: dict[Any, Any]
    ) -> None:
        """Append rows above all others of the segment, whose columns are lists."""
        if self._indices is not None:
            for index, key in enumerate(keys, len(self.metas)):
                if key not in self._indices:
                    self.befores[key] = befores[key]
                self._indices.setdefault(key, []).append(index)
        else:
            self.befores = befores | self.befores
        for own, added in zip((self.metas, self.keys, self.payloads, self.outputs), (metas, keys, payloads, outputs)):
            own += added

    def _by_key(self) -> dict[Any, list[int]]:
        if self._indices is None:
            self._indices = {}
            for index, each in enumerate(self.keys):
                self._indices.setdefault(each, []).append(index)
            self.payloads = _listed(self.payloads)
        return self._indices

    def take(self, key: Any) -> list[LoggedRow]:
        """Take the rows of a key out of the segment."""
        indices = (self._indices if self._indices is not None else self._by_key()).pop(key, None)
        return self._rows(indices) if indices is not None else []

    def _rows(self, indices: Sequence[int]) -> list[LoggedRow]:
        metas, payloads, outputs = self.metas, self.payloads, self.outputs
        return [LoggedRow(metas[index], payloads[index], outputs[index]) for index in indices]

    def trim(self, settled: bytes, replay: Replay) -> None:
        """Drop rows that are settled or were drawn."""
        start = bisect_left(self.metas, settled)
        indices = self._by_key()
        left: list[int] = []
        for key, each in indices.items():
            at = bisect_left(each, start)
            if at and at < len(each):
                self.befores[key] = replay(key, self.befores[key], self._rows(each[:at]))
            left += each[at:]
        self._retain(sorted(left))

    def truncate(self, checkpoint: bytes) -> None:
        """Drop rows that are at or above a checkpoint or were drawn."""
        end = bisect_left(self.metas, checkpoint)
        if self._indices is None:
            self._retain(range(end))
        else:
            self._retain(sorted(index for each in self._indices.values() for index in each if index < end))

    def _retain(self, left: Sequence[int]) -> None:
        self._indices = None
        self.metas, self.keys, self.payloads, self.outputs = (
            [column[index] for index in left]
            for column in map(_listed, (self.metas, self.keys, self.payloads, self.outputs))
        )
        self.befores = {key: self.befores[key] for key in dict.fromkeys(self.keys)}

    def keys_above(self, checkpoint: bytes) -> Iterator[Any]:
        """The keys of rows at or above a checkpoint that were not drawn."""
        start = bisect_left(self.metas, checkpoint)
        if self._indices is None:
            yield from self.keys[start:]
        else:
            yield from (key for key, indices in self._indices.items() if indices[-1] >= start)

    def held(self, settled: bytes) -> int:
        if self._indices is None:
            return len(self.metas) - bisect_left(self.metas, settled)
        return sum(self.metas[index] >= settled for indices in self._indices.values() for index in indices)


class Log:
    """The segments of one stage.

    Args:
        replay: computes the state after some rows of a key again.

    Attributes:
        settled: the last minimal time passed to the stage.
    """

    def __init__(self, replay: Replay) -> None:
        self.settled = BEGINNING
        self._replay = replay
        self._segments: dict[int, _Segment] = {}  # by number, in the order of these
        self._numbered = 0
        self._open = -1  # number of the last segment, where batches may be added to it
        self._open_last = BEGINNING  # the last meta that was added to it
        self._lasts: list[tuple[bytes, int]] = []  # the last meta of each segment, sorted
        self._lasts_dropped = 0  # from the front of them
        self._rows = 0
        self._rows_max = _ROWS_RETAINED_MIN
        self._last = BEGINNING
        self._histories_max = _HISTORIES_RETAINED_MIN

    def __len__(self) -> int:
        return len(self._segments)

    def append(
        self,
        metas: Sequence[bytes],
        keys: Sequence[Any],
        payloads: Sequence[Any],
        outputs: Sequence[Any],
        befores: dict[Any, Any],
    ) -> None:
        """Log a batch whose rows are above all logged rows of their keys, with the states of these before it."""
        self._rows += len(keys)
        if len(metas) < _SMALL_ITEMS_MAX:
            open_segment = self._segments.get(self._open)
            is_small = open_segment is not None and len(open_segment.metas) < 4 * _SMALL_ITEMS_MAX
            if open_segment is not None and is_small and metas[0] > self._open_last:
                self._add_to(open_segment, metas, keys, payloads, outputs, befores)
                return
            self._open, self._open_last = self._numbered, metas[-1]
            metas, keys, payloads, outputs = list(metas), list(keys), list(payloads), list(outputs)
        else:
            self._open = -1
        number = self._numbered
        self._numbered += 1
        self._segments[number] = _Segment(number, metas, keys, payloads, outputs, befores)
        insort(self._lasts, (metas[-1], number), self._lasts_dropped)

    def _add_to(
        self,
        segment: _Segment,
        metas: Sequence[bytes],
        keys: Sequence[Any],
        payloads: Any,
        outputs: Any,
        befores: dict[Any, Any],
    ) -> None:
        del self._lasts[bisect_left(self._lasts, (self._open_last, segment.number), self._lasts_dropped)]
        segment.extend(metas, keys, payloads, outputs, befores)
        self._open_last = metas[-1]
        insort(self._lasts, (metas[-1], segment.number), self._lasts_dropped)

    def is_above(self, meta: bytes) -> bool:
        """Whether a meta is above all that was logged or noted."""
        return meta > self._last

    def parted(
        self, batch: Keyed, histories: Mapping[Any, History], *, whole_keys: bool = False
    ) -> tuple[Keyed, Keyed]:
        """Split a batch: the items that may be below others of their key, and those above all of theirs.

        Args:
            whole_keys: whether the items of a key stay together.
        """
        metas, keys, payloads = batch
        at = metas.count_below(self._last + b"\0") if metas[0] <= self._last else 0
        self._last = max(self._last, metas[-1])
        if not at:
            return Keyed(Metas(), [], []), batch
        ahead = self._keys_above(metas[0], _ABOVE_ITEMS_MIN + 4 * at)
        if ahead is None and not whole_keys:
            return Keyed(metas[:at], keys[:at], payloads[:at]), Keyed(metas[at:], keys[at:], payloads[at:])
        if ahead is None:
            ahead = set(keys[:at])
        for key in histories.keys() & set(keys):
            if histories[key].metas and histories[key].metas[-1] >= metas[0]:
                ahead.add(key)
        below = list(map(ahead.__contains__, keys[:at])) + [False] * (len(metas) - at)
        if not any(below):
            return Keyed(Metas(), [], []), batch
        if whole_keys:
            below = list(map(set(compress(keys, below)).__contains__, keys))
        above = list(map(not_, below))
        first, second = (batch.chosen(bytes(chosen)) for chosen in (below, above))
        return first, second

    def pass_by(self, metas: Sequence[bytes]) -> None:
        """Items, tombstones and timers have come that did not go through `parted`."""
        self._last = max(self._last, metas[-1])

    def _keys_above(self, meta: bytes, items_max: int) -> set[Any] | None:
        """Keys of the rows at a meta or above, and perhaps others; None if there are too many rows to search."""
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

    def draw(self, key: Any, history: History) -> None:
        """Move the rows of a key that were not drawn before into its history."""
        if not history.metas or history.metas[-1] < self.settled:
            history.clear()  # what was logged after it may be settled, and gone
        found = []
        for segment in reversed(self._segments.values()):
            if segment.number < history.drawn_to:
                break
            found.append(segment)
        history.drawn_to = self._open if self._open >= 0 else self._numbered
        for segment in reversed(found):
            rows = segment.take(key)
            if rows and rows[-1].meta >= self.settled:
                history.add(segment.befores[key], rows)
        history.drop(self.settled)

    def settle(self, minimal_time: bytes) -> None:
        """Drop rows below minimal time, since none will change any more."""
        self.settled = minimal_time
        lasts, dropped = self._lasts, self._lasts_dropped
        while dropped < len(lasts) and lasts[dropped][0] < minimal_time:
            segment = self._segments.pop(lasts[dropped][1], None)
            if segment is not None:
                self._rows -= len(segment.metas)
            dropped += 1
        if 2 * dropped > len(lasts):
            del lasts[:dropped]
            dropped = 0
        self._lasts_dropped = dropped
        if self._rows > self._rows_max or not self._segments:
            self._trim()

    def _trim(self) -> None:
        """Drop the settled rows of segments that have as many of them as of others."""
        for segment in list(self._segments.values()):
            if 2 * segment.held(self.settled) <= len(segment.metas):
                segment.trim(self.settled, self._replay)
                if not segment.metas:
                    del self._segments[segment.number]
        self._rows = sum(len(segment.metas) for segment in self._segments.values())
        self._rows_max = max(_ROWS_RETAINED_MIN, 2 * self._rows)

    def keys_above(self, checkpoint: bytes) -> dict[Any, None]:
        """The keys of rows at or above a checkpoint that are only here."""
        found: dict[Any, None] = {}
        first = bisect_left(self._lasts, (checkpoint, -1), self._lasts_dropped)
        for number in sorted(number for _, number in self._lasts[first:]):
            if number in self._segments:
                found.update(dict.fromkeys(self._segments[number].keys_above(checkpoint)))
        return found

    def rewind(self, checkpoint: bytes) -> None:
        """Drop rows at or above a checkpoint, which is not below `settled`."""
        first = bisect_left(self._lasts, (checkpoint, -1), self._lasts_dropped)
        self._open = -1
        cut_through = [number for _, number in self._lasts[first:]]
        del self._lasts[first:]
        self._last = min(self._last, checkpoint)
        for number in cut_through:
            segment = self._segments.get(number)
            if segment is None:
                continue
            segment.truncate(checkpoint)
            if segment.metas:
                insort(self._lasts, (segment.metas[-1], number), self._lasts_dropped)
            else:
                del self._segments[number]
        self._rows = sum(len(segment.metas) for segment in self._segments.values())

    def unsettled(self, histories: dict[Any, History]) -> dict[Any, History]:
        """The histories without the settled ones; these are searched for only once there are many histories.

        The rows of the removed histories are lost.
        """
        if self._last < self.settled:
            return {}
        if len(histories) <= self._histories_max:
            return histories
        left = {
            key: history for key, history in histories.items() if history.metas and history.metas[-1] >= self.settled
        }
        for history in left.values():
            history.drop(self.settled)
        self._histories_max = max(_HISTORIES_RETAINED_MIN, 2 * len(left))
        return left

    def held(self, histories: Mapping[Any, History]) -> int:
        """How many rows are unsettled, in the log and in histories."""
        in_histories = sum(
            len(history.metas) - bisect_left(history.metas, self.settled) for history in histories.values()
        )
        return in_histories + sum(segment.held(self.settled) for segment in self._segments.values())
