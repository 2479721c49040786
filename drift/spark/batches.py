"""Items between the tasks of Spark: a row is a batch of items for one port, sorted by meta.

Invariant: a task takes the items of a port from `RowInbox` in the order of metas, each item once, in complete parts:
when a part is taken, no item below its end is still to come.

Why: the rows of a task are sorted by their first metas, so an item below the first meta of the next row cannot be in
that row or in a later one. A task that takes its items in order also gives them in order; so the batches of one sending
task do not overlap, and a receiving task holds about one batch of each sender at a time, however many there are in all.

Spark shuffles and sorts one row for some thousand items, so the cost for each item is negligible.
"""

from __future__ import annotations

import pickle
from array import array
from bisect import bisect_left
from collections.abc import Iterable, Iterator, Sequence
from itertools import accumulate
from typing import Any, Literal, NamedTuple

import pyarrow as pa

from drift.machines.worker import Part
from drift_graph.errors import DriftError, PayloadError
from drift_graph.functions import safe_text
from drift_graph.item import Columns, joined, sorted_by_meta
from drift_graph.meta import BEGINNING, with_ordinal, without_ordinal
from drift_graph.metas import Metas
from drift_graph.payloads import have_fields

#: A row: the level that reads it and the task there, the first meta in it, the port of its items (a source's program, a
#: grouping, a sink or FAILURES), how many they are, and the items.
ROWS = pa.schema(
    [
        ("level", pa.int32()),
        ("target", pa.int32()),
        ("first", pa.binary()),
        ("port", pa.string()),
        ("items", pa.int64()),
        ("body", pa.binary()),
    ]
)
DDL = "level int, target int, first binary, port string, items long, body binary"

#: Ports of rows that hold no items, and sort before all rows that do. A COUNT says how many items some task sent to
#: lower targets of the last level, READ how many a task read of a source. An ERROR holds an error that ends the run
#: before anything is released, and a key: of several errors the least key counts.
COUNT = "\0count"
READ = "\0read"
ERROR = "\0error"
#: A STATE holds states of the keys of one level's task, between the micro-batches of a stream; `items` is the number of
#: that level.
STATE = "\0state"
#: A LATER holds items that are due after a micro-batch; `items` is the level that they go to, `first` their first meta.
LATER = "\0later"

BATCH_ITEMS = 4096
_BATCH_ROWS = 1 << 15  # where they are columns
_BATCH_ITEMS_MIN = 64
_BATCH_BYTES = 1 << 20  # where items are large, batches have fewer
_FILLING_ITEMS_MAX = 1 << 18  # over all the batches that a task is filling
READY_BYTES = 16 << 20  # of the batches that a task gathers before it takes a part
_ROWS_BYTES = 4 << 20  # of the rows that Spark gets at once


class BatchRow(NamedTuple):
    """One row; `columns` unpacks it."""

    level: int
    target: int
    first: bytes
    port: str
    items: int
    body: bytes

    def columns(self) -> Columns:
        columns: Columns = pickle.loads(self.body)
        return columns


def row_of(level: int, target: int, port: str, columns: Columns) -> BatchRow:
    """A row of items that are sorted by meta.

    Raises:
        PayloadError: a payload cannot be pickled.
    """
    try:
        body = pickle.dumps(columns, 5)
    except Exception as error:
        raise _not_picklable(port, columns.payloads, error) from error
    return BatchRow(level, target, columns.metas[0], port, len(columns.metas), body)


