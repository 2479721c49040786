"""Compares two outputs item by item: what is the same, changed, missing, added.

Invariant: every item of either output is counted once; memory holds the output of one input item.

Why: both outputs are in the order of metas, which begin with the global time of an input item. So they are walked side
by side, an input item at a time, and by columns where many items are the same. The outputs of one input item are
matched sink by sink: first equal payloads, which are the same item at any position; then, in order, pairs, which are
one item changed; the rest is missing or added. A graph with other operators gives other metas, so only the global time
of a meta is used.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from functools import cached_property
from typing import Literal, NamedTuple

import numpy as np
import pyarrow as pa

from drift.records.columns import metas_of
from drift.records.reader import Record
from drift_graph.meta import global_time_of, time_of

Kind = Literal["changed", "missing", "added"]
KINDS: tuple[Kind, ...] = ("changed", "missing", "added")

_EXAMPLES_MAX = 5
_TRIED_MAX = 1 << 20
#: Leading items that are compared one by one, up to the first that differs.
_LISTED_MAX = 256


class OutputRow(NamedTuple):
    """An output item; its payload as canonical bytes."""

    meta: bytes
    sink: str
    position: int
    data: bytes


class OutputRows:
    """Consecutive items of an output, in columns; lists are made of them on access."""

    def __init__(self, position: int, batch: pa.RecordBatch) -> None:
        self.position = position
        self.batch = batch

    def __len__(self) -> int:
        return len(self.batch)

    @cached_property
    def metas(self) -> list[bytes]:
        metas: list[bytes] = metas_of(self.batch).to_pylist()
        return metas

    @cached_property
    def data(self) -> list[bytes]:
        payloads: list[bytes] = self.batch.column("payload").to_pylist()
        return payloads

    @cached_property
    def sinks(self) -> list[str]:
        names: list[str] = self.batch.column("sink").to_pylist()
        return names

    def row(self, index: int) -> OutputRow:
        return OutputRow(self.metas[index], self.sinks[index], self.position + index, self.data[index])

    def of_sinks(self, start: int, end: int) -> Iterator[tuple[str, int]]:
        """The number of items of each sink in a range."""
        column = self.batch.column("sink").slice(start, end - start)
        counts = np.bincount(column.indices).tolist()
        return ((sink, count) for sink, count in zip(column.dictionary.to_pylist(), counts) if count)


class Example(NamedTuple):
    """One difference; `old` is None for an added item, `new` for a missing one."""

    kind: Kind
    old: OutputRow | None
    new: OutputRow | None

    @property
    def row(self) -> OutputRow:
        """The old item, or the added one."""
        row = self.old or self.new
        assert row is not None
        return row

    @property
    def time(self) -> int:
        return time_of(self.row.meta)


@dataclass
class Counts:
    """How many items.

    Attributes:
        moved: of the same ones, those at another index among the outputs of their input item.
    """

    same: int = 0
    moved: int = 0
    changed: int = 0
    missing: int = 0
    added: int = 0

    @property
    def different(self) -> int:
        return self.changed + self.missing + self.added

    def add(self, kind: Kind) -> None:
        setattr(self, kind, getattr(self, kind) + 1)


@dataclass
class Difference:
    """The result of comparing two outputs.

    Attributes:
        by_sink: counts for each sink.
        first: the first differences of each kind.
    """

    counts: Counts = field(default_factory=Counts)
    by_sink: dict[str, Counts] = field(default_factory=dict)
    first: dict[Kind, list[Example]] = field(default_factory=lambda: {kind: [] for kind in KINDS})

    @property
    def same(self) -> bool:
        return not self.counts.different


def rows_of_record(record: Record) -> Iterator[OutputRows]:
    position = 0
    for batch in record.output_rows():
        yield OutputRows(position, batch)
        position += len(batch)


def difference(old: Iterable[OutputRows], new: Iterable[OutputRows]) -> Difference:
    """Compare two outputs. Raises RecordError: a record cannot be read."""
    walking = _Walking()
    walking.walk(_Reader(old), _Reader(new))
    return walking.found


class _Reader:
    """Reads items of an output in batches; those before `at` are done."""

    def __init__(self, batches: Iterable[OutputRows]) -> None:
        self._batches = iter(batches)
        self.rows: OutputRows  # once there are some
        self.at = self._size = 0

    @property
    def left(self) -> int:
        """Number of items in memory; 0 at the end."""
        while self.at == self._size:
            following = next(self._batches, None)
            if following is None:
                return 0
            self.rows, self.at, self._size = following, 0, len(following)
        return self._size - self.at

    def take(self) -> OutputRow:
        """The next item; there is one."""
        self.at += 1
        return self.rows.row(self.at - 1)

    def take_time(self, global_time: bytes) -> list[OutputRow]:
        """The outputs of one input item."""
        taken: list[OutputRow] = []
        while self.left and self.rows.metas[self.at].startswith(global_time):
            taken.append(self.take())
        return taken


class _Walking:
    def __init__(self) -> None:
        self.found = Difference()
        self._tried = _TRIED_MAX

    def walk(self, old: _Reader, new: _Reader) -> None:
        while old.left and new.left:
            if self._take_equal(old, new):
                continue
            one, other = (global_time_of(each.rows.metas[each.at]) for each in (old, new))
            least = min(one, other)
            self._compare(old.take_time(least), new.take_time(least))
        while old.left:
            self._count("missing", old.take(), None)
        while new.left:
            self._count("added", None, new.take())

    def _take_equal(self, old: _Reader, new: _Reader) -> bool:
        """Count, by columns, equal items at the beginning of what is in memory; returns whether there were any."""
        count = min(old.left, new.left, self._tried)
        while count:
            if _equal(old, new, count):
                for sink, rows in old.rows.of_sinks(old.at, old.at + count):
                    self._same(sink, rows, 0)
                old.at += count
                new.at += count
                self._tried = min(16 * count, _TRIED_MAX)
                return True
            count //= 16
        self._tried = 16
        return False

    def _same(self, sink: str, count: int, moved: int) -> None:
        for counts in (self.found.counts, self.found.by_sink.setdefault(sink, Counts())):
            counts.same += count
            counts.moved += moved

    def _compare(self, old: list[OutputRow], new: list[OutputRow]) -> None:
        """Compare the outputs of one input item."""
        for sink in dict.fromkeys(row.sink for row in (*old, *new)):
            ones = [row for row in old if row.sink == sink]
            others = [row for row in new if row.sink == sink]
            for row in list(ones):
                equal = [other for other in others if other.data == row.data]
                if equal:
                    other = next((each for each in equal if each.meta == row.meta), equal[0])
                    ones.remove(row)
                    others.remove(other)
                    self._same(sink, 1, int(other.meta != row.meta))
            for one, other in zip(ones, others):
                self._count("changed", one, other)
            for row in ones[len(others) :]:
                self._count("missing", row, None)
            for row in others[len(ones) :]:
                self._count("added", None, row)

    def _count(self, kind: Kind, old: OutputRow | None, new: OutputRow | None) -> None:
        example = Example(kind, old, new)
        found = self.found
        found.counts.add(kind)
        found.by_sink.setdefault(example.row.sink, Counts()).add(kind)
        if len(found.first[kind]) < _EXAMPLES_MAX:
            found.first[kind].append(example)


def _equal(old: _Reader, new: _Reader, count: int) -> bool:
    if count > _LISTED_MAX:
        return same_rows(old.rows.batch.slice(old.at, count), new.rows.batch.slice(new.at, count))
    one, other = slice(old.at, old.at + count), slice(new.at, new.at + count)
    return (
        old.rows.data[one] == new.rows.data[other]
        and old.rows.metas[one] == new.rows.metas[other]
        and old.rows.sinks[one] == new.rows.sinks[other]
    )


def same_rows(one: pa.RecordBatch, other: pa.RecordBatch) -> bool:
    """Whether all columns are the same, by the names in dictionaries, not their indices."""
    for mine, yours in zip(one.columns, other.columns):
        if pa.types.is_dictionary(mine.type) and not mine.dictionary.equals(yours.dictionary):
            mine, yours = mine.dictionary_decode(), yours.dictionary_decode()
        if not mine.equals(yours):
            return False
    return True
