"""Finds where the output of a run diverges from that of a record.

Invariant: the position found is the first at which the two differ; at most one block and one batch of either output is
held.

Why: blocks are hashed during the run and compared with the recorded hashes, in order; only the items of the first block
that differs, and of the last one, are compared one by one.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import islice, zip_longest
from typing import Any

from drift.records.format import RecordError
from drift.records.reader import Record
from drift.running import Run
from drift.spilled import Spilled
from drift_barrier.barrier import Released
from drift_barrier.digest import BLOCK_ITEMS, Digest
from drift_graph.canonical import canonical
from drift_graph.errors import DriftError
from drift_graph.item import Item, items
from drift_graph.meta import global_time_of


@dataclass(frozen=True)
class Divergence:
    """The first position at which two outputs differ.

    Attributes:
        position: in the output, from 0.
        recorded: the recorded item; None if the recorded output ends before.
        recomputed: the run's item; None if the run ended before. If both are None, the ends differ.
        error: the error that ended the run before this item, if one did.
    """

    position: int
    recorded: Item[Any] | None
    recomputed: Item[Any] | None
    error: DriftError | None = None

    @property
    def pair(self) -> tuple[Item[Any] | None, Item[Any] | None]:
        """The recorded item and the computed one that one input item caused; they may have different positions.

        If the items at the position come from two input items, the output of the first of these differs: it has an item
        too many or lacks one. The item on the other side is unrelated.
        """
        recorded, recomputed = self.recorded, self.recomputed
        if recorded is None or recomputed is None:
            return recorded, recomputed
        cause, other = global_time_of(recorded.meta), global_time_of(recomputed.meta)
        return (recorded if cause <= other else None), (recomputed if other <= cause else None)

    @property
    def in_place(self) -> Item[Any] | None:
        """The item at the position that comes from another input item than the difference."""
        pairs = zip((self.recorded, self.recomputed), self.pair)
        return next((item for item, paired in pairs if paired is None and item is not None), None)

    @property
    def block(self) -> int:
        """Number of the block it is in."""
        return self.position // BLOCK_ITEMS

    @property
    def what(self) -> str:
        """A short description."""
        recorded, recomputed = self.recorded, self.recomputed
        if recorded is None and recomputed is None:
            if self.error is not None:
                return f"the run ends with {type(self.error).__name__}, and the recorded one did not"
            return "the recorded run ended with an error, and this one does not"
        if recorded is None:
            return "the run gives an item after the last one of the record"
        if recomputed is None:
            return "the run ends before" + (" with an error" if self.error is not None else "")
        if recorded.meta == recomputed.meta:
            return "another payload at the same position"
        if None not in self.pair:
            return "another item from the same input item"
        return "an item is missing" if recomputed.meta > recorded.meta else "an item is there that the record lacks"


@dataclass(frozen=True)
class Comparison:
    """A run compared with a record.

    Attributes:
        items: number of the run's items that were compared.
        divergence: where they differ; None if they do not.
        digest: of what was compared.
        error: that the run ended with, also if the recorded one ended so.
    """

    items: int
    divergence: Divergence | None
    digest: str
    error: DriftError | None = None


def compared(record: Record, run: Run) -> Comparison:
    """Run to the end, or to the block in which the outputs diverge.

    Args:
        record: with the classes of the payloads; see `Record.with_classes`.

    Raises:
        RecordError: it cannot be read to its end.
    """
    comparing = _Comparing(record)
    error: DriftError | None = None
    with run:
        try:
            for batch in run.batches():
                if batch.metas and (found := comparing.add(batch)) is not None:
                    return Comparison(comparing.items, found, comparing.digest.hexdigest())
        except RecordError:
            raise
        except DriftError as raised:
            error = raised
    return Comparison(comparing.items, comparing.end(error), comparing.digest.hexdigest(), error)


class _Comparing:
    """Takes the output of a run in batches."""

    def __init__(self, record: Record) -> None:
        self.items = 0
        self.digest = Digest(record.manifest.algorithm, new_parts=Spilled)
        self._record = record
        self._recorded = [(block.rows, block.hash) for block in record.blocks()]
        self._ends = record.manifest.outcome.state == "finished"  # else the run may give more than the record has
        self._checked = 0  # blocks that are the same
        self._waiting: list[Released] = []  # batches with items of later blocks

    def add(self, batch: Released) -> Divergence | None:
        """Add the next items; returns where they differ, once the hash of a block shows that they do."""
        self.digest.add(batch.metas, batch.payloads)
        self._waiting.append(batch)
        self.items += len(batch.metas)
        while self._checked < len(self.digest.blocks):
            at = self._checked
            same = at < len(self._recorded) and (BLOCK_ITEMS, self.digest.blocks[at]) == self._recorded[at]
            if not same and (found := self._located(None)) is not None:
                return found
            self._checked += 1
        start = self._checked * BLOCK_ITEMS
        self._waiting = [each for each in self._waiting if each.position + len(each.metas) > start]
        return None

    def end(self, error: DriftError | None) -> Divergence | None:
        """There are no more items: compare the last block, which may not be full, item by item."""
        outcome = self._record.manifest.outcome
        found = self._located(error)
        if found is not None:
            return found
        if error is not None and self._record.manifest.complete and outcome.kind != type(error).__name__:
            return Divergence(self.items, None, None, error)
        if error is None and outcome.is_repeatable:
            return Divergence(self.items, None, None)
        return None

    def _located(self, error: DriftError | None) -> Divergence | None:
        """The first item that differs in the first block that is not known to be the same."""
        start = self._checked * BLOCK_ITEMS
        end = start + BLOCK_ITEMS
        recorded = self._record.items(start, end)
        recomputed = islice(_items_of(self._waiting, start), BLOCK_ITEMS)
        return first_difference(recorded, recomputed, start, error, ends=self._ends)


def first_difference(
    recorded: Iterable[Item[Any]],
    computed: Iterable[Item[Any]],
    start: int = 0,
    error: DriftError | None = None,
    *,
    ends: bool,
) -> Divergence | None:
    """Where two outputs differ, item by item.

    Args:
        start: the position of the first of the items.
        error: that the run ended with.
        ends: whether the recorded run finished; if not, items after the recorded ones do not count.
    """
    for position, (one, other) in enumerate(zip_longest(recorded, computed), start):
        if one is None and not ends:
            return None
        if one is None or other is None or not same_item(one, other):
            return Divergence(position, one, other, error if other is None else None)
    return None


def _items_of(batches: list[Released], start: int) -> Iterator[Item[Any]]:
    for position, metas, payloads, sinks, _ in batches:
        for item in items(payloads, range(position, position + len(payloads)), sinks, metas):
            if item.position >= start:
                yield item


def same_item(one: Item[Any], other: Item[Any]) -> bool:
    """Whether two items are the same: meta, sink, types and values."""
    return (one.meta, one.sink) == (other.meta, other.sink) and canonical(one.payload) == canonical(other.payload)
