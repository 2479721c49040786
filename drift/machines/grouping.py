"""Windowed grouping, optimistic: a bucket is right for what has come so far, and corrects itself when more comes.

Invariant: after `process`, for every item of a bucket the window that was sent for it, counting tombstones, is the
one that its bucket gives now; and a bucket holds what is not settled and at most a few more than `window - 1` others.

Why: an item that comes last in its bucket changes no other window. For all else the bucket before and after the
whole batch are compared, from the first change to `window - 1` items past the last, and the difference is sent.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import deque
from collections.abc import Iterable, Sequence
from itertools import compress
from typing import Any

from drift.machines.changes import NOTHING, Debts, Difference
from drift.machines.keys import identities
from drift.machines.maps import Ports, called
from drift_barrier.barrier import FAILURES
from drift_graph.canonical import same
from drift_graph.failures import META_BYTES_MAX, endless_cycle, failed_step
from drift_graph.functions import RAISED
from drift_graph.item import Columns
from drift_graph.meta import BEGINNING, Metas, varint
from drift_graph.operators import Group

#: Settled items that a bucket may keep beyond those it needs, so that it need not be trimmed at every turn.
_SPARE_ITEMS = 16

_Change = tuple[bytes, Any, int]


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
        self._buckets: dict[Any, tuple[list[bytes], list[Any]]] = {}
        self._debts = Debts(group.step)
        self._touched: deque[tuple[bytes, Sequence[Any]]] = deque()
        self._settled = BEGINNING

    def process(self, columns: Columns, ports: Ports) -> Columns:
        """Take a batch sorted by meta; the windows to send and take back, whose metas still lack the suffix."""
        columns, keys = keyed(self._group, self.suffix, columns, ports, endless=self._cyclic)
        metas, payloads, diffs = columns
        if not metas:
            return columns
        changes: dict[Any, list[_Change]] = {}
        out_metas: Metas = []
        windows: list[Any] = []
        if diffs is None and not self._debts:
            out_metas, windows = self._append(keys, metas, payloads, changes)
        else:
            for key, meta, payload, diff in zip(keys, metas, payloads, diffs or [1] * len(metas)):
                changes.setdefault(key, []).append((meta, payload, diff))
        self._touched.append((metas[-1], keys))
        if not changes:
            return Columns(out_metas, windows, None)
        difference = Difference()
        for key, changed in changes.items():
            self._change(self._buckets.setdefault(key, ([], [])), changed, difference)
        corrected = difference.columns()
        diffs = None if corrected.diffs is None else [1] * len(windows) + corrected.diffs
        return Columns([*out_metas, *corrected.metas], windows + corrected.payloads, diffs)

    def _append(
        self, keys: Sequence[Any], metas: Metas, payloads: list[Any], changes: dict[Any, list[_Change]]
    ) -> tuple[Metas, list[Any]]:
        """Windows of the items that are last in their bucket; from a key's first other item on, all go to `changes`."""
        buckets = self._buckets
        find, start = buckets.get, -self._window
        windows: list[Any] = []
        give = windows.append
        elsewhere: list[int] = []  # indices of the items that are not last in their bucket
        for key, meta, payload in zip(keys, metas, payloads):
            bucket = find(key)
            if bucket is None:
                buckets[key] = [meta], [payload]
                give((payload,))
            elif (not bucket[0] or bucket[0][-1] < meta) and not (changes and key in changes):
                bucket[0].append(meta)
                bucket[1].append(payload)
                give(tuple(bucket[1][start:]))
            else:
                changes.setdefault(key, []).append((meta, payload, 1))
                elsewhere.append(len(windows) + len(elsewhere))
        if not elsewhere:
            return metas, windows
        kept = bytearray(b"\x01") * len(metas)
        for index in elsewhere:
            kept[index] = 0
        return list(compress(metas, kept)), windows

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
        """Nothing below minimal time will change any more: trim the buckets that were touched below it."""
        self._settled = minimal_time
        spare = self._window - 1 + _SPARE_ITEMS
        while self._touched and self._touched[0][0] < minimal_time:
            for key in self._touched.popleft()[1]:
                metas, payloads = self._buckets[key]
                if len(metas) > spare:
                    gone = bisect_left(metas, minimal_time) - self._window + 1
                    if gone > 0:
                        del metas[:gone], payloads[:gone]

    def remembered(self) -> list[tuple[Any, Any]]:
        """Of each key what later items need, once everything is settled: its last `window - 1` items."""
        keep = self._window - 1
        return [(key, (metas[-keep:], payloads[-keep:])) for key, (metas, payloads) in self._buckets.items() if keep]

    def recall(self, remembered: Iterable[tuple[Any, Any]]) -> None:
        """Go on, before any item, where a machine ended that remembered this."""
        for key, (metas, payloads) in remembered:
            self._buckets[key] = list(metas), list(payloads)

    @property
    def held(self) -> int:
        """Items that are not settled, over all buckets, and tombstones that wait for theirs."""
        return len(self._debts) + sum(
            len(metas) - bisect_left(metas, self._settled) for metas, _ in self._buckets.values()
        )
