"""Windowed grouping, optimistic: the windows of a key are right for the items so far, and are corrected when more come.

Invariant: after `process`, the window sent for every item, counting tombstones, is the one that its bucket gives now.
The last window of each key is stored; apart from it, settled items are dropped, except a few in some buckets.

Why: an item above all others of its key, with no tombstone waiting for it, changes no window that was sent: its window
is the key's last one plus the item, and the item is logged until it is settled. If an item comes below others, the
logged items of its key move into a bucket. The buckets that change are compared before and after the whole batch, from
the first change to `window - 1` items past the last, and the difference is sent.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Sequence
from itertools import repeat
from typing import Any

from drift.machines.changes import NOTHING, Debts, Difference
from drift.machines.cuts import DELETED, Entries
from drift.machines.in_order import InOrder
from drift.machines.keys import identities, stands_for_itself
from drift.machines.log import Keyed, Log
from drift.machines.maps import Ports, called
from drift.machines.sliding import loop_over
from drift_barrier.barrier import FAILURES
from drift_graph.canonical import are_plain, same
from drift_graph.failures import META_BYTES_MAX, endless_cycle, failed_step
from drift_graph.functions import pass_interrupts
from drift_graph.item import Columns, joined
from drift_graph.meta import BEGINNING, varint
from drift_graph.operators import Group
from drift_graph.payloads import Plain

_Change = tuple[bytes, Any, int]


class _Bucket:
    """The unsettled items of one key that were drawn from the log, and some settled ones before them."""

    __slots__ = ("metas", "payloads", "drawn_to")

    def __init__(self) -> None:
        self.metas: list[bytes] = []
        self.payloads: list[Any] = []
        self.drawn_to = 0

    def begin(self, payloads: Sequence[Any]) -> None:
        """Start with settled items, which are below all items that may still come."""
        self.metas += [BEGINNING] * len(payloads)
        self.payloads += payloads


def keyed(
    group: Group, rank: bytes, columns: Columns, ports: Ports, *, endless: bool = False
) -> tuple[Columns, Sequence[Any]]:
    """A batch and the identities of its keys; items whose key function fails leave as failures.

    So do, if the grouping is on a cycle that may be `endless`, items that have passed it too often.
    """
    try:
        if endless and max(map(len, columns.metas), default=0) > META_BYTES_MAX:
            raise endless_cycle(group)
        return columns, identities(called(group.key, columns.payloads))
    except BaseException as raised:
        pass_interrupts(raised)
        good, failures = Difference(), Difference()
        keys: list[Any] = []
        for meta, payload, diff in zip(columns.metas, columns.payloads, columns.diffs or [1] * len(columns.metas)):
            into = good
            try:
                if len(meta) > META_BYTES_MAX:
                    raise endless_cycle(group)
                keys += identities([group.key(payload)])
            except BaseException as error:
                pass_interrupts(error)
                into, meta, payload = failures, meta + rank, failed_step(group, error, payload)
            into.metas.append(meta)
            into.payloads.append(payload)
            into.diffs.append(diff)
        ports.setdefault(FAILURES, []).append(failures.columns())
        return good.columns(), keys


class GroupStage(InOrder):
    """The machine of one grouping on one worker."""

    def __init__(self, group: Group, rank: int, *, cyclic: bool = False) -> None:
        self._cyclic = cyclic
        self.suffix = varint(rank)
        self._group = group
        self._window = group.window
        self._tail_start = 1 - group.window or 1  # from this index on the next window has the last one's payloads
        self._windows: dict[Any, tuple[Any, ...]] = {}
        self._plain = True  # so far all windows consisted of plain payloads
        self._log = Log()
        self._buckets: dict[Any, _Bucket] = {}
        self._debts = Debts(group.step)
        self._kind: type | None = None  # of a key that came

    @property
    def _corrects(self) -> bool:
        return bool(self._buckets)

    def _process(self, columns: Columns, ports: Ports, is_complete: bool) -> Columns:
        columns, keys = keyed(self._group, self.suffix, columns, ports, endless=self._cyclic)
        metas, payloads, diffs = columns
        if not metas:
            return columns
        self.get(metas, keys)
        self._plain = self._plain and are_plain(payloads)
        batch = Keyed(metas, keys, payloads)
        if is_complete:
            return Columns(metas, self._windows_of(batch), None)
        if diffs is None and not self._debts:
            changed, rest = self._log.parted(batch, self._buckets)
        else:
            self._log.note(metas)
            changed, rest = batch, None
        if not changed.metas:
            return self._append(batch)
        corrected = self._correct(changed, diffs)
        return joined([corrected, self._append(rest)]) if rest is not None and rest.metas else corrected

    def _append(self, batch: Keyed) -> Columns:
        """Windows of items above all others of their keys, which are logged."""
        windows = self._windows_of(batch)
        self._log.append(batch.metas, batch.keys, windows)
        return Columns(batch.metas, windows, None)

    def _windows_of(self, batch: Keyed) -> list[tuple[Any, ...]]:
        _, keys, payloads = batch
        last, tail_start = self._windows, self._tail_start
        find = last.get
        windows: list[tuple[Any, ...]] = Plain() if self._plain else []
        give = windows.append
        for key, payload in zip(keys, payloads):
            last[key] = window = find(key, ())[tail_start:] + (payload,)  # noqa: RUF005 - faster
            give(window)
        return windows

    def _run_at_once(self, payloads: list[Any]) -> list[tuple[Any, ...]]:
        key_of = self._group.key
        self._plain = self._plain and are_plain(payloads)
        windows: list[tuple[Any, ...]] = Plain() if self._plain else []
        try:
            if self._kind is None:
                self._kind = type(key_of(payloads[0]))
            kind = self._kind
            if not stands_for_itself(kind):
                return windows
            loop_over(self._window)(self._windows, key_of, kind, payloads, windows.append)
        except BaseException as raised:  # raised again with the rest of the batch
            pass_interrupts(raised)
        return windows

    def _correct(self, batch: Keyed, diffs: Sequence[int] | None) -> Columns:
        """Items and tombstones anywhere in the order."""
        metas, keys, payloads = batch
        changes: dict[Any, list[_Change]] = {}
        for key, meta, payload, diff in zip(keys, metas, payloads, diffs or [1] * len(metas)):
            changes.setdefault(key, []).append((meta, payload, diff))
        difference = Difference()
        for key, changed in changes.items():
            bucket = self._bucket(key)
            self._change(bucket, changed, difference)
            self._windows[key] = tuple(bucket.payloads[-self._window :])
        return difference.columns()

    def _bucket(self, key: Any) -> _Bucket:
        """The bucket of a key with all its logged items, and only the settled ones that windows need.

        A bucket that is entirely settled is rebuilt: items after it may have been settled in the log.
        """
        bucket = self._buckets.get(key)
        is_new = bucket is None or not bucket.metas or bucket.metas[-1] < self._log.settled
        if bucket is None or is_new:
            bucket = self._buckets[key] = _Bucket()
        for meta, window in self._log.draw(key, bucket):
            if is_new and not bucket.metas:
                bucket.begin(window[:-1])
            bucket.metas.append(meta)
            bucket.payloads.append(window[-1])
        if is_new and not bucket.metas:
            bucket.begin(self._windows.get(key, ()))
        settled = bisect_left(bucket.metas, self._log.settled)
        if settled >= self._window:
            dropped = settled - self._window + 1
            del bucket.metas[:dropped], bucket.payloads[:dropped]
        return bucket

    def _change(self, bucket: _Bucket, changes: list[_Change], difference: Difference) -> None:
        metas, payloads = bucket.metas, bucket.payloads
        first = bisect_left(metas, changes[0][0])
        retained_from = max(first - self._window + 1, 0)  # old windows that may change begin here
        old_metas, old_payloads = metas[retained_from:], payloads[retained_from:]
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
        self._compare(old_metas, old_payloads, metas, payloads, first, retained_from, difference)

    def _compare(
        self,
        old_metas: list[bytes],
        old_payloads: list[Any],
        metas: list[bytes],
        payloads: list[Any],
        first: int,
        retained_from: int,
        difference: Difference,
    ) -> None:
        """Send the difference between the old windows and the new ones, from index `first` of the bucket on."""
        window = self._window
        old_end, end = len(old_metas), len(metas)
        while (
            old_end > first - retained_from
            and end > first
            and (old_metas[old_end - 1] == metas[end - 1] and old_payloads[old_end - 1] is payloads[end - 1])
        ):  # the tail that no change has touched
            old_end, end = old_end - 1, end - 1
        old_end, end = min(old_end + window - 1, len(old_metas)), min(end + window - 1, len(metas))
        old_at, at = first - retained_from, first
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
        """Drop what is only needed for changes below minimal time, since there will be none."""
        self._log.settle(minimal_time)
        self._buckets = self._log.unsettled(self._buckets)
        if self._touched is not None:
            self._touched.settle(minimal_time)

    def as_of(self, cut: bytes, keys: Sequence[Any]) -> Entries:
        """The last `window - 1` payloads of these keys below the cut, or DELETED."""
        befores = self._befores(cut) if keys else {}
        windows, tail_start = self._windows, self._tail_start
        lasts = [window[tail_start:] for window in map(windows.get, keys, repeat(()))]
        if befores:
            lasts = [befores.get(key, last) for key, last in zip(keys, lasts)]
        if all(lasts):
            return Entries(keys, lasts)
        return Entries.of((key, last or DELETED) for key, last in zip(keys, lasts))

    def rewind(self, cut: bytes) -> None:
        """Forget all that is at or above a cut; see `KeyedState.rewind`."""
        for key, payloads in self._befores(cut).items():
            if payloads:
                self._windows[key] = payloads
            else:
                self._windows.pop(key, None)
        for bucket in self._buckets.values():
            at = bisect_left(bucket.metas, cut)
            del bucket.metas[at:], bucket.payloads[at:]
        self._log.rewind(cut)
        self._debts.rewind(cut)
        if self._touched is not None:
            self._touched.rewind(cut)

    def _befores(self, cut: bytes) -> dict[Any, tuple[Any, ...]]:
        """The last `window - 1` payloads below a cut of each key that has items at or above it."""
        befores: dict[Any, tuple[Any, ...]] = {}
        for key, bucket in self._buckets.items():
            at = bisect_left(bucket.metas, cut)
            if at < len(bucket.metas):
                befores[key] = tuple(bucket.payloads[max(at - self._window + 1, 0) : at])
        for key, window in self._log.above(cut):
            befores.setdefault(key, window[:-1])
        return befores

    def put(self, entries: Iterable[tuple[Any, Any]]) -> None:
        windows = dict(entries)
        self._windows.update(windows)
        self._plain = self._plain and are_plain(windows.values())

    @property
    def held(self) -> int:
        """How many items are unsettled, and tombstones wait for their items."""
        return len(self._debts) + self._log.held(self._buckets)
