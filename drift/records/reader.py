"""Reads a record: its manifest, its arrivals in order, its output by position.

Invariant: only sealed files are read, one row group of each table at a time; nothing in the record is run or imported.

Opening an untrusted record is safe: it is JSON, Parquet and MessagePack. Payloads of classes are restored if the
classes are loaded or passed: `Record(path, classes=...)`.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from itertools import accumulate, chain
from pathlib import Path
from shlex import quote
from typing import Any, Literal, NamedTuple

import msgspec
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from drift.records.blocks import Block
from drift.records.columns import GLOBAL_TIME, META, bins_of, joined, metas_of, strings_of
from drift.records.format import TABLES, File, Manifest, RecordError, hash_file, read_manifest
from drift.records.storable import classes_at
from drift.records.tables import DAMAGE, check_values, open_table, unread
from drift.records.watch import Watch
from drift.records.writing import current_manifest
from drift.sinks.typed import Tables
from drift_barrier.digest import BLOCK_ITEMS
from drift_graph.called import called
from drift_graph.errors import SettingsError
from drift_graph.item import Failure, Item
from drift_graph.lateness import Late
from drift_graph.meta import TIME_MAX, TIME_MIN, time_of
from drift_graph.metas import Metas
from drift_graph.restore import CannotRestore, Classes, named_classes, restored, restored_all

Table = Literal["output", "input", "late", "arrivals", "answers", "blocks"]
#: Rows that are made into Python objects at once.
_ROWS_AT_ONCE = 4 * BLOCK_ITEMS


class ArrivedBatch(NamedTuple):
    """A recorded batch of a source.

    Attributes:
        number: of the batch, over all sources, from 0.
        data: the payloads in stored form.
        heartbeat: of the source after it; END_OF_TIME after its last item.
        at_ns: when, in nanoseconds since 1970.
    """

    number: int
    source: str
    rank: int
    metas: Metas
    data: pa.Array
    heartbeat: bytes
    late: list[LateItemRow]
    at_ns: int


class LateItemRow(NamedTuple):
    """A diverted item; see `drift.Late`."""

    source: str
    data: bytes
    time: int
    heartbeat: int
    reason: str


class InputItem(NamedTuple):
    """An input item; `row` is its index in the whole input, in the order of arrival."""

    row: int
    batch: int
    source: str
    global_time: bytes
    data: bytes


@called
class Record:
    """A record, open for reading.

    >>> import drift
    >>> graph = drift.Graph("fares")
    >>> graph.source("fares").sink("out")
    >>> report = drift.run(graph, {"fares": [30, 9]}, record="monday").finish()
    >>> [item.payload for item in drift.Record("monday").items()]
    [30, 9]

    Args:
        path: its folder.
        classes: of payloads that are not in loaded modules: by qualified name, or just the classes.

    Attributes:
        path: its folder.
        manifest: see `drift.records.format.Manifest`.
        watch: follows what is read.

    Raises:
        RecordError: there is no record, or its manifest cannot be read.
    """

    def __init__(self, path: str | os.PathLike[str], classes: Classes | Sequence[type] = ()) -> None:
        folder = Path(path)
        self._hold(folder, current_manifest(folder, read_manifest(folder)), classes)

    @classmethod
    def at(cls, path: Path, manifest: Manifest, classes: Classes | Sequence[type] = ()) -> Record:
        """The record as of a manifest that was read before, however it has grown since."""
        record = object.__new__(cls)
        record._hold(path, manifest, classes)
        return record

    def _hold(self, path: Path, manifest: Manifest, classes: Classes | Sequence[type]) -> None:
        self.path = path
        self.manifest = manifest
        self.watch = Watch()
        self._extra_classes = named_classes(classes)
        self._groups: dict[str, list[tuple[int, int, int]]] = {}

    def __repr__(self) -> str:
        manifest = self.manifest
        return (
            f"<drift.Record of {manifest.graph!r} at {self.path}, {manifest.outcome.state}: "
            f"{manifest.items_in} items in, {manifest.items_out} out>"
        )

    @property
    def hash(self) -> str:
        """The hash of the manifest, which covers all files: store it elsewhere, and `drift.audit(expect=)` compares."""
        return self.manifest.self_hash

    @property
    def classes(self) -> Classes:
        """Classes of payloads: those passed, and those of loaded modules that the manifest names."""
        return {**classes_at(self.manifest.classes.values()), **self._extra_classes}

    def files(self, table: Table = "output") -> list[str]:
        """Paths of the Parquet files of a table, in order: those that the manifest lists, whatever else is in the
        folder.

        Args:
            table: "output", "input", "late", "arrivals", "answers" or "blocks".

        Raises:
            SettingsError: there is no such table.
        """
        if table not in TABLES:
            raise SettingsError(f"table={table!r:.80}: a record has {', '.join(map(repr, TABLES))}")
        return [str(self.path / file.path) for file in self.manifest.of(table)]

    @property
    def counts(self) -> dict[str, int]:
        """The number of items of the input and of the output."""
        return {"input": self.manifest.items_in, "output": self.manifest.items_out}

    def with_classes(self, classes: Classes) -> Record:
        """This record, read with more classes."""
        other = object.__new__(Record)
        other.__dict__.update(self.__dict__)
        other._extra_classes = {**self._extra_classes, **classes}
        return other

    def restored(self, data: pa.Array | bytes) -> Any:
        """Payloads from their stored form; one for bytes, a list for several.

        Raises:
            CannotRestore: a class is missing or has changed.
        """
        if isinstance(data, bytes):
            return restored(data, self.classes)
        return restored_many(data, self.classes)

    # Input.

    def arrivals(self) -> Iterator[ArrivedBatch]:
        """Every batch and heartbeat, in order."""
        ranks = {source.name: rank for rank, source in enumerate(self.manifest.sources)}
        items = _Cursor(self.rows("input", names=[*GLOBAL_TIME, "payload"]))
        late_items = _Cursor(self.rows("late"))
        for batch in self.rows("arrivals"):
            rows = batch.to_pydict()
            for number, source, count, late_count, at_ns, heartbeat, is_numbered in zip(
                rows["batch"], rows["source"], rows["items"], rows["late"], rows["at_ns"], rows["heartbeat"],
                rows["numbered"],
            ):  # fmt: skip
                metas = Metas()
                data = strings_of(pa.array([], pa.binary()))
                if count:
                    taken = items.take(count)
                    strings = metas_of(taken, GLOBAL_TIME)
                    data = strings_of(taken.column("payload"))
                    metas = _numbered(strings) if is_numbered else Metas(strings.to_pylist())
                late = list(_late_rows(late_items.take(late_count))) if late_count else []
                yield ArrivedBatch(number, source, ranks[source], metas, data, heartbeat, late, at_ns)

    def input(self, first: int = 0) -> Iterator[tuple[pa.Array, pa.Array]]:
        """Global times, as canonical bytes, and payloads of input items, from a row on, in batches."""
        for batch in self.rows("input", first, self.manifest.items_in, [*GLOBAL_TIME, "payload"]):
            yield bins_of(batch, GLOBAL_TIME), strings_of(batch.column("payload"))

    def input_rows(self, first: int, end: int) -> Iterator[pa.RecordBatch]:
        """Source, time, tie and payload of input items, from a row up to another."""
        return self.rows("input", first, end, ["source", *GLOBAL_TIME, "payload"])

    def input_extents(self) -> Iterator[tuple[int, int, int]]:
        """For each row group of the input: its least and greatest time, and its number of items."""
        for file in self.manifest.of("input"):
            yield from ((least, most, rows) for rows, least, most in self._groups_of(file))

    def heartbeats(self) -> Iterator[tuple[str, bytes]]:
        """The heartbeats of each source, in order: the source's name, and the bound below which no item of it comes."""
        for batch in self.rows("arrivals", names=["source", "heartbeat"]):
            yield from zip(batch.column("source").to_pylist(), batch.column("heartbeat").to_pylist())

    def late(self) -> Iterator[Late]:
        """The late items that were diverted."""
        for row in self.late_rows():
            yield Late(row.source, self.restored(row.data), row.time, row.heartbeat, row.reason)

    def late_rows(self) -> Iterator[LateItemRow]:
        """The late items in stored form."""
        for batch in self.rows("late"):
            yield from _late_rows(batch)

    def find_input(self, global_time: bytes) -> InputItem | None:
        """The input item with a global time, with which an output's meta begins; None if there is none.

        Reads the row groups whose range of times contains it.
        """
        time = time_of(global_time)
        for file in self.manifest.of("input"):
            row = file.first
            for index, (rows, least, most) in enumerate(self._groups_of(file)):
                if least <= time <= most:
                    with self._open(file) as parquet:
                        try:
                            found = _find(check_values(parquet.read_row_group(index)), global_time, row)
                        except DAMAGE as error:
                            raise RecordError(unread(self.path / file.path, error)) from error
                    if found is not None:
                        return found
                row += rows
        return None

    def _groups_of(self, file: File) -> list[tuple[int, int, int]]:
        """For each row group of an input file: its rows, and its range of times; cached."""
        if file.path not in self._groups:
            with self._open(file) as parquet:
                at = parquet.schema_arrow.get_field_index("time")
                groups = [parquet.metadata.row_group(index) for index in range(parquet.metadata.num_row_groups)]
                self._groups[file.path] = [
                    (group.num_rows, *_range_of(group.column(at).statistics)) for group in groups
                ]
        return self._groups[file.path]

    # Answers.

    def answers(self, call: str) -> Iterator[tuple[bytes, Any]]:
        """Meta and answer of each item that a call was asked about; a `Failure` for one that failed."""
        for batch in self.rows("answers"):
            batch = batch.filter(pc.equal(batch.column("call"), call))
            failed = batch.column("failed").to_pylist()
            payloads = self.restored(strings_of(batch.column("payload")))
            for meta, is_failure, payload in zip(batch.column("meta").to_pylist(), failed, payloads):
                yield meta, Failure(*payload) if is_failure else payload

    # Output.

    def output_rows(self, first: int = 0, end: int | None = None) -> Iterator[pa.RecordBatch]:
        """Sink, time, tie, path and payload of output items, from a position up to another."""
        count = self.manifest.items_out
        return self.rows("output", first, count if end is None else min(end, count), ["sink", *META, "payload"])

    def items(self, first: int = 0, end: int | None = None) -> Iterator[Item[Any]]:
        """Output items with their payloads, as a run gives them."""
        position = first
        for batch in self.output_rows(first, end):
            payloads = self.restored(strings_of(batch.column("payload")))
            sinks, metas = batch.column("sink").to_pylist(), metas_of(batch).to_pylist()
            yield from map(Item, payloads, range(position, position + len(batch)), sinks, metas)
            position += len(batch)

    def table(
        self,
        name: Literal["output", "input"] = "output",
        *,
        of: str | None = None,
        columns: Sequence[str] | Mapping[str, pa.DataType] | None = None,
        first: int = 0,
        end: int | None = None,
    ) -> pa.Table:
        """Items with their payloads as typed columns, as a pyarrow.Table: use `.to_pandas()`, or query it with DuckDB.

        Besides the fields of the payloads there are `position`, `sink` and `time` (for the input: `row`, `source` and
        `time`); a payload field with such a name becomes `payload.NAME`.

        Args:
            of: the sink, or the source, whose items are wanted; None for all.
            columns: names of the fields, for tuples in their order; or a dict of their types by name. If None, the
                names that payloads have, for a tuple "0", "1" ...; a payload without fields is in `value`.
            first, end: range of positions, or of rows of the input.

        Raises:
            PayloadError: payloads do not have these fields, or a type does not fit.
        """
        if name not in ("output", "input"):
            raise SettingsError(f"table {name!r:.80}: it is 'output' or 'input'")
        kind, number = ("sink", "position") if name == "output" else ("source", "row")
        known = self.manifest.sinks if name == "output" else [source.name for source in self.manifest.sources]
        if of is not None and of not in known:
            raise SettingsError(f"the record {self.path} has no {kind} {of!r}; it has {', '.join(map(repr, known))}")
        count = self.manifest.items_out if name == "output" else self.manifest.items_in
        tables = Tables(of or name, columns)
        at = first
        for batch in self.rows(name, first, count if end is None else end, [kind, "time", "payload"]):
            batch = batch.append_column(number, pa.array(range(at, at + len(batch)), pa.int64()))
            at += len(batch)
            if of is not None:
                batch = batch.filter(pc.equal(batch.column(kind), of))
            items = {each: batch.column(each) for each in (number, kind, "time")}
            items[kind] = items[kind].cast(pa.string())
            tables.add(items, self.restored(strings_of(batch.column("payload"))))
        return tables.table()

    def item(self, position: int) -> Item[Any]:
        """The output item at a position.

        Raises:
            SettingsError: there is none.
        """
        for item in self.items(position, position + 1):
            return item
        raise SettingsError(
            f"the record {self.path} has no position {position}; its output has {self.manifest.items_out:,} items, "
            f"from 0"
        )

    def blocks(self, table: str = "output") -> Iterator[Block]:
        """The blocks of the output, or of the input, in order; the last one may not be full."""
        last: Block | None = None
        for batch in self.rows("blocks"):
            for of_table, *values in zip(*batch.to_pydict().values()):
                if of_table == table:
                    block = Block(*values)
                    if last is not None and last.number != block.number:
                        yield last
                    last = block  # the same one again has more rows
        if last is not None:
            yield last

    # Tables.

    def check_files(self, *tables: Table) -> None:
        """Check that files are as they were written, by their hashes.

        Raises:
            RecordError: one was changed, or cannot be read.
        """
        for table in tables:
            for file in self.manifest.of(table):
                path = self.path / file.path
                try:
                    found = hash_file(path, self.manifest.algorithm)
                except FileNotFoundError:
                    raise self._missing(path) from None
                except OSError as error:
                    raise RecordError(unread(path, error)) from error
                if found != file.hash:
                    raise RecordError(
                        f"{path} was changed since it was written; `drift audit {quote(str(self.path))} --intact` says "
                        f"where. Take the record from where it was made, or make it again"
                    )

    @staticmethod
    def _missing(path: Path) -> RecordError:
        return RecordError(f"{path} is missing from the record; `drift audit` says what else is")

    def _open(self, file: File) -> pq.ParquetFile:
        path = self.path / file.path
        try:
            return open_table(path, file.table)
        except FileNotFoundError:
            raise self._missing(path) from None
        except DAMAGE as error:
            raise RecordError(f"{unread(path, error)}; `drift audit` says more") from error

    def rows(
        self, table: str, first: int = 0, end: int | None = None, names: list[str] | None = None
    ) -> Iterator[pa.RecordBatch]:
        """Rows of a table, all or a range of them: only the row groups that contain some are read.

        Raises:
            SettingsError: the range begins or ends below 0.
        """
        if first < 0 or (end is not None and end < 0):
            raise SettingsError(f"first={first}, end={end}: rows of a record are counted from 0")
        for file in self.manifest.of(table):
            if end is not None and file.first >= end:
                return
            if file.first + file.rows > first:
                with self._open(file) as parquet:
                    try:
                        yield from self._rows_of(parquet, file, first, end, names)
                    except DAMAGE as error:
                        raise RecordError(unread(self.path / file.path, error)) from error

    def _rows_of(
        self, parquet: pq.ParquetFile, file: File, first: int, end: int | None, names: list[str] | None
    ) -> Iterator[pa.RecordBatch]:
        sizes = [parquet.metadata.row_group(index).num_rows for index in range(parquet.metadata.num_row_groups)]
        starts = list(accumulate(sizes, initial=file.first))
        last = starts[-1] if end is None else end
        groups = [at for at, size in enumerate(sizes) if starts[at] < last and starts[at] + size > first]
        row = starts[groups[0]] if groups else 0
        for batch in parquet.iter_batches(_ROWS_AT_ONCE, row_groups=groups, columns=names, use_threads=False):
            start, stop = max(first - row, 0), min(last - row, len(batch))
            row += len(batch)
            if start < stop:
                self.watch.read(file.table, row)
                yield check_values(batch.slice(start, stop - start))


