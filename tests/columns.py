"""Batches for tests, by global times that are small numbers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from drift_graph.item import Columns
from drift_graph.meta import global_time
from drift_graph.metas import Metas


def meta_at(number: int) -> bytes:
    return global_time(number, 0, 0, 0)


def columns_of(changes: Sequence[tuple[int, Any, int]]) -> Columns:
    diffs = [diff for _, _, diff in changes]
    return Columns(
        Metas([meta_at(number) for number, _, _ in changes]),
        [payload for _, payload, _ in changes],
        diffs if -1 in diffs else None,
    )