class Cutter:
    """Cuts items into rows: of BATCH_ITEMS, or of fewer where they are large."""

    def __init__(self) -> None:
        self._items_at_once: dict[str, int] = {}

    def items_at_once(self, port: str, payloads: list[Any]) -> int:
        """How many items of a port make a row, estimated from the size of the last row, or else of the first item."""
        known = self._items_at_once.get(port)
        if known is None:
            try:
                known = _fitting(_bytes_of_first(payloads), payloads)
            except Exception:  # raised again when the row is made, with the item
                known = BATCH_ITEMS
            self._items_at_once[port] = known
        return known

    def rows(self, level: int, target: int, port: str, columns: Columns) -> Iterator[BatchRow]:
        """Rows of items that are sorted by meta."""
        metas, payloads, _ = columns
        start = 0
        while start < len(metas):
            end = start + self.items_at_once(port, payloads)
            row = row_of(level, target, port, columns.slice(start, end))
            self._items_at_once[port] = _fitting(len(row.body) // row.items, payloads)
            yield row
            start = end


def _bytes_of_first(payloads: Any) -> int:
    return payloads.nbytes // len(payloads) if have_fields(payloads) else len(pickle.dumps(payloads[0], 5))


def _fitting(item_bytes: int, payloads: Any) -> int:
    return max(min(_BATCH_BYTES // max(item_bytes, 1), _most(payloads)), 1)


def _most(payloads: Any) -> int:
    """How many of such items a batch has at most."""
    return _BATCH_ROWS if have_fields(payloads) else BATCH_ITEMS


def error_row(level: int, error: DriftError, key: bytes = b"") -> BatchRow:
    """A row that ends the run."""
    return BatchRow(level, 0, BEGINNING, ERROR, 0, pickle.dumps((key, error), 5))


def _not_picklable(port: str, payloads: list[Any], error: Exception) -> PayloadError:
    shown = ""
    for payload in payloads:
        try:
            pickle.dumps(payload, 5)
        except Exception as reason:
            shown, error = safe_text(repr, payload, 200), reason
            break
    return PayloadError(
        f"a payload on its way to {port!r} cannot be sent to another process ({type(error).__name__}: {error}): "
        f"{shown}; payloads have to be picklable: no lambdas, open files or locks",
        step=port,
    )


def record_batch(rows: Sequence[tuple[Any, ...]], schema: pa.Schema = ROWS) -> pa.RecordBatch:
    columns = zip(*rows) if rows else [[] for _ in schema]
    arrays = [
        _in_one_copy(each) if field.name == "body" and None not in each else pa.array(list(each), field.type)
        for each, field in zip(columns, schema)
    ]
    return pa.RecordBatch.from_arrays(arrays, schema=schema)


def _in_one_copy(bodies: Sequence[bytes]) -> pa.Array:
    """Bytes as an array, which would otherwise grow again and again."""
    offsets = array("i", accumulate(map(len, bodies), initial=0))
    buffers = [None, pa.py_buffer(offsets), pa.py_buffer(b"".join(bodies))]
    return pa.Array.from_buffers(pa.binary(), len(bodies), buffers)


def rows_in(batch: pa.RecordBatch) -> Iterator[BatchRow]:
    """The rows of a record batch, one body at a time."""
    levels, targets, firsts, ports, items = (column.to_pylist() for column in batch.columns[:5])
    for level, target, first, port, count, body in zip(levels, targets, firsts, ports, items, batch.column(5)):
        yield BatchRow(level, target, first, port, count, body.as_py())


def shuffled(frame: Any, targets: int) -> Any:
    """Send each row to its task, and sort a task's rows by their first metas."""
    return frame.repartitionById(targets, "target").sortWithinPartitions("first")


class RowOutbox:
    """Fills batches for the tasks of later levels.

    Args:
        last_level: the level where items are released.
        targets: how many tasks each level has.
    """

    def __init__(self, last_level: int, targets: int) -> None:
        self._last_level = last_level
        self._filling_items = max(_FILLING_ITEMS_MAX // targets, _BATCH_ITEMS_MIN)
        self._filling: dict[tuple[int, int, str], list[Columns]] = {}
        self._counts: dict[tuple[int, int, str], int] = {}
        self._released = [0] * targets  # items for each target of the last level
        self._rows: list[BatchRow] = []
        self._bytes = 0
        self._cutter = Cutter()

    def add(self, level: int, target: int, port: str, columns: Columns) -> None:
        """Add items of one port for one task; they are sorted here if they are not in order."""
        count = len(columns.metas)
        if not count:
            return
        key = level, target, port
        self._filling.setdefault(key, []).append(columns)
        held = self._counts[key] = self._counts.get(key, 0) + count
        if level == self._last_level:
            self._released[target] += count
        if held >= min(
            _most(columns.payloads), self._filling_items, self._cutter.items_at_once(port, columns.payloads)
        ):
            self._close(key)

    def add_row(self, row: BatchRow) -> None:
        self._rows.append(row)
        self._bytes += len(row.body or b"") + 100

    def adding(self, rows: Iterable[BatchRow]) -> Iterator[pa.RecordBatch]:
        for row in rows:
            self.add_row(row)
            yield from self.ready()

    def ready(self) -> Iterator[pa.RecordBatch]:
        """Rows, once there are enough of them."""
        if self._bytes >= _ROWS_BYTES:
            yield self._flush()

    def rest(self) -> Iterator[pa.RecordBatch]:
        """All remaining rows, and the counts."""
        for key in list(self._filling):
            self._close(key)
            yield from self.ready()
        before = 0
        for target, count in enumerate(self._released):
            if before:
                self.add_row(BatchRow(self._last_level, target, BEGINNING, COUNT, before, b""))
            before += count
        if self._rows:
            yield self._flush()

    def _close(self, key: tuple[int, int, str]) -> None:
        level, target, port = key
        batches = self._filling.pop(key)
        del self._counts[key]
        columns = sorted_by_meta(joined(batches))
        assert columns.diffs is None or -1 not in columns.diffs, "what was computed in order was taken back"
        for row in self._cutter.rows(level, target, port, columns):
            self.add_row(row)

    def _flush(self) -> pa.RecordBatch:
        batch = record_batch(self._rows)
        self._rows, self._bytes = [], 0
        return batch


#: What happens to items with equal metas: "bug": nothing, since the barrier reports such a bug; "count": they get
#: ordinals, if each was read as the first with its stamp.
Repeats = Literal["bug", "count"]


class RowInbox:
    """Merges the rows of one task; see the module.

    Args:
        ready_items: how many items to gather before a part should be taken.
        repeats: what happens to items with equal metas.
    """

    def __init__(self, ready_items: int, repeats: Repeats = "bug") -> None:
        self._ready_items = ready_items
        self._repeats = repeats
        self._due = ready_items
        self._due_bytes = READY_BYTES
        self._items = self._bytes = 0
        self._runs: dict[str, list[Columns]] = {}

    def add(self, row: BatchRow) -> None:
        self.add_columns(row.port, row.columns(), len(row.body))

    def add_columns(self, port: str, columns: Columns, size: int) -> None:
        """Add items sorted by meta, possibly none; `size` is about how many bytes they are."""
        if columns.metas:
            self._runs.setdefault(port, []).append(columns)
            self._items += len(columns.metas)
            self._bytes += size

    @property
    def is_due(self) -> bool:
        """Whether a part should be taken."""
        return self._bytes >= self._due_bytes or self._items >= self._due

    def bound(self, first: bytes) -> bytes:
        """The bound below which all items have come, if the next row begins with `first`.

        Items with one stamp that are counted here must be in one part.
        """
        return without_ordinal(first) if self._repeats == "count" else first

    def below(self, bound: bytes) -> list[Part]:
        parts = [(port, self._merged(port, bound)) for port in self._runs]
        # If batches overlap much, the next part is taken when there is twice as much: merging stays O(n log n).
        taken = sum(len(columns.metas) for _, columns in parts)
        left = self._items - taken
        self._bytes = self._bytes * left // max(self._items, 1)
        self._items = left
        self._due, self._due_bytes = max(self._ready_items, 2 * left), max(READY_BYTES, 2 * self._bytes)
        return [part for part in parts if part[1].metas]

    def _merged(self, port: str, bound: bytes) -> Columns:
        """The items below the bound, taken out of every run and merged."""
        taken: list[Columns] = []
        left: list[Columns] = []
        for run in self._runs[port]:
            metas = run.metas
            if metas[-1] < bound:
                taken.append(run)
            elif metas[0] >= bound:
                left.append(run)
            else:
                end = bisect_left(metas, bound)
                taken.append(run.slice(0, end))
                left.append(run.slice(end, len(metas)))
        self._runs[port] = left
        columns = joined(taken) if taken else Columns(Metas(), [], None)
        if columns.metas.is_increasing():
            return columns
        columns = sorted_by_meta(columns)
        if self._repeats == "bug" or columns.metas.is_increasing():
            return columns
        return counted(columns)


def counted(columns: Columns) -> Columns:
    """Sorted items with distinct metas: the ordinal of an item is the number of those before it with equal metas."""
    metas = list(columns.metas)
    before = 0
    for at in range(1, len(metas)):
        before = before + 1 if columns.metas[at] == columns.metas[at - 1] else 0
        if before:
            metas[at] = with_ordinal(metas[at], before)
    return sorted_by_meta(columns._replace(metas=Metas(metas)))


def all_rows(batches: Iterable[pa.RecordBatch]) -> Iterator[BatchRow]:
    for batch in batches:
        yield from rows_in(batch)