class _Cursor:
    """Takes rows of a table by count, across the ends of its batches."""

    def __init__(self, batches: Iterator[pa.RecordBatch]) -> None:
        self._batches = batches
        self._left: pa.RecordBatch | None = None

    def take(self, count: int) -> pa.Table:
        taken: list[pa.RecordBatch] = []
        while count:
            if self._left is None or not len(self._left):
                self._left = next(self._batches, None)
                if self._left is None:
                    raise RecordError("the record has fewer items than its arrivals say; `drift audit` says which")
            part = self._left.slice(0, count)
            self._left = self._left.slice(len(part))
            count -= len(part)
            taken.append(part)
        return pa.Table.from_batches(taken)


def _late_rows(table: Any) -> Iterator[LateItemRow]:
    rows = table.to_pydict()
    return map(LateItemRow, rows["source"], rows["payload"], rows["time"], rows["heartbeat"], rows["reason"])


def _numbered(strings: pa.Array) -> Metas:
    """Metas given as consecutive numbers."""
    first = strings[0].as_py()
    return Metas.numbered(time_of(first), len(strings), first[8:])


def _range_of(known: Any) -> tuple[int, int]:
    """The least and the greatest value of a column in a row group; all numbers if there are no statistics."""
    return (known.min, known.max) if known is not None and known.has_min_max else (TIME_MIN, TIME_MAX)


