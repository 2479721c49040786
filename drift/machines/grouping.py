"""Windowed grouping, optimistic: a bucket is right for what has come so far, and corrects itself when more comes.

Invariant: after `process`, for every item of a bucket the window that was sent for it, counting tombstones, is the
one that its bucket gives now, and the last of them is kept; what is settled is kept in no other way, but for a few
items of a bucket that is not.

Why: a batch above everything before it, which no tombstone can have waited for, changes no window that was sent: each
new one is the key's last one with an item more, and the batch is logged until it is settled. Where an item comes below,
what was logged is put into buckets. The buckets that change are compared before and after the whole batch, from the
first change to `window - 1` items past the last, and the difference is sent.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import deque
from collections.abc import Iterable, Sequence
from typing import Any

from drift.machines.changes import NOTHING, Debts, Difference
from drift.machines.keys import identities
from drift.machines.maps import Ports, called
from drift_barrier.barrier import FAILURES
from drift_graph.canonical import Plain, are_plain, same
from drift_graph.failures import META_BYTES_MAX, endless_cycle, failed_step
from drift_graph.functions import RAISED
from drift_graph.item import Columns, joined
from drift_graph.meta import BEGINNING, Metas, count_upto, varint
from drift_graph.operators import Group

_Change = tuple[bytes, Any, int]
_Bucket = tuple[list[bytes], list[Any]]
_NO_BUCKET: _Bucket = [], []


def keyed(
    group: Group, rank: bytes, columns: Columns, ports: Ports, *, endless: bool = False
) -> tuple[Columns, Sequence[Any]]:
    """A batch and the identities of its keys; items whose key cannot be had leave as failures.

    So do, where the grouping is on a cycle that may be `endless`, items that have been round it too often.
    """
    try:
        if endless and max(map(len, columns.metas), default=0) > META_BYTES_MAX:
            raise endless_cycle(group)
        return columns, identities(called(group.key, columns.payloads))
    except RAISED:
        good, failures = Difference(), Difference()
        keys: list[Any] = []
        for meta, payload, diff in zip(columns.metas, columns.payloads, columns.diffs or [1] * len(columns.metas)):
            kept = good
            try:
                if len(meta) > META_BYTES_MAX:
                    raise endless_cycle(group)
                keys += identities([group.key(payload)])
            except RAISED as error:
                kept, meta, payload = failures, meta + rank, failed_step(group, error, payload)
            kept.metas.append(meta)
            kept.payloads.append(payload)
            kept.diffs.append(diff)
        ports.setdefault(FAILURES, []).append(failures.columns())
        return good.columns(), keys


class GroupStage:
    """The machine of one grouping on one worker."""

    def __init__(self, group: Group, rank: int, *, cyclic: bool = False) -> None:
        self._cyclic = cyclic
        self.suffix = varint(rank)
        self._group = group
        self._window = group.window
        self._kept = 1 - group.window or 1  # from this index on the next window has the last one's payloads
        self._windows: dict[Any, tuple[Any, ...]] = {}
        self._plain = True  # as far as has been seen, windows are made of plain payloads
        self._log: deque[tuple[Metas, Sequence[Any], list[tuple[Any, ...]]]] = deque()
        self._buckets: dict[Any, _Bucket] = {}
        self._touched: deque[tuple[bytes, Iterable[Any]]] = deque()
        self._debts = Debts(group.step)
        self._last = BEGINNING
        self._settled = BEGINNING

    def process(self, columns: Columns, ports: Ports) -> Columns:
        """Take a batch sorted by meta; the windows to send and take back, whose metas still lack the suffix."""
        columns, keys = keyed(self._group, self.suffix, columns, ports, endless=self._cyclic)
        metas, payloads, diffs = columns
        if not metas:
            return columns
        self._plain = self._plain and are_plain(payloads)
        at = count_upto(metas, self._last) if diffs is None else len(metas)
        self._last = max(self._last, metas[-1])
        if not at:
            return self._append(metas, keys, payloads)
        corrected = self._correct(metas[:at], keys[:at], payloads[:at], diffs)
        return joined([corrected, self._append(metas[at:], keys[at:], payloads[at:])]) if at < len(metas) else corrected

    def _append(self, metas: Metas, keys: Sequence[Any], payloads: list[Any]) -> Columns:
        """Windows of items above all others, which are logged."""
        last, kept = self._windows, self._kept
        find = last.get
        windows: list[tuple[Any, ...]] = Plain() if self._plain else []
        give = windows.append
        for key, payload in zip(keys, payloads):
            last[key] = window = (*find(key, ())[kept:], payload)
            give(window)
        self._log.append((metas, keys, windows))
        return Columns(metas, windows, None)

    def _correct(self, metas: Metas, keys: Sequence[Any], payloads: list[Any], diffs: Sequence[int] | None) -> Columns:
        """Items and tombstones anywhere in the order."""
        self._draw()
        changes: dict[Any, list[_Change]] = {}
        for key, meta, payload, diff in zip(keys, metas, payloads, diffs or [1] * len(metas)):
            changes.setdefault(key, []).append((meta, payload, diff))
        difference = Difference()
        for key, changed in changes.items():
            bucket = self._buckets.get(key)
            if bucket is None:
                bucket = self._buckets[key] = _settled_bucket(self._windows.get(key, ()))
            self._change(bucket, changed, difference)
            self._windows[key] = tuple(bucket[1][-self._window :])
        self._touched.append((metas[-1], changes))
        return difference.columns()

    def _draw(self) -> None:
        """Put what was logged into buckets."""
        buckets = self._buckets
        for metas, keys, windows in self._log:
            for key, meta, window in zip(keys, metas, windows):
                bucket = buckets.get(key)
                if bucket is None:
                    bucket = buckets[key] = _settled_bucket(window[:-1])
                bucket[0].append(meta)
                bucket[1].append(window[-1])
            self._touched.append((metas[-1], dict.fromkeys(keys)))
        self._log.clear()

    def _change(self, bucket: tuple[list[bytes], list[Any]], changes: list[_Change], difference: Difference) -> None:
        metas, payloads = bucket
        first = bisect_left(metas, changes[0][0])
        keep = max(first - self._window + 1, 0)  # from here on the old bucket is needed, to know the old windows
        old_metas, old_payloads = metas[keep:], payloads[keep:]
        for meta, payload, diff in changes:
            at = bisect_left(metas, meta)
            if diff == 1:
                if not self._debts.settles(meta, payload):
                    metas.insert(at, meta)
                    payloads.insert(at, payload)
                continue
            while at < len(metas) and metas[at] == meta and not same(payloads[at], payload):
                at += 1
            if at < len(metas) and metas[at] == meta:
                del metas[at], payloads[at]
            else:
                self._debts.owe(meta, payload)
        self._compare(old_metas, old_payloads, metas, payloads, first, keep, difference)

    def _compare(
        self,
        old_metas: list[bytes],
        old_payloads: list[Any],
        metas: list[bytes],
        payloads: list[Any],
        first: int,
        keep: int,
        difference: Difference,
    ) -> None:
        """Send what makes the old windows into the new ones, from index `first` of the bucket on."""
        window = self._window
        old_end, end = len(old_metas), len(metas)
        while (
            old_end > first - keep
            and end > first
            and (old_metas[old_end - 1] == metas[end - 1] and old_payloads[old_end - 1] is payloads[end - 1])
        ):  # the tail that no change has touched
            old_end, end = old_end - 1, end - 1
        old_end, end = min(old_end + window - 1, len(old_metas)), min(end + window - 1, len(metas))
        old_at, at = first - keep, first
        while old_at < old_end or at < end:
            old_meta = old_metas[old_at] if old_at < old_end else None
            meta = metas[at] if at < end else None
            old, new = NOTHING, NOTHING
            if meta is None or (old_meta is not None and old_meta <= meta):
                old = tuple(old_payloads[max(old_at - window + 1, 0) : old_at + 1])
                old_at += 1
            if old_meta is None or (meta is not None and meta <= old_meta):
                new = tuple(payloads[max(at - window + 1, 0) : at + 1])
                at += 1
            where = old_meta if meta is None or (old_meta is not None and old_meta <= meta) else meta
            assert where is not None
            difference.replace(where, old, new)

    def settle(self, minimal_time: bytes) -> None:
        """Nothing below minimal time will change any more: forget what only a change there would need."""
        self._settled = minimal_time
        while self._touched and self._touched[0][0] < minimal_time:
            for key in self._touched.popleft()[1]:
                self._trim(key, minimal_time)
        while self._log and self._log[0][0][-1] < minimal_time:
            self._log.popleft()

    def _trim(self, key: Any, minimal_time: bytes) -> None:
        metas, payloads = self._buckets.get(key, _NO_BUCKET)
        settled = bisect_left(metas, minimal_time)
        if settled == len(metas):
            self._buckets.pop(key, None)
        elif settled >= self._window:
            gone = settled - self._window + 1
            del metas[:gone], payloads[:gone]

    def remembered(self) -> list[tuple[Any, Any]]:
        """Of each key what later items need, once everything is settled: its last `window - 1` payloads."""
        lasts = [(key, window[self._kept :]) for key, window in self._windows.items()]
        return [(key, payloads) for key, payloads in lasts if payloads]

    def recall(self, remembered: Iterable[tuple[Any, Any]]) -> None:
        """Go on, before any item, where a machine ended that remembered this."""
        windows = dict(remembered)
        self._windows.update(windows)
        self._plain = self._plain and are_plain(windows.values())

    @property
    def held(self) -> int:
        """Items that are not settled, and tombstones that wait for theirs."""
        metas: list[Metas] = [logged for logged, _, _ in self._log]
        metas += [bucket for bucket, _ in self._buckets.values()]
        return len(self._debts) + sum(len(each) - bisect_left(each, self._settled) for each in metas)


def _settled_bucket(payloads: Sequence[Any]) -> _Bucket:
    """A bucket of settled items: below all that may come."""
    return [BEGINNING] * len(payloads), list(payloads)