def _find(table: pa.Table, global_time: bytes, first_row: int) -> InputItem | None:
    of_time = pc.equal(table.column("time"), time_of(global_time))
    of_tie = pc.equal(table.column("tie"), pa.scalar(global_time[8:], pa.binary()))
    at = pc.index(pc.and_(of_time, of_tie), True).as_py()
    if at < 0:
        return None
    row = table.slice(at, 1).to_pylist()[0]
    return InputItem(first_row + at, row["batch"], row["source"], global_time, row["payload"])


_decode = msgspec.msgpack.Decoder(list[Any]).decode
_decode_rows = msgspec.msgpack.Decoder(list[tuple[Any, ...]]).decode
_scalars = frozenset({str, int, float, bool, type(None), bytes})


def restored_many(data: pa.Array, classes: Classes) -> list[Any]:
    """The payloads of a column; several times faster if all are scalars, or tuples or dicts of scalars."""
    count = len(data)
    if not count:
        return []
    every = joined(data)
    first = every[0] if len(every) else -1
    message = b"\xdd" + count.to_bytes(4, "big") + every
    plain: list[Any]
    try:
        if 0x90 <= first <= 0x9F or first in (0xDC, 0xDD):
            plain = _decode_rows(message)
            if all(set(map(type, row)) <= _scalars for row in plain):
                return plain
        else:
            plain = _decode(message)
            kinds = set(map(type, plain))
            if kinds <= _scalars:
                return plain
            if kinds == {dict} and all(set(map(type, chain(row, row.values()))) <= _scalars for row in plain):
                return plain
    except (msgspec.DecodeError, TypeError, ValueError, RecursionError):
        pass  # a value of another kind is among them: see below
    values = restored_all(bytes(every), classes)
    if len(values) != count:
        raise CannotRestore(f"the payloads of {count:,} rows hold {len(values):,} values")
    return values
